"""When a method should begin: once the network memorises, told by labels that it was not shown.

A network that has not begun to memorise needs no protection from it. To hold it back then, as `elr` and `sop` do, costs
what it would have learned next; and of the labels that it contradicts by then, most are right. With

    a    the share of the labels shown that the network agreed with at their last visit, before the step,
    a₀   the share of labels held out that it agrees with,
    φ = (a − a₀) / (1 − a₀)

φ is the share of what it would contradict unseen that it takes over once shown: 0 as long as what it learns holds for
all examples alike, 1 where it knows every label by heart, and in between near the share of wrong labels memorised. A
method wakes up, for good, when a exceeds what φ = 0.2 makes of it by the standard error of a₀.

From then on a label counts as contradicted where the mean prediction t over its visits prefers another class to it by
more than 3/10 of the margin by which it prefers, on average, the labels that it agrees with, and by more than 0.1: what
is clear depends on how sure the network has become.

Held out is the validation set, where there is one. Else a tenth of the examples, at most 1,000, stand watch: until the
method is awake they are looked at in each visit, but not trained on. Where these were fewer than 50 there is no
telling, and the method is awake from the start.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from noiseproof import checks
from noiseproof.method import Run

AUTO = "auto"  # of an option: by the evidence that is described here
_MEMORISED = 0.2  # φ at which to wake up
_CLEARLY, _LEAST = 0.3, 0.1  # of the margin by which it prefers labels it agrees with; and never less
_SHARE, _FEWEST, _MOST = 0.1, 50, 1000  # of the examples that stand watch


def number_or_auto(name: str, value: Any, *bounds: float, ends: str = "[]") -> float | str:
    """An option that is a number within bounds, or "auto"."""
    return AUTO if isinstance(value, str) and value == AUTO else checks.number(name, value, *bounds, ends=ends)


def margins(mean: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
    """By how much a mean prediction t prefers another class to the label, max_{k≠y} t_k − t_y, and which.

    Of t (B, K), rows sum to 1, and label (B,): (B,) and (B,).
    """
    given = mean.gather(1, label[:, None]).squeeze(1)  # (B,)
    rival, guess = mean.scatter(1, label[:, None], -1.0).max(dim=1)  # (B,), (B,)
    return rival - given, guess


class Waking(nn.Module):
    """Whether a method is awake, and what contradicts a label. All of its state is in buffers.

    Args:
        num_examples: n.
        generator: draws the examples that stand watch.
        val: how many labels are held out elsewhere; 0 for none, and then some of these stand watch.
        automatic: else awake from the start.
    """

    awake: Tensor  # () bool
    watching: Tensor  # (n,) bool
    visits: Tensor  # (2,) since the last comparison: of examples that are trained on, and that stand watch
    agreed: Tensor  # (2,) at how many of them the network agreed with the label
    sure: Tensor  # () the margin by which mean predictions prefer the labels they agree with, over the last n visits

    def __init__(self, num_examples: int, generator: torch.Generator, *, val: int = 0, automatic: bool = True) -> None:
        super().__init__()
        self.val, self.automatic = val, automatic
        count = 0 if val or not automatic else min(int(_SHARE * num_examples), _MOST)
        watching = torch.zeros(num_examples, dtype=torch.bool)
        if count >= _FEWEST:
            watching[torch.randperm(num_examples, generator=generator)[:count]] = True
        self.register_buffer("watching", watching)
        self.register_buffer("awake", torch.tensor(not automatic or (not val and count < _FEWEST)))
        self.register_buffer("visits", torch.zeros(2, dtype=torch.int64))
        self.register_buffer("agreed", torch.zeros(2, dtype=torch.int64))
        self.register_buffer("sure", torch.zeros(()))

    def see(
        self,
        p: Tensor,
        mean: Tensor,
        label: Tensor,
        index: Tensor,
        gather: Callable[[Tensor], Tensor] | None = None,
    ) -> Tensor:
        """Count a batch, at a visit; after each n visits compare. Which labels are to be trained on: (B,), 0 or 1.

        Args:
            p: (B, K), of this visit; mean: (B, K), over visits; label: (B,); index: (B,).
            gather: what all processes have of such a step, `Batch.gather`.
        """
        if not self.automatic:
            return torch.ones_like(label, dtype=p.dtype)
        agreed, against, at = (p.detach().argmax(dim=1) == label).long(), margins(mean.detach(), label)[0], index
        if gather is not None:
            agreed, against, at = gather(agreed), gather(against), gather(index)
        if (against < 0).any():
            sure = -against[against < 0].mean().to(self.sure)
            self.sure.lerp_(sure, min(1.0, len(at) / len(self.watching)))
        if self.awake:
            return torch.ones_like(label, dtype=p.dtype)
        watching = self.watching[at]  # (B,)
        groups = torch.stack([~watching, watching])  # (2, B)
        self.visits += groups.sum(dim=1)
        self.agreed += (groups * agreed).sum(dim=1)
        if not self.val and int(self.visits.sum()) >= len(self.watching):
            seen, visits = int(self.agreed[1]), int(self.visits[1])
            self._compare(seen / max(visits, 1), int(self.watching.sum()))
        return (~self.watching[index]).to(p.dtype)

    def contradicts(self, mean: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
        """Whether mean predictions (B, K) clearly contradict labels (B,), and the classes they name: (B,), (B,).

        Nothing is contradicted while asleep.
        """
        against, guess = margins(mean, label)  # (B,), (B,)
        return (against > (_CLEARLY * self.sure).clamp_min(_LEAST)) & self.awake, guess

    def before_epoch(self, run: Run) -> None:
        """With a validation set, compare after each epoch."""
        if self.val and not self.awake and run.history:
            self._compare(run.history[-1]["val_accuracy"], self.val)

    def _compare(self, unseen: float, count: int) -> None:
        """Wake up, if the agreement at the visits since the last call tells so; `unseen` is that of `count` others."""
        agreement = int(self.agreed[0]) / max(int(self.visits[0]), 1)
        error = math.sqrt(unseen * (1 - unseen) / count)
        self.awake.fill_(agreement > unseen + _MEMORISED * (1 - unseen) + error)
        self.visits.zero_()
        self.agreed.zero_()

    def figures(self) -> dict[str, float]:
        """1 once awake, for the history."""
        return {"awake": float(self.awake)} if self.automatic else {}

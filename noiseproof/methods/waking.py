"""When a method should begin: once the network memorises, told by labels that it was not shown.

A network that has not begun to memorise needs no protection from it. To hold it back then, as `elr` and `sop` do, costs
what it would have learned next; and of the labels that it contradicts by then, most are right. With

    m    the mean of p_y, the probability of the label, over the examples shown, at their last visit, before the step,
    m₀   the mean of p_y over labels held out,
    φ = (m − m₀) / (1 − m₀)

φ is the share of what it would doubt unseen that it takes over once shown: 0 as long as what it learns holds for all
examples alike, 1 where it knows every label by heart. A method wakes up, for good, when φ exceeds 0.075 by the standard
error of m₀. (Probabilities tell sooner than the share of labels agreed with, which is known to half their precision.)

From then on a label counts as contradicted where the mean prediction t over its visits prefers another class to it by
more than 4/10 of the margin by which it prefers, on average, the labels that it agrees with, and by more than 0.1: what
is clear depends on how sure the network has become.

Held out is the validation set, where there is one. It is asked after an epoch, and the others were on the way, where a
network that takes large steps is better than at a given moment. So before it wakes up, as many of those that it is
trained on are asked once more, at the same moment and in the same way, and m is the lesser of the two. Without a
validation set a tenth of the examples, at most 1,000, stand watch: until the method is awake they are looked at in each
visit, but not trained on. Where these were fewer than 10 there is no telling, and it never wakes up: cross-entropy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from noiseproof import checks
from noiseproof.method import Run

AUTO = "auto"  # of an option: by the evidence that is described here
_MEMORISED = 0.075  # φ at which to wake up
_CLEARLY, _LEAST = 0.4, 0.1  # of the margin by which it prefers labels it agrees with; and never less
_NEVER = 2.0  # φ before it is known: it is at most 1
_SHARE, _FEWEST, _MOST = 0.1, 10, 1000  # of the examples that stand watch


def number_or_auto(name: str, value: Any, low: float) -> float | str:
    """An option that is a number from `low` on, or "auto"."""
    return AUTO if isinstance(value, str) and value == AUTO else checks.number(name, value, low)


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
    sums: Tensor  # (2, 3) since the last comparison, of examples shown and watching: visits, p_y, p_y²
    by_heart: Tensor  # () φ of the last comparison before it woke up; _NEVER before the first
    sure: Tensor  # () the margin by which mean predictions prefer the labels they agree with, over the last n visits

    def __init__(self, num_examples: int, generator: torch.Generator, *, val: int = 0, automatic: bool = True) -> None:
        super().__init__()
        self.val, self.automatic = val if val >= _FEWEST else 0, automatic
        count = 0 if self.val or not automatic else min(int(_SHARE * num_examples), _MOST)
        watching = torch.zeros(num_examples, dtype=torch.bool)
        if count >= _FEWEST:
            watching[torch.randperm(num_examples, generator=generator)[:count]] = True
        self.register_buffer("watching", watching)
        self.register_buffer("awake", torch.tensor(not automatic))
        self.register_buffer("sums", torch.zeros(2, 3))
        self.register_buffer("by_heart", torch.tensor(_NEVER))
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
        given, against, at = p.detach().gather(1, label[:, None]).squeeze(1), margins(mean.detach(), label)[0], index
        if gather is not None:
            given, against, at = gather(given), gather(against), gather(index)
        self.weigh(against)
        self.count(given, at)
        return self.trained_on(index).to(p.dtype)

    def weigh(self, against: Tensor) -> None:
        """Take the margins (size,) against the labels of a step of all processes into account."""
        against = against.to(self.sums).nan_to_num(0.0)  # (size,)
        agreed = (against < 0).to(against)  # (size,)
        sure = -(against * agreed).sum() / agreed.sum().clamp_min(1)
        self.sure.lerp_(sure, min(1.0, len(against) / len(self.watching)) * agreed.amax())

    def count(self, given: Tensor, index: Tensor) -> None:
        """Count the visits of a step of all processes, p_y (size,) and index (size,); after each n of them compare."""
        given = given.to(self.sums).nan_to_num(0.0)  # (size,)
        if self.val:
            self.sums[0] += torch.stack([torch.ones_like(given), given, given.square()]).sum(dim=1)
            return
        watching = self.watching[index]  # (size,)
        groups = torch.stack([~watching, watching]).to(given)  # (2, size)
        self.sums += groups @ torch.stack([torch.ones_like(given), given, given.square()], dim=1)
        due = (self.sums[:, 0].sum() >= len(self.watching)) & (self.sums[1, 0] > 0)
        self._compare(self._shown(), *_mean_and_error(self.sums[1]), due=due)

    def trained_on(self, index: Tensor) -> Tensor:
        """Which examples (B,) are: all but those that stand watch, until it is awake."""
        if self.val:
            return torch.ones_like(index, dtype=torch.bool)
        return self.awake | ~self.watching[index]

    def contradicts(self, mean: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
        """Whether mean predictions (B, K) clearly contradict labels (B,), and the classes they name: (B,), (B,).

        Nothing is contradicted while asleep.
        """
        against, guess = margins(mean, label)  # (B,), (B,)
        return self.clear(against), guess

    def clear(self, against: Tensor) -> Tensor:
        """Which margins (B,) against labels contradict them."""
        return (against > (_CLEARLY * self.sure).clamp_min(_LEAST)) & self.awake

    def before_epoch(self, run: Run) -> None:
        """With a validation set, compare after each epoch."""
        if self.val and not self.awake and run.epoch > 0:
            self.compare(run, held_out(run))

    def compare(self, run: Run, given: Tensor) -> None:
        """With p_y (m,) of the validation set, as the network says it now."""
        sums = torch.stack([torch.ones_like(given), given, given.square()]).sum(dim=1)  # (3,)
        unseen, error = (one.to(self.sums) for one in _mean_and_error(sums))
        shown = self._shown()
        if _is_clear(shown, unseen, error):  # it may be worse at this moment than it was on its way
            shown = torch.minimum(shown, shown_now(run, len(given)).mean().to(shown))
        self._compare(shown, unseen, error, due=torch.ones_like(self.awake))

    def _shown(self) -> Tensor:
        """m () of the visits since the last comparison."""
        return self.sums[0, 1] / self.sums[0, 0].clamp_min(1)

    def _compare(self, shown: Tensor, unseen: Tensor, error: Tensor, due: Tensor) -> None:
        """If due, wake up where m tells so; `unseen` is m₀, with its standard error. All ().

        No branch: that would wait for the device in each step.
        """
        share = (shown - unseen) / (1 - unseen).clamp_min(1e-6)  # φ
        self.by_heart.copy_(torch.where(due & ~self.awake, share, self.by_heart))
        self.awake |= due & _is_clear(shown, unseen, error)
        self.sums.masked_fill_(due, 0.0)

    def figures(self) -> dict[str, float]:
        """For the history: 1 once awake, and φ, from the first comparison on; once awake, that which woke it up."""
        if not self.automatic:
            return {}
        by_heart = float(self.by_heart)
        return {"awake": float(self.awake)} | ({"by_heart": by_heart} if by_heart < _NEVER else {})


def held_out(run: Run) -> Tensor:
    """p_y (m,) of the validation set."""
    assert run.val is not None
    said = run.predict(run.val) if run.held_out is None else run.held_out
    return said.gather(1, run.val.labels.cpu()[:, None]).squeeze(1)


def shown_now(run: Run, count: int) -> Tensor:
    """p_y (m,) of so many examples that are trained on, or of all, asked as the validation set is."""
    rows = torch.from_numpy(np.random.default_rng(run.epoch).permutation(len(run.data))[:count])
    return run.predict(index=rows).gather(1, run.data.labels.cpu()[rows][:, None]).squeeze(1)


def _is_clear(shown: Tensor, unseen: Tensor, error: Tensor) -> Tensor:
    return shown > unseen + _MEMORISED * (1 - unseen) + error


def _mean_and_error(sums: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard error of values of which sums (3,) has the count, the sum and the sum of squares: (), ()."""
    count = sums[0].clamp_min(1)
    mean = sums[1] / count
    return mean, ((sums[2] / count - mean.square()).clamp_min(0) / count).sqrt()

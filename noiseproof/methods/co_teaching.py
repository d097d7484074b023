"""Co-teaching: two networks, each of which picks the examples the other learns from.

Bo Han et al., "Co-teaching: Robust Training of Deep Neural Networks with Extremely Noisy Labels", NeurIPS 2018.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from noiseproof import checks
from noiseproof.method import Batch, Method, Run


def keep_rate(epoch: int, forget_rate: float, warmup: int, exponent: float) -> float:
    """R(t) = 1 − min(τ t^c / T_k, τ), the share of a batch that is kept after t epochs (Algorithm 1).

    `epoch` is t, those completed, 0 keeps everything; τ is the forget rate, T_k the warm-up, c the exponent.
    """
    return 1 - min(forget_rate * epoch**exponent / warmup, forget_rate)


def co_teaching_loss(
    logits1: Tensor, logits2: Tensor, label: Tensor, keep: int, weight: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The mean cross-entropy of each network on the `keep` examples of smallest loss to the other (Algorithm 1).

    Logits (B, K) twice, label (B,) and weight (B,), which weighs the losses and has no say in the picking, to two
    scalars. Each has a gradient with respect to its own logits only.
    """
    loss1 = F.cross_entropy(logits1, label, reduction="none")  # (B,)
    loss2 = F.cross_entropy(logits2, label, reduction="none")
    return of_the_others_picks(loss1, loss2, keep, weight)


def of_the_others_picks(loss1: Tensor, loss2: Tensor, keep: int, weight: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The mean loss of each network on the `keep` examples of smallest loss to the other: (B,), (B,) to two scalars."""
    picked1 = loss1.detach().argsort(stable=True)[:keep]  # (keep,)
    picked2 = loss2.detach().argsort(stable=True)[:keep]
    if weight is not None:
        loss1, loss2 = loss1 * weight, loss2 * weight
    return loss1[picked2].mean(), loss2[picked1].mean()


class TwoNetworks(Method):
    """Two networks, trained side by side; predictions are the mean of theirs."""

    cost = "2×"
    num_models = 2


@dataclass(kw_only=True, eq=False, repr=False)
class SmallLoss(TwoNetworks):
    """Two networks that learn from the examples of small loss, R(t) of each batch; a subclass says by whose loss.

    Args:
        forget_rate: τ in [0, 1): the share of wrong labels, which the papers take as known. The default of 0.2 is a
            guess: give your own.
        warmup: T_k, epochs until the full share is dropped; at least 1.

    Raises:
        InputError: an argument outside its range.
    """

    needs = "noise rate"

    forget_rate: float = checks.option(0.2, checks.number, low=0, high=1, ends="[)")
    warmup: int = checks.option(10, checks.integer, low=1)

    def keep(self, run: Run, batch: Batch, exponent: float = 1.0) -> int:
        """How many examples of a step are learned from: R(t) · B, rounded, at least 1."""
        return max(1, round(batch.size * keep_rate(run.epoch, self.forget_rate, self.warmup, exponent)))


@dataclass(kw_only=True, eq=False, repr=False)
class CoTeaching(SmallLoss):
    """Train two networks, each on the examples of smallest loss to the other: what neither can fit is left out.

    Each step keeps R(t) · B examples, R(t) = 1 − min(τ t^c / T_k, τ). Algorithm 1 of Han et al. (2018).

    Differs from the paper: predictions are the mean of the two networks, where it reports each. R(t) · B is rounded to
    the nearest integer, and at least 1.
    Differs from the authors' code: it rounds down, and reaches 1 − τ an epoch earlier, at t = T_k − 1.

    Args:
        forget_rate, warmup: τ and T_k, as of `SmallLoss`.
        exponent: c, above 0.

    Raises:
        InputError: an argument outside its range.
    """

    name = "co_teaching"
    paper = "Han et al. 2018"

    exponent: float = checks.option(1.0, checks.number, low=0, ends="(]")

    def loss(self, run: Run, batch: Batch) -> Tensor:
        keep = self.keep(run, batch, self.exponent)
        logits = [checks.single(model(batch.views[0])) for model in run.models]  # (B, K) each
        each = [batch.gather(F.cross_entropy(one, batch.label, reduction="none")) for one in logits]  # (size,) each
        loss1, loss2 = of_the_others_picks(each[0], each[1], keep, batch.gathered().weight)
        return loss1 + loss2

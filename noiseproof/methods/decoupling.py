"""Decoupling: two networks learn only where they disagree.

Eran Malach and Shai Shalev-Shwartz, "Decoupling 'when to update' from 'how to update'", NeurIPS 2017.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from noiseproof import checks
from noiseproof.method import Batch, Run
from noiseproof.methods.co_teaching import TwoNetworks


def disagreement(logits1: Tensor, logits2: Tensor) -> Tensor:
    """S = {i : h₁(x_i) ≠ h₂(x_i)} (B,) bool: what two networks put into different classes (Algorithm 1)."""
    return logits1.argmax(dim=1) != logits2.argmax(dim=1)


def decoupling_loss(
    logits1: Tensor, logits2: Tensor, label: Tensor, chosen: Tensor, least: float, weight: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The cross-entropy of each network over the chosen examples: its sum, over the larger of |S| and least · B.

    Logits (B, K) twice, label (B,), chosen (B,) bool and weight (B,) to two scalars, 0 where nothing is chosen.
    """
    share = chosen.to(logits1.dtype)  # (B,)
    share = share / share.sum().clamp_min(max(least * len(label), 1.0))
    share = share if weight is None else share * weight
    losses = (F.cross_entropy(logits, label, reduction="none") for logits in (logits1, logits2))
    first, second = ((share * loss).sum() for loss in losses)
    return first, second


@dataclass(kw_only=True, eq=False, repr=False)
class Decoupling(TwoNetworks):
    """Train two networks, both on the examples they disagree about: what both call alike is left alone, right or wrong.

    Algorithm 1 of Malach and Shalev-Shwartz (2017).

    Differs from the paper: nothing but the warm-up, which it has as iterations; predictions are the mean of the two
    networks, where it reports one.
    Differs from the authors' code: it also weighs the two classes of its task by how rare they are in the batch. Their
    other mode, which gathers disagreements until they fill a batch, is not here.

    Args:
        warmup: epochs on all examples first, at least 0: networks that have learned nothing disagree about everything.
        least: the step is no larger than if this share of the batch had disagreed, in [0, 1]. The authors' code: 0.1.

    Raises:
        InputError: an argument outside its range.
    """

    name = "decoupling"
    paper = "Malach & Shalev-Shwartz 2017"

    warmup: int = checks.option(2, checks.integer, low=0)
    least: float = checks.option(0.1, checks.number, low=0, high=1)

    def loss(self, run: Run, batch: Batch) -> Tensor:
        logits1, logits2 = (batch.gather(checks.single(model(batch.views[0]))) for model in run.models)  # (size, K)
        whole = batch.gathered()
        chosen = disagreement(logits1, logits2) | (run.epoch < self.warmup)
        first, second = decoupling_loss(logits1, logits2, whole.label, chosen, self.least, whole.weight)
        return first + second

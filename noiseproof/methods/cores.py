"""CORES²: a loss that rewards confidence, and a sieve that drops the labels less likely than a guess.

Hao Cheng, Zhaowei Zhu, Xingyu Li, Yifei Gong, Xing Sun and Yang Liu, "Learning with Instance-Dependent Label Noise: A
Sample Sieve Approach", ICLR 2021. With ℓ_j = −log p_j of an example, its noisy label y and the shares π_j of labels

    L = v (ℓ_y − β Σ_j π_j ℓ_j)          the confidence-regularized loss, of the examples that are kept
    v = 1 if ℓ_y < 1/K Σ_j ℓ_j else 0    the sieve; the regularizer, on both sides of its threshold, cancels

CORES* goes on with what the sieve dropped as unlabelled, asking for like predictions under augmentation.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor

from noiseproof import checks
from noiseproof.method import Batch, Run, Selection
from noiseproof.methods import _warmup
from noiseproof.methods._selected import share_right

_EPS = 1e-8  # the authors': bounds ℓ, and with it how much confidence pays
_FULL = 4  # warm-ups after which β has risen to its full value: the authors' epoch 40 where the warm-up is 10
_SIEVE = 3  # warm-ups after which the sieve begins: their epoch 30


def losses(logits: Tensor) -> Tensor:
    """−log (p_j + 1e-8) of every class: (B, K) to (B, K)."""
    return -(logits.softmax(dim=1) + _EPS).log()


def cores(each: Tensor, label: Tensor, share: Tensor, beta: float) -> Tensor:
    """ℓ_y − β Σ_j π_j ℓ_j of `losses` (B, K), label (B,) and label shares π (K,): (B,)."""
    return each.gather(1, label[:, None]).squeeze(1) - beta * (each @ share.to(each.dtype))


def sieve(each: Tensor, label: Tensor) -> Tensor:
    """Which labels are likelier than a guess, ℓ_y < mean_j ℓ_j: (B, K), (B,) to (B,) bool."""
    each = each.detach()
    return each.gather(1, label[:, None]).squeeze(1) < each.mean(dim=1)


def strength(epoch: int, warmup: int, beta: float) -> float:
    """β after so many epochs: 0 in the warm-up, then rising linearly to its full value at four times its length."""
    return beta * min(1.0, max(0.0, (epoch / warmup - 1) / (_FULL - 1)))


@dataclass(kw_only=True, eq=False, repr=False)
class CORES(_warmup.WarmsUp):
    """Reward confidence in any class, whatever the label, and sieve out labels that look less likely than chance.

    ℓ_y − β Σ_j π_j ℓ_j of the examples with ℓ_y < mean_j ℓ_j: Cheng et al. (2021).

    Differs from the paper: β rises and the sieve begins at shares of the run, those of the authors' 100 epochs. CORES*
    is a term of the same run, for the examples dropped, in place of a second phase with a semi-supervised learner.
    Differs from the authors' code: there the learning rate is divided by 1 + β, here the loss; π follows the labels
    that the sieve has kept, in both.

    Args:
        beta: β at the end of its rise, 0 or above. The authors' code: 2 for CIFAR-10.
        warmup: epochs without either, at least 1; None: a twentieth of all, at least 5, or fewer in a run below 50.
            The authors' code: 10 of 100. A run of no more than three warm-ups has no sieve.
        consistency: weight of KL(p(x) ‖ p(x′)), x′ a second view, of the examples dropped: CORES* where it is above 0,
            which takes two views and an augmentation.

    Raises:
        InputError: an argument outside its range.
    """

    name = "cores"
    paper = "Cheng et al. 2021"

    beta: float = checks.option(2.0, checks.number, low=0)
    warmup: int | None = checks.option(None, _warmup.option)
    consistency: float = checks.option(0.0, checks.number, low=0)
    kept: Tensor = field(init=False)
    share: Tensor = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.num_views = 2 if self.consistency > 0 else 1

    def start(self, run: Run) -> None:
        super().start(run)
        self.register_buffer("kept", torch.ones(len(run.data), dtype=torch.bool))  # (n,) by the sieve, when last seen
        self.register_buffer("share", torch.full((run.num_classes,), 1 / run.num_classes))  # (K,) π
        self._count(run)

    def before_epoch(self, run: Run) -> Selection | None:
        self._count(run)
        return None

    def _count(self, run: Run) -> None:
        """π of the labels kept, of all where none is."""
        labels = run.data.labels.cpu()
        kept = self.kept.cpu() if self.kept.any() else torch.ones(len(labels), dtype=torch.bool)
        self.share.copy_(torch.bincount(labels[kept], minlength=run.num_classes) / kept.sum())

    def loss(self, run: Run, batch: Batch) -> Tensor:
        logits = checks.single(run.model(batch.views[0]))  # (B, K)
        warmup = self.warm_epochs(run)
        each, beta = losses(logits), strength(run.epoch, warmup, self.beta)
        all_kept = run.epoch < _SIEVE * warmup
        kept = sieve(each, batch.label) | all_kept  # (B,)
        everyone = batch.gather(kept)  # (size,)
        self.kept[batch.gathered().index] = everyone
        regularized = cores(each, batch.label, self.share, beta) / (1 + beta)
        loss = batch.mean(regularized * kept) * batch.size / everyone.sum().clamp_min(1)
        if self.consistency == 0 or all_kept:
            return loss
        other = checks.single(run.model(batch.views[1])).log_softmax(dim=1)  # (B, K)
        apart = F.kl_div(other, logits.detach().softmax(dim=1), reduction="none").sum(dim=1)  # (B,)
        return loss + self.consistency * batch.mean(apart * ~kept)

    def figures(self, run: Run) -> dict[str, float]:
        return share_right(run, self.kept)

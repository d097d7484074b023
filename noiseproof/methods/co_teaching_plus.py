"""Co-teaching+: co-teaching on the examples about which the two networks disagree.

Xingrui Yu, Bo Han, Jiangchao Yao, Gang Niu, Ivor Tsang and Masashi Sugiyama, "How does Disagreement Help Generalization
against Label Corruption?", ICML 2019.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from noiseproof import checks
from noiseproof.method import Batch, Run
from noiseproof.methods import _warmup
from noiseproof.methods.co_teaching import SmallLoss, co_teaching_loss, keep_rate
from noiseproof.methods.decoupling import disagreement

_PAPER = 20  # epochs of plain co-teaching, of the authors' 200


def co_teaching_plus_loss(
    logits1: Tensor, logits2: Tensor, label: Tensor, rate: float, weight: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Co-teaching over the examples that the networks put into different classes, of which a share `rate` is kept.

    Logits (B, K) twice, label (B,) and weight (B,) to two scalars, 0 where they agree on all (Algorithm 1).
    """
    apart = disagreement(logits1, logits2)  # (B,)
    keep = (apart.sum() * rate).round().clamp_min(1)  # a tensor: no step waits for the number
    first, second = (F.cross_entropy(logits, label, reduction="none") for logits in (logits1, logits2))  # (B,) each
    losses = []
    for own, other in ((first, second), (second, first)):
        order = other.detach().masked_fill(~apart, torch.inf).argsort(stable=True)
        chosen = torch.empty_like(order).scatter_(0, order, torch.arange(len(order), device=order.device)) < keep
        share = (chosen & apart).to(own.dtype) / keep.to(own.dtype)
        losses.append((share * (own if weight is None else own * weight)).sum())
    return losses[0], losses[1]


@dataclass(kw_only=True, eq=False, repr=False)
class CoTeachingPlus(SmallLoss):
    """Co-teaching among the examples about which two networks disagree, which keeps the two from becoming one.

    In each step, of the examples with different predictions, each network takes the share λ(e) of smallest loss to the
    other, λ(e) = 1 − min(τ e / E_k, τ) after e epochs. Algorithm 1 of Yu et al. (2019).

    Differs from the paper: a short run has fewer epochs of plain co-teaching; predictions are the mean of the two
    networks, where it reports each; a batch without disagreement teaches nothing. The share is rounded to the nearest
    integer, and at least 1.
    Differs from the authors' code: there the losses of the disagreement stage are cross-entropies of softmax(softmax),
    divided by the number kept a second time, and a batch without disagreement is fitted as a whole.

    Args:
        forget_rate, warmup: τ and E_k, as of `SmallLoss`.
        agree: epochs of plain co-teaching first, at least 0, fewer than the run has; None: a tenth of all, from 2 to
            20. The authors' code, of 200: 20 for CIFAR-10, 5 for CIFAR-100, 0 for MNIST.

    Raises:
        InputError: an argument outside its range.
    """

    name = "co_teaching_plus"
    paper = "Yu et al. 2019"

    agree: int | None = checks.option(None, checks.optional(checks.integer, low=0))

    def __post_init__(self) -> None:
        super().__post_init__()
        self.plans = self.agree is None

    def start(self, run: Run) -> None:
        _warmup.check(self.agree, run.epochs, "agree")

    def plain_epochs(self, run: Run) -> int:
        """Those of plain co-teaching, before disagreement counts."""
        return _warmup.tenth(run.epochs, most=_PAPER) if self.agree is None else self.agree

    def loss(self, run: Run, batch: Batch) -> Tensor:
        logits1, logits2 = (batch.gather(checks.single(model(batch.views[0]))) for model in run.models)  # (size, K)
        whole = batch.gathered()
        if run.epoch < self.plain_epochs(run):
            first, second = co_teaching_loss(logits1, logits2, whole.label, self.keep(run, batch), whole.weight)
        else:
            rate = keep_rate(run.epoch, self.forget_rate, self.warmup, 1.0)
            first, second = co_teaching_plus_loss(logits1, logits2, whole.label, rate, whole.weight)
        return first + second

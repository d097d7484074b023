"""Co-teaching+: co-teaching on the examples about which the two networks disagree.

Xingrui Yu, Bo Han, Jiangchao Yao, Gang Niu, Ivor Tsang and Masashi Sugiyama, "How does Disagreement Help Generalization
against Label Corruption?", ICML 2019.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from noiseproof import checks
from noiseproof.method import Batch, Method, Run
from noiseproof.methods.co_teaching import co_teaching_loss, keep_rate
from noiseproof.methods.decoupling import disagreement


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


class CoTeachingPlus(Method):
    """Co-teaching among the examples about which two networks disagree, which keeps the two from becoming one.

    In each step, of the examples with different predictions, each network takes the share λ(e) of smallest loss to the
    other, λ(e) = 1 − min(τ e / E_k, τ) after e epochs. Algorithm 1 of Yu et al. (2019).

    Differs from the paper: predictions are the mean of the two networks, where it reports each; a batch without
    disagreement teaches nothing. The share is rounded to the nearest integer, and at least 1.
    Differs from the authors' code: there the losses of the disagreement stage are cross-entropies of softmax(softmax),
    divided by the number kept a second time, and a batch without disagreement is fitted as a whole.

    Args:
        forget_rate: τ in [0, 1): the share of wrong labels, which the paper takes as known. The default of 0.2 is a
            guess: give your own.
        warmup: E_k, epochs until the full share is dropped; at least 1.
        agree: epochs of plain co-teaching first, at least 0. The authors' code: 20 for CIFAR-10, 5 for CIFAR-100, 0 for
            MNIST.

    Raises:
        InputError: an argument outside its range.
    """

    name = "co_teaching_plus"
    paper = "Yu et al. 2019"
    needs = "noise rate"
    cost = "2×"
    num_models = 2

    def __init__(self, *, forget_rate: float = 0.2, warmup: int = 10, agree: int = 20) -> None:
        super().__init__()
        self.forget_rate = checks.number("forget_rate", forget_rate, 0, 1, ends="[)")
        self.warmup = checks.integer("warmup", warmup, 1)
        self.agree = checks.integer("agree", agree, 0)

    def loss(self, run: Run, batch: Batch) -> Tensor:
        rate = keep_rate(run.epoch, self.forget_rate, self.warmup, 1.0)
        logits1, logits2 = (batch.gather(checks.single(model(batch.views[0]))) for model in run.models)  # (size, K)
        whole = batch.gathered()
        if run.epoch < self.agree:
            keep = max(1, round(rate * batch.size))
            first, second = co_teaching_loss(logits1, logits2, whole.label, keep, whole.weight)
        else:
            first, second = co_teaching_plus_loss(logits1, logits2, whole.label, rate, whole.weight)
        return first + second

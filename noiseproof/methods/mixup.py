"""mixup: train on straight lines between examples, and between their labels.

Hongyi Zhang, Moustapha Cisse, Yann Dauphin and David Lopez-Paz, "mixup: Beyond Empirical Risk Minimization",
ICLR 2018.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from scipy.special import betaincinv
from torch import Tensor

from noiseproof import checks
from noiseproof.errors import InputError
from noiseproof.method import Batch, Method, Run


def sample_lam(alpha: float, generator: torch.Generator, beta: float | None = None) -> float:
    """One draw of Beta(α, β), β = α if not given, by inverse transform: torch has no Beta that takes a generator."""
    uniform = torch.rand((), generator=generator, dtype=torch.float64).item()
    return float(betaincinv(alpha, alpha if beta is None else beta, uniform))


def mixup(x: Tensor, lam: float, permutation: Tensor) -> Tensor:
    """λ x_i + (1 − λ) x_π(i), the x̃ of Sec. 2, of x (B, ...) floating point, λ in [0, 1] and π (B,).

    Raises:
        InputError: x holds integers, which have nothing between them.
    """
    if not x.is_floating_point():
        raise InputError(f"mixup needs floating-point inputs, got {x.dtype}; mix embeddings rather than tokens")
    return lam * x + (1 - lam) * x[permutation]


def mixup_loss(logits: Tensor, label: Tensor, lam: float, permutation: Tensor, weight: Tensor | None = None) -> Tensor:
    """λ w_i CE(y_i) + (1 − λ) w_π(i) CE(y_π(i)) of each mixed example (B,): cross-entropy at ỹ of Sec. 2.

    Of logits (B, K) at the mixed inputs, label (B,) and weight (B,) before mixing: each label's share carries the
    weight of the example it came from.
    """
    log_p = F.log_softmax(logits, dim=1)  # (B, K)
    one = F.nll_loss(log_p, label, reduction="none")  # (B,)
    other = F.nll_loss(log_p, label[permutation], reduction="none")  # (B,)
    if weight is not None:
        one, other = weight * one, weight[permutation] * other
    return lam * one + (1 - lam) * other


@dataclass(kw_only=True, eq=False, repr=False)
class MixUp(Method):
    """Train on mixtures of two examples and of their labels: a wrong label never stands alone.

    x̃ = λ x_i + (1 − λ) x_j and ỹ = λ y_i + (1 − λ) y_j, with λ ~ Beta(α, α). Sec. 2 of Zhang et al. (2018).

    Differs from the paper: nothing. One λ per batch, and j from a permutation of the batch, are its own choices.
    Weights of a Selection mix with the labels they belong to.

    Args:
        alpha: above 0; near 0 is cross-entropy. 1 is the paper's value for CIFAR; it finds 8 to 32 better against
            wrong labels.

    Raises:
        InputError: alpha outside its range.
    """

    name = "mixup"
    paper = "Zhang et al. 2018"

    alpha: float = checks.option(1.0, checks.number, low=0, ends="(]")

    def loss(self, run: Run, batch: Batch) -> Tensor:
        lam = sample_lam(self.alpha, run.generator)
        permutation = torch.randperm(batch.size, generator=run.generator).to(batch.label.device, non_blocking=True)
        mixed = mixup(batch.gather(batch.views[0]), lam, permutation)[batch.own]
        logits = batch.gather(checks.single(run.model(mixed)))  # (size, K)
        whole = batch.gathered()
        return mixup_loss(logits, whole.label, lam, permutation, whole.weight).mean()

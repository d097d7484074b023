"""Symmetric cross-entropy: cross-entropy plus its reverse, in which prediction and label change places.

Yisen Wang et al., "Symmetric Cross Entropy for Robust Learning with Noisy Labels", ICCV 2019.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from noiseproof import checks
from noiseproof.method import Batch, Method, Run


def reverse_cross_entropy(logits: Tensor, label: Tensor, A: float) -> Tensor:
    """−Σ_k p_k log q_k of each example, where q is the one-hot label and log 0 is A: hence −A (1 − p_y).

    The definition of ℓ_rce in Sec. 3 of the paper, for A below 0: (B, K), (B,) to (B,).
    """
    log_p = -F.cross_entropy(logits, label, reduction="none")  # (B,)
    return A * torch.expm1(log_p)  # −A (1 − p_y), to the last digit where p_y is near 1


def sce(logits: Tensor, label: Tensor, alpha: float, beta: float, A: float) -> Tensor:
    """α ℓ_ce + β ℓ_rce of each example: (B, K), (B,) to (B,)."""
    ce = F.cross_entropy(logits, label, reduction="none")
    return alpha * ce + beta * reverse_cross_entropy(logits, label, A)


class SCELoss(nn.Module):
    """Symmetric cross-entropy for anybody's loop: α ℓ_ce + β ℓ_rce, with ℓ_rce = −A (1 − p_y).

    ℓ_sl in Sec. 3 of Wang et al. (2019).

    Differs from the authors' code: it floors the one-hot label at 1e-4, that is A = log 1e-4 ≈ −9.21, and p at 1e-7.

    Args:
        alpha: weight of cross-entropy, at least 0. The paper: 0.1 for CIFAR-10, 6 for CIFAR-100.
        beta: weight of the reverse, at least 0. The paper: 1 for CIFAR-10, 0.1 for CIFAR-100.
        A: what log 0 stands for, below 0. Only the product of beta and A matters.
        reduction: "mean", "sum" or "none".

    Raises:
        InputError: an argument outside its range.
    """

    def __init__(self, *, alpha: float = 0.1, beta: float = 1.0, A: float = -4.0, reduction: str = "mean") -> None:
        super().__init__()
        self.alpha = checks.number("alpha", alpha, 0)
        self.beta = checks.number("beta", beta, 0)
        self.A = checks.number("A", A, high=0, ends="[)")
        self.reduction = checks.reduction(reduction)

    def forward(self, logits: Tensor, label: Tensor) -> Tensor:
        """The loss of logits (B, K) at labels (B,), int64 in 0..K-1."""
        logits = checks.logits_and_label(logits, label)
        return checks.reduce(sce(logits, label, self.alpha, self.beta, self.A), self.reduction)


@dataclass(kw_only=True, eq=False, repr=False)
class SCE(Method):
    """Minimise α CE + β reverse CE: the reverse is bounded, so a wrong label cannot pull without end.

    ℓ_sl in Sec. 3 of Wang et al. (2019).

    Differs from the authors' code: see `SCELoss`.

    Args:
        alpha: at least 0. The paper: 0.1 for CIFAR-10, 6 for CIFAR-100.
        beta: at least 0. The paper: 1 for CIFAR-10, 0.1 for CIFAR-100.
        A: what log 0 stands for, below 0.

    Raises:
        InputError: an argument outside its range.
    """

    name = "sce"
    paper = "Wang et al. 2019"

    alpha: float = checks.option(0.1, checks.number, low=0)
    beta: float = checks.option(1.0, checks.number, low=0)
    A: float = checks.option(-4.0, checks.number, high=0, ends="[)")

    def loss(self, run: Run, batch: Batch) -> Tensor:
        logits = checks.single(run.model(batch.views[0]))
        return batch.mean(sce(logits, batch.label, self.alpha, self.beta, self.A))

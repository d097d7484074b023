"""JoCoR: two networks that must agree, trained together on the examples where their joint loss is small.

Hongxin Wei, Lei Feng, Xiangyu Chen and Bo An, "Combating Noisy Labels by Agreement: A Joint Training Method with
Co-Regularization", CVPR 2020.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from noiseproof import checks
from noiseproof.method import Batch, Run
from noiseproof.methods.co_teaching import SmallLoss


def joint_loss(logits1: Tensor, logits2: Tensor, label: Tensor, lam: float) -> Tensor:
    """ℓ = (1 − λ) ℓ_sup + λ ℓ_con of each example, Eq. (1): logits (B, K) twice and label (B,) to (B,).

    ℓ_sup = −log p₁_y − log p₂_y, Eq. (2), and ℓ_con = D_KL(p₁ ‖ p₂) + D_KL(p₂ ‖ p₁), Eqs. (3) to (5).
    """
    log_p1, log_p2 = logits1.log_softmax(dim=1), logits2.log_softmax(dim=1)
    supervised = F.nll_loss(log_p1 + log_p2, label, reduction="none")  # Eq. (2)
    contrastive = ((log_p1.exp() - log_p2.exp()) * (log_p1 - log_p2)).sum(dim=1)  # both divergences in one sum
    return (1 - lam) * supervised + lam * contrastive  # Eq. (1)


def small_losses(each: Tensor, keep: int, weight: Tensor | None = None) -> Tensor:
    """The mean of the `keep` smallest of the losses (B,), Eqs. (6) and (7); weight (B,) has no say in the picking."""
    picked = each.detach().argsort(stable=True)[:keep]
    return (each if weight is None else each * weight)[picked].mean()


@dataclass(kw_only=True, eq=False, repr=False)
class JoCoR(SmallLoss):
    """Train two networks on one joint loss, their errors and their difference, over the examples where it is smallest.

    Each step keeps R(t) · B examples, R(t) = 1 − min(τ t / T_k, τ). Eqs. (1) to (7), Algorithm 1 of Wei et al. (2020).

    Differs from the paper: predictions are the mean of the two networks, where it reports each. R(t) · B is rounded to
    the nearest integer, and at least 1.
    Differs from the authors' code: it rounds down, reaches 1 − τ an epoch earlier, and halves τ for asymmetric noise.

    Args:
        forget_rate, warmup: τ and T_k, as of `SmallLoss`.
        lam: λ in [0, 1], the share of the difference in the loss. The authors' notes: 0.9 for CIFAR-10, 0.85 for
            CIFAR-100, 0.65 with 80 % noise.

    Raises:
        InputError: an argument outside its range.
    """

    name = "jocor"
    paper = "Wei et al. 2020"

    lam: float = checks.option(0.9, checks.number, low=0, high=1)

    def loss(self, run: Run, batch: Batch) -> Tensor:
        logits1, logits2 = (checks.single(model(batch.views[0])) for model in run.models)
        each = batch.gather(joint_loss(logits1, logits2, batch.label, self.lam))  # (size,)
        return small_losses(each, self.keep(run, batch), batch.gathered().weight)

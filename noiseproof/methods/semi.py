"""The semi-supervised step of MixMatch: guessed labels, sharpened, and examples mixed, labelled or not.

David Berthelot et al., "MixMatch: A Holistic Approach to Semi-Supervised Learning", NeurIPS 2019, in the form that
dividemix.py uses. Of a batch of examples with targets t_i, of which some are labelled (X) and the others not (U):

    Sharpen(p, T)_k = p_k^(1/T) / Σ_l p_l^(1/T)
    x′_i = λ′ x_i + (1 − λ′) x_π(i),  t′_i alike,  λ′ = max(λ, 1 − λ),  λ ~ Beta(α, α)
    L_X = −(1/|X|) Σ_X Σ_k t′_ik log p_k(x′_i),   L_U = (1/|U|) Σ_U ‖t′_i − p(x′_i)‖² / K
    L_reg = Σ_k π_k log(π_k / p̄_k),   p̄ the mean of p over the batch
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from noiseproof.methods.mixup import mixup, sample_lam


def sharpen(p: Tensor, temperature: float) -> Tensor:
    """Sharpen(p, T): probabilities (B, K) to (B, K), surer of what they are sure of for T < 1."""
    return (p.clamp_min(1e-30).log() / temperature).softmax(dim=1)


def mix(inputs: Tensor, target: Tensor, alpha: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """x′ and t′ of inputs (B, …) and targets (B, K): each keeps the larger share of its mixture."""
    lam = sample_lam(alpha, generator)
    lam = max(lam, 1 - lam)
    permutation = torch.randperm(len(inputs), generator=generator).to(inputs.device, non_blocking=True)
    return mixup(inputs, lam, permutation), mixup(target, lam, permutation)


def semi_loss(logits: Tensor, target: Tensor, labelled: Tensor, weight: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """L_X and L_U of logits (B, K) and targets (B, K), labelled (B,) bool; 0 where there are no such examples.

    A weight (B,) is that of the example which has the larger share.
    """
    log_p = logits.log_softmax(dim=1)
    known = -(target * log_p).sum(dim=1)  # (B,)
    guessed = (log_p.exp() - target).square().mean(dim=1)  # (B,)
    if weight is not None:
        known, guessed = known * weight, guessed * weight
    return masked_mean(known, labelled), masked_mean(guessed, ~labelled)


def masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    """The mean of the values (B,) where the mask (B,) is set; 0 where it is set nowhere."""
    return (values * mask).sum() / mask.sum().clamp_min(1)


def prior_loss(logits: Tensor, prior: Tensor) -> Tensor:
    """L_reg = Σ_k π_k log(π_k / p̄_k), p̄ the mean prediction of a batch: logits (B, K), π (K,) to a scalar."""
    log_mean = logits.log_softmax(dim=1).logsumexp(dim=0) - math.log(len(logits))  # (K,)
    return F.kl_div(log_mean, prior.to(logits.dtype), reduction="sum")

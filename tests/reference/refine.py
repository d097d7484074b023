"""The refinery of Zhou et al. (2021) on classes, slow and obvious: loops over examples and classes, in float64."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def confidence(t: float, T: float, m1: float, m2: float) -> float:
    """μ_t = m₂ − (m₂ − m₁)(cos(πt/T) + 1)/2, Sec. 4.1."""
    return m2 - (m2 - m1) * (math.cos(math.pi * t / T) + 1) / 2


def refined(logits: Tensor, label: Tensor, mu: float, sharpness: float) -> list[list[float]]:
    """ỹ_i = (1 − α) y_i + α p_i, α = μ max_k p_ik / z, z = 1 + μ max_k p_ik: Eq. (5) without q."""
    rows = []
    for row, y in zip(logits.detach().tolist(), label.tolist(), strict=True):
        top = max(row)
        similarity = [math.exp(logit - top) ** (1 / sharpness) for logit in row]  # σ^(1/τ′)
        p = [one / sum(similarity) for one in similarity]
        alpha = mu * max(p) / (1 + mu * max(p))
        rows.append([(1 - alpha) * (k == y) + alpha * p[k] for k in range(len(p))])
    return rows


def loss(logits: Tensor, label: Tensor, mu: float, sharpness: float, other: Tensor | None = None) -> Tensor:
    """−Σ_k ỹ_ik log f(x_i)_k of each example; autograd sees ỹ as numbers."""
    losses = []
    targets = refined(logits if other is None else other, label, mu, sharpness)
    for row, target in zip(logits, targets, strict=True):
        total = torch.stack([torch.exp(logit) for logit in row.unbind()]).sum()
        losses.append(-sum(y * (logit - torch.log(total)) for y, logit in zip(target, row.unbind(), strict=True)))
    return torch.stack(losses)

"""SimCLR, BYOL and i-Mix, slow and obvious: loops over views and keys, written from the papers."""

from __future__ import annotations

import math

import torch
from reference.sane import contrast, sigma, unit
from torch import Tensor


def nt_xent(first: Tensor, second: Tensor, tau: float) -> Tensor:
    """Chen et al. (2020), Eq. (1): the mean of ℓ over both directions of each pair, of vectors of any length."""
    views = [*first, *second]
    s = len(first)
    total = torch.zeros((), dtype=first.dtype)
    for i in range(2 * s):
        other = i + s if i < s else i - s
        denominator = sum(sigma(views[i], views[k], tau) for k in range(2 * s) if k != i)
        total = total - torch.log(sigma(views[i], views[other], tau) / denominator)
    return total / (2 * s)


def byol(prediction: Tensor, target: Tensor) -> Tensor:
    """Grill et al. (2020), Eq. (2), of one direction: the mean of squared distances of unit vectors."""
    distances = [((unit(q) - unit(z)) ** 2).sum() for q, z in zip(prediction, target, strict=True)]
    return torch.stack(distances).mean()


def memory(t: int, steps: int, base: float) -> float:
    """Grill et al. (2020): τ rises from its base to 1."""
    return 1 - (1 - base) * (math.cos(math.pi * t / steps) + 1) / 2


def imix(queries: Tensor, keys: Tensor, share: Tensor, partner: list[int], tau: float) -> Tensor:
    """Lee et al. (2021): contrast with virtual labels λ v_i + (1 − λ) v_j; queries (s, d) are of mixed images."""
    labels = torch.zeros(len(queries), len(keys), dtype=torch.float64)
    for i, other in enumerate(partner):
        labels[i, i] += share[i]
        labels[i, other] += 1 - share[i]
    return contrast(queries, keys, labels, tau)

"""Slow twins of methods/auto.py, example by example."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def loss(logits: Tensor, label: Tensor, transition: Tensor, q: float) -> Tensor:
    """(1 − s^q) / q with s = Σ_k p_k T_k,y, −log s for q = 0: logits (B, K), label (B,), T (K, K) to (B,)."""
    found = []
    for row, y in zip(logits, label.tolist(), strict=True):
        total = sum(torch.exp(one) for one in row)
        s = sum(torch.exp(row[k]) / total * transition[k, y] for k in range(len(row)))
        found.append(-torch.log(s) if q == 0 else (1 - s**q) / q)
    return torch.stack(found)


def transition(posterior: list[list[float]], labels: list[int]) -> list[list[float]]:
    """T_kj ∝ Σ over examples labelled j of P(right = k): posterior (n, K), labels (n,) to (K, K)."""
    K = len(posterior[0])
    found = [[1e-6] * K for _ in range(K)]
    for row, j in zip(posterior, labels, strict=True):
        for k in range(K):
            found[k][j] += row[k]
    return [[value / math.fsum(row) for value in row] for row in found]


def uneven(transition: list[list[float]]) -> list[list[float]]:
    """T (K, K) less what its entries off the diagonal have in common, the lower median; rows of sum 1."""
    K = len(transition)
    others = sorted(transition[k][j] for k in range(K) for j in range(K) if k != j)
    common = others[(len(others) - 1) // 2]
    rows = [[transition[k][j] if k == j else max(0.0, transition[k][j] - common) for j in range(K)] for k in range(K)]
    return [[value / math.fsum(row) for value in row] for row in rows]


def refined(mean: list[list[float]], labels: list[int], transition: list[list[float]]) -> list[list[float]]:
    """t_ik ∝ (m_ik T_k,y)², with a millionth added to m: (n, K), (n,), (K, K) to (n, K)."""
    found = []
    for row, y in zip(mean, labels, strict=True):
        joint = [((m + 1e-6) * max(transition[k][y], 1e-6)) ** 2 for k, m in enumerate(row)]
        found.append([one / math.fsum(joint) for one in joint])
    return found


def mixture_loss(logits: Tensor, target: Tensor, q: float) -> Tensor:
    """Σ_k t_k (1 − p_k^q) / q, Σ_k −t_k log p_k for q = 0: logits (B, K), t (B, K) to (B,)."""
    found = []
    for row, t in zip(logits, target, strict=True):
        total = sum(torch.exp(one) for one in row)
        p = [torch.exp(one) / total for one in row]
        found.append(sum(t[k] * (-torch.log(p[k]) if q == 0 else (1 - p[k] ** q) / q) for k in range(len(row))))
    return torch.stack(found)


def balance(logits: Tensor, shares: Tensor) -> Tensor:
    """−Σ_k π_k log of the mean of p_k over examples: logits (B, K), π (K,) to ()."""
    p = [torch.exp(row) / sum(torch.exp(one) for one in row) for row in logits]
    return -sum(share * torch.log(sum(row[k] for row in p) / len(p)) for k, share in enumerate(shares))


def class_shares(transition: list[list[float]], labels: list[int]) -> list[float]:
    """√ of π after 20 steps π_k ← π_k Σ_j T_kj ν_j / Σ_i π_i T_ij from ν, the shares of the labels; of sum 1."""
    K = len(transition)
    shares = [labels.count(j) / len(labels) for j in range(K)]
    found = list(shares)
    for _ in range(20):
        made = [math.fsum(found[i] * transition[i][j] for i in range(K)) for j in range(K)]
        found = [found[k] * math.fsum(transition[k][j] * shares[j] / made[j] for j in range(K)) for k in range(K)]
    roots = [math.sqrt(one) for one in found]
    return [one / math.fsum(roots) for one in roots]


def held(mean: Tensor, label: Tensor, sure: float) -> list[bool]:
    """Whether m (B, K) prefers another class to the label by more than 4/10 of how sure it is, and than a tenth."""
    found = []
    for m, y in zip(mean.tolist(), label.tolist(), strict=True):
        rival = max(one for k, one in enumerate(m) if k != y)
        found.append(rival - m[y] > max(0.4 * sure, 0.1))
    return found


def sureness(mean: Tensor, label: Tensor) -> float:
    """The mean margin by which m (B, K) prefers the labels that it agrees with to every other class."""
    margins = []
    for m, y in zip(mean.tolist(), label.tolist(), strict=True):
        margins.append(m[y] - max(one for k, one in enumerate(m) if k != y))
    agreed = [one for one in margins if one > 0]
    return math.fsum(agreed) / len(agreed)


def holding(logits: Tensor, label: Tensor, mean: Tensor, held: list[bool]) -> Tensor:
    """log(1 − Σ_k p_k m_k), p clamped to [1e-4, 1 − 1e-4], where held, else −log p_y: (B, K), (B,), (B, K) to (B,)."""
    found = []
    for row, y, m, holds in zip(logits, label.tolist(), mean, held, strict=True):
        total = sum(torch.exp(one) for one in row)
        p = [torch.exp(one) / total for one in row]
        agreement = sum(one.clamp(1e-4, 1 - 1e-4) * m[k] for k, one in enumerate(p))
        found.append(torch.log(1 - agreement) if holds else -torch.log(p[y]))
    return torch.stack(found)

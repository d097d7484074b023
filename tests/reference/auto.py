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

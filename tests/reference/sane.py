"""SANE, slow and obvious: Eqs. (4), (5), (8), (9) of Zhou et al. (2021) by loops over queries and keys.

σ has the sign of MoCo, not the printed one: moco.py says why.
"""

from __future__ import annotations

import math
from collections import deque

import torch
from torch import Tensor


def unit(x: Tensor) -> Tensor:
    """x (d,) of length 1."""
    return x / torch.sqrt((x * x).sum())


def sigma(a: Tensor, b: Tensor, tau: float) -> Tensor:
    """σ of two vectors (d,), of any length."""
    return torch.exp((unit(a) * unit(b)).sum() / tau)


def contrast(queries: Tensor, keys: Tensor, labels: Tensor, tau: float) -> Tensor:
    """L_c, Eq. (4): queries (s, d), key set (s + b, d), labels (s, s + b)."""
    total = torch.zeros((), dtype=torch.float64)
    for i in range(len(queries)):
        scores = [sigma(queries[i], key, tau) for key in keys]
        for k in range(len(keys)):
            total = total - labels[i, k] * torch.log(scores[k] / sum(scores))
    return total / len(queries)


def labels_p(keys: Tensor, s: int, tau: float, sharpness: float) -> Tensor:
    """p (s, s + b)."""
    rows = []
    for i in range(s):
        powers = [sigma(keys[i], key, tau) ** (1 / sharpness) for key in keys]
        rows.append(torch.stack([power / sum(powers) for power in powers]))
    return torch.stack(rows)


def labels_q(keys: Tensor, s: int, tau: float, sharpness: float) -> Tensor:
    """q (s, s + b), the key itself removed."""
    rows = []
    for i in range(s):
        powers = [sigma(keys[i], key, tau) ** (1 / sharpness) for key in keys]
        rest = sum(power for l, power in enumerate(powers) if l != i)
        rows.append(torch.stack([0 * power if k == i else power / rest for k, power in enumerate(powers)]))
    return torch.stack(rows)


def refined(p: Tensor | None, q: Tensor | None, mu: float, s: int, size: int) -> Tensor:
    """ỹ (s, s + b), Eq. (5); a label that is left out has no weight."""
    result = torch.zeros(s, size, dtype=torch.float64)
    for i in range(s):
        sure_p = 0.0 if p is None else max(float(value) for value in p[i])
        sure_q = 0.0 if q is None else max(float(value) for value in q[i])
        z = 1 + mu * sure_p + mu * sure_q
        alpha, beta = mu * sure_p / z, mu * sure_q / z
        for k in range(size):
            one_hot = 1.0 if k == i else 0.0
            result[i, k] = (1 - alpha - beta) * one_hot
            result[i, k] += 0.0 if p is None else alpha * float(p[i, k])
            result[i, k] += 0.0 if q is None else beta * float(q[i, k])
    return result


def confidence(t: int, steps: int, m1: float, m2: float) -> float:
    """μ_t."""
    return m2 - (m2 - m1) * (math.cos(math.pi * t / steps) + 1) / 2


def mixed(first: Tensor, second: Tensor, theta: float, partner: list[int]) -> Tensor:
    """θ first_i + (1 − θ) second_k(i), Eq. (8), of inputs or labels."""
    return torch.stack([theta * first[i] + (1 - theta) * second[partner[i]] for i in range(len(first))])


class Dictionary:
    """First in, first out."""

    def __init__(self, keys: Tensor) -> None:
        self.rows = deque((row.clone() for row in keys), maxlen=len(keys))

    def push(self, keys: Tensor) -> None:
        """The oldest rows make room."""
        for key in keys:
            self.rows.append(key.clone())

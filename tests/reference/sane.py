"""SANE, slow and obvious: Eqs. (4), (5), (8), (9) of Zhou et al. (2021) by loops over queries and keys.

σ has the sign of MoCo, not the printed one: moco.py says why.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator

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


def resized(images: Tensor, height: int, width: int) -> Tensor:
    """Images (s, C, H, W) in another size: each pixel is a mean with weights that fall linearly to 0 with distance.

    They fall within one pixel of the coarser of the two grids.
    """
    result = torch.zeros(*images.shape[:2], height, width, dtype=torch.float64)
    rows, columns = weights(images.shape[2], height), weights(images.shape[3], width)
    for y in range(height):
        for x in range(width):
            for v in range(images.shape[2]):
                for u in range(images.shape[3]):
                    result[:, :, y, x] += rows[y][v] * columns[x][u] * images[:, :, v, u]
    return result


def weights(old: int, new: int) -> list[list[float]]:
    """Of the old pixels of a line in each new one."""
    scale = old / new
    reach = max(scale, 1.0)
    lines = []
    for i in range(new):
        line = [max(0.0, 1 - abs((j + 0.5) - (i + 0.5) * scale) / reach) for j in range(old)]
        lines.append([weight / sum(line) for weight in line])
    return lines


def batch_loss(
    online: Callable[[Tensor], Tensor],
    target: Callable[[Tensor], Tensor],
    views: list[Tensor],
    dictionary: Tensor,
    draws: Iterator[tuple[float, list[int]]],
    *,
    lam: float,
    tau: float,
    sharpness: float,
    mu: float,
    labels: str = "pq",
    mixup: str = "momentum",
    side: str = "query",
    symmetric: bool = False,
) -> tuple[Tensor, Tensor]:
    """L, Eq. (9), of the views of a batch (s, C, H, W) each, and the keys to queue, by the steps of Algorithm 1.

    The views beyond two are what is mixed, each with a θ and partners of its own; their losses are averaged.
    """
    first, second = views[:2]
    total, queued = torch.zeros((), dtype=torch.float64), []
    for x, x_key in [(first, second), (second, first)] if symmetric else [(first, second)]:
        keys = torch.stack([unit(row) for row in target(x_key)])
        queued.append(keys)
        bank = torch.cat([keys, dictionary])
        s, size = len(keys), len(bank)
        p = labels_p(bank, s, tau, sharpness) if "p" in labels else None
        q = labels_q(bank, s, tau, sharpness) if "q" in labels else None
        y = refined(p, q, mu, s, size)
        mixtures = torch.zeros((), dtype=torch.float64)
        extra = views[2:]
        for view in extra or [x]:
            height, width = view.shape[2:]
            if mixup == "none":
                mixtures = mixtures + contrast(online(view), bank, y, tau)
                continue
            if mixup == "vanilla":
                one, other = view, view
            elif extra and side == "key":
                one, other = resized(x, height, width), view
            else:
                one, other = view, resized(x_key, height, width)
            theta, partner = next(draws)
            query, label = mixed(one, other, theta, partner), mixed(y, y, theta, partner)
            mixtures = mixtures + contrast(online(query), bank, label, tau)
        plain = contrast(online(x), bank, torch.eye(s, size, dtype=torch.float64), tau)
        total = total + (1 - lam) * plain + lam * mixtures / (len(extra) or 1)
    return total / len(queued), torch.cat(queued)


class Dictionary:
    """First in, first out."""

    def __init__(self, keys: Tensor) -> None:
        self.rows = deque((row.clone() for row in keys), maxlen=len(keys))

    def push(self, keys: Tensor) -> None:
        """The oldest rows make room."""
        for key in keys:
            self.rows.append(key.clone())

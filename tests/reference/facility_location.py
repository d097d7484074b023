"""Facility location, slow and obvious: Eqs. (6) and (10) of Mirzasoleiman, Cao and Leskovec (2020), by loops."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray


def distances(features: NDArray[np.float64]) -> NDArray[np.float64]:
    """d_ij = ‖x_i − x_j‖₂, (n, n)."""
    n = len(features)
    return np.array([[np.sqrt(((features[i] - features[j]) ** 2).sum()) for j in range(n)] for i in range(n)])


def objective(d: NDArray[np.generic], chosen: Sequence[int], d0: float) -> float:
    """F(S) = Σ_i max_{j∈S} (d0 − d_ij), Eq. (10); clipped at 0, for a d0 below some distances."""
    return sum(max([0, *(d0 - d[i, j] for j in chosen)]) for i in range(len(d)))


def greedy(
    d: NDArray[np.generic], k: int, d0: float, candidates: Sequence[int] | None = None, seeds: Sequence[int] = ()
) -> list[int]:
    """S_t = S_{t−1} ∪ {argmax_e F(e | S_{t−1})} from S_s = seeds; of equal gains the lowest index."""
    chosen = list(seeds)
    while len(chosen) < k:
        before = objective(d, chosen, d0)
        best, best_gain = -1, None
        for e in range(len(d)) if candidates is None else sorted(candidates):
            if e not in chosen:
                gain = objective(d, [*chosen, e], d0) - before
                if best_gain is None or gain > best_gain:
                    best, best_gain = e, gain
        chosen.append(best)
    return chosen


def greedi(d: NDArray[np.generic], k: int, d0: float, parts: Sequence[Sequence[int]], local: bool) -> list[int]:
    """Greedy in each part, by the part alone or by all points; then from what they chose; of all these the best."""
    solutions = []
    for part in parts:
        count = min(k, len(part))
        inner = d[np.ix_(part, part)]
        solutions.append(
            [int(part[j]) for j in greedy(inner, count, d0)] if local else greedy(d, count, d0, candidates=part)
        )
    merged = greedy(d, k, d0, candidates=[j for solution in solutions for j in solution])
    return max([merged, *solutions], key=lambda chosen: objective(d, chosen, d0))


def optimum(d: NDArray[np.generic], k: int, d0: float) -> float:
    """max F(S) over all |S| ≤ k."""
    return max(objective(d, s, d0) for s in combinations(range(len(d)), k))


def trimmed_cost(d: NDArray[np.generic], chosen: Sequence[int], z: int) -> float:
    """The sum of the n − z smallest min_{j∈S} d_ij."""
    return sum(sorted(min(d[i, j] for j in chosen) for i in range(len(d)))[: len(d) - z])


def central(d: NDArray[np.generic], k: int) -> list[int]:
    """The k points with the smallest Σ_i d_ij; of equal ones the lowest index first."""
    return sorted(range(len(d)), key=lambda j: (sum(d[i, j] for i in range(len(d))), j))[:k]

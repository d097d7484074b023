"""The points nearest to one centre: the k that lie together, the others left out.

    c* = argmin_c Σ of the k smallest d_ci,   S = the k points nearest to c*

S is the trimmed 1-median with the points that it covers: facility location with a single centre that may leave n − k
points uncovered. With k centres each would cover itself, and every choice would cost nothing. "central" in facility.py
sums over all points instead of the k nearest ones, and moves towards the scattered ones when these are the majority.
Where the centre is known, as 0 is for the gradients of examples that the network has learned, it need not be sought.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from noiseproof import checks
from noiseproof.coreset.facility import Coreset, finite_rows, group_members, group_sizes
from noiseproof.coreset.scaling import unit_scale
from noiseproof.errors import InputError

_BLOCK = 2**24  # distances at a time


def nearest_to_centre(
    features: Tensor,
    k: int | float,
    *,
    groups: Tensor | None = None,
    centre: Tensor | None = None,
    candidates: int = 2000,
    seed: int = 0,
) -> Coreset:
    """The k points of each group nearest to a centre: the one given, or the best of some candidates.

    Args:
        features: (n, d) float, finite.
        k: how many: an integer, a fraction in (0, 1] of each group (rounded, at least 1), or an integer for each group.
        groups: (n,) int64 from 0 on; default: one.
        centre: (d,), the same for all groups; None for the best point of each.
        candidates: of a larger group so many points, at random, are tried as centres; of a smaller one all.
        seed: of the candidates.

    Returns:
        a coreset in which each selected point, nearest first, stands for itself, and the others have no representative;
        its cost is the sum of the distances from the centres, its objective minus that.

    Raises:
        InputError: an argument of the wrong type, shape or range.
    """
    rows = finite_rows(features)
    given = None
    if centre is not None:
        if not isinstance(centre, Tensor) or centre.shape != rows.shape[1:] or not centre.isfinite().all():
            raise InputError(
                f"centre must be one finite point ({rows.shape[1]},), got {checks.describe(centre)}; pass one row"
            )
        given = centre.detach().to("cpu", torch.from_numpy(rows).dtype)[None].numpy()
    checks.integer("candidates", candidates, 1)
    checks.integer("seed", seed, 0)
    members = group_members(groups, len(rows))
    sizes = group_sizes(k, [len(member) for member in members])
    picked, cost = [np.empty(0, np.int64)], 0.0
    for group, (member, size) in enumerate(zip(members, sizes, strict=True)):
        if size:
            generator = np.random.default_rng([seed, group])  # its own: groups may be solved in several places
            tried = rows[_some(member, candidates, generator)] if given is None else given
            order, spent = _nearest(rows[member], tried, size)
            picked.append(member[order])
            cost += spent
    indices = torch.from_numpy(np.concatenate(picked))
    assignment = torch.full((len(rows),), -1)
    assignment[indices] = torch.arange(len(indices))
    return Coreset(indices, torch.ones(len(indices)), assignment, -cost, cost)


def _some(member: np.ndarray, most: int, generator: np.random.Generator) -> np.ndarray:
    """No more than so many of a group's rows, at random."""
    return member if len(member) <= most else np.sort(generator.choice(member, most, replace=False))


def _nearest(points: np.ndarray, centres: np.ndarray, k: int) -> tuple[np.ndarray, float]:
    """The k points (n, d) nearest to the centre (m, d) that has them nearest, in order; and the sum of distances."""
    both, shift = unit_scale(np.concatenate([points, centres]))
    near, centres = both[: len(points)], both[len(points) :]
    x, best, least = torch.from_numpy(near.astype(points.dtype)), 0, np.inf
    block = max(1, _BLOCK // len(x))
    for start in range(0, len(centres), block):
        some = torch.from_numpy(centres[start : start + block].astype(points.dtype))
        apart = torch.cdist(some, x, compute_mode="donot_use_mm_for_euclid_dist").numpy()  # (block, n)
        apart.partition(k - 1, axis=1)
        sums = apart[:, :k].sum(axis=1, dtype=np.float64)
        if sums.min() < least:
            best, least = start + int(sums.argmin()), float(sums.min())
    distance = np.linalg.norm(near - centres[best], axis=1)
    order = np.argsort(distance, kind="stable")[:k]
    return order, math.ldexp(float(distance[order].sum()), shift)

"""Robust k-medoids, to compare: facility location that leaves a share of the points uncovered; which, is its choice.

With z points to leave out it minimises C_z(S), the sum of the n − z smallest min_{j∈S} d_ij, which is not submodular.
Its Lagrangian is: a point may stay uncovered for a penalty λ, Σ_i min(λ, min_{j∈S} d_ij), which is minimal where the
monotone submodular F_λ(S) = Σ_i max(0, λ − min_{j∈S} d_ij) is maximal; an S that is optimal for λ and leaves z points
beyond λ is optimal for C_z. λ is sought by bisection, so that greedy on F_λ leaves z points or a few less beyond λ.

It says something only for k below n − z: with as many representatives as points to cover, each covers itself. All
distances of a group are kept, and greedy is the naive one: for small sets.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from scipy.spatial.distance import cdist
from torch import Tensor

from noiseproof import coreset
from noiseproof.coreset.facility import Coreset, group_members, group_sizes
from noiseproof.coreset.scaling import Array, scaled

_HALVINGS = 12  # values of the penalty tried, at most
_NEAR = 0.001  # the share of points by which less than z may be beyond the penalty


class Medoids(NamedTuple):
    """Selected points, and how far the others are from them."""

    picks: list[int]
    cur: Array  # (n,) min(cap, min_{j∈S} d_ij)


def facility_location(
    features: Tensor, k: float, *, algorithm: str, groups: Tensor, trim: float | None = None
) -> Coreset:
    """`coreset.facility_location`, with one more algorithm: "trimmed" covers all but the share `trim` of each group."""
    if algorithm != "trimmed" or trim is None:
        return coreset.facility_location(features, k, algorithm=algorithm, groups=groups)
    members = group_members(groups, len(features))
    sizes = group_sizes(k, [len(member) for member in members])
    assignment, index, done = torch.full((len(features),), -1), [], 0
    for member, size in zip(members, sizes, strict=True):
        points = scaled(features[member].numpy())
        d = cdist(points.x.T, points.x.T).astype(np.int64)  # gains are exact sums, and equal ones stay equal
        picks, owner = trimmed(d, size, points.cap, math.floor(trim * len(member)))
        assignment[member[owner >= 0]] = done + torch.from_numpy(owner[owner >= 0])
        index.append(torch.from_numpy(member[picks]))
        done += size
    chosen, covered = torch.cat(index), assignment >= 0
    weights = torch.bincount(assignment[covered], minlength=done).float()
    cost = float((features[covered] - features[chosen[assignment[covered]]]).norm(dim=1).sum())
    return Coreset(chosen, weights, assignment, -cost, cost)


def trimmed(d: Array, k: int, cap: int, z: int) -> tuple[Array, Array]:
    """k points (k,) by their distances d (n, n), and whom each point belongs to (n,): a position in them, or −1.

    Of the S found for the penalties tried, and of greedy that covers all, the one of the smallest C_z; its z farthest
    points are left without an owner. z is lowered to n − k if it is larger: selected points are not left out.
    """
    n = len(d)
    z = min(z, n - k)
    best, low, high = _greedy(d, k, cap), 0, cap
    penalty = int(np.sort(best.cur)[n - z]) if z else 0
    for _ in range(_HALVINGS):
        if not low < penalty < high:
            break
        found = _greedy(d, k, penalty)
        beyond = int((found.cur == penalty).sum())
        if beyond <= z:
            best = min(best, found, key=lambda one: int(np.sort(one.cur)[: n - z].sum()))
        if 0 <= z - beyond <= n * _NEAR:
            break
        low, high = (penalty, high) if beyond > z else (low, penalty)
        penalty = min(2 * penalty, high) if high == cap else (low + high) // 2
    picks, far = np.array(best.picks), best.cur.copy()
    owner = d[:, picks].argmin(axis=1)
    owner[picks], far[picks] = np.arange(k), -1  # each selected point belongs to itself
    owner[np.argsort(far, kind="stable")[n - z :]] = -1
    return picks, owner


def _greedy(d: Array, k: int, cap: int) -> Medoids:
    """k picks by their gains on F_cap, ties to the lowest."""
    picks: list[int] = []
    cur = np.full(len(d), cap)
    for _ in range(k):
        gain = np.maximum(cur - d, 0).sum(axis=1)
        gain[picks] = -1
        picks.append(int(gain.argmax()))
        cur = np.minimum(cur, d[picks[-1]])
    return Medoids(picks, cur)

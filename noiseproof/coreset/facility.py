"""The door to facility location: checks once, solves each group, and returns tensors in the caller's order.

Baharan Mirzasoleiman, Kaidi Cao and Jure Leskovec, "Coresets for Robust Training of Neural Networks against Noisy
Labels", NeurIPS 2020. With distances d_ij = ‖x_i − x_j‖₂ between rows:

    S* ∈ argmin_{|S| ≤ k} Σ_i min_{j∈S} d_ij                                                        Eq. (6)
    F(S) = Σ_i max_{j∈S} (d0 − d_ij), maximised instead: monotone, submodular                       Eq. (10)
    r_j = Σ_i I[j = argmin_{s∈S} d_is], the weight of j                                             below Eq. (6)
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from noiseproof import checks
from noiseproof.coreset.scaling import scaled, unit_scale
from noiseproof.errors import InputError

if TYPE_CHECKING:
    from noiseproof.coreset.greedy import Choice

ALGORITHMS = ("auto", "lazy", "sparse", "stochastic", "greedi", "central")
_MANY = 100_000  # auto: points of a group from which on its first picks come from a sample
_ONLY_FOR = {"epsilon": "stochastic", "parts": "greedi", "local": "greedi", "processes": "greedi"}
_PIECE = 2**16  # rows whose distances are summed at a time


@dataclass(frozen=True, slots=True)
class Coreset:
    """Selected points and what they stand for."""

    indices: Tensor  # (m,) int64: rows of the features, group by group, in the order of selection
    weights: Tensor  # (m,) float32: r_j, how many points belong to each
    assignment: Tensor  # (n,) int64: position in `indices` of each point's nearest one of its group; -1: none
    objective: float  # F, over the points that have one
    cost: float  # Σ_i min_j d_ij, over the points that have one


def facility_location(
    features: Tensor,
    k: int | float | Sequence[int],
    *,
    algorithm: str = "auto",
    groups: Tensor | None = None,
    seed: int = 0,
    epsilon: float | None = None,
    parts: int | None = None,
    local: bool | None = None,
    processes: int | None = None,
    memory: int = 2**30,
    threads: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Coreset:
    """Choose k points that represent all: maximise F(S) = Σ_i max_{j∈S} (d0 − d_ij), Eq. (10); k-medoids, Eq. (6).

    d0 is the smaller of twice the largest distance from the mean and from a row in the middle: no d_ij exceeds it.
    Distances are computed in float32 from differences and rounded to 2⁻²⁸ of d0; gains are exact sums of those, so
    results depend neither on the number of threads nor on the memory, and ties go to the lowest index. `objective` and
    `cost` are computed from the features in float64. Each selected point belongs to itself.

    Differs from the authors' code: it adds the points with the largest similarity sums ("central" here), not those with
    the largest marginal gains.

    Args:
        features: (n, d) float, finite.
        k: how many: an integer in 0..n, a fraction in (0, 1] of each group (rounded, at least 1), or an integer for
            each group. With k = 0 nothing is selected and F = cost = 0.
        algorithm: "lazy" (exact greedy), "sparse" (its first picks from a sample), "stochastic", "greedi" (in parts),
            "central" (not representative), or "auto": "lazy" for groups below 100,000 points, else "sparse".
        groups: (n,) int64 from 0 on: independent problems, solved in parallel. Default: one.
        seed: for "sparse", "stochastic" and "greedi".
        epsilon: for "stochastic", in (0, 1); 0.1 if None.
        parts: for "greedi": how many; 4 if None.
        local: for "greedi": whether a part is evaluated on itself (True if None) or on all points.
        processes: for "greedi": how many solve the parts; 0 or None: threads of this one.
        memory: bytes for the pairs of points kept in memory, over all threads. Less costs time, not exactness.
        threads: how many; None: as torch uses.
        progress: called as progress(done, total) with numbers of points selected, from any thread, one at a time.

    Raises:
        InputError: an argument of the wrong type, shape or range, or an option the algorithm has no use for.
    """
    rows = finite_rows(features)
    checks.choice("algorithm", algorithm, ALGORITHMS)
    given = {"epsilon": epsilon, "parts": parts, "local": local, "processes": processes}
    for name, value in given.items():
        if value is not None and algorithm != _ONLY_FOR[name]:
            raise InputError(
                f"{name} is an option of {_ONLY_FOR[name]!r}, not of algorithm {algorithm!r}; leave it out"
            )
    members = group_members(groups, len(rows))
    sizes = group_sizes(k, [len(member) for member in members])
    options: dict[str, Any] = {
        "epsilon": checks.number("epsilon", 0.1 if epsilon is None else epsilon, 0, 1, ends="()"),
        "parts": checks.integer("parts", 4 if parts is None else parts, 1),
        "local": True if local is None else checks.boolean("local", local),
        "processes": checks.integer("processes", 0 if processes is None else processes, 0),
    }
    seed, memory = checks.integer("seed", seed, 0), checks.integer("memory", memory, 0)
    threads = checks.integer("threads", torch.get_num_threads() if threads is None else threads, 1)
    checks.require(progress is None or callable(progress), "progress", progress, "a function, or None")
    tick = None if progress is None else _counter(progress, sum(sizes))

    from noiseproof.coreset import algorithms  # numba takes a while to import
    from noiseproof.coreset.greedy import spread

    at_once = min(threads, sum(size > 0 for size in sizes)) or 1

    def solve(g: int) -> tuple[Choice, float] | None:
        if sizes[g] == 0:
            return None
        points = scaled(rows[members[g]])
        problem = algorithms.Problem(
            points.x, points.cap, sizes[g], **options, generator=np.random.default_rng([seed, g]),
            memory=memory // at_once, threads=threads // at_once, tick=tick,
        )  # fmt: skip
        name = algorithm if algorithm != "auto" else "lazy" if problem.n < _MANY else "sparse"
        choice: Choice = getattr(algorithms, name)(problem)
        return choice, points.d0

    longest_first = sorted(range(len(members)), key=lambda g: -len(members[g]))
    solved = dict(zip(longest_first, spread(solve, longest_first, at_once), strict=True))
    return _gathered(rows, members, [solved[g] for g in range(len(members))])


def _gathered(rows: np.ndarray[Any, Any], members: list[Any], solved: list[Any]) -> Coreset:
    """The choices of all groups as one Coreset, its cost in float64 from the features."""
    indices, assignment, done, cost, objective = [], np.full(len(rows), -1, np.int64), 0, 0.0, 0.0
    for member, result in zip(members, solved, strict=True):
        if result is None:
            continue
        (picks, owner, _), d0 = result
        chosen = member[picks]
        for part in range(0, len(owner), _PIECE):
            left, right = member[part : part + _PIECE], chosen[owner[part : part + _PIECE]]
            gap, shift = unit_scale(rows[left].astype(np.float64) - rows[right])
            cost_here = math.ldexp(float(np.sqrt(np.square(gap).sum(axis=1)).sum()), shift)
            cost, objective = cost + cost_here, objective + len(left) * d0 - cost_here
        assignment[member] = done + owner
        indices.append(chosen)
        done += len(chosen)
    index = np.concatenate([np.empty(0, np.int64), *indices])
    weights = np.bincount(assignment[assignment >= 0], minlength=len(index))
    return Coreset(
        torch.from_numpy(index), torch.from_numpy(weights).float(), torch.from_numpy(assignment), objective, cost
    )


def finite_rows(features: Tensor) -> np.ndarray[Any, Any]:
    """Features (n, d) as an array on the CPU, in float32 or float64."""
    if not checks.is_dense(features) or not features.is_floating_point() or features.ndim != 2:
        raise InputError(
            f"features must be a float tensor (n, d), got {checks.describe(features)}; "
            f"convert them, as in torch.as_tensor(x, dtype=torch.float32)"
        )
    if features.numel() == 0:
        raise InputError(f"features must have at least one row and one column, got shape {tuple(features.shape)}")
    features = features.detach().to("cpu", torch.float64 if features.dtype == torch.float64 else torch.float32)
    at = checks.first(~features.isfinite().all(dim=1))
    if at is not None:
        raise InputError(f"features must be finite, got NaN or infinity in row {at}; leave such rows out")
    return features.numpy()


def group_members(groups: Tensor | None, n: int) -> list[np.ndarray[Any, Any]]:
    """The rows of each group, ascending."""
    if groups is None:
        return [np.arange(n)]
    if not checks.is_dense(groups) or groups.dtype != torch.int64 or groups.shape != (n,):
        raise InputError(f"groups must be an int64 tensor ({n},), one per row, got {checks.describe(groups)}")
    at = checks.first(groups < 0)
    if at is not None:
        raise InputError(f"groups must not be negative, got {int(groups[at])} in row {at}; number them from 0")
    named = groups.cpu().numpy()
    most = int(named.max())
    if most >= 2 * n + 1000:
        raise InputError(f"groups must be numbered from 0 without large gaps, got {most} for {n} rows; renumber them")
    order = np.argsort(named, kind="stable")
    return np.split(order, np.cumsum(np.bincount(named))[:-1])


def group_sizes(k: Any, counts: list[int]) -> list[int]:
    """How many to select from each group."""
    if isinstance(k, float):
        share = checks.number("k", k, 0, 1, ends="(]")
        return [min(n, max(1, int(share * n + 0.5))) if n else 0 for n in counts]
    if isinstance(k, Tensor):
        k = k.tolist()
    if isinstance(k, Sequence) and not isinstance(k, str):
        if len(k) != len(counts):
            raise InputError(f"k must have one entry for each of the {len(counts)} groups, got {len(k)}")
        sizes = [checks.integer(f"k[{g}]", one, 0) for g, one in enumerate(k)]
    else:
        sizes = [checks.integer("k", k, 0)] * len(counts)
    for g, (size, n) in enumerate(zip(sizes, counts, strict=True)):
        if size > n:
            where = f"group {g}" if len(counts) > 1 else "features"
            raise InputError(f"k must not exceed the {n} rows of {where}, got {size}; lower it or give a fraction")
    return sizes


def _counter(progress: Callable[[int, int], None], total: int) -> Callable[[int], None]:
    """Adds up what the groups report, and passes it on, one at a time."""
    lock, done = threading.Lock(), 0

    def tick(more: int) -> None:
        nonlocal done
        with lock:
            done += more
            progress(done, total)

    return tick

"""The ways to choose k points. Each takes a `Problem` and returns a `Choice`; the guarantees are against max F.

F(S) = Σ_i max_{j∈S} (d0 − d_ij), Eq. (10), is monotone and submodular with F(∅) = 0; its maximum over |S| ≤ k is F*.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from noiseproof.coreset import kernels
from noiseproof.coreset.greedy import Choice, Cover, Tick, all_gains, greedy, parts, stages
from noiseproof.coreset.scaling import Array, Points

_START = 200  # sparse: one of so many points is picked from a sample
_PER_START = 16  # sparse: points in the sample for each of those picks
_PIVOTS = 256  # trimmed: points to look up neighbours by
_HALVINGS = 12  # trimmed: values of the penalty tried, at most
_NEAR = 0.001  # trimmed: the share of points by which less than z may be beyond the penalty


class Problem(NamedTuple):
    """One group's points and all that a way to choose may need."""

    points: Points
    k: int  # 1..n
    epsilon: float
    trim: float
    generator: np.random.Generator
    memory: int
    threads: int
    tick: Tick | None

    @property
    def x(self) -> Array:
        return self.points.x

    @property
    def n(self) -> int:
        return self.points.x.shape[1]


def lazy(problem: Problem) -> Choice:
    """Greedy by marginal gains, exact: F(S) ≥ (1 − 1/e) F* (Nemhauser, Wolsey and Fisher 1978)."""
    x, k, cap = problem.x, problem.k, problem.points.cap
    return greedy(x, k, cap, memory=problem.memory, threads=problem.threads, tick=problem.tick)


def sparse(problem: Problem) -> Choice:
    """Greedy whose first few picks see only a sample of the points; all others are exact, given those.

    The first n/200 picks are what greedy picks on a random sample of 16 times as many points, as clients and as
    candidates. They make the graph of the pairs that still matter small from the start; from there on no gain is
    approximated. No guarantee in terms of F*: it rests on the sample.
    """
    x, k, cap, n = problem.x, problem.k, problem.points.cap, problem.n
    count = min(k, max(2, n // _START))
    sample = np.sort(problem.generator.choice(n, min(n, count * _PER_START), replace=False))
    seeds = sample[greedy(np.ascontiguousarray(x[:, sample]), count, cap, memory=problem.memory).picks]
    return greedy(x, k, cap, seeds=seeds, memory=problem.memory, threads=problem.threads, tick=problem.tick)


def stochastic(problem: Problem) -> Choice:
    """Each pick is the best of ⌈n/k · log(1/ε)⌉ random points: E F(S) ≥ (1 − 1/e − ε) F*.

    Mirzasoleiman et al. 2015, with bounds from earlier picks to skip evaluations that cannot win.
    """
    x, k, n = problem.x, problem.k, problem.n
    size = math.ceil(n / k * math.log(1 / problem.epsilon))
    cover, keys = Cover(x, k, problem.points.cap), np.full(n, 2**62, np.int64)
    pool = np.arange(n, dtype=np.int32)
    for stop in stages(0, k):
        for part in parts(cover.t, stop, k, problem.tick):
            draws = problem.generator.random((part - cover.t) * size)
            kernels.stochastic(
                x, cover.cells, cover.cur, cover.owner, keys, pool, cover.place, draws, size, cover.picks, cover.t, part
            )
            cover.t = part
        cover.sort()
    return cover.choice()


def sieve(problem: Problem) -> Choice:
    """Sieve-streaming, one pass over the rows in their order: F(S) ≥ (1/2 − ε) F* (Badanidiyuru et al. 2014).

    Keeps ⌈log(2k)/log(1+ε)⌉ + 2 candidate sets with the distances of all n clients to each: memory in proportion to
    n log(k)/ε, never n². May return fewer than k.
    """
    x, k, n, epsilon = problem.x, problem.k, problem.n, problem.epsilon
    levels = math.ceil(math.log(2 * k) / math.log1p(epsilon)) + 2
    count, chosen = np.zeros(levels, np.int64), np.empty((levels, k), np.int32)
    best = kernels.sieve(x, problem.points.cap, k, epsilon, np.empty((levels, n), np.int32), count, chosen)
    return _cover(problem, chosen[best, : count[best]])


def central(problem: Problem) -> Choice:
    """The k points with the largest Σ_i (d0 − d_ij): the most central ones, however alike. Not a maximiser of F.

    One pass over all pairs, none of them kept. No guarantee: k copies of one point can be the answer.
    """
    total = all_gains(problem.x, np.full(problem.n, problem.points.cap, np.int32), problem.threads)
    return _cover(problem, np.lexsort((np.arange(problem.n), -total))[: problem.k])


def trimmed(problem: Problem) -> Choice:
    """Robust k-medoids: cover all but z = ⌊trim · n⌋ points; which ones is part of the choice.

    Minimises C_z(S), the sum of the n − z smallest min_{j∈S} d_ij, which is not submodular. Its Lagrangian is: a point
    may stay uncovered for a penalty λ, Σ_i min(λ, min_{j∈S} d_ij), which is minimal where the monotone submodular
    F_λ(S) = Σ_i max(0, λ − min_{j∈S} d_ij) is maximal; an S that is optimal for λ and leaves z points beyond λ is
    optimal for C_z. λ is sought by bisection, so that greedy on F_λ leaves z points or a few less beyond λ. Of the S so
    found and the S of `lazy`, the one of the smallest C_z is returned; its z farthest points are left without an owner.

    Each S tried keeps F_λ(S) ≥ (1 − 1/e) max F_λ. For C_z itself there is no guarantee, except that the answer is never
    worse than that of `lazy`. z is lowered to n − k if it is larger: selected points are not left out.
    """
    x, k, cap, n = problem.x, problem.k, problem.points.cap, problem.n
    z = min(math.floor(problem.trim * n), n - k)
    best = greedy(x, k, cap, memory=problem.memory, threads=problem.threads, tick=problem.tick)
    if z == 0:
        return best

    def cost(choice: Choice) -> int:  # exact if at most z points are beyond λ, where cur = λ
        return int(np.partition(choice.cur, n - z)[: n - z].sum(dtype=np.int64))

    around, low, high = _cover(problem, best.picks[:_PIVOTS]), 0, cap
    penalty = int(np.partition(best.cur, n - z)[n - z])
    for _ in range(_HALVINGS):
        if not low < penalty < high:
            break
        found = greedy(x, k, penalty, around=around, memory=problem.memory, threads=problem.threads)
        beyond = int((found.owner < 0).sum())
        if beyond <= z:
            best = min(best, found, key=cost)
        if 0 <= z - beyond <= n * _NEAR:
            break
        low, high = (penalty, high) if beyond > z else (low, penalty)
        penalty = min(2 * penalty, high) if high == cap else (low + high) // 2
    farness = best.cur.astype(np.int64)
    farness[best.picks] = -1  # a selected point is never left out
    owner = best.owner.copy()
    owner[np.argsort(farness, kind="stable")[n - z :]] = -1
    return Choice(best.picks, owner, best.cur)


def refine(problem: Problem, choice: Choice, sweeps: int) -> Choice:
    """Exchange selected for other points while that lowers the cost: eager FastPAM, at most so many sweeps."""
    picks = choice.picks.copy()
    kernels.swap(problem.x, picks, sweeps)
    return _cover(problem, picks)


def _cover(problem: Problem, picks: Array) -> Choice:
    cover = Cover(problem.x, len(picks), problem.points.cap)
    cover.add(picks)
    return cover.choice()

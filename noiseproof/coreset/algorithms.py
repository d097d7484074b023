"""The ways to choose k points. Each takes a `Problem` and returns a `Choice`; the guarantees are against max F.

F(S) = Σ_i max_{j∈S} (d0 − d_ij), Eq. (10), is monotone and submodular with F(∅) = 0; its maximum over |S| ≤ k is F*.
"""

from __future__ import annotations

import math
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from typing import Any, NamedTuple

import numpy as np

from noiseproof.coreset import kernels
from noiseproof.coreset.greedy import Choice, Cover, Tick, all_gains, covered_by, greedy, spread
from noiseproof.coreset.scaling import Array

_START = 200  # sparse: one of so many points is picked from a sample
_PER_START = 16  # sparse: points in the sample for each of those picks


class Problem(NamedTuple):
    """One group's points and all that a way to choose may need."""

    x: Array  # (d, n) from `scaling.scaled`
    cap: int  # d0, in units of x
    k: int  # 1..n
    epsilon: float  # of stochastic
    parts: int  # of greedi, as the next two
    local: bool
    processes: int
    generator: np.random.Generator
    memory: int
    threads: int
    tick: Tick | None

    @property
    def n(self) -> int:
        return self.x.shape[1]

    @property
    def means(self) -> dict[str, Any]:
        """What exact greedy may use."""
        return {"memory": self.memory, "threads": self.threads, "tick": self.tick}


def lazy(problem: Problem) -> Choice:
    """Greedy by marginal gains, exact: F(S) ≥ (1 − 1/e) F* (Nemhauser, Wolsey and Fisher 1978)."""
    return greedy(problem.x, problem.k, problem.cap, **problem.means)


def sparse(problem: Problem) -> Choice:
    """Greedy whose first few picks see only a sample of the points; all others are exact, given those.

    The first n/200 picks are what greedy picks on a random sample of 16 times as many points, as clients and as
    candidates. They make the graph of the pairs that still matter small from the start; from there on no gain is
    approximated. No guarantee in terms of F*: it rests on the sample.
    """
    x, k, cap, n = problem.x, problem.k, problem.cap, problem.n
    count = min(k, max(2, n // _START))
    sample = np.sort(problem.generator.choice(n, min(n, count * _PER_START), replace=False))
    seeds = sample[greedy(np.ascontiguousarray(x[:, sample]), count, cap, memory=problem.memory).picks]
    return greedy(x, k, cap, seeds=seeds, **problem.means)


def stochastic(problem: Problem) -> Choice:
    """Each pick is the best of ⌈n/k · log(1/ε)⌉ random points: E F(S) ≥ (1 − 1/e − ε) F*.

    Mirzasoleiman et al. 2015, with bounds from earlier picks to skip evaluations that cannot win.
    """
    x, k, n = problem.x, problem.k, problem.n
    size = math.ceil(n / k * math.log(1 / problem.epsilon))
    cover, keys = Cover(x, k, problem.cap, problem.tick), np.full(n, 2**62, np.int64)
    pool = np.arange(n, dtype=np.int32)
    for stop in cover.stages(k):
        cover.sort()
        draws = problem.generator.random((stop - cover.t) * size)
        kernels.pick_from_samples(cover.cells, keys, pool, draws, size, cover.picks, cover.t, stop)
    return cover.choice()


def central(problem: Problem) -> Choice:
    """The k points with the largest Σ_i (d0 − d_ij): the most central ones, however alike. Not a maximiser of F.

    One pass over all pairs, none of them kept. No guarantee: k copies of one point can be the answer.
    """
    total = all_gains(problem.x, np.full(problem.n, problem.cap, np.int32), problem.threads)
    return covered_by(problem.x, np.argsort(-total, kind="stable")[: problem.k], problem.cap, problem.tick)


def greedi(problem: Problem) -> Choice:
    """Two rounds over parts of the points: k points of each part alone, then k of those, F over all points.

    Mirzasoleiman et al. 2013, Barbosa et al. 2015. Returns the better of that and of the best part. Round 1 is a
    function of arrays alone: it runs in threads or processes here, and can run on other machines.

    If round 1 evaluates F over all points (`local=False`), E F(S) ≥ (1 − 1/e)/2 · F* over the random partition. With
    `local=True` a part knows only itself, and the guarantee holds as far as a part represents the whole.
    """
    x, k, cap = problem.x, problem.k, problem.cap
    pieces = partition(problem.n, problem.parts, problem.generator)
    solve = partial(solve_part, x=x, k=k, cap=cap, local=problem.local, memory=problem.memory // len(pieces))
    if problem.processes:
        with ProcessPoolExecutor(problem.processes, get_context("spawn")) as pool:  # fork would copy held locks
            solutions = list(pool.map(solve, pieces))
    else:
        solutions = spread(solve, pieces, problem.threads)
    union = np.sort(np.concatenate(solutions))
    merged = greedy(x, k, cap, candidates=union, **problem.means)
    found = [merged, *(covered_by(x, picks, cap) for picks in solutions)]
    return min(found, key=lambda choice: int(choice.cur.sum(dtype=np.int64)))


def partition(n: int, parts: int, generator: np.random.Generator) -> list[Array]:
    """Random parts of 0..n-1, of sizes that differ by at most one, each ascending; none empty."""
    return [np.sort(part) for part in np.array_split(generator.permutation(n), min(parts, n))]


def solve_part(part: Array, x: Array, k: int, cap: int, local: bool, memory: int) -> Array:
    """Up to k points of a part of the columns of x (d, n): greedy on the part, or from the part on everything."""
    count = min(k, len(part))
    if local:
        return part[greedy(np.ascontiguousarray(x[:, part]), count, cap, memory=memory).picks]
    return greedy(x, count, cap, candidates=part, memory=memory).picks

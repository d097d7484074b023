"""GreeDi: facility location in two rounds over parts of the points (Mirzasoleiman et al. 2013, Barbosa et al. 2015).

    partition   split the points at random into parts
    solve_part  round 1, each part alone: k points by greedy
    merge       round 2: k points by greedy from the union of those, F over all points; the better of that and of the
                best part

Each step is a function of arrays alone: round 1 runs in threads or processes here, and can run on other machines.

If round 1 evaluates F over all points (`local=False`), E F(S) ≥ (1 − 1/e)/2 · F* over the random partition. With
`local=True` a part knows only itself, and the guarantee holds as far as a part represents the whole.
"""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context

import numpy as np

from noiseproof.coreset.algorithms import Problem
from noiseproof.coreset.greedy import Choice, Cover, greedy, spread
from noiseproof.coreset.scaling import Array


def partition(n: int, parts: int, generator: np.random.Generator) -> list[Array]:
    """Random parts of 0..n-1, of sizes that differ by at most one, each ascending; none empty."""
    return [np.sort(part) for part in np.array_split(generator.permutation(n), min(parts, n))]


def solve_part(part: Array, x: Array, k: int, cap: int, local: bool, memory: int) -> Array:
    """Up to k points of a part of the columns of x (d, n): greedy on the part, or from the part on everything."""
    count = min(k, len(part))
    if local:
        return part[greedy(np.ascontiguousarray(x[:, part]), count, cap, memory=memory).picks]
    return greedy(x, count, cap, candidates=part, memory=memory).picks


def merge(problem: Problem, solutions: list[Array]) -> Choice:
    """The better of greedy over all that round 1 found and of the best that a single part found."""
    x, cap = problem.x, problem.points.cap
    union = np.sort(np.concatenate(solutions))
    merged = greedy(x, problem.k, cap, candidates=union, memory=problem.memory, tick=problem.tick)
    return min(merged, *(_cover(x, picks, cap) for picks in solutions), key=lambda c: int(c.cur.sum(dtype=np.int64)))


def greedi(problem: Problem, parts: int, local: bool, processes: int) -> Choice:
    """Both rounds; round 1 in so many processes, or, if 0, in the problem's threads."""
    pieces = partition(problem.n, parts, problem.generator)
    solve = partial(
        solve_part, x=problem.x, k=problem.k, cap=problem.points.cap, local=local, memory=problem.memory // len(pieces)
    )
    if processes:
        with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:  # fork would copy held locks
            solutions = list(pool.map(solve, pieces))
    else:
        solutions = spread(solve, pieces, problem.threads)
    return merge(problem, solutions)


def _cover(x: Array, picks: Array, cap: int) -> Choice:
    cover = Cover(x, len(picks), cap)
    cover.add(picks)
    return cover.choice()

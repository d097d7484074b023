"""Exact greedy facility location, with memory and time in proportion to what can still matter.

The marginal gain of a candidate j, given the distance cur_i of each client to what is selected, is

    F(j | S) = Σ_i max(0, cur_i − d_ij),                                                          from Eq. (10)

and only the pairs with d_ij < cur_i enter. cur never grows, so a pair that does not enter now never will. After a few
picks by lazy evaluation (Minoux 1978) over all pairs, the pairs left over fit into memory; from there on greedy runs on
that graph, which shrinks with every evaluation. No pair that matters is ever left out: the picks are those of naive
greedy, ties going to the lowest index.

Pairs are looked up by cells. A client i belongs to the cell of a pivot p, at the distance e_i. By the triangle
inequality d_ij < cur_i needs d_jp < cur_i + e_i =: reach_i, and in a cell sorted by reach those are a prefix.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, TypeVar

import numpy as np

from noiseproof.coreset import kernels
from noiseproof.coreset.scaling import Array

Tick = Callable[[int], None]  # told how many more picks are made
Task = TypeVar("Task")
Result = TypeVar("Result")

_EDGE = 8  # bytes of a pair in the graph
_DENSE = 32  # a graph of more than every 32nd pair is not worth building yet
_SAMPLE = 64  # candidates whose edges are counted to guess the size of a graph
_CENTRES = 64  # cells whose centres bound the distances to all
_SLACK = 1.2  # room for more pairs than guessed
_TICKS = 50  # how often a run tells its progress


class Choice(NamedTuple):
    """Selected points, and who belongs to them."""

    picks: Array  # (k,) int32, in order
    owner: Array  # (n,) int32, position in picks of the nearest one, -1: none nearer than the cap
    cur: Array  # (n,) int32, the distance to it, or the cap


class Cells(NamedTuple):
    """Clients sorted by cell, and within a cell by falling reach; coordinates cell by cell: a visit is local."""

    flat: Array  # (n·d + padding,) float32: of each cell its first coordinates, then its second ones, …
    who: Array  # (n,) int32: the client at each place
    reach: Array  # (n,) float32
    limit: Array  # (C,) float32: squared distances from a pivot that are out of everybody's reach; 0 for an empty cell
    start: Array  # (C + 1,) int64
    pivots: Array  # (d·C,) float32: first coordinates, then second ones, …
    shrink: float  # on computed distances to pivots: what rounding may have added


class Graph(NamedTuple):
    """The pairs with d < cur, by candidate."""

    start: Array  # (c + 1,) int64
    client: Array  # (E,) int32: their places in the cells
    far: Array  # (E,) int32: distances


def shrinkage(dims: int) -> float:
    """A factor that makes a float32 distance over `dims` coordinates a lower bound of the true one."""
    return 1 - (dims + 8) * 2.0**-23


def cells_around(x: Array, pivots: Array, nearest: Array, reach: Array) -> Cells:
    """Cells around the points `pivots` (C,); nearest (n,) is each client's cell, reach (n,) its reach in float64."""
    slack = reach / shrinkage(len(x)) + 8  # distances were rounded down, and in float32
    who = np.lexsort((-slack, nearest)).astype(np.int32)
    start = np.concatenate([[0], np.cumsum(np.bincount(nearest, minlength=len(pivots)))])
    flat = np.zeros(x.size + kernels.TILE, np.float32)
    kernels.gather(x, who, start, flat)
    limit = np.zeros(len(pivots))
    np.maximum.at(limit, nearest, slack)
    limit = np.square(limit / shrinkage(len(x))) * (1 + 2.0**-20)
    return Cells(
        flat,
        who,
        slack[who].astype(np.float32),
        limit.astype(np.float32),
        start,
        x[:, pivots].ravel(),
        shrinkage(len(x)),
    )


class Cover:
    """Clients in cells, what they are nearest to, and the selection so far: what all ways to choose have in common."""

    def __init__(self, x: Array, k: int, cap: int, around: Choice | None = None) -> None:
        """Without `around`, all clients are in one cell that everybody reaches; with it, around its picks."""
        n = x.shape[1]
        self.x, self.picks, self.t = x, np.empty(k, np.int32), 0
        self.cur, self.owner = np.full(n, cap, np.int32), np.full(n, -1, np.int32)  # in the order of the cells
        self.place = np.arange(n, dtype=np.int32)  # of each client in the cells
        everybody = Choice(np.zeros(1, np.int32), np.zeros(n, np.int32), np.full(n, np.inf))
        self.around = everybody if around is None else around
        self.sort()

    def add(self, picks: Array) -> None:
        """Select these points; a client goes to the first of equally near ones, a selected one to itself."""
        begin, end = self.t, self.t + len(picks)
        self.picks[begin:end] = picks
        for stop in stages(begin, end):
            kernels.select_all(self.x, self.cells, self.picks[self.t : stop], self.t, self.cur, self.owner, self.place)
            self.t = stop
            self.sort()

    def sort(self) -> None:
        """New cells around what is selected, once that is more than there was around and everybody has an owner."""
        picks, owner, cur = self.choice()
        if self.t > 1 and self.t >= len(self.around.picks) and owner.min() >= 0:
            self.around = Choice(picks, owner, cur)
        self.cells = cells_around(self.x, self.around.picks, self.around.owner, cur + 1.0 * self.around.cur)
        self.cur, self.owner = cur[self.cells.who], owner[self.cells.who]
        self.place[self.cells.who] = np.arange(len(self.place), dtype=np.int32)

    def choice(self) -> Choice:
        """The selection so far, cur and owner in the order of x."""
        return Choice(self.picks[: self.t], self.owner[self.place], self.cur[self.place])

    def gains(self, ids: Array, threads: int = 1) -> Array:
        """The marginal gains (c,) of the candidates ids (c,)."""
        out = np.empty(ids.size, np.int64)

        def work(start: int) -> None:
            part = slice(start, start + kernels.TILE)
            kernels.gains(self.x, self.cells, self.cur, ids[part], out[part])

        spread(work, range(0, ids.size, kernels.TILE), threads)
        return out


def all_gains(x: Array, cur: Array, threads: int = 1) -> Array:
    """The marginal gains (n,) of all points, cur (n,) in the order of x: every pair is measured once."""
    starts = iter(range(0, cur.size, kernels.TILE))

    def work(_: int) -> Array:
        mine = np.zeros(cur.size, np.int64)
        for start in starts:
            kernels.all_gains(x, cur, start, min(start + kernels.TILE, cur.size), mine)
        return mine

    total: Array = np.sum(spread(work, range(threads), threads), axis=0)
    return total


def greedy(
    x: Array,
    k: int,
    cap: int,
    *,
    candidates: Array | None = None,
    seeds: Array | None = None,
    around: Choice | None = None,
    memory: int = 2**30,
    threads: int = 1,
    tick: Tick | None = None,
) -> Choice:
    """The first k picks of greedy on F(S) = Σ_i max(0, cap − min_{j∈S} d_ij).

    Args:
        x: (d, n) from `points.scaled`.
        k: at most the number of candidates.
        cap: d0, in units of x.
        candidates: (c,) who may be picked, ascending; everybody if None.
        seeds: (s,) the first picks, already decided; s ≤ k.
        around: a choice for which everybody has an owner, to look up neighbours by if the cap is below some distances.
        memory: bytes for the graph.
        threads: for the passes over all pairs at the start.
        tick: told of progress.
    """
    cover, heap = Cover(x, k, cap, around), None
    ids = np.arange(x.shape[1], dtype=np.int32) if candidates is None else candidates.astype(np.int32)
    if seeds is None and around is None and k > 0:
        near = np.random.default_rng(0).choice(x.shape[1], min(x.shape[1], _CENTRES), replace=False)
        seeds = np.array([kernels.medoid(x, ids, near, shrinkage(len(x)) ** 2)])
    if seeds is not None:
        cover.add(seeds)
        ids = np.setdiff1d(ids, seeds)
    for stop in stages(cover.t, k):
        cover.sort()
        left = ids if heap is None else heap.left()
        left = left[np.argsort(cover.place[left])]  # neighbours after each other: they visit the same cells
        graph = build_graph(cover, left, memory // _EDGE)
        if graph is not None:
            _on_graph(cover, graph, left, k, tick)
            break
        if heap is None:
            everybody = candidates is None and len(cover.around.picks) == 1  # then there is nobody to skip
            heap = Heap(ids, all_gains(x, cover.choice().cur, threads)[ids] if everybody else cover.gains(ids, threads))
        for part in parts(cover.t, stop, k, tick):
            heap.size = kernels.lazy(
                x, cover.cells, cover.cur, cover.owner, heap.keys, heap.ids, cover.place, cover.picks,
                cover.t, heap.size, part,
            )  # fmt: skip
            cover.t = part
    return cover.choice()


class Heap:
    """Candidates by bounds on their gains. A sorted array is a heap; ties go to the lowest candidate."""

    def __init__(self, ids: Array, keys: Array) -> None:
        order = np.lexsort((ids, -keys))
        self.keys, self.ids, self.size = keys[order], ids[order], ids.size

    def left(self) -> Array:
        return self.ids[: self.size]


def build_graph(cover: Cover, ids: Array, most: int) -> Graph | None:
    """The graph of the candidates ids (c,); None if it has over `most` pairs, or too many to be worth it."""
    x, cells, cur = cover.x, cover.cells, cover.cur
    few = ids[:: max(1, ids.size // _SAMPLE)]
    room, counted = few.size * cur.size, np.zeros(few.size + 1, np.int64)
    _, edges = kernels.graph(x, cells, cur, few, 0, 0, counted, np.empty(room, np.int32), np.empty(room, np.int32))
    guess = edges / few.size * ids.size
    if guess > min(most, ids.size * cur.size / _DENSE):
        return None
    room = int(_SLACK * guess) + cur.size
    start, client, far = np.zeros(ids.size + 1, np.int64), np.empty(room, np.int32), np.empty(room, np.int32)
    done = edges = 0
    while True:
        done, edges = kernels.graph(x, cells, cur, ids, done, edges, start, client, far)
        if done == ids.size:
            return Graph(start, client, far)
        if edges > most:
            return None
        room += room // 2
        client.resize(room, refcheck=False)
        far.resize(room, refcheck=False)


def _on_graph(cover: Cover, graph: Graph, ids: Array, k: int, tick: Tick | None) -> None:
    """The picks up to k over the edges of a graph whose rows are ids (c,)."""
    start, client, far = graph
    length, keys = np.diff(start), np.empty(ids.size, np.int64)
    kernels.sparse_gains(cover.cur, client, far, start, length, keys)
    row = np.zeros(len(cover.place), np.int32)
    row[ids] = np.arange(ids.size, dtype=np.int32)
    heap = Heap(ids, keys)
    for part in parts(cover.t, k, k, tick):
        heap.size = kernels.sparse(
            cover.cur, cover.owner, client, far, start, length, row, cover.place, heap.keys, heap.ids, cover.picks,
            cover.t, heap.size, part,
        )  # fmt: skip
        cover.t = part


def stages(t: int, k: int) -> Iterator[int]:
    """Where to stop and sort the clients anew: after 1, 4, 8, 16, … picks, and k."""
    stop = 1
    while t < k:
        while stop <= t:
            stop = max(4, 2 * stop)
        t = min(stop, k)
        yield t


def parts(t: int, stop: int, k: int, tick: Tick | None) -> Iterator[int]:
    """t..stop in parts after which `tick` is told how far it is; all at once if nobody listens."""
    step = k if tick is None else max(1, k // _TICKS)
    while t < stop:
        end = min(t + step, stop)
        yield end
        if tick is not None:
            tick(end - t)
        t = end


def spread(work: Callable[[Task], Result], tasks: Sequence[Task], threads: int) -> list[Result]:
    """The results of work(task) for all tasks, on so many threads."""
    if threads == 1 or len(tasks) == 1:
        return [work(task) for task in tasks]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(work, tasks))

"""Exact greedy facility location, with memory and time in proportion to what can still matter.

The marginal gain of a candidate j, given the distance cur_i of each client to what is selected, is

    F(j | S) = Σ_i max(0, cur_i − d_ij),                                                          from Eq. (10)

and only the pairs with d_ij < cur_i enter. cur never grows, so a pair that does not enter now never will. After a few
picks by lazy evaluation (Minoux 1978) over all pairs, the pairs left over fit into memory; from there on greedy runs on
that graph, which shrinks with every evaluation. No pair that matters is ever left out: the picks are those of naive
greedy, ties going to the lowest index.

Pairs are looked up by cells. A client i belongs to the cell of the selected point p nearest to it, its pivot. By the
triangle inequality d_ij < cur_i needs d_jp < cur_i + d_ip =: reach_i, and in a cell sorted by reach those are a prefix.
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
_SLACK = 1.2  # room for more pairs than guessed
_GROUPS, _PIECE = 64, 2**16  # of clients, to bound the gains before the first pick; candidates bounded at a time
_TICKS = 50  # how often a run tells its progress


class Choice(NamedTuple):
    """Selected points, and who belongs to them."""

    picks: Array  # (k,) int32, in order
    owner: Array  # (n,) int32, position in picks of the nearest one
    cur: Array  # (n,) int32, the distance to it


class Cells(NamedTuple):
    """Clients sorted by cell, and within a cell by falling reach; a cell of over TILE clients counts as several."""

    x: Array  # (d, n) float32: the points, in their own order
    place: Array  # (n,) int32: where each client stands
    who: Array  # (n,) int32: the client at each place
    cur: Array  # (n,) int32, by place: distance to the nearest point selected so far, or the cap
    owner: Array  # (n,) int32, by place: position of that point in the selection, or -1
    flat: Array  # (d·n,) float32, by place: first coordinates, then second ones, …
    reach: Array  # (n,) float32, by place
    limit: Array  # (C,) float32: squared distances from a pivot that are out of everybody's reach
    start: Array  # (C + 1,) int64
    pivots: Array  # (d·C,) float32: first coordinates, then second ones, …
    shrink: float  # on computed distances to pivots: what rounding may have added


class Graph(NamedTuple):
    """The pairs with d < cur, by candidate."""

    start: Array  # (c + 1,) int64
    client: Array  # (E,) int32: their places in the cells
    far: Array  # (E,) int32: distances


def sort_into_cells(x: Array, choice: Choice, pivots: Array, nearest: Array, reach: Array) -> Cells:
    """Cells around the points `pivots`; nearest (n,) is each client's cell, reach (n,) its reach in float64."""
    shrink = 1 - (len(x) + 8) * 2.0**-23  # makes a float32 distance over d coordinates a lower bound of the true one
    slack = reach / shrink + 8  # distances were rounded down, and in float32
    who = np.lexsort((-slack, nearest)).astype(np.int32)
    place = np.empty_like(who)
    place[who] = np.arange(len(who), dtype=np.int32)
    slack, nearest = slack[who], nearest[who]
    start = np.union1d(np.flatnonzero(np.diff(nearest, prepend=-1)), np.arange(0, len(who), kernels.TILE))
    limit = np.square(slack[start] / shrink) * (1 + 2.0**-20)
    return Cells(
        x, place, who, choice.cur[who], choice.owner[who], x[:, who].ravel(), slack.astype(np.float32),
        limit.astype(np.float32), np.append(start, len(who)), x[:, pivots[nearest[start]]].ravel(), shrink,
    )  # fmt: skip


class Cover:
    """Clients in cells, what they are nearest to, and the selection so far: what all ways to choose have in common."""

    def __init__(self, x: Array, k: int, cap: int, tick: Tick | None = None) -> None:
        n = x.shape[1]
        self.picks, self.t, self.tick = np.empty(k, np.int32), 0, tick
        nobody, one, far = np.full(n, -1, np.int32), np.zeros(n, np.int32), np.full(n, cap, np.int32)
        self.cells = sort_into_cells(x, Choice(self.picks, nobody, far), one[:1], one, np.full(n, np.inf))

    def stages(self, stop: int) -> Iterator[int]:
        """Ends of the next picks, up to `stop`: 1, 2, 4, 8, …, to sort anew at; more, if somebody listens to progress.

        Whoever asks for the next end has made the picks up to the last.
        """
        step = len(self.picks) if self.tick is None else max(1, len(self.picks) // _TICKS)
        while self.t < stop:
            end = min(stop, 1 << self.t.bit_length(), self.t + step)
            yield end
            if self.tick is not None:
                self.tick(end - self.t)
            self.t = end

    def sort(self) -> None:
        """New cells, around what is selected; before the first pick all are in one, which everybody reaches."""
        if self.t:
            choice = self.choice()
            self.cells = sort_into_cells(self.cells.x, choice, choice.picks, choice.owner, 2.0 * choice.cur)

    def add(self, picks: Array) -> None:
        """Select these points; a client goes to the first of equally near ones, a selected one to itself."""
        self.picks[self.t : self.t + len(picks)] = picks
        for stop in self.stages(self.t + len(picks)):
            self.sort()
            kernels.select(self.cells, self.picks[self.t : stop], self.t)

    def choice(self) -> Choice:
        """The selection so far, cur and owner in the order of x."""
        return Choice(self.picks[: self.t], self.cells.owner[self.cells.place], self.cells.cur[self.cells.place])

    def gains(self, ids: Array, threads: int = 1) -> Array:
        """The marginal gains (c,) of the candidates ids (c,)."""
        out = np.empty(ids.size, np.int64)

        def work(start: int) -> None:
            part = slice(start, start + kernels.TILE)
            kernels.gains(self.cells, ids[part], out[part])

        spread(work, range(0, ids.size, kernels.TILE), threads)
        return out


def covered_by(x: Array, picks: Array, cap: int, tick: Tick | None = None) -> Choice:
    """The choice of given points."""
    cover = Cover(x, len(picks), cap, tick)
    cover.add(picks)
    return cover.choice()


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


def first_bounds(x: Array, ids: Array, cap: int) -> Array:
    """Upper bounds (c,) on the gains of the candidates ids (c,) before the first pick, Σ_i (cap − d_ij).

    Clients are grouped, n_g of them around the mean m_g. A norm is convex, so that over a group
    Σ_i ‖x_i − x_j‖ ≥ n_g ‖m_g − x_j‖: few candidates have to be measured against all clients to find the best.
    """
    n = x.shape[1]
    pivots = x[:, np.linspace(0, n - 1, min(n, _GROUPS)).astype(np.int64)].astype(np.float64)  # (d, G)
    group = np.concatenate([_distances(x[:, rows], pivots).argmin(axis=1) for rows in _columns(np.arange(n))])  # (n,)
    size = np.bincount(group, minlength=pivots.shape[1])  # (G,)
    middles = np.stack([np.bincount(group, one, pivots.shape[1]) for one in x]) / np.maximum(size, 1)  # (d, G)
    least = np.concatenate([_distances(x[:, rows], middles) @ size for rows in _columns(ids)])  # (c,) of Σ_i d_ij
    return np.ceil(n * (cap + 1) - least * (1 - 2.0**-16)).astype(np.int64)  # distances are rounded down


def _columns(ids: Array) -> Iterator[Array]:
    """The ids in pieces that a table of distances to all groups has room for."""
    return (ids[start : start + _PIECE] for start in range(0, len(ids), _PIECE))


def _distances(x: Array, y: Array) -> Array:
    """(n, m) between the columns of x (d, n) and y (d, m), in double precision."""
    x = x.astype(np.float64)
    return np.sqrt(np.maximum(np.square(x).sum(axis=0)[:, None] + np.square(y).sum(axis=0) - 2 * x.T @ y, 0))


def greedy(
    x: Array,
    k: int,
    cap: int,
    *,
    candidates: Array | None = None,
    seeds: Array | None = None,
    memory: int = 2**30,
    threads: int = 1,
    tick: Tick | None = None,
) -> Choice:
    """The first k picks of greedy on F(S) = Σ_i (cap − min_{j∈S} d_ij).

    Args:
        x: (d, n) from `scaling.scaled`.
        k: at least 1, at most the number of candidates.
        cap: d0, in units of x.
        candidates: (c,) who may be picked, ascending; everybody if None.
        seeds: (s,) the first picks, already decided; s ≤ k.
        memory: bytes for the graph.
        threads: for the passes over all pairs at the start.
        tick: told of progress.
    """
    cover, keys = Cover(x, k, cap, tick), None
    ids = np.arange(x.shape[1], dtype=np.int32) if candidates is None else candidates.astype(np.int32)
    if seeds is None:
        seeds = np.empty(1, np.int32)
        kernels.pick(cover.cells, first_bounds(x, ids, cap), ids, seeds, 0, 1)
    cover.add(seeds)
    ids = np.setdiff1d(ids, seeds)  # who is left
    for stop in cover.stages(k):
        cover.sort()
        near = ids[np.argsort(cover.cells.place[ids])]  # neighbours after each other: they visit the same cells
        graph = build_graph(cover.cells, near, memory // _EDGE)
        if graph is not None:
            _pick_on_graph(cover, graph, near)
            break
        if keys is None:
            everybody = candidates is None and cover.t == 1  # then there is nobody to skip
            keys = all_gains(x, cover.choice().cur, threads)[ids] if everybody else cover.gains(ids, threads)
        keys, ids = kernels.pick(cover.cells, keys, ids, cover.picks, cover.t, stop)
    return cover.choice()


def build_graph(cells: Cells, ids: Array, most: int) -> Graph | None:
    """The graph of the candidates ids (c,); None if it has over `most` pairs, or too many to be worth it."""
    n = cells.cur.size
    few = ids[:: max(1, ids.size // _SAMPLE)].copy()  # contiguous, as ids: else the loop is compiled for both
    edges, *_ = kernels.graph(cells, few, n, few.size * n)
    guess = edges / few.size * ids.size
    if guess > min(most, ids.size * n / _DENSE):
        return None
    edges, *graph = kernels.graph(cells, ids, int(_SLACK * guess) + n, most)
    return Graph(*graph) if edges <= most else None


def _pick_on_graph(cover: Cover, graph: Graph, ids: Array) -> None:
    """All other picks over the edges of a graph whose rows are ids (c,)."""
    length, keys = np.diff(graph.start), np.empty(ids.size, np.int64)
    kernels.graph_gains(cover.cells, graph, length, keys)
    row = np.empty_like(cover.cells.place)
    row[ids] = np.arange(ids.size, dtype=np.int32)
    for stop in cover.stages(len(cover.picks)):
        keys, ids = kernels.pick_on_graph(cover.cells, graph, length, row, keys, ids, cover.picks, cover.t, stop)


def spread(work: Callable[[Task], Result], tasks: Sequence[Task], threads: int) -> list[Result]:
    """The results of work(task) for all tasks, on so many threads."""
    if threads == 1 or len(tasks) == 1:
        return [work(task) for task in tasks]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(work, tasks))

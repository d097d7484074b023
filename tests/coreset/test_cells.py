"""What lies beneath greedy: cells that leave out nobody who matters, the graph's limits, gains of every pair, stages.

None of it may change a pick, so that only its own promises can tell whether it holds them.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
import torch
from test_coreset import KINDS, integers, make

from noiseproof.coreset import algorithms, facility, facility_location, greedy, kernels
from noiseproof.coreset.scaling import Points, scaled


def true_distances(points: Points) -> np.ndarray[Any, Any]:
    """(n, n) between the columns of x, in double precision."""
    x = points.x.astype(np.float64)
    return np.stack([np.sqrt(np.square(x - x[:, [j]]).sum(axis=0)) for j in range(x.shape[1])])


def covered(points: Points, picks: np.ndarray[Any, Any], k: int) -> greedy.Cover:
    """A cover by some of its k picks, its cells sorted."""
    cover = greedy.Cover(points.x, k, points.cap)
    cover.add(picks)
    cover.sort()
    return cover


# Cells


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("n", "dims", "t"), [(60, 1, 1), (60, 2, 5), (200, 9, 20), (200, 33, 1), (2100, 2, 2)])
def test_cells_hold_everybody_around_what_is_selected(kind: str, n: int, dims: int, t: int) -> None:
    points = scaled(make(kind, n, dims, 3).numpy())
    picks = np.random.default_rng(0).permutation(n)[:t].astype(np.int32)
    cover = covered(points, picks, t)
    cells, choice, d, true = cover.cells, cover.choice(), integers(points), true_distances(points)
    assert np.array_equal(choice.picks, picks)
    assert np.array_equal(choice.cur, d[picks].min(axis=0))
    owner = d[picks].argmin(axis=0)
    owner[picks] = np.arange(t)  # each to itself, also among copies
    assert np.array_equal(choice.owner, owner)

    assert np.array_equal(cells.who[cells.place], np.arange(n))
    assert np.array_equal(cells.flat.reshape(-1, n), points.x[:, cells.who])
    sizes = np.diff(cells.start)
    assert (cells.start[0], cells.start[-1]) == (0, n)
    assert ((sizes > 0) & (sizes <= kernels.TILE)).all()
    assert len(sizes) <= t + n // kernels.TILE
    cell = np.repeat(np.arange(len(sizes)), sizes)
    pivot = picks[cells.owner[cells.start[:-1]]]
    assert np.array_equal(cells.owner, choice.owner[cells.who])
    assert np.array_equal(cells.owner, cells.owner[cells.start[cell]])  # one pivot for all of a cell
    assert np.array_equal(cells.pivots.reshape(-1, len(sizes)), points.x[:, pivot])

    # nobody is nearer to a client than to its owner whose distance from the pivot, as measured, is not below its reach
    assert (np.diff(cells.reach)[cell[1:] == cell[:-1]] <= 0).all()
    far = 2 * true[cells.who, pivot[cell]]
    assert (cells.reach >= far).all()
    assert (cells.reach <= far * (1 + 1e-4) + 16).all()
    edge = np.sqrt(cells.limit.astype(np.float64)) * cells.shrink
    assert (edge >= cells.reach[cells.start[:-1]]).all()
    assert (edge <= cells.reach[cells.start[:-1]] * (1 + 2.0**-19)).all()


@pytest.mark.parametrize("dims", [1, 2, 3, 8, 33])
def test_shrunk_distances_are_below_the_true_ones(dims: int) -> None:
    """In single precision they may come out larger, by which a client would be out of reach."""
    points = scaled(make("normal", 120, dims, 4).numpy())
    measured = np.empty((120, 120), np.float32)
    for j in range(120):
        kernels.squares(points.x.ravel(), 0, 120, points.x[:, j].copy(), 120, measured[j])
    shrink = greedy.Cover(points.x, 1, points.cap).cells.shrink
    assert (np.sqrt(measured.astype(np.float64)) > true_distances(points)).any()
    assert (np.sqrt(measured.astype(np.float64)) * shrink <= true_distances(points)).all()
    assert shrink >= 1 - (dims + 10) * 2.0**-22


def test_before_the_first_pick_everybody_reaches_all() -> None:
    points = scaled(make("normal", 1100, 3, 0).numpy())
    cover = greedy.Cover(points.x, 5, points.cap)
    cells, before = cover.cells, cover.cells
    assert np.isinf(cells.reach).all()
    assert np.isinf(cells.limit).all()
    assert cells.start.tolist() == [0, kernels.TILE, 1100]
    assert (cells.owner == -1).all()
    assert (cells.cur == points.cap).all()
    assert len(cover.choice().picks) == 0
    cover.sort()
    assert cover.cells is before


# Gains


@pytest.mark.parametrize("kind", ["normal", "grid"])
@pytest.mark.parametrize("n", [1, 2, 1023, 1025, 2050])
def test_gains_are_sums_over_all_pairs(kind: str, n: int) -> None:
    points = scaled(make(kind, n, 3, 5).numpy())
    d = integers(points)
    cur = np.random.default_rng(1).integers(0, points.cap + 1, n).astype(np.int32)
    expected = np.maximum(cur - d, 0).sum(axis=1)
    for threads in (1, 3):
        assert np.array_equal(greedy.all_gains(points.x, cur, threads), expected)
    cover = covered(points, np.arange(min(n, 3), dtype=np.int32), min(n, 3))
    ids = np.random.default_rng(2).permutation(n).astype(np.int32)
    expected = np.maximum(cover.choice().cur - d[ids], 0).sum(axis=1)
    for threads in (1, 3):
        assert np.array_equal(cover.gains(ids, threads), expected)


@pytest.mark.parametrize("kind", KINDS)
def test_bounds_by_groups_are_sums_over_their_middles(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Σ_g n_g ‖m_g − x_j‖ by loops; in pieces or at once, for any candidates."""
    n = 150
    points = scaled(make(kind, n, 3, 6).numpy())
    x, ids = points.x.astype(np.float64).T, np.arange(1, n, 3, dtype=np.int32)
    pivots = x[[int(n - 1) * g // 63 for g in range(64)]]
    group = [int(((pivots - one) ** 2).sum(axis=1).argmin()) for one in x]
    least = np.zeros(len(ids))
    for g in set(group):
        members = x[[i for i in range(n) if group[i] == g]]
        least += len(members) * np.sqrt(((members.mean(axis=0) - x[ids]) ** 2).sum(axis=1))
    whole = greedy.first_bounds(points.x, ids, points.cap)
    bound = n * (points.cap + 1) - least  # a distance is rounded down, and so a gain up
    assert (whole >= bound).all()
    assert (whole <= bound + 2.0**-15 * least + 1).all()
    for piece in (1, 7, 50):
        monkeypatch.setattr(greedy, "_PIECE", piece)
        np.testing.assert_allclose(greedy.first_bounds(points.x, ids, points.cap), whole, rtol=1e-9)


def test_a_first_pass_over_everybody_measures_each_pair_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nobody is left out: then half of the work does."""
    points, passes = scaled(make("normal", 40, 3, 0).numpy()), []
    once, each = greedy.all_gains, greedy.Cover.gains
    monkeypatch.setattr(greedy, "all_gains", lambda *given: passes.append("once") or once(*given))
    monkeypatch.setattr(greedy.Cover, "gains", lambda *given: passes.append("each") or each(*given))
    everybody, seeds = np.arange(40), np.array([3, 5], np.int32)
    for options in ({}, {"candidates": everybody}, {"seeds": seeds}, {"seeds": seeds[:1]}):
        greedy.greedy(points.x, 9, points.cap, memory=0, **options)
    assert passes == ["once", "each", "each", "once"]


# The graph


@pytest.mark.parametrize("n", [32, 64, 128])
def test_a_graph_has_one_of_32_pairs_at_most_and_no_more_than_there_is_room_for(n: int) -> None:
    """A client at the cap is an edge of all candidates, one at distance 1 of itself alone."""
    points = scaled(make("line", n, 1, 0).numpy())
    cells, ids = greedy.Cover(points.x, 1, points.cap).cells, np.arange(n, dtype=np.int32)
    cells.cur[:] = 0
    cells.cur[cells.place[: n // 32]] = points.cap
    edges = n * n // 32
    assert greedy.build_graph(cells, ids, edges - 1) is None
    graph = greedy.build_graph(cells, ids, edges)
    assert graph is not None
    assert np.diff(graph.start).tolist() == [n // 32] * n
    assert np.array_equal(graph.far[:edges].reshape(n, -1), integers(points)[:, : n // 32])
    cells.cur[cells.place[n - 2]] = 1  # an even one: of 128 every second is counted
    assert greedy.build_graph(cells, ids, n * n) is None


def test_a_graph_that_turns_out_too_large_is_given_up() -> None:
    """Of 128 candidates every second is counted; the others may have more pairs than those."""
    points = scaled(make("line", 128, 1, 0).numpy())
    cells, ids = greedy.Cover(points.x, 1, points.cap).cells, np.arange(128, dtype=np.int32)
    cells.cur[:] = 0
    cells.cur[cells.place[1::2]] = 1  # 64 pairs, none of them of an even candidate
    graph = greedy.build_graph(cells, ids, 64)
    assert graph is not None
    assert graph.start[-1] == 64
    assert greedy.build_graph(cells, ids, 63) is None
    assert greedy.build_graph(cells, ids[:64], 31) is None


@pytest.mark.parametrize("kind", KINDS)
def test_gains_by_the_graph_are_exact_while_distances_shrink(kind: str) -> None:
    """Pairs that bring nothing any more count for nothing, and are dropped."""
    points = scaled(make(kind, 300, 3, 1).numpy())
    d, cover = integers(points), covered(points, np.arange(150, dtype=np.int32), 150)
    ids = np.random.default_rng(0).permutation(np.arange(150, 300)).astype(np.int32)
    graph = greedy.build_graph(cover.cells, ids, 10**6)
    assert graph is not None
    length, gains = np.diff(graph.start), np.empty(len(ids), np.int64)
    for picks in ([], [160], [170, 180], [190, 200, 210]):
        for pick in picks:
            cover.cells.cur[:] = np.minimum(cover.cells.cur, d[pick][cover.cells.who])
        cur = cover.choice().cur
        kernels.graph_gains(cover.cells, graph, length, gains)
        assert np.array_equal(gains, np.maximum(cur - d[ids], 0).sum(axis=1))
        assert np.array_equal(length, (d[ids] < cur).sum(axis=1))


@pytest.mark.parametrize("kind", ["normal", "gradients"])
def test_the_pairs_of_the_graph_fit_into_the_memory(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    points, built = scaled(make(kind, 600, 5, 2).numpy()), []
    build = greedy.build_graph

    def watched(*given: Any) -> greedy.Graph | None:
        built.append(build(*given))
        return built[-1]

    def bytes_of(graph: greedy.Graph) -> int:
        return int(graph.start[-1]) * (graph.client.itemsize + graph.far.itemsize)

    monkeypatch.setattr(greedy, "build_graph", watched)
    greedy.greedy(points.x, 200, points.cap)
    stages, room = len(built), bytes_of(built[-1])
    for memory, more in ((room, 0), (room - 1, 1)):  # at the same stage; a byte less, and at a later one
        built.clear()
        greedy.greedy(points.x, 200, points.cap, memory=memory)
        assert len(built) >= stages + more
        assert built[:-1] == [None] * (len(built) - 1)
        assert bytes_of(built[-1]) <= memory
        assert len(built) == stages or more


# Stages, threads and blocks


def test_cells_are_sorted_anew_at_twice_as_many_picks() -> None:
    def ends(k: int, tick: Any = None, stop: int | None = None, t: int = 0) -> list[int]:
        cover = greedy.Cover(np.zeros((2, k), np.float32), k, 1, tick)
        cover.t = t
        return list(cover.stages(k if stop is None else stop))

    told: list[int] = []
    assert ends(21) == [1, 2, 4, 8, 16, 21]
    assert ends(8) == [1, 2, 4, 8]
    assert ends(200, stop=6) == [1, 2, 4, 6]
    assert ends(200, t=5) == [8, 16, 32, 64, 128, 200]
    assert ends(20, told.append) == list(range(1, 21))  # progress is told fifty times, or at each pick
    assert told == [1] * 20
    told.clear()
    assert ends(200, told.append) == [1, 2, *range(4, 201, 4)]
    assert told == [1, 1, 2, *[4] * 49]


def test_picks_see_cells_of_the_picks_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """At each stage: by then the cells are around what is selected."""
    points, seen, sort = scaled(make("normal", 90, 3, 0).numpy()), [], greedy.Cover.sort

    def watched(cover: greedy.Cover) -> None:
        sort(cover)
        cells = cover.cells
        around = cover.picks[cells.owner[cells.start[:-1]]] if cover.t else [0]
        assert np.array_equal(cells.pivots.reshape(-1, len(cells.limit)), points.x[:, around])
        seen.append(cover.t)

    monkeypatch.setattr(greedy.Cover, "sort", watched)
    greedy.greedy(points.x, 20, points.cap, memory=0)
    assert seen == [0, 1, 2, 4, 8, 16]
    seen.clear()
    greedy.covered_by(points.x, np.arange(20, dtype=np.int32), points.cap)
    assert seen == [0, 1, 2, 4, 8, 16]
    seen.clear()
    facility_location(make("normal", 90, 3, 0), 20, algorithm="stochastic")
    assert seen == [0, 1, 2, 4, 8, 16]


def test_work_is_spread_over_so_many_threads_and_comes_back_in_order() -> None:
    me = threading.get_ident()
    together = threading.Barrier(3, timeout=20)

    def work(task: int) -> tuple[int, int]:
        together.wait()  # for three at once
        return task, threading.get_ident()

    found = greedy.spread(work, range(6), 3)
    assert [task for task, _ in found] == list(range(6))
    assert len({who for _, who in found} - {me}) == 3
    for tasks, threads in (([1, 2], 1), ([7], 4), ([], 1)):
        alone = greedy.spread(lambda task: (task, threading.get_ident()), tasks, threads)
        assert alone == [(task, me) for task in tasks]
    assert {who for _, who in greedy.spread(lambda task: (task, threading.get_ident()), [1, 2], 2)} != {me}


def test_the_largest_groups_are_begun_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that none is left over, alone, at the end."""
    sizes, solve = [], algorithms.lazy
    monkeypatch.setattr(algorithms, "lazy", lambda problem: sizes.append(problem.n) or solve(problem))
    groups = torch.repeat_interleave(torch.arange(4), torch.tensor([3, 9, 1, 5]))
    facility_location(make("normal", 18, 2, 0), 1, groups=groups, threads=1)
    assert sizes == [9, 5, 3, 1]


@pytest.mark.parametrize("piece", [1, 7, 40])
def test_costs_are_summed_in_pieces(piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    features, groups = make("normal", 80, 3, 0), torch.arange(80) % 2
    whole = facility_location(features, 5, groups=groups)
    monkeypatch.setattr(facility, "_PIECE", piece)
    again = facility_location(features, 5, groups=groups)
    assert (again.cost, again.objective) == pytest.approx((whole.cost, whole.objective), rel=1e-12)
    assert torch.equal(again.assignment, whole.assignment)


def test_tables_of_distances_have_65536_rows_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    n, rows = 2**16 + 1, []
    distances, unit_scale = greedy._distances, facility.unit_scale
    monkeypatch.setattr(greedy, "_distances", lambda x, y: rows.append((x.shape[1], y.shape[1])) or distances(x, y))
    monkeypatch.setattr(facility, "unit_scale", lambda gap: rows.append(len(gap)) or unit_scale(gap))
    x = np.zeros((2, n), np.float32)
    x[0] = np.arange(n)
    greedy.first_bounds(x, np.arange(n, dtype=np.int32), n)
    assert rows == [(2**16, 64), (1, 64)] * 2
    rows.clear()
    choice = greedy.Choice(np.zeros(1, np.int32), np.zeros(n, np.int32), np.zeros(n, np.int32))
    found = facility._gathered(x.T, [np.arange(n)], [(choice, 2.0 * n)])
    assert rows == [2**16, 1]
    assert found.cost == n * (n - 1) / 2


@pytest.mark.parametrize(("count", "looked_at"), [(63, 63), (64, 64), (127, 127), (128, 64), (640, 64), (700, 70)])
def test_the_size_of_a_graph_is_guessed_by_some_64_candidates(
    count: int, looked_at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With room for a fifth more than guessed, and for another client of each."""
    n, asked, graph = 700, [], kernels.graph
    points = scaled(make("normal", n, 3, 0).numpy())
    cover = covered(points, np.arange(400, dtype=np.int32), 400)

    def watched(cells: Any, ids: Any, size: int, most: int) -> Any:
        asked.append((ids.copy(), size, most))
        return graph(cells, ids, size, most)

    monkeypatch.setattr(kernels, "graph", watched)
    ids = np.random.default_rng(0).permutation(n)[:count].astype(np.int32)
    assert greedy.build_graph(cover.cells, ids, 10**6) is not None
    (few, _, bound), (everybody, size, most) = asked
    assert np.array_equal(few, ids[:: max(1, count // 64)])
    assert len(few) == looked_at
    assert bound >= (integers(points)[few] < cover.choice().cur).sum()  # it is not given up
    guess = (integers(points)[few] < cover.choice().cur).sum() / len(few) * count
    assert np.array_equal(everybody, ids)
    assert size == int(1.2 * guess) + n
    assert most == 10**6

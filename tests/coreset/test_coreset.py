"""Facility location against its slow twin and against brute force: exact greedy, guarantees, ties, edges, mistakes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import facility_location as slow
from torch import Tensor

from noiseproof.coreset import ALGORITHMS, Coreset, algorithms, facility_location, greedy, kernels
from noiseproof.coreset.facility import group_sizes
from noiseproof.coreset.nearest import nearest_to_centre
from noiseproof.coreset.scaling import Points, scaled, unit_scale
from noiseproof.errors import InputError

E = 1 - 1 / math.e
KINDS = ("normal", "grid", "copies", "gradients", "line", "same")
kinds = st.sampled_from(KINDS)


def make(kind: str, n: int, dims: int, seed: int) -> Tensor:
    """Random rows; all kinds but the first have ties, four have copies of points."""
    g = torch.Generator().manual_seed(seed)
    if kind == "same":
        return torch.randn(1, dims, generator=g).repeat(n, 1)
    if kind == "normal":
        return torch.randn(n, dims, generator=g)
    if kind == "grid":
        return torch.randint(4, (n, dims), generator=g).float()
    if kind == "copies":
        return torch.randn(max(1, n // 3), dims, generator=g)[torch.randint(max(1, n // 3), (n,), generator=g)]
    if kind == "line":
        return torch.arange(n).float()[torch.randperm(n, generator=g)][:, None].repeat(1, dims)
    logits, label = 3 * torch.randn(n, dims, generator=g), torch.randint(dims, (n,), generator=g)
    return logits.softmax(1) - torch.nn.functional.one_hot(label, dims)


def integers(points: Points) -> np.ndarray[Any, Any]:
    """The integer distances (n, n) that the loops see."""
    n = points.x.shape[1]
    square = np.empty((n, n), np.float32)
    for j in range(n):
        kernels.squares(points.x.ravel(), 0, n, points.x[:, j].copy(), n, square[j])
    return np.sqrt(square).astype(np.int64)


def bound(features: Tensor) -> float:
    """d0 of a group: a common upper bound of the distances."""
    return scaled(features.numpy()).d0


def consistent(features: Tensor, result: Coreset, d0: float) -> None:
    """Weights, assignment, cost and objective say the same thing."""
    x = features.double().numpy()
    d, chosen = slow.distances(x), result.indices.tolist()
    covered = result.assignment >= 0
    assert len(set(chosen)) == len(chosen)
    assert torch.equal(result.weights, torch.bincount(result.assignment[covered], minlength=len(chosen)).float())
    assert torch.equal(result.assignment[result.indices], torch.arange(len(chosen)))
    own = [d[i, chosen[a]] for i, a in enumerate(result.assignment.tolist()) if a >= 0]
    nearest = [min(d[i, j] for j in chosen) for i in range(len(d)) if covered[i]]
    np.testing.assert_allclose(own, nearest, rtol=1e-5, atol=2e-6 * d0)
    assert result.cost == pytest.approx(sum(own), rel=1e-9, abs=1e-9)
    assert result.objective == pytest.approx(int(covered.sum()) * d0 - sum(own), rel=1e-9, abs=1e-9)


# Exact greedy


@settings(max_examples=300, deadline=None)
@given(kind=kinds, n=st.integers(1, 26), dims=st.integers(1, 9), share=st.floats(0, 1), seed=st.integers(0, 10**6))
def test_lazy_is_naive_greedy(kind: str, n: int, dims: int, share: float, seed: int) -> None:
    features, k = make(kind, n, dims, seed), max(1, round(share * n))
    points, result = scaled(features.numpy()), facility_location(features, k, algorithm="lazy")
    expected = slow.greedy(integers(points), k, points.cap)
    assert result.indices.tolist() == expected  # stronger than an equal objective: ties too
    exact = slow.distances(features.double().numpy())
    assert result.objective == pytest.approx(slow.objective(exact, expected, points.d0), rel=1e-6, abs=1e-9)
    consistent(features, result, points.d0)


@settings(max_examples=100, deadline=None)
@given(n=st.integers(2, 20), share=st.floats(0.05, 1), seed=st.integers(0, 10**6))
def test_lazy_has_the_objective_of_greedy_on_true_distances(n: int, share: float, seed: int) -> None:
    """On a grid of integers in one dimension distances are exact, and so are the twin's ties."""
    features, k = make("grid", n, 1, seed), max(1, round(share * n))
    result, d0 = facility_location(features, k, algorithm="lazy"), bound(features)
    d = slow.distances(features.double().numpy())
    expected = slow.greedy(d, k, math.ceil(d0))  # a whole number, or rounding would break ties
    assert result.objective == pytest.approx(slow.objective(d, expected, d0), rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [1, 2, 63, 500])
def test_no_gain_is_above_its_bound_before_the_first_pick(kind: str, n: int) -> None:
    points = scaled(make(kind, n, 4, seed=n).numpy())
    ids = np.arange(0, n, 2, dtype=np.int32)
    bounds = greedy.first_bounds(points.x, ids, points.cap)
    gains = greedy.all_gains(points.x, np.full(n, points.cap, np.int32))[ids]
    assert (bounds >= gains).all()
    assert (bounds - gains).mean() <= 0.3 * gains.mean() + n  # and not far above: nearly all are then left out


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("n", "dims"), [(300, 10), (500, 5)])
def test_the_graph_changes_nothing(kind: str, n: int, dims: int) -> None:
    """Large enough for cells and graph: the same picks as from all pairs, by a vectorised naive greedy."""
    points, k = scaled(make(kind, n, dims, 1).numpy()), n // 3
    d, cur, expected = integers(points), np.full(n, points.cap), []
    left = np.ones(n, bool)
    for _ in range(k):
        gain = np.maximum(cur - d, 0).sum(axis=1)
        expected.append(int(np.where(left, gain, -1).argmax()))
        left[expected[-1]] = False
        cur = np.minimum(cur, d[expected[-1]])
    for memory in (0, 2**14, 2**30):  # never a graph, a late one, an early one
        found = greedy.greedy(points.x, k, points.cap, memory=memory)
        assert found.picks.tolist() == expected
        assert np.array_equal(found.cur, cur)


def test_the_graph_is_used() -> None:
    points = scaled(make("gradients", 700, 10, 0).numpy())
    cover = greedy.Cover(points.x, 64, points.cap)
    cover.add(greedy.greedy(points.x, 64, points.cap).picks)
    ids = np.arange(700, dtype=np.int32)
    graph = greedy.build_graph(cover.cells, ids, 10**6)
    assert graph is not None
    d, cur = integers(points), cover.choice().cur
    for p in range(0, 700, 50):
        edges = slice(graph.start[p], graph.start[p + 1])
        clients = cover.cells.who[graph.client[edges]]
        assert sorted(clients) == np.flatnonzero(d[p] < cur).tolist()
        assert np.array_equal(graph.far[edges], d[p, clients])
    assert greedy.build_graph(cover.cells, ids, 100) is None


def test_a_wrong_guess_of_the_size_only_costs_time(monkeypatch: pytest.MonkeyPatch) -> None:
    points = scaled(make("gradients", 900, 10, 0).numpy())
    expected = greedy.greedy(points.x, 300, points.cap)
    cover = greedy.Cover(points.x, 64, points.cap)
    cover.add(expected.picks[:64])
    ids = np.arange(900, dtype=np.int32)
    full = greedy.build_graph(cover.cells, ids, 10**6)
    monkeypatch.setattr(greedy, "_SLACK", 1e-3)
    small = greedy.build_graph(cover.cells, ids, 10**6)
    assert full is not None
    assert small is not None
    edges = full.start[-1]
    assert np.array_equal(small.start, full.start)
    assert np.array_equal(small.client[:edges], full.client[:edges])


@pytest.mark.parametrize("dims", [1, 3, 4, 10, 33])
def test_distances_are_those_of_the_features(dims: int) -> None:
    features = make("normal", 60, dims, 3) * 5 + 100
    points = scaled(features.numpy())
    true = slow.distances(features.double().numpy())
    np.testing.assert_allclose(integers(points) * points.unit, true, rtol=2e-6, atol=2 * points.unit)
    assert true.max() <= points.d0 <= 2 * true.max() * (1 + 1e-12)
    assert np.array_equal(integers(points), integers(points).T)


@pytest.mark.parametrize("first", [True, False])
def test_a_far_row_does_not_hide_the_others(first: bool) -> None:
    rows = torch.rand(200, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    far = torch.full((1, 2), 1e6, dtype=torch.float64)
    cost = facility_location(torch.cat([far, rows] if first else [rows, far]), 20).cost
    alone = facility_location(rows, 19).cost
    assert cost == pytest.approx(alone, rel=0.02)


@pytest.mark.parametrize("scale", [1e-170, 1e-24, 1e20, 1e150])
def test_numbers_whose_squares_are_none(scale: float) -> None:
    rows = torch.randn(300, 3, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    power = 2.0 ** round(math.log2(scale))
    kinds = [torch.float64, torch.float32] if 1e-38 < scale < 1e38 else [torch.float64]
    for kind in kinds:
        plain = rows.to(kind)
        for choose in (nearest_to_centre, facility_location):
            one, other = choose(plain, 50), choose(plain * power, 50)
            assert torch.equal(one.indices, other.indices)
            assert other.cost / power == pytest.approx(one.cost)


def test_a_far_offset_does_not_hide_small_distances() -> None:
    features = make("grid", 40, 2, 0).double()
    plain, moved = (facility_location(f, 7).indices for f in (features, features + 2.0**30))
    assert torch.equal(plain, moved)


# Guarantees, against brute force

tiny = given(kind=kinds, n=st.integers(2, 9), dims=st.integers(1, 4), k=st.integers(1, 4), seed=st.integers(0, 10**6))


def ratio(features: Tensor, k: int, **options: Any) -> float:
    """F of what is selected, over its maximum."""
    d, d0 = slow.distances(features.double().numpy()), bound(features)
    best = slow.optimum(d, min(k, len(d)), d0)
    return facility_location(features, min(k, len(d)), **options).objective / best if best > 0 else 1.0


@settings(max_examples=60, deadline=None)
@tiny
def test_guarantees(kind: str, n: int, dims: int, k: int, seed: int) -> None:
    features = make(kind, n, dims, seed)
    assert ratio(features, k, algorithm="lazy") >= E - 1e-6
    # One round alone guarantees this much, whatever the partition (Mirzasoleiman et al. 2013).
    worst = E / min(3, k)
    assert ratio(features, k, algorithm="greedi", parts=3, local=False, seed=seed) >= worst - 1e-6


@pytest.mark.parametrize("kind", KINDS)
def test_guarantees_in_expectation(kind: str) -> None:
    """Over 40 seeds: stochastic 1 − 1/e − ε, greedi on all points (1 − 1/e)/2."""
    features = make(kind, 9, 3, 5)
    drawn = [ratio(features, 3, algorithm="stochastic", epsilon=0.3, seed=s) for s in range(40)]
    assert np.mean(drawn) >= E - 0.3
    split = [ratio(features, 3, algorithm="greedi", parts=3, local=False, seed=s) for s in range(40)]
    assert np.mean(split) >= E / 2
    local = [ratio(features, 3, algorithm="greedi", parts=3, seed=s) for s in range(40)]
    assert np.mean(local) >= E / 2


@settings(max_examples=60, deadline=None)
@given(
    kind=kinds, n=st.integers(1, 20), parts=st.integers(1, 6), share=st.floats(0, 1), local=st.booleans(),
    seed=st.integers(0, 10**6),
)  # fmt: skip
def test_greedi_is_greedy_in_parts_and_then_from_their_choices(
    kind: str, n: int, parts: int, share: float, local: bool, seed: int
) -> None:
    features, k = make(kind, n, 2, seed), max(1, round(share * n))
    points = scaled(features.numpy())
    pieces = algorithms.partition(n, parts, np.random.default_rng([seed, 0]))
    result = facility_location(features, k, algorithm="greedi", parts=parts, local=local, seed=seed, threads=2)
    assert result.indices.tolist() == slow.greedi(integers(points), k, points.cap, pieces, local)
    consistent(features, result, points.d0)


@settings(max_examples=25, deadline=None)
@given(kind=kinds, n=st.integers(2, 45), share=st.floats(0, 1), seed=st.integers(0, 10**6))
def test_sparse_is_greedy_after_two_picks_of_a_sample(kind: str, n: int, share: float, seed: int) -> None:
    features, k = make(kind, n, 3, seed), max(1, round(share * n))
    points = scaled(features.numpy())
    d, count = integers(points), min(k, 2)
    sample = np.sort(np.random.default_rng([seed, 0]).choice(n, min(n, 16 * count), replace=False))
    seeds = sample[slow.greedy(d[np.ix_(sample, sample)], count, points.cap)].tolist()
    result = facility_location(features, k, algorithm="sparse", seed=seed)
    assert result.indices.tolist() == slow.greedy(d, k, points.cap, seeds=seeds)


@settings(max_examples=40, deadline=None)
@given(kind=kinds, n=st.integers(1, 40), share=st.floats(0, 1), seed=st.integers(0, 10**6))
def test_stochastic_is_greedy_where_everybody_is_drawn(kind: str, n: int, share: float, seed: int) -> None:
    features, k = make(kind, n, 3, seed), max(1, round(share * n))
    exact = facility_location(features, k, algorithm="lazy")
    drawn = facility_location(features, k, algorithm="stochastic", epsilon=math.exp(-k - 1e-6), seed=seed)
    assert torch.equal(drawn.indices, exact.indices)
    assert torch.equal(drawn.assignment, exact.assignment)


@settings(max_examples=40, deadline=None)
@given(kind=kinds, n=st.integers(1, 25), share=st.floats(0, 1), seed=st.integers(0, 10**6))
def test_central(kind: str, n: int, share: float, seed: int) -> None:
    features, k = make(kind, n, 4, seed), max(1, round(share * n))
    result = facility_location(features, k, algorithm="central")
    assert result.indices.tolist() == slow.central(integers(scaled(features.numpy())), k)
    consistent(features, result, bound(features))


# The cost relative to exact greedy, at most, on gradient rows with k = n/10
APPROXIMATE = {"sparse": 1.05, "stochastic": 1.3, "greedi": 1.1}


@pytest.mark.parametrize("algorithm", APPROXIMATE)
def test_cost_relative_to_exact_greedy(algorithm: str) -> None:
    features = make("gradients", 1200, 10, 0)
    exact = facility_location(features, 0.1, algorithm="lazy").cost
    costs = [facility_location(features, 0.1, algorithm=algorithm, seed=s).cost for s in range(3)]
    assert np.mean(costs) / exact < APPROXIMATE[algorithm]


# What all have in common


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_algorithm_is_consistent(algorithm: str, kind: str) -> None:
    features = make(kind, 40, 5, 7)
    for k in (1, 13, 40):
        result = facility_location(features, k, algorithm=algorithm)
        assert len(result.indices) == k
        assert result.indices.dtype == result.assignment.dtype == torch.int64
        consistent(features, result, bound(features))
        again = facility_location(features, k, algorithm=algorithm)
        assert torch.equal(result.indices, again.indices)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_edges(algorithm: str) -> None:
    def run(features: Tensor, k: float) -> Coreset:
        return facility_location(features, k, algorithm=algorithm)

    empty = run(torch.randn(5, 2), 0)
    assert len(empty.indices) == len(empty.weights) == 0
    assert empty.assignment.tolist() == [-1] * 5
    assert empty.objective == empty.cost == 0
    one = run(torch.randn(1, 3), 1)
    assert one.indices.tolist() == one.assignment.tolist() == [0]
    assert one.cost == 0
    same = run(torch.ones(6, 2), 2)
    assert same.indices.tolist() == [0, 1] or algorithm in ("stochastic", "greedi", "sparse")
    assert same.cost == same.objective == 0
    everyone = run(make("normal", 12, 2, 0), 12)
    assert sorted(everyone.indices.tolist()) == list(range(12))
    assert everyone.cost == 0


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_groups_are_independent_problems(algorithm: str) -> None:
    features, groups = make("gradients", 90, 6, 2), torch.randint(4, (90,)) + (torch.arange(90) > 45)
    groups[groups == 2] = 1  # an empty group
    result = facility_location(features, 0.3, algorithm=algorithm, groups=groups, threads=3)
    alone = [facility_location(features, 0.3, algorithm=algorithm, groups=groups, threads=1)]
    assert torch.equal(result.indices, alone[0].indices)
    start = 0
    for g in groups.unique():
        rows = (groups == g).nonzero().squeeze(1)
        size = int((groups[result.indices] == g).sum())
        if algorithm in ("lazy", "central", "auto"):  # the others draw by group
            one = facility_location(features[rows], 0.3, algorithm=algorithm)
            assert torch.equal(rows[one.indices], result.indices[start : start + size])
        assigned = result.assignment[rows]
        assert ((assigned == -1) | ((assigned >= start) & (assigned < start + size))).all()
        start += size
    assert start == len(result.indices)


def test_k_for_each_group() -> None:
    features, groups = make("normal", 20, 3, 0), torch.arange(20) % 2
    result = facility_location(features, [0, 3], groups=groups)
    assert (groups[result.indices] == 1).all()
    assert len(result.indices) == 3
    assert (result.assignment[groups == 0] == -1).all()
    assert len(facility_location(features, 2, groups=groups).indices) == 4
    assert torch.equal(facility_location(features, torch.tensor([0, 3]), groups=groups).indices, result.indices)


@pytest.mark.slow
def test_processes_give_what_threads_give() -> None:
    features = make("gradients", 200, 5, 0)
    threads = facility_location(features, 20, algorithm="greedi", parts=2)
    processes = facility_location(features, 20, algorithm="greedi", parts=2, processes=2)
    assert torch.equal(threads.indices, processes.indices)


def test_parts_are_solved_in_processes_where_they_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """In fresh ones, as many as that; here by a pool that is none."""
    asked: list[tuple[int, str, int]] = []

    class Pool:
        def __init__(self, processes: int, context: Any) -> None:
            self.asked = processes, context.get_start_method()

        def __enter__(self) -> Pool:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def map(self, work: Any, tasks: list[Any]) -> Any:
            asked.append((*self.asked, len(tasks)))
            return map(work, tasks)

    monkeypatch.setattr(algorithms, "ProcessPoolExecutor", Pool)
    features = make("gradients", 50, 5, 0)
    for local in (True, False):
        threads, processes = (
            facility_location(features, 9, algorithm="greedi", parts=3, local=local, **more)
            for more in ({}, {"processes": 2})
        )
        assert torch.equal(threads.indices, processes.indices)
    assert asked == [(2, "spawn", 3)] * 2


def test_the_parts_of_greedi() -> None:
    parts = algorithms.partition(10, 3, np.random.default_rng(0))
    assert sorted(np.concatenate(parts).tolist()) == list(range(10))
    assert sorted(map(len, parts)) == [3, 3, 4]
    assert all((np.diff(part) > 0).all() for part in parts)
    assert [part.tolist() for part in parts] != [sorted(part) for part in np.array_split(range(10), 3)]  # at random
    assert len(algorithms.partition(2, 5, np.random.default_rng(0))) == 2
    points = scaled(make("normal", 10, 2, 0).numpy())
    for local in (True, False):
        found = algorithms.solve_part(parts[0], points.x, 2, points.cap, local, 2**20)
        assert set(found.tolist()) <= set(parts[0].tolist())


@pytest.mark.parametrize("algorithm", ["lazy", "sparse", "stochastic", "greedi", "central"])
def test_progress(algorithm: str) -> None:
    calls: list[tuple[int, int]] = []
    features, groups = make("gradients", 400, 5, 0), torch.arange(400) % 3
    options: dict[str, Any] = {"algorithm": algorithm, "groups": groups, "threads": 2}
    result = facility_location(features, 0.5, progress=lambda done, total: calls.append((done, total)), **options)
    assert [done for done, _ in calls] == sorted(done for done, _ in calls)
    assert calls[-1] == (len(result.indices), len(result.indices))
    assert len(calls) > 10
    assert torch.equal(result.indices, facility_location(features, 0.5, **options).indices)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_precisions(dtype: torch.dtype) -> None:
    features = make("grid", 30, 3, 0)
    assert torch.equal(
        facility_location(features.to(dtype), 8).indices, facility_location(features.requires_grad_(), 8).indices
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"features": [[1.0]]}, "features must be a float tensor .n, d., got list"),
        ({"features": torch.ones(3, 2, dtype=torch.int64)}, "features must be a float tensor .* got torch.int64"),
        ({"features": torch.ones(3)}, "features must be a float tensor"),
        ({"features": torch.ones(0, 3)}, "at least one row"),
        ({"features": torch.tensor([[1.0], [math.nan]])}, "NaN or infinity in row 1"),
        ({"features": torch.tensor([[math.inf], [1.0]])}, "NaN or infinity in row 0"),
        ({"k": 5}, "k must not exceed the 4 rows of features, got 5"),
        ({"k": -1}, "k must be a whole number, 0 or more"),
        ({"k": True}, "k must be a whole number"),
        ({"k": "2"}, "k must be a whole number"),
        ({"k": 1.5}, "k must be a number in .0, 1."),
        ({"k": 0.0}, "k must be a number in .0, 1."),
        ({"k": [1, 2]}, "one entry for each of the 1 groups, got 2"),
        ({"groups": torch.tensor([0, 0, 1])}, "groups must be an int64 tensor .4,."),
        ({"groups": torch.tensor([0, 0, 1, -1])}, "groups must not be negative, got -1 in row 3"),
        ({"groups": torch.tensor([0, 0, 1, 10**9])}, "without large gaps"),
        ({"groups": torch.tensor([0, 0, 0, 1])}, "the 1 rows of group 1, got 2"),
        ({"algorithm": "lasy"}, "did you mean 'lazy'"),
        ({"epsilon": 0.1}, "epsilon is an option of 'stochastic', not of algorithm 'auto'"),
        ({"algorithm": "stochastic", "epsilon": 0.0}, "epsilon must be a number in"),
        ({"algorithm": "greedi", "parts": 0}, "parts must be a whole number, 1 or more"),
        ({"threads": 0}, "threads must be"),
        ({"memory": -1}, "memory must be"),
        ({"seed": -1}, "seed must be"),
    ],
)
def test_mistakes(options: dict[str, Any], message: str) -> None:
    arguments: dict[str, Any] = {"features": torch.randn(4, 2), "k": 2, **options}
    with pytest.raises(InputError, match=message):
        facility_location(arguments.pop("features"), arguments.pop("k"), **arguments)


@pytest.mark.parametrize(
    ("name", "taken", "refused"),
    [
        ("epsilon", [1e-9, 1 - 1e-9], [0, 1]), ("parts", [1, 9], [0]), ("processes", [0], [-1]), ("seed", [0, 1], [-1]),
        ("memory", [0, 1], [-1]), ("threads", [1, 2], [0]), ("progress", [None, max], [5]),
        ("k", [0, 4, 1e-9, 1.0, [0]], [-1, 5, 0.0, 1.01, [5], [1, 1]]),
        ("groups", [torch.tensor([0, 0, 1, 1])], [torch.tensor([0, -1, 0, 0]), torch.tensor([0, 0, 1008, 0])]),
    ],
)  # fmt: skip
def test_ranges(name: str, taken: list[Any], refused: list[Any]) -> None:
    """The ends of each range are taken, what lies just beyond is refused by its name."""
    algorithm = {"epsilon": "stochastic", "parts": "greedi", "processes": "greedi"}.get(name, "lazy")
    arguments: dict[str, Any] = {"features": torch.eye(4), "k": 1, "algorithm": algorithm}
    for value in taken:
        facility_location(**arguments | {name: value})
    for value in refused:
        with pytest.raises(InputError, match=rf"^{name}\S* must") as refusal:
            facility_location(**arguments | {name: value})
        assert name != "progress" or str(refusal.value).endswith("must be a function, or None, got 5")


def test_groups_may_be_empty_but_not_by_the_thousand() -> None:
    """Numbers up to twice the rows and 999 are names; above, a mistake."""
    found = facility_location(torch.eye(4), 0.5, groups=torch.tensor([0, 0, 0, 1007]))
    assert sorted(found.indices.tolist())[-1] == 3
    with pytest.raises(InputError, match="without large gaps, got 1008 for 4 rows"):
        facility_location(torch.eye(4), 0.5, groups=torch.tensor([0, 0, 0, 1008]))


@pytest.mark.parametrize("algorithm", ["sparse", "stochastic", "greedi"])
def test_draws_are_those_of_seed_0_unless_another_is_given(algorithm: str) -> None:
    features = make("normal", 300, 3, 0)
    found = [facility_location(features, 30, algorithm=algorithm, **given).indices.tolist()
             for given in ({}, {"seed": 0}, {"seed": 1})]  # fmt: skip
    assert found[0] == found[1] != found[2]


def test_what_options_are_where_they_are_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """ε = 0.1; four parts, each by itself, in threads; a gibibyte of pairs, and a seed for each group."""
    seen: list[algorithms.Problem] = []
    for name in ("lazy", "sparse"):
        monkeypatch.setattr(algorithms, name, lambda problem, name=name: seen.append(problem) or covered(problem, name))
    ways: list[str] = []

    def covered(problem: algorithms.Problem, name: str) -> greedy.Choice:
        ways.append(name)
        return greedy.covered_by(problem.x, np.arange(problem.k, dtype=np.int32), problem.cap)

    features, groups = make("normal", 8, 2, 0), torch.arange(8) % 2
    facility_location(features, 1, groups=groups, threads=1)
    facility_location(features, 1, groups=groups, threads=6)
    assert [(one.epsilon, one.parts, one.local, one.processes) for one in seen] == [(0.1, 4, True, 0)] * 4
    assert [(one.memory, one.threads) for one in seen] == [(2**30, 1)] * 2 + [(2**29, 3)] * 2
    assert ways == ["lazy"] * 4
    draws = [one.generator.random() for one in seen[:2]]
    assert draws == [np.random.default_rng([0, g]).random() for g in (0, 1)]
    facility_location(torch.zeros(99_999, 1), 1)
    facility_location(torch.zeros(100_000, 1), 1)
    assert ways[4:] == ["lazy", "sparse"]


def test_groups_of_which_nothing_is_asked_take_no_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory and threads are those of the groups that are solved."""
    seen, solve = [], algorithms.lazy
    monkeypatch.setattr(algorithms, "lazy", lambda problem: seen.append(problem) or solve(problem))
    for k in ([0, 2, 0], [0, 2, 1], [0, 0, 0]):
        facility_location(make("normal", 9, 2, 0), k, groups=torch.arange(9) % 3, threads=4)
    assert [(one.memory, one.threads) for one in seen] == [(2**30, 4)] + [(2**29, 2)] * 2


@pytest.mark.parametrize(
    ("n", "k", "count", "sample"),
    [(1000, 50, 5, 80), (800, 50, 4, 64), (799, 50, 3, 48), (1000, 3, 3, 48), (100, 9, 2, 32), (20, 9, 2, 20)],
)
def test_the_first_picks_of_sparse_come_from_a_sample(
    n: int, k: int, count: int, sample: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of 200 points, two at least, from sixteen times as many."""
    calls: list[tuple[int, int, int]] = []

    def watched(x: Any, k: int, cap: int, *, seeds: Any = None, **options: Any) -> greedy.Choice:
        calls.append((x.shape[1], k, 0 if seeds is None else len(seeds)))
        return greedy.greedy(x, k, cap, seeds=seeds, **options)

    monkeypatch.setattr(algorithms, "greedy", watched)
    found = facility_location(make("normal", n, 2, 0), k, algorithm="sparse")
    assert len(found.indices) == k
    assert calls == [(sample, count, 0), (n, k, count)]


@pytest.mark.parametrize(("epsilon", "size"), [(None, 24), (0.5, 7)])
def test_stochastic_picks_the_best_of_so_many(
    epsilon: float | None, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """⌈100/10 · log(1/ε)⌉, ε = 0.1 by default."""
    sizes, pick = set(), kernels.pick_from_samples

    def watched(cells: Any, keys: Any, pool: Any, draws: Any, size: int, *rest: Any) -> None:
        sizes.add(size)
        assert len(draws) == (rest[2] - rest[1]) * size
        pick(cells, keys, pool, draws, size, *rest)

    monkeypatch.setattr(kernels, "pick_from_samples", watched)
    facility_location(make("normal", 100, 2, 0), 10, algorithm="stochastic", epsilon=epsilon)
    assert sizes == {size}


def test_the_parts_of_greedi_share_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    given = []
    solve = algorithms.solve_part

    def watched(part: Any, **options: Any) -> Any:
        given.append((len(part), options["k"], options["local"], options["memory"]))
        return solve(part, **options)

    monkeypatch.setattr(algorithms, "solve_part", watched)
    facility_location(make("normal", 30, 2, 0), 4, algorithm="greedi", memory=3001, threads=1)
    assert given == [(8, 4, True, 750), (8, 4, True, 750), (7, 4, True, 750), (7, 4, True, 750)]


def test_shares_are_rounded_and_one_at_least() -> None:
    assert group_sizes(0.25, [0, 1, 2, 9, 10, 11]) == [0, 1, 1, 2, 3, 3]
    assert group_sizes(1.0, [3, 0]) == [3, 0]
    assert group_sizes(2, [2, 5]) == [2, 2]


@pytest.mark.parametrize(("n", "at"), [(1024, 1), (1025, 0)])
def test_the_middle_is_one_of_1024_rows_at_most(n: int, at: int) -> None:
    """Of more, every second is looked at, or fewer: the very middle, in row 1, is not among them."""
    rows = np.arange(n, dtype=np.float64)[:, None] + 1000
    rows[[1, n // 2]] = rows[[n // 2, 1]]
    points = scaled(rows)
    assert np.flatnonzero(points.x[0] == 0)[0] % 2 == at


@settings(max_examples=100, deadline=None)
@given(kind=kinds, n=st.integers(1, 40), dims=st.integers(1, 5), power=st.integers(-60, 60), seed=st.integers(0, 10**6))
def test_points_are_the_rows_around_one_in_their_middle(kind: str, n: int, dims: int, power: int, seed: int) -> None:
    rows = make(kind, n, dims, seed).double().numpy() * 2.0**power
    points = scaled(rows)
    middle = min(range(n), key=lambda i: (((rows[i] - np.median(rows, axis=0)) / 2.0**power) ** 2).sum())
    assert points.x.dtype == np.float32
    assert points.x.shape == (dims + dims % 2, n)
    assert not points.x[dims:].any()
    np.testing.assert_allclose(points.x[:dims].T * points.unit, rows - rows[middle], rtol=1e-6, atol=0)
    reach = [2 * np.sqrt(((rows - c) ** 2).sum(axis=1)).max() for c in (rows.mean(axis=0), rows[middle])]
    assert points.d0 == pytest.approx(min(reach), rel=1e-12, abs=1e-15 * 2.0**power)
    assert math.frexp(points.unit)[0] == 0.5  # a power of two
    if points.d0 > 1e-9 * 2.0**power:
        assert 2**28 <= points.d0 / points.unit < 2**29  # what is left of int32 is room for rounding
    assert points.cap > points.d0 / points.unit * (1 + 2.0**-17)
    assert points.cap <= points.d0 / points.unit * (1 + 2.0**-15) + 2
    assert points.cap > integers(points).max()


def test_rows_are_brought_to_a_size_whose_squares_are_numbers() -> None:
    for largest in (1e-300, 0.5, 1.0, 1.5, 2.0, 1e300):
        found, shift = unit_scale(np.array([[largest, -largest / 3]]))
        assert 0.5 <= np.abs(found).max() < 1
        np.testing.assert_array_equal(np.ldexp(found, shift), [[largest, -largest / 3]])
        np.testing.assert_array_equal(unit_scale(np.array([[-largest]]))[1], shift)
    found, shift = unit_scale(np.zeros((2, 3), np.float32))
    assert (found.dtype, shift, found.any()) == (np.float64, 0, False)
    assert unit_scale(np.empty((0, 2)))[0].shape == (0, 2)

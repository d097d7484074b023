"""The points nearest to a centre: against brute force, among outliers, and on bad input."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from noiseproof.coreset import facility_location, nearest
from noiseproof.coreset.nearest import nearest_to_centre
from noiseproof.errors import InputError


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), n=st.integers(1, 30), share=st.floats(0.05, 1.0))
def test_no_other_centre_has_k_points_nearer(seed: int, n: int, share: float) -> None:
    points = torch.randn(n, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    found = nearest_to_centre(points, share)
    k = min(n, max(1, int(share * n + 0.5)))
    assert len(found.indices) == len(found.indices.unique()) == k
    apart = (points[:, None] - points).square().sum(dim=2).sqrt()
    sums = apart.sort(dim=1).values[:, :k].sum(dim=1)
    assert found.cost == pytest.approx(float(sums.min()), abs=1e-9)
    assert (found.assignment[found.indices] == torch.arange(k)).all()
    assert int((found.assignment == -1).sum()) == n - k


def test_scattered_points_do_not_move_it() -> None:
    generator = torch.Generator().manual_seed(0)
    near, far = 0.1 * torch.randn(40, 4, generator=generator), 2 + 3 * torch.rand(60, 4, generator=generator)
    points, groups = torch.cat([near, far]).repeat(2, 1), torch.arange(2).repeat_interleave(100)
    found = nearest_to_centre(points, 0.4, groups=groups)
    assert sorted(found.indices.tolist()) == [*range(40), *range(100, 140)]
    assert nearest_to_centre(points, 0.4, groups=groups, candidates=50, seed=1).cost < 1.2 * found.cost
    central = facility_location(points, 0.4, algorithm="central", groups=groups).indices
    assert (central % 100 < 40).float().mean() < 0.5


def test_sizes_and_mistakes() -> None:
    points = torch.tensor([[0.0], [1.0], [1.0], [9.0]])
    assert nearest_to_centre(points, 2).indices.tolist() == [1, 2]
    assert nearest_to_centre(points, 0).indices.tolist() == []
    assert nearest_to_centre(points, 4).cost == pytest.approx(9.0)
    with pytest.raises(InputError, match="finite"):
        nearest_to_centre(torch.tensor([[float("nan")]]), 1)
    with pytest.raises(InputError, match="must not exceed"):
        nearest_to_centre(points, 5)
    for mistake in ({"candidates": 0}, {"seed": -1}, {"centre": [0.0]}, {"centre": torch.tensor([float("nan")])}):
        with pytest.raises(InputError, match=f"{next(iter(mistake))} must be"):
            nearest_to_centre(points, 1, **mistake)
    with pytest.raises(InputError, match="centre must be one finite point"):
        nearest_to_centre(points, 2, centre=torch.zeros(2))


def test_a_given_centre() -> None:
    points = torch.tensor([[3.0, 0.0], [0.0, 1.0], [0.0, -2.0], [5.0, 5.0], [5.0, 6.0]])
    found = nearest_to_centre(points, 2, centre=torch.zeros(2))
    assert found.indices.tolist() == [1, 2]
    assert found.cost == pytest.approx(3.0)
    by_group = nearest_to_centre(points, 1, groups=torch.tensor([0, 0, 0, 1, 1]), centre=torch.zeros(2))
    assert by_group.indices.tolist() == [1, 3]


def test_two_thousand_candidates_of_a_group_at_random(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []
    monkeypatch.setattr(nearest, "_nearest", lambda points, centres, k: tried.append(centres) or (np.arange(k), 0.0))
    points = torch.arange(2001.0)[:, None]
    for options in ({}, {"seed": 0}, {"seed": 1}, {"candidates": 2001}):
        nearest_to_centre(points, 5, **options)
    assert [len(one) for one in tried] == [2000, 2000, 2000, 2001]
    assert (tried[0] == tried[1]).all()
    assert (tried[0] != tried[2]).any()
    assert (np.diff(tried[0][:, 0]) > 0).all()


@pytest.mark.parametrize("block", [1, 7, 2**24])
def test_blocks_of_centres_do_not_matter(monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    points = torch.randn(40, 3, generator=torch.Generator().manual_seed(1))
    whole = nearest_to_centre(points, 6)
    monkeypatch.setattr(nearest, "_BLOCK", 40 * block)
    again = nearest_to_centre(points, 6)
    assert torch.equal(again.indices, whole.indices)
    assert again.cost == whole.cost == -again.objective
    assert torch.equal(again.weights, torch.ones(6))


def test_the_nearest_of_many_are_summed_exactly() -> None:
    points = torch.randn(400, 2, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    apart = (points[:, None] - points).square().sum(dim=2).sqrt().sort(dim=1).values
    for k in (1, 2, 150, 400):
        found = nearest_to_centre(points, k)
        best = int(apart[:, :k].sum(dim=1).argmin())
        nearest_first = (points - points[best]).norm(dim=1).argsort(stable=True)[:k]
        assert found.cost == pytest.approx(float(apart[best, :k].sum()), abs=1e-9)
        assert k == 1 or torch.equal(found.indices, nearest_first)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6), n=st.integers(2, 30), most=st.integers(1, 12), block=st.integers(1, 9),
    kind=st.sampled_from([torch.float32, torch.float64]),
)  # fmt: skip
def test_each_group_has_its_own_candidates_and_of_equal_centres_the_first(
    seed: int, n: int, most: int, block: int, kind: torch.dtype
) -> None:
    """On a grid, where many sums and distances are equal, by loops; in blocks of a few centres."""
    generator = torch.Generator().manual_seed(seed)
    points = torch.randint(4, (n, 1), generator=generator).to(kind)
    groups = torch.randint(2, (n,), generator=generator)
    groups[:2] = torch.tensor([0, 1])
    expected, cost = [], 0.0
    for group in (0, 1):
        member = (groups == group).nonzero()[:, 0].numpy()
        tried, k = member, (len(member) + 1) // 2
        if len(member) > most:
            tried = np.sort(np.random.default_rng([seed, group]).choice(member, most, replace=False))
        apart = {int(c): [abs(float(points[c] - points[i])) for i in member] for c in tried}
        best = min(apart, key=lambda c: sum(sorted(apart[c])[:k]))
        order = sorted(range(len(member)), key=lambda i: apart[best][i])[:k]
        expected += member[order].tolist()
        cost += sum(apart[best][i] for i in order)
    sizes = [(int((groups == group).sum()) + 1) // 2 for group in (0, 1)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nearest, "_BLOCK", block * n)
        found = nearest_to_centre(points, sizes, groups=groups, candidates=most, seed=seed)
    assert found.indices.tolist() == expected
    assert found.cost == pytest.approx(cost, abs=1e-9)
    by_given = nearest_to_centre(points, sizes, groups=groups, centre=torch.ones(1, dtype=torch.float64))
    assert by_given.cost == pytest.approx(
        sum(sum(sorted((points[groups == g] - 1).abs().flatten().tolist())[: sizes[g]]) for g in (0, 1))
    )


def test_sixteen_million_distances_are_held_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    shapes, cdist = [], torch.cdist

    def watched(some: torch.Tensor, all_: torch.Tensor, **options: str) -> torch.Tensor:
        shapes.append((len(some), len(all_)))
        return cdist(some, all_, **options)

    monkeypatch.setattr(torch, "cdist", watched)
    nearest_to_centre(torch.arange(2.0**14)[:, None], 1, candidates=1025)
    assert shapes == [(1024, 2**14), (1, 2**14)]

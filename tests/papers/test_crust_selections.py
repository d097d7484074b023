"""What the theory of CRUST compares with: medoids that leave points uncovered, and exact gradients."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import facility_location as slow

from noiseproof import coreset
from noiseproof.models import build
from noiseproof_papers.crust.gradients import full_gradients
from noiseproof_papers.crust.trimmed import facility_location


@settings(max_examples=60, deadline=None)
@given(n=st.integers(2, 14), grid=st.booleans(), trim=st.floats(0, 0.9), seed=st.integers(0, 10**6))
def test_trimmed(n: int, grid: bool, trim: float, seed: int) -> None:
    features, k = torch.randn(n, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64), max(1, n // 4)
    features = features.round() if grid else features  # with ties
    one = torch.zeros(n, dtype=torch.int64)
    result = facility_location(features, k, algorithm="trimmed", groups=one, trim=trim)
    d, z, chosen = slow.distances(features.numpy()), min(math.floor(trim * n), n - k), result.indices.tolist()
    covered = result.assignment >= 0
    assert len(set(chosen)) == len(chosen) == k
    assert int((~covered).sum()) == z
    assert torch.equal(result.assignment[result.indices], torch.arange(k))
    assert torch.equal(result.weights, torch.bincount(result.assignment[covered], minlength=k).float())
    own = sum(d[i, chosen[a]] for i, a in enumerate(result.assignment.tolist()) if a >= 0)
    assert result.cost == pytest.approx(own, abs=1e-9)
    # What is left out is what costs most; and it is no worse than leaving that out of the untrimmed choice.
    assert result.cost == pytest.approx(slow.trimmed_cost(d, chosen, z), rel=1e-5, abs=1e-5)
    untrimmed = coreset.facility_location(features, k, algorithm="lazy").indices.tolist()
    assert result.cost <= slow.trimmed_cost(d, untrimmed, z) * (1 + 1e-5) + 1e-5


def test_trimmed_leaves_scattered_points_uncovered() -> None:
    """Two tight clusters and 20 % far points, k = 2: greedy pays for the far ones, trimmed sits in the clusters."""
    g = torch.Generator().manual_seed(0)
    tight = torch.cat([0.1 * torch.randn(40, 2, generator=g), 0.1 * torch.randn(40, 2, generator=g) + 5])
    points = torch.cat([tight, 100 * torch.randn(20, 2, generator=g)]).repeat(2, 1)
    groups = torch.arange(2).repeat_interleave(100)
    result = facility_location(points, 2, algorithm="trimmed", groups=groups, trim=0.2)
    assert (result.assignment < 0).nonzero().squeeze(1).tolist() == [*range(80, 100), *range(180, 200)]
    assert sorted((result.indices % 100 // 40).tolist()) == [0, 0, 1, 1]
    plain = facility_location(points, 2, algorithm="lazy", groups=groups)
    assert int((plain.indices % 100).max()) >= 80


def test_full_gradients_are_those_of_autograd() -> None:
    torch.manual_seed(0)
    model, x, label = build("mlp", (5,), 3, widths=(7,)), torch.randn(10, 5), torch.arange(10) % 3
    rows = full_gradients(model, x, label, block=4)
    for i in range(10):
        loss = torch.nn.functional.cross_entropy(model(x[i : i + 1]), label[i : i + 1])
        expected = torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(model.parameters()))])
        torch.testing.assert_close(rows[i], expected)

"""What the other examples say of a label: the closed form against refitting, and that its own label has no share."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from reference import left_out as twin
from reference.features import softmax, votes

from noiseproof.auditing import blocks, left_out


def world(n: int = 90, F: int = 6, K: int = 3, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    right = rng.integers(0, K, n)
    return rng.normal(size=(n, F)) @ rng.normal(size=(F, F)) + 3 * np.eye(K, F)[right], right


@pytest.mark.parametrize(("seed", "n"), [(0, 90), (1, 90), (2, 9)])  # nearly as few examples as features
def test_the_regression_equals_its_slow_twin(seed: int, n: int) -> None:
    x, labels = world(n, seed=seed)
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    value, vector = np.linalg.eigh(x.T @ x / len(x))
    ours = left_out.scores(x @ vector, value, labels, 3)
    slow = twin.scores(x, np.eye(3)[labels], [one * value.mean() * len(x) for one in left_out.DECAYS])
    np.testing.assert_allclose(ours, slow, atol=1e-5 if n == 90 else 1e-3)


@pytest.mark.parametrize(("kept", "leading"), [(6, 2), (4, 3), (2, 2), (512, 64)])
def test_the_evidence_is_both_twins_put_together(kept: int, leading: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """exp(8 s) / Σ of the regression on the principal components, and the votes of the 20 nearest in some of them."""
    assert (left_out.KEPT, left_out.LEADING, left_out.DECAYS) == (512, 64, (1e-3, 1e-2, 1e-1, 1.0, 10.0))
    monkeypatch.setattr(left_out, "KEPT", kept)
    monkeypatch.setattr(left_out, "LEADING", leading)
    raw, labels = world(n=60)
    x = (raw - raw.mean(axis=0)) / raw.std(axis=0)
    value, vector = np.linalg.eigh(x.T @ x / len(x))
    value, x = value[-kept:], x @ vector[:, -kept:]
    decays = [one * value.mean() * len(x) for one in (1e-3, 1e-2, 1e-1, 1.0, 10.0)]
    by_regression, by_neighbours = left_out.evidence(raw * 100 + 7, labels, 3)
    np.testing.assert_allclose(by_regression, softmax(8 * twin.scores(x, np.eye(3)[labels], decays)), atol=1e-4)
    plane = x[:, -leading:]
    unit = plane / np.linalg.norm(plane, axis=1, keepdims=True)
    at = np.argsort(-(unit @ unit.T - 3 * np.eye(60)), axis=1)[:, :20]
    np.testing.assert_allclose(by_neighbours, votes(at, labels, 3), atol=1e-6)


@pytest.mark.parametrize("best", range(5))
def test_the_decay_of_the_least_squares_is_taken(best: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever of five it is: with the others far worse, the scores are those of that one alone."""
    x, labels = world(n=40)
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    value, vector = np.linalg.eigh(x.T @ x / len(x))
    tried = [1e5] * 5
    tried[best] = 0.1
    monkeypatch.setattr(left_out, "DECAYS", tuple(tried))
    slow = twin.scores(x, np.eye(3)[labels], [0.1 * value.mean() * len(x)])
    np.testing.assert_allclose(left_out.scores(x @ vector, value, labels, 3), slow, atol=1e-5)


def test_an_example_that_alone_decides_what_is_said_of_it() -> None:
    """h is taken for 0.999 at most: s = y − 1000 (y − ŷ)."""
    x = np.zeros((6, 1), np.float32)
    x[0], labels = 1e4, np.array([0, 1, 1, 0, 1, 0])
    found = left_out.scores(x, np.full(1, 1e-3), labels, 2)
    y = np.eye(2)[labels]
    slope = x.T @ (y - 0.5) / 6
    fitted = [0.5 + x @ slope / (1e-3 * (1 + decay)) for decay in left_out.DECAYS]
    ends = [y - (y - one) / np.array([[1e-3], *[[1 - 1 / 6]] * 5]) for one in fitted]
    np.testing.assert_allclose(found, min(ends, key=lambda one: ((y - one) ** 2).sum()), rtol=1e-3)


def test_few_examples_have_all_others_for_neighbours() -> None:
    x, _ = world(n=5)
    assert [sorted(row) for row in left_out.near(x).tolist()] == [[j for j in range(5) if j != i] for i in range(5)]


def test_no_label_has_a_share_in_what_is_said_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(left_out, "DECAYS", (0.1,))  # which of them is best, all labels decide
    x, labels = world()
    changed = labels.copy()
    changed[7] = (labels[7] + 1) % 3
    for before, after in zip(left_out.evidence(x, labels, 3), left_out.evidence(x, changed, 3), strict=True):
        np.testing.assert_allclose(before[7], after[7], atol=1e-5)
        assert np.abs(before - after).max() > 1e-3  # of the others it has


def test_the_evidence_is_probabilities_and_finds_the_class() -> None:
    x, labels = world(n=300)
    for said in left_out.evidence(x, labels, 3):
        assert said.dtype == np.float32
        np.testing.assert_allclose(said.sum(axis=1), 1, rtol=1e-5)
        assert (said.argmax(axis=1) == labels).mean() > 0.7


def test_neighbours_are_others_nearest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    x, _ = world()
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    cosine = unit @ unit.T
    np.fill_diagonal(cosine, -2)
    slow = np.argsort(-cosine, axis=1)[:, : left_out.NEIGHBOURS]
    np.testing.assert_array_equal(left_out.near(x), slow)
    monkeypatch.setattr(left_out, "_BANK", 30)  # of many examples, neighbours are looked for among some
    some = left_out.near(x)
    assert len(np.unique(some)) == 30
    assert some.shape == (90, left_out.NEIGHBOURS)
    assert not (some == np.arange(90)[:, None]).any()
    np.testing.assert_array_equal(some, left_out.near(x, seed=0))
    assert (some != left_out.near(x, seed=1)).any()
    labels = np.arange(90) % 3
    again = [left_out.evidence(x, labels, 3, **given)[1] for given in ({}, {"seed": 0}, {"seed": 1})]
    np.testing.assert_array_equal(again[0], again[1])
    assert (again[0] != again[2]).any()
    bank = np.unique(some)
    np.testing.assert_array_equal(some, bank[np.argsort(-cosine[:, bank], axis=1)[:, : left_out.NEIGHBOURS]])


def test_of_many_features_the_leading_components_are_nearly_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is said by a sketch of them is what is said by all, and the same each time; of few it is that exactly."""
    rng = np.random.default_rng(0)
    labels = np.arange(400) % 3
    hidden = rng.normal(size=(400, 10)) + 2 * np.eye(10)[labels]
    features = (hidden @ rng.normal(size=(10, 80)) + 0.1 * rng.normal(size=(400, 80))).astype(np.float32)
    exact = left_out.as_probability(left_out.scores(*left_out.components(features), labels, 3))
    np.testing.assert_array_equal(left_out.said(features, labels, 3), exact)
    monkeypatch.setattr(left_out, "SKETCHED", 20)
    found = left_out.said(features, labels, 3)
    assert np.abs(found - exact).max() < 0.05
    np.testing.assert_array_equal(found, left_out.said(features, labels, 3))
    monkeypatch.setattr(left_out, "SKETCHED", 5)  # fewer than there are
    assert np.abs(left_out.said(features, labels, 3) - exact).max() > 0.1


def test_columns_that_say_nothing_or_more_columns_than_rows() -> None:
    x, labels = world(n=40)
    wide = np.concatenate([x, np.ones((40, 3)), np.random.default_rng(0).normal(size=(40, 60))], axis=1)
    for said in left_out.evidence(wide, labels, 3):
        assert np.isfinite(said).all()


def test_neighbours_are_looked_for_among_twenty_thousand(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def nearest(queries: torch.Tensor, bank: torch.Tensor, k: int) -> tuple[None, torch.Tensor]:
        asked.append((len(queries), len(bank), k))
        return None, torch.arange(k).repeat(len(queries), 1)

    monkeypatch.setattr("noiseproof.auditing.neighbours.nearest", nearest)
    for n in (19_999, 20_001):
        left_out.near(np.ones((n, 1)))
    assert asked == [(19_999, 19_999, 21), (20_001, 20_000, 21)]


@pytest.mark.parametrize(("n", "width"), [(30, 5), (12, 12), (6, 25)])
def test_the_eigenvectors_hold_all_that_centred_features_do(n: int, width: int) -> None:
    """Whichever of the two matrices is decomposed: products of rows are kept, and columns do not correlate."""
    x = np.random.default_rng(0).normal(size=(n, width)) * np.linspace(1, 3, width) + 5
    centred = x - x.mean(axis=0)
    found, value = left_out.leading(x)
    assert found.shape == (n, min(n, width))
    assert (value >= 0).all()
    np.testing.assert_allclose(found @ found.T, centred @ centred.T, atol=1e-9)
    np.testing.assert_allclose(found.T @ found / n, np.diag(value), atol=1e-9)
    np.testing.assert_allclose(value, np.linalg.svd(centred, compute_uv=False)[::-1] ** 2 / n, atol=1e-9)


@pytest.mark.parametrize(("n", "width"), [(40, 9), (9, 40), (9, 9)])
def test_of_a_large_matrix_only_the_leading_eigenvectors_are_found(
    n: int, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (left_out.MOST_FEATURES, left_out.MOST_WHOLE, left_out.RANK) == (2048, 4096, 1024)
    x = np.random.default_rng(1).normal(size=(n, 3)) @ np.random.default_rng(2).normal(size=(3, width))  # of rank 3
    whole = left_out.leading(x)
    monkeypatch.setattr(left_out, "RANK", 3)
    monkeypatch.setattr(left_out, "MOST_WHOLE", 9)
    assert left_out.leading(x)[0].shape == (n, 9)  # it is no larger than that
    monkeypatch.setattr(left_out, "MOST_WHOLE", 8)
    some, value = left_out.leading(x)
    np.testing.assert_allclose(value, whole[1][::-1][:3])  # falling here
    np.testing.assert_allclose(some @ some.T, whole[0] @ whole[0].T, atol=1e-9)
    monkeypatch.setattr(left_out, "RANK", 2)
    noisy = x + np.random.default_rng(3).normal(size=x.shape)
    draws = [left_out.leading(noisy, **given)[0] for given in ({}, {"seed": 0}, {"seed": 1})]
    np.testing.assert_array_equal(draws[0], draws[1])
    assert (draws[0] != draws[2]).any()


@pytest.mark.parametrize("block", [1, 7, 2**17])
def test_labels_may_be_shares_and_rows_in_blocks(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "_BLOCK", block)
    x, _ = world(n=40)
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    y = np.random.default_rng(0).dirichlet(np.ones(3), 40)
    value, vector = np.linalg.eigh(x.T @ x / 40)
    for decays in ((0.1,), (1e3, 0.3), (0.3, 1e3)):
        slow = twin.scores(x, y, [one * value.mean() * 40 for one in decays])
        np.testing.assert_allclose(left_out.regressed(x @ vector, value, y, decays), slow, atol=1e-5)
    slow = twin.scores(x, y, [one * value.mean() * 40 for one in left_out.DECAYS])
    np.testing.assert_allclose(left_out.regressed(x @ vector, value, y), slow, atol=1e-5)


def test_a_column_without_spread_says_nothing() -> None:
    x, labels = world(n=50)
    same = np.concatenate([x, np.full((50, 1), 3.0)], axis=1)
    for plain, more in zip(left_out.evidence(x, labels, 3), left_out.evidence(same, labels, 3), strict=True):
        np.testing.assert_allclose(more, plain, atol=0.02)  # the mean eigenvalue is another: so are the decays

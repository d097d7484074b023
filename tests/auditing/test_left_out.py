"""What the other examples say of a label: the closed form against refitting, and that its own label has no share."""

from __future__ import annotations

import numpy as np
import pytest
from reference import left_out as twin

from noiseproof.auditing import left_out


def world(n: int = 90, F: int = 6, K: int = 3, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    right = rng.integers(0, K, n)
    return rng.normal(size=(n, F)) @ rng.normal(size=(F, F)) + 3 * np.eye(K, F)[right], right


@pytest.mark.parametrize("seed", [0, 1])
def test_the_regression_equals_its_slow_twin(seed: int) -> None:
    x, labels = world(seed=seed)
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    value, vector = np.linalg.eigh(x.T @ x / len(x))
    ours = left_out.scores(x @ vector, value, labels, 3)
    slow = twin.scores(x, np.eye(3)[labels], [one * value.mean() * len(x) for one in left_out.DECAYS])
    np.testing.assert_allclose(ours, slow, atol=1e-5)


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
    bank = np.unique(some)
    np.testing.assert_array_equal(some, bank[np.argsort(-cosine[:, bank], axis=1)[:, : left_out.NEIGHBOURS]])


def test_columns_that_say_nothing_or_more_columns_than_rows() -> None:
    x, labels = world(n=40)
    wide = np.concatenate([x, np.ones((40, 3)), np.random.default_rng(0).normal(size=(40, 60))], axis=1)
    for said in left_out.evidence(wide, labels, 3):
        assert np.isfinite(said).all()

"""Scores of one kind on the scale of another."""

from __future__ import annotations

import numpy as np
import pytest

from noiseproof.auditing.scales import as_unseen, on_scale_of


def test_the_rth_lowest_lies_at_its_quantile() -> None:
    """Of 4 scores those at (r − ½)/4 of the reference 0, 0.01, …, 1; equal ones at their mean rank."""
    reference = np.linspace(0, 1, 101)[::-1]
    np.testing.assert_allclose(on_scale_of(reference, np.array([7.0, -3.0, 0.5, 100.0])), [0.625, 0.125, 0.375, 0.875])
    np.testing.assert_allclose(on_scale_of(reference, np.array([2.0, 1.0, 2.0])), [2 / 3, 1 / 6, 2 / 3])
    np.testing.assert_allclose(on_scale_of(reference**2, np.array([5.0])), [0.25])


def test_weights_count_as_so_many() -> None:
    reference, scores = np.array([3.0, 1.0, 2.0]), np.linspace(0, 1, 9)
    twice = on_scale_of(np.array([1.0, 2.0, 2.0, 3.0]), scores)
    weighted = on_scale_of(reference, scores, np.array([1.0, 1.0, 2.0]))
    np.testing.assert_allclose(weighted[[0, 4, 8]], twice[[0, 4, 8]], atol=0.06)
    np.testing.assert_allclose(on_scale_of(reference, scores, np.full(3, 7.0)), on_scale_of(reference, scores))


def test_weights_by_hand() -> None:
    """The middles of 1, 1 and 2 examples lie at 0, 2/5 and 1 of the way; 2 scores stand at a quarter and at three."""
    found = on_scale_of(np.array([4.0, 1.0, 2.0]), np.array([8.0, 7.0]), np.array([2.0, 1.0, 1.0]))
    np.testing.assert_allclose(found, [2 + 0.35 / 0.6 * 2, 1 + 0.25 / 0.4])
    np.testing.assert_allclose(on_scale_of(np.array([3.0]), np.array([1.0, 2.0])), [3, 3])  # nothing to compare with


def test_labels_that_were_trained_on_are_as_likely_as_others() -> None:
    """What is said of the label is on the other's quantiles, in its order; the other classes share the rest."""
    rng = np.random.default_rng(0)
    unseen, labels = rng.dirichlet(np.ones(4), 400), rng.integers(0, 4, 400)
    seen = rng.dirichlet(np.ones(4), 300) ** 0.5 + 2 * np.eye(4)[labels[:300]]
    seen /= seen.sum(axis=1, keepdims=True)
    found = as_unseen(seen, labels[:300], unseen, labels, np.ones(400))
    np.testing.assert_allclose(found.sum(axis=1), 1, rtol=1e-6)
    own, reference = found[np.arange(300), labels[:300]], unseen[np.arange(400), labels]
    for share in (0.1, 0.5, 0.9):
        assert np.quantile(own, share) == pytest.approx(np.quantile(reference, share), abs=0.01)
    before = seen[np.arange(300), labels[:300]]
    assert (np.argsort(own, kind="stable") == np.argsort(before, kind="stable")).all()
    others = [np.delete(one[0], labels[0]) for one in (seen, found)]
    np.testing.assert_allclose(others[0] / others[0].sum(), others[1] / others[1].sum(), rtol=1e-5)
    heavy = np.where(reference < 0.2, 9.0, 1.0)  # many wrong labels among those unseen
    assert as_unseen(seen, labels[:300], unseen, labels, heavy)[np.arange(300), labels[:300]].mean() < own.mean()


def test_a_label_known_by_heart_leaves_the_rest_to_all() -> None:
    labels = np.zeros(60, np.int64)
    found = as_unseen(np.eye(3)[labels], labels, np.full((60, 3), 1 / 3), labels, np.ones(60))
    np.testing.assert_allclose(found, 1 / 3, rtol=1e-5)


def test_what_a_network_is_sure_of_stays_a_number() -> None:
    labels = np.array([0, 1, 0, 1])
    seen = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0], [0.4, 0.6]])
    found = as_unseen(seen, labels, seen, labels, np.ones(4))
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found.sum(axis=1), 1, rtol=1e-6)
    assert found[0, 0] > 0.99
    assert found[2, 0] < 0.01
    half = as_unseen(
        np.array([[0.6, 0.4], [0.7, 0.3], [0.8, 0.2]]), labels[[0, 0, 0]], seen[[0, 3]], labels[[0, 0]], np.ones(2)
    )
    assert half[0, 0] < 0.999  # a sixth of the way from 0.4 to as good as 1


def test_nothing_is_surer_than_one_in_ten_millions() -> None:
    sure = np.array([[1.0, 0.0, 0.0]] * 5)
    found = as_unseen(sure, np.zeros(5, int), sure, np.zeros(5, int), np.ones(5))
    np.testing.assert_allclose(found[:, 1:], 5e-8, rtol=1e-6)  # what is left of 1, in equal parts
    found = as_unseen(1 - sure[:, [1, 0, 2]] - sure, np.full(5, 2), sure, np.full(5, 2), np.ones(5))
    np.testing.assert_allclose(found[:, 2], 1e-7, rtol=1e-6)
    seen = np.array([[0.7, 0.3, 0.0]])  # a class that is ruled out has a share, too
    found = as_unseen(seen, np.array([0]), np.array([[0.4, 0.3, 0.3]]), np.array([0]), np.ones(1))
    np.testing.assert_allclose(found, [[0.4, 0.6 * 0.3 / (0.3 + 1e-7), 0.6 * 1e-7 / (0.3 + 1e-7)]], rtol=1e-5)

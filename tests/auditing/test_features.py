"""What is said of labels by features: linear models, trees, neighbours, and what lies too near or too far."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
import sklearn.ensemble
import sklearn.linear_model
from reference import features as twin

from noiseproof.auditing import features as module
from noiseproof.auditing.features import (
    boosted,
    cross_fitted,
    folds,
    linear,
    near_duplicates,
    neighbours_in_table,
    neighbours_of,
    off_topic,
    votes,
)


def test_a_linear_model_centres_what_it_judges_as_what_it_learned_from() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 300)
    features = (4 * np.eye(3)[labels] + rng.normal(size=(300, 3)) + [50, -20, 0]).astype(np.float32)
    rest, part = np.arange(200), np.arange(200, 300)
    classes, probability = linear(features, labels)(rest, part)
    assert classes.tolist() == [0, 1, 2]
    assert (probability.argmax(axis=1) == labels[part]).mean() > 0.9


def blobs(n: int = 90) -> tuple[np.ndarray, np.ndarray]:
    """Three classes that overlap, in columns of unlike spread."""
    rng = np.random.default_rng(2)
    labels = rng.integers(0, 3, n)
    return (1.5 * np.eye(3)[labels] + rng.normal(size=(n, 3))) * [1, 30, 0.2] + [9, 0, -2], labels


@pytest.mark.parametrize("decay", [1e-3, 0.1])
@pytest.mark.parametrize("most", [60, 40])
def test_the_regression_equals_its_slow_twin(decay: float, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """On all of the rest, or on as many at random as there is time for."""
    monkeypatch.setattr(module, "_MOST", most)
    features, labels = blobs()
    rest, part = np.arange(60), np.arange(60, 90)
    used = np.random.default_rng(3).permutation(rest)[:most]
    _, found = module._linear(features, labels, decay, 3, rest, part)
    slow = twin.regression(features[used], labels[used], decay, features[part])
    np.testing.assert_allclose(found, slow, atol=0.01)


def test_the_decay_is_the_best_of_four_on_the_first_fifth() -> None:
    assert module.DECAYS == (1e-4, 1e-3, 1e-2, 1e-1)
    features, labels = blobs()
    chosen = set()
    for own in (labels, np.random.default_rng(0).permutation(labels)):
        for seed in (0, 1):
            rest, part = next(folds(own, seed))
            loss = []
            for decay in module.DECAYS:
                _, p = module._linear(features, own, decay, seed, rest, part)
                loss.append(-np.log(p[np.arange(len(part)), own[part]]).mean())
            found = linear(features, own, seed)
            assert found.args[2:] == (module.DECAYS[int(np.argmin(loss))], seed)  # type: ignore[attr-defined]
            chosen.add(found.args[2])  # type: ignore[attr-defined]
    assert len(chosen) > 1
    assert linear(features, labels).args[3] == 0  # type: ignore[attr-defined]


def test_a_class_that_was_not_learned_has_a_millionth() -> None:
    predicted = np.array([0, 2]), np.array([[0.5, 0.5], [0.25, 0.75]])
    assert module._log_loss(predicted, np.array([0, 1])) == pytest.approx((np.log(2) + np.log(1e6)) / 2)
    assert module._log_loss(predicted, np.array([2, 0])) == pytest.approx(-np.log([0.5, 0.25]).mean())


def test_five_folds_each_with_all_classes_where_that_can_be() -> None:
    labels = np.repeat([0, 2], [5, 30])  # of a class 1 there is none
    for seed in (0, 1):
        parts = []
        for rest, part in folds(labels, seed):
            assert sorted([*rest, *part]) == list(range(35))
            assert (labels[part] == 0).sum() == 1
            parts.append(part)
        assert sorted(np.concatenate(parts)) == list(range(35))
        assert len(parts) == 5
    assert [part.tolist() for _, part in folds(labels)] == [part.tolist() for _, part in folds(labels, 0)]
    assert [part.tolist() for _, part in folds(labels)] != [part.tolist() for part in parts]
    assert [len(part) for _, part in folds(labels[1:])] == [7, 7, 7, 7, 6]  # four of a class: no telling where


def test_each_fifth_is_predicted_by_the_rest() -> None:
    labels, told, done = np.arange(30) % 3, [], []

    def predict(rest: np.ndarray, part: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        told.append(part.tolist())
        return np.array([0, 2]), np.stack([part / 40, 1 - part / 40], axis=1)

    for seed in (0, 4):
        told.clear()
        done.clear()
        found = cross_fitted(predict, labels, 3, seed=seed, progress=lambda *one: done.append(one))
        assert told == [part.tolist() for _, part in folds(labels, seed)]
        assert done == [(1, 5), (2, 5), (3, 5), (4, 5), (5, 5)]
        raw = np.stack([np.arange(30) / 40, np.full(30, 1e-6), 1 - np.arange(30) / 40], axis=1)
        np.testing.assert_allclose(found, raw / (1 + 1e-6), rtol=1e-5)
        assert found.dtype == np.float32
    told.clear()
    cross_fitted(predict, labels, 3)
    assert told == [part.tolist() for _, part in folds(labels, 0)]


def test_trees_are_few_and_small(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[dict[str, Any]] = []

    class Trees:
        classes_ = np.array([0, 1])

        def __init__(self, **options: Any) -> None:
            made.append(options)

        def fit(self, x: np.ndarray, y: np.ndarray) -> Trees:
            self.rows = len(x), y.tolist()
            return self

        def predict_proba(self, x: np.ndarray) -> tuple[Any, int]:
            return self.rows, len(x)

    monkeypatch.setattr(sklearn.ensemble, "HistGradientBoostingClassifier", Trees)
    labels = np.arange(9) % 2
    predict = boosted(np.zeros((9, 2)), labels, seed=5)
    classes, said = predict(np.arange(1, 9), np.arange(1))
    assert classes.tolist() == [0, 1]
    assert said == ((8, labels[1:].tolist()), 1)
    assert made == [{"max_iter": 60, "max_leaf_nodes": 15, "l2_regularization": 1.0, "early_stopping": False,
                     "random_state": 5}]  # fmt: skip
    assert inspect.signature(boosted).parameters["seed"].default == 0


@pytest.mark.parametrize("sign", [1, -1])
def test_neighbours_in_a_table_by_spreads_of_which_three_count(sign: int) -> None:
    rng = np.random.default_rng(1)
    features = rng.normal(size=(60, 3)) * [1, 1000, 1e-6]  # the last of them hardly varies, and counts by half
    features[:3, 0] = np.array([30, 40, 50]) * sign
    z = np.clip((features - features.mean(axis=0)) / (features.std(axis=0) + 1e-6), -3, 3)
    apart = np.linalg.norm(z[:, None] - z, axis=2) + np.diag(np.full(60, np.inf))  # (n, n)
    distance, at = neighbours_in_table(features, k=5)
    np.testing.assert_allclose(distance, np.sort(apart, axis=1)[:, :5], atol=1e-6)
    assert (at[3:] == np.argsort(apart, axis=1)[3:, :5]).mean() > 0.99
    assert np.abs(z[:3, 0]).max() == 3


def test_neighbours_by_cosine_and_no_distance_below_zero() -> None:
    rng = np.random.default_rng(0)
    features = rng.normal(size=(60, 4))
    features[30:] = features[:30] * rng.uniform(0.1, 9, (30, 1))  # the same directions
    distance, at = neighbours_of(features, k=7)
    unit = features / np.linalg.norm(features, axis=1, keepdims=True)
    apart = 1 - unit @ unit.T + np.diag(np.full(60, np.inf))
    np.testing.assert_allclose(distance, np.sort(apart, axis=1)[:, :7], atol=1e-6)
    np.testing.assert_array_equal(at % 30, np.argsort(apart, axis=1)[:, :7] % 30)  # of the same direction any
    assert distance.min() >= 0


@pytest.mark.parametrize("near", [neighbours_in_table, neighbours_of])
def test_twenty_neighbours_or_all_others(near: Any) -> None:
    rng = np.random.default_rng(0)
    assert near(rng.normal(size=(30, 3)))[1].shape == (30, 20)
    assert near(rng.normal(size=(12, 3)))[1].shape == (12, 11)


def test_votes_duplicates_and_strangers_equal_their_slow_twins() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 4, 50)
    points = rng.normal(size=(50, 2))
    points[10:13] = points[:3] + 1e-3  # pairs
    points[13:15] = points[3] + [[1e-3, 0], [2e-3, 0]]  # a group of three
    points[40] = 60.0  # far from all
    labels[[0, 10, 1, 11, 2, 12, 3, 13, 14]] = [0, 1, 2, 2, 3, 1, 0, 0, 3]
    apart = np.linalg.norm(points[:, None] - points, axis=2) + np.diag(np.full(50, np.inf))
    at = np.argsort(apart, axis=1)[:, :6]
    distance = np.take_along_axis(apart, at, axis=1)
    np.testing.assert_allclose(votes(at, labels, 4), twin.votes(at, labels, 4), rtol=1e-6)
    group = near_duplicates(distance, at, labels)
    assert group.dtype == np.int32
    assert group.tolist() == twin.near_duplicates(distance, at, labels)
    assert group[[0, 10, 1, 11, 2, 12, 3, 13, 14]].tolist() == [0, 0, -1, -1, 1, 1, 2, 2, 2]
    assert off_topic(distance).tolist() == twin.off_topic(distance)
    assert off_topic(distance).nonzero()[0].tolist() == [40]


@pytest.mark.parametrize("seed", range(12))
def test_groups_and_strangers_of_random_points_equal_their_slow_twins(seed: int) -> None:
    """On a line, with copies and near copies of some, one of them far out, and few classes or many."""
    rng = np.random.default_rng(seed)
    n, k = int(rng.integers(8, 30)), int(rng.integers(1, 6))
    points = rng.normal(size=n) * 10
    for i in rng.integers(0, n, n // 3):
        points[i] = points[rng.integers(0, n)] + rng.choice([0, 1e-3, 0.1])
    points[rng.integers(0, n)] += rng.choice([0, 1e4])
    labels = rng.integers(0, 2 + seed % 3, n)
    apart = np.abs(points[:, None] - points) + np.diag(np.full(n, np.inf))
    at = np.argsort(apart, axis=1)[:, :k]
    distance = np.take_along_axis(apart, at, axis=1) + 1e-5  # no copies but near ones: the twin takes logarithms
    assert near_duplicates(distance, at, labels).tolist() == twin.near_duplicates(distance, at, labels)
    assert off_topic(distance).tolist() == twin.off_topic(distance)
    np.testing.assert_allclose(votes(at, labels, 5), twin.votes(at, labels, 5), rtol=1e-6)
    assert votes(at, labels, 5).dtype == np.float32


def test_where_too_near_and_too_far_begin() -> None:
    """A tenth of the usual distance itself is near; five deviations themselves are not far."""
    distance = np.array([[1.0], [1.0], [1.0], [1.0], [0.1]])
    at = np.array([[1], [0], [1], [1], [0]])
    assert near_duplicates(distance, at, np.array([0, 0, 0, 0, 1])).tolist() == [0, -1, -1, -1, 0]
    distance[4] = 0.11
    assert (near_duplicates(distance, at, np.array([0, 0, 0, 0, 1])) == -1).all()
    usual = np.exp(np.linspace(-1, 1, 21))  # a median deviation of ½ in logarithms
    deviation = 1.4826 * 0.5
    for beyond, found in ((4.9, False), (5.1, True)):
        far = np.append(usual, np.exp(beyond * deviation))[:, None]
        middle = np.median(np.log(far))
        spread = 1.4826 * np.median(np.abs(np.log(far) - middle))
        far[-1] = np.exp(middle + beyond * spread)
        assert bool(off_topic(far)[-1]) is found
    assert not off_topic(np.ones((9, 2))).any()
    assert not off_topic(np.zeros((9, 2))).any()


@pytest.mark.parametrize("near", [neighbours_in_table, neighbours_of])
def test_where_most_rows_are_copies_the_others_are_no_strangers(near: Any) -> None:
    """Twenty things of which there are thirty each, four hundred others, and one that is far from all of them."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1001, 4)) + 6
    x[:600] = np.repeat(x[:20], 30, axis=0)
    x[1000] = [-90, 90, -90, 90]
    labels = np.zeros(1001, int)
    labels[[5, 605]] = 1  # a copy with another label; one that has none
    distance, at = near(x)
    assert off_topic(distance).nonzero()[0].tolist() == [1000]
    assert near_duplicates(distance, at, labels).tolist() == [0] * 30 + [-1] * 971
    assert not off_topic(distance[:600]).any()


def test_a_regression_of_fifty_thousand_examples_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[dict[str, Any]] = []

    class Model:
        classes_ = np.array([0, 1])

        def __init__(self, **options: Any) -> None:
            made.append(options)

        def fit(self, x: np.ndarray, y: np.ndarray) -> Model:
            made[-1]["n"] = len(x), len(y)
            return self

        def predict_proba(self, x: np.ndarray) -> int:
            return len(x)

    monkeypatch.setattr(sklearn.linear_model, "LogisticRegression", Model)
    labels = np.arange(50_002) % 2
    for rest, n in ((np.arange(50_001), 50_000), (np.arange(49_999), 49_999)):
        assert module._linear(np.ones((50_002, 1)), labels, 0.1, 0, rest, np.arange(3))[1] == 3
        assert made.pop() == {"C": 1 / (0.1 * n), "max_iter": 300, "tol": 1e-3, "n": (n, n)}

"""Labels that are clear without computing: the bound against a slow twin, and that nobody is judged otherwise by it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import posterior as twin

from noiseproof.auditing import decision, judging, posterior


def world(n: int, K: int, seed: int, sharp: float = 8.0) -> tuple[np.ndarray, np.ndarray]:
    """Labels, a fifth of them drawn at random, and predictions that are sure of most classes."""
    rng = np.random.default_rng(seed)
    right = np.arange(n) % K
    labels = np.where(rng.random(n) < 0.2, rng.integers(0, K, n), right)
    logits = rng.normal(size=(n, K)) + sharp * rng.random((n, 1)) * np.eye(K)[right]
    return labels, (np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)).astype(np.float32)


@pytest.mark.parametrize(("K", "a", "b"), [(2, 1.0, 1.0), (3, 0.4, 2.5), (5, 2.0, 0.5), (9, 1.2, 1.5), (4, 8.0, 4.4)])
@pytest.mark.parametrize("kept", [0.9, 0.4])
def test_the_bound_is_never_below_what_it_bounds(K: int, a: float, b: float, kept: float) -> None:
    """In double precision, of T that keeps many labels or few; and it is no bound that always holds."""
    rng = np.random.default_rng(K)
    labels, p = world(300, K, seed=K)
    T = kept * np.eye(K) + (1 - kept) * rng.dirichlet(np.ones(K), K) + 1e-4
    T /= T.sum(axis=1, keepdims=True)
    r = twin.powered(twin.unmixed(twin.given([p.astype(float)], [a]), T), b)
    exact = twin.posterior(r, T, labels)
    t, bound = judging.Bound(T, a, b)(p + np.float64(1e-6), labels)
    np.testing.assert_array_equal(t, p.argmax(axis=1))
    np.put_along_axis(exact, t[:, None], 0, axis=1)
    rest = exact.sum(axis=1)  # not 1 − P(t), whose digits are lost
    assert (rest <= bound * (1 + 1e-9)).all()
    assert ((bound < 0.9) & (t == labels)).any()
    assert (bound == 1).any()


def test_the_bound_by_hand() -> None:
    """Three classes, p = (0.8, 0.15, 0.05), a = b = 1: Eq. (3) with the numbers put in, of each label."""
    T = np.array([[0.8, 0.1, 0.1], [0.2, 0.5, 0.3], [0.1, 0.3, 0.6]])
    M = max(0.8 / 0.8 + 0.1 / 0.5 + 0.1 / 0.6, 0.2 / 0.8 + 0.5 / 0.5 + 0.3 / 0.6, 0.1 / 0.8 + 0.3 / 0.5 + 0.6 / 0.6)
    m = 1 / (1 + 2 * (0.15 / 0.8) * 0.2 / 0.8)
    p = np.array([[0.8, 0.15, 0.05]])
    first = (M / m) ** 2 * 2 * (0.15 / 0.8) * 0.2 / 0.8
    t, found = judging.Bound(T, 1.0, 1.0)(p.copy(), np.array([0]))
    assert t == 0
    np.testing.assert_allclose(found, first)
    sharp = judging.Bound(T, 1.0, 6.0)
    others = [
        (M / m) ** 12 * (2 * (rest / 0.8) ** 6 * c + (own / 0.8) ** 6 * T[y, y]) / T[0, y]
        for y, own, rest, c in ((1, 0.15, 0.05, 0.3), (2, 0.05, 0.15, 0.3))
    ]
    found = np.array([sharp(p.copy(), np.array([y]))[1][0] for y in (1, 2)])
    np.testing.assert_allclose(found, np.minimum(others, 1))
    assert others[1] < 1


@settings(deadline=None, max_examples=60)
@given(st.integers(2, 6), st.integers(0, 40), st.integers(0, 2**32 - 1))
def test_the_bound_equals_its_slow_twin(K: int, n: int, seed: int) -> None:
    """Of rows in fifths, where many are equal; of equal ones the label is the likeliest."""
    rng = np.random.default_rng(seed)
    p, labels = rng.integers(1, 6, (n, K)) / 5.0, rng.integers(0, K, n)
    T, a, b = rng.dirichlet(np.ones(K), K) * 0.5 + 0.5 * np.eye(K), rng.uniform(0.1, 3), rng.uniform(0.1, 3)
    t, bound = judging.Bound(T, a, b)(p.copy(), labels)
    slow = [twin.bound(row, y, T, a, b) for row, y in zip(p, labels, strict=True)]
    np.testing.assert_array_equal(t, [likeliest for likeliest, _ in slow])
    np.testing.assert_allclose(bound, [value for _, value in slow], rtol=1e-9)


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("layout", ["rows", "columns", "every other column", "backwards"])
def test_how_predictions_lie_in_memory_does_not_matter(
    kind: type, layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judging, "MANY", 0)
    labels, p = world(600, 10, seed=1, sharp=14.0)
    plain = p.astype(kind).astype(np.float32)
    model, wide = posterior.fit(labels, [plain]), np.zeros((600, 20), kind)
    wide[:, ::2] = plain
    back = np.ascontiguousarray(plain[::-1, ::-1].astype(kind))[::-1, ::-1]
    laid = {
        "rows": plain.astype(kind), "columns": np.asfortranarray(plain.astype(kind)),
        "every other column": wide[:, ::2], "backwards": back,
    }[layout]  # fmt: skip
    laid.setflags(write=False)  # as of a file mapped for reading
    found, expected = (judging.judge(model, labels, [one]) for one in (laid, plain))
    np.testing.assert_array_equal(laid.astype(np.float32), plain)
    for name in ("wrong", "suggested", "confidence", "joint"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))


@pytest.mark.parametrize(("K", "sharp"), [(10, 14.0), (100, 30.0), (4, 8.0)])
def test_large_sets_are_judged_as_small_ones_are(K: int, sharp: float, monkeypatch: pytest.MonkeyPatch) -> None:
    labels, p = world(4000, K, seed=1, sharp=sharp)
    model = posterior.fit(labels, [p])
    asked: list[int] = []
    joint = posterior.NoiseModel.joint

    def counted(self: posterior.NoiseModel, parts: list[np.ndarray], given: np.ndarray) -> np.ndarray:
        asked.append(len(given))
        return joint(self, parts, given)

    monkeypatch.setattr(posterior.NoiseModel, "joint", counted)
    exact = judging.judge(model, labels, [p])
    assert sum(asked) == 4000  # too few to be large
    asked.clear()
    monkeypatch.setattr(judging, "MANY", 4000 * K)
    found = judging.judge(model, labels, [p])
    assert 0 < sum(asked) < 3600  # some are clear
    for name in ("wrong", "confidence"):
        assert np.abs(getattr(found, name) - getattr(exact, name)).max() < judging.TOLERANCE
    np.testing.assert_array_equal(found.suggested, exact.suggested)
    np.testing.assert_array_equal(decision.decided(found.wrong), decision.decided(exact.wrong))
    np.testing.assert_allclose(found.joint, exact.joint, atol=4000 * judging.TOLERANCE / K)
    np.testing.assert_allclose(found.joint.sum(axis=0), np.bincount(labels, minlength=K), rtol=1e-4)
    asked.clear()
    half = judging.judge(model, labels, [p.astype(np.float16)])
    assert 0 < sum(asked) < 3600
    np.testing.assert_allclose(half.wrong, exact.wrong, atol=0.05)
    asked.clear()
    twice = posterior.fit(labels, [p, p])
    judging.judge(twice, labels, [p, p])  # of several models there is no bound
    assert sum(asked) == 4000


def test_a_set_in_which_all_is_clear(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judging, "MANY", 0)
    labels = np.arange(600) % 3
    p = np.where(np.eye(3)[labels] == 1, 0.9998, 0.0001).astype(np.float32)
    T = (0.9 * np.eye(3) + 0.1 / 3).astype(np.float32)
    found = judging.judge(posterior.NoiseModel(np.ones(1, np.float32), T, 1.0), labels, [p])
    assert (found.wrong < judging.TOLERANCE).all()
    np.testing.assert_array_equal(found.suggested, labels)
    np.testing.assert_array_equal(found.joint, 200 * np.eye(3))


def test_two_classes_of_which_one_is_hardly_ever_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds beyond all numbers are none."""
    monkeypatch.setattr(judging, "MANY", 0)
    T = np.array([[1 - 1e-6, 1e-6], [1 - 1e-6, 1e-6]], np.float32)
    labels, p = np.array([0, 1, 0, 1]), np.array([[1, 0], [1, 0], [0.4, 0.6], [0, 1]], np.float32)
    for b in (0.1, 4.4):
        model = posterior.NoiseModel(np.full(1, 20.0, np.float32), T, b)
        found = judging.judge(model, labels, [p])
        np.testing.assert_allclose(found.wrong, model.wrong([p], labels), atol=judging.TOLERANCE)

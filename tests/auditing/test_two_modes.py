"""The two-mode fit against scikit-learn's, and what it does with values that have no two modes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.mixture import GaussianMixture

from noiseproof.auditing import two_modes as mixture
from noiseproof.auditing.two_modes import best_split, fit_two_modes


def sample(seed: int, n: int = 600) -> np.ndarray:
    rng = np.random.default_rng(seed)
    low = rng.normal(0.3, 0.2, int(n * 0.65))
    return np.concatenate([low, rng.normal(rng.uniform(1.0, 3.0), rng.uniform(0.3, 0.9), n - len(low))])


def test_split_has_the_least_squares_within() -> None:
    x = np.sort(np.random.default_rng(0).exponential(size=40))
    within = [x[:k].var() * k + x[k:].var() * (len(x) - k) for k in range(1, len(x))]
    assert best_split(x) == 1 + int(np.argmin(within))


@pytest.mark.parametrize("seed", range(4))
def test_agrees_with_scikit_learn(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both run on to the end, from the same start."""
    monkeypatch.setattr(mixture, "_TOLERANCE", 1e-12)
    monkeypatch.setattr(mixture, "_STEPS", 5000)
    x = np.sort(sample(seed))
    k = best_split(x)
    parts = [x[:k], x[k:]]
    theirs = GaussianMixture(
        2,
        covariance_type="diag",
        tol=mixture._TOLERANCE,
        max_iter=mixture._STEPS,
        reg_covar=0,
        weights_init=[len(part) / len(x) for part in parts],
        means_init=[[part.mean()] for part in parts],
        precisions_init=[[1 / part.var()] for part in parts],
    ).fit(x[:, None])
    ours = fit_two_modes(x)
    assert ours is not None
    np.testing.assert_allclose(ours.weight, theirs.weights_, atol=1e-5)
    np.testing.assert_allclose(ours.mean, theirs.means_[:, 0], atol=1e-5)
    np.testing.assert_allclose(ours.std, theirs.covariances_[:, 0] ** 0.5, atol=1e-5)
    np.testing.assert_allclose(ours.log_likelihood, theirs.score(x[:, None]), atol=1e-5)
    np.testing.assert_allclose(ours.upper(x), theirs.predict_proba(x[:, None])[:, 1], atol=1e-5)
    np.testing.assert_allclose(np.log(ours.density(x).sum(0)), theirs.score_samples(x[:, None]), atol=1e-5)


def test_no_two_modes() -> None:
    for values in ([], [1.0], [2.0] * 9, [1.0, np.nan], [np.nan] * 2, [1.0, np.inf], [-np.inf, 1.0]):
        assert fit_two_modes(np.array(values)) is None


def test_values_whose_squares_are_no_numbers() -> None:
    for values in ([0.0, 1e200], [-1e308, 1e308], [1e308] * 3 + [1e307], [0.0, 1e-160], [0.0, 1e-300]):
        assert fit_two_modes(np.array(values)) is None
    for size in (1e-100, 1e140):
        modes = fit_two_modes(np.array([0.0, 0.1, 0.9, 1.0]) * size)
        assert modes is not None
        assert modes.mean == pytest.approx((0.05 * size, 0.95 * size), rel=1e-9, abs=0)


def test_values_that_repeat_do_not_break_it() -> None:
    """Memorised examples have a loss of 0 exactly, all of them."""
    modes = fit_two_modes(np.concatenate([np.zeros(500), sample(0, 100) + 1]))
    assert modes is not None
    assert modes.mean[0] == pytest.approx(0, abs=0.01)
    assert modes.weight[0] == pytest.approx(5 / 6, abs=0.02)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(0, 28, width=32), min_size=2, max_size=60))
def test_any_losses_give_finite_modes_in_order(values: list[float]) -> None:
    modes = fit_two_modes(np.array(values))
    if modes is None:
        assert len(set(values)) == 1
        return
    assert np.isfinite([*modes.weight, *modes.mean, *modes.std, modes.log_likelihood]).all()
    assert modes.mean[0] <= modes.mean[1]
    assert min(modes.std) > 0
    assert sum(modes.weight) == pytest.approx(1)
    assert ((modes.upper(np.array(values)) >= 0) & (modes.upper(np.array(values)) <= 1)).all()


def test_many_values_are_represented_by_their_quantiles() -> None:
    values = sample(1, 90_000)
    few, many = fit_two_modes(values[::10]), fit_two_modes(values)
    assert few is not None
    assert many is not None
    np.testing.assert_allclose(many.mean, few.mean, atol=0.05)
    np.testing.assert_allclose(many.weight, few.weight, atol=0.02)

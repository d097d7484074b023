"""The two-mode fit against a step written out, and what it does with values that have no two modes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noiseproof.auditing import two_modes as mixture
from noiseproof.auditing.two_modes import TwoModes, best_split, fit_two_modes, separation


def sample(seed: int, n: int = 600) -> np.ndarray:
    rng = np.random.default_rng(seed)
    low = rng.normal(0.3, 0.2, int(n * 0.65))
    return np.concatenate([low, rng.normal(rng.uniform(1.0, 3.0), rng.uniform(0.3, 0.9), n - len(low))])


def test_split_has_the_least_squares_within() -> None:
    x = np.sort(np.random.default_rng(0).exponential(size=40))
    within = [x[:k].var() * k + x[k:].var() * (len(x) - k) for k in range(1, len(x))]
    assert best_split(x) == 1 + int(np.argmin(within))


def em_step(x: np.ndarray, modes: TwoModes) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """One step of expectation-maximisation, written out."""
    upper = modes.upper(x)
    r = np.stack([1 - upper, upper])  # (2, n)
    weight = r.mean(axis=1)
    mean = (r @ x) / r.sum(axis=1)
    variance = (r * (x - mean[:, None]) ** 2).sum(axis=1) / r.sum(axis=1)
    return weight, mean, np.sqrt(variance + (mixture.FLOOR * x.std()) ** 2)


@pytest.mark.parametrize("seed", range(4))
def test_another_step_would_change_nothing(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mixture, "_TOLERANCE", 1e-12)
    monkeypatch.setattr(mixture, "_STEPS", 5000)
    x = sample(seed)
    modes = fit_two_modes(x)
    assert modes is not None
    for found, again in zip((modes.weight, modes.mean, modes.std), em_step(x, modes), strict=True):
        np.testing.assert_allclose(found, again, atol=1e-5)
    assert modes.mean[0] == pytest.approx(0.3, abs=0.05)
    assert modes.weight[0] == pytest.approx(0.65, abs=0.1)
    low, high = modes.density(x)
    np.testing.assert_allclose(modes.upper(x), high / (low + high), atol=1e-12)
    grid = np.linspace(-5, 10, 20_000)
    assert modes.density(grid).sum() * (grid[1] - grid[0]) == pytest.approx(1, abs=1e-6)


def test_separation_is_the_doubt_over_the_smaller_mode() -> None:
    x = sample(2)
    modes = fit_two_modes(x)
    assert modes is not None
    doubt = [min(float(u), 1 - float(u)) for u in modes.upper(x)]
    assert separation(x) == pytest.approx(-sum(doubt) / len(x) / min(modes.weight))
    apart = np.concatenate([np.linspace(0, 1, 50), np.linspace(100, 101, 30)])
    assert separation(apart) == pytest.approx(0, abs=1e-12)
    assert separation(x) < separation(apart)
    assert np.isnan(separation(np.ones(9)))


def test_no_two_modes() -> None:
    for values in ([], [1.0], [2.0] * 9, [1.0, np.nan], [np.nan] * 2, [1.0, np.inf], [-np.inf, 1.0]):
        assert fit_two_modes(np.array(values)) is None


def test_values_whose_squares_are_no_numbers() -> None:
    for values in ([0.0, 1e200], [-1e308, 1e308], [1e308] * 3 + [1e307], [0.0, 1e-160], [0.0, 1e-300]):
        assert fit_two_modes(np.array(values)) is None
    assert fit_two_modes(np.array([-1e150, 0.0])) is fit_two_modes(np.array([0.0, 1e150])) is None
    for size in (1e-100, 1e140, 0.99e150):
        modes = fit_two_modes(np.array([0.0, 0.1, 0.9, 1.0]) * size)
        assert modes is not None
        assert modes.mean == pytest.approx((0.05 * size, 0.95 * size), rel=1e-9, abs=0)


def test_values_that_repeat_do_not_break_it() -> None:
    """Memorised examples have a loss of 0 exactly, all of them."""
    modes = fit_two_modes(np.concatenate([np.zeros(500), sample(0, 100) + 1]))
    assert modes is not None
    assert modes.mean[0] == pytest.approx(0, abs=0.01)
    assert modes.weight[0] == pytest.approx(5 / 6, abs=0.02)


def test_a_mode_of_equal_values_has_a_thousandth_of_the_spread() -> None:
    modes = fit_two_modes(np.repeat([2.0, 6.0], 50))
    assert modes is not None
    assert modes.mean == pytest.approx((2, 6))
    assert modes.std == pytest.approx((2e-3, 2e-3), rel=1e-2)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(0, 28, width=32), min_size=2, max_size=60))
def test_any_losses_give_finite_modes_in_order(values: list[float]) -> None:
    modes = fit_two_modes(np.array(values))
    if modes is None:
        assert len(set(values)) == 1
        return
    assert np.isfinite([*modes.weight, *modes.mean, *modes.std]).all()
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


def test_of_more_than_two_thousand_values_the_middles_of_equal_parts_are_taken() -> None:
    values = sample(3, 4000)
    assert fit_two_modes(values) == fit_two_modes(np.sort(values)[1::2])
    assert fit_two_modes(values[:2000]) != fit_two_modes(np.sort(values[:2000])[1::2])


def test_the_densities_are_normal() -> None:
    x, modes = np.array([0.5, 3.0]), TwoModes((0.25, 0.75), (0.0, 2.0), (1.0, 0.5))
    normal = lambda x, mean, std: np.exp(-((x - mean) ** 2) / (2 * std**2)) / np.sqrt(2 * np.pi * std**2)  # noqa: E731
    both = np.stack([0.25 * normal(x, 0.0, 1.0), 0.75 * normal(x, 2.0, 0.5)])
    np.testing.assert_allclose(modes.density(x), both, rtol=1e-12)
    np.testing.assert_allclose(modes.upper(x), both[1] / both.sum(axis=0), rtol=1e-12)

"""What decisions say of labels nobody has looked at: intervals that hold, whatever the probabilities are off by."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit, logit

from noiseproof.reviewing.progress import RATE, fit, progress, wilson


def simulated(seed: int, *, shift: float = 0.0, slope: float = 1.0, n: int = 4000, looked: int = 300):
    """Labels whose probabilities are off, of which the likeliest wrong were looked at."""
    rng = np.random.default_rng(seed)
    p = np.sort(rng.beta(0.4, 2.0, n))[::-1]
    wrong = rng.random(n) < expit(shift + slope * logit(np.clip(p, 1e-6, 1 - 1e-6)))
    decided = np.arange(n) < looked
    return p, p >= 0.5, decided, decided.copy(), wrong, np.where(decided, np.arange(n) + 1, 0)


def test_before_any_decision_the_probabilities_are_taken_at_their_word() -> None:
    p, issue, *_, version = simulated(0)
    none = np.zeros(len(p), dtype=bool)
    found = progress(p, issue, none, none, none, version)
    assert found.remaining == pytest.approx(np.clip(p, 1e-4, 1 - 1e-4).sum())
    assert found.remaining_low < p.sum() < found.remaining_high
    assert (found.decided, found.left) == (0, issue.sum())
    assert found.stop_at == pytest.approx(RATE)


@pytest.mark.slow
@pytest.mark.parametrize(("shift", "slope"), [(0.0, 1.0), (1.0, 1.0), (-1.0, 0.8), (0.5, 1.4)])
def test_the_interval_of_what_remains_holds(shift: float, slope: float) -> None:
    inside = 0
    for seed in range(100):
        sample = simulated(seed, shift=shift, slope=slope)
        found = progress(*sample)
        inside += found.remaining_low <= sample[4][~sample[2]].sum() <= found.remaining_high
    assert inside >= 80  # of 100; 90 are due, and the spread of that count is 3


def test_decisions_mend_probabilities_that_are_too_low() -> None:
    sample = simulated(3, shift=1.5)
    truth = sample[4][~sample[2]].sum()
    none = np.zeros_like(sample[2])
    blind = (*sample[:2], none, none, none, sample[5])
    assert abs(progress(*sample).remaining - truth) < abs(progress(*blind).remaining - sample[4].sum())


def test_whole_groups_say_nothing_of_what_nobody_looked_at() -> None:
    p, issue, decided, looked, wrong, version = simulated(1)
    unseen = progress(p, issue, decided, np.zeros_like(looked), np.ones_like(wrong), version)
    seen = progress(p, issue, decided, looked, np.ones_like(wrong), version)
    assert (unseen.looked, unseen.window, unseen.decided) == (0, 0, 300)
    assert seen.remaining > 2 * unseen.remaining  # had they all been looked at and wrong, many more would be


def test_the_fit_is_the_mode_of_the_posterior() -> None:
    p, _, decided, _, wrong, _ = simulated(2)
    x, y = logit(np.clip(p[decided], 1e-4, 1 - 1e-4)), wrong[decided]

    def energy(theta: np.ndarray) -> float:
        score = theta[0] + theta[1] * x
        return float(np.logaddexp(0, score).sum() - score[y].sum() + theta[0] ** 2 / 2 + 2 * (theta[1] - 1) ** 2)

    mean, covariance = fit(x, y)
    assert mean == pytest.approx(minimize(energy, [0.0, 1.0]).x, abs=1e-4)
    step = 1e-4
    corners = [[energy(mean + step * (np.eye(2)[i] * a + np.eye(2)[j] * b)) for a in (1, -1) for b in (1, -1)]
               for i in range(2) for j in range(2)]  # fmt: skip
    hessian = np.array([(c[0] - c[1] - c[2] + c[3]) / (4 * step**2) for c in corners]).reshape(2, 2)
    assert np.linalg.inv(covariance) == pytest.approx(hessian, rel=1e-2)


def test_where_to_stop() -> None:
    sample = simulated(4, looked=2500)
    found = progress(*sample)
    assert found.stop_at is not None
    below = sample[0] < found.stop_at
    assert found.to_stop == (~sample[2] & ~below).sum()
    near = np.flatnonzero(below)[:400]
    assert sample[4][near].mean() < 1.7 * RATE


@pytest.mark.parametrize(("hits", "n", "interval"), [(0, 0, (0, 1)), (5, 10, (0.269, 0.731)), (0, 50, (0, 0.051))])
def test_wilsons_interval(hits: int, n: int, interval: tuple[float, float]) -> None:
    assert wilson(hits, n) == pytest.approx(interval, abs=0.001)


def test_all_is_decided() -> None:
    p, issue, _, _, wrong, version = simulated(5, n=200)
    all_of_them = np.ones(200, dtype=bool)
    found = progress(p, issue, all_of_them, all_of_them, wrong, version)
    assert (found.remaining, found.remaining_high, found.left, found.to_stop) == (0, 0, 0, 0)

"""Two modes in one dimension: the losses of examples whose labels are right, and of those whose labels are wrong.

The density is w N(μ₀, σ₀²) + (1 − w) N(μ₁, σ₁²) with μ₀ ≤ μ₁. It is fitted by expectation-maximisation

    r_i = P(upper | x_i),   w = 1 − mean(r),   μ_k, σ_k² = weighted mean and variance of x

from the split of the sorted values into two that leaves the least squares within (which in one dimension is found
exactly), so that there is nothing random in it. Variances stay above `FLOOR`² of the spread of all values: a mode must
not shrink onto values that repeat.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

FLOOR = 1e-3  # the least standard deviation of a mode, relative to that of all values
LIMIT = 10_000  # more values than this are represented by as many of their quantiles
_LARGEST = 1e150  # of the values: their squares must be numbers too
_STEPS, _TOLERANCE = 200, 1e-6  # at most; the least gain in mean log-likelihood

Pair = tuple[float, float]  # of the lower and the upper mode


@dataclass(frozen=True, slots=True)
class TwoModes:
    """Two normal distributions, the lower mean first."""

    weight: Pair  # sums to 1
    mean: Pair
    std: Pair
    log_likelihood: float  # mean over the values

    def density(self, x: np.ndarray) -> np.ndarray:
        """The weighted density of each mode (2, n)."""
        return np.exp(_log_joint(np.asarray(x, dtype=np.float64), self.weight, self.mean, self.std))

    def upper(self, x: np.ndarray) -> np.ndarray:
        """The probability (n,) that a value belongs to the upper mode."""
        low, high = _log_joint(np.asarray(x, dtype=np.float64), self.weight, self.mean, self.std)
        return _sigmoid(high - low)


def fit_two_modes(values: np.ndarray) -> TwoModes | None:
    """The fit to values (n,), or None where they are fewer than two, not all below 1e150 in size, or all alike."""
    x = np.sort(np.asarray(values, dtype=np.float64).ravel())
    if len(x) < 2 or not -_LARGEST < x[0] < x[-1] < _LARGEST:  # NaN, sorted last, is neither
        return None
    if len(x) > LIMIT:
        x = x[((np.arange(LIMIT) + 0.5) * len(x) / LIMIT).astype(np.int64)]
    floor = (FLOOR * x.std()) ** 2
    if not floor > 0:  # those that differ were left out, or differ by next to nothing
        return None
    shift = x.mean()
    x = x - shift
    upper = (np.arange(len(x)) >= best_split(x)).astype(np.float64)
    previous = -np.inf
    for _ in range(_STEPS):
        weight, mean, std = _maximise(x, upper, floor)
        low, high = _log_joint(x, weight, mean, std)
        upper = _sigmoid(high - low)
        likelihood = float(np.logaddexp(low, high).mean())
        if likelihood - previous < _TOLERANCE:
            break
        previous = likelihood
    a, b = (0, 1) if mean[0] <= mean[1] else (1, 0)
    return TwoModes((weight[a], weight[b]), (mean[a] + shift, mean[b] + shift), (std[a], std[b]), likelihood)


def best_split(x: np.ndarray) -> int:
    """How many of the sorted values x (n,) form the lower of the two groups with the least squares within."""
    n = np.arange(1, len(x))  # sizes of the lower group
    low = np.cumsum(x)[:-1] / n
    high = (x.sum() - np.cumsum(x)[:-1]) / (len(x) - n)
    return 1 + int(np.argmax(n * (len(x) - n) * (high - low) ** 2))


def _maximise(x: np.ndarray, upper: np.ndarray, floor: float) -> tuple[Pair, Pair, Pair]:
    """Weights, means and standard deviations from the memberships."""
    found = []
    for r in (1 - upper, upper):
        total = max(float(r.sum()), 1e-12)
        mean = float(r @ x) / total
        found.append((total / len(x), mean, max(float(r @ (x - mean) ** 2) / total, floor) ** 0.5))
    (w0, m0, s0), (w1, m1, s1) = found
    return (w0, w1), (m0, m1), (s0, s1)


def _log_joint(x: np.ndarray, weight: Pair, mean: Pair, std: Pair) -> np.ndarray:
    """log of weight times density of each mode (2, n)."""
    rows = [
        np.log(w) - np.log(s) - 0.5 * np.log(2 * np.pi) - 0.5 * ((x - m) / s) ** 2
        for w, m, s in zip(weight, mean, std, strict=True)
    ]
    return np.stack(rows)


def _sigmoid(z: np.ndarray) -> np.ndarray:
    return 0.5 * (1 + np.tanh(0.5 * z))

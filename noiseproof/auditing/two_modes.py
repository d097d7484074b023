"""Two modes in one dimension: the losses of examples whose labels are right, and of those whose labels are wrong.

The density is w N(μ₀, σ₀²) + (1 − w) N(μ₁, σ₁²) with μ₀ ≤ μ₁. scikit-learn fits it by expectation-maximisation from the
split of the sorted values into two that leaves the least squares within (which in one dimension is found exactly), so
that there is nothing random in it. Variances stay above `FLOOR`² of that of all values: a mode must not shrink onto
values that repeat.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass

import numpy as np

FLOOR = 1e-3  # the least standard deviation of a mode, relative to that of all values
LIMIT = 2_000  # more values than this are represented by as many of their quantiles: it is fitted after every epoch
_LARGEST = 1e150  # of the values: their squares must be numbers too
_STEPS, _TOLERANCE = 200, 1e-6  # at most; the least gain in mean log-likelihood

Pair = tuple[float, float]  # of the lower and the upper mode


@dataclass(frozen=True, slots=True)
class TwoModes:
    """Two normal distributions, the lower mean first."""

    weight: Pair  # sums to 1
    mean: Pair
    std: Pair

    def density(self, x: np.ndarray) -> np.ndarray:
        """The weighted density of each mode (2, n)."""
        return np.exp(self._log_density(x))

    def upper(self, x: np.ndarray) -> np.ndarray:
        """The probability (n,) that a value belongs to the upper mode."""
        low, high = self._log_density(x)
        return 0.5 * (1 + np.tanh(0.5 * (high - low)))

    def _log_density(self, x: np.ndarray) -> np.ndarray:
        weight, mean, std = (np.array(pair)[:, None] for pair in (self.weight, self.mean, self.std))
        return np.log(weight / std) - 0.5 * np.log(2 * np.pi) - 0.5 * ((np.float64(x) - mean) / std) ** 2


def fit_two_modes(values: np.ndarray) -> TwoModes | None:
    """The fit to values (n,), or None where they are fewer than two, not all below 1e150 in size, or all alike."""
    x = np.sort(np.asarray(values, dtype=np.float64).ravel())
    if len(x) < 2 or not -_LARGEST < x[0] < x[-1] < _LARGEST:  # NaN, sorted last, is neither
        return None
    if len(x) > LIMIT:
        x = x[((np.arange(LIMIT) + 0.5) * len(x) / LIMIT).astype(np.int64)]
    shift, scale = x.mean(), x.std()
    if not (FLOOR * scale) ** 2 > 0:  # those that differ were left out, or differ by next to nothing
        return None
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.mixture import GaussianMixture

    x = (x - shift) / scale
    split = best_split(x)
    parts = x[:split], x[split:]
    mixture = GaussianMixture(
        2, covariance_type="spherical", tol=_TOLERANCE, max_iter=_STEPS, reg_covar=FLOOR**2,
        weights_init=[len(part) / len(x) for part in parts],
        means_init=[[part.mean()] for part in parts],
        precisions_init=[1 / (part.var() + FLOOR**2) for part in parts],
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # modes that merge need many steps, and mean little
        mixture.fit(x[:, None])
    mean, std = shift + scale * mixture.means_[:, 0], scale * mixture.covariances_**0.5
    order = np.argsort(mean, kind="stable")
    weight, mean, std = (found[order].tolist() for found in (mixture.weights_, mean, std))
    return TwoModes(tuple(weight), tuple(mean), tuple(std))


def separation(values: np.ndarray) -> float:
    """How clearly values fall into two modes: minus the share taken for the wrong one, over the smaller mode's weight.

    0 is perfect; NaN where there are no two modes to fit.
    """
    modes = fit_two_modes(values)
    if modes is None:
        return math.nan
    upper = modes.upper(values)
    return -float(np.minimum(upper, 1 - upper).mean()) / max(min(modes.weight), 1e-12)


def best_split(x: np.ndarray) -> int:
    """How many of the sorted values x (n,) form the lower of the two groups with the least squares within."""
    n = np.arange(1, len(x))  # sizes of the lower group
    low = np.cumsum(x)[:-1] / n
    high = (x.sum() - np.cumsum(x)[:-1]) / (len(x) - n)
    return 1 + int(np.argmax(n * (len(x) - n) * (high - low) ** 2))

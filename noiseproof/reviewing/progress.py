"""How far a review has come: what decisions say of the labels nobody has looked at yet, and where to stop.

Each label that was looked at is a clean one. Of the calibrated probability p of being wrong they say how far it is off:

    P(wrong) = σ(a + b · logit p),     a ~ N(0, 1),  b ~ N(1, ½²),

fitted to the labels looked at, with the normal approximation of the posterior at its mode. It holds whichever labels
were looked at first, as long as they were chosen by p: the regression is conditional on it. Decisions over whole groups
that nobody looked at one by one say nothing here.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy.special import expit, logit
from scipy.stats import binomtest

RATE = 1 / 20  # where to stop: from there on no more than so many are wrong
WINDOW = 50  # labels looked at last
_PRIOR_MEAN, _PRIOR_PRECISION = np.array([0.0, 1.0]), np.diag([1.0, 4.0])
_DRAWS, _BINS = 1000, 400


@dataclass(frozen=True)
class Progress:
    """Figures of a review."""

    decided: int
    looked: int  # of these, looked at one by one
    wrong: int  # labels found wrong so far: corrected or dropped
    left: int  # suspected labels that are not decided
    window: int  # the last labels looked at,
    window_wrong: int  # how many of these were wrong,
    window_low: float  # and the 90 % interval of that share
    window_high: float
    remaining: float  # wrong labels among those not decided, expected
    remaining_low: float
    remaining_high: float
    to_stop: int  # labels not decided that are likelier wrong than RATE
    stop_at: float | None  # the probability at which that is so; None: nowhere

    def json(self) -> dict[str, Any]:
        return asdict(self) | {"rate": RATE}


def progress(p: np.ndarray, issue: np.ndarray, decided: np.ndarray, looked: np.ndarray, wrong: np.ndarray,
             version: np.ndarray) -> Progress:  # fmt: skip
    """The figures, of (n,) each: probabilities, suspected, decided, looked at, found wrong, and when it was decided."""
    seen = decided & looked
    x = _logit(p)
    judged = seen & (p > 0) & (p < 1)  # 0 and 1 are of labels that were known when they were judged
    mean, covariance = fit(x[judged], wrong[judged])
    last = np.flatnonzero(seen)[np.argsort(version[seen])[-WINDOW:]]
    hits = int(wrong[last].sum())
    low, high = wilson(hits, len(last))
    expected, fewest, most = remaining(x[~decided], mean, covariance)
    stop = float(expit((_logit(RATE) - mean[0]) / mean[1])) if mean[1] > 0 else None
    left = ~decided & (expit(mean[0] + mean[1] * x) >= RATE)
    return Progress(
        int(decided.sum()), int(seen.sum()), int((decided & wrong).sum()), int((issue & ~decided).sum()), len(last),
        hits, low, high, expected, fewest, most, int(left.sum()), stop,
    )  # fmt: skip


def fit(x: np.ndarray, wrong: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of (a, b), by Newton's steps from the prior mean; x (m,) logits, wrong (m,) bool."""
    design = np.column_stack([np.ones_like(x), x])  # (m, 2)
    theta = _PRIOR_MEAN.copy()
    for _ in range(50):
        rate = expit(design @ theta)
        gradient = design.T @ (wrong - rate) - _PRIOR_PRECISION @ (theta - _PRIOR_MEAN)
        hessian = (design * (rate * (1 - rate))[:, None]).T @ design + _PRIOR_PRECISION
        step = np.linalg.solve(hessian, gradient)
        step *= min(1.0, 2.0 / max(np.abs(step).max(), 1e-12))  # no leap beyond where the quadratic holds
        theta += step
        if np.abs(step).max() < 1e-8:
            break
    return theta, np.linalg.inv(hessian)


def remaining(x: np.ndarray, mean: np.ndarray, covariance: np.ndarray) -> tuple[float, float, float]:
    """How many labels are wrong among those with logits x (m,), at the mean of (a, b), and the 90 % interval."""
    if len(x) == 0:
        return 0.0, 0.0, 0.0
    count, edges = np.histogram(x, bins=_BINS)
    centre = (edges[1:] + edges[:-1]) / 2
    draws = np.random.default_rng(0).multivariate_normal(mean, covariance, size=_DRAWS)  # (D, 2)
    rate = expit(draws[:, :1] + draws[:, 1:] * centre)  # (D, bins)
    total, spread = rate @ count, np.sqrt((rate * (1 - rate)) @ count)
    totals = np.clip(total + spread * np.random.default_rng(1).standard_normal(_DRAWS), 0, len(x))
    low, high = np.quantile(totals, [0.05, 0.95])
    return float(expit(mean[0] + mean[1] * x).sum()), float(low), float(high)


def wilson(hits: int, n: int) -> tuple[float, float]:
    """Wilson's interval of a share, 90 %; (0, 1) of nothing."""
    if n == 0:
        return 0.0, 1.0
    found = binomtest(hits, n).proportion_ci(0.9, method="wilson")
    return float(found.low), float(found.high)


def _logit(p: np.ndarray | float) -> np.ndarray:
    return logit(np.clip(p, 1e-4, 1 - 1e-4))

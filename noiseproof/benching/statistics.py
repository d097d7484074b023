"""Numbers over runs: spreads, paired differences, ranks and what difference of ranks is more than chance.

Janez Demšar, "Statistical Comparisons of Classifiers over Multiple Data Sets", JMLR 7, 2006. With k methods in N
settings and R_j the mean rank of method j:

    CD = q_α √(k (k + 1) / (6 N))                                                              (Sec. 3.2.2)

two methods differ (Nemenyi's test) if their mean ranks do by CD or more; q_α is the studentized range over √2.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

import numpy as np
from scipy import stats


def spread(values: Sequence[float | None], *, percent: bool = True) -> str:
    """Mean ± standard deviation, in %, or with three digits, and of how many where some are missing; – for none."""
    numbers = [value * (100 if percent else 1) for value in values if value is not None and math.isfinite(value)]
    if not numbers:
        return "–"
    digits = 1 if percent else 3
    text = f"{statistics.mean(numbers):.{digits}f}"
    text += f" ± {statistics.stdev(numbers):.{digits}f}" if len(numbers) > 1 else ""
    return text if len(numbers) == len(values) else f"{text} ({len(numbers)} of {len(values)})"


def difference(values: Sequence[float], base: Sequence[float]) -> tuple[float, float]:
    """The mean of paired differences, and half of its 95 % interval (Student's t); NaN of a single pair."""
    gaps = np.subtract(values, base).astype(float)
    if len(gaps) < 2:
        return float(gaps.mean()), math.nan
    error = float(gaps.std(ddof=1)) / math.sqrt(len(gaps))
    return float(gaps.mean()), float(stats.t.ppf(0.975, len(gaps) - 1)) * error


def mean_ranks(scores: np.ndarray) -> np.ndarray:
    """The mean rank (k,) of k methods by scores (N, k) in N settings: 1 is best, equals share their ranks."""
    return stats.rankdata(-scores, axis=1).mean(axis=0)


def critical_difference(methods: int, settings: int, alpha: float = 0.05) -> float:
    """How far mean ranks must lie apart to differ by more than chance; Demšar 2006, Sec. 3.2.2."""
    q = float(stats.studentized_range.ppf(1 - alpha, methods, np.inf)) / math.sqrt(2)
    return q * math.sqrt(methods * (methods + 1) / (6 * settings))


def rank_correlation(one: Sequence[float], other: Sequence[float]) -> float | None:
    """Spearman's, of two orders of the same things; None where one of them has no order."""
    if len(one) < 3 or np.ptp(one) == 0 or np.ptp(other) == 0:
        return None
    return float(stats.spearmanr(one, other).statistic)

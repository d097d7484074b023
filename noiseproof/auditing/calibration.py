"""Whether probabilities mean what they say: of labels with p = 0.8, are 80 % wrong?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

BINS = 15


@dataclass(frozen=True)
class Reliability:
    """Of each bin that has any: the mean probability, the share that is so, and the number."""

    said: np.ndarray  # (b,)
    found: np.ndarray  # (b,)
    count: np.ndarray  # (b,)

    @property
    def error(self) -> float:
        """The expected calibration error: Σ count |said − found| / Σ count."""
        return float((self.count * np.abs(self.said - self.found)).sum() / self.count.sum())


def reliability(p: np.ndarray, outcome: np.ndarray, bins: int = BINS) -> Reliability:
    """Compare probabilities (n,) with what was so (n,), in bins of equal width."""
    place = np.minimum((p * bins).astype(np.int64), bins - 1)
    count = np.bincount(place, minlength=bins)
    some = count > 0
    sums = [np.bincount(place, weights=values, minlength=bins)[some] for values in (p, outcome)]
    return Reliability(sums[0] / count[some], sums[1] / count[some], count[some])

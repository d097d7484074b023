"""Features as the loops take them: columns in float32, scaled so that distances are integers below 2³⁰."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, Any]

_BITS = 29


class Points(NamedTuple):
    """The points of one problem."""

    x: Array  # (d, n) float32
    unit: float  # what a distance of 1 between columns of x is between the features: a power of two
    d0: float  # no two features are farther apart

    @property
    def cap(self) -> int:
        """d0 in units of x, and so much more that no distance reaches it by rounding."""
        return math.ceil(self.d0 / self.unit * (1 + 2.0**-16)) + 1


def scaled(features: Array) -> Points:
    """Rows (n, d), minus the first one and over a power of two, as columns.

    Both keep exact ties between distances, as of points on a grid. By the triangle inequality no distance exceeds twice
    the largest one from the mean, nor twice the largest one from the first point.
    """
    y = features.astype(np.float64) - features[:1]
    from_mean, from_first = (2 * math.sqrt(float(np.square(y - c).sum(axis=1).max())) for c in (y.mean(axis=0), 0.0))
    d0 = min(from_mean, from_first)
    exponent = math.frexp(d0)[1] - _BITS if d0 > 0 else 0
    return Points(np.ascontiguousarray((y * 2.0**-exponent).T, dtype=np.float32), 2.0**exponent, d0)

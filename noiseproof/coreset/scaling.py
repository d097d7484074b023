"""Features as the loops take them: columns in float32, scaled so that distances are integers below 2³⁰."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, Any]

_BITS = 29
_SAMPLE = 1024  # rows, at most, to find the middle by


class Points(NamedTuple):
    """The points of one problem."""

    x: Array  # (d, n) float32; zeros are added to an odd number of coordinates
    unit: float  # what a distance of 1 between columns of x is between the features: a power of two
    d0: float  # no two features are farther apart

    @property
    def cap(self) -> int:
        """d0 in units of x, and so much more that no distance reaches it by rounding."""
        return math.ceil(self.d0 / self.unit * (1 + 2.0**-16)) + 1


def scaled(features: Array) -> Points:
    """Rows (n, d), minus one in their middle and over a power of two, as columns.

    Both keep exact ties between distances, as of points on a grid. The row is one nearest to the coordinates' medians,
    among some rows: what is stored is fine where most are, also beside a few that lie far out. By the triangle
    inequality no distance exceeds twice the largest one from the mean, nor twice the largest one from that row.
    """
    y, shift = unit_scale(features)
    some = y[:: -(-len(y) // _SAMPLE)]
    y = y - some[np.square(some - np.median(some, axis=0)).sum(axis=1).argmin()]
    from_mean, from_row = (2 * math.sqrt(float(np.square(y - c).sum(axis=1).max())) for c in (y.mean(axis=0), 0.0))
    d0 = min(from_mean, from_row)
    exponent = math.frexp(d0)[1] - _BITS if d0 > 0 else 0
    x = np.zeros((y.shape[1] + y.shape[1] % 2, len(y)), np.float32)
    x[: y.shape[1]] = np.ldexp(y, -exponent).T
    return Points(x, math.ldexp(1.0, exponent + shift), math.ldexp(d0, shift))


def unit_scale(rows: Array) -> tuple[Array, int]:
    """Rows in float64 over 2^e, so that the largest lies in [1/2, 1) and squares are numbers too; and e."""
    shift = math.frexp(float(np.abs(rows).max(initial=0.0)))[1]
    return np.ldexp(rows.astype(np.float64), -shift), shift

"""Scores of one kind on the scale of another."""

from __future__ import annotations

import numpy as np

from noiseproof.auditing.scales import on_scale_of


def test_the_rth_lowest_lies_at_its_quantile() -> None:
    """Of 4 scores those at (r − ½)/4 of the reference 0, 0.01, …, 1; equal ones at their mean rank."""
    reference = np.linspace(0, 1, 101)[::-1]
    np.testing.assert_allclose(on_scale_of(reference, np.array([7.0, -3.0, 0.5, 100.0])), [0.625, 0.125, 0.375, 0.875])
    np.testing.assert_allclose(on_scale_of(reference, np.array([2.0, 1.0, 2.0])), [2 / 3, 1 / 6, 2 / 3])
    np.testing.assert_allclose(on_scale_of(reference**2, np.array([5.0])), [0.25])

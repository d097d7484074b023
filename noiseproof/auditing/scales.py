"""Scores of one kind on the scale of another, so that a list may hold both."""

from __future__ import annotations

import numpy as np
from scipy.stats import rankdata


def on_scale_of(reference: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """Scores (m,) in their order, where the reference's (n,) lie: the r-th lowest of m at its quantile (r − ½)/m.

    Two parts of one data set have about equally many wrong labels, whatever their scores are made of; so what stands as
    high in one part as in the other is taken for equally suspicious. Ties share their mean rank.
    """
    return np.quantile(reference, (rankdata(scores) - 0.5) / len(scores))

"""Scores of one kind on the scale of another, so that a list may hold both."""

from __future__ import annotations

import numpy as np
from scipy.special import expit, logit
from scipy.stats import rankdata

_LEAST = 1e-7  # of a probability


def on_scale_of(reference: np.ndarray, scores: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
    """Scores (m,) in their order, where the reference's (n,) lie: the r-th lowest of m at its quantile (r − ½)/m.

    Two parts of one data set have about equally many wrong labels, whatever their scores are made of; so what stands as
    high in one part as in the other is taken for equally suspicious. Ties share their mean rank. With `weights` (n,),
    each of the reference counts as so many.
    """
    order = np.argsort(reference, kind="stable")
    weight = np.ones(len(order)) if weights is None else weights[order]
    middle = np.cumsum(weight) - weight / 2
    place = (middle - middle[0]) / max(middle[-1] - middle[0], _LEAST)  # from 0 to 1
    return np.interp((rankdata(scores) - 0.5) / len(scores), place, reference[order])


def as_unseen(
    seen: np.ndarray, labels: np.ndarray, unseen: np.ndarray, unseen_labels: np.ndarray, weights: np.ndarray
) -> np.ndarray:
    """Predictions (m, K) of examples that were trained on as if they had not been.

    A network agrees with the labels it was trained on more than with others. What it says of each label (m,) is put on
    the scale of what it says of labels (n,) that it has not seen, `unseen` (n, K); the other classes share the rest as
    they did. `weights` (n,) make up for a part unseen that has, by chance, more or fewer wrong labels.
    """
    own, reference = (
        logit(np.clip(np.take_along_axis(p, y[:, None], axis=1)[:, 0].astype(np.float64), _LEAST, 1 - _LEAST))
        for p, y in ((seen, labels), (unseen, unseen_labels))
    )
    changed = expit(on_scale_of(reference, own, weights))[:, None]  # (m, 1)
    found = np.maximum(seen.astype(np.float64), _LEAST)  # a label known by heart leaves the others nothing to share
    np.put_along_axis(found, labels[:, None], 0, axis=1)
    found *= (1 - changed) / found.sum(axis=1, keepdims=True)
    np.put_along_axis(found, labels[:, None], changed, axis=1)
    return found.astype(np.float32)

"""Evidence from features, without a network: what models and the nearest neighbours say of labels unseen.

All give out-of-sample class probabilities (n, K): a model predicts a fifth of the examples after it was fitted to the
others, and nobody is its own neighbour.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

Predict = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]
Counted = Callable[[int, int], None]

FOLDS = 5
DECAYS = (1e-4, 1e-3, 1e-2, 1e-1)  # of the linear model's weights, per example; the best on the first fold is taken
NEIGHBOURS = 20
_TINY = 1e-6  # the probability of a class that a model has not seen
_MOST = 50_000  # examples a linear model is fitted to
_DUPLICATE = 0.1  # of the usual distance to the nearest neighbour: closer ones show the same thing
_SAME = 1e-6  # a distance of spreads, or 1 − cos, that may be rounding: copies
_OUTLIER = 5.0  # usual deviations above the usual distance to the neighbours


def folds(labels: np.ndarray, seed: int = 0) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """(rest, part) of the positions of labels (n,), five times: each example is in one part, each class in all."""
    from sklearn.model_selection import KFold, StratifiedKFold

    rare = np.bincount(labels)[np.unique(labels)].min() < FOLDS
    kind = KFold if rare else StratifiedKFold
    yield from kind(FOLDS, shuffle=True, random_state=seed).split(np.zeros(len(labels)), labels)


def cross_fitted(
    predict: Predict, labels: np.ndarray, num_classes: int, *, seed: int = 0, progress: Counted | None = None
) -> np.ndarray:
    """Out-of-sample probabilities (n, K) float32: what a model fitted to the rest says of each fifth.

    Args:
        predict: (rest, part) -> the classes it knows (c,), and their probabilities (m, c) in the part.
        progress: called with (done, total).
    """
    out = np.full((len(labels), num_classes), _TINY, np.float32)
    for number, (rest, part) in enumerate(folds(labels, seed)):
        classes, probability = predict(rest, part)
        out[np.ix_(part, classes)] = probability
        if progress is not None:
            progress(number + 1, FOLDS)
    return out / out.sum(axis=1, keepdims=True)


def linear(features: np.ndarray, labels: np.ndarray, seed: int = 0) -> Predict:
    """Softmax regression on standardised features (n, F), with the best of `DECAYS` on the first fifth."""
    rest, part = next(folds(labels, seed))
    tried = [(_log_loss(_linear(features, labels, one, seed, rest, part), labels[part]), one) for one in DECAYS]
    return partial(_linear, features, labels, min(tried)[1], seed)


def _linear(
    features: np.ndarray, labels: np.ndarray, decay: float, seed: int, rest: np.ndarray, part: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    from sklearn.linear_model import LogisticRegression

    rest = np.random.default_rng(seed).permutation(rest)[:_MOST]
    x = np.asarray(features[rest], np.float32)
    mean, std = x.mean(axis=0), x.std(axis=0) + 1e-6
    model = LogisticRegression(C=1 / (decay * len(x)), max_iter=300, tol=1e-3).fit((x - mean) / std, labels[rest])
    return model.classes_, model.predict_proba((np.asarray(features[part], np.float32) - mean) / std)


def _log_loss(predicted: tuple[np.ndarray, np.ndarray], labels: np.ndarray) -> float:
    """The mean −log of what the labels (m,) were given."""
    classes, probability = predicted
    own = ((labels[:, None] == classes) * probability).sum(axis=1)
    return float(-np.log(np.maximum(own, _TINY)).mean())


def boosted(features: np.ndarray, labels: np.ndarray, seed: int = 0) -> Predict:
    """Gradient-boosted trees on features (n, F): few and small ones, as many learn wrong labels by heart."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    def predict(rest: np.ndarray, part: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        trees = HistGradientBoostingClassifier(
            max_iter=60, max_leaf_nodes=15, l2_regularization=1.0, early_stopping=False, random_state=seed
        ).fit(features[rest], labels[rest])
        return trees.classes_, trees.predict_proba(features[part])

    return predict


def neighbours_in_table(features: np.ndarray, k: int = NEIGHBOURS) -> tuple[np.ndarray, np.ndarray]:
    """The k nearest other rows of a table (n, F): distances and positions (n, k), nearest first.

    Each column counts by its spread, and what lies more than three spreads away no more than that.
    """
    from sklearn.neighbors import NearestNeighbors

    x = np.clip((features - features.mean(axis=0)) / (features.std(axis=0) + 1e-6), -3, 3)
    distance, at = NearestNeighbors(n_neighbors=min(k, len(x) - 1)).fit(x).kneighbors()
    return distance, at


def neighbours_of(features: np.ndarray, k: int = NEIGHBOURS) -> tuple[np.ndarray, np.ndarray]:
    """The k nearest other rows of features (n, F) by cosine: distances 1 − cos and positions (n, k), nearest first."""
    import torch

    from noiseproof.auditing.neighbours import nearest

    bank = torch.from_numpy(np.asarray(features, np.float32))
    similarity, at = nearest(bank, bank, min(k, len(bank) - 1), exclude_self=True)
    return (1 - similarity).clamp_min(0).numpy(), at.numpy()


def votes(at: np.ndarray, labels: np.ndarray, num_classes: int) -> np.ndarray:
    """Out-of-sample probabilities (n, K) float32: the labels of the neighbours (n, k), and a vote for all classes."""
    n, k = at.shape
    place = np.arange(n)[:, None] * num_classes + labels[at]
    counts = np.bincount(place.ravel(), minlength=n * num_classes).reshape(n, num_classes)
    return ((counts + 1 / num_classes) / (k + 1)).astype(np.float32)


def near_duplicates(distance: np.ndarray, at: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """(n,) int32: the number of the group of near-duplicates whose labels differ, −1 of all other examples.

    Near are neighbours within a tenth of the usual (median) distance to the nearest, and copies, also where most have
    one; groups are what hangs together.
    """
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    n = len(labels)
    near = distance <= max(_DUPLICATE * np.median(distance[:, 0]), _SAME)
    rows = np.repeat(np.arange(n), near.sum(axis=1))
    graph = csr_array((np.ones(len(rows), np.int8), (rows, at[near])), (n, n))
    _, group = connected_components(graph, directed=False)
    first = np.empty(group.max() + 1, labels.dtype)
    first[group[::-1]] = labels[::-1]  # of each group the label of one of its members
    mixed = np.zeros(len(first), bool)
    mixed[group[labels != first[group]]] = True
    number = np.where(mixed, mixed.cumsum() - 1, -1)
    return number[group].astype(np.int32)


def off_topic(distance: np.ndarray) -> np.ndarray:
    """(n,) bool: examples far from all others, by the distances to their neighbours (n, k).

    What is usual is told by those that lie not among copies of themselves, which may be most of a table.
    """
    far = np.log(np.maximum(distance.mean(axis=1), _SAME))
    usual = far[far > np.log(_SAME)]
    if not len(usual):
        return np.zeros(len(far), bool)
    middle = np.median(usual)
    spread = 1.4826 * np.median(np.abs(usual - middle)) + 1e-12  # of a normal distribution, its deviation
    return far > middle + _OUTLIER * spread

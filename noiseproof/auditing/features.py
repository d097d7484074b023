"""Evidence from features, without a network: what models and the nearest neighbours say of labels unseen.

All give out-of-sample class probabilities (n, K): a model predicts a fifth of the examples after it was fitted to the
others, and nobody is its own neighbour.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

FOLDS = 5
DECAYS = (1e-4, 1e-3, 1e-2, 1e-1)  # of the linear model's weights, per example; the best on the first fold is taken
NEIGHBOURS = 20
_MOST = 50_000  # examples a linear model is fitted to
_DUPLICATE = 0.1  # of the usual distance to the nearest neighbour: closer ones show the same thing
_OUTLIER = 5.0  # usual deviations above the usual distance to the neighbours


def folds(labels: np.ndarray, seed: int = 0) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """(rest, part) of the positions of labels (n,), five times: each example is in one part, each class in all."""
    from sklearn.model_selection import KFold, StratifiedKFold

    rare = np.bincount(labels)[np.unique(labels)].min() < FOLDS
    kind = KFold if rare else StratifiedKFold
    yield from kind(FOLDS, shuffle=True, random_state=seed).split(np.zeros(len(labels)), labels)


def linear_predictions(
    features: np.ndarray,
    labels: np.ndarray,
    num_classes: int,
    *,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> np.ndarray:
    """Out-of-sample probabilities (n, K) float32 by softmax regression on features (n, F), cross-fitted."""
    from sklearn.linear_model import LogisticRegression

    out = np.full((len(labels), num_classes), 1e-6, np.float32)
    rng, decay = np.random.default_rng(seed), None
    for number, (rest, part) in enumerate(folds(labels, seed)):
        rest = rng.permutation(rest)[:_MOST]
        x = np.asarray(features[rest], np.float32)
        mean, std = x.mean(axis=0), x.std(axis=0) + 1e-6
        x, held = (x - mean) / std, (np.asarray(features[part], np.float32) - mean) / std
        tried = DECAYS if decay is None else (decay,)
        found = []
        for one in tried:
            model = LogisticRegression(C=1 / (one * len(x)), max_iter=300, tol=1e-3).fit(x, labels[rest])
            p = np.full((len(part), num_classes), 1e-6, np.float32)
            p[:, model.classes_] = model.predict_proba(held)
            found.append((-np.log(np.maximum(p[np.arange(len(part)), labels[part]], 1e-6)).mean(), one, p))
            if progress is not None:
                progress(number + 1 if len(found) == len(tried) else number, FOLDS)
        _, decay, out[part] = min(found, key=lambda one: one[0])
    return out / out.sum(axis=1, keepdims=True)


def boosted_predictions(
    features: np.ndarray,
    labels: np.ndarray,
    num_classes: int,
    *,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> np.ndarray:
    """Out-of-sample probabilities (n, K) float32 by gradient-boosted trees on features (n, F), cross-fitted.

    Few small trees: with many, they learn wrong labels by heart.
    """
    from sklearn.ensemble import HistGradientBoostingClassifier

    out = np.full((len(labels), num_classes), 1e-6, np.float32)
    for number, (rest, part) in enumerate(folds(labels, seed)):
        trees = HistGradientBoostingClassifier(
            max_iter=60, max_leaf_nodes=15, l2_regularization=1.0, early_stopping=False, random_state=seed
        ).fit(features[rest], labels[rest])
        out[np.ix_(part, trees.classes_)] = trees.predict_proba(features[part])
        if progress is not None:
            progress(number + 1, FOLDS)
    return out / out.sum(axis=1, keepdims=True)


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

    Near are neighbours within a tenth of the usual (median) distance to the nearest; groups are what hangs together.
    """
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    n = len(labels)
    near = distance <= _DUPLICATE * np.median(distance[:, 0])
    rows = np.repeat(np.arange(n), near.sum(axis=1))
    graph = csr_array((np.ones(len(rows), np.int8), (rows, at[near])), (n, n))
    _, group = connected_components(graph, directed=False)
    first = np.full(group.max() + 1, -1)
    first[group[::-1]] = labels[::-1]  # of each group the label of one of its members
    mixed = np.zeros(len(first), bool)
    mixed[group[labels != first[group]]] = True
    number = np.where(mixed, mixed.cumsum() - 1, -1)
    return number[group].astype(np.int32)


def off_topic(distance: np.ndarray) -> np.ndarray:
    """(n,) bool: examples far from all others, by the distances to their neighbours (n, k)."""
    far = np.log(distance.mean(axis=1) + 1e-12)
    middle = np.median(far)
    spread = 1.4826 * np.median(np.abs(far - middle)) + 1e-12  # of a normal distribution, its deviation
    return far > middle + _OUTLIER * spread

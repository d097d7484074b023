"""What the other examples say of each label, in closed form: each example is left out of what judges it.

A ridge regression of the labels, as Y (n, K) of ones and zeros, on standardised features X (n, F), with an intercept:

    W = (XᵀX/n + λ I)⁻¹ Xᵀ(Y − ȳ)/n,   Ŷ = ȳ + X W                                                            (1)
    h_i = 1/n + x_iᵀ (XᵀX/n + λ I)⁻¹ x_i / n                                                                  (2)
    s_i = y_i − (y_i − ŷ_i) / (1 − h_i)                                                                       (3)

s_i is, exactly, what (1) fitted to all others says of example i: no fold, and no second fit. λ is the best of `DECAYS`
times the mean eigenvalue of XᵀX/n by Σ‖y_i − s_i‖². Of more than `KEPT` features, X are their leading principal
components; neighbours are looked for in the first `LEADING` of these. Both take half a second where a network takes
minutes, and no example is judged by its own label.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.linalg import eigh, qr

from noiseproof.auditing.blocks import blocks, one_thread
from noiseproof.auditing.features import NEIGHBOURS, votes

DECAYS = (1e-3, 1e-2, 1e-1, 1.0, 10.0)
KEPT, LEADING = 512, 64  # eigenvectors that the regression goes by at most, and in which neighbours are looked for
SKETCHED = 256  # about the leading ones, in a third of the time
MOST_FEATURES = 2048  # a matrix of this size is decomposed
MOST_WHOLE, RANK = 4096, 1024  # the same where it is asked for; how many eigenvectors are found of a larger one
_BANK = 20_000  # examples among which neighbours are looked for
_SHARP = 8.0  # scores lie within about 0..1; as logits, they are this times as large
_LARGEST = 0.999  # of h: an example that alone decides what is said of it is not told apart from itself


def evidence(features: np.ndarray, labels: np.ndarray, num_classes: int, seed: int = 0) -> list[np.ndarray]:
    """Out-of-sample class probabilities (n, K) float32 by features (n, F): of the regression, and of the neighbours."""
    x, value = components(features)
    said = as_probability(scores(x, value, labels, num_classes))
    return [said, votes(near(x[:, -LEADING:], seed), labels, num_classes)]


def said(features: np.ndarray, labels: np.ndarray, num_classes: int, seed: int = 0) -> np.ndarray:
    """Those of the regression alone, by about the `SKETCHED` leading components, where speed matters most."""
    with one_thread():  # most of its products are small: the threads of BLAS would wait for each other
        x = _standardised(features)
        if x.shape[1] > SKETCHED:  # one step of subspace iteration from a random subspace (Halko et al. 2011)
            start = np.random.default_rng(seed).standard_normal((x.shape[1], SKETCHED), np.float32)
            x = x @ qr(x.T @ (x @ start), mode="economic")[0]
        return as_probability(scores(*_components(x), labels, num_classes))


def components(features: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Features (n, F), standardised, in their eigenvectors (n, r), the last the largest, and the variances (r,)."""
    return _components(_standardised(features))


def _standardised(features: np.ndarray) -> np.ndarray:
    x = np.asarray(features, np.float32)
    return (x - x.mean(axis=0)) / (x.std(axis=0) + 1e-6)


def _components(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    F = x.shape[1]
    value, vector = eigh(x.T @ x / len(x), subset_by_index=(max(F - KEPT, 0), F - 1))  # (r,), (F, r), rising
    return x @ vector, np.maximum(value, 0)  # where Eq. (1) is a division


def leading(x: np.ndarray, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Centred features x (n, F) in their eigenvectors (n, r), and the variances (r,): the largest of them, if many."""
    from sklearn.utils.extmath import randomized_svd

    x = x - x.mean(axis=0)
    n, width = x.shape
    if min(n, width) > MOST_WHOLE:
        u, root, _ = randomized_svd(x, RANK, n_iter=2, random_state=seed)
        return u * root, root**2 / n
    if width <= n:
        value, vector = np.linalg.eigh(x.T @ x / n)
        return x @ vector, np.maximum(value, 0)
    value, u = np.linalg.eigh(x @ x.T / n)
    value = np.maximum(value, 0)
    return u * np.sqrt(n * value), value


def as_probability(score: np.ndarray) -> np.ndarray:
    """Class probabilities (n, K) of scores (n, K)."""
    said = np.exp(_SHARP * score)
    return said / said.sum(axis=1, keepdims=True)


def scores(x: np.ndarray, value: np.ndarray, labels: np.ndarray, num_classes: int) -> np.ndarray:
    """s (n, K), Eq. (3), of features x (n, F) without correlations, whose variances are `value` (F,)."""
    return regressed(x, value, np.eye(num_classes, dtype=np.float32)[labels], DECAYS)


def regressed(x: np.ndarray, value: np.ndarray, y: np.ndarray, decays: Sequence[float] = DECAYS) -> np.ndarray:
    """The same, of labels y (n, K) that may be shares of classes, with the best of these decays."""
    n = len(x)
    mean = y.mean(axis=0)
    slope = x.T @ (y - mean) / n  # (F, K)
    best, least = y, np.inf
    for decay in decays:
        inverse = (1 / (value + decay * value.mean() + 1e-12)).astype(np.float32)  # (F,)
        fitted = mean + x @ (inverse[:, None] * slope)  # Eq. (1)
        h = np.concatenate([1 / n + x[rows] ** 2 @ inverse / n for rows in blocks(*x.shape)])  # Eq. (2)
        left_out = y - (y - fitted) / (1 - np.minimum(h, _LARGEST))[:, None]  # Eq. (3)
        error = float(((y - left_out) ** 2).mean(dtype=np.float64))
        if error < least:
            best, least = left_out, error
    return best


def near(x: np.ndarray, seed: int = 0) -> np.ndarray:
    """Positions (n, k) of the nearest others by cosine, nearest first; of many examples, among some at random."""
    import torch

    from noiseproof.auditing.neighbours import nearest

    n = len(x)
    bank = np.sort(np.random.default_rng(seed).permutation(n)[:_BANK])
    k = min(NEIGHBOURS, len(bank) - 1)
    queries = torch.from_numpy(np.ascontiguousarray(x, np.float32))
    at = bank[nearest(queries, queries[torch.from_numpy(bank)], k + 1)[1].numpy()]  # (n, k + 1)
    own = at == np.arange(n)[:, None]
    return np.take_along_axis(at, np.argsort(own, axis=1, kind="stable")[:, :k], axis=1)  # itself last, and left out

"""Slow twins of auditing/features.py: loops over examples, and softmax regression by a general minimiser."""

from __future__ import annotations

import math
import statistics

import numpy as np
from scipy.optimize import minimize


def softmax(logits: np.ndarray) -> np.ndarray:
    """Rows (n, K) of sum 1."""
    raised = np.exp(logits - logits.max(axis=1, keepdims=True))
    return raised / raised.sum(axis=1, keepdims=True)


def regression(x: np.ndarray, labels: np.ndarray, decay: float, asked: np.ndarray) -> np.ndarray:
    """The probabilities (m, K) of rows (m, F) by min mean −log p_y + decay/2 ‖W‖², on features (n, F) standardised."""
    mean, std = x.mean(axis=0), x.std(axis=0)
    x, asked = (x - mean) / std, (asked - mean) / std
    K, F = int(labels.max()) + 1, x.shape[1]

    def logits(both: np.ndarray, rows: np.ndarray) -> np.ndarray:
        weight, bias = both[: K * F].reshape(K, F), both[K * F :]
        return rows @ weight.T + bias

    def loss(both: np.ndarray) -> float:
        own = softmax(logits(both, x))[np.arange(len(x)), labels]
        return float(-np.log(own).mean() + decay / 2 * (both[: K * F] ** 2).sum())

    return softmax(logits(minimize(loss, np.zeros(K * F + K)).x, asked))


def votes(at: np.ndarray, labels: np.ndarray, num_classes: int) -> np.ndarray:
    """The shares (n, K) of the classes among the neighbours (n, k), with one more vote that all classes share."""
    rows = []
    for near in at:
        count = [1 / num_classes + sum(int(labels[j] == c) for j in near) for c in range(num_classes)]
        rows.append([one / (len(near) + 1) for one in count])
    return np.array(rows)


def near_duplicates(distance: np.ndarray, at: np.ndarray, labels: np.ndarray) -> list[int]:
    """Groups of what hangs together within a tenth of the usual distance, where labels differ; −1 elsewhere."""
    limit = max(0.1 * statistics.median(row[0] for row in distance), 1e-6)
    group = list(range(len(labels)))
    for _ in labels:  # as often as it may take for the lowest number to come round
        for i, (far, near) in enumerate(zip(distance, at, strict=True)):
            for one, j in zip(far, near, strict=True):
                if one <= limit:
                    group[i] = group[j] = min(group[i], group[j])
    mixed = [one for one in sorted(set(group)) if len({labels[i] for i, own in enumerate(group) if own == one}) > 1]
    return [mixed.index(one) if one in mixed else -1 for one in group]


def off_topic(distance: np.ndarray) -> list[bool]:
    """Whose mean log-distance is five deviations above the median; a deviation is 1.4826 median deviations."""
    far = [math.log(row.mean()) for row in distance]
    middle = statistics.median(far)
    spread = 1.4826 * statistics.median(abs(one - middle) for one in far)
    return [one > middle + 5 * spread for one in far]

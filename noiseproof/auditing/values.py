"""Which values of a table's row speak against its label: those nearer to the middle of another class."""

from __future__ import annotations

import numpy as np

SPEAKING = 1.0  # spreads of the classes by which a value must be nearer to the other one


def middles(inputs: np.ndarray, labels: np.ndarray, num_classes: int) -> tuple[np.ndarray, np.ndarray]:
    """The medians of features (n, d) by class (K, d), and their spread within classes (d,)."""
    middle = np.tile(np.median(inputs, axis=0), (num_classes, 1))
    for k in np.unique(labels):
        middle[k] = np.median(inputs[labels == k], axis=0)
    away = np.abs(inputs - middle[labels])
    spread = 1.4826 * np.median(away, axis=0)  # a standard deviation, of normal values
    rough = away.mean(axis=0)
    return middle, np.where(spread > 0, spread, np.where(rough > 0, rough, 1.0))


def against(values: np.ndarray, given: np.ndarray, suggested: np.ndarray, spread: np.ndarray) -> np.ndarray:
    """By how many spreads each value (d,) lies farther from the given class's middle than from the suggested one's."""
    return (np.abs(values - given) - np.abs(values - suggested)) / spread

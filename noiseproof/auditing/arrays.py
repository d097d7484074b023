"""The door of the audit: labels and predictions as people have them, checked, as arrays."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from noiseproof import checks
from noiseproof.auditing.blocks import blocks, in_threads
from noiseproof.data import label_checks
from noiseproof.data.input_checks import as_array
from noiseproof.errors import InputError, shown

LARGEST = np.float64(1e18)  # of a feature: the squares of larger ones are beyond single precision


def parse_labels(
    labels: Any, class_names: tuple[str, ...] | None, name: str = "labels"
) -> tuple[np.ndarray, tuple[str, ...] | None]:
    """Labels as positions (n,) int64, and the names of the classes where they have any.

    Args:
        labels: whole numbers from 0, or names; a list, an array, a Series, a tensor.
        class_names: the K names, in the order of the columns of predictions; by default those found, sorted.

    Raises:
        InputError: they are something else, or a name is unknown.
    """
    array = label_checks.label_vector(name, labels)
    array = array.astype(str) if array.dtype.kind == "b" else array
    codes, names = label_checks.parse_labels(name, array, class_names)
    return codes.numpy(), names


def names_of_columns(pred_probs: Any) -> list[str] | None:
    """The classes of predictions that come as a table with a column for each; None of plain arrays."""
    columns = getattr(pred_probs, "columns", None)
    return None if columns is None or callable(columns) else [str(name) for name in columns]


def in_order(pred_probs: Any, class_names: Sequence[str], name: str = "pred_probs") -> Any:
    """Predictions with their columns in the order of the classes: a table's by their names, a plain array as it is.

    Raises:
        InputError: the columns have other names, so that nobody knows whose they are.
    """
    columns = names_of_columns(pred_probs)
    if columns is None:
        return pred_probs
    return np.asarray(pred_probs)[:, checks.columns(name, columns, list(map(str, class_names)))]


def parse_predictions(pred_probs: Any, labels: np.ndarray, name: str = "pred_probs") -> np.ndarray:
    """Out-of-sample probabilities (n, K), as they are (float16 and memory maps are not copied), checked.

    Raises:
        InputError: they are not probabilities of these labels (n,).
    """
    array = as_array(name, pred_probs)
    if array.dtype.kind != "f":
        array = array.astype(np.float32) if array.dtype.kind in "iub" else array
    if array.ndim != 2 or array.dtype.kind != "f":
        raise InputError(f"{name} must be probabilities (n, K), got {array.dtype} of shape {array.shape}")
    n, K = array.shape
    if n != len(labels):
        raise InputError(f"{name} has {n:,} rows for {len(labels):,} labels; give one row for each label")
    if K < 2 or labels.max() >= K:
        raise InputError(
            f"{name} has {K} columns, but the largest label is {labels.max()}; give a column for each class"
        )
    most = 0.02 if array.dtype == np.float16 else 1e-3

    def check(rows: slice) -> None:
        block = np.asarray(array[rows], np.float32)
        total = block @ np.ones(K, np.float32)
        if not (block.min() >= -1e-6 and np.abs(total - 1).max() <= most):
            least = block.min(axis=1)
            at = int(np.flatnonzero(~((least >= -1e-6) & (np.abs(total - 1) <= most)))[0])
            what = "a NaN" if np.isnan(total[at]) else f"a sum of {total[at]:.4g}, entries from {least[at]:.4g}"
            raise InputError(
                f"{name} must be probabilities, not negative, of sum 1 in each row; row {rows.start + at} has {what}; "
                "pass logits through a softmax, or normalise"
            )

    in_threads(check, n, K)
    missing = np.flatnonzero(np.bincount(labels, minlength=K) == 0)
    if len(missing):
        raise InputError(
            f"class {missing[0]} is given to no label, though {name} has a column for it; "
            f"leave out {'its column' if len(missing) == 1 else f'the columns of all {len(missing)} such classes'}"
        )
    agree = (np.array_equal(array[rows].argmax(axis=1), labels[rows]) for rows in blocks(n, K))
    if n > 20 * K and all(agree):
        warnings.warn(
            f"{name} agrees with all {n:,} labels: it looks like predictions of examples that were trained on, which "
            "find no wrong label; pass out-of-sample predictions, e.g. of cross-validation",
            stacklevel=3,
        )
    return array


def parse_features(features: Any, n: int, name: str = "features") -> np.ndarray:
    """Features (n, F) of n examples as an array of floats, checked.

    Raises:
        InputError: they are something else, or not finite.
    """
    array = as_array(name, features)
    if array.ndim != 2 or array.dtype.kind not in "fiub" or len(array) != n or array.shape[1] == 0:
        raise InputError(
            f"{name} must be numbers (n, F) for n = {n:,} labels, got {array.dtype} of shape {array.shape}"
        )
    array = array if array.dtype.kind == "f" else array.astype(np.float32)
    for rows in blocks(*array.shape):
        bad = ~(np.abs(array[rows]) < LARGEST).all(axis=1)  # also where one is NaN
        if bad.any():
            raise InputError(
                f"{name} must be finite, and below {LARGEST:g}, row {rows.start + int(bad.argmax())} is not; "
                "fill it or leave it out"
            )
    if n < 10:
        raise InputError(f"an audit by features needs 10 examples or more, got {shown(n)}")
    return array

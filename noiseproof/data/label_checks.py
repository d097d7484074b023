"""The door for labels: whole numbers or texts, and the names of their classes; otherwise as input_checks.py."""

from __future__ import annotations

import difflib
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from noiseproof.data.input_checks import as_array, repeated, texts
from noiseproof.errors import InputError, shown

MAX_UNNAMED_CLASSES = 1_000_000  # a larger integer label without class_names is an id, not a class


def parse_labels(
    name: str, labels: Any, names: tuple[str, ...] | None, num_examples: int | None = None
) -> tuple[Tensor, tuple[str, ...] | None]:
    """Labels as int64 (n,), and the class names: those given, or for text labels the sorted texts, else None."""
    array = label_vector(name, labels)
    if num_examples is not None and len(array) != num_examples:
        raise InputError(
            f"{name} holds {len(array)} values but inputs holds {num_examples} rows; pass one label per row"
        )
    if array.dtype.kind == "O":
        array = _plain(name, array)
    if array.dtype.kind in "US":
        empty = np.flatnonzero(np.char.str_len(array) == 0)
        if len(empty):
            raise InputError(f"{name} has a missing value at row {empty[0]}; fill it in or drop the row")
        return _text_labels(name, array, names)
    return _whole_labels(name, array, None if names is None else len(names)), names


def parse_pair(
    labels: Any, true_labels: Any, names: tuple[str, ...] | None, num_examples: int
) -> tuple[Tensor, Tensor | None, tuple[str, ...] | None]:
    """Labels and, where there are any, true labels as `parse_labels` has them; texts of both are class names."""
    parsed, found = parse_labels("labels", labels, names, num_examples)
    if true_labels is None:
        return parsed, None, found
    true_parsed, true_found = parse_labels("true_labels", true_labels, names, num_examples)
    if found == true_found:
        return parsed, true_parsed, found
    if found is None or true_found is None:
        text, number = ("true_labels", "labels") if found is None else ("labels", "true_labels")
        raise InputError(f"{text} are text but {number} are numbers; pass class_names, or text for both")
    return parse_pair(labels, true_labels, tuple(sorted({*found, *true_found})), num_examples)


def label_vector(name: str, labels: Any) -> np.ndarray:
    """Labels as an array (n,) with n > 0, of whatever kind they are."""
    array = as_array(name, labels)
    listed = array.dtype.kind in "US" and array.ndim == 1 and isinstance(labels, list | tuple)
    if listed and not all(isinstance(one, str | bytes) for one in labels):  # numpy makes a text of NaN, too
        array = np.array(labels, dtype=object)
    if array.ndim == 2 and array.shape[1] == 1:  # a column, as Keras has CIFAR's labels
        array = array[:, 0]
    if array.ndim != 1:
        remedy = "pass argmax(axis=1) of one-hot rows" if array.ndim == 2 else "pass one label per example"
        raise InputError(f"{name} must be one-dimensional, got shape {array.shape}; {remedy}")
    if len(array) == 0:
        raise InputError(f"{name} is empty; pass at least two examples")
    return array


def is_whole(array: np.ndarray) -> bool:
    """Whether an array holds whole numbers alone, each of which a float can tell from the next."""
    if array.dtype.kind != "f":
        return array.dtype.kind in "iub"
    return bool((np.isfinite(array) & (array == np.trunc(array)) & (np.abs(array) < 2**53)).all())


def check_distinct(name: str, labels: np.ndarray) -> None:
    """Raise if labels (n,) are nearly all different: a measurement or an id rather than a class."""
    distinct = len(np.unique(labels))
    if len(labels) >= 20 and 2 * distinct > len(labels):
        raise InputError(
            f"{name!r} has {distinct} distinct values in {len(labels)} rows; "
            "is it the label? pass label_column (--label-column)"
        )


def check_whole(name: str, array: np.ndarray) -> None:
    """Raise unless an array holds whole numbers alone."""
    if array.dtype.kind not in "iufb":
        raise InputError(f"{name} has dtype {array.dtype}; pass whole numbers or text")
    if not is_whole(array):
        row = next(i for i in range(len(array)) if not is_whole(array[i : i + 1]))
        raise InputError(f"{name} must hold whole numbers, got {array[row]} at row {row}; round or relabel")


def _plain(name: str, array: np.ndarray) -> np.ndarray:
    """An object array as one of text or of numbers; a missing or foreign value is an error."""
    kinds: dict[type, int] = {}
    for i, value in enumerate(array.tolist()):
        if value is None or (isinstance(value, float) and math.isnan(value)):
            raise InputError(f"{name} has a missing value at row {i}; fill it in or drop the row")
        if not isinstance(value, str | bytes | int | float):
            raise InputError(
                f"{name} holds {type(value).__name__} {shown(value)} at row {i}; pass whole numbers or text"
            )
        kinds.setdefault(str if isinstance(value, str | bytes) else float, i)
    if len(kinds) == 2:
        text, number = kinds[str], kinds[float]
        raise InputError(f"{name} mixes text (row {text}) and numbers (row {number}); use one kind throughout")
    if str in kinds:
        return np.array([v.decode("utf-8", "replace") if isinstance(v, bytes) else v for v in array.tolist()])
    return np.array(array.tolist())


def _text_labels(name: str, array: np.ndarray, names: tuple[str, ...] | None) -> tuple[Tensor, tuple[str, ...]]:
    """Text labels as positions in `names`, by default the sorted distinct texts."""
    if array.dtype.kind == "S":
        array = np.char.decode(array, "utf-8", "replace")
    texts, inverse = np.unique(array, return_inverse=True)
    names = tuple(texts.tolist()) if names is None else names
    position = {c: k for k, c in enumerate(names)}
    for text in texts.tolist():
        if text not in position:
            row = int(np.flatnonzero(array == text)[0])
            near = difflib.get_close_matches(text, names, n=1)
            hint = f"did you mean {near[0]!r}?" if near else "add it to class_names or relabel"
            raise InputError(f"{name} holds {shown(text)} at row {row}, which is not among the class_names; {hint}")
    return torch.tensor([position[text] for text in texts.tolist()])[torch.from_numpy(inverse)], names


def _whole_labels(name: str, array: np.ndarray, num_classes: int | None) -> Tensor:
    """Numeric labels as a fresh int64 tensor, each in 0..num_classes-1."""
    check_whole(name, array)
    if array.min() < 0:
        row = int(np.flatnonzero(array < 0)[0])
        raise InputError(f"{name} must not be negative, got {int(array[row])} at row {row}; number the classes from 0")
    limit = MAX_UNNAMED_CLASSES if num_classes is None else num_classes
    if array.max() >= limit:
        row = int(np.flatnonzero(array >= limit)[0])
        remedy = "pass class_names, or number the classes from 0 without gaps"
        if num_classes is not None:
            remedy = f"pass {int(array.max()) + 1} class names or relabel"
        raise InputError(
            f"{name} must lie in 0..{limit - 1} ({limit} classes), got {int(array[row])} at row {row}; {remedy}"
        )
    return torch.from_numpy(array.astype(np.int64))


def check_class_names(class_names: Sequence[str] | None) -> tuple[str, ...] | None:
    """Class names as a tuple of distinct texts."""
    if class_names is None:
        return None
    names = texts("class_names", class_names)
    if twice := repeated(names):
        i, j = twice
        raise InputError(f"class_names holds {names[i]!r} twice (positions {i} and {j}); make the names distinct")
    return names


def check_classes(present: Tensor, names: tuple[str, ...], allow_empty: bool) -> None:
    """At least two classes, and (unless allowed) an example of each; `present` holds the distinct labels, sorted."""
    if len(names) < 2:
        raise InputError(
            f"labels hold only one class ({names[0]!r}); there is nothing to learn: pass two classes or more"
        )
    if allow_empty or len(present) == len(names):
        return
    if len(present) == 1:
        raise InputError(
            f"labels hold only one class ({names[int(present[0])]!r}) of {len(names)}; "
            "pass examples of two classes or more, or allow_empty=True"
        )
    empty = np.setdiff1d(np.arange(len(names)), present.numpy())
    more = f" (and {len(empty) - 1} more)" if len(empty) > 1 else ""
    raise InputError(
        f"class {names[empty[0]]!r}{more} has no example; "
        "drop its name, number the classes from 0 without gaps, or pass allow_empty=True to LabeledData"
    )

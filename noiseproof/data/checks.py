"""The door: turns what a caller passes as labels, inputs or a rate into what the library works with, or says why not.

Every function raises `InputError` with one sentence that names the argument, the value, its position and the remedy.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from noiseproof.errors import InputError

MAX_UNNAMED_CLASSES = 1_000_000  # a larger integer label without class_names is an id, not a class
BLOCK_BYTES = 1 << 24  # how much of the inputs a check looks at in one go


def as_array(name: str, values: Any) -> np.ndarray:
    """`values` (tensor, array, list) as a numpy array, without a copy where that is possible."""
    if isinstance(values, Tensor):
        values = values.detach().cpu()
        return (values.float() if values.dtype == torch.bfloat16 else values).numpy()
    try:
        return np.asarray(values)
    except ValueError as error:
        raise InputError(
            f"{name} must be a rectangular array, but its rows differ in length; pad or drop them"
        ) from error


def as_tensor(array: np.ndarray) -> Tensor:
    """An array as a tensor that shares its memory where torch can, else as a copy."""
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    if any(stride < 0 for stride in array.strides) or not array.flags.writeable:
        array = array.copy()
    return torch.from_numpy(array)


def parse_labels(
    name: str, labels: Any, class_names: Sequence[str] | None, num_examples: int | None = None
) -> tuple[Tensor, tuple[str, ...] | None]:
    """Labels as int64 (n,), and the class names: those given, or for text labels the sorted texts, else None."""
    array = label_vector(name, labels)
    if num_examples is not None and len(array) != num_examples:
        raise InputError(
            f"{name} holds {len(array)} values but inputs holds {num_examples} rows; pass one label per row"
        )
    names = None if class_names is None else tuple(str(c) for c in class_names)
    if array.dtype.kind == "O":
        array = _plain(name, array)
    if array.dtype.kind in "US":
        empty = np.flatnonzero(np.char.str_len(array) == 0)
        if len(empty):
            raise InputError(f"{name} has a missing value at row {empty[0]}; fill it in or drop the row")
        return _text_labels(name, array, names)
    return torch.from_numpy(_whole_labels(name, array, None if names is None else len(names))), names


def label_vector(name: str, labels: Any) -> np.ndarray:
    """Labels as an array (n,) with n > 0, of whatever kind they are."""
    array = as_array(name, labels)
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
            raise InputError(f"{name} holds {type(value).__name__} {value!r} at row {i}; pass whole numbers or text")
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
    if names is None:
        return torch.from_numpy(inverse.astype(np.int64)), tuple(texts.tolist())
    position = {c: k for k, c in enumerate(names)}
    for text in texts.tolist():
        if text not in position:
            row = int(np.flatnonzero(array == text)[0])
            near = difflib.get_close_matches(text, names, n=1)
            hint = f"did you mean {near[0]!r}?" if near else "add it to class_names or relabel"
            raise InputError(f"{name} holds {text!r} at row {row}, which is not among the class_names; {hint}")
    return torch.from_numpy(np.array([position[t] for t in texts.tolist()], dtype=np.int64)[inverse]), names


def _whole_labels(name: str, array: np.ndarray, num_classes: int | None) -> np.ndarray:
    """Numeric labels as a fresh int64 array, each in 0..num_classes-1."""
    check_whole(name, array)
    low, high = array.min(), array.max()
    if low < 0:
        row = int(np.flatnonzero(array < 0)[0])
        raise InputError(f"{name} must not be negative, got {int(array[row])} at row {row}; number the classes from 0")
    limit = MAX_UNNAMED_CLASSES if num_classes is None else num_classes
    if high >= limit:
        row = int(np.flatnonzero(array >= limit)[0])
        remedy = (
            "pass class_names, or number the classes from 0 without gaps"
            if num_classes is None
            else f"pass {int(high) + 1} class names or relabel"
        )
        raise InputError(
            f"{name} must lie in 0..{limit - 1} ({limit} classes), got {int(array[row])} at row {row}; {remedy}"
        )
    return array.astype(np.int64)


def check_class_names(class_names: Sequence[str] | None) -> tuple[str, ...] | None:
    """Class names as a tuple of distinct texts."""
    if class_names is None:
        return None
    if isinstance(class_names, str):
        raise InputError(
            f"class_names must be a list of names, got the text {class_names!r}; pass [{class_names!r}, ...]"
        )
    names = tuple(str(c) for c in class_names)
    seen: set[str] = set()
    for k, c in enumerate(names):
        if c not in seen:
            seen.add(c)
        else:
            raise InputError(
                f"class_names holds {c!r} twice (positions {names.index(c)} and {k}); make the names distinct"
            )
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
    seen = set(present.tolist())
    empty = [k for k in range(len(names)) if k not in seen]
    more = f" (and {len(empty) - 1} more)" if len(empty) > 1 else ""
    raise InputError(
        f"class {names[empty[0]]!r}{more} has no example; "
        "drop its name, number the classes from 0 without gaps, or pass allow_empty=True to LabeledData"
    )


def parse_inputs(inputs: Any) -> Tensor:
    """Inputs as uint8 or float32 images (n, C, H, W) or float32 features (n, d); uint8 images are never copied."""
    array = as_array("inputs", inputs)
    check_numbers(array.dtype)
    check_shape(array.shape)
    return as_tensor(array.astype(check_values(array, image=array.ndim == 4), copy=False))


def check_numbers(dtype: np.dtype) -> None:
    if dtype.kind == "b":
        raise InputError("inputs must be numbers, got booleans; pass inputs.astype('float32')")
    if dtype.kind not in "iuf":
        raise InputError(f"inputs must be numbers, got dtype {dtype}; encode text and objects as numbers first")


def check_values(array: np.ndarray, *, image: bool) -> type[np.generic]:
    """What inputs are kept as: uint8, which whole numbers of images must fit in, or float32, which must be finite."""
    if not image or array.dtype.kind == "f":
        check_finite(array)
        return np.float32
    if array.dtype != np.uint8:
        low, high = int(array.min()), int(array.max())
        if low < 0 or high > 255:
            raise InputError(f"integer images must lie in 0..255, got {low}..{high}; rescale them, or pass floats")
    return np.uint8


def check_shape(shape: tuple[int, ...]) -> None:
    """The shape of features (n, d) or images (n, C, H, W), with at least one example and nothing of size zero."""
    if len(shape) == 3:
        raise InputError(
            f"inputs must be features (n, d) or images (n, C, H, W), got shape {tuple(shape)}; "
            "add a channel axis to images with inputs[:, None]"
        )
    if len(shape) not in (2, 4):
        raise InputError(
            f"inputs must be features (n, d) or images (n, C, H, W), got shape {tuple(shape)}; "
            "reshape with inputs.reshape(n, -1)"
        )
    if shape[0] == 0:
        raise InputError(f"inputs is empty (shape {tuple(shape)}); pass at least two examples")
    if 0 in shape:
        raise InputError(f"inputs has shape {tuple(shape)}: an axis of size 0 holds nothing to learn from")
    if len(shape) == 4 and shape[3] in (1, 3) and shape[1] not in (1, 3) and shape[2] > 3:
        raise InputError(
            f"images must be channels-first (n, C, H, W), got shape {tuple(shape)}; pass inputs.transpose(0, 3, 1, 2)"
        )


def check_finite(array: np.ndarray, name: str = "inputs") -> None:
    """No NaN or infinity in single precision, looked for block by block so that no second copy is made."""
    rows = max(1, BLOCK_BYTES // max(1, array[0].nbytes))
    count, first = 0, None
    for start in range(0, len(array), rows):
        with np.errstate(over="ignore"):  # what does not fit becomes infinite
            block = as_tensor(array[start : start + rows].astype(np.float32, copy=False))
        bad = ~torch.isfinite(block)
        if bad.any():
            where = bad.nonzero()
            count += len(where)
            if first is None:
                first = [start + int(where[0, 0]), *where[0, 1:].tolist()]
    if first is None:
        return
    value = array[tuple(first)].item()
    place = f"row {first[0]}, column {first[1]}" if len(first) == 2 else f"row {first[0]}, position {tuple(first[1:])}"
    beyond = " (beyond single precision)" if math.isfinite(value) else ""
    raise InputError(
        f"{name} must be finite, got {value}{beyond} at {place} ({count} such value{'s' if count > 1 else ''} in all); "
        "impute or drop them"
    )


def check_fraction(name: str, value: Any, *, open_interval: bool = False) -> float:
    """A number in [0, 1], or in (0, 1) for an open interval."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise InputError(f"{name} must be a number between 0 and 1, got {value!r}; write e.g. 0.4") from None
    inside = 0 < number < 1 if open_interval else 0 <= number <= 1  # False for NaN
    if not inside:
        bounds = "strictly between 0 and 1" if open_interval else "between 0 and 1"
        raise InputError(f"{name} must lie {bounds}, got {value}; write 40 % as 0.4")
    return number


def generator(seed: Any) -> np.random.Generator:
    """A random generator from a seed that must be a whole number from 0."""
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise InputError(f"seed must be a whole number from 0, got {seed!r}; pass e.g. seed=0")
    return np.random.default_rng(seed)

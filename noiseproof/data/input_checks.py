"""The door for inputs: turns what a caller passes into what the library works with, or says why not.

Every function raises `InputError` with one sentence that names the argument, the value, its position and the remedy.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from noiseproof.checks import describe, is_dense, require
from noiseproof.errors import InputError, reason, shown

TEXT = "text"  # the name of the one column of texts that come alone
BLOCK_BYTES = 1 << 24  # how much of the inputs a check looks at in one go


def as_array(name: str, values: Any) -> np.ndarray:
    """`values` (tensor, array, list) as a numpy array, without a copy where that is possible."""
    if isinstance(values, Tensor):
        if not is_dense(values):
            remedy = "pass to_dense(), dequantize() or a padded one"
            raise InputError(f"{name} must be an ordinary tensor, got {describe(values)}; {remedy}")
        values = values.detach().cpu()
        return (values.float() if values.dtype == torch.bfloat16 else values.resolve_conj().resolve_neg()).numpy()
    try:
        return np.asarray(values)
    except Exception as error:  # whatever a stranger's __array__ may raise
        if isinstance(error, ValueError) and "inhomogeneous" in str(error):
            raise InputError(
                f"{name} must be a rectangular array, but its rows differ in length; pad or drop them"
            ) from error
        raise InputError(f"{name} cannot be read as an array ({reason(error)}); pass numbers or text") from error


def texts(name: str, values: Any) -> tuple[str, ...]:
    """A list, array or tensor of names as texts.

    Raises:
        InputError: it is one text, or no list at all.
    """
    if isinstance(values, str):
        raise InputError(f"{name} must be a list of names, got the text {shown(values)}; pass [{shown(values)}, ...]")
    return tuple(map(str, items(name, values)))


def items(name: str, values: Any) -> list[Any]:
    """A list, tuple, array, series or the like, one-dimensional, as a list of plain values."""
    given = values.tolist() if isinstance(values, Tensor | np.ndarray) else values
    listed = isinstance(given, Iterable) and not isinstance(given, str | bytes | Mapping)
    require(listed, name, values, "a list")
    return list(given)


def repeated(values: Iterable[Any]) -> tuple[int, int] | None:
    """The positions of the first value that comes a second time; None where all are distinct."""
    seen: dict[Any, int] = {}
    for i, value in enumerate(values):
        first = seen.setdefault(value, i)
        if first != i:
            return first, i
    return None


def readable(name: str) -> str:
    """A name of a file as text that every file can hold: bytes of it that are no UTF-8 are written out."""
    return name.encode("utf-8", "backslashreplace").decode()


def check_unicode(name: str, values: Sequence[Any]) -> None:
    """Raise unless all values are texts that can be written, as names of files that are no UTF-8 cannot."""
    try:
        "".join(map(str, values)).encode()
    except UnicodeEncodeError:
        row = next(i for i, one in enumerate(values) if readable(str(one)) != str(one))
        raise InputError(f"{name} holds {shown(values[row])} at row {row}, which is no Unicode; rename it") from None


def check_ids(ids: Sequence[Any], n: int, of: str = "inputs") -> list[Any]:
    """`n` distinct ids as a list."""
    array = items("ids", ids)
    for row, one in enumerate(array):
        try:
            hash(one), str(one)
        except Exception:  # whatever a stranger's may raise
            raise InputError(f"ids must be texts or numbers, got {shown(one)} at row {row}; pass plain ids") from None
    if len(array) != n:
        raise InputError(f"ids holds {len(array)} values but {of} holds {n} rows; pass one id per row, or none")
    check_unicode("ids", array)
    if twice := repeated(map(str, array)):  # as which they are written
        i, j = twice
        raise InputError(
            f"ids must be distinct, got {shown(array[i])} at rows {i} and {j}; make them unique or leave them out"
        )
    return array


def check_rows(name: str, index: Any, n: int) -> np.ndarray:
    """Positions among n examples, or a mask (n,) of them, as positions (m,) int64."""
    array = as_array(name, index)
    if array.dtype.kind == "b":
        if array.shape != (n,):
            raise InputError(f"{name} is a mask of shape {array.shape} but the data holds {n} examples")
        array = np.flatnonzero(array)
    if array.size == 0:
        raise InputError(f"{name} is empty; pass at least one example")
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise InputError(f"{name} must be whole numbers (m,), got {array.dtype} of shape {array.shape}")
    bad = np.flatnonzero((array < 0) | (array >= n))
    if len(bad):
        raise InputError(f"{name} must lie in 0..{n - 1}, got {array[bad[0]]} at position {bad[0]}")
    return array.astype(np.int64)


def check_weights(weights: Any, n: int) -> Tensor:
    """`n` weights as float32, none of them negative or without end, and not all 0."""
    array = as_array("weights", weights)
    if array.shape != (n,) or array.dtype.kind not in "iufb":
        raise InputError(f"weights must be numbers ({n},), one for each example, got {array.dtype} {array.shape}")
    array = array.astype(np.float32)
    bad = np.flatnonzero(~(np.isfinite(array) & (array >= 0)))
    if len(bad):
        raise InputError(f"weights must be finite and not negative, got {array[bad[0]]} at row {bad[0]}; mend it")
    if not array.any():
        raise InputError("weights are all 0; leave them out, or let some examples count")
    return torch.from_numpy(array)


def check_feature_names(names: Sequence[str] | None, shape: tuple[int, ...]) -> tuple[str, ...] | None:
    """One distinct name for each of the d features."""
    if names is None:
        return None
    given = texts("feature_names", names)
    if shape != (len(given),) or repeated(given):
        inputs = ", ".join(map(str, shape))
        raise InputError(f"feature_names must be distinct, one for each feature of inputs of shape (n, {inputs})")
    return given


def columns_of(inputs: Any) -> dict[str, Any] | None:
    """The columns of a table in memory by name: a DataFrame of pandas or polars, an Arrow table, a dict; else None.

    Raises:
        InputError: two have one name.
    """
    names = getattr(inputs, "column_names", None)  # Arrow's name for them
    names = getattr(inputs, "columns", None) if names is None else names
    names = list(inputs) if isinstance(inputs, Mapping) else names
    if names is not None and (twice := repeated(map(str, names))):
        raise InputError(f"the table has two columns named {shown(str(names[twice[0]]))}; rename one")
    return None if names is None else {str(name): inputs[name] for name in names}


def texts_in(inputs: Any) -> list[str] | None:
    """Texts (n,), a list, an array or a series of them, as a list; None for anything else.

    Raises:
        InputError: one is of length zero, or no text.
    """
    array = inputs.tolist() if isinstance(inputs, np.ndarray) and inputs.ndim == 1 else inputs
    array = array.to_list() if hasattr(array, "to_list") else array  # a series of pandas or polars
    if not isinstance(array, list) or not array or not isinstance(array[0], str):
        return None
    for row, one in enumerate(array):
        if not isinstance(one, str) or not one.strip():
            what = "of length zero" if isinstance(one, str) else f"but {shown(one)}"
            raise InputError(f"inputs holds a text {what} at row {row}; drop the row, or write what it should be")
    return array


def are_stacked(inputs: Any) -> bool:
    """Whether this is a dict of tensors or sequences, one for each example, rather than of columns."""
    return isinstance(inputs, Mapping) and any(map(_is_stack, inputs.values()))


def _is_stack(values: Any) -> bool:
    if isinstance(values, list):
        return bool(values) and isinstance(values[0], list | Tensor | np.ndarray) and np.ndim(values[0]) > 0
    return isinstance(values, Tensor | np.ndarray) and values.ndim > 1


def whole_columns(columns: Mapping[str, Any], names: Sequence[str]) -> np.ndarray | None:
    """The columns of these names, in this order, as features (n, d), if all are there and complete numbers."""
    arrays = []
    for name in names:
        if name not in columns:
            return None
        array = as_array(f"column {name!r}", columns[name])
        if array.ndim != 1 or array.dtype.kind not in "iufb" or np.isnan(array).any():
            return None
        arrays.append(array)
    if len({len(array) for array in arrays}) != 1:
        return None
    return np.column_stack(arrays).astype(np.float64, copy=False)


def parse_inputs(inputs: Any, *, quantities: bool = False) -> Tensor:
    """Inputs as uint8 or float32 images (n, C, H, W) or float32 features (n, d); uint8 images are never copied.

    Whole numbers are features only where they are known to be `quantities`, since they may be codes or tokens.
    """
    array = as_array("inputs", inputs)
    check_numbers(array.dtype)
    check_shape(array.shape)
    array = array.astype(check_values(array, image=array.ndim == 4, quantities=quantities), copy=False)
    shared = array.flags.writeable and all(stride >= 0 for stride in array.strides)
    return torch.from_numpy(array if shared else array.copy())


def check_numbers(dtype: np.dtype) -> None:
    if dtype.kind == "b":
        raise InputError("inputs must be numbers, got booleans; pass inputs.astype('float32')")
    if dtype.kind not in "iuf":
        raise InputError(f"inputs must be numbers, got dtype {dtype}; encode text and objects as numbers first")


def check_values(array: np.ndarray, *, image: bool, quantities: bool = False) -> type[np.generic]:
    """What inputs are kept as: uint8, which whole numbers of images must fit in, or float32, which must be finite."""
    if not image and array.dtype.kind in "iu" and not quantities:
        raise InputError(
            f"inputs {array.shape} are whole numbers without names, which may be codes or tokens; if they are "
            "quantities, pass inputs.astype('float32') or feature_names; tokens as noiseproof.data.Tokens(inputs), and "
            "images as (n, C, H, W)"
        )
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
    shape = tuple(shape)
    if len(shape) not in (2, 4):
        grey = len(shape) == 3
        remedy = "add a channel axis to images with inputs[:, None]" if grey else "reshape with inputs.reshape(n, -1)"
        raise InputError(f"inputs must be features (n, d) or images (n, C, H, W), got shape {shape}; {remedy}")
    if shape[0] == 0:
        raise InputError(f"inputs is empty (shape {shape}); pass at least two examples")
    if 0 in shape:
        raise InputError(f"inputs has shape {shape}: an axis of size 0 holds nothing to learn from")
    if len(shape) == 4 and shape[3] in (1, 3) and shape[1] not in (1, 3) and shape[2] > 3:
        raise InputError(
            f"images must be channels-first (n, C, H, W), got shape {shape}; pass inputs.transpose(0, 3, 1, 2)"
        )


def channels_first(array: np.ndarray) -> np.ndarray:
    """A view of an array as (n, d) or (n, C, H, W), by the rule of readers/arrays.py."""
    if array.ndim == 3:
        return array[:, None]
    if array.ndim != 4:
        return array
    first, last = array.shape[1] in (1, 3), array.shape[3] in (1, 3)
    channels_last = last if first != last else array.shape[3] < array.shape[1]
    return array.transpose(0, 3, 1, 2) if channels_last else array


def check_finite(array: np.ndarray) -> None:
    """No NaN or infinity in single precision, looked for block by block so that no second copy is made."""
    rows = max(1, BLOCK_BYTES // max(1, array[0].nbytes))
    count, first = 0, None
    for start in range(0, len(array), rows):
        with np.errstate(over="ignore"):  # what does not fit becomes infinite
            bad = np.argwhere(~np.isfinite(array[start : start + rows].astype(np.float32, copy=False)))
        if len(bad):
            count += len(bad)
            first = first or [start + int(bad[0, 0]), *bad[0, 1:].tolist()]
    if first is None:
        return
    value = array[tuple(first)].item()
    place = f"row {first[0]}, column {first[1]}" if len(first) == 2 else f"row {first[0]}, position {tuple(first[1:])}"
    beyond = " (beyond single precision)" if math.isfinite(value) else ""
    raise InputError(
        f"inputs must be finite, got {value}{beyond} at {place} ({count} such value{'s' if count > 1 else ''} in all); "
        "impute or drop them"
    )

"""The door: turns what a caller passes as inputs or a rate into what the library works with, or says why not.

Every function raises `InputError` with one sentence that names the argument, the value, its position and the remedy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from noiseproof.errors import InputError

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


def check_ids(ids: Sequence[Any], n: int) -> list[Any]:
    """`n` distinct ids as a list."""
    array = ids.tolist() if isinstance(ids, Tensor | np.ndarray) else list(ids)
    if len(array) != n:
        raise InputError(f"ids holds {len(array)} values but inputs holds {n} rows; pass one id per row, or none")
    seen: dict[Any, int] = {}
    for i, value in enumerate(array):
        first = seen.setdefault(value, i)
        if first != i:
            raise InputError(
                f"ids must be distinct, got {value!r} at rows {first} and {i}; make them unique or leave them out"
            )
    return array


def check_feature_names(names: Sequence[str] | None, shape: tuple[int, ...]) -> tuple[str, ...] | None:
    """One distinct name for each of the d features."""
    if names is None:
        return None
    given = tuple(map(str, names))
    if shape != (len(given),) or len(set(given)) < len(given):
        raise InputError(f"feature_names must be distinct, one for each feature of inputs of shape (n, {shape[0]})")
    return given


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

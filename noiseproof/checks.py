"""The one home of argument checks: numbers, flags, reductions, logits and labels, at every public door.

A check returns the value as it is kept, or raises an InputError that names the argument, the value and what is allowed.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import field, fields
from functools import partial
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

from noiseproof.errors import InputError, shown, unknown

if TYPE_CHECKING:  # numbers are checked before anything heavy is imported
    import numpy as np
    from torch import Tensor

LARGEST = 2**63 - 1  # whole number that tensors and files hold
REDUCTIONS = ("mean", "sum", "none")


def number(
    name: str, value: Any, low: float = -math.inf, high: float = math.inf, *, ends: str = "[]", remedy: str = ""
) -> float:
    """`value` as a float inside the interval from `low` to `high`; `ends` are its brackets, e.g. "(]".

    Raises:
        InputError: not a finite number, or outside the interval; `remedy` says what to do where that is not plain.
    """
    number = as_float(value)
    above = number > low if ends[0] == "(" else number >= low
    below = number < high if ends[1] == ")" else number <= high
    if not (math.isfinite(number) and above and below):
        raise InputError(f"{name} must be {_interval(low, high, ends)}, got {shown(value)}{remedy and f'; {remedy}'}")
    return number


def as_float(value: Any) -> float:
    """A number as a float; what is none, or too large for one, as NaN."""
    try:
        return float(value) if isinstance(value, Real) and not isinstance(value, bool) else math.nan
    except OverflowError:
        return math.nan


def _interval(low: float, high: float, ends: str) -> str:
    if low == -math.inf and high == math.inf:
        return "a finite number"
    if high == math.inf:
        return f"a number above {low:g}" if ends[0] == "(" else f"a number, {low:g} or more"
    return f"a number in {'(' if low == -math.inf else ends[0]}{low:g}, {high:g}{ends[1]}"


def integer(name: str, value: Any, low: int, high: int | None = None, *, remedy: str = "") -> int:
    """`value` as an int from `low` on, to `high` if that is given.

    Raises:
        InputError: not a whole number, or outside; `remedy` says what to do where that is not plain.
    """
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    if high is None and whole and value > LARGEST:
        high = LARGEST
    if not whole or value < low or (high is not None and value > high):
        allowed = f"{low} or more" if high is None else f"from {low} to {high}"
        raise InputError(f"{name} must be a whole number, {allowed}, got {shown(value)}{remedy and f'; {remedy}'}")
    return int(value)


def optional(check: Callable[..., Any], **options: Any) -> Callable[[str, Any], Any]:
    """The check of a value that may also be None."""
    return lambda name, value: None if value is None else check(name, value, **options)


def option(default: Any, check: Callable[..., Any], **limits: Any) -> Any:
    """A field of a dataclass and the check of its value: `q: float = option(0.7, checks.number, low=0, high=1)`."""
    return field(default=default, metadata={"check": partial(check, **limits)})


def options(made: Any) -> None:
    """Check the fields of a dataclass that are `option`s, and keep them as their checks return them."""
    for one in fields(made):
        if "check" in one.metadata:
            setattr(made, one.name, one.metadata["check"](one.name, getattr(made, one.name)))


def require(condition: bool, name: str, value: Any, allowed: str) -> None:
    """Raise the standard sentence unless `condition` holds."""
    if not condition:
        raise InputError(f"{name} must be {allowed}, got {shown(value)}")


def choice(name: str, value: Any, allowed: Iterable[str]) -> str:
    """`value` if it is one of the `allowed` words.

    Raises:
        InputError: it is not, with the nearest that is.
    """
    known = list(allowed)
    if not isinstance(value, str) or value not in known:
        raise unknown(name, value, known)
    return value


def interval(name: str, value: Any, low: float, high: float = math.inf) -> tuple[float, float]:
    """`value` as a pair (a, b) of floats with low <= a <= b <= high.

    Raises:
        InputError: not a pair of finite numbers, not in order, or outside.
    """
    first, last = map(as_float, value) if isinstance(value, Sequence) and len(value) == 2 else (math.nan, math.nan)
    if not (low <= first <= last <= high and math.isfinite(last)):
        raise InputError(
            f"{name} must be a pair (a, b) with {low:g} <= a <= b <= {high:g}, got {shown(value)}; reorder or clip it"
        )
    return first, last


def path(name: str, value: Any) -> Path:
    """`value` as a path.

    Raises:
        InputError: it cannot be one.
    """
    given = os.fspath(value) if isinstance(value, str | os.PathLike) else None
    require(isinstance(given, str) and "\0" not in given, name, value, "a path")
    return Path(given or "")


def fraction(name: str, value: Any, *, ends: str = "[]") -> float:
    """`value`, a number or its text, as a float between 0 and 1, which belong to it unless `ends` is "()".

    Raises:
        InputError: not a number, or outside.
    """
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError, RuntimeError):  # the last of a tensor of several numbers
        raise InputError(f"{name} must be a number between 0 and 1, got {shown(value)}; write e.g. 0.4") from None
    if not (0 < number < 1 if ends == "()" else 0 <= number <= 1):  # also where it is NaN
        strictly = "strictly " if ends == "()" else ""
        raise InputError(f"{name} must lie {strictly}between 0 and 1, got {shown(value)}; write 40 % as 0.4")
    return number


def generator(seed: Any) -> np.random.Generator:
    """A random generator from a seed that must be a whole number from 0."""
    import numpy as np

    if isinstance(seed, bool) or not isinstance(seed, Integral) or seed < 0:
        raise InputError(f"seed must be a whole number from 0, got {shown(seed)}; pass e.g. seed=0")
    return np.random.default_rng(int(seed))


def reduction(value: Any) -> str:
    """`value` if it names a reduction.

    Raises:
        InputError: it does not.
    """
    return choice("reduction", value, REDUCTIONS)


def reduce(per_example: Tensor, how: str) -> Tensor:
    """Per-example losses (B,) to their mean, their sum, or as they are."""
    if how == "none":
        return per_example
    return per_example.mean() if how == "mean" else per_example.sum()


def first(bad: Tensor) -> int | None:
    """The first True position of a boolean tensor (B,), or None."""
    where = bad.nonzero()
    return int(where[0]) if len(where) else None


def logits_and_label(logits: Tensor, label: Tensor, num_classes: int | None = None) -> Tensor:
    """Check a batch at the door of a loss, and return its logits in at least single precision.

    Args:
        logits: (B, K) floating point.
        label: (B,) int64, in 0..K-1.
        num_classes: the K a loss was built for, if it was.

    Raises:
        InputError: wrong type, shape or range, naming the offending position.
    """
    import torch

    if not _is_float(logits) or logits.ndim != 2 or logits.numel() == 0:
        raise InputError(f"logits must be a float tensor (B, K) with B, K > 0, got {describe(logits)}")
    size, classes = logits.shape
    if num_classes is not None and classes != num_classes:
        raise InputError(
            f"logits must have num_classes={num_classes} columns, got {classes}; "
            f"build the loss with num_classes={classes} or give the model {num_classes} outputs"
        )
    if not is_dense(label) or label.dtype != torch.int64 or label.shape != (size,):
        raise InputError(f"label must be an int64 tensor ({size},), one per row of logits, got {describe(label)}")
    at = first((label < 0) | (label >= classes))
    if at is not None:
        raise InputError(
            f"label must lie in 0..{classes - 1} (num_classes={classes}), got {int(label[at])} at position {at} of "
            f"the batch; relabel, or give the model more outputs"
        )
    return single(logits)


def single(logits: Tensor) -> Tensor:
    """Half-precision logits (of an autocast forward pass) in single precision, others as they are."""
    import torch

    if not _is_float(logits):
        raise InputError(f"the network must return logits, a float tensor, in training too, got {describe(logits)}")
    return logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits


def describe(value: Any) -> str:
    """A tensor's type and shape, or another value's type, for an error."""
    import torch

    if not isinstance(value, torch.Tensor):
        return type(value).__name__
    if not is_dense(value):  # which may not even have a shape
        return f"a {'nested' if value.is_nested else str(value.layout)} {value.dtype} tensor on {value.device.type}"
    return f"{value.dtype} of shape {tuple(value.shape)}"


def is_dense(value: Any) -> bool:
    """Whether this is an ordinary tensor: not sparse, nested or quantised, nor without values (on `meta`)."""
    import torch

    if not isinstance(value, torch.Tensor) or value.is_nested or value.is_quantized:
        return False
    return value.layout == torch.strided and value.device.type != "meta"


def _is_float(value: Any) -> bool:
    return is_dense(value) and value.is_floating_point()


def boolean(name: str, value: Any) -> bool:
    """`value` if it is True or False.

    Raises:
        InputError: anything else, also what Python would take for one of them.
    """
    if not isinstance(value, bool):
        raise InputError(f"{name} must be True or False, got {shown(value)}")
    return value


def columns(name: str, given: Sequence[str], class_names: Sequence[str]) -> list[int]:
    """Which column of a table is of which class, by their names; columns 0, 1, … are the classes in their order.

    Raises:
        InputError: the columns have other names, so that nobody knows whose they are.
    """
    place = {column: at for at, column in enumerate(given)}
    if len(given) == len(place) == len(class_names) and all(one in place for one in class_names):
        return [place[one] for one in class_names]
    if list(given) == [str(k) for k in range(len(class_names))]:
        return list(range(len(given)))
    strange = next((f", not {shown(one)}" for one in given if one not in class_names), "")
    raise InputError(
        f"{name} must have a column named after each of the {len(class_names)} classes "
        f"({', '.join(class_names[:10])}{', …' if len(class_names) > 10 else ''}){strange}, got {len(given)} columns; "
        "rename them, or save an array with the columns in this order"
    )

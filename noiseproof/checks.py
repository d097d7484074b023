"""What the public door of every method checks, once: hyper-parameters, the reduction, logits and labels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any

import torch
from torch import Tensor

from noiseproof.errors import InputError

REDUCTIONS = ("mean", "sum", "none")


def number(
    name: str, value: Any, low: float = -math.inf, high: float = math.inf, *, ends: str = "[]", remedy: str = ""
) -> float:
    """`value` as a float inside the interval from `low` to `high`; `ends` are its brackets, e.g. "(]".

    Raises:
        InputError: not a finite number, or outside the interval; `remedy` says what to do where that is not plain.
    """
    remedy = remedy and f"; {remedy}"
    interval = f"{'(' if low == -math.inf else ends[0]}{low:g}, {high:g}{')' if high == math.inf else ends[1]}"
    if isinstance(value, bool) or not isinstance(value, Real):
        raise InputError(f"{name} must be a number in {interval}, got {value!r}{remedy}")
    number = float(value)
    above = number > low if ends[0] == "(" else number >= low
    below = number < high if ends[1] == ")" else number <= high
    if not (math.isfinite(number) and above and below):
        raise InputError(f"{name} must lie in {interval}, got {value!r}{remedy}")
    return number


def integer(name: str, value: Any, low: int, *, remedy: str = "") -> int:
    """`value` as an int of at least `low`.

    Raises:
        InputError: not an integer, or too small; `remedy` says what to do where that is not plain.
    """
    if isinstance(value, bool) or not isinstance(value, Integral) or value < low:
        remedy = remedy and f"; {remedy}"
        raise InputError(f"{name} must be an integer of at least {low}, got {value!r}{remedy}")
    return int(value)


def interval(name: str, value: Any, low: float, high: float = math.inf) -> tuple[float, float]:
    """`value` as a pair (a, b) of floats with low <= a <= b <= high.

    Raises:
        InputError: not a pair of finite numbers, not in order, or outside.
    """
    pair = isinstance(value, Sequence) and len(value) == 2 and all(isinstance(end, Real) for end in value)
    if not (pair and low <= value[0] <= value[1] <= high and math.isfinite(value[1])):
        raise InputError(
            f"{name} must be a pair (a, b) with {low:g} <= a <= b <= {high:g}, got {value!r}; reorder or clip it"
        )
    return float(value[0]), float(value[1])


def reduction(value: Any) -> str:
    """`value` if it names a reduction.

    Raises:
        InputError: it does not.
    """
    if value not in REDUCTIONS:
        raise InputError(f"reduction must be one of {', '.join(map(repr, REDUCTIONS))}, got {value!r}")
    return str(value)


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
    if not isinstance(logits, Tensor) or not logits.is_floating_point() or logits.ndim != 2 or logits.numel() == 0:
        raise InputError(f"logits must be a float tensor (B, K) with B, K > 0, got {describe(logits)}")
    size, classes = logits.shape
    if num_classes is not None and classes != num_classes:
        raise InputError(
            f"logits must have num_classes={num_classes} columns, got {classes}; "
            f"build the loss with num_classes={classes} or give the model {num_classes} outputs"
        )
    if not isinstance(label, Tensor) or label.dtype != torch.int64 or label.shape != (size,):
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
    if not isinstance(logits, Tensor) or not logits.is_floating_point():
        raise InputError(f"the network must return logits, a float tensor, in training too, got {describe(logits)}")
    return logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits


def describe(value: Any) -> str:
    """A tensor's type and shape, or another value's type, for an error."""
    return f"{value.dtype} of shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__


def boolean(name: str, value: Any) -> bool:
    """`value` if it is True or False.

    Raises:
        InputError: anything else, also what Python would take for one of them.
    """
    if not isinstance(value, bool):
        raise InputError(f"{name} must be True or False, got {value!r}")
    return value

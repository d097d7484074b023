"""What a public door checks, once: numbers, fractions, seeds, the reduction, logits and labels."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from torch import Tensor

from noiseproof.errors import InputError

REDUCTIONS = ("mean", "sum", "none")


def number(name: str, value: Any, low: float = -math.inf, high: float = math.inf, *, ends: str = "[]") -> float:
    """`value` as a float inside the interval from `low` to `high`; `ends` are its brackets, e.g. "(]".

    Raises:
        InputError: not a finite number, or outside the interval.
    """
    interval = f"{'(' if low == -math.inf else ends[0]}{low:g}, {high:g}{')' if high == math.inf else ends[1]}"
    if isinstance(value, bool) or not isinstance(value, Real):
        raise InputError(f"{name} must be a number in {interval}, got {value!r}")
    number = float(value)
    above = number > low if ends[0] == "(" else number >= low
    below = number < high if ends[1] == ")" else number <= high
    if not (math.isfinite(number) and above and below):
        raise InputError(f"{name} must lie in {interval}, got {value!r}")
    return number


def integer(name: str, value: Any, low: int) -> int:
    """`value` as an int of at least `low`.

    Raises:
        InputError: not an integer, or too small.
    """
    if isinstance(value, bool) or not isinstance(value, Integral) or value < low:
        raise InputError(f"{name} must be an integer of at least {low}, got {value!r}")
    return int(value)


def fraction(name: str, value: Any, *, ends: str = "[]") -> float:
    """`value`, a number or its text, as a float between 0 and 1, which belong to it unless `ends` is "()".

    Raises:
        InputError: not a number, or outside.
    """
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise InputError(f"{name} must be a number between 0 and 1, got {value!r}; write e.g. 0.4") from None
    if not (0 < number < 1 if ends == "()" else 0 <= number <= 1):  # also where it is NaN
        strictly = "strictly " if ends == "()" else ""
        raise InputError(f"{name} must lie {strictly}between 0 and 1, got {value}; write 40 % as 0.4")
    return number


def generator(seed: Any) -> np.random.Generator:
    """A random generator from a seed that must be a whole number from 0."""
    if isinstance(seed, bool) or not isinstance(seed, Integral) or seed < 0:
        raise InputError(f"seed must be a whole number from 0, got {seed!r}; pass e.g. seed=0")
    return np.random.default_rng(int(seed))


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

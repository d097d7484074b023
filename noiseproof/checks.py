"""The one home of argument checks: numbers, flags, reductions, logits and labels, at every public door.

A check returns the value as it is kept, or raises an InputError that names the argument, the value and what is allowed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

from noiseproof.errors import InputError

if TYPE_CHECKING:  # numbers are checked before anything heavy is imported
    import numpy as np
    from torch import Tensor

REDUCTIONS = ("mean", "sum", "none")


def number(
    name: str, value: Any, low: float = -math.inf, high: float = math.inf, *, ends: str = "[]", remedy: str = ""
) -> float:
    """`value` as a float inside the interval from `low` to `high`; `ends` are its brackets, e.g. "(]".

    Raises:
        InputError: not a finite number, or outside the interval; `remedy` says what to do where that is not plain.
    """
    number = float(value) if isinstance(value, Real) and not isinstance(value, bool) else math.nan
    above = number > low if ends[0] == "(" else number >= low
    below = number < high if ends[1] == ")" else number <= high
    if not (math.isfinite(number) and above and below):
        raise InputError(f"{name} must be {_interval(low, high, ends)}, got {value!r}{remedy and f'; {remedy}'}")
    return number


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
    if not whole or value < low or (high is not None and value > high):
        allowed = f"{low} or more" if high is None else f"from {low} to {high}"
        raise InputError(f"{name} must be a whole number, {allowed}, got {value!r}{remedy and f'; {remedy}'}")
    return int(value)


def optional(check: Callable[..., Any], **options: Any) -> Callable[[str, Any], Any]:
    """The check of a value that may also be None."""
    return lambda name, value: None if value is None else check(name, value, **options)


def require(condition: bool, name: str, value: Any, allowed: str) -> None:
    """Raise the standard sentence unless `condition` holds."""
    if not condition:
        raise InputError(f"{name} must be {allowed}, got {value!r}")


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
    import numpy as np

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
    import torch

    if not _is_float(logits) or logits.ndim != 2 or logits.numel() == 0:
        raise InputError(f"logits must be a float tensor (B, K) with B, K > 0, got {describe(logits)}")
    size, classes = logits.shape
    if num_classes is not None and classes != num_classes:
        raise InputError(
            f"logits must have num_classes={num_classes} columns, got {classes}; "
            f"build the loss with num_classes={classes} or give the model {num_classes} outputs"
        )
    if not isinstance(label, torch.Tensor) or label.dtype != torch.int64 or label.shape != (size,):
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

    return f"{value.dtype} of shape {tuple(value.shape)}" if isinstance(value, torch.Tensor) else type(value).__name__


def _is_float(value: Any) -> bool:
    import torch

    return isinstance(value, torch.Tensor) and value.is_floating_point()


def boolean(name: str, value: Any) -> bool:
    """`value` if it is True or False.

    Raises:
        InputError: anything else, also what Python would take for one of them.
    """
    if not isinstance(value, bool):
        raise InputError(f"{name} must be True or False, got {value!r}")
    return value

"""What the values of settings must be: (name, value) -> the value as it is kept, or an InputError.

Nothing heavy is imported here, so that `--help` answers at once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

from noiseproof import checks, schedules

if TYPE_CHECKING:
    from noiseproof.data import LabeledData

positive = partial(checks.number, low=0, ends="()")
below_one = partial(checks.number, low=0, high=1, ends="[)")
from_zero, count, from_two = (partial(checks.integer, low=low) for low in (0, 1, 2))


def one_of_kinds(*kinds: type, allowed: str) -> Callable[[str, Any], Any]:
    """The check of a value that must be of one of these kinds."""

    def check(name: str, value: Any) -> Any:
        checks.require(isinstance(value, kinds), name, value, allowed)
        return value

    return check


def batch_size(name: str, value: Any) -> int | str:
    return (
        "all" if isinstance(value, str) and value == "all" else checks.integer(name, value, 2, remedy="or pass 'all'")
    )


def seed(name: str, value: Any) -> int:
    return checks.integer(name, value, 0)


def schedule(name: str, value: Any) -> Any:
    checks.require(isinstance(value, str) or callable(value), name, value, "text such as 'cosine', or a function")
    schedules.of(value)
    return value


def optimizer(name: str, value: Any) -> Any:
    from noiseproof.training import optimizers

    return optimizers.check(name, value)


def out(name: str, value: Any) -> Any:
    known = (isinstance(value, str | Path) and "\0" not in str(value)) or hasattr(value, "ensure_free")
    checks.require(known, name, value, "the path of a folder, or None")
    return value


def init(name: str, value: Any) -> Any:
    known = isinstance(value, str | Path) or hasattr(value, "weights")
    checks.require(known, name, value, "the folder of a run, a .safetensors file, `Features`, or None")
    return value


def augment(name: str, value: Any) -> Any:
    from noiseproof.data.augment import POLICIES

    each = value if isinstance(value, list | tuple) else [value]
    known = len(each) > 0 and all(isinstance(one, str) or callable(one) for one in each)
    checks.require(known, name, value, "the name of an augmentation, a function, or one of these for each view")
    for one in each:
        if isinstance(one, str) and value != "auto":
            checks.choice("augmentation", one, POLICIES)
    return value


def notes(name: str, value: Any) -> Any:
    try:
        json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        value = object()
    checks.require(value is None or isinstance(value, dict), name, value, "a dict that JSON can hold, or None")
    return value


def progress(name: str, value: Any) -> Any:
    hooks = (getattr(value, hook, None) for hook in ("start", "step", "epoch", "close"))
    known = isinstance(value, bool) or all(map(callable, hooks))
    checks.require(known, name, value, "True, False, or an object with start, step, epoch and close")
    return value


def callbacks(name: str, value: Any) -> Any:
    each = value if isinstance(value, list | tuple) else [value]
    checks.require(all(map(callable, each)), name, value, "a function of an epoch's record, or a list of these")
    return value


def class_weight(name: str, value: Any) -> Any:
    if isinstance(value, str) and value == "balanced":
        return value
    given = isinstance(value, Mapping) and len(value) > 0 and all(isinstance(key, str | Real) for key in value)
    checks.require(given, name, value, "'balanced', or weights by class: cat:2,dog:1 (in Python a dict)")
    weights = {key: checks.number(f"{name} of {key!r}", one, 0) for key, one in value.items()}
    checks.require(any(weights.values()), name, value, "weights of which not all are 0")
    return weights


def sizes(name: str, value: Any) -> list[int]:
    given = isinstance(value, list | tuple) and all(type(size) is int and size >= 1 for size in value)
    checks.require(given, name, value, "whole numbers, 1 or more, e.g. 224,192,160,128,96")
    return list(value)


def dataset(name: str, value: Any) -> LabeledData | float:
    from noiseproof.data.readers.memory import as_data

    return value if name == "val" and isinstance(value, int | float) else as_data(name, value)

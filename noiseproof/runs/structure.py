"""What a file of a run's folder must look like: checked once, where it is read, and trusted from there on.

A pattern is an example of the structure that is expected: a tensor stands for tensors of its shape and type, a list for
lists of its length, a dict for dicts of its keys, a number or text for others of its type. In place of an example:

    int, Tensor | None      whatever is of that type; int is a float too, bool is no number
    range(10)               the whole numbers in it
    [pattern, ...]          a list of any length
    {...: pattern}          a dict of any text as keys
    Some({0: pattern})      a dict of some of these keys
    (None, pattern)         any of several
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from types import UnionType
from typing import Any, get_args

from torch import Tensor

from noiseproof.errors import InputError


class Damaged(InputError):
    """A file that does not hold what it should; `found` says so without the remedy."""

    def __init__(self, path: Path, reason: object, remedy: str = "fetch it again, or begin anew") -> None:
        self.found = f"{path} is damaged or no checkpoint ({reason})"
        super().__init__(f"{self.found}; {remedy}")


class Some(dict[Any, Any]):
    """A pattern: dicts of some of its keys."""


def check(path: Path, value: Any, like: Any) -> None:
    """Raise an error that names the file, unless the value has the structure of the pattern."""
    found = mismatch(value, like)
    if found is not None:
        raise Damaged(path, found)


def mismatch(value: Any, like: Any, at: str = "") -> str | None:
    """Where a value is not of the structure of the pattern, and how; None where it is."""
    if isinstance(like, tuple):
        found = [mismatch(value, one, at) for one in like]
        return None if None in found else found[-1]
    if isinstance(like, dict) and isinstance(value, dict):
        return _mismatch_in_dict(value, like, at)
    if isinstance(like, list) and isinstance(value, list):
        many = bool(like) and like[-1] is ...
        if not many and len(value) != len(like):
            return f"{at} holds {len(value)} entries, not {len(like)}"
        items = enumerate(zip(value, like[:1] * len(value) if many else like, strict=True))
        return _first(mismatch(one, pattern, f"{at}/{i}") for i, (one, pattern) in items)
    return None if _is_like(value, like) else f"{at or 'it'} is {_told(value)}, not {_told(like)}"


def _mismatch_in_dict(value: dict[Any, Any], like: dict[Any, Any], at: str) -> str | None:
    if ... in like:
        named = all(isinstance(key, str) for key in value)
        inside = (mismatch(one, like[...], f"{at}/{key}") for key, one in value.items())
        return _first(inside) if named else f"{at} has keys that are no text"
    odd = value.keys() - like.keys() if isinstance(like, Some) else value.keys() ^ like.keys()
    for key in sorted(odd, key=lambda key: (key not in like, str(key))):
        return f"{at}/{str(key)[:40]} is {'missing' if key in like else 'unknown'}"
    return _first(mismatch(one, like[key], f"{at}/{key}") for key, one in value.items())


def _first(found: Iterable[str | None]) -> str | None:
    return next((one for one in found if one is not None), None)


def _is_like(value: Any, like: Any) -> bool:
    if isinstance(like, Tensor):
        return isinstance(value, Tensor) and (value.dtype, value.shape) == (like.dtype, like.shape)
    if isinstance(like, range):
        return type(value) is int and value in like
    kinds = get_args(like) if isinstance(like, UnionType) else (like if isinstance(like, type) else type(like),)
    if isinstance(value, bool):
        return bool in kinds or object in kinds
    return isinstance(value, kinds) or (isinstance(value, int) and float in kinds)


def _told(value: Any) -> str:
    """A value or a pattern, in a word or two."""
    if isinstance(value, Tensor):
        return f"a {str(value.dtype).removeprefix('torch.')} tensor {tuple(value.shape)}"
    if isinstance(value, type):
        return value.__name__
    return str(value) if isinstance(value, range | UnionType) else type(value).__name__

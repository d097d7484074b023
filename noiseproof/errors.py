"""The one error type for a caller's mistake, and what turns others into it: damaged files, too little memory."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from os import PathLike
from typing import Any

_LONG_WORD = re.compile(r"\S{400,}")  # no path is, or hardly
_TOO_MUCH = ("allocate", "out of memory", "overflow", "array is too big", "too large to", "maximum allowed")


class InputError(ValueError):
    """A caller's mistake, said in one sentence that ends in a remedy.

    The command line prints the sentence and exits 2; everything else that is raised is a mistake of ours. What a caller
    gave may stand in it, also a name of 5,000 characters: a word that long is shortened.
    """

    def __init__(self, sentence: str) -> None:
        super().__init__(_LONG_WORD.sub(lambda word: shortened(word[0], 160), sentence))


@contextmanager
def naming(source: str | PathLike[str]) -> Iterator[None]:
    """Errors of the block begin with the file or folder that they are about."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{source}: {error}") from error


@contextmanager
def damage(said: str, remedy: str = "fetch it again") -> Iterator[None]:
    """Around what reads a file, and nothing else: whatever it raises, as damage can be anything, is an InputError."""
    try:
        yield
    except (InputError, PermissionError):
        raise
    except Exception as error:
        raise InputError(f"{said} ({reason(error)}); {remedy}") from error


@contextmanager
def enough_memory() -> Iterator[None]:
    """Around a whole command or call: a size that no memory holds is an InputError, whichever library refuses it."""
    try:
        yield
    except (MemoryError, RuntimeError, ValueError, TypeError, OverflowError) as error:
        refused = isinstance(error, MemoryError) or any(words in str(error).lower() for words in _TOO_MUCH)
        if isinstance(error, InputError) or not refused:
            raise
        raise InputError(
            f"this needs more memory than there is ({reason(error)}); "
            "lower the batch size, the image size or the sizes of the network"
        ) from error


def reason(error: BaseException) -> str:
    """What another library's error says, in one line of sensible length."""
    said = str(error).split("Exception raised from")[0]  # torch adds where in its C++
    return shortened(" ".join(said.split()) or type(error).__name__, 200)


def shown(value: Any) -> str:
    """A caller's value, for an error: its repr in one line, shortened."""
    try:
        return shortened(" ".join(repr(value).split("\n")), 120)
    except Exception:  # an integer of 5,000 digits, say, or a stranger's __repr__
        return f"a {type(value).__name__} that cannot be shown"


def shortened(text: str, most: int) -> str:
    """`text` if it has no more than so many characters, else its beginning and its end."""
    return text if len(text) <= most else f"{text[: most // 2]} … {text[-most // 4 :]}"


def unknown(kind: str, name: Any, known: Iterable[str]) -> InputError:
    """The error for a `name` that is not among the `known` ones of its `kind`, with the nearest of them."""
    names = sorted(known)
    near = difflib.get_close_matches(str(name)[:100], names, n=1, cutoff=0.5) if isinstance(name, str) else []
    remedy = f"did you mean {near[0]!r}?" if near else f"choose from {', '.join(names)}"
    return InputError(f"unknown {kind} {shown(name)}; {remedy}")

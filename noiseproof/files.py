"""Files that appear whole or not at all, and JSON that may be damaged."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from noiseproof.errors import InputError

_DEEPEST = 100  # levels of JSON; a checkpoint has about twenty


@contextmanager
def replacing(path: Path, *, keep: Path | None = None) -> Iterator[Path]:
    """A temporary sibling of `path` to write to; afterwards it is made durable and takes the place of `path`.

    With `keep`, what stood at `path` is there from then on. A kill between the two moves leaves that one alone.

    Raises:
        InputError: the disk is full or the folder cannot be written; what stood at `path` is untouched.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        os.chmod(temporary, 0o666 & ~_umask())  # some writers make private files; these are ordinary ones
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        if keep is not None and path.exists():
            os.replace(path, keep)
        os.replace(temporary, path)
    except OSError as error:
        reason = error.strerror or error
        raise InputError(f"cannot write {path}: {reason}; free space or write elsewhere") from error
    finally:
        if temporary.exists():
            temporary.unlink()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def write_atomically(path: Path, write: Callable[[Path], object], *, keep: Path | None = None) -> None:
    """Let `write` fill a file that then takes the place of `path`; see `replacing`."""
    with replacing(path, keep=keep) as temporary:
        write(temporary)


def cache_folder() -> Path:
    """Where what can be computed again is kept."""
    return Path(os.environ.get("NOISEPROOF_CACHE") or Path.home() / ".cache" / "noiseproof")


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically."""
    write_atomically(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def parse_json(text: str | bytes) -> Any:
    """What JSON of unknown origin says.

    Raises:
        ValueError: it is none, or nested deeper than anything here is: to walk it could exhaust the stack.
    """
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not _is_shallow(value, _DEEPEST):
        raise ValueError("nested too deeply")
    return value


def _is_shallow(value: Any, levels: int) -> bool:
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return levels > 0 and all(_is_shallow(one, levels - 1) for one in inside)

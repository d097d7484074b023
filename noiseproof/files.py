"""Files that appear whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from noiseproof.errors import InputError


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary sibling of `path` to write to; afterwards it is made durable and takes the place of `path`.

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


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a file that then takes the place of `path`; see `replacing`."""
    with replacing(path) as temporary:
        write(temporary)


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically."""
    write_atomically(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))

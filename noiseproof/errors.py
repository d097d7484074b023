"""The one error type for a caller's mistake, and the did-you-mean that goes with unknown names."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from os import PathLike


class InputError(ValueError):
    """A caller's mistake, said in one sentence that ends in a remedy.

    The command line prints the sentence and exits 2; everything else that is raised is a mistake of ours.
    """


@contextmanager
def naming(source: str | PathLike[str]) -> Iterator[None]:
    """Errors of the block begin with the file or folder that they are about."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{source}: {error}") from error


def unknown(kind: str, name: str, known: Iterable[str]) -> InputError:
    """The error for a `name` that is not among the `known` ones of its `kind`, with the nearest of them."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    remedy = f"did you mean {near[0]!r}?" if near else f"choose from {', '.join(names)}"
    return InputError(f"unknown {kind} {name!r}; {remedy}")

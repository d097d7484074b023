"""The methods, one file per paper; each file found here is a method by its `name`.

    build("early_stop(elr(lam=7), patience=5)")     what the command line and `fit` call
    registry()["elr"]                               the class of a name
    table()                                         what there is, for people

Adding a method is adding a file: nothing here lists them.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from functools import cache
from typing import Any, NamedTuple

from noiseproof.calls import build_as
from noiseproof.method import Method


class Entry(NamedTuple):
    """One line of `table()`."""

    name: str  # what the command line calls it
    cls: str  # what Python calls it
    paper: str
    needs: str
    cost: str  # of a training step, relative to cross-entropy
    description: str
    options: dict[str, Any]  # defaults; a wrapper's inner method is not among them


def registry() -> dict[str, type[Method]]:
    """Every method of this package by name, in alphabetical order."""
    return dict(_discover())


@cache
def _discover() -> tuple[tuple[str, type[Method]], ...]:
    found: dict[str, type[Method]] = {}
    for module_info in pkgutil.iter_modules(__path__):
        if module_info.name.startswith("_"):
            continue
        module = importlib.import_module(f"{__name__}.{module_info.name}")
        for cls in vars(module).values():
            named = inspect.isclass(cls) and issubclass(cls, Method) and "name" in vars(cls)
            if named and cls.__module__ == module.__name__:
                assert cls.name not in found, f"{cls.__name__} and {found[cls.name].__name__} share {cls.name!r}"
                found[cls.name] = cls
    return tuple(sorted(found.items()))


def build(method: str | Method) -> Method:
    """A method as it is, or from text such as `elr`, `elr(beta=0.9)` or `early_stop(elr(lam=7), patience=5)`.

    Text is what `Method.describe` gives. Values are Python literals; nothing is evaluated. Names may be written with
    `-` for `_` and in any case.

    Raises:
        InputError: an unknown method or option (with the nearest known one), a wrapper without an inner method, an
            inner method where none belongs, text that is no call, a value that the method refuses, or no method.
    """
    return build_as(Method, method, registry(), kind="method", name="method", example="elr(beta=0.9)")


def table() -> list[Entry]:
    """What methods there are, what each needs and costs."""
    entries = []
    for name, cls in registry().items():
        parameters = inspect.signature(cls).parameters.values()
        options = {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}
        description = inspect.cleandoc(cls.__doc__ or "").split("\n\n")[0].replace("\n", " ")
        entries.append(Entry(name, cls.__name__, cls.paper, cls.needs, cls.cost, description, options))
    return entries

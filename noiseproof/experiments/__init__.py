"""The papers' figures and tables, each a class with one command: `noiseproof reproduce NAME`.

To add one, write a subclass of `Experiment` (experiment.py) in a file of this folder: it is found by itself.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil

from noiseproof.errors import unknown
from noiseproof.experiments.experiment import Experiment


def experiments() -> dict[str, Experiment]:
    """Every experiment by its name, in alphabetical order."""
    found = {}
    for module in pkgutil.iter_modules(__path__):
        for _, kind in inspect.getmembers(importlib.import_module(f"{__name__}.{module.name}"), inspect.isclass):
            if issubclass(kind, Experiment) and "name" in vars(kind):
                found[kind.name] = kind()
    return dict(sorted(found.items()))


def build(name: str) -> Experiment:
    """The experiment of that name.

    Raises:
        InputError: there is none.
    """
    known = experiments()
    if name not in known:
        raise unknown("experiment", name, known)
    return known[name]

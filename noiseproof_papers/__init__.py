"""The papers' figures and tables, each a class with one command: `noiseproof reproduce NAME`.

A folder for each paper holds its formulas, its figures and tables, and their settings. Shared: grid.py runs the cells
of an experiment, fits.py has those that are runs of `fit`, drawing.py what pictures have in common, datadir.py finds
data sets. To add an experiment, write a subclass of `Experiment` (experiment.py) in a file of its paper's folder: it is
found by itself.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from typing import TYPE_CHECKING

from noiseproof.errors import unknown

if TYPE_CHECKING:
    from noiseproof_papers.experiment import Experiment


def experiments() -> dict[str, Experiment]:
    """Every experiment by its name, in alphabetical order."""
    from noiseproof_papers.experiment import Experiment

    found = {}
    for module in pkgutil.walk_packages(__path__, f"{__name__}."):
        for kind in vars(importlib.import_module(module.name)).values():
            if inspect.isclass(kind) and issubclass(kind, Experiment) and "name" in vars(kind):
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

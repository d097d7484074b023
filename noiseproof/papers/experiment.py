"""What an experiment is: a grid of cells, the figures of a cell, and a picture and a table of them all."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from noiseproof.papers.datadir import DataDir

Cell = dict[str, Any]  # the JSON parameters of one piece of work
Table = tuple[list[str], list[list[str]]]  # header, rows


class Done(NamedTuple):
    """A cell and what came out."""

    cell: Cell
    figures: dict[str, Any]


class Experiment(ABC):
    """A figure or a table of a paper. It keeps no state: grid.py runs its cells, in any order, in any process."""

    name: ClassVar[str]  # what the command line calls it, e.g. "sop-fig2"
    title: ClassVar[str]  # one line: what it shows
    paper: ClassVar[str]  # e.g. "Liu et al. 2022, Figure 2"
    scales: ClassVar[tuple[str, ...]] = ("small", "paper")  # sizes it can be run at; the first is the default

    timed: ClassVar[bool] = False  # its figures are times: cells must not share the cores
    kind: ClassVar[str | None] = None  # experiments of one kind have equal figures for equal cells, and share them

    @abstractmethod
    def cells(self, scale: str, seeds: int | None) -> list[Cell]:
        """The grid: what determines each cell, as JSON. `seeds` is how many runs of each; None for the usual."""

    @abstractmethod
    def run(self, cell: Cell, data: DataDir) -> dict[str, Any]:
        """The figures of one cell, as JSON. The same cell gives the same figures."""

    @abstractmethod
    def draw(self, done: list[Done], path: Path) -> None:
        """Write the picture, a PNG."""

    def table(self, done: list[Done]) -> Table | None:
        """Header and rows; None where a picture says it all."""
        return None

"""What an experiment is: a grid of cells, the figures of a cell, and a picture and a table of them all.

Below it what tables share: cells that have something in common, and numbers over runs as text.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from noiseproof.benching.cells import Cell as Cell
from noiseproof.benching.statistics import spread as spread
from noiseproof_papers.datadir import DataDir

Table = tuple[list[str], list[list[str]]]  # header, rows


class Done(NamedTuple):
    """A cell and what came out."""

    cell: Cell
    figures: dict[str, Any]


class Missing(dict[str, Any]):
    """The figures of a cell that is yet to be run: each is None, a – in a table."""

    def __missing__(self, key: str) -> None:
        return None


class Experiment(ABC):
    """A figure or a table of a paper. It keeps no state: grid.py runs its cells, in any order, in any process."""

    name: ClassVar[str]  # what the command line calls it, e.g. "sop-fig2"
    title: ClassVar[str]  # one line: what it shows
    paper: ClassVar[str]  # e.g. "Liu et al. 2022, Figure 2"
    scales: ClassVar[tuple[str, ...]] = ("small", "paper")  # sizes it can be run at; the first is the default

    timed: ClassVar[bool] = False  # its figures are times: cells must not share the cores
    kept: ClassVar[tuple[str, ...] | None] = None  # figures that its published results keep, by path; None: all numbers
    gapped: ClassVar[bool] = False  # its table can do with cells that are `Missing`
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


def group(done: Iterable[Done], key: Callable[[Cell], Any]) -> dict[Any, list[dict[str, Any]]]:
    """The figures of cells that share a key, e.g. over the seeds; in order of appearance."""
    groups: dict[Any, list[dict[str, Any]]] = {}
    for one in done:
        groups.setdefault(key(one.cell), []).append(one.figures)
    return groups


def where(done: Iterable[Done], **wanted: Any) -> list[Done]:
    """The cells of which these parameters have these values."""
    return [one for one in done if all(one.cell[key] == value for key, value in wanted.items())]


def spreads(figures: Sequence[dict[str, Any]], *keys: str, percent: bool = True) -> list[str]:
    """The `spread` of each key over runs."""
    return [spread([one[key] for one in figures], percent=percent) for key in keys]


def crossed(
    done: Iterable[Done],
    corner: str,
    row: Callable[[Cell], str],
    column: Callable[[Cell], str],
    entry: Callable[[list[dict[str, Any]]], str],
) -> Table:
    """A table whose entries are of the figures of the cells that share a row and a column."""
    groups = group(done, lambda c: (row(c), column(c)))
    columns = list(dict.fromkeys(key[1] for key in groups))
    rows = [
        [name, *(entry(groups[name, one]) if any(groups[name, one]) else "–" for one in columns)]
        for name in dict.fromkeys(key[0] for key in groups)
    ]
    return [corner, *columns], rows


def span(values: Sequence[float]) -> str:
    """The least and the largest of whole numbers or, with two digits, of others."""
    low, high = (f"{one:,}" if isinstance(one, int) else f"{one:.2f}" for one in (min(values), max(values)))
    return low if low == high else f"{low}–{high}"

"""Finished cells as tables: methods in rows, settings in columns, figures over seeds.

What is compared is the model one gets, `kept`: for most methods that of the last epoch. Without a test set of right
labels it is `agreed`, the agreement with held-out labels as they are.
"""

from __future__ import annotations

import json
import math
import re
import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from noiseproof.benching.cells import Cell, Record
from noiseproof.benching.statistics import critical_difference, difference, mean_ranks, spread
from noiseproof.errors import InputError
from noiseproof.runs.report import Linked

BASE = "ce"
Rows = tuple[list[str], list[list[Any]]]  # header, rows


@dataclass(frozen=True)
class Entry:
    """The runs of a method in a setting, in the order of their seeds."""

    method: str
    column: str
    cells: list[Cell]
    figures: list[dict[str, Any]]
    commits: list[str]

    def values(self, name: str) -> list[float | None]:
        return [one.get(name) for one in self.figures]

    def mean(self, name: str) -> float:
        """NaN where a run has no such figure, e.g. as it failed."""
        numbers = [math.nan if value is None else value for value in self.values(name)]
        return statistics.fmean(numbers)


class Board:
    """The entries of a grid that had the same budget, of all data sets or of one."""

    def __init__(self, records: Iterable[Record], budget: str = "epochs", data: str | None = None) -> None:
        groups: dict[tuple[str, str], list[Record]] = {}
        for record in (one for one in records if one["cell"]["budget"] == budget):
            if data not in (None, data_name(record["cell"])):
                continue
            groups.setdefault((record["cell"]["method"], _setting(record["cell"])), []).append(record)
        names = _named({setting: group[0]["cell"] for (_, setting), group in groups.items()})
        self.entries: dict[tuple[str, str], Entry] = {}
        for (method, setting), group in groups.items():
            group.sort(key=lambda record: record["cell"]["seed"])
            cells, figures = [one["cell"] for one in group], [one["figures"] for one in group]
            commits = list(dict.fromkeys(one["commit"] for one in group))
            self.entries[method, names[setting]] = Entry(method, names[setting], cells, figures, commits)
        self.data = data
        self.columns = list(dict.fromkeys(column for _, column in self.entries))
        self.methods = list(dict.fromkeys(method for method, _ in self.entries))
        if not self.entries:
            raise InputError(f"there are no finished cells of equal {budget}; run some first")
        tested = any(one.get("kept") is not None for entry in self.entries.values() for one in entry.figures)
        self.figure = "kept" if tested else "agreed"

    @cached_property
    def ranked(self) -> list[str]:
        """The methods that every column has, the best first by their mean ranks."""
        return sorted(self.ranks, key=self.ranks.__getitem__)

    @cached_property
    def ranks(self) -> dict[str, float]:
        """The mean rank of each method that every column has; one that failed is last there."""
        whole = [name for name in self.methods if all((name, column) in self.entries for column in self.columns)]
        scores = [[self.entries[name, column].mean(self.figure) for name in whole] for column in self.columns]
        return dict(zip(whole, mean_ranks(np.nan_to_num(scores, nan=-1.0)), strict=True)) if whole else {}

    @property
    def critical_difference(self) -> float:
        return critical_difference(len(self.ranks), len(self.columns))

    @property
    def order(self) -> list[str]:
        """All methods: those that are ranked, then the others."""
        return [*self.ranked, *(name for name in self.methods if name not in self.ranks)]

    def crossed(self, corner: str, entry: Callable[[Entry], str], overall: Callable[[str], str] | None = None) -> Rows:
        """A table whose entries link to their settings; `overall` is a column of its own before the others."""
        rows: list[list[Any]] = []
        for method in self.order:
            found = [self.entries.get((method, column)) for column in self.columns]
            cells = ["–" if one is None else Linked(entry(one), self.anchor(one), hint(one)) for one in found]
            rows.append([method, *([] if overall is None else [overall(method)]), *cells])
        short = [column.removeprefix(f"{self.data} ") for column in self.columns]
        return [corner, *([] if overall is None else ["all"]), *short], rows

    @staticmethod
    def anchor(entry: Entry) -> str:
        """Where the page has the settings of an entry."""
        words = f"{entry.cells[0]['budget']} {entry.method} {entry.column}"
        return re.sub(r"[^a-z0-9.]+", "-", words.lower()).strip("-")

    @cached_property
    def sets(self) -> dict[str, list[str]]:
        """The data sets, with their columns."""
        found: dict[str, list[str]] = {}
        for (_, column), entry in self.entries.items():
            found.setdefault(data_name(entry.cells[0]), []).append(column)
        return {name: list(dict.fromkeys(columns)) for name, columns in found.items()}

    def by_set(self) -> Rows:
        """Means over all columns, with the mean rank, and over a data set's where a method has all of them."""
        rows: list[list[Any]] = []
        for method in self.order:
            cells: list[Any] = []
            for data, columns in self.sets.items():
                found = [one for column in columns if (one := self.entries.get((method, column))) is not None]
                if len(found) < len(columns):
                    cells.append("–")
                    continue
                mean = statistics.fmean(one.mean(self.figure) for one in found)
                cells.append(Linked(f"{100 * mean:.1f}", self.anchor(found[0]), f"{len(columns)} columns of {data}"))
            some = f"{len(self.row(method))} of {len(self.columns)} columns"
            rows.append([method, self._mean_and_rank(method) if method in self.ranks else some, *cells])
        return ["method", "all", *self.sets], rows

    def accuracy(self) -> Rows:
        """The model kept: mean ± standard deviation over seeds; before it mean and mean rank over all columns."""
        return self.crossed("method", lambda one: spread(one.values(self.figure)), self._mean_and_rank)

    def _mean_and_rank(self, method: str) -> str:
        means = [one.mean(self.figure) for one in self.row(method)]
        some = f" ({len(means)} of {len(self.columns)})"  # no mean to compare with those of all columns
        rank = f", rank {self.ranks[method]:.1f}" if method in self.ranks else some
        return "–" if not means else f"{100 * statistics.fmean(means):.1f}{rank}"

    def row(self, method: str) -> list[Entry]:
        """What there is of a method."""
        return [self.entries[method, one] for one in self.columns if (method, one) in self.entries]

    def epochs(self) -> Rows:
        """The last epoch, and in brackets the best by held-out noisy labels."""
        return self.crossed("last (best)", lambda one: f"{spread(one.values('last'))} ({spread(one.values('best'))})")

    def against(self) -> Rows:
        """Points above ce, by pairs of the same seed, with half of the 95 % interval."""
        return self.crossed("points above ce", lambda one: _points(self._gaps(one)), self._points_in_all)

    def _gaps(self, entry: Entry) -> list[float]:
        """How far each run lies above that of ce of the same seed."""
        return [one - other for one, other in self._pairs(entry, self.figure)]

    def _pairs(self, entry: Entry, name: str) -> list[tuple[float, float]]:
        """A figure of each run, and of ce of the same seed, where both have it."""
        base = self.entries.get((BASE, entry.column))
        known = {} if base is None else {c["seed"]: v for c, v in zip(base.cells, base.values(name), strict=True)}
        pairs = [(v, known.get(c["seed"])) for c, v in zip(entry.cells, entry.values(name), strict=True)]
        return [(one, other) for one, other in pairs if one is not None and other is not None]

    def _points_in_all(self, method: str) -> str:
        gaps = [statistics.fmean(one) for entry in self.row(method) if (one := self._gaps(entry))]
        return _points(gaps)

    def wrong_labels(self) -> Rows:
        """How well a run finds the wrong labels: AUROC of the method's suspicion, F1 of the audit's list."""
        return self.crossed(
            "AUROC / F1", lambda one: " / ".join(spread(one.values(name), percent=False) for name in ("auroc", "f1"))
        )

    def cost(self) -> Rows:
        """Processor seconds of a run, in the median and over those of ce, and the largest memory."""
        rows: list[list[Any]] = []
        for method in self.order:
            entries = self.row(method)
            seconds = [v for one in entries for v in one.values("processor") if v is not None]
            memory = [v for one in entries for v in one.values("peak_mb") if v is not None]
            ratio = self.cost_of(method)
            rows.append([
                method, f"{statistics.median(seconds):.1f}" if seconds else "–",
                "–" if ratio is None else f"{ratio:.2f}", f"{max(memory):,.0f}" if memory else "–",
            ])  # fmt: skip
        return ["method", "processor s", "times ce", "peak MB"], rows

    def cost_of(self, method: str) -> float | None:
        """The processor time of a method over that of ce: the median of pairs."""
        ratios = [one / other for entry in self.row(method) for one, other in self._pairs(entry, "processor")]
        return statistics.median(ratios) if ratios else None

    def regret(self) -> Rows:
        """Points of each method below the best of its column: mean and worst; and the least against ce.

        Of the methods that every column has, if there are any: means over some columns do not compare.
        """
        rows: list[list[Any]] = []
        for method in self.ranked or self.order:
            entries = self.row(method)
            gaps = [self._below_best(one) for one in entries]
            base = [100 * statistics.fmean(one) for entry in entries if (one := self._gaps(entry))]
            cost = self.cost_of(method)
            rows.append([
                method, f"{statistics.fmean(gaps):.2f}", f"{max(gaps):.2f}",
                f"{min(base):+.2f}" if base else "–", "–" if cost is None else f"{cost:.2f}",
            ])  # fmt: skip
        return ["method", "mean regret", "worst", "least against ce", "cost"], rows

    def _below_best(self, entry: Entry) -> float:
        best = max(
            one.mean(self.figure)
            for (_, column), one in self.entries.items()
            if column == entry.column and not math.isnan(one.mean(self.figure))
        )
        return 100 * (best - np.nan_to_num(entry.mean(self.figure)))

    def settings(self) -> Rows:
        """Every entry with all that is needed to run it again."""
        rows: list[list[Any]] = []
        for one in self.entries.values():
            name = Linked(f"{one.method}, {one.column}", None, "", self.anchor(one))
            seeds = ", ".join(str(cell["seed"]) for cell in one.cells)
            values = ", ".join("–" if v is None else f"{100 * v:.2f}" for v in one.values(self.figure))
            failed = {figures["failed"] for figures in one.figures if "failed" in figures}
            cell = one.cells[0]
            how = ", ".join(f"{k} {v}" for k, v in cell["fit"].items() if v is not None)
            what = f"{cell['limit'] or 'all'} rows, {how}; {cell['options']}"
            rows.append([name, f"seeds {seeds}: {values}; {what}; commit {', '.join(one.commits)} {' '.join(failed)}"])
        return [], rows


def hint(entry: Entry) -> str:
    """The settings of an entry in a line."""
    fit = entry.cells[0]["fit"]
    return (
        f"{entry.cells[0]['options']}; {fit['model']}, {fit['epochs']} epochs, lr {fit['lr']}; {len(entry.cells)} seeds"
    )


def _points(gaps: list[float]) -> str:
    if not gaps:
        return "–"
    mean, half = difference([100 * gap for gap in gaps], [0.0] * len(gaps))
    return f"{mean:+.1f}" + ("" if math.isnan(half) else f" ± {half:.1f}")


def _setting(cell: Cell) -> str:
    """What cells of one column share: all but the method, the seed, and the epochs where they follow from time."""
    fit = {name: value for name, value in cell["fit"].items() if cell["budget"] == "epochs" or name != "epochs"}
    kept = {name: value for name, value in cell.items() if name not in ("method", "options", "seed")}
    return json.dumps(kept | {"fit": fit}, sort_keys=True)


def _named(settings: dict[str, Cell]) -> dict[str, str]:
    """A short name for each setting: its data and noise, numbered where that is not enough."""
    names: dict[str, str] = {}
    for setting, cell in settings.items():
        name, number = column_name(cell), 2
        while name in names.values():
            name, number = f"{column_name(cell)} ({number})", number + 1
        names[setting] = name
    return names


def data_name(cell: Cell) -> str:
    """`digits`, `cifar10-train (imagenet)`."""
    source = cell["source"]
    return Path(source["data"]).name.split(".")[0] + (f" ({source['features']})" if source.get("features") else "")


def column_name(cell: Cell) -> str:
    """`digits symmetric:0.4`."""
    data, noise = data_name(cell), cell["noise"]
    return data if noise is None else f"{data} {noise.rpartition(':')[2] if noise.startswith('labels:') else noise}"

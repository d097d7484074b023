"""The results that the docs and the ledger cite: a small file for each experiment and scale, in its paper's results/.

    experiment, scale, command    what was run
    source    "run", or "table": transcribed from the table that the docs had at `commit`, whose raw figures are gone
    commit    of the run, or of that table
    seeds     runs of each setting, in an unfinished grid of the one with fewest; 1: nothing is known of the spread
    done      of a grid that is not finished: how many of how many cells it has, [5, 24]; else left out
    table     header and rows as `noiseproof reproduce` prints them; ± is a standard deviation unless the docs say else
    cells     the figures behind it, by seed, for each setting: what sets it apart from the others; none of a table

Beside it lies NAME-SCALE.jsonl, the log of the cells: `reproduce` takes them over, on any machine, and runs the others.
`noiseproof reproduce NAME --publish` writes both; with `--cells 0`, of what there is.
"""

from __future__ import annotations

import inspect
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scipy import stats

from noiseproof import files
from noiseproof.errors import InputError, unknown
from noiseproof_papers.experiment import Cell, Done, Experiment, Table

FOLDER = "results"
SOURCES = ("run", "table")
_DIGITS = 5  # significant ones of a figure that is kept
_LONG = 16  # numbers: longer lists are curves, which are not kept
NUMBER = re.compile(r"[+−-]?\d[\d,]*(?:\.\d+)?(?:e[+−-]?\d+)?")


@dataclass(frozen=True)
class Results:
    """What a file holds."""

    experiment: str
    scale: str
    source: str
    commit: str
    seeds: int
    command: str
    header: list[str]
    rows: list[list[str]]
    cells: list[dict[str, Any]]
    done: tuple[int, int] | None = None  # cells of an unfinished grid, of how many

    @property
    def name(self) -> str:
        """What docs and ledger call it, and the file."""
        return f"{self.experiment}-{self.scale}"

    def entry(self, row: str, column: str) -> str:
        """The entry in the row that begins with these cells, written with commas between, under that head."""
        found = [one for one in self.rows if any(", ".join(one[:i]) == row for i in range(1, len(one)))]
        if len(found) != 1 or column not in self.header:
            raise InputError(f"{self.name} has {len(found)} rows {row!r}, and columns {self.header}; name one of each")
        return found[0][self.header.index(column)]

    def difference(self, row: str, other: str, column: str) -> tuple[float, float]:
        """How far the one is above the other, and half of its 95 % interval (Welch's t); NaN of a single seed."""
        (mean, spread), (base, apart) = (mean_and_spread(self.entry(one, column)) for one in (row, other))
        if self.seeds < 2 or math.isnan(spread + apart):
            return mean - base, math.nan
        squares = [spread**2 / self.seeds, apart**2 / self.seeds]
        error = math.sqrt(sum(squares))
        if error == 0:
            return mean - base, 0.0
        freedom = (self.seeds - 1) * sum(squares) ** 2 / sum(one**2 for one in squares)
        return mean - base, float(stats.t.ppf(0.975, freedom)) * error


def numbers(text: str) -> list[float]:
    """The numbers in a text, in order."""
    return [float(one.replace("−", "-").replace(",", "")) for one in NUMBER.findall(text)]


def mean_and_spread(text: str) -> tuple[float, float]:
    """The first number of an entry, and what stands after a ± that follows it; NaN if nothing does."""
    found = NUMBER.search(text)
    if found is None:
        raise InputError(f"there is no number in {text!r}; cite an entry that has one")
    rest = text[found.end() :].lstrip(" %")
    return numbers(found[0])[0], numbers(rest)[0] if rest.startswith("±") else math.nan


def load() -> dict[str, Results]:
    """Every file of results by its name.

    Raises:
        InputError: one that is not what `publish` writes.
    """
    found = {}
    for path in sorted(Path(__file__).parent.glob(f"*/{FOLDER}/*.json")):
        content = files.parse_json(path.read_bytes())
        table = content.pop("table")
        content |= {"done": tuple(content["done"])} if "done" in content else {}
        one = Results(**content, header=table["header"], rows=table["rows"])
        if one.name != path.stem or one.source not in SOURCES:
            raise InputError(f"{path} holds results of {one.name} from {one.source!r}; mend the file or its name")
        found[one.name] = one
    return found


def find(name: str, known: dict[str, Results]) -> Results:
    """The results of that name.

    Raises:
        InputError: there are none.
    """
    if name not in known:
        raise unknown("file of results", name, known)
    return known[name]


def logs(experiment: Experiment, scale: str) -> list[Path]:
    """The published logs in which there may be cells of an experiment: its own; of one of a kind, all."""
    own = folder_of(experiment) / f"{experiment.name}-{scale}.jsonl"
    every = Path(__file__).parent.glob(f"*/{FOLDER}/*.jsonl")
    return [path for path in {own, *every} if path.is_file() and (path == own or experiment.kind is not None)]


def folder_of(experiment: Experiment) -> Path:
    """The results/ of an experiment's paper."""
    return Path(inspect.getfile(type(experiment))).parent / FOLDER


def publish(experiment: Experiment, grid: Path, folder: Path | None = None) -> Path:
    """Write the files of results of a grid, finished or not, from the results.json that `grid.reproduce` left.

    Args:
        experiment: whose grid it is.
        grid: the results.json.
        folder: where to; by default the results/ of the experiment's paper.
    """
    content = files.parse_json(grid.read_bytes())
    records, table, scale = content["cells"], content["table"], content["scale"]
    if not records:
        raise InputError(f"no cell of {experiment.name} is done; run some, then publish")
    if table is None:
        why = "no table of an unfinished grid; finish it" if content["missing"] else "no table to cite; give it one"
        raise InputError(f"{experiment.name} has {why}")
    done = [Done(record["cell"], record["figures"]) for record in records]
    missing = [Done(cell, {}) for cell in content["missing"]]
    asked, usual = _runs(done + missing), _runs([Done(cell, {}) for cell in experiment.cells(scale, None)])
    command = f"noiseproof reproduce {experiment.name}"
    command += "" if scale == experiment.scales[0] else f" --scale {scale}"
    command += "" if asked == usual else f" --seeds {asked}"
    head: dict[str, Any] = {
        "experiment": experiment.name, "scale": scale, "source": "run", "commit": content["machine"]["commit"],
        "seeds": _runs(done, min) if missing else asked, "command": command,
    }  # fmt: skip
    head |= {"done": [len(done), len(done + missing)]} if missing else {}
    folder = folder_of(experiment) if folder is None else folder
    path = folder / f"{experiment.name}-{scale}.json"
    folder.mkdir(parents=True, exist_ok=True)
    files.write_text(path, _lines(head, table, list(_groups(done, experiment.kept))))
    kept = [{key: value for key, value in record.items() if key != "published"} for record in records]
    files.write_text(path.with_suffix(".jsonl"), "".join(json.dumps(record) + "\n" for record in kept))
    return path


def _runs(done: list[Done], of: Callable[[Iterable[int]], int] = max) -> int:
    """Runs of each setting: cells that differ by their seed, or trials within one."""
    return of(len(one["seeds"]) for one in _groups(done, ())) * max(one.cell.get("trials", 1) for one in done)


def _lines(head: dict[str, Any], table: Table, cells: list[dict[str, Any]]) -> str:
    """JSON with a line for each row and each cell, so that a change is a line of a diff."""
    header, rows = table

    def listed(values: list[Any]) -> str:
        return "[" + ",".join(f"\n  {json.dumps(one, ensure_ascii=False)}" for one in values) + "\n ]"

    text = json.dumps(head, indent=1, ensure_ascii=False)[:-2]
    shown = f'{{"header": {json.dumps(header, ensure_ascii=False)}, "rows": {listed(rows)}}}'
    return f'{text},\n "table": {shown},\n "cells": {listed(cells) if cells else "[]"}\n}}\n'


def _groups(done: list[Done], kept: tuple[str, ...] | None) -> Iterator[dict[str, Any]]:
    """Cells that differ in nothing but the seed: what sets them apart from others, the seeds, and figures by seed."""
    flat = [_flat({key: value for key, value in one.cell.items() if key != "seed"}, lists=False) for one in done]
    keys: list[str] = []
    for key in dict.fromkeys(
        key for one in flat for key in one
    ):  # one that tells no more than those before is left out
        if len({_setting(one, [*keys, key]) for one in flat}) > len({_setting(one, keys) for one in flat}):
            keys.append(key)
    groups: dict[str, dict[str, Any]] = {}
    for one, cell in zip(done, flat, strict=True):
        new = {"where": {key: cell[key] for key in keys if key in cell}, "seeds": [], "figures": {}}
        group = groups.setdefault(_setting(cell, keys), new)
        group["seeds"].append(one.cell.get("seed", 0))
        for key, value in _flat(one.figures).items():
            figure = isinstance(value, int | float | None)
            if figure and (kept is None or any(f"{key}.".startswith(f"{prefix}.") for prefix in kept)):
                group["figures"].setdefault(key, []).append(_short(value))
    yield from groups.values()


def _setting(cell: Cell, keys: list[str]) -> str:
    return json.dumps([cell.get(key) for key in keys])


def _flat(value: Any, name: str = "", *, lists: bool = True) -> dict[str, Any]:
    """Nested values by their path, `end.error`; of lists, too, but for long ones, which are left out."""
    if lists and isinstance(value, list) and len(value) > _LONG and not isinstance(value[0], dict):
        return {}
    if isinstance(value, dict) or (lists and isinstance(value, list)):
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        paths = ((f"{name}.{key}" if name else str(key), one) for key, one in pairs)
        return {k: v for path, one in paths for k, v in _flat(one, path, lists=lists).items()}
    return {name: value}


def _short(value: float | None) -> float | None:
    return float(f"{value:.{_DIGITS}g}") if isinstance(value, float) and math.isfinite(value) else value

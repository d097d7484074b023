"""Run an experiment: its cells one after another or in several processes, each kept as soon as it is done."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from noiseproof import files
from noiseproof.benching.cells import CELLS, Cell, Record, complete, key, parse
from noiseproof.errors import InputError
from noiseproof_papers import results
from noiseproof_papers.datadir import DataDir
from noiseproof_papers.experiment import Done, Experiment, Missing, Table


class Outcome(NamedTuple):
    """What `reproduce` made."""

    done: list[Done]  # in the order of the experiment's cells
    total: int  # of its cells
    table: Table | None  # with – for cells that are yet to be run; None where there is none of an unfinished grid
    picture: Path | None  # of a finished grid
    results: Path


def reproduce(
    experiment: Experiment,
    *,
    out: Path,
    scale: str | None = None,
    seeds: int | None = None,
    data: Path | None = None,
    workers: int = 1,
    progress: bool = True,
    most: int | None = None,
    fresh: bool = False,
) -> Outcome:
    """Run the cells that `out` does not hold yet, at most so many, then write NAME.png and results.json there.

    Every cell is appended to cells.jsonl when it is done, so a killed run goes on where it was. Cells are known by
    their parameters: a larger grid in the same folder runs only what is new, and what another experiment of the same
    kind has left in a folder beside it is copied, as is what was published (results.py), unless it is to be run afresh.
    An unfinished grid has no picture.

    Raises:
        InputError: a scale the experiment does not have, a data set that is not there.
        Interrupted: Ctrl-C; the cells that were done are kept.
    """
    scale = scale or experiment.scales[0]
    if scale not in experiment.scales:
        raise InputError(f"{experiment.name} has no scale {scale!r}; choose {' or '.join(experiment.scales)}")
    if experiment.timed and workers > 1:
        raise InputError(f"{experiment.name} measures time, and workers would share the cores; leave out --workers")
    log, kind, cells = out / CELLS, experiment.kind, experiment.cells(scale, seeds)

    def borrow(wanted: set[str]) -> list[Record]:
        """Records from folders beside one's own, then from published results."""
        found = [] if kind is None else _records(set(out.parent.glob(f"*/{CELLS}")) - {log}, kind, wanted)
        if fresh:
            return [record for record in found if "published" not in record]
        wanted = wanted - {key(record["cell"]) for record in found}
        taken = _records(results.logs(experiment, scale), kind, wanted)
        if taken and progress:
            sys.stderr.write(
                f"{experiment.name}: {len(taken)} of {len(cells)} cells taken over from published results\n"
            )
        return found + [record | {"published": True} for record in taken]

    records, where = complete(
        partial(_run, experiment, DataDir(data)), cells, log, what=experiment.name, workers=workers, progress=progress,
        stamp={} if kind is None else {"kind": kind}, borrow=borrow, most=most, fresh=fresh,
    )  # fmt: skip
    return _written(experiment, scale, cells, records, out, where)


def _run(experiment: Experiment, data: DataDir, cell: Cell) -> dict[str, Any]:
    return experiment.run(cell, data)


def _written(
    experiment: Experiment, scale: str, cells: list[Cell], records: list[Record], out: Path, where: dict[str, Any]
) -> Outcome:
    """The picture and the results of finished cells."""
    done = [Done(record["cell"], record["figures"]) for record in records]
    picture, written = out / f"{experiment.name}.png", out / "results.json"
    figures = {key(one.cell): one.figures for one in done}
    missing = [cell for cell in cells if key(cell) not in figures]
    if not missing:
        files.write_atomically(picture, lambda path: experiment.draw(done, path))
    every = [Done(cell, figures.get(key(cell), Missing())) for cell in cells]
    table = experiment.table(every) if experiment.gapped or not missing else None
    where["commit"] = ", ".join(dict.fromkeys(record["commit"] for record in records))  # of the figures, not of today
    summary: dict[str, Any] = {
        "experiment": experiment.name,
        "paper": experiment.paper,
        "scale": scale,
        "machine": where,
    }
    summary |= {"table": table, "missing": missing, "cells": records}
    files.write_text(written, json.dumps(summary, indent=1) + "\n")
    return Outcome(done, len(cells), table, None if missing else picture, written)


def _records(logs: Iterable[Path], kind: str | None, wanted: set[str]) -> list[Record]:
    """The records of wanted cells in the logs of experiments of the kind."""
    found: dict[str, Record] = {}
    for path in sorted(logs):
        for record in map(parse, path.read_bytes().split(b"\n")[:-1]):  # the rest is being written
            # one that is damaged is another experiment's to complain of
            if record is not None and record.get("kind") == kind and key(record["cell"]) in wanted:
                found.setdefault(key(record["cell"]), record)
    return list(found.values())

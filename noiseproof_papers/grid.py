"""Run an experiment: its cells one after another or in several processes, each kept as soon as it is done."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from noiseproof import files
from noiseproof.benching.cells import CELLS, Cell, Record, complete, key, parse
from noiseproof.errors import InputError
from noiseproof_papers.datadir import DataDir
from noiseproof_papers.experiment import Done, Experiment


class Outcome(NamedTuple):
    """What `reproduce` made."""

    done: list[Done]  # in the order of the experiment's cells
    picture: Path
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
) -> Outcome:
    """Run the cells that `out` does not hold yet, then write NAME.png and results.json there.

    Every cell is appended to cells.jsonl when it is done, so a killed run goes on where it was. Cells are known by
    their parameters: a larger grid in the same folder runs only what is new, and what another experiment of the same
    kind has left in a folder beside it is copied.

    Raises:
        InputError: a scale the experiment does not have, a data set that is not there.
        Interrupted: Ctrl-C; the cells that were done are kept.
    """
    scale = scale or experiment.scales[0]
    if scale not in experiment.scales:
        raise InputError(f"{experiment.name} has no scale {scale!r}; choose {' or '.join(experiment.scales)}")
    if experiment.timed and workers > 1:
        raise InputError(f"{experiment.name} measures time, and workers would share the cores; leave out --workers")
    log, kind = out / CELLS, experiment.kind
    records, where = complete(
        partial(_run, experiment, DataDir(data)), experiment.cells(scale, seeds), log, what=experiment.name,
        workers=workers, progress=progress, stamp={} if kind is None else {"kind": kind},
        borrow=None if kind is None else partial(_borrow, kind, own=log),
    )  # fmt: skip
    return _written(experiment, scale, records, out, where)


def _run(experiment: Experiment, data: DataDir, cell: Cell) -> dict[str, Any]:
    return experiment.run(cell, data)


def _written(experiment: Experiment, scale: str, records: list[Record], out: Path, where: dict[str, Any]) -> Outcome:
    """The picture and the results of finished cells."""
    done = [Done(record["cell"], record["figures"]) for record in records]
    picture, results = out / f"{experiment.name}.png", out / "results.json"
    files.write_atomically(picture, lambda path: experiment.draw(done, path))
    where["commit"] = ", ".join(dict.fromkeys(record["commit"] for record in records))  # of the figures, not of today
    summary = {"experiment": experiment.name, "paper": experiment.paper, "scale": scale, "machine": where}
    files.write_text(results, json.dumps(summary | {"cells": records}, indent=1) + "\n")
    return Outcome(done, picture, results)


def _borrow(kind: str, wanted: set[str], own: Path) -> list[Record]:
    """The records of wanted cells in the logs of other experiments of the kind, beside the folder of one's own."""
    found: dict[str, Record] = {}
    for path in sorted(set(own.parent.parent.glob(f"*/{CELLS}")) - {own}):
        for record in map(parse, path.read_bytes().split(b"\n")[:-1]):  # the rest is being written
            # one that is damaged is another experiment's to complain of
            if record is not None and record.get("kind") == kind and key(record["cell"]) in wanted:
                found.setdefault(key(record["cell"]), record)
    return list(found.values())

"""Run an experiment: its cells one after another or in several processes, each kept as soon as it is done."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures.process import BrokenProcessPool
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from joblib import Parallel, delayed

from noiseproof import files
from noiseproof.errors import InputError
from noiseproof.runs.provenance import machine
from noiseproof.runs.structure import mismatch
from noiseproof.training.interrupt import Interrupted
from noiseproof.training.progress import counting
from noiseproof_papers.datadir import DataDir
from noiseproof_papers.experiment import Cell, Done, Experiment

CELLS = "cells.jsonl"


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
    cells, log = experiment.cells(scale, seeds), out / CELLS
    out.mkdir(parents=True, exist_ok=True)
    log.touch()  # see now, not after the first cell, whether the folder can be written
    kept = {_key(record["cell"]): record for record in _read(log)}
    if experiment.kind is not None:
        for record in _borrow(experiment.kind, {_key(cell) for cell in cells} - set(kept), log):
            _append(log, record)
            kept[_key(record["cell"])] = record
    missing = [cell for cell in cells if _key(cell) not in kept]
    done, total = len(cells) - len(missing), len(cells)
    threads = torch.get_num_threads() if workers == 1 else max(1, (os.cpu_count() or 1) // workers)  # of each worker
    where = machine() | {"workers": workers, "threads": threads}
    try:
        with counting(f"{experiment.name} cells", show=progress, log=True, begun=(done, total)) as advance:
            for cell, figures, seconds in _work(experiment, missing, DataDir(data), workers, threads):
                record = {"cell": cell, "figures": figures, "seconds": round(seconds, 2), "commit": where["commit"]}
                record |= {} if experiment.kind is None else {"kind": experiment.kind}
                _append(log, record)
                kept[_key(cell)] = record
                done += 1
                advance(done, total)
        return _written(experiment, scale, [kept[_key(cell)] for cell in cells], out, where)
    except BrokenProcessPool:
        raise InputError(
            f"a worker died, perhaps for want of memory; use fewer --workers (cells done: {log})"
        ) from None
    except KeyboardInterrupt:
        raise Interrupted(f"stopped after {done} of {total} cells, kept in {log}; the same command goes on") from None


def _written(
    experiment: Experiment, scale: str, records: list[dict[str, Any]], out: Path, where: dict[str, Any]
) -> Outcome:
    """The picture and the results of finished cells."""
    done = [Done(record["cell"], record["figures"]) for record in records]
    picture, results = out / f"{experiment.name}.png", out / "results.json"
    files.write_atomically(picture, lambda path: experiment.draw(done, path))
    where["commit"] = ", ".join(dict.fromkeys(record["commit"] for record in records))  # of the figures, not of today
    summary = {"experiment": experiment.name, "paper": experiment.paper, "scale": scale, "machine": where}
    files.write_text(results, json.dumps(summary | {"cells": records}, indent=1) + "\n")
    return Outcome(done, picture, results)


def _key(cell: Cell) -> str:
    return json.dumps(cell, sort_keys=True)


def _read(log: Path) -> list[dict[str, Any]]:
    """Every whole record of finished cells, one a line; a last line that a kill cut short is dropped."""
    *lines, rest = log.read_bytes().split(b"\n")
    records = [_record(line) for line in lines]
    if None in records:
        raise InputError(f"{log} is damaged; move it away to start afresh")
    if rest:
        files.write_atomically(log, lambda path: path.write_bytes(b"".join(line + b"\n" for line in lines)))
    return [record for record in records if record is not None]


def _append(log: Path, record: dict[str, Any]) -> None:
    with open(log, "a", encoding="utf-8") as file:
        file.write(json.dumps(record) + "\n")
        file.flush()
        os.fsync(file.fileno())


def _borrow(kind: str, wanted: set[str], own: Path) -> list[dict[str, Any]]:
    """The records of wanted cells in the logs of other experiments of the kind, beside the folder of one's own."""
    found: dict[str, dict[str, Any]] = {}
    for path in sorted(set(own.parent.parent.glob(f"*/{CELLS}")) - {own}):
        for record in map(_record, path.read_bytes().split(b"\n")[:-1]):  # the rest is being written
            # one that is damaged is another experiment's to complain of
            if record is not None and record.get("kind") == kind and _key(record["cell"]) in wanted:
                found.setdefault(_key(record["cell"]), record)
    return list(found.values())


def _record(line: bytes) -> dict[str, Any] | None:
    """What a line of a log says; None where it is no record of a cell."""
    try:
        record = files.parse_json(line)
    except ValueError:
        return None
    kind = {"kind": str} if isinstance(record, dict) and "kind" in record else {}
    whole = mismatch(record, {"cell": dict, "figures": dict, "seconds": float, "commit": str} | kind) is None
    return record if whole and record["cell"] and record["figures"] else None


def _work(
    experiment: Experiment, cells: list[Cell], data: DataDir, workers: int, threads: int
) -> Iterator[tuple[Cell, dict[str, Any], float]]:
    """The cells with their figures and seconds, as they are done; those under way are ended where one fails."""
    if workers == 1 or len(cells) < 2:
        yield from (_one(experiment, cell, data, threads) for cell in cells)
        return
    tasks = (delayed(_one)(experiment, cell, data, threads, parent=os.getpid()) for cell in cells)
    # One cell at a time and none ahead of its turn: what is under way at a Ctrl-C is run again.
    pool = Parallel(workers, backend="loky", return_as="generator_unordered", batch_size=1, pre_dispatch=workers)
    yield from pool(tasks)


def _one(
    experiment: Experiment, cell: Cell, data: DataDir, threads: int, parent: int | None = None
) -> tuple[Cell, dict[str, Any], float]:
    """A cell, its figures and seconds; `parent` is the process this is a worker of."""
    if parent is not None:
        torch.set_num_threads(threads)
        _end_with(parent)
    began = time.perf_counter()
    figures = experiment.run(cell, data)
    return cell, figures, time.perf_counter() - began


@cache
def _end_with(parent: int) -> None:
    """However the parent ends, this worker ends too; left to itself it would first finish its cell."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()

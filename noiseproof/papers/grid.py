"""Run an experiment: its cells one after another or in several processes, each kept as soon as it is done."""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch

from noiseproof import files
from noiseproof.errors import InputError
from noiseproof.papers.datadir import DataDir
from noiseproof.papers.experiment import Cell, Done, Experiment
from noiseproof.runs.provenance import machine
from noiseproof.training.interrupt import Interrupted

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
    cells = experiment.cells(scale, seeds)
    log = Log(out / CELLS)
    log.prepare()
    kept = {_key(record["cell"]): record for record in log.read()}
    if experiment.kind is not None:
        for record in _borrow(experiment.kind, {_key(cell) for cell in cells} - set(kept), log.path):
            log.append(record)
            kept[_key(record["cell"])] = record
    missing = [cell for cell in cells if _key(cell) not in kept]
    source = DataDir(data)
    where = machine() | {"workers": workers, "threads": _threads(workers)}
    try:
        with _bar(experiment.name, len(cells), len(cells) - len(missing), progress) as advance:
            for cell, figures, seconds in _work(experiment, missing, source, workers):
                record = {"cell": cell, "figures": figures, "seconds": round(seconds, 2), "commit": where["commit"]}
                record |= {} if experiment.kind is None else {"kind": experiment.kind}
                log.append(record)
                kept[_key(cell)] = record
                advance()
        return _written(experiment, scale, [kept[_key(cell)] for cell in cells], out, where)
    except BrokenProcessPool:
        raise InputError(
            f"a worker died, perhaps for want of memory; use fewer --workers (cells done: {log.path})"
        ) from None
    except KeyboardInterrupt:
        have = sum(_key(cell) in kept for cell in cells)
        raise Interrupted(
            f"stopped after {have} of {len(cells)} cells, kept in {log.path}; the same command goes on"
        ) from None


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


class Log:
    """Finished cells, one JSON record a line."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> list[dict[str, Any]]:
        """Every whole record; a last line that a kill cut short is dropped."""
        if not self.path.exists():
            return []
        *lines, rest = self.path.read_bytes().split(b"\n")
        records = [_record(line) for line in lines]
        if None in records:
            raise InputError(f"{self.path} is damaged; move it away to start afresh")
        if rest:
            files.write_atomically(self.path, lambda path: path.write_bytes(b"".join(line + b"\n" for line in lines)))
        return [record for record in records if record is not None]

    def prepare(self) -> None:
        """See now, not after the first cell, whether the folder can be written."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.touch()

    def append(self, record: dict[str, Any]) -> None:
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
            file.flush()
            os.fsync(file.fileno())


def _borrow(kind: str, wanted: set[str], own: Path) -> list[dict[str, Any]]:
    """The records of wanted cells in the logs of other experiments of the kind, beside the folder of one's own."""
    found: dict[str, dict[str, Any]] = {}
    for path in sorted(own.parent.parent.glob(f"*/{CELLS}")):
        if path == own:
            continue
        for line in path.read_bytes().split(b"\n")[:-1]:  # the rest is being written
            if f'"kind": "{kind}"'.encode() not in line:
                continue
            record = _record(line)  # one that is damaged is another experiment's to complain of
            if record is not None and _key(record["cell"]) in wanted:
                found.setdefault(_key(record["cell"]), record)
    return list(found.values())


def _record(line: bytes) -> dict[str, Any] | None:
    """What a line of a log says; None where it is no record of a cell."""
    try:
        record = json.loads(line)
    except ValueError:
        return None
    if not isinstance(record, dict) or record.keys() - {"kind"} != {"cell", "figures", "seconds", "commit"}:
        return None
    return record if all(isinstance(record[key], dict) and record[key] for key in ("cell", "figures")) else None


def _work(
    experiment: Experiment, cells: list[Cell], data: DataDir, workers: int
) -> Iterator[tuple[Cell, dict[str, Any], float]]:
    """The cells with their figures and seconds, as they are done."""
    if workers == 1 or len(cells) < 2:
        for cell in cells:
            yield (cell, *_one(experiment, cell, data))
        return
    context = multiprocessing.get_context("spawn")  # torch's threads do not survive a fork
    with ProcessPoolExecutor(workers, context, _begin_worker, (_threads(workers),)) as pool:
        queue = deque(cells)
        running: dict[Future[tuple[dict[str, Any], float]], Cell] = {}
        try:
            while True:
                while queue and len(running) < workers:
                    cell = queue.popleft()
                    running[pool.submit(_one, experiment, cell, data)] = cell
                if not running:
                    return
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    yield (running.pop(future), *future.result())
        finally:
            for process in list(pool._processes.values()) if running else []:
                process.kill()  # left early: what is under way will be run again; `fit` would survive a SIGTERM


def _threads(workers: int) -> int:
    """Threads of each worker: they share the cores."""
    return torch.get_num_threads() if workers == 1 else max(1, (os.cpu_count() or 1) // workers)


def _begin_worker(threads: int) -> None:
    torch.set_num_threads(threads)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """However the parent ends, its workers end too."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _one(experiment: Experiment, cell: Cell, data: DataDir) -> tuple[dict[str, Any], float]:
    began = time.perf_counter()
    figures = experiment.run(cell, data)
    return figures, time.perf_counter() - began


@contextmanager
def _bar(name: str, total: int, completed: int, progress: bool) -> Iterator[Callable[[], None]]:
    """What to call when a cell is done: it moves a bar on a terminal, and writes a line elsewhere."""
    if not progress or not sys.stderr.isatty():
        count, began = completed, time.perf_counter()

        def line() -> None:
            nonlocal count
            count += 1
            left = (time.perf_counter() - began) / (count - completed) * (total - count)
            if progress:
                sys.stderr.write(f"{name}  {count}/{total} cells  {left:.0f} s left\n")
                sys.stderr.flush()

        yield line
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn(f"[bold]{name}"), BarColumn(bar_width=30), MofNCompleteColumn(), TextColumn("cells"),
        TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(name, total=total, completed=completed)
        yield lambda: bar.advance(task)

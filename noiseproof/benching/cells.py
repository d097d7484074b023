"""Pieces of work, each known by its parameters: run one after another or in several processes, kept as soon as done.

A grid is a list of cells, the JSON parameters of one piece of work each. Every finished cell is a line of a log, with
its figures: a run that was killed goes on where it was.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures.process import BrokenProcessPool
from functools import cache
from pathlib import Path
from typing import Any

import torch
from joblib import Parallel, delayed

from noiseproof import files
from noiseproof.errors import InputError
from noiseproof.runs.provenance import machine
from noiseproof.runs.structure import mismatch
from noiseproof.training.interrupt import Interrupted
from noiseproof.training.progress import counting

Cell = dict[str, Any]  # the JSON parameters of one piece of work
Record = dict[str, Any]  # a line of the log: cell, figures, seconds, commit, and some of MARKS
Work = Callable[[Cell], dict[str, Any]]  # a cell to its figures; the same cell gives the same ones
CELLS = "cells.jsonl"
MARKS: dict[str, type] = {"kind": str, "published": bool}  # of its experiment; taken over from published results
_FAILED: Record = {"figures": {"failed": "not run yet"}}


def key(cell: Cell) -> str:
    """What a cell is known by: all of its parameters."""
    return json.dumps(cell, sort_keys=True)


def complete(
    work: Work,
    cells: list[Cell],
    log: Path,
    *,
    what: str,
    workers: int = 1,
    option: str = "--workers",
    progress: bool = True,
    stamp: dict[str, Any] | None = None,
    borrow: Callable[[set[str]], Iterable[Record]] | None = None,
    most: int | None = None,
    fresh: bool = False,
) -> tuple[list[Record], dict[str, Any]]:
    """Run the cells that the log does not hold yet, or that have `failed`; all records, and on which machine.

    Args:
        work: a function that other processes can be sent.
        what: a name for the progress bar.
        option: what `workers` is called, for an error.
        stamp: what each record is marked with.
        borrow: records of others, by the keys that are wanted.
        most: leave the rest to another time after so many cells.
        fresh: run the cells anew whose records are marked as published.

    Raises:
        InputError: a log that is damaged; a worker that died.
        Interrupted: Ctrl-C; the cells that were done are kept.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    log.touch()  # see now, not after the first cell, whether the folder can be written
    kept = {key(record["cell"]): record for record in read(log) if not (fresh and record.get("published"))}
    for record in borrow({key(cell) for cell in cells} - set(kept)) if borrow is not None else ():
        _append(log, record)
        kept[key(record["cell"])] = record
    missing = [cell for cell in cells if "failed" in kept.get(key(cell), _FAILED)["figures"]]
    done, total = len(cells) - len(missing), len(cells)
    threads = torch.get_num_threads() if workers == 1 else max(1, (os.cpu_count() or 1) // workers)  # of each worker
    where = machine() | {"workers": workers, "threads": threads}
    try:
        with counting(f"{what} cells", show=progress, log=True, begun=(done, total)) as advance:
            for cell, figures, seconds in _work(work, missing[:most], workers, threads):
                record = {"cell": cell, "figures": figures, "seconds": round(seconds, 2), "commit": where["commit"]}
                record |= stamp or {}
                _append(log, record)
                kept[key(cell)] = record
                done += 1
                advance(done, total)
    except BrokenProcessPool:
        raise InputError(f"a worker died, perhaps for want of memory; use fewer {option} (cells done: {log})") from None
    except KeyboardInterrupt:
        raise Interrupted(f"stopped after {done} of {total} cells, kept in {log}; the same command goes on") from None
    return [kept[key(cell)] for cell in cells if key(cell) in kept], where


def read(log: Path) -> list[Record]:
    """The records of finished cells, one a line, the last one of each; a last line that a kill cut short is dropped."""
    *lines, rest = log.read_bytes().split(b"\n")
    records = [parse(line) for line in lines]
    if None in records:
        raise InputError(f"{log} is damaged; move it away to start afresh")
    if rest:
        files.write_atomically(log, lambda path: path.write_bytes(b"".join(line + b"\n" for line in lines)))
    return list({key(record["cell"]): record for record in records if record is not None}.values())


def parse(line: bytes) -> Record | None:
    """What a line of a log says; None where it is no record of a cell."""
    try:
        record = files.parse_json(line)
    except ValueError:
        return None
    marks = {name: kind for name, kind in MARKS.items() if isinstance(record, dict) and name in record}
    whole = mismatch(record, {"cell": dict, "figures": dict, "seconds": float, "commit": str} | marks) is None
    return record if whole and record["cell"] and record["figures"] else None


def _append(log: Path, record: Record) -> None:
    with open(log, "a", encoding="utf-8") as file:
        file.write(json.dumps(record) + "\n")
        file.flush()
        os.fsync(file.fileno())


def _work(work: Work, cells: list[Cell], workers: int, threads: int) -> Iterator[tuple[Cell, dict[str, Any], float]]:
    """The cells with their figures and seconds, as they are done; those under way are ended where one fails."""
    if workers == 1 or len(cells) < 2:
        yield from (_one(work, cell, threads) for cell in cells)
        return
    tasks = (delayed(_one)(work, cell, threads, parent=os.getpid()) for cell in cells)
    # One cell at a time and none ahead of its turn: what is under way at a Ctrl-C is run again.
    pool = Parallel(workers, backend="loky", return_as="generator_unordered", batch_size=1, pre_dispatch=workers)
    yield from pool(tasks)


def _one(work: Work, cell: Cell, threads: int, parent: int | None = None) -> tuple[Cell, dict[str, Any], float]:
    """A cell, its figures and seconds; `parent` is the process this is a worker of."""
    if parent is not None:
        torch.set_num_threads(threads)
        _end_with(parent)
    began = time.perf_counter()
    figures = work(cell)
    return cell, figures, time.perf_counter() - began


@cache
def _end_with(parent: int) -> None:
    """However the parent ends, this worker ends too; left to itself it would first finish its cell."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()

"""The cells of a comparison: methods × data × noise × seeds, and what is known of them when they are done."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from noiseproof import methods
from noiseproof.benching import criteria, published
from noiseproof.benching.board import Board
from noiseproof.benching.cells import Cell, Record, key, read
from noiseproof.benching.trial import held_out, work_of

NEAR = 0.1  # processor time within this share of that of ce counts as equal


def cells(
    sources: Sequence[dict[str, Any]],
    noises: Sequence[str | None],
    names: Sequence[str],
    seeds: int,
    fit: dict[str, Any],
    *,
    limit: int | None = None,
    tested: int | None = None,
) -> list[Cell]:
    """The grid, seed by seed, so that a part of it compares all methods; within that a data set at a time.

    Raises:
        InputError: a method that does not exist, or an option it refuses.
    """
    options = {name: methods.build(name).describe() for name in names}
    return [
        {
            "source": source, "noise": noise, "limit": limit, "tested": tested, "seed": seed, "method": name,
            "options": options[name], "fit": fit, "budget": "epochs",
        }
        for seed in range(seeds)
        for source in sources
        for noise in noises
        for name in names
    ]  # fmt: skip


def in_equal_time(records: Sequence[Record], known: Sequence[Record] = ()) -> list[Cell]:
    """The same cells with as many epochs as fit into the processor time of ce, by what each method has needed.

    Where some of these are `known` already, with the epochs that they had: other seeds and noise must have as many.
    """
    board = Board(records)
    settled = {_same_epochs(one["cell"]): one["cell"]["fit"] for one in known if one["cell"]["budget"] == "time"}
    found = []
    for record in (one for one in records if one["cell"]["budget"] == "epochs"):
        cell, ratio = record["cell"], board.cost_of(record["cell"]["method"])
        epochs = cell["fit"]["epochs"]
        if ratio is not None and abs(ratio - 1) > NEAR:
            epochs = max(1, round(epochs / ratio))
        cell = cell | {"fit": cell["fit"] | {"epochs": epochs}, "budget": "time"}
        found.append(cell | {"fit": settled.get(_same_epochs(cell), cell["fit"])})
    return found


def _same_epochs(cell: Cell) -> str:
    """What cells of equal time that have the same number of epochs share: all but noise and seed."""
    fit = {name: value for name, value in cell["fit"].items() if name != "epochs"}
    kept = {name: value for name, value in published.public(cell).items() if name not in ("noise", "seed")}
    return key(kept | {"fit": fit})


def known(log: Path, publish: Path | None, cells: Sequence[Cell], wanted: set[str]) -> list[Record]:
    """Records of wanted cells: of like runs in the log, whatever budget they counted to, and of those published."""
    done = {work_of(record["cell"]): record for record in read(log)}
    missing = [cell for cell in cells if key(cell) in wanted]
    here = [done[work_of(cell)] | {"cell": cell} for cell in missing if work_of(cell) in done]
    return [*here, *published.taken_up(publish, cells, wanted - {key(one["cell"]) for one in here})]


def judged(records: Sequence[Record], folder: Path, candidates: Sequence[str] = ()) -> list[Record]:
    """The records with the criteria that need no truth, by the candidates of the same data, noise and seed.

    Without candidates, or where none of them is there, all methods are.
    """
    groups: dict[str, list[Record]] = {}
    for record in records:
        same = {name: value for name, value in record["cell"].items() if name not in ("method", "options")}
        same["fit"] = same["fit"] | ({"epochs": 0} if same["budget"] == "time" else {})
        groups.setdefault(json.dumps(same, sort_keys=True), []).append(record)
    found: dict[int, Record] = {}
    for group in groups.values():
        said = {record["cell"]["method"]: held_out(folder, record["cell"]) for record in group}
        there = {name: one for name, one in said.items() if one is not None}
        if not there:
            continue
        labels = next(iter(there.values()))[1]
        among = [name for name in candidates if name in there] or list(there)
        scores = criteria.score({name: one[0] for name, one in there.items()}, labels, among)
        for record in group:
            if record["cell"]["method"] in scores:
                found[id(record)] = record | {"figures": record["figures"] | scores[record["cell"]["method"]]}
    return [found.get(id(record), record) for record in records]

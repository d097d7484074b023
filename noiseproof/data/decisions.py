"""What was decided of labels, by id: read from a reviewed folder (its SQLite file), or from a CSV or Parquet table."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch

from noiseproof.data.labeled import LabeledData
from noiseproof.data.readers.base import first_bytes
from noiseproof.errors import InputError, damage, shown, unknown

FILE = "decisions.sqlite"  # in the folder of a run or an audit; reviewing/store.py writes it
AUTO = "auto"  # who decided, where nobody looked
KEEP, RELABEL, DROP = "keep", "relabel", "drop"
TEST = "test:"  # what leads the id of a test example whose id a training example has, too
COLUMNS = ("id", "decision", "label", "label_before", "who", "when", "split")  # of a table of decisions


class Decision(NamedTuple):
    """What was decided of one example."""

    action: str  # keep, relabel or drop
    label: str  # the class it has from now on; of a dropped one, the class it had
    before: str | None = None  # the class it had, where that is known
    who: str = ""
    when: str = ""
    split: str = ""  # train, val or test, where that is known


Decisions: TypeAlias = dict[str, Decision]  # by id


def decisions_of(source: str | os.PathLike[str]) -> Decisions:
    """The decisions in a reviewed folder, in its decisions.sqlite, or in a CSV or Parquet table.

    A table has the columns `id` and `label`, and may have `decision` (keep, relabel, drop; without it, relabel),
    `label_before`, `who`, `when` and `split`, as the decisions.csv that `noiseproof relabel` writes.

    Raises:
        InputError: there are none, or the file is no such table.
    """
    path = Path(source)
    if path.is_dir():
        path = path / FILE
        if not path.is_file():
            raise InputError(f"{path.parent} holds no decisions; make some: noiseproof review {path.parent}")
    if not path.is_file():
        raise InputError(f"{path} does not exist; pass a reviewed folder, or a table of decisions")
    rows = _stored(path) if first_bytes(path, 16) == b"SQLite format 3\0" else _listed(path)
    found = {str(id): Decision(*rest) for id, *rest in rows}
    if not found:
        raise InputError(f"{path} holds no decisions; make some: noiseproof review {path.parent}")
    return found


def _stored(path: Path) -> list[tuple[Any, ...]]:
    """The rows of a store that are decided, as its view `current` has them."""
    with damage(f"{path} is no file of decisions, or damaged", "pass that of a reviewed folder"):
        uri = f"{path.absolute().as_uri()}?mode=ro"
        with closing(sqlite3.connect(uri, uri=True, timeout=10)) as base:
            chosen = "SELECT id, action, label, given, who, at, split FROM current WHERE action IN (?, ?, ?)"
            return base.execute(f"{chosen} ORDER BY version", (KEEP, RELABEL, DROP)).fetchall()


def _listed(path: Path) -> Iterable[tuple[Any, ...]]:
    """The rows of a table of decisions."""
    columns = _columns(path)
    for name in ("id", "label"):
        if name not in columns:
            raise InputError(f"{path} has no column {name!r}; decisions are a table of id, decision and label")
    seen: set[str] = set()
    for row in range(len(columns["id"])):
        cells: dict[str, Any] = {"decision": RELABEL, "label_before": None, "who": "", "when": "", "split": ""}
        cells |= {name: "" if column[row] is None else str(column[row]) for name, column in columns.items()}
        if cells["decision"] not in (KEEP, RELABEL, DROP):
            raise unknown(f"decision at row {row} of {path}:", cells["decision"], (KEEP, RELABEL, DROP))
        if not cells["id"] or cells["id"] in seen:
            raise InputError(f"{path} has {shown(cells['id'])} as id at row {row}; decide each id once")
        if not cells["label"] and cells["decision"] != DROP:
            raise InputError(f"{path} has no label at row {row}; fill it in or drop the row")
        seen.add(str(cells["id"]))
        yield tuple(cells[name] for name in COLUMNS)


def _columns(path: Path) -> dict[str, list[Any]]:
    """The columns of a table by name; all that a CSV file holds is text, as an id may be 007."""
    from noiseproof.data.readers.table_files import column_names, read_table

    names = [name for name in COLUMNS if name in column_names(path)]
    table = read_table(path, names, texts=names)
    return {name: table.column(name).to_pylist() for name in names}


def suggestions(labels: str | os.PathLike[str], threshold: float) -> Decisions:
    """What a labels.parquet suggests with at least so much confidence, where that is another class: taken unseen."""
    from noiseproof.data.readers.table_files import read_table

    path = Path(labels)
    names = ["id", "split", "label", "suggested", "confidence"]
    rows = zip(*(read_table(path, names).column(name).to_pylist() for name in names), strict=True)
    return {
        id: Decision(RELABEL, suggested, label, AUTO, split=split)
        for id, split, label, suggested, confidence in rows
        if suggested != label and confidence >= threshold
    }


def keys(ids: Sequence[str], beside: Iterable[str] = ()) -> Sequence[str]:
    """What labels.parquet calls the examples of a set: led by `test:` where the set `beside` has one of the ids."""
    return ids if set(ids).isdisjoint(beside) else [TEST + id for id in ids]


def apply(data: LabeledData, decisions: Mapping[str, Decision], *, beside: LabeledData | None = None) -> LabeledData:
    """The data under the labels decided for it, without the examples that were dropped. Joined by id.

    Args:
        data: with ids, or known by their positions.
        decisions: by id; those of other examples are left alone.
        beside: the training set, where the data is the test set.

    Raises:
        InputError: a label that is none of the classes, or nothing is left.
    """
    own = keys(ids_of(data), () if beside is None else ids_of(beside))
    labels, kept = data.labels.clone(), torch.ones(len(data), dtype=torch.bool)
    position = {name: place for place, name in enumerate(data.class_names)}
    for row, id in enumerate(own):
        decision = decisions.get(id)
        if decision is None:
            continue
        if decision.action == DROP:
            kept[row] = False
        else:
            labels[row] = position[check_label(id, decision, position)]
    if not kept.any():
        raise InputError("every example was dropped; keep some")
    data = data.with_labels(labels)
    return data if kept.all() else data.subset(kept.numpy())


def known_labels(data: LabeledData, decisions: Mapping[str, Decision]) -> tuple[LabeledData, np.ndarray]:
    """The data under its own labels without what was dropped, and the classes (n,) decided on, −1 where none was.

    What an audit wants: the given labels to judge, and the right ones of those that somebody has looked at.
    """
    decided = apply(data.numbered(), decisions)
    places = {id: row for row, id in enumerate(ids_of(data))}
    own = data.numbered().subset([places[id] for id in ids_of(decided)])
    looked = np.array([id in decisions for id in ids_of(decided)])
    return own, np.where(looked, decided.labels.numpy(), -1)


def ids_of(data: LabeledData) -> list[str]:
    """The ids of a data set as texts; its positions where it has none."""
    return [str(one) for one in (range(len(data)) if data.ids is None else data.ids)]


def check_label(id: str, decision: Decision, classes: Iterable[str]) -> str:
    """The label decided on, which must be one of the classes."""
    if decision.label in (known := list(classes)):
        return decision.label
    raise InputError(
        f"the example {shown(id)} was decided to be {shown(decision.label)}, which is none of the classes "
        f"({', '.join(known[:20])}); pass the decisions of this data"
    )

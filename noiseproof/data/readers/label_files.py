"""Labels alone, for data read elsewhere: CIFAR-N's .pt files, a column of a CSV or Parquet table, npz and npy.

Where the file says which example each label is of, in a column or array `id`, labels go by it, else by position.
"""

from __future__ import annotations

import io
import os
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from noiseproof.checks import require
from noiseproof.data.input_checks import repeated
from noiseproof.data.label_checks import is_whole, label_vector, parse_labels
from noiseproof.data.labeled import LabeledData
from noiseproof.data.readers.arrays import ID_KEYS, LABEL_KEYS, arrays_in, find_key, need, opened_zip
from noiseproof.data.readers.base import even_rows, first_bytes
from noiseproof.data.readers.unpickle import unpickle
from noiseproof.errors import InputError, damage, naming

OWN = "own"  # in place of FILE:COLUMN: the labels of the data itself


@dataclass(frozen=True)
class LabelFile:
    """What a label file holds under a name."""

    path: Path
    values: np.ndarray  # (m,) whole numbers or text
    ids: list[str] | None  # (m,) of the examples they belong to; None: they are in the order of the data

    @classmethod
    def read(cls, path: str | os.PathLike[str], column: str | None = None) -> LabelFile:
        require(isinstance(path, str | os.PathLike), "path", path, "that of a label file")
        path = Path(path)
        if not path.is_file():
            raise InputError(f"{path} does not exist; check the path of the label file")
        values, ids = _read(path, column)
        with naming(path):
            values = label_vector("labels", values)
        if ids is not None and len(ids) != len(values):
            raise InputError(f"{path} holds {len(values)} labels but {len(ids)} ids; save one for each label")
        return cls(path, values, None if ids is None else [str(one) for one in ids])

    def labels(self, data: LabeledData, rows: Tensor | None = None, *, limit: int | None = None) -> Tensor | None:
        """The labels of the examples `rows` of the data, or of all, as positions in its class names.

        Args:
            rows: some positions in the data; None is returned where the file has no label for any of them.
            limit: that the data was thinned to when it was read; a file by position is thinned alike.

        Raises:
            InputError: the file is of another data set: it lacks examples, has others, or has one twice.
        """
        thinned = even_rows(len(self.values), limit)
        found = self._by_position(data, thinned) if self.ids is None else self._by_id(data, thinned, limit)  # (n,)
        found = found if rows is None else found[rows.numpy()]
        if (lost := np.flatnonzero(found < 0)).size:
            if rows is not None and lost.size == found.size:
                return None
            first = int(lost[0] if rows is None else rows[lost[0]])
            name = first if data.ids is None else data.ids[first]
            raise InputError(
                f"{self.path} has no label for {lost.size} of {found.size} examples, as the one with id {name!r}; add "
                "them; if it is of a run that held out a test set, repeat the run's --seed and --test"
            )
        with naming(self.path):
            return parse_labels("labels", self._names(data.class_names), data.class_names)[0][torch.from_numpy(found)]

    def _names(self, class_names: tuple[str, ...]) -> np.ndarray:
        """The values as names, where all numbers are names, as 1 of 1, 2, 3; else as they are: positions, or text."""
        if is_whole(self.values) and set(self.values.astype(np.int64).astype(str)) <= set(class_names):
            return self.values.astype(np.int64).astype(str)
        return self.values

    def _by_position(self, data: LabeledData, thinned: np.ndarray | None) -> np.ndarray:
        """Where the label of each example stands in the file: (n,)."""
        rows = np.arange(len(self.values)) if thinned is None else thinned
        _check_count(self.path, len(rows), len(data))
        return rows

    def _by_id(self, data: LabeledData, thinned: np.ndarray | None, limit: int | None) -> np.ndarray:
        """The same by id, -1 where the file has none; examples without ids go by their positions."""
        assert self.ids is not None
        if twice := repeated(self.ids):
            raise InputError(f"{self.path} has the id {self.ids[twice[0]]!r} twice (rows {twice[0]} and {twice[1]})")
        place = {name: i for i, name in enumerate(self.ids)}
        own = data.ids or (range(len(data)) if thinned is None else thinned.tolist())
        found = np.array([place.get(str(name), -1) for name in own])
        unknown = len(self.ids) - np.count_nonzero(found >= 0)
        if unknown and limit is None:
            known = set(map(str, own))
            stranger = next(name for name in self.ids if name not in known)
            raise InputError(
                f"{self.path} has labels for {unknown} examples that the data does not have, as id {stranger!r}; pass "
                "the label file of this data, or leave its id column out to go by position"
            )
        return found


def read_label_file(path: str | os.PathLike[str], column: str | None = None) -> np.ndarray:
    """The labels (n,) under the name `column` of a file, in its order; whole numbers or text.

    Args:
        path: a .pt file as CIFAR-N publishes it (a dict of arrays), a CSV or Parquet table, an .npz or .npy file.
        column: the entry of the dict, the column or the array; may be left out where there is only one.
    """
    return LabelFile.read(path, column).values


def _read(path: Path, column: str | None) -> tuple[Any, Any]:
    """What a label file holds under a name, and the ids, if any."""
    head = first_bytes(path, 6)
    if head == b"\x93NUMPY":
        return next(iter(arrays_in(path).values())).read(), None
    if head[:2] == b"PK" and (arrays := arrays_in(path)):
        key = find_key(arrays, ID_KEYS, "")
        labels = arrays[need(path, arrays, LABEL_KEYS, ("", "_train"), column)].read()
        return labels, None if key is None else arrays[key].read().ravel().tolist()
    if head[:2] == b"PK" or head[:1] == b"\x80" or path.suffix in (".pt", ".pth"):
        return _entry(path, _read_pt(path), column), None
    from noiseproof.data.readers.tables import ID_NAMES, column_values, label_column, named, read_tables

    table = read_tables([path])
    label = label_column(path, table.column_names, column)
    ids = named(table.column_names, ID_NAMES, but=label)
    return column_values(path, table, label), table.column(ids[0]).to_pylist() if ids else None


def load_labels(path: str | os.PathLike[str], column: str | None, n: int) -> Tensor:
    """The labels of `n` examples as int64 (n,), in the file's order; text labels count in sorted order."""
    values = read_label_file(path, column)
    _check_count(path, len(values), n, f" under {column!r}")
    with naming(path):
        return parse_labels("labels", values, None)[0]


def relabel(
    data: LabeledData,
    labels: str | None = None,
    true_labels: str | None = None,
    *,
    rows: Tensor | None = None,
    limit: int | None = None,
) -> LabeledData:
    """The data, or its examples `rows`, under the labels of FILE:COLUMN, and with those of another as the true ones.

    Args:
        labels: what is trained on, in place of the data's own.
        true_labels: what is right, for measuring; "own": the data's own labels.
        rows: some positions in the data; they stay as they are where a file has no label for any of them.
        limit: that the data was thinned to when it was read.
    """
    part = data if rows is None else data.subset(rows)
    given = None if labels is None else LabelFile.read(*split_spec(labels)).labels(data, rows, limit=limit)
    truth = part.labels if true_labels == OWN else None
    if true_labels is not None and true_labels != OWN:
        truth = LabelFile.read(*split_spec(true_labels)).labels(data, rows, limit=limit)
    return (
        part
        if given is None and truth is None
        else part.with_labels(part.labels if given is None else given, true_labels=truth)
    )


def _check_count(path: str | os.PathLike[str], count: int, n: int, where: str = "") -> None:
    if count != n:
        raise InputError(
            f"{path} holds {count} labels{where} but the data holds {n} examples; pass the label file of this data"
        )


def split_spec(spec: str) -> tuple[str, str | None]:
    """`FILE:COLUMN` as its two halves; a file that exists under the whole text has no column."""
    if os.path.exists(spec):
        return spec, None
    path, colon, column = spec.rpartition(":")
    return (path, column) if colon and path and column else (spec, None)


def _read_pt(path: Path) -> Any:
    """What a .pt file holds: tensors by torch's weights-only reader, numpy arrays by our restricted unpickler."""
    content = path.read_bytes()
    if content[:2] == b"PK":
        with opened_zip(path) as archive:
            pickles = [name for name in archive.namelist() if name.endswith("data.pkl")]
            if not pickles:
                raise InputError(f"{path} is a zip file but neither a .pt nor an .npz file; pass a label file")
            content = archive.read(pickles[0])
    if b"torch._utils" in content:
        with damage(f"{path} is damaged", "save or fetch it again"):
            try:
                return torch.load(path, map_location="cpu", weights_only=True)
            except pickle.UnpicklingError as error:
                raise InputError(
                    f"{path} holds more than tensors of labels, and was not run; save a dict of tensors"
                ) from error
    file = io.BytesIO(content)
    record = unpickle(file, str(path))
    if isinstance(record, int):  # torch before 1.6: a magic number, the version, the system, and then the object
        for _ in range(3):
            record = unpickle(file, str(path))
    return record


def _entry(path: Path, record: Any, column: str | None) -> Any:
    """The labels under a name in what a .pt file holds."""
    if not isinstance(record, dict):
        if column is not None:
            raise InputError(f"{path} holds labels without names; leave out the column {column!r}")
        return record
    entries = {k.decode("utf-8", "replace") if isinstance(k, bytes) else str(k): v for k, v in record.items()}
    if column is None and len(entries) == 1:
        return next(iter(entries.values()))
    if column not in entries:
        problem = "needs a column" if column is None else f"has no labels {column!r}"
        raise InputError(f"{path} {problem}; choose from {', '.join(sorted(entries))}")
    return entries[column]

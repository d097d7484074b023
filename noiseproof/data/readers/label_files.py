"""Labels alone, for data read elsewhere: CIFAR-N's .pt files, a column of a CSV or Parquet table, npz and npy."""

from __future__ import annotations

import io
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from noiseproof.data.label_checks import is_whole, label_vector, parse_labels
from noiseproof.data.labeled import LabeledData
from noiseproof.data.readers.arrays import LABEL_KEYS, arrays_in, need, opened_zip
from noiseproof.data.readers.base import even_rows, first_bytes
from noiseproof.data.readers.unpickle import unpickle
from noiseproof.errors import InputError, naming


def read_label_file(path: str | os.PathLike[str], column: str | None = None) -> np.ndarray:
    """The labels (n,) under the name `column` of a file; whole numbers or text.

    Args:
        path: a .pt file as CIFAR-N publishes it (a dict of arrays), a CSV or Parquet table, an .npz or .npy file.
        column: the entry of the dict, the column or the array; may be left out where there is only one.
    """
    path = Path(path)
    if not path.is_file():
        raise InputError(f"{path} does not exist; check the path of the label file")
    values = _read(path, column)
    with naming(path):
        return label_vector("labels", values)


def _read(path: Path, column: str | None) -> Any:
    """What a label file holds under a name."""
    head = first_bytes(path, 6)
    if head == b"\x93NUMPY":
        return next(iter(arrays_in(path).values())).read()
    if head[:2] == b"PK" and (arrays := arrays_in(path)):
        return arrays[need(path, arrays, LABEL_KEYS, ("", "_train"), column)].read()
    if head[:2] == b"PK" or head[:1] == b"\x80" or path.suffix in (".pt", ".pth"):
        return _entry(path, _read_pt(path), column)
    from noiseproof.data.readers.tables import column_values, label_column, read_tables

    table = read_tables([path])
    return column_values(path, table, label_column(path, table.column_names, column))


def load_labels(path: str | os.PathLike[str], column: str | None, n: int) -> Tensor:
    """The labels of `n` examples as int64 (n,); text labels count in sorted order."""
    values = read_label_file(path, column)
    _check_count(path, values, n, f" under {column!r}")
    with naming(path):
        return parse_labels("labels", values, None)[0]


def relabel(data: LabeledData, spec: str, limit: int | None) -> LabeledData:
    """The data under the labels of FILE:COLUMN; with a limit, the file's labels are thinned as the data was."""
    path, column = split_spec(spec)
    values = read_label_file(path, column)
    rows = even_rows(len(values), limit)
    values = values if rows is None else values[rows]
    _check_count(path, values, len(data))
    if is_whole(values) and set(values.astype(np.int64).astype(str)) <= set(data.class_names):
        values = values.astype(np.int64).astype(str)  # numbers that are names, as 1 of 1, 2, 3; else positions
    with naming(path):
        return data.with_labels(values)


def _check_count(path: str | os.PathLike[str], values: np.ndarray, n: int, where: str = "") -> None:
    if len(values) != n:
        raise InputError(
            f"{path} holds {len(values)} labels{where} but the data holds {n} examples; "
            "pass the label file of this data"
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
        try:
            return torch.load(path, map_location="cpu", weights_only=True)
        except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError, AttributeError, KeyError) as error:
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
    entries = {k.decode() if isinstance(k, bytes) else str(k): v for k, v in record.items()}
    if column is None and len(entries) == 1:
        return next(iter(entries.values()))
    if column not in entries:
        problem = "needs a column" if column is None else f"has no labels {column!r}"
        raise InputError(f"{path} {problem}; choose from {', '.join(sorted(entries))}")
    return entries[column]

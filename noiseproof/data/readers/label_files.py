"""Labels alone, for data read elsewhere: CIFAR-N's .pt files, a column of a CSV or Parquet table, npz and npy."""

from __future__ import annotations

import io
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from noiseproof.data.label_checks import label_vector, parse_labels
from noiseproof.data.readers.options import first_bytes
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
    if head == b"\x93NUMPY" or (head[:2] == b"PK" and _holds_npy(path)):
        return _from_arrays(path, column)
    if head[:2] == b"PK" or head[:1] == b"\x80" or path.suffix in (".pt", ".pth"):
        return _column(path, _read_pt(path), column)
    from noiseproof.data.readers.tables import column_values, label_column, read_table

    table = read_table(path)
    return column_values(path, table, label_column(path, table.column_names, column))


def load_labels(path: str | os.PathLike[str], column: str | None, n: int) -> Tensor:
    """The labels of `n` examples as int64 (n,); text labels count in sorted order."""
    values = read_label_file(path, column)
    if len(values) != n:
        raise InputError(
            f"{path} holds {len(values)} labels under {column!r} but the data holds {n} examples; "
            "pass the label file of this data"
        )
    with naming(path):
        return parse_labels("labels", values, None)[0]


def split_spec(spec: str) -> tuple[str, str | None]:
    """`FILE:COLUMN` as its two halves; a file that exists under the whole text has no column."""
    if os.path.exists(spec):
        return spec, None
    path, colon, column = spec.rpartition(":")
    return (path, column) if colon and path and column else (spec, None)


def _holds_npy(path: Path) -> bool:
    if not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as archive:
        return any(name.endswith(".npy") for name in archive.namelist())


def _from_arrays(path: Path, column: str | None) -> np.ndarray:
    from noiseproof.data.readers.arrays import LABEL_KEYS, find_key, read_array

    if column is None and path.suffix != ".npy":
        column = find_key(path, LABEL_KEYS) or find_key(path, LABEL_KEYS, "_train")
    return read_array(path, column)


def _read_pt(path: Path) -> Any:
    """What a .pt file holds: tensors by torch's weights-only reader, numpy arrays by our restricted unpickler."""
    content = path.read_bytes()
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            pickles = [name for name in archive.namelist() if name.endswith("data.pkl")]
            if not pickles:
                raise InputError(f"{path} is a zip file but neither a .pt nor an .npz file; pass a label file")
            content = archive.read(pickles[0])
    if b"torch._utils" in content:
        return _read_tensors(path)
    file = io.BytesIO(content)
    record = unpickle(file, str(path))
    if isinstance(record, int):  # torch before 1.6: a magic number, the version, the system, and then the object
        for _ in range(3):
            record = unpickle(file, str(path))
    return record


def _read_tensors(path: Path) -> Any:
    import pickle

    import torch

    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError, AttributeError, KeyError) as error:
        raise InputError(
            f"{path} holds more than tensors of labels, and was not run; save a dict of tensors"
        ) from error


def _column(path: Path, record: Any, column: str | None) -> Any:
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

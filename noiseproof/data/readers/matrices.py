"""Numbers (n, m) for examples that are read elsewhere, as predictions and features: npy, npz, CSV and Parquet files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from noiseproof import checks
from noiseproof.data.input_checks import repeated
from noiseproof.data.readers.arrays import ID_KEYS, arrays_in, find_key
from noiseproof.data.readers.base import first_bytes
from noiseproof.errors import InputError


def read_matrix(path: Path, ids: Sequence[Any], class_names: Sequence[str] | None = None) -> np.ndarray:
    """Numbers (n, m), a row for each of the n ids; of a file with ids by these, else in the order of the data.

    Args:
        path: .npy (mapped, not read at once), .npz with one array beside `id`, or a CSV or Parquet table.
        class_names: that the columns of a table must be named after, in whatever order; None: any numeric columns.

    Raises:
        InputError: it is of other examples, or not numbers.
    """
    if not path.is_file():
        raise InputError(f"{path} does not exist; check the path")
    own, array = _read(path, class_names)
    if own is None:
        if len(array) != len(ids):
            raise InputError(f"{path} has {len(array):,} rows, the data {len(ids):,} examples; add ids, or match them")
        return array
    if twice := repeated(own):
        raise InputError(f"{path} has the id {own[twice[0]]!r} twice (rows {twice[0]} and {twice[1]})")
    place = {name: row for row, name in enumerate(own)}
    missing = next((str(name) for name in ids if str(name) not in place), None)
    if missing is not None:
        raise InputError(f"{path} has no row for the example with id {missing!r}; add it, or leave the ids out")
    rows = np.array([place[str(name)] for name in ids])
    return array if np.array_equal(rows, np.arange(len(array))) else array[rows]


def _read(path: Path, class_names: Sequence[str] | None) -> tuple[list[str] | None, np.ndarray]:
    """The ids, if there are any, and the numbers."""
    head = first_bytes(path, 6)
    if head == b"\x93NUMPY":
        return None, _matrix(path, next(iter(arrays_in(path).values())).read(mapped=True))
    if head[:2] == b"PK":
        arrays = arrays_in(path)
        key = find_key(arrays, ID_KEYS, "")
        rest = [name for name in arrays if name != key]
        if len(rest) != 1:
            raise InputError(f"{path} holds {', '.join(rest[:10])}; save one array of numbers, beside the ids")
        ids = None if key is None else [str(one) for one in arrays[key].read().ravel().tolist()]
        return ids, _matrix(path, arrays[rest[0]].read())
    from noiseproof.data.readers.tables import ID_NAMES, named, read_tables

    table = read_tables([path])
    id_column = named(table.column_names, ID_NAMES)
    names = [name for name in table.column_names if name not in id_column[:1]]
    if class_names is not None:
        names = [names[at] for at in checks.columns(str(path), names, class_names)]
    ids = [str(one) for one in table.column(id_column[0]).to_pylist()] if id_column else None
    columns = [np.asarray(table.column(name).to_numpy()) for name in names]
    for name, column in zip(names, columns, strict=True):
        if column.dtype.kind not in "fiu":
            raise InputError(f"{path}: column {name!r} is not of numbers; leave it out")
    return ids, np.stack(columns, axis=1).astype(np.float32)


def _matrix(path: Path, array: np.ndarray) -> np.ndarray:
    if array.ndim != 2 or array.dtype.kind not in "fiu":
        raise InputError(f"{path} must hold numbers (n, m), got {array.dtype} of shape {array.shape}")
    return array

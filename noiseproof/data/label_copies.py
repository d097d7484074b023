"""Copies of files with other labels: CSV, Parquet, npz. All else in them stays as it is; sources are never written to.

`opened` reads the labels of a file; its `write` makes the copy: of noise (corrupt.py) or of corrections (relabel.py).
"""

from __future__ import annotations

import csv
import shutil
import sys
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from noiseproof.data.label_checks import label_vector
from noiseproof.data.readers.arrays import LABEL_KEYS, TRUE_KEYS, arrays_in, find_key, need, opened_zip
from noiseproof.data.readers.base import first_bytes, is_gzip
from noiseproof.errors import InputError, naming

BEFORE = "label_before"  # what a corrected copy calls the labels it had; readers take it for no feature
# writes a copy to a path: with labels (n,), of the rows (n,) to keep, the old labels under a name, if that is given
Write = Callable[[Path, np.ndarray, np.ndarray, str | None], None]


@dataclass(frozen=True)
class Labels:
    """The labels of a file, and how to write a copy of it with others."""

    name: str  # of their column or array
    values: np.ndarray  # (n,) as the file has them
    ids: list[str]  # (n,) as its reader has them
    true_name: str | None  # the column or array of true labels, if there is one
    true_values: np.ndarray | None  # (n,)
    names: list[str] | None  # of the classes, where the file says that its labels are positions in a list
    columns: list[str]  # what the file holds
    write: Write

    def classes(self) -> dict[str, Any]:
        """The name of each class, as readers have it, and its value in the file."""
        if self.names is not None:
            return {name: place for place, name in enumerate(self.names)}
        known = np.unique(self.values).tolist()
        known += [] if self.true_values is None else np.unique(self.true_values).tolist()
        return {class_name(value): value for value in known}


def class_name(value: Any) -> str:
    """What readers call the class of a label: text as it is, numbers as whole ones."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return value if isinstance(value, str) else str(int(value))


def check_paths(source: Path, out: Path) -> None:
    """Raise an InputError unless a copy of the file `source` can be written to `out`."""
    if source.is_dir():
        raise InputError(f"{source} is a folder; pass a table file (CSV, Parquet or npz)")
    if not source.is_file():
        raise InputError(f"{source} does not exist; pass a CSV, Parquet or npz file")
    if out.exists() and (out.is_dir() or out.samefile(source)):
        raise InputError(f"{out} is {'a folder' if out.is_dir() else 'the source itself'}; write to another file")
    if not out.parent.is_dir():
        raise InputError(f"the folder {out.parent} does not exist; make it first")
    if out.suffix.lower() != source.suffix.lower():
        raise InputError(
            f"{out} must be of the format of {source.name}; end its name in {source.suffix or 'nothing'!r}"
        )
    if is_gzip(source):
        raise InputError(f"{source} is gzipped; gunzip it first")


def is_known(source: Path) -> bool:
    """Whether a file is CSV, Parquet or npz."""
    from noiseproof.data.readers.table_files import is_csv

    head = first_bytes(source, 4)
    return head == b"PAR1" or (head[:2] == b"PK" and bool(arrays_in(source))) or is_csv(source)


def has_test(source: Path) -> bool:
    """Whether a file is an .npz file with a labelled test set."""
    return first_bytes(source, 2) == b"PK" and find_key(arrays_in(source), LABEL_KEYS, "_test") is not None


def opened(source: Path, label: str | None, split: str = "train") -> Labels:
    """The labels of a file; of an .npz file with two sets, those of one."""
    head = first_bytes(source, 4)
    if head[:2] == b"PK":
        return _npz(source, label, split)
    return (_parquet if head == b"PAR1" else _csv)(source, label)


def _table(source: Path, label: str | None) -> tuple[Any, str, dict[str, Any]]:
    """A table, its label column, and what `Labels` wants to know of it."""
    from noiseproof.data.readers.table_files import read_table
    from noiseproof.data.readers.tables import TRUE_NAMES, column_values, example_ids, label_column, named, stored_names

    table = read_table(source)
    label = label_column(source, table.column_names, label)
    true = next(iter(named(table.column_names, TRUE_NAMES, but=label)), None)
    ids = example_ids(table, label)
    values = column_values(source, table, label)
    return table, label, {
        "name": label,
        "values": values,
        "ids": [str(one) for one in (range(table.num_rows) if ids is None else ids)],
        "true_name": true,
        "true_values": None if true is None else column_values(source, table, true),
        "names": stored_names(table, label),
        "columns": table.column_names,
    }  # fmt: skip


def _csv(source: Path, label: str | None) -> Labels:
    """The labels of a CSV file, copied row by row, its other cells, its line ends and its byte-order mark untouched."""
    from noiseproof.data.readers.table_files import delimiter

    _, label, found = _table(source, label)  # pyarrow finds what is wrong with the file, and the labels' type
    csv.field_size_limit(sys.maxsize)
    encoding = "utf-8-sig" if first_bytes(source, 3) == b"\xef\xbb\xbf" else "utf-8"
    with open(source, newline="", encoding=encoding) as file:
        first_line = file.readline()
        separator, end = delimiter(first_line), "\r\n" if first_line.endswith("\r\n") else "\n"
        file.seek(0)
        header, *rows = (row for row in csv.reader(file, delimiter=separator) if row)  # pyarrow skips blank lines too
    at, old = header.index(label), found["values"]
    values, first = np.unique(old, return_index=True)
    text = {value: rows[i][at] for value, i in zip(values.tolist(), first.tolist(), strict=True)}  # as the file has it

    def write(path: Path, new: np.ndarray, keep: np.ndarray, before: str | None) -> None:
        with open(path, "w", encoding=encoding, newline="") as lines:
            writer = csv.writer(lines, delimiter=separator, lineterminator=end)
            writer.writerow(header if before is None else [*header, before])
            for row, was, label, kept in zip(rows, old.tolist(), new.tolist(), keep.tolist(), strict=True):
                if kept:
                    changed = row if was == label else [*row[:at], text.get(label, str(label)), *row[at + 1 :]]
                    writer.writerow(changed if before is None else [*changed, row[at]])

    return Labels(**found, write=write)


def _parquet(source: Path, label: str | None) -> Labels:
    """The labels of a Parquet file, copied with its schema and metadata."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    table, label, found = _table(source, label)

    def write(path: Path, new: np.ndarray, keep: np.ndarray, before: str | None) -> None:
        field, old = table.schema.field(label), table.column(label)
        if pa.types.is_dictionary(field.type):
            names = old.unify_dictionaries().chunk(0).dictionary
            others = sorted(set(new.tolist()) - set(names.to_pylist()))  # classes that true labels alone have
            names = pa.concat_arrays([names, pa.array(others, type=names.type)])
            at = pc.index_in(pa.array(new, type=names.type), value_set=names).cast(field.type.index_type)
            column = pa.DictionaryArray.from_arrays(at, names, ordered=field.type.ordered)
        else:
            column = pa.array(new, type=field.type)
        copy = table.set_column(table.column_names.index(label), field, column)
        copy = copy if before is None else copy.append_column(before, old)
        pq.write_table(copy if keep.all() else copy.filter(pa.array(keep)), path)

    return Labels(**found, write=write)


def _npz(source: Path, label: str | None, split: str) -> Labels:
    """The labels of a set in an .npz file, copied member by member."""
    arrays = arrays_in(source)
    key = need(source, arrays, LABEL_KEYS, ("_test",) if split == "test" else ("_train", ""), label)
    old = arrays[key].read()
    with naming(source):
        values = label_vector(key, old)
    suffix = next((end for end in ("_train", "_test") if key.lower().endswith(end)), "")
    true = find_key(arrays, TRUE_KEYS, suffix)
    names = arrays["class_names"].read().tolist() if "class_names" in arrays else None
    with opened_zip(source) as archive:
        damaged = archive.testzip()  # before anything is written
    if damaged is not None:
        raise InputError(f"{source} is a damaged .npz file ({damaged} is not as saved); save or fetch it again")

    def of_the_set(name: str) -> bool:
        """Whether an array has a row for each example of this set."""
        other = name.lower().endswith(("_test", "_train")) and not name.lower().endswith(suffix or "\0")
        return not other and name != "class_names" and arrays[name].shape()[:1] == old.shape[:1]

    def write(path: Path, new: np.ndarray, keep: np.ndarray, before: str | None) -> None:
        before = None if before is None else before + suffix
        changed = {key: new.astype(np.result_type(old, new) if old.dtype.kind in "US" else old.dtype)[keep]}
        changed[key] = changed[key].reshape(-1, *old.shape[1:])
        changed |= {} if before is None else {before: old[keep]}
        with zipfile.ZipFile(source) as archive, zipfile.ZipFile(path, "w", allowZip64=True) as copy:
            for member in archive.infolist():
                name = member.filename.removesuffix(".npy")
                like = zipfile.ZipInfo(member.filename, member.date_time)
                like.compress_type = member.compress_type
                if name in changed:
                    continue
                with copy.open(like, "w", force_zip64=True) as writer:
                    if not keep.all() and name in arrays and of_the_set(name):
                        _write_array(writer, arrays[name].read()[keep])
                    else:
                        with archive.open(member) as reader:
                            shutil.copyfileobj(reader, writer)
            for name, array in changed.items():
                with copy.open(f"{name}.npy", "w", force_zip64=True) as writer:
                    _write_array(writer, array)

    ids = [str(i) for i in range(len(values))]
    true_values = None if true is None else arrays[true].read()
    return Labels(key, values, ids, true, true_values, names, [name.removesuffix(suffix) for name in arrays], write)


def _write_array(file: Any, array: np.ndarray) -> None:
    np.lib.format.write_array(file, np.ascontiguousarray(array), allow_pickle=False)

"""Write a noisy copy of a data file: what one tries an audit or a method on before trusting it with real noise."""

from __future__ import annotations

import csv
import os
import shutil
import sys
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from noiseproof.data import noise
from noiseproof.data.label_checks import check_distinct, check_whole, label_vector
from noiseproof.data.labeled import is_table
from noiseproof.data.readers import load
from noiseproof.data.readers.arrays import LABEL_KEYS, TRUE_KEYS, arrays_in, find_key, need, opened_zip
from noiseproof.data.readers.base import first_bytes, is_gzip
from noiseproof.errors import InputError, naming
from noiseproof.files import replacing

TRUE_COLUMN = "true_label"
_Write = Callable[[np.ndarray, Path], None]  # writes a copy of a file with new labels (n,) to a path


@dataclass(frozen=True)
class Corruption:
    """What `corrupt_table` did."""

    path: Path
    n: int
    changed: int
    class_names: tuple[str, ...]
    transition: Tensor  # (K, K): row i, the fraction of class i now labelled j

    @property
    def rate(self) -> float:
        """The fraction of labels that changed."""
        return self.changed / self.n


def corrupt_table(
    source_path: str | os.PathLike[str],
    out_path: str | os.PathLike[str],
    *,
    label_column: str | None = None,
    spec: str | noise.Spec,
    seed: int = 0,
) -> Corruption:
    """Write a copy of a CSV, Parquet or npz file with noisy labels, the old ones kept as `true_label`.

    Every other column is copied as it is; text labels stay text; the classes are the distinct labels in sorted order.
    The copy is written to a temporary file in the same folder and then moved into place: a reader sees all of it or
    none. The source is never written to.

    Args:
        source_path: the file to copy.
        out_path: where the copy goes, in the format of the source.
        label_column: the column (npz: array) of labels; default the one with a usual name.
        spec: what noise, e.g. "symmetric:0.4" (see `noise.parse`); "instance:…" reads the features too.
        seed: the seed of the noise.
    """
    source, out = Path(source_path), Path(out_path)
    spec = spec if isinstance(spec, noise.Spec) else noise.parse(spec)
    _check_paths(source, out)
    head = first_bytes(source, 4)
    read = _parquet if head == b"PAR1" else _npz if head[:2] == b"PK" else _csv
    values, write = read(source, label_column)
    with naming(source):
        values = label_vector("labels", values)
        if values.dtype.kind not in "US":
            check_whole("labels", values)
        check_distinct("labels", values)
        classes, old = np.unique(values, return_inverse=True)
        if len(classes) < 2:
            raise InputError(f"the labels hold only one class ({classes[0]!s}); there is nothing to confuse it with")
    names, inputs = _look(source, label_column, spec.kind, tuple(str(c) for c in classes.tolist()))
    noisy = noise.corrupt(old, spec, num_classes=len(names), class_names=names, inputs=inputs, seed=seed)
    new = noisy.labels.numpy()
    with replacing(out) as temporary:
        write(classes[new], temporary)
    return Corruption(out, len(new), int((old != new).sum()), names, noisy.transition)


def _check_paths(source: Path, out: Path) -> None:
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


def _look(source: Path, label: str | None, kind: str, names: tuple[str, ...]) -> tuple[tuple[str, ...], Any]:
    """The class names, as the file may have better ones than its labels, and the inputs: what this noise looks at."""
    needs = noise.KINDS[kind][1]
    if needs == "neither":
        return names, None
    if needs == "values":
        return names, load(source, label_column=label).inputs
    try:
        example = load(source, label_column=label, limit=1)
    except InputError:  # inputs that cannot be read: their labels can be corrupted all the same
        return names, None
    if is_table(example.inputs):
        return names, None
    return (example.class_names if len(example.class_names) == len(names) else names), example.inputs


def _csv(source: Path, label: str | None) -> tuple[np.ndarray, _Write]:
    """The labels of a CSV file, copied row by row, its other cells, its line ends and its byte-order mark untouched."""
    from noiseproof.data.readers.table_files import delimiter

    _, label, old, keep_true = _table(source, label)  # pyarrow finds what is wrong with the file, and the labels' type
    csv.field_size_limit(sys.maxsize)
    encoding = "utf-8-sig" if first_bytes(source, 3) == b"\xef\xbb\xbf" else "utf-8"
    with open(source, newline="", encoding=encoding) as file:
        first_line = file.readline()
        separator, end = delimiter(first_line), "\r\n" if first_line.endswith("\r\n") else "\n"
        file.seek(0)
        header, *rows = (row for row in csv.reader(file, delimiter=separator) if row)  # pyarrow skips blank lines too
    at = header.index(label)
    values, first = np.unique(old, return_index=True)
    text = {value: rows[i][at] for value, i in zip(values.tolist(), first.tolist(), strict=True)}  # as the file has it

    def write(new: np.ndarray, path: Path) -> None:
        with open(path, "w", encoding=encoding, newline="") as lines:
            writer = csv.writer(lines, delimiter=separator, lineterminator=end)
            writer.writerow(header if keep_true else [*header, TRUE_COLUMN])
            for row, before, after in zip(rows, old.tolist(), new.tolist(), strict=True):
                kept = [] if keep_true else [row[at]]
                row[at] = row[at] if before == after else text[after]
                writer.writerow([*row, *kept])

    return old, write


def _parquet(source: Path, label: str | None) -> tuple[np.ndarray, _Write]:
    """The labels of a Parquet file, copied with its schema and metadata."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    table, label, old, keep_true = _table(source, label)

    def write(new: np.ndarray, path: Path) -> None:
        field, clean = table.schema.field(label), table.column(label)
        if pa.types.is_dictionary(field.type):
            names = clean.unify_dictionaries().chunk(0).dictionary
            at = pc.index_in(pa.array(new, type=names.type), value_set=names).cast(field.type.index_type)
            column = pa.DictionaryArray.from_arrays(at, names, ordered=field.type.ordered)
        else:
            column = pa.array(new, type=field.type)
        noisy = table.set_column(table.column_names.index(label), field, column)
        pq.write_table(noisy if keep_true else noisy.append_column(TRUE_COLUMN, clean), path)

    return old, write


def _npz(source: Path, label: str | None) -> tuple[np.ndarray, _Write]:
    """The labels of the train set of an .npz file, copied member by member."""
    arrays = arrays_in(source)
    key = need(source, arrays, LABEL_KEYS, ("_train", ""), label)
    old = arrays[key].read()
    suffix = "_train" if key.lower().endswith("_train") else ""
    has_true = find_key(arrays, TRUE_KEYS, suffix)
    if has_true is not None and not np.array_equal(arrays[has_true].read(), old):
        raise _has_true(source, has_true)
    true_key = has_true or TRUE_COLUMN + suffix
    with opened_zip(source) as archive:
        damaged = archive.testzip()  # before anything is written
    if damaged is not None:
        raise InputError(f"{source} is a damaged .npz file ({damaged} is not as saved); save or fetch it again")

    def write(new: np.ndarray, path: Path) -> None:
        with zipfile.ZipFile(source) as archive, zipfile.ZipFile(path, "w", allowZip64=True) as copy:
            for member in archive.infolist():
                if member.filename not in (f"{key}.npy", f"{true_key}.npy"):
                    like = zipfile.ZipInfo(member.filename, member.date_time)
                    like.compress_type = member.compress_type
                    with archive.open(member) as reader, copy.open(like, "w", force_zip64=True) as writer:
                        shutil.copyfileobj(reader, writer)
            for name, array in ((key, new.astype(old.dtype).reshape(old.shape)), (true_key, old)):
                with copy.open(f"{name}.npy", "w", force_zip64=True) as writer:
                    np.lib.format.write_array(writer, np.ascontiguousarray(array), allow_pickle=False)

    return old, write


def _table(source: Path, label: str | None) -> tuple[Any, str, np.ndarray, bool]:
    """A table, its label column, the labels, and whether it has true labels already, which must then be the same."""
    from noiseproof.data.readers.table_files import read_table
    from noiseproof.data.readers.tables import TRUE_NAMES, column_values, label_column, named

    table = read_table(source)
    label = label_column(source, table.column_names, label)
    old = column_values(source, table, label)
    true = named(table.column_names, TRUE_NAMES)
    if true and (label == true[0] or not np.array_equal(column_values(source, table, true[0]), old)):
        raise _has_true(source, true[0])
    return table, label, old, bool(true)


def _has_true(source: Path, name: str) -> InputError:
    return InputError(f"{source} has noisy labels already ({name!r} differs from the labels); corrupt a clean file")

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
from noiseproof.data.readers import load
from noiseproof.data.readers.options import first_bytes
from noiseproof.errors import InputError, naming
from noiseproof.files import replacing

TRUE_COLUMN = "true_label"
_Corrupt = Callable[[np.ndarray], np.ndarray]  # old label values -> new ones


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
    spec = noise.parse(spec) if isinstance(spec, str) else spec
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
    head = first_bytes(source, 4)
    if head[:2] == b"\x1f\x8b":
        raise InputError(f"{source} is gzipped; gunzip it first")
    write = _parquet if head == b"PAR1" else _npz if head[:2] == b"PK" else _csv
    done: list[Corruption] = []

    def corrupt(values: np.ndarray) -> np.ndarray:
        with naming(source):
            values = label_vector("labels", values)
            if values.dtype.kind not in "US":
                check_whole("labels", values)
            check_distinct("labels", values)
        classes, old = np.unique(values, return_inverse=True)
        if len(classes) < 2:
            raise InputError(
                f"{source}: the labels hold only one class ({classes[0]!s}); there is nothing to confuse it with"
            )
        names, inputs = tuple(str(c) for c in classes.tolist()), None
        if spec.kind == "instance":
            inputs = load(source, label_column=label_column).inputs
        elif spec.kind == "asymmetric":
            names, inputs = _look(source, label_column, names)
        noisy = noise.corrupt(old, spec, num_classes=len(names), class_names=names, inputs=inputs, seed=seed)
        new = noisy.labels.numpy()
        done.append(Corruption(out, len(new), int((old != new).sum()), names, noisy.transition))
        return classes[new]

    write(source, out, label_column, corrupt)
    return done[0]


def _look(source: Path, label: str | None, names: tuple[str, ...]) -> tuple[tuple[str, ...], Any]:
    """The class names and the shape of the inputs, by which the papers' mappings are chosen, from one example."""
    try:
        example = load(source, label_column=label, limit=1)
    except InputError:  # a table of text, say: its labels can be corrupted all the same
        return names, None
    return (example.class_names if len(example.class_names) == len(names) else names), example.inputs


def _csv(source: Path, out: Path, label: str | None, corrupt: _Corrupt) -> None:
    """Copy a CSV file row by row, its other cells, its line ends and its byte-order mark untouched."""
    from noiseproof.data.readers.tables import column_values, delimiter, label_column, read_table

    table = read_table(source)  # pyarrow finds what is wrong with the file, and the type of the labels
    label = label_column(source, table.column_names, label)
    old = column_values(source, table, label)
    keep_true = _check_true(source, table, label, old)
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
    new = corrupt(old)
    with replacing(out) as temporary, open(temporary, "w", encoding=encoding, newline="") as lines:
        writer = csv.writer(lines, delimiter=separator, lineterminator=end)
        writer.writerow(header if keep_true else [*header, TRUE_COLUMN])
        for row, before, after in zip(rows, old.tolist(), new.tolist(), strict=True):
            kept = [] if keep_true else [row[at]]
            row[at] = row[at] if before == after else text[after]
            writer.writerow([*row, *kept])


def _parquet(source: Path, out: Path, label: str | None, corrupt: _Corrupt) -> None:
    """Copy a Parquet file with its schema and metadata."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    from noiseproof.data.readers.tables import column_values, label_column, read_table

    table = read_table(source)
    label = label_column(source, table.column_names, label)
    old = column_values(source, table, label)
    keep_true = _check_true(source, table, label, old)
    field = table.schema.field(label)
    clean = table.column(label)
    if pa.types.is_dictionary(field.type):
        names = clean.unify_dictionaries().chunk(0).dictionary
        at = pc.index_in(pa.array(corrupt(old), type=names.type), value_set=names).cast(field.type.index_type)
        column = pa.DictionaryArray.from_arrays(at, names, ordered=field.type.ordered)
    else:
        column = pa.array(corrupt(old), type=field.type)
    table = table.set_column(table.column_names.index(label), field, column)
    if not keep_true:
        table = table.append_column(TRUE_COLUMN, clean)
    with replacing(out) as temporary:
        pq.write_table(table, temporary)


def _npz(source: Path, out: Path, label: str | None, corrupt: _Corrupt) -> None:
    """Copy an .npz file member by member; the labels of the train set change."""
    from noiseproof.data.readers.arrays import LABEL_KEYS, TRUE_KEYS, find_key, read_array

    key = label or find_key(source, LABEL_KEYS, "_train") or find_key(source, LABEL_KEYS)
    old = read_array(source, key)
    suffix = "_train" if key is not None and key.lower().endswith("_train") else ""
    has_true = find_key(source, TRUE_KEYS, suffix)
    if has_true is not None and not np.array_equal(read_array(source, has_true), old):
        raise _has_true(source, has_true)
    true_key = has_true or TRUE_COLUMN + suffix
    with (
        zipfile.ZipFile(source) as archive,
        replacing(out) as temporary,
        zipfile.ZipFile(temporary, "w", allowZip64=True) as copy,
    ):
        for member in archive.infolist():
            if member.filename in (f"{key}.npy", f"{true_key}.npy"):
                continue
            with archive.open(member) as reader, copy.open(_like(member), "w", force_zip64=True) as writer:
                shutil.copyfileobj(reader, writer)
        for name, array in ((key, corrupt(old).astype(old.dtype).reshape(old.shape)), (true_key, old)):
            with copy.open(f"{name}.npy", "w", force_zip64=True) as writer:
                np.lib.format.write_array(writer, np.ascontiguousarray(array), allow_pickle=False)


def _like(member: zipfile.ZipInfo) -> zipfile.ZipInfo:
    """A new zip entry with the name and compression of another."""
    info = zipfile.ZipInfo(member.filename, member.date_time)
    info.compress_type = member.compress_type
    return info


def _check_true(source: Path, table: Any, label: str, old: np.ndarray) -> bool:
    """Whether the table has a `true_label` column already, which must then equal the labels."""
    from noiseproof.data.readers.tables import TRUE_NAMES, column_values

    found = next((name for name in table.column_names if name.lower() in TRUE_NAMES), None)
    if found is None:
        return False
    if label == found or not np.array_equal(column_values(source, table, found), old):
        raise _has_true(source, found)
    return True


def _has_true(source: Path, name: str) -> InputError:
    return InputError(f"{source} has noisy labels already ({name!r} differs from the labels); corrupt a clean file")

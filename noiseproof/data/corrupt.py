"""Write a noisy copy of a data file: what one tries an audit or a method on before trusting it with real noise."""

from __future__ import annotations

import csv
import os
import shutil
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from noiseproof.data import noise
from noiseproof.data.readers import load
from noiseproof.data.readers.options import first_bytes
from noiseproof.errors import InputError
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
    """Copy a CSV file row by row, its other cells untouched as text."""
    from noiseproof.data.readers.tables import column_values, delimiter, label_column, read_table

    table = read_table(source)  # pyarrow finds what is wrong with the file, and the type of the labels
    label = label_column(source, table.column_names, label)
    old = column_values(source, table, label)
    keep_true = _check_true(source, table, label, old)
    with open(source, newline="", encoding="utf-8-sig") as file:
        separator = delimiter(file.readline())
        file.seek(0)
        header, *rows = (row for row in csv.reader(file, delimiter=separator) if row)  # pyarrow skips blank lines too
    at = header.index(label)
    values, first = np.unique(old, return_index=True)
    text = {value: rows[i][at] for value, i in zip(values.tolist(), first.tolist(), strict=True)}  # as the file has it
    new = corrupt(old)
    with replacing(out) as temporary, open(temporary, "w", encoding="utf-8", newline="") as lines:
        writer = csv.writer(lines, delimiter=separator, lineterminator="\n")
        writer.writerow(header if keep_true else [*header, TRUE_COLUMN])
        for row, before, after in zip(rows, old.tolist(), new.tolist(), strict=True):
            kept = [] if keep_true else [row[at]]
            row[at] = row[at] if before == after else text[after]
            writer.writerow([*row, *kept])


def _parquet(source: Path, out: Path, label: str | None, corrupt: _Corrupt) -> None:
    """Copy a Parquet file with its schema and metadata."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from noiseproof.data.readers.tables import column_values, label_column, read_table

    table = read_table(source)
    label = label_column(source, table.column_names, label)
    old = column_values(source, table, label)
    keep_true = _check_true(source, table, label, old)
    field = table.schema.field(label)
    plain = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    column = pa.array(corrupt(old), type=plain)
    if pa.types.is_dictionary(field.type):
        column = column.dictionary_encode().cast(field.type)
    clean = table.column(label)
    table = table.set_column(table.column_names.index(label), field, column)
    if not keep_true:
        table = table.append_column(TRUE_COLUMN, clean)
    with replacing(out) as temporary:
        pq.write_table(table, temporary)


def _npz(source: Path, out: Path, label: str | None, corrupt: _Corrupt) -> None:
    """Copy an .npz file member by member; the labels of the train set change."""
    from noiseproof.data.readers.arrays import LABEL_KEYS, find_key, read_array

    key = label or find_key(source, LABEL_KEYS, "_train") or find_key(source, LABEL_KEYS)
    old = read_array(source, key)
    true_key = TRUE_COLUMN + ("_train" if key is not None and key.endswith("_train") else "")
    with (
        zipfile.ZipFile(source) as archive,
        replacing(out) as temporary,
        zipfile.ZipFile(temporary, "w", allowZip64=True) as copy,
    ):
        names = archive.namelist()
        if f"{true_key}.npy" in names and not np.array_equal(read_array(source, true_key), old):
            raise _has_true(source, true_key)
        for member in archive.infolist():
            if member.filename in (f"{key}.npy", f"{true_key}.npy"):
                continue
            with archive.open(member) as reader, copy.open(_like(member), "w", force_zip64=True) as writer:
                shutil.copyfileobj(reader, writer)
        for name, array in ((key, corrupt(old).astype(old.dtype)), (true_key, old)):
            with copy.open(f"{name}.npy", "w", force_zip64=True) as writer:
                np.lib.format.write_array(writer, np.ascontiguousarray(array), allow_pickle=False)


def _like(member: zipfile.ZipInfo) -> zipfile.ZipInfo:
    """A new zip entry with the name and compression of another."""
    info = zipfile.ZipInfo(member.filename, member.date_time)
    info.compress_type = member.compress_type
    return info


def _check_true(source: Path, table: Any, label: str, old: np.ndarray) -> bool:
    """Whether the table has a `true_label` column already, which must then equal the labels."""
    from noiseproof.data.readers.tables import column_values

    if TRUE_COLUMN not in table.column_names:
        return False
    if label == TRUE_COLUMN or not np.array_equal(column_values(source, table, TRUE_COLUMN), old):
        raise _has_true(source, TRUE_COLUMN)
    return True


def _has_true(source: Path, name: str) -> InputError:
    return InputError(f"{source} has noisy labels already ({name!r} differs from the labels); corrupt a clean file")

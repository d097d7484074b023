"""Read labelled data from what users have: one file per format, found by what is there rather than by its name."""

from __future__ import annotations

import difflib
import gzip
import os
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from noiseproof.data.label_checks import check_class_names, is_whole
from noiseproof.data.labeled import LabeledData
from noiseproof.data.readers.builtin import BUILTIN
from noiseproof.data.readers.label_files import load_labels, read_label_file, split_spec
from noiseproof.data.readers.options import (
    MEMORY_LIMIT,
    Options,
    Progress,
    Splits,
    Unlabeled,
    even_rows,
    first_bytes,
    image_size,
)
from noiseproof.errors import InputError, naming, unknown

__all__ = ["load", "load_labels", "load_pair", "read_label_file"]

FORMATS = (
    "IDX (MNIST), CIFAR python batches, npz, a folder of npy, CSV, Parquet, a folder of images sorted by class, "
    "WebVision and Clothing1M"
)


def load(
    source: str | os.PathLike[str],
    *,
    split: str = "train",
    label_column: str | None = None,
    image_column: str | None = None,
    feature_columns: Sequence[str] | None = None,
    image_size: int | tuple[int, int] | None = None,
    memory_limit: int = MEMORY_LIMIT,
    limit: int | None = None,
    labels: str | None = None,
    labeled: bool = True,
    class_names: Sequence[str] | None = None,
    progress: Progress | None = None,
) -> LabeledData:
    """Read labelled data by name or from a path; the format is told by what is there.

    Args:
        source: "digits" (inside scikit-learn), "fashion-mnist" (Debian's dataset-fashion-mnist), "mnist" (under
            $NOISEPROOF_DATA), or the path of IDX files, CIFAR-10/100 python batches (folder or .tar.gz), an .npz
            file, a folder of .npy files, a CSV or Parquet table, a folder of images sorted by class, or the root of
            WebVision 1.0 or Clothing1M.
        split: "train", or "test" where the source has one (t10k files, test_batch, x_test, a -test sibling, test/).
        label_column: the labels' column or array; "fine" or "coarse" for CIFAR-100, "mini" for the first 50
            classes of WebVision.
        image_column: the images' column (bytes, {bytes, path} or paths relative to the table).
        feature_columns: the columns to use as features; default every numeric one.
        image_size: bring images in folders and tables to this (height, width) or square: scaled to cover it, then
            cropped at the centre. Needed only where they differ in size.
        memory_limit: beyond so many bytes of inputs, images stay encoded until taken and arrays stay on disk.
        limit: read only so many examples, spread evenly over the source.
        labels: "FILE:COLUMN", a label file for the train split (see `read_label_file`), e.g. CIFAR-N's; the labels
            of the source itself become `true_labels`.
        labeled: False takes images in one folder, tables and arrays without labels too: to pre-train on.
        class_names: the classes the labels are among, as those of a training set read elsewhere; some may be missing.
        progress: called with (done, total) while images are decoded.

    Raises:
        InputError: one sentence on what is wrong with the source, and where.
    """
    if split not in ("train", "test"):
        raise unknown("split", split, ("train", "test"))
    options = _options(
        label_column, image_column, feature_columns, image_size, memory_limit, limit, labeled, class_names, progress
    )
    splits = _find(source)
    if split not in splits:
        raise InputError(f"{source} has no test set; read it whole and split it with data.split(0.2)")
    data = splits[split](options)
    return data if labels is None or split == "test" else _relabel(data, labels, limit)


def load_pair(source: str | os.PathLike[str], **options: Any) -> tuple[LabeledData, LabeledData | None]:
    """The train set and, where the source has a labelled one, the test set; options as for `load`, `split` aside.

    `limit` holds for each of the two, `labels` for the train set.
    """
    if "split" in options:
        raise InputError("load_pair reads both splits; leave out split, or call load")
    train = load(source, **options)
    try:
        test = load(source, split="test", **options) if "test" in _find(source) else None
    except Unlabeled:
        test = None
    if test is not None and test.class_names != train.class_names:
        raise InputError(
            f"{source}: the test set has {test.num_classes} classes but the train set {train.num_classes}; "
            f"relabel {_difference(train, test)} or add it to the train set"
        )
    return train, test


def _difference(train: LabeledData, test: LabeledData) -> str:
    return ", ".join(repr(c) for c in test.class_names if c not in train.class_names) or "the classes"


def _options(
    label_column: str | None,
    image_column: str | None,
    feature_columns: Sequence[str] | None,
    size: Any,
    memory_limit: int,
    limit: int | None,
    labeled: bool,
    class_names: Sequence[str] | None,
    progress: Progress | None,
) -> Options:
    """The options of `load`, checked."""
    if isinstance(feature_columns, str):
        feature_columns = [feature_columns]
    if feature_columns is not None and image_column is not None:
        raise InputError(f"pass image_column={image_column!r} or feature_columns, not both")
    for name, value in (("limit", limit), ("memory_limit", memory_limit)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise InputError(f"{name} must be a positive whole number, got {value!r}; leave it out for the default")
    return Options(
        label_column=label_column,
        image_column=image_column,
        feature_columns=None if feature_columns is None else tuple(feature_columns),
        image_size=image_size(size),
        memory_limit=memory_limit,
        limit=limit,
        labeled=labeled,
        class_names=check_class_names(class_names),
        progress=progress,
    )


def _relabel(data: LabeledData, spec: str, limit: int | None) -> LabeledData:
    """The data under the labels of a file; with a limit, the file's labels are thinned as the data was."""
    path, column = split_spec(spec)
    values = read_label_file(path, column)
    rows = even_rows(len(values), limit)
    if rows is not None:
        values = values[rows.numpy()]
    if len(values) != len(data):
        raise InputError(
            f"{path} holds {len(values)} labels but the data holds {len(data)} examples; "
            "pass the label file of this data"
        )
    if is_whole(values) and set(values.astype(np.int64).astype(str)) <= set(data.class_names):
        values = values.astype(np.int64).astype(str)  # numbers that are names, as 1 of 1, 2, 3; else positions
    with naming(path):
        return data.with_labels(values)


def _find(source: str | os.PathLike[str]) -> Splits:
    """The splits of a source, by name or by what lies at the path."""
    if not isinstance(source, str | os.PathLike):
        raise InputError(
            f"source must be a name or a path, got {type(source).__name__}; wrap arrays as LabeledData(inputs, labels)"
        )
    name = os.fspath(source)
    if isinstance(source, str) and name in BUILTIN:
        return BUILTIN[name]()
    path = Path(name).expanduser()
    if not path.exists():
        raise _missing(name, path)
    try:
        splits = _find_in_folder(path) if path.is_dir() else _find_in_file(path)
    except PermissionError as error:
        raise InputError(f"{error.filename or path} may not be read by this user; change its permissions") from error
    if splits is None:
        what = "a folder without images or data files" if path.is_dir() else "of an unknown format"
        raise InputError(f"{path} is {what}; noiseproof reads {FORMATS}")
    return splits


def _missing(name: str, path: Path) -> InputError:
    """The error for a path that does not exist, with the nearest name that does."""
    near = difflib.get_close_matches(name.lower(), BUILTIN, n=1)
    if near:
        return InputError(f"{name!r} does not exist; did you mean {near[0]!r}?")
    if path.parent.is_dir():
        near = difflib.get_close_matches(path.name, [p.name for p in path.parent.iterdir()], n=1)
    hint = f"did you mean {path.parent / near[0]}?" if near else f"pass a path, or one of {', '.join(BUILTIN)}"
    return InputError(f"{name!r} does not exist; {hint}")


def _find_in_folder(path: Path) -> Splits | None:
    from noiseproof.data.readers import arrays, cifar, filelists, folder, idx, tables

    found = cifar.find(path) or idx.find(path) or filelists.find(path) or arrays.find(path)
    if found is None and folder.num_classes(path) < 2:  # a table beside one folder of images describes them
        found = tables.find(path)
    return found or folder.find(path)


def _find_in_file(path: Path) -> Splits | None:
    """The reader for a file, by its first bytes."""
    from noiseproof.data.readers import cifar, idx, tables

    head = first_bytes(path, 1024)
    if not head:
        raise InputError(f"{path} is empty; write or fetch it again")
    inner = _unzipped(path) if head[:2] == b"\x1f\x8b" else head
    if idx.is_idx(inner):
        return idx.find(path)
    if inner[257:262] == b"ustar":
        return cifar.find_in_tar(path)
    if head[:4] == b"PAR1":
        return tables.find(path)
    if head[:2] == b"PK":
        return _find_in_zip(path)
    if head[:6] == b"\x93NUMPY":
        raise InputError(
            f"{path} holds one array and no labels; pass its folder (x.npy, y.npy) or an .npz with x and y"
        )
    if head[:1] == b"\x80":
        splits = cifar.find(path.parent)
        if splits is not None:
            raise InputError(f"{path} is one file of a data set; pass its folder {path.parent}")
        raise InputError(f"{path} is a pickle, which can run code when read; save an .npz, CSV or Parquet file instead")
    return tables.find(path) if _is_table_text(path, inner) else None


def _find_in_zip(path: Path) -> Splits | None:
    from noiseproof.data.readers import arrays

    if not zipfile.is_zipfile(path):
        raise InputError(f"{path} is a damaged .npz file (its directory is missing); save or fetch it again")
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
    if any(name.endswith(".npy") for name in names):
        return arrays.find(path)
    if any(name.endswith("data.pkl") for name in names):
        raise InputError(f"{path} is a torch file; as a label file pass it with labels='{path}:COLUMN'")
    return None


def _unzipped(path: Path) -> bytes:
    """The first bytes inside a gzip file."""
    try:
        with gzip.open(path) as file:
            return file.read(1024)
    except (EOFError, OSError, zlib.error) as error:
        raise InputError(f"{path} is a damaged gzip file ({error}); fetch it again") from error


def _is_table_text(path: Path, head: bytes) -> bool:
    """Whether the first bytes look like a table in text: no control characters, and a separator or a table's name."""
    if b"\0" in head or head.lstrip()[:1] in (b"{", b"[", b"<"):
        return False
    named = any(suffix in (".csv", ".tsv", ".txt") for suffix in path.suffixes)
    first = head.split(b"\n", 1)[0]
    printable = sum(byte >= 32 or byte in b"\t\r\n" for byte in head) == len(head)
    return named or (printable and any(separator in first for separator in b",;\t"))

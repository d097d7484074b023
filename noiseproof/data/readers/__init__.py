"""Read labelled data from what users have: one file per format, found by what is there rather than by its name."""

from __future__ import annotations

import difflib
import importlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from noiseproof.checks import choice, require
from noiseproof.data.images import Progress
from noiseproof.data.labeled import LabeledData, is_table
from noiseproof.data.readers.base import MEMORY_LIMIT, Options, Splits, Unlabeled, first_bytes
from noiseproof.data.readers.builtin import BUILTIN
from noiseproof.data.readers.label_files import load_labels, read_label_file, relabel
from noiseproof.errors import InputError, reason, shown

__all__ = ["load", "load_labels", "load_pair", "read_label_file", "relabel", "texts_of"]

# Each reader, a module with `find`, and what it reads, in the order in which they are asked. See base.py.
READERS = {
    "idx": "IDX (MNIST)",
    "cifar": "CIFAR python batches",
    "shards": "tar shards (WebDataset)",
    "arrays": "npz, a folder of npy",
    "filelists": "WebVision, Clothing1M",
    "tables": "CSV, Parquet",
    "folder": "a folder of images sorted by class",
}


def load(
    source: Any,
    *,
    split: str = "train",
    label_column: str | None = None,
    image_column: str | None = None,
    feature_columns: Sequence[str] | None = None,
    kinds: Mapping[str, str] | None = None,
    image_size: int | tuple[int, int] | None = None,
    memory_limit: int = MEMORY_LIMIT,
    limit: int | None = None,
    labels: str | None = None,
    true_labels: str | None = None,
    labeled: bool = True,
    class_names: Sequence[str] | None = None,
    workers: int | None = None,
    decode: bool = True,
    texts: Sequence[str] = (),
    progress: Progress | None = None,
) -> LabeledData:
    """Read labelled data by name or from a path; the format is told by what is there.

    Args:
        source: "digits" (inside scikit-learn), "fashion-mnist" (Debian's dataset-fashion-mnist), "mnist" (under
            $NOISEPROOF_DATA), or the path of IDX files, CIFAR-10/100 python batches (folder or .tar.gz), an .npz
            file, a folder of .npy files, a CSV or Parquet table, a folder of images sorted by class, tar shards as
            WebDataset writes them, or the root of WebVision 1.0 or Clothing1M. Or what is in memory: a pair (X, y), a
            DataFrame or dict of columns with the label among them, a map-style dataset of PyTorch's kind, a dataset of
            Hugging Face's.
        split: "train", or "test" where the source has one (t10k files, test_batch, x_test, a -test sibling, test/).
        label_column: the labels' column or array; "fine" or "coarse" for CIFAR-100, "mini" for the first 50
            classes of WebVision.
        image_column: the images' column (bytes, {bytes, path} or paths relative to the table).
        feature_columns: the columns of a table to use as features; default all others.
        kinds: what some of them are, where that is not what they look like: {"zip": "category"}; "number",
            "category", "date" or "text".
        image_size: bring images in folders and tables to this (height, width) or square: scaled to cover it, then
            cropped at the centre. Needed only where they differ in size.
        memory_limit: beyond so many bytes of inputs, images stay encoded until taken and arrays stay on disk.
        limit: read only so many examples, spread evenly over the source.
        labels: "FILE:COLUMN", a label file for the train split (see `read_label_file`), e.g. CIFAR-N's or corrected
            labels; they go by the file's ids, where it has a column `id`, else by position.
        true_labels: the labels that are right, to measure by: another "FILE:COLUMN", or "own", those of the source.
        labeled: False takes images in one folder, tables and arrays without labels too: to pre-train on.
        class_names: the classes the labels are among, as those of a training set read elsewhere; some may be missing.
        workers: processes that load the items of a dataset that is larger than `memory_limit`; by default one for each
            core, four at most; 0: none.
        decode: False leaves images in folders and tables encoded until they are taken, also below the memory limit.
        texts: columns of a CSV file that are text, whatever they look like: those of its training set (`texts_of`).
        progress: called with (done, total) while images are decoded.

    Raises:
        InputError: one sentence on what is wrong with the source, and where.
    """
    choice("split", split, ("train", "test"))
    for name, spec in (("labels", labels), ("true_labels", true_labels)):
        require(spec is None or isinstance(spec, str), name, spec, "FILE:COLUMN, or None")
    options = Options(
        label_column, image_column, feature_columns, image_size, memory_limit, limit, labeled, class_names,
        decode=decode, progress=progress, kinds=kinds, workers=workers, texts=texts,
    )  # fmt: skip
    try:
        splits = _find(source)
        if split not in splits:
            raise InputError(f"{shown(source)} has no test set; read it whole and split it with data.split(0.2)")
        data = splits[split](options)
    except PermissionError as error:
        raise InputError(f"{error.filename or source} may not be read by this user; change its permissions") from error
    except OSError as error:  # a name that is too long, a disk that fails
        raise InputError(f"{error.filename or source} cannot be read ({reason(error)}); check the path") from error
    return data if split == "test" else relabel(data, labels, true_labels, limit=limit)


def load_pair(source: Any, **options: Any) -> tuple[LabeledData, LabeledData | None]:
    """The train set and, where the source has a labelled one, the test set; options as for `load`, `split` aside.

    `limit` holds for each of the two, `labels` and `true_labels` for the train set.
    """
    if "split" in options:
        raise InputError("load_pair reads both splits; leave out split, or call load")
    train = load(source, **options)
    try:
        test = load(source, split="test", **options) if "test" in _find(source) else None
    except Unlabeled:
        test = None
    if test is None or test.class_names == train.class_names:
        return train, test
    if extra := ", ".join(repr(c) for c in test.class_names if c not in train.class_names):
        raise InputError(
            f"{source}: the test set has {test.num_classes} classes but the train set {train.num_classes}; "
            f"relabel {extra} or add it to the train set"
        )
    return train, test.recast(train.class_names)


def texts_of(train: LabeledData) -> list[str]:
    """The columns of a training set that are text: those of CSV files of the same kind must be read so, too."""
    if not is_table(train.inputs):
        return []
    from noiseproof.data.readers.table_files import text_columns

    return text_columns(train.inputs.levels())


def _find(source: Any) -> Splits:
    """The splits of a source, by name or by what lies at the path."""
    if not isinstance(source, str | os.PathLike):
        return importlib.import_module(f"{__name__}.memory").find(source)
    name = os.fspath(source)
    if isinstance(source, str) and name in BUILTIN:
        return BUILTIN[name]()
    path = Path(name).expanduser()
    if not path.exists():
        raise _missing(name, path)
    if path.is_file() and not first_bytes(path, 1):
        raise InputError(f"{path} is empty; write or fetch it again")
    for reader in READERS:
        splits: Splits | None = importlib.import_module(f"{__name__}.{reader}").find(path)
        if splits is not None:
            return splits
    what = "a folder without images or data files" if path.is_dir() else "of an unknown format"
    raise InputError(f"{path} is {what}; noiseproof reads {', '.join(READERS.values())}")


def _missing(name: str, path: Path) -> InputError:
    """The error for a path that does not exist, with the nearest name that does."""
    near = difflib.get_close_matches(name.lower(), BUILTIN, n=1)
    if near:
        return InputError(f"{name!r} does not exist; did you mean {near[0]!r}?")
    if path.parent.is_dir():
        near = difflib.get_close_matches(path.name, [p.name for p in path.parent.iterdir()], n=1)
    hint = f"did you mean {path.parent / near[0]}?" if near else f"pass a path, or one of {', '.join(BUILTIN)}"
    return InputError(f"{name!r} does not exist; {hint}")

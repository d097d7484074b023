"""The python version of CIFAR-10 and CIFAR-100: a folder of pickles, or the .tar.gz they come in."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from noiseproof.data.label_checks import check_whole, label_vector
from noiseproof.data.labeled import LabeledData
from noiseproof.data.readers.base import Options, Splits, first_bytes
from noiseproof.data.readers.unpickle import unpickle
from noiseproof.errors import InputError, damage, naming


class _Files(NamedTuple):
    """What the files of a data set are called."""

    train: tuple[str, ...]
    test: tuple[str, ...]
    meta: str


_CIFAR10 = _Files(tuple(f"data_batch_{i}" for i in range(1, 6)), ("test_batch",), "batches.meta")
_CIFAR100 = _Files(("train",), ("test",), "meta")


def find(path: Path) -> Splits | None:
    """The splits of a CIFAR folder, of a folder that holds one, or of an archive; None where there is none."""
    if path.is_file():
        return _find_in_file(path)
    signs = (_CIFAR10.train[0], _CIFAR10.meta, _CIFAR100.train[0], _CIFAR100.meta)
    for folder in (path, path / "cifar-10-batches-py", path / "cifar-100-python"):
        if splits := _splits(folder, {name for name in signs if (folder / name).is_file()}):
            return splits
    return None


def _find_in_file(path: Path) -> Splits | None:
    """The splits of a CIFAR .tar.gz, read in memory: nothing is unpacked to disk."""
    if first_bytes(path, 1) == b"\x80":
        if find(path.parent) is not None:
            raise InputError(f"{path} is one file of a data set; pass its folder {path.parent}")
        raise InputError(f"{path} is a pickle, which can run code when read; save an .npz, CSV or Parquet file instead")
    if first_bytes(path, 262, unzip=True)[257:] != b"ustar":
        return None
    names: set[str] = set()
    with damage(f"{path} is a damaged archive"), tarfile.open(path) as tar:
        for member in tar:
            names.add(Path(member.name).name)
            if splits := _splits(path, names):
                return splits
    return None


def _splits(path: Path, names: set[str]) -> Splits | None:
    """The splits of the data set to which files of these names belong, if they do to one."""
    if {_CIFAR10.train[0], _CIFAR10.meta} & names:
        files = _CIFAR10
    elif {*_CIFAR100.train, _CIFAR100.meta} <= names:
        files = _CIFAR100
    else:
        return None
    return {"train": partial(_read, path, files, files.train), "test": partial(_read, path, files, files.test)}


def _read(path: Path, files: _Files, batches: tuple[str, ...], options: Options) -> LabeledData:
    """Read the named batches into one uint8 array (n, 3, 32, 32)."""
    options.refuse(path, "image_column", "feature_columns", "kinds", "image_size")
    label_key, names_key = _keys(path, files, options.label_column)
    class_names: list[str] = []
    images = all_labels = np.empty(0, dtype=np.uint8)
    size = 0
    members = _in_folder if path.is_dir() else _in_archive
    for name, content in members(path, {files.meta, *batches}):
        record = unpickle(content, f"{path}/{name}")
        if name == files.meta:
            listed = _field(path, name, record, names_key)
            if not isinstance(listed, list | tuple):
                raise InputError(f"{path}/{name}: {names_key!r} should be a list of names; fetch the file again")
            class_names = [c.decode("utf-8", "replace") if isinstance(c, bytes) else str(c) for c in listed]
            continue
        pixels, labels = _batch(path, name, record, label_key)
        if size == 0:  # the first batch says how large all of them are, so that the images are in memory once
            size = len(pixels)
            images = np.empty((len(batches) * size, 3, 32, 32), dtype=np.uint8)
            all_labels = np.empty(len(batches) * size, dtype=np.int64)
        if not len(pixels) == len(labels) == size:
            raise InputError(
                f"{path}/{name} holds {len(pixels)} images and {len(labels)} labels where {size} are due; "
                "fetch it again"
            )
        start = batches.index(name) * size
        images[start : start + size] = pixels.reshape(-1, 3, 32, 32)
        all_labels[start : start + size] = labels
        del record, pixels
    return options.build(path, images, all_labels, class_names=class_names, allow_empty=True)


def _batch(path: Path, name: str, record: Any, label_key: str) -> tuple[np.ndarray, np.ndarray]:
    """The pixels (n, 3072) and the labels (n,) of a batch."""
    pixels, labels = (_field(path, name, record, key) for key in ("data", label_key))
    if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.ndim != 2 or pixels.shape[1] != 3072:
        raise InputError(f"{path}/{name}: 'data' should be uint8 (n, 3072); fetch the file again")
    with naming(f"{path}/{name}"):
        labels = label_vector(label_key, labels)
        check_whole(label_key, labels)
    return pixels, labels


def _keys(path: Path, files: _Files, column: str | None) -> tuple[str, str]:
    """The keys of the labels in a batch, and of their names in the meta file."""
    if files == _CIFAR10:
        if column not in (None, "labels", "label"):
            raise InputError(f"{path}: CIFAR-10 has no label_column {column!r}; leave it out")
        return "labels", "label_names"
    kind = (column or "fine").removesuffix("_labels").removesuffix("_label")
    if kind not in ("fine", "coarse"):
        raise InputError(f"{path}: CIFAR-100 has no label_column {column!r}; choose fine or coarse")
    return f"{kind}_labels", f"{kind}_label_names"


def _field(path: Path, name: str, record: Any, key: str) -> Any:
    """One entry of an unpickled dict, whose keys are bytes if Python 2 wrote it."""
    for k in (key, key.encode()):
        if isinstance(record, dict) and k in record:
            return record[k]
    raise InputError(f"{path}/{name} lacks {key!r}: it is not a CIFAR file; fetch it again")


def _in_folder(folder: Path, names: set[str]) -> Iterator[tuple[str, IO[bytes]]]:
    """The named files one by one."""
    for name in sorted(names):
        if not (folder / name).is_file():
            raise InputError(f"{folder} lacks the file {name}; unpack the whole archive there")
        with open(folder / name, "rb") as file:
            yield name, file


def _in_archive(path: Path, names: set[str]) -> Iterator[tuple[str, IO[bytes]]]:
    """The named files one by one, in the order of the archive."""
    missing = set(names)
    with damage(f"{path} is a damaged archive"), tarfile.open(path) as tar:
        for member in tar:
            name = Path(member.name).name
            content = tar.extractfile(member) if name in missing and member.isfile() else None
            if content is not None:
                missing.discard(name)
                yield name, content
    if missing:
        raise InputError(f"{path} lacks the file {min(missing)}; fetch it again")

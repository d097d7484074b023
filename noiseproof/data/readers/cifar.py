"""The python version of CIFAR-10 and CIFAR-100: a folder of pickles, or the .tar.gz they come in."""

from __future__ import annotations

import tarfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np

from noiseproof.data.label_checks import check_whole, label_vector
from noiseproof.data.labeled import LabeledData
from noiseproof.data.readers.options import Options, Splits, even_rows
from noiseproof.data.readers.unpickle import unpickle
from noiseproof.errors import InputError, naming

_BATCHES = tuple(f"data_batch_{i}" for i in range(1, 6))
_Members = Callable[[set[str]], Iterator[tuple[str, IO[bytes]]]]  # the named files one by one, in any order


def find(path: Path) -> Splits | None:
    """The splits of a CIFAR folder, or of a folder that holds one; None where there is none."""
    for folder in (path, path / "cifar-10-batches-py", path / "cifar-100-python"):
        if (folder / _BATCHES[0]).is_file() or (folder / "batches.meta").is_file():
            return _splits(folder, _folder_members(folder), fine=False)
        if all((folder / name).is_file() for name in ("train", "meta")):
            return _splits(folder, _folder_members(folder), fine=True)
    return None


def find_in_tar(path: Path) -> Splits | None:
    """The splits of a CIFAR .tar.gz, read in memory: nothing is unpacked to disk; None where it holds no CIFAR."""
    try:
        with tarfile.open(path) as tar:
            names: set[str] = set()
            for member in tar:
                names.add(Path(member.name).name)
                if "batches.meta" in names or _BATCHES[0] in names:
                    return _splits(path, _tar_members(path), fine=False)
                if {"train", "meta"} <= names:
                    return _splits(path, _tar_members(path), fine=True)
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        raise InputError(f"{path} is a damaged archive ({error}); fetch it again") from error
    return None


def _splits(path: Path, members: _Members, fine: bool) -> Splits:
    train, test = (("train",), ("test",)) if fine else (_BATCHES, ("test_batch",))
    meta = "meta" if fine else "batches.meta"
    return {
        "train": lambda options: _read(path, members, train, meta, options),
        "test": lambda options: _read(path, members, test, meta, options),
    }


def _read(path: Path, members: _Members, names: tuple[str, ...], meta: str, options: Options) -> LabeledData:
    """Read the named batches into one uint8 array (n, 3, 32, 32)."""
    options.refuse(path, "image_column", "feature_columns", "image_size")
    label_key, names_key = _label_keys(path, meta, options.label_column)
    class_names: list[str] = []
    images = all_labels = np.empty(0, dtype=np.uint8)
    size = 0
    for name, content in members({meta, *names}):
        record = unpickle(content, f"{path}/{name}")
        if name == meta:
            listed = _field(path, name, record, names_key)
            if not isinstance(listed, list | tuple):
                raise InputError(f"{path}/{name}: {names_key!r} should be a list of names; fetch the file again")
            class_names = [_text(c) for c in listed]
            continue
        pixels, labels = _pixels(path, name, record), _labels(path, name, record, label_key)
        if size == 0:  # the first batch says how large all of them are, so that the images are in memory once
            size = len(pixels)
            images = np.empty((len(names) * size, 3, 32, 32), dtype=np.uint8)
            all_labels = np.empty(len(names) * size, dtype=np.int64)
        if not len(pixels) == len(labels) == size:
            raise InputError(
                f"{path}/{name} holds {len(pixels)} images and {len(labels)} labels where {size} are due; "
                "fetch it again"
            )
        start = names.index(name) * size
        images[start : start + size] = pixels.reshape(-1, 3, 32, 32)
        all_labels[start : start + size] = labels
        del record, pixels
    chosen = even_rows(len(all_labels), options.limit)
    if chosen is not None:
        images, all_labels = images[chosen.numpy()], all_labels[chosen.numpy()]
    return options.build(path, images, all_labels, class_names=class_names, allow_empty=True)


def _pixels(path: Path, name: str, record: Any) -> np.ndarray:
    rows = _field(path, name, record, "data")
    if not isinstance(rows, np.ndarray) or rows.dtype != np.uint8 or rows.ndim != 2 or rows.shape[1] != 3072:
        raise InputError(f"{path}/{name}: 'data' should be uint8 (n, 3072); fetch the file again")
    return rows


def _labels(path: Path, name: str, record: Any, key: str) -> np.ndarray:
    values = _field(path, name, record, key)
    with naming(f"{path}/{name}"):
        labels = label_vector(key, values)
        check_whole(key, labels)
        return labels


def _label_keys(path: Path, meta: str, column: str | None) -> tuple[str, str]:
    """The keys of the labels in a batch, and of their names in the meta file."""
    if meta == "batches.meta":
        if column not in (None, "labels", "label"):
            raise InputError(f"{path}: CIFAR-10 has no label_column {column!r}; leave it out")
        return "labels", "label_names"
    kind = (column or "fine").removesuffix("_labels").removesuffix("_label")
    if kind not in ("fine", "coarse"):
        raise InputError(f"{path}: CIFAR-100 has no label_column {column!r}; choose fine or coarse")
    return f"{kind}_labels", f"{kind}_label_names"


def _field(path: Path, name: str, record: Any, key: str) -> Any:
    """One entry of an unpickled dict, whose keys are bytes if Python 2 wrote it."""
    if isinstance(record, dict):
        for k in (key, key.encode()):
            if k in record:
                return record[k]
    raise InputError(f"{path}/{name} lacks {key!r}: it is not a CIFAR file; fetch it again")


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _folder_members(folder: Path) -> _Members:
    def members(names: set[str]) -> Iterator[tuple[str, IO[bytes]]]:
        for name in sorted(names):
            if not (folder / name).is_file():
                raise InputError(f"{folder} lacks the file {name}; unpack the whole archive there")
            with open(folder / name, "rb") as file:
                yield name, file

    return members


def _tar_members(path: Path) -> _Members:
    def members(names: set[str]) -> Iterator[tuple[str, IO[bytes]]]:
        missing = set(names)
        try:
            with tarfile.open(path) as tar:
                for member in tar:
                    name = Path(member.name).name
                    content = tar.extractfile(member) if name in missing and member.isfile() else None
                    if content is not None:
                        missing.discard(name)
                        yield name, content
        except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
            raise InputError(f"{path} is a damaged archive ({error}); fetch it again") from error
        if missing:
            raise InputError(f"{path} lacks the file {min(missing)}; fetch it again")

    return members

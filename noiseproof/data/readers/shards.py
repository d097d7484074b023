"""Tar shards as WebDataset writes them: files of one name are one example, `0001.jpg` with `0001.cls` (or .txt, .json).

Images stay in their shards until they are decoded: a process reads what it trains on, and nothing else. A shard is read
once for the places of its members, which of large sets are kept in `$NOISEPROOF_CACHE`, by default ~/.cache/noiseproof.
"""

from __future__ import annotations

import hashlib
import os
import re
import tarfile
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import overload

import numpy as np
import pyarrow as pa

from noiseproof.data.input_checks import readable
from noiseproof.data.labeled import LabeledData
from noiseproof.data.readers.base import TEST_NAMES, Options, Splits, Unlabeled, classes, splits
from noiseproof.errors import InputError, damage
from noiseproof.files import cache_folder, parse_json, write_atomically

IMAGES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif")
LABELS = (".cls", ".label", ".txt", ".json")
_MANY = 10_000  # examples whose places are worth keeping
_NEAR = 2**18  # bytes between two members that are rather read than left out


class Members(Sequence[bytes]):
    """Members of tar files, read when they are asked for."""

    def __init__(self, paths: list[Path], places: np.ndarray) -> None:
        self.paths, self.places = paths, places  # (m, 3) of each: the file, and from where so many bytes

    def __len__(self) -> int:
        return len(self.places)

    @overload
    def __getitem__(self, i: int) -> bytes: ...
    @overload
    def __getitem__(self, i: slice) -> Members: ...
    def __getitem__(self, i: int | slice) -> bytes | Members:
        if isinstance(i, slice):
            return Members(self.paths, self.places[i])
        path, start, size = self.places[i].tolist()
        return _bytes(self.paths[path], start, size)

    def at(self, rows: np.ndarray) -> Members:
        return Members(self.paths, self.places[rows])

    def fetch(self, rows: np.ndarray) -> None:
        """Have the operating system read these members, in long stretches, if they lie in such, and go on."""
        if not hasattr(os, "posix_fadvise"):
            return
        file, start, size = self.places[rows[np.lexsort((self.places[rows, 1], self.places[rows, 0]))]].T
        apart = (np.diff(file) != 0) | (start[1:] - start[:-1] - size[:-1] > _NEAR)
        ends = [*np.flatnonzero(apart).tolist(), len(rows) - 1]
        if len(ends) > len(rows) // 4:  # at random places: nothing is gained
            return
        for first, last in zip([0, *(end + 1 for end in ends)], ends, strict=False):
            length = int(start[last] + size[last] - start[first])
            with suppress(OSError), open(self.paths[file[first]], "rb") as shard:  # whoever takes it will say why not
                os.posix_fadvise(shard.fileno(), int(start[first]), length, os.POSIX_FADV_WILLNEED)


def _bytes(path: Path, start: int, size: int) -> bytes:
    with open(path, "rb") as file:
        file.seek(start)
        return file.read(size)


def find(path: Path) -> Splits | None:
    """The splits of a tar file, or of a folder of them: those with the words train and test in their names."""
    if path.is_file():
        return splits(partial(_read, [path])) if path.suffix == ".tar" and tarfile.is_tarfile(path) else None
    shards = sorted(path.glob("*.tar"))
    tests = next((found for name in TEST_NAMES if (found := _named(shards, name))), None)
    train = _named(shards, "train") or [one for one in shards if one not in (tests or ())]
    return splits(partial(_read, train), None if tests is None else partial(_read, tests)) if train else None


def _named(shards: list[Path], word: str) -> list[Path]:
    return [one for one in shards if re.search(rf"(?<![a-zA-Z]){word}(?![a-zA-Z])", one.stem)]


def _read(paths: list[Path], options: Options) -> LabeledData:
    options.refuse(paths[0], "image_column", "feature_columns", "kinds")
    index = _kept(paths, options) or _index(paths, options)
    ids = index["id"].to_pylist()
    places = np.stack([index[name].to_numpy() for name in ("file", "start", "size")], axis=1)
    names, given = None, None
    if options.labeled:
        labels = [int(one) if one.isdecimal() else one for one in index["label"].to_pylist()]
        given = np.array(labels)
        names, given, _ = classes(paths[0], "label", given, given, None)
    return options.build(
        paths[0], Members(paths, places), given, class_names=names, ids=ids, image_names=ids,
    )  # fmt: skip


def _kept(paths: list[Path], options: Options) -> pa.Table | None:
    """The index of these shards as it was found before, if they are as they were."""
    import pyarrow.feather as feather

    try:
        return feather.read_table(_keeping(paths, options)) if _keeping(paths, options).is_file() else None
    except (OSError, pa.ArrowInvalid):
        return None


def _keeping(paths: list[Path], options: Options) -> Path:
    """Where their index is kept, under a checksum of what it depends on."""
    told = [(str(path.resolve()), path.stat().st_size, path.stat().st_mtime_ns) for path in paths]
    name = hashlib.sha256(repr((told, options.label_column, options.labeled)).encode()).hexdigest()[:32]
    return cache_folder() / f"shards-{name}.feather"


def _index(paths: list[Path], options: Options) -> pa.Table:
    """The examples in the shards: id, label, and where the image lies. Of large sets it is kept for the next time."""
    import pyarrow.feather as feather

    column = options.label_column or "label"
    rows: dict[str, list[object]] = {name: [] for name in ("id", "file", "start", "size", "label")}
    for number, path in enumerate(paths):
        found: dict[str, dict[str, tuple[Path, int, int]]] = {}
        with damage(f"{path} is a damaged tar file"), tarfile.open(path, "r:") as shard:
            for member in shard:
                shard.members = []  # type: ignore[attr-defined]  # else it keeps them all
                _, dot, kind = member.name.rpartition("/")[2].partition(".")
                if member.isfile() and dot:
                    key = readable(f"{path.stem}/{member.name[: len(member.name) - len(kind) - 1]}")
                    found.setdefault(key, {})[f".{kind.lower()}"] = (path, member.offset_data, member.size)
        for key, files in found.items():
            image = next((files[kind] for kind in IMAGES if kind in files), None)
            if image is None:
                raise InputError(f"{path.parent}: {key} has no image ({', '.join(files)}); add one, or remove it")
            label = str(_label(key, files, column)) if options.labeled else None
            for name, value in zip(rows, (key, number, *image[1:], label), strict=True):
                rows[name].append(value)
    if not rows["id"]:
        raise InputError(f"{paths[0]} holds no files such as 0001.jpg and 0001.cls; pass another")
    kinds = {"id": pa.string(), "file": pa.int64(), "start": pa.int64(), "size": pa.int64(), "label": pa.string()}
    index = pa.table({name: pa.array(values, kinds[name]) for name, values in rows.items()})
    if len(index) >= _MANY:
        with suppress(InputError):  # nowhere to keep it
            write_atomically(_keeping(paths, options), lambda path: feather.write_feather(index, path))
    return index


def _label(key: str, files: dict[str, tuple[Path, int, int]], column: str) -> int | str:
    """The label that lies beside an image: a number or a name, in JSON under `column`."""
    kind = next((kind for kind in LABELS if kind in files), None)
    if kind is None:
        raise Unlabeled(f"{key} has no label beside its image ({', '.join(files)}); add {key}.cls")
    content = _bytes(*files[kind])
    if kind == ".json":
        with damage(f"{key}.json is damaged"):
            told = parse_json(content)
        if not isinstance(told, dict) or column not in told:
            held = ", ".join(told) or "nothing" if isinstance(told, dict) else type(told).__name__
            raise InputError(f"{key}.json has no {column!r} (it holds {held:.60}); pass label_column (--label-column)")
        value = told[column]
    else:
        value = content.decode("utf-8", "replace").strip()
    if not isinstance(value, int | str) or value == "":
        raise InputError(f"{key}{kind} must hold a class, a number or a name, got {value!r:.60}; mend it")
    return value

"""Tar shards as WebDataset writes them: files of one name are one example, `0001.jpg` with `0001.cls` (or .txt, .json).

Images stay in their shards until they are decoded: a shard is read once for the places of its members.
"""

from __future__ import annotations

import re
import tarfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import overload

import numpy as np

from noiseproof.data.labeled import LabeledData
from noiseproof.data.readers.base import TEST_NAMES, Options, Splits, Unlabeled, classes, splits
from noiseproof.errors import InputError, damage
from noiseproof.files import parse_json

IMAGES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif")
LABELS = (".cls", ".label", ".txt", ".json")


class Members(Sequence[bytes]):
    """Members of tar files, read when they are asked for."""

    def __init__(self, places: list[tuple[Path, int, int]]) -> None:
        self.places = places  # of each: the file, and from where so many bytes

    def __len__(self) -> int:
        return len(self.places)

    @overload
    def __getitem__(self, i: int) -> bytes: ...
    @overload
    def __getitem__(self, i: slice) -> Members: ...
    def __getitem__(self, i: int | slice) -> bytes | Members:
        if isinstance(i, slice):
            return Members(self.places[i])
        path, start, size = self.places[i]
        with open(path, "rb") as file:
            file.seek(start)
            return file.read(size)

    def at(self, rows: np.ndarray) -> Members:
        return Members([self.places[i] for i in rows])


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
    found: dict[str, dict[str, tuple[Path, int, int]]] = {}
    for path in paths:
        with damage(f"{path} is a damaged tar file"), tarfile.open(path, "r:") as shard:
            for member in shard:
                _, dot, kind = member.name.rpartition("/")[2].partition(".")
                if member.isfile() and dot:
                    key = f"{path.stem}/{member.name[: len(member.name) - len(kind) - 1]}"
                    found.setdefault(key, {})[f".{kind.lower()}"] = (path, member.offset_data, member.size)
    images, labels = [], []
    for key, files in found.items():
        image = next((files[kind] for kind in IMAGES if kind in files), None)
        if image is None:
            raise InputError(f"{paths[0].parent}: {key} has no image ({', '.join(files)}); add one, or remove it")
        images.append(image)
        if options.labeled:
            labels.append(_label(key, files, options.label_column or "label"))
    if not found:
        raise InputError(f"{paths[0]} holds no files such as 0001.jpg and 0001.cls; pass another")
    names, given = None, np.array(labels)
    if options.labeled:
        names, given, _ = classes(paths[0], "label", given, given, None)
    return options.build(
        paths[0], Members(images), given if options.labeled else None,
        class_names=names, ids=list(found), image_names=list(found),
    )  # fmt: skip


def _label(key: str, files: dict[str, tuple[Path, int, int]], column: str) -> int | str:
    """The label that lies beside an image: a number or a name, in JSON under `column`."""
    kind = next((kind for kind in LABELS if kind in files), None)
    if kind is None:
        raise Unlabeled(f"{key} has no label beside its image ({', '.join(files)}); add {key}.cls")
    content = Members([files[kind]])[0]
    if kind == ".json":
        with damage(f"{key}.json is damaged"):
            value = parse_json(content)[column]
    else:
        value = content.decode("utf-8", "replace").strip()
    if not isinstance(value, int | str) or value == "":
        raise InputError(f"{key}{kind} must hold a class, a number or a name, got {value!r:.60}; mend it")
    return int(value) if str(value).isdecimal() else str(value)

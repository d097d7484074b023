"""An image folder: root/class name/*.jpg, or root/train/class name/*.jpg beside root/test or root/val.

Where no labels are asked for, root/*.jpg and a single class will do.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from noiseproof.data.input_checks import readable
from noiseproof.data.labeled import LabeledData
from noiseproof.data.readers.base import TEST_NAMES, Options, Splits
from noiseproof.errors import InputError

_KINDS = "jpg jpeg jpe jfif jp2 png bmp gif webp avif tif tiff ppm pgm pbm pnm"
EXTENSIONS = frozenset(f".{kind}" for kind in _KINDS.split())
_TEST_NAMES = (*TEST_NAMES, "dev")


def find(path: Path) -> Splits | None:
    """The splits of a folder of images; None where no image is in it."""
    if not path.is_dir():
        return None
    if found := roots(path):
        return {split: partial(_read, root, found["train"]) for split, root in found.items()}
    inner = {child.name.lower(): child for child in _subfolders(path)}
    if "train" in inner and set(inner) & set(_TEST_NAMES):
        return {"train": partial(_unsorted, inner["train"])}
    if any(file.suffix.lower() in EXTENSIONS for file in path.iterdir()):
        return {"train": partial(_unsorted, path)}
    return None


def roots(path: Path) -> dict[str, Path]:
    """The folder of each split, whose subfolders are the classes; none where images are not sorted by class."""
    inner = {child.name.lower(): child for child in _subfolders(path)}
    train, tested = inner.get("train"), bool(set(inner) & set(_TEST_NAMES))
    if train is not None and tested and not _subfolders(train):
        return {}
    if train is not None and _subfolders(train):
        others = [child.name for child in inner.values() if child != train and has_images(child)]
        if others and not tested:
            raise InputError(
                f"{path} holds train/ and {others[0]}/: a part of the data or a class? pass {train} to read it alone, "
                f"call the other one test, or rename train"
            )
        test = next(({"test": inner[name]} for name in _TEST_NAMES if name in inner), {})
        return {"train": train, **test}
    return {"train": path} if any(has_images(child) for child in inner.values()) else {}


def _unsorted(root: Path, options: Options) -> LabeledData:
    """The images under `root` if they may be without labels."""
    if options.labeled:
        raise InputError(f"{root} holds images but no folder per class; sort them into {root}/<class name>/")
    return _build(root, sorted(images_below(root)), options)


def _read(root: Path, reference: Path, options: Options) -> LabeledData:
    """The images under `root`; the folders of `reference`, the train root, are the classes."""
    class_names, files, labels = listed(root, reference)
    if len(class_names) == 1 and not options.labeled:
        return _build(root, files, options)
    return _build(root, files, options, labels, class_names=class_names, allow_empty=root != reference)


def listed(root: Path, reference: Path) -> tuple[list[str], list[Path], list[int]]:
    """The classes, the images under `root`, and the class of each."""
    class_names = [folder.name for folder in _subfolders(reference)]
    files: list[Path] = []
    labels: list[int] = []
    for folder in _subfolders(root):
        if folder.name not in class_names:
            raise InputError(f"{folder} is a class that {reference} does not have; rename or remove the folder")
        found = sorted(images_below(folder))
        if not found and root == reference:
            raise InputError(f"class folder {folder} holds no image; fill or delete it")
        files += found
        labels += [class_names.index(folder.name)] * len(found)
    if not files:
        raise InputError(f"{root} holds no images; put them into {root}/<class name>/")
    return class_names, files, labels


def image_ids(root: Path, files: list[Path]) -> list[str]:
    """The ids of images: their paths below `root`."""
    return [readable(file.relative_to(root).as_posix()) for file in files]


def _build(root: Path, files: list[Path], options: Options, labels: Any = None, **names: Any) -> LabeledData:
    options.refuse(root, "label_column", "image_column", "feature_columns", "kinds")
    return options.build(
        root, files, labels, ids=image_ids(root, files), image_names=[str(file) for file in files], **names
    )


def num_classes(path: Path) -> int:
    """How many folders in `path` hold images."""
    return sum(has_images(child) for child in _subfolders(path))


def has_images(folder: Path) -> bool:
    return next(images_below(folder), None) is not None


def _subfolders(path: Path) -> list[Path]:
    """The folders in a folder, sorted by name; hidden ones, archive litter (`__MACOSX`) and runs left out."""
    folders = (child for child in path.iterdir() if child.is_dir() and not _is_litter(child.name))
    return sorted(child for child in folders if not _holds_runs(child))


def _holds_runs(folder: Path) -> bool:
    """Whether a folder is what `fit` writes, or holds such folders."""
    return any(next(folder.glob(pattern), None) is not None for pattern in ("history.jsonl", "*/history.jsonl"))


def images_below(folder: Path) -> Iterator[Path]:
    """Image files under a folder; links to folders are followed, but not upwards, and each folder is seen once."""
    top, seen = os.path.realpath(folder), set[str]()
    for root, folders, files in os.walk(folder, followlinks=True):
        here = os.path.realpath(root)
        if here in seen or (here != top and os.path.commonpath([here, top]) == here):
            folders.clear()
            continue
        seen.add(here)
        folders[:] = sorted(name for name in folders if not _is_litter(name))
        for name in files:
            file = Path(root, name)
            if file.suffix.lower() in EXTENSIONS and not name.startswith(".") and file.is_file():
                yield file


def _is_litter(name: str) -> bool:
    """Whether a folder is hidden, or what an archive or a notebook left behind (`__MACOSX`)."""
    return name.startswith((".", "__"))

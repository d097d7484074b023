"""IDX files: MNIST, Fashion-MNIST, EMNIST and their kin, gzipped or not."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np

from noiseproof.data.labeled import LabeledData
from noiseproof.data.readers.base import INFLATION, Options, Splits, classes, first_bytes, is_gzip, splits, unzipped
from noiseproof.data.sources import Mapped
from noiseproof.errors import InputError

_UNSIGNED_BYTE = 8


def is_idx(head: bytes) -> bool:
    """Whether a file that begins with `head` is an IDX file of 1 to 4 dimensions."""
    return len(head) >= 4 and head[:2] == b"\0\0" and head[2] in (8, 9, 11, 12, 13, 14) and 1 <= head[3] <= 4


def find(path: Path, class_names: tuple[str, ...] | None = None) -> Splits | None:
    """The splits of a folder of IDX files, or of one images file; None where there are none."""
    if path.is_file():
        if not is_idx(first_bytes(path, 4, unzip=True)):
            return None
        if "images" not in path.name:
            raise InputError(f"{path} is an IDX file but its name lacks 'images'; pass the images file or the folder")
        return {"train": partial(_read, path, path, class_names)}
    files = [f for f in sorted(path.iterdir()) if re.search(r"images.*idx3?", f.name) and f.is_file()]
    files = [f for f in files if f.suffix != ".gz" or f.with_suffix("") not in files]  # x and x.gz are one
    train, test = ([f for f in files if ("train" in f.name) == wanted] for wanted in (True, False))
    for kind, images in (("train", train), ("test", test)):
        if len(images) > 1:
            names = ", ".join(f.name for f in images)
            raise InputError(f"{path} holds several {kind} sets ({names}); pass one of these files")
    if not files:
        return None
    if not train:
        raise InputError(f"{path} holds {test[0].name} but no train images; pass that file to read it alone")
    return splits(*(partial(_read, file, train[0], class_names) for file in (*train, *test)))


def _read(images: Path, reference: Path, class_names: Sequence[str] | None, options: Options) -> LabeledData:
    """One images file and its labels; `reference` is the train file, whose labels say how many classes there are."""
    options.refuse(images, "label_column", "image_column", "feature_columns", "kinds", "image_size")
    labels_path = labels_of(images)
    labels = read_array(labels_path, "labels")
    if class_names is None:
        known = labels if images == reference else read_array(labels_of(reference), "labels")
        class_names, labels, _ = classes(labels_path, "labels", known, labels, None)
    pixels = read_array(images, "images", options.memory_limit)
    if len(pixels) != len(labels):
        raise InputError(
            f"{images.name} holds {len(pixels)} images but {labels_path.name} holds {len(labels)} labels; "
            "fetch both files again"
        )
    pixels = pixels[:, None] if pixels.ndim == 3 else pixels  # (n, C, H, W)
    inputs = Mapped(pixels) if isinstance(pixels, np.memmap) else pixels
    return options.build(images, inputs, labels, class_names=class_names, allow_empty=images != reference)


def labels_of(images: Path) -> Path:
    """The labels file beside an images file."""
    name = _stem(images).replace("images", "labels").replace("idx3", "idx1").replace("idx4", "idx1")
    for candidate in (images.with_name(name), images.with_name(name + ".gz")):
        if candidate.is_file():
            return candidate
    raise InputError(f"{images} has no labels file beside it; put {name} or {name}.gz into the same folder")


def read_header(path: Path, kind: str) -> tuple[list[int], int]:
    """The shape of the "labels" (n,) or "images" (n, H, W) an IDX file announces, and where its data begins."""
    with unzipped(path) as file:
        head = file.read(4)
        if not is_idx(head):
            raise InputError(f"{path} is not an IDX file (it begins with {head.hex() or 'nothing'}); fetch it again")
        if head[2] != _UNSIGNED_BYTE:
            raise InputError(f"{path} holds IDX values of type 0x{head[2]:02x}; only unsigned bytes (0x08) are read")
        sizes = file.read(4 * head[3])
    if len(sizes) < 4 * head[3]:
        raise InputError(f"{path} is truncated inside its header; fetch it again")
    shape, offset = np.frombuffer(sizes, dtype=">u4").tolist(), 4 + len(sizes)
    if (len(shape) == 1) != (kind == "labels"):
        raise InputError(f"{path} should hold {kind}, but its shape is {tuple(shape)}; fetch it again")
    size, announced = path.stat().st_size, math.prod(shape)
    if announced > (size * INFLATION if is_gzip(path) else size - offset):  # before memory is asked for
        raise InputError(f"{path} is truncated: {announced:,} bytes announced, the file has {size:,}; fetch it again")
    return shape, offset


def read_array(path: Path, kind: str, memory_limit: float = math.inf) -> np.ndarray:
    """The uint8 array of "labels" or "images" an IDX file holds; a memory map where that exceeds the limit."""
    shape, offset = read_header(path, kind)
    size = math.prod(shape)
    if size > memory_limit:
        if is_gzip(path):
            raise InputError(
                f"{path} expands to {size:,} bytes, beyond memory_limit={memory_limit:,}; "
                "gunzip it (it is then read from disk) or raise memory_limit"
            )
        return np.memmap(path, np.uint8, mode="c", offset=offset, shape=tuple(shape))
    array = np.empty(shape, dtype=np.uint8)
    with unzipped(path) as file:
        file.seek(offset)
        found = file.readinto(array.reshape(-1).data)  # type: ignore[attr-defined]
    if found < size:
        raise InputError(f"{path} is truncated: {size:,} bytes announced, {found:,} found; fetch it again")
    return array


def _stem(path: Path) -> str:
    return path.name.removesuffix(".gz")

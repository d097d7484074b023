"""IDX files: MNIST, Fashion-MNIST, EMNIST and their kin, gzipped or not."""

from __future__ import annotations

import gzip
import re
import zlib
from pathlib import Path
from typing import IO, cast

import numpy as np

from noiseproof.data.labeled import LabeledData
from noiseproof.data.readers.options import Options, Split, Splits, classes, even_rows, first_bytes
from noiseproof.data.sources import InputSource, Mapped, Rows
from noiseproof.errors import InputError

_UNSIGNED_BYTE = 8
_DEFLATE_RATIO = 1100  # gzip cannot expand a file further than about 1,032 times


def is_idx(head: bytes) -> bool:
    """Whether a file that begins with `head` is an IDX file of 1 to 4 dimensions."""
    return len(head) >= 4 and head[:2] == b"\0\0" and head[2] in (8, 9, 11, 12, 13, 14) and 1 <= head[3] <= 4


def find(path: Path, class_names: tuple[str, ...] | None = None) -> Splits | None:
    """The splits of a folder of IDX files, or of one images file; None where there are none."""
    if path.is_file():
        if "images" not in path.name:
            raise InputError(f"{path} is an IDX file but its name lacks 'images'; pass the images file or the folder")
        return {"train": _split(path, path, class_names)}
    images: dict[str, list[Path]] = {"train": [], "test": []}
    for file in sorted(path.iterdir()):
        if re.search(r"images.*idx3?", file.name) and file.is_file():
            kind = "train" if "train" in file.name else "test"
            if not any(_stem(file) == _stem(other) for other in images[kind]):  # x and x.gz side by side are one
                images[kind].append(file)
    for kind, files in images.items():
        if len(files) > 1:
            names = ", ".join(f.name for f in files)
            raise InputError(f"{path} holds several {kind} sets ({names}); pass one of these files")
    if not images["train"] and not images["test"]:
        return None
    if not images["train"]:
        raise InputError(f"{path} holds {images['test'][0].name} but no train images; pass that file to read it alone")
    reference = images["train"][0]
    return {kind: _split(files[0], reference, class_names) for kind, files in images.items() if files}


def _split(images: Path, reference: Path, class_names: tuple[str, ...] | None) -> Split:
    """Reads one images file and its labels; `reference` is the train file, whose labels say how many classes."""

    def read(options: Options) -> LabeledData:
        options.refuse(images, "label_column", "image_column", "feature_columns", "image_size")
        labels_path = labels_of(images)
        labels = read_array(labels_path, "labels")
        names = class_names
        if names is None:
            known = labels if images == reference else read_array(labels_of(reference), "labels")
            found, (labels, _) = classes(labels_path, "labels", known, labels, None)
            names = None if found is None else tuple(found)
        shape, offset = read_header(images)
        _check_length(images, shape, offset)
        if shape[0] != len(labels):
            raise InputError(
                f"{images.name} holds {shape[0]} images but {labels_path.name} holds {len(labels)} labels; "
                "fetch both files again"
            )
        pixels = _pixels(images, options)
        rows = even_rows(len(labels), options.limit)
        if rows is not None:
            labels = labels[rows.numpy()]
            pixels = Rows(pixels, rows) if isinstance(pixels, InputSource) else pixels[rows.numpy()]
        return options.build(
            images, pixels, labels, class_names=names, allow_empty=rows is not None or images != reference
        )

    return read


def _pixels(path: Path, options: Options) -> InputSource | np.ndarray:
    """Images (n, 1, H, W) in memory, or over a memory map beyond the memory limit."""
    shape, offset = read_header(path)
    size = int(np.prod(shape))
    if size > options.memory_limit:
        if _is_gzip(path):
            raise InputError(
                f"{path} expands to {size:,} bytes, beyond memory_limit={options.memory_limit:,}; "
                "gunzip it (it is then read from disk) or raise memory_limit"
            )
        _check_length(path, shape, offset)
        on_disk = np.memmap(path, np.uint8, mode="c", offset=offset, shape=tuple(shape))
        return Mapped(on_disk, (0, -1, 1, 2) if len(shape) == 3 else (0, 1, 2, 3))
    pixels = read_array(path, "images")
    return pixels[:, None] if pixels.ndim == 3 else pixels


def labels_of(images: Path) -> Path:
    """The labels file beside an images file."""
    name = _stem(images).replace("images", "labels").replace("idx3", "idx1").replace("idx4", "idx1")
    for candidate in (images.with_name(name), images.with_name(name + ".gz")):
        if candidate.is_file():
            return candidate
    raise InputError(f"{images} has no labels file beside it; put {name} or {name}.gz into the same folder")


def read_header(path: Path) -> tuple[list[int], int]:
    """The shape an IDX file announces, and where its data begins."""
    with _opened(path) as file:
        head = _read(path, file, 4)
        if not is_idx(head):
            raise InputError(f"{path} is not an IDX file (it begins with {head.hex() or 'nothing'}); fetch it again")
        if head[2] != _UNSIGNED_BYTE:
            raise InputError(f"{path} holds IDX values of type 0x{head[2]:02x}; only unsigned bytes (0x08) are read")
        sizes = _read(path, file, 4 * head[3])
    if len(sizes) < 4 * head[3]:
        raise InputError(f"{path} is truncated inside its header; fetch it again")
    return np.frombuffer(sizes, dtype=">u4").tolist(), 4 + len(sizes)


def read_array(path: Path, kind: str) -> np.ndarray:
    """The uint8 array of "labels" (n,) or "images" (n, H, W) an IDX file holds."""
    shape, offset = read_header(path)
    if (len(shape) == 1) != (kind == "labels"):
        raise InputError(f"{path} should hold {kind}, but its shape is {tuple(shape)}; fetch it again")
    _check_length(path, shape, offset)
    array = np.empty(shape, dtype=np.uint8)
    view = memoryview(array.reshape(-1))  # type: ignore[arg-type]
    done = 0
    with _opened(path) as file:
        _read(path, file, offset)
        while done < len(view):
            got = _read_into(path, file, view[done:])
            if got == 0:
                raise InputError(f"{path} is truncated: {len(view):,} bytes announced, {done:,} found; fetch it again")
            done += got
    return array


def _check_length(path: Path, shape: list[int], offset: int) -> None:
    """Refuse a header that announces more than the file can hold, before memory is asked for."""
    size = path.stat().st_size
    announced = int(np.prod(shape, dtype=object))
    if announced > (size * _DEFLATE_RATIO if _is_gzip(path) else size - offset):
        raise InputError(f"{path} is truncated: {announced:,} bytes announced, the file has {size:,}; fetch it again")


def _stem(path: Path) -> str:
    return path.name.removesuffix(".gz")


def _opened(path: Path) -> IO[bytes]:
    return cast("IO[bytes]", gzip.open(path) if _is_gzip(path) else open(path, "rb"))


def _is_gzip(path: Path) -> bool:
    return first_bytes(path, 2) == b"\x1f\x8b"


def _read(path: Path, file: IO[bytes], count: int) -> bytes:
    try:
        return file.read(count)
    except (EOFError, OSError, zlib.error) as error:
        raise InputError(f"{path} is a damaged gzip file ({error}); fetch it again") from error


def _read_into(path: Path, file: IO[bytes], view: memoryview) -> int:
    try:
        return file.readinto(view)  # type: ignore[attr-defined]
    except (EOFError, OSError, zlib.error) as error:
        raise InputError(f"{path} is a damaged gzip file ({error}); fetch it again") from error

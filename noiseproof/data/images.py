"""Decode images with Pillow, in threads: all at once into one uint8 array, or lazily, batch by batch."""

from __future__ import annotations

import io
import os
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import numpy as np
import torch
from torch import Tensor

from noiseproof.data.sources import InputSource
from noiseproof.errors import InputError

if TYPE_CHECKING:
    from PIL.Image import Image

Encoded: TypeAlias = bytes | Path  # the bytes of a JPEG, PNG, ... file, or where that file is
Names: TypeAlias = str | Sequence[str]  # what errors call image i: f"{names}, row {i}", or names[i]
T = TypeVar("T")

_THREADS = min(8, os.cpu_count() or 1)
_CHUNK = 64  # images a thread decodes in one go
_GRAY = ("1", "L", "LA", "I", "I;16", "I;16L", "I;16B", "I;16N")


class LazyImages(InputSource):
    """Images that stay encoded, in memory or on disk, until they are taken.

    Args:
        encoded: n images, each the bytes of an image file or the path of one.
        size: (H, W); an image of another size is scaled to cover it and cropped at the centre.
        gray: hand out one channel instead of three.
        names: what errors call the images.
    """

    def __init__(
        self, encoded: Sequence[Encoded], size: tuple[int, int], *, gray: bool = False, names: Names = "images"
    ) -> None:
        self.encoded = encoded
        self.size = size
        self.gray = gray
        self.names = names

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.encoded), 1 if self.gray else 3, *self.size)

    @property
    def dtype(self) -> torch.dtype:
        return torch.uint8

    def take(self, index: Tensor) -> Tensor:
        out = np.empty((len(index), *self.shape[1:]), dtype=np.uint8)
        rows = index.tolist()

        def decode(start: int, stop: int) -> None:
            for place in range(start, stop):
                i = rows[place]
                out[place] = decode_image(self.encoded[i], name_of(self.names, i), self.gray, self.size, fit=True)

        for _ in _in_threads(decode, len(rows), chunk=max(1, min(_CHUNK, len(rows) // _THREADS))):
            pass
        return torch.from_numpy(out)


def read_images(
    encoded: Sequence[Encoded],
    names: Names,
    size: tuple[int, int] | None,
    memory_limit: int,
    progress: Callable[[int, int], None] | None = None,
) -> np.ndarray | LazyImages:
    """All images as uint8 (n, C, H, W): decoded now, or lazily where that would take more than `memory_limit` bytes.

    C is 1 if every image is grey, else 3. Without a `size` all images must be of one size; with it (H, W), each is
    scaled to cover it and cropped at the centre. EXIF orientation is not applied.
    """
    gray, first = _probe(encoded[0], name_of(names, 0))
    target = first if size is None else size
    if gray and _num_bytes(len(encoded), 3, target) > memory_limit:  # decide before anything is decoded
        gray = all(is_gray for is_gray, _ in _headers(encoded, names))
    if _num_bytes(len(encoded), 1 if gray else 3, target) > memory_limit:
        if size is None:
            for i, (_, other) in enumerate(_headers(encoded, names)):
                if other != first:
                    raise _sizes_differ(names, 0, first, i, other)
        return LazyImages(encoded, target, gray=gray, names=names)
    try:
        return _decode_all(encoded, names, gray, target, size is not None, progress)
    except _NotGray:
        return _decode_all(encoded, names, False, target, size is not None, progress)


def decode_image(encoded: Encoded, name: str, gray: bool, size: tuple[int, int], *, fit: bool) -> np.ndarray:
    """One image as uint8 (C, H, W); without `fit`, one of another size or with colour where none is due raises."""
    from PIL import Image

    mode = "L" if gray else "RGB"
    height, width = size
    if isinstance(encoded, bytes) and _jpeg_frame(encoded) == (height, width, 1 if gray else 3):
        try:
            pixels = Image.frombytes(mode, (width, height), encoded, "jpeg", (mode, ""))
            return _channels_first(np.asarray(pixels))
        except _UNREADABLE:
            pass  # the long way says what is wrong with it
    with _opened(encoded, name) as image:
        if gray and not fit and image.mode not in _GRAY:
            raise _NotGray
        if image.size != (width, height):
            if not fit:
                raise _OtherSize((image.size[1], image.size[0]))
            image.draft(mode, (2 * width, 2 * height))  # a JPEG decodes at a fraction of its size: much faster
        try:
            pixels = _converted(image, mode)
        except _UNREADABLE as error:
            raise _unreadable(name, error) from error
        if pixels.size != (width, height):
            scale = min(pixels.size[0] / width, pixels.size[1] / height)
            left, top = (pixels.size[0] - scale * width) / 2, (pixels.size[1] - scale * height) / 2
            box = (left, top, pixels.size[0] - left, pixels.size[1] - top)
            pixels = pixels.resize((width, height), Image.Resampling.BILINEAR, box=box)
        return _channels_first(np.asarray(pixels))


def _channels_first(pixels: np.ndarray) -> np.ndarray:
    """(H, W) or (H, W, 3) as (C, H, W)."""
    return pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)


def _jpeg_frame(content: bytes) -> tuple[int, int, int] | None:
    """(H, W, channels) of an 8-bit JPEG from its frame header; None for anything else.

    Pillow parses every marker of a JPEG in Python before it decodes: for small images that is half of the time. With
    the frame known, libjpeg can be given the bytes at once, with the same pixels as result.
    """
    at = 2
    if content[:2] != b"\xff\xd8":
        return None
    while at + 9 < len(content) and content[at] == 0xFF:
        marker = content[at + 1]
        if marker in (0xC0, 0xC1, 0xC2):  # baseline, extended, progressive
            height, width = (
                int.from_bytes(content[at + 5 : at + 7], "big"),
                int.from_bytes(content[at + 7 : at + 9], "big"),
            )
            return (height, width, content[at + 9]) if content[at + 4] == 8 else None
        at += 2 + int.from_bytes(content[at + 2 : at + 4], "big")
    return None


def name_of(names: Names, i: int) -> str:
    return f"{names}, row {i}" if isinstance(names, str) else names[i]


class _NotGray(Exception):
    """A coloured image where all before it were grey."""


class _OtherSize(Exception):
    """An image of another size than the first."""

    def __init__(self, size: tuple[int, int]) -> None:
        super().__init__(size)
        self.size = size


_UNREADABLE = (OSError, SyntaxError, ValueError, EOFError, struct.error, zlib.error, MemoryError, OverflowError)


def _decode_all(
    encoded: Sequence[Encoded],
    names: Names,
    gray: bool,
    size: tuple[int, int],
    fit: bool,
    progress: Callable[[int, int], None] | None,
) -> np.ndarray:
    n = len(encoded)
    out = np.empty((n, 1 if gray else 3, *size), dtype=np.uint8)

    def decode(start: int, stop: int) -> int:
        for i in range(start, stop):
            try:
                if gray and fit and _probe(encoded[i], name_of(names, i))[0] is False:
                    raise _NotGray
                out[i] = decode_image(encoded[i], name_of(names, i), gray, size, fit=fit)
            except _OtherSize as other:
                raise _sizes_differ(names, 0, size, i, other.size) from None
        return stop

    for done in _in_threads(decode, n):
        if progress is not None:
            progress(done, n)
    return out


def _in_threads(work: Callable[[int, int], T], n: int, chunk: int = _CHUNK) -> Iterator[T]:
    """`work(start, stop)` over 0..n in chunks, in threads, results in order; the first error ends it."""
    pieces = [(start, min(start + chunk, n)) for start in range(0, n, chunk)]
    if len(pieces) == 1:
        yield work(*pieces[0])
        return
    with ThreadPoolExecutor(_THREADS) as pool:
        futures = [pool.submit(work, *piece) for piece in pieces]
        try:
            for future in futures:
                yield future.result()
        finally:
            for future in futures:
                future.cancel()


def _headers(encoded: Sequence[Encoded], names: Names) -> Iterator[tuple[bool, tuple[int, int]]]:
    """Of every image whether it is grey, and its (H, W), without decoding it."""

    def probe(start: int, stop: int) -> list[tuple[bool, tuple[int, int]]]:
        return [_probe(encoded[i], name_of(names, i)) for i in range(start, stop)]

    for piece in _in_threads(probe, len(encoded)):
        yield from piece


def _probe(encoded: Encoded, name: str) -> tuple[bool, tuple[int, int]]:
    with _opened(encoded, name) as image:
        return image.mode in _GRAY, (image.size[1], image.size[0])


def _opened(encoded: Encoded, name: str) -> Image:
    from PIL import Image

    try:
        return Image.open(io.BytesIO(encoded) if isinstance(encoded, bytes) else encoded)
    except FileNotFoundError:
        raise InputError(f"{name} names an image file that does not exist ({encoded!s}); fix the path") from None
    except (*_UNREADABLE, Image.DecompressionBombError) as error:
        raise _unreadable(name, error) from error


def _converted(image: Image, mode: str) -> Image:
    """An image in mode L or RGB: 16-bit grey is scaled (Pillow would clip it), transparency is dropped."""
    from PIL import Image as Pillow

    if image.mode == "F" or (image.mode == "I" and image.format == "TIFF"):
        raise ValueError(f"{'floating-point' if image.mode == 'F' else '32-bit'} pixels, of unknown range")
    if image.mode.startswith("I"):
        levels = np.clip(np.asarray(image).astype(np.int64) >> 8, 0, 255).astype(np.uint8)
        return Pillow.fromarray(levels).convert(mode)
    if image.mode == "P" and "transparency" in image.info:
        image = image.convert("RGBA")
    if image.mode == mode:
        image.load()
        return image
    return image.convert(mode)


def _unreadable(name: str, error: BaseException) -> InputError:
    reason = "not an image, or of an unknown kind" if "cannot identify" in str(error) else " ".join(str(error).split())
    return InputError(f"{name} cannot be decoded as an image ({reason}); replace or remove it")


def _sizes_differ(names: Names, i: int, a: tuple[int, int], j: int, b: tuple[int, int]) -> InputError:
    return InputError(
        f"{name_of(names, i)} is {a[1]}×{a[0]} pixels but {name_of(names, j)} is {b[1]}×{b[0]}; "
        "pass image_size, e.g. image_size=64, to bring all images to one size"
    )


def _num_bytes(n: int, channels: int, size: tuple[int, int]) -> int:
    return n * channels * size[0] * size[1]

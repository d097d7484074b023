"""Decode images with Pillow, in threads: all at once into one uint8 array, or lazily, batch by batch."""

from __future__ import annotations

import io
import math
import os
import struct
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import numpy as np
import torch
from torch import Tensor

from noiseproof.data.sources import InputSource
from noiseproof.errors import InputError, damage

if TYPE_CHECKING:
    from PIL.Image import Image

Encoded: TypeAlias = bytes | Path  # the bytes of a JPEG, PNG, ... file, or where that file is
Names: TypeAlias = str | Sequence[str]  # what errors call image i: f"{names}, row {i}", or names[i]
Progress: TypeAlias = Callable[[int, int], None]  # is called with (done, total)
T = TypeVar("T")

_THREADS = min(8, os.cpu_count() or 1)
_CHUNK = 64  # images a thread decodes in one go
_GRAY = ("1", "L", "LA", "I", "I;16", "I;16L", "I;16B", "I;16N")


@dataclass(eq=False, repr=False)
class LazyImages(InputSource):
    """Images that stay encoded, in memory or on disk, until they are taken.

    Args:
        encoded: n images, each the bytes of an image file or the path of one.
        size: (H, W); an image of another size is scaled to cover it and cropped at the centre.
        gray: hand out one channel instead of three.
        names: what errors call the images.
    """

    decodes = True
    encoded: Sequence[Encoded]
    size: tuple[int, int]
    _: KW_ONLY
    gray: bool = False
    names: Names = "images"

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.encoded), 1 if self.gray else 3, *self.size)

    @property
    def dtype(self) -> torch.dtype:
        return torch.uint8

    def take(self, index: Tensor) -> Tensor:
        return torch.from_numpy(self.decode(index.tolist()))

    def places(self) -> np.ndarray | None:
        return getattr(self.encoded, "places", None)

    def fetch(self, rows: Tensor) -> None:
        if (fetch := getattr(self.encoded, "fetch", None)) is not None:
            fetch(rows.numpy())

    def decode(
        self, rows: Sequence[int], *, fit: bool = True, strict: bool = False, progress: Progress | None = None
    ) -> np.ndarray:
        """Rows (B, C, H, W) uint8.

        Raises:
            InputError: an image cannot be read, or is of another size and not to be made to `fit`.
            _NotGray: this is `strict`, and there is colour where one channel is due.
        """
        out = np.empty((len(rows), *self.shape[1:]), dtype=np.uint8)
        mode = "RGB" if not self.gray else None if strict else "L"
        like = None if fit else name_of(self.names, 0)

        def decode(places: range) -> int:
            for place in places:
                i = rows[place]
                pixels = decode_image(self.encoded[i], name_of(self.names, i), mode, self.size, like)
                if len(pixels) > out.shape[1]:
                    raise _NotGray
                out[place] = pixels
            return places.stop

        for done in _in_threads(decode, len(rows)):
            if progress is not None:
                progress(done, len(rows))
        return out


def read_images(
    encoded: Sequence[Encoded],
    names: Names,
    size: tuple[int, int] | None,
    memory_limit: int,
    progress: Progress | None = None,
) -> np.ndarray | LazyImages:
    """All images as uint8 (n, C, H, W): decoded now, or lazily where that would take more than `memory_limit` bytes.

    C is 1 if every image is grey, else 3. Without a `size` all images must be of one size; with it (H, W), each is
    scaled to cover it and cropped at the centre. EXIF orientation is not applied.
    """
    gray, first = _probe(encoded[0], name_of(names, 0))
    images = LazyImages(encoded, size or first, gray=gray, names=names)
    if gray and 3 * math.prod(images.shape) > memory_limit:  # decide before anything is decoded
        images.gray = all(is_gray for is_gray, _ in _headers(encoded, names))
    if math.prod(images.shape) > memory_limit:
        for i, (_, other) in enumerate(_headers(encoded, names) if size is None else ()):
            if other != first:
                raise _sizes_differ(name_of(names, 0), first, name_of(names, i), other)
        return images
    try:
        return images.decode(range(len(encoded)), fit=size is not None, strict=True, progress=progress)
    except _NotGray:
        images.gray = False
        return images.decode(range(len(encoded)), fit=size is not None, progress=progress)


def decode_image(
    encoded: Encoded, name: str, mode: str | None, size: tuple[int, int], like: str | None = None
) -> np.ndarray:
    """One image as uint8 (C, H, W) in mode "L" or "RGB", or None: "L" if it is grey, else "RGB".

    It is scaled to cover `size` (H, W) and cropped at the centre; where an image `like` it is named, it must be of that
    size.
    """
    from PIL import Image, ImageOps

    width_height = (size[1], size[0])
    if isinstance(encoded, Path):
        with suppress(OSError):  # the long way says what is wrong with it
            encoded = encoded.read_bytes()
    if isinstance(encoded, bytes):
        frame, own = _jpeg_frame(encoded)
        if frame == size and mode in (None, own):
            with suppress(Exception):  # the long way says what is wrong with it
                return _channels_first(Image.frombytes(own, width_height, encoded, "jpeg", (own, "")))
    with _decoding(name), _opened(encoded, name) as image:
        if mode is None:
            mode = "L" if image.mode in _GRAY else "RGB"
        if image.size != width_height:
            if like is not None:
                raise _sizes_differ(like, size, name, (image.size[1], image.size[0]))
            image.draft(mode, (2 * size[1], 2 * size[0]))  # a JPEG decodes at a fraction of its size: much faster
        pixels = _converted(image, mode)
        if pixels.size != width_height:
            pixels = ImageOps.fit(pixels, width_height, Image.Resampling.BILINEAR)
        return _channels_first(pixels)


def small_copy(encoded: Encoded, name: str, longest: int) -> Image:
    """One whole image in mode L or RGB, no side longer than so many pixels; a smaller one as it is."""
    from PIL import Image

    with _decoding(name), _opened(encoded, name) as image:
        mode = "L" if image.mode in _GRAY else "RGB"
        image.draft(mode, (2 * longest, 2 * longest))
        copy = _converted(image, mode)
        copy.thumbnail((longest, longest), Image.Resampling.LANCZOS)
        return copy


def pixels(image: Image, name: str) -> np.ndarray:
    """An image of Pillow's as uint8 (C, H, W): one channel if it is grey, else three."""
    with _decoding(name):
        return _channels_first(_converted(image, "L" if image.mode in _GRAY else "RGB"))


def _channels_first(image: Image) -> np.ndarray:
    """An image in mode L or RGB as (C, H, W)."""
    pixels = np.asarray(image)
    return pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)


def _jpeg_frame(content: bytes) -> tuple[tuple[int, int] | None, str]:
    """(H, W) and mode of a grey or coloured 8-bit JPEG from its frame header; None and "" for anything else.

    Pillow parses every marker of a JPEG in Python before it decodes: for small images that is half of the time. With
    the frame known, libjpeg can be given the bytes at once, with the same pixels as result.
    """
    at = 2 if content[:2] == b"\xff\xd8" else len(content)
    while at + 9 < len(content) and content[at] == 0xFF:
        length, bits, height, width, channels = struct.unpack_from(">HBHHB", content, at + 2)
        if content[at + 1] in (0xC0, 0xC1, 0xC2) and bits == 8 and channels in (1, 3):  # baseline to progressive
            return (height, width), "L" if channels == 1 else "RGB"
        at += 2 + length
    return None, ""


def name_of(names: Names, i: int) -> str:
    return f"{names}, row {i}" if isinstance(names, str) else names[i]


class _NotGray(Exception):
    """A coloured image where all before it were grey."""


def _in_threads(work: Callable[[range], T], n: int) -> Iterator[T]:
    """`work(rows)` over 0..n in chunks, in threads, results in order; the first error ends it."""
    chunk = max(1, min(_CHUNK, n // _THREADS))
    pieces = [range(start, min(start + chunk, n)) for start in range(0, n, chunk)]
    if len(pieces) == 1:
        yield work(pieces[0])
        return
    with ThreadPoolExecutor(_THREADS) as pool:
        yield from pool.map(work, pieces)  # which cancels the rest when it ends


def _headers(encoded: Sequence[Encoded], names: Names) -> Iterator[tuple[bool, tuple[int, int]]]:
    """Of every image whether it is grey, and its (H, W), without decoding it."""
    for piece in _in_threads(lambda rows: [_probe(encoded[i], name_of(names, i)) for i in rows], len(encoded)):
        yield from piece


def _probe(encoded: Encoded, name: str) -> tuple[bool, tuple[int, int]]:
    with _opened(encoded, name) as image:
        return image.mode in _GRAY, (image.size[1], image.size[0])


def _decoding(name: str) -> AbstractContextManager[None]:
    """Around what Pillow does: its decoders raise whatever comes to their mind."""
    return damage(f"{name} cannot be decoded as an image", "replace or remove it")


def _opened(encoded: Encoded, name: str) -> Image:
    from PIL import Image, UnidentifiedImageError

    if isinstance(encoded, Image.Image):
        return encoded.copy()  # which may be closed
    with _decoding(name):
        try:
            return Image.open(io.BytesIO(encoded) if isinstance(encoded, bytes) else encoded)
        except FileNotFoundError:
            raise InputError(f"{name} names an image file that does not exist ({encoded!s}); fix the path") from None
        except UnidentifiedImageError:
            raise ValueError("not an image, or of an unknown kind") from None


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
    return image.convert(mode)


def _sizes_differ(first: str, size: tuple[int, int], other: str, other_size: tuple[int, int]) -> InputError:
    return InputError(
        f"{first} is {size[1]}×{size[0]} pixels but {other} is {other_size[1]}×{other_size[0]}; "
        "pass image_size, e.g. image_size=64, to bring all images to one size"
    )

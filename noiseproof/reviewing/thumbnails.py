"""Pictures of examples, made when they are asked for, and kept within a budget of memory."""

from __future__ import annotations

import io
import threading
from collections import OrderedDict
from typing import NamedTuple

import torch

from noiseproof.data import LabeledData, LazyImages
from noiseproof.data.images import name_of, small_copy
from noiseproof.data.input_form import colour_range
from noiseproof.data.sources import origin
from noiseproof.runs.drawing import pixels

BUDGET = 48 << 20  # bytes of pictures kept
_AS_PNG = 96  # pixels of the longest side up to which a picture is not worth a JPEG's losses


class Picture(NamedTuple):
    """An encoded image."""

    content: bytes
    kind: str  # its media type


class Thumbnails:
    """The pictures of data sets, each with a number."""

    def __init__(self, parts: tuple[LabeledData, ...], budget: int = BUDGET) -> None:
        self.parts, self.budget = parts, budget
        self._kept: OrderedDict[tuple[int, int, int], Picture] = OrderedDict()
        self._size = 0
        self._lock = threading.Lock()

    def picture(self, part: int, row: int, longest: int) -> Picture:
        """Example `row` of a part, whole, no side longer than so many pixels.

        Raises:
            InputError: it cannot be decoded.
        """
        key = (part, row, longest)
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        made = _encoded(self.parts[part], row, longest)
        with self._lock:
            if key not in self._kept:
                self._kept[key] = made
                self._size += len(made.content)
            while self._size > self.budget and len(self._kept) > 1:
                self._size -= len(self._kept.popitem(last=False)[1].content)
        return made


def _encoded(data: LabeledData, row: int, longest: int) -> Picture:
    """An example as PNG or JPEG: encoded anew, so that what is sent is an image, whatever the file may be."""
    from PIL import Image

    inputs, place = origin(data.inputs, row)
    if isinstance(inputs, LazyImages):
        image = small_copy(inputs.encoded[place], name_of(inputs.names, place), longest)
    else:
        values = data.take(torch.tensor([row]))[0]
        if values.is_floating_point():
            low, high = colour_range(data.inputs)
            values = values if low >= 0 and high <= 1 else (values - low) / max(high - low, 1e-12)
        image = Image.fromarray(pixels(values))
        image.thumbnail((longest, longest), Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    if max(image.size) <= _AS_PNG:
        image.save(buffer, format="PNG")
        return Picture(buffer.getvalue(), "image/png")
    image.save(buffer, format="JPEG", quality=88)
    return Picture(buffer.getvalue(), "image/jpeg")

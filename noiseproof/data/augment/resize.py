"""Resized crops: a box of each image, resized by the bilinear filter."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from noiseproof import checks
from noiseproof.data.augment.base import Operation, check_images, height_and_width, like_input, size_of, uniform
from noiseproof.data.augment.filters import filter_separably, resize_taps


def resized_crop(
    x: Tensor,
    top: Tensor,
    left: Tensor,
    height: Tensor,
    width: Tensor,
    *,
    size: tuple[int, int],
    as_float: bool = False,
) -> Tensor:
    """Crop the box of each image and resize it to `size` by the bilinear filter, widened where it shrinks (antialias).

    The same filter as `F.interpolate(mode="bilinear", antialias=True)` on the box alone.

    Args:
        x: images (B, C, H, W).
        top, left, height, width: (B,) the boxes, in pixels, inside the image.
        size: height and width of the result.
        as_float: give uint8 images as floats in [0, 1], which spares a rounding.
    """
    raw = x.dtype == torch.uint8
    y = x.to(torch.float32) if raw else x
    if len(x) == 0:
        return (y if as_float else x).new_empty(0, x.shape[1], *size)
    down, across = resize_taps(top, height, size[0]), resize_taps(left, width, size[1])
    if raw and as_float:
        return filter_separably(y, down._replace(weight=down.weight / 255), across)
    return like_input(filter_separably(y, down, across), x)


class RandomResizedCrop(Operation):
    """A box of random area and shape, resized to `size` by the bilinear filter (with antialias where it shrinks).

    The box is torchvision's: area uniform in `scale` of the image's, log of width/height uniform in log `ratio`,
    whole pixels, the first of ten draws that fits, else the largest central box of an allowed ratio.

    Differs from torchvision: nothing but the draws. With as_float, uint8 images come out as floats in [0, 1].
    """

    attempts = 10

    def __init__(
        self,
        size: int | tuple[int, int],
        scale: tuple[float, float] = (0.2, 1.0),
        ratio: tuple[float, float] = (3 / 4, 4 / 3),
        as_float: bool = False,
    ) -> None:
        self.size = height_and_width("size", size)
        self.scale = checks.interval("scale", scale, 0, 1)
        self.ratio = checks.interval("ratio", ratio, 1e-3)
        self.as_float = as_float

    def draw(self, x: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Top, left, height and width (B,) of the boxes."""
        # By numpy: torch rounds roots and exponentials in its own way, and a seed would mean another box now and then.
        batch, limit = len(x), np.array(size_of(x), dtype=np.float32)
        shape = (batch, self.attempts + 1)
        side = np.sqrt(uniform(generator, shape, *(x.shape[2] * x.shape[3] * s for s in self.scale)).numpy())
        root = np.exp(uniform(generator, shape, *(math.log(r) / 2 for r in self.ratio)).numpy())  # of the ratio
        sides = np.maximum(np.rint(np.stack([side / root, side * root])), 1)  # (2, B, 11) height and width
        # The first that fits; in the last column stands one that always does.
        sides[0, :, -1], sides[1, :, -1] = self._central(*size_of(x))
        first = ((sides[0] <= limit[0]) & (sides[1] <= limit[1])).argmax(axis=1)
        sides = sides[:, np.arange(batch), first]  # (2, B)
        place = uniform(generator, (2, batch)).numpy()
        place[:, first == self.attempts] = 0.4999  # the middle, rounded down
        room = limit[:, None] - sides
        corner = np.minimum(np.floor(place * (room + 1)), room)
        top, left, height, width = (torch.from_numpy(v) for v in (*corner, *sides))
        return top, left, height, width

    def __call__(self, x: Tensor, generator: torch.Generator) -> Tensor:
        check_images(x)
        return resized_crop(x, *self.draw(x, generator), size=self.size, as_float=self.as_float)

    def _central(self, rows: int, columns: int) -> tuple[int, int]:
        """Height and width of the largest box of an allowed ratio."""
        if columns / rows < self.ratio[0]:
            return max(1, round(columns / self.ratio[0])), columns
        if columns / rows > self.ratio[1]:
            return rows, max(1, round(rows * self.ratio[1]))
        return rows, columns

"""Where pixels come from: flips, crops, resized crops, affine maps, cutout. All keep the images' dtype.

Each operation is a pure function with explicit parameters, one per example, and a small class that draws them.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from functools import lru_cache
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from noiseproof.data.augment.base import (
    Operation,
    Pass,
    as_pair,
    check_images,
    check_positive,
    check_probability,
    check_range,
    column,
    invert_order,
    like_input,
    uniform,
    use_kernels,
    whole,
)
from noiseproof.data.augment.colour import Normalize
from noiseproof.data.augment.filters import Taps, filter_separably, reflect, resize_taps
from noiseproof.errors import InputError

Padding = Literal["zeros", "reflect"]


def flip(x: Tensor, mirrored: Tensor) -> Tensor:
    """Mirror left-right the images (B, C, H, W) whose `mirrored` (B,) is true."""
    if use_kernels(x):
        zero = torch.zeros(len(x), dtype=torch.int64)
        return crop(x, zero, zero, size=_size(x), mirrored=mirrored)
    source = torch.arange(len(x)) + len(x) * mirrored.to(torch.int64).cpu()
    return torch.cat([x, x.flip(3)]).index_select(0, source.to(x.device))


def crop(
    x: Tensor,
    top: Tensor,
    left: Tensor,
    *,
    size: tuple[int, int],
    padding: int = 0,
    mode: Padding = "zeros",
    mirrored: Tensor | None = None,
    normalize: Normalize | None = None,
) -> Tensor:
    """The window of `size` at (top, left) of each padded image, mirrored left-right after that where asked.

    A row of a window is a run of memory in the padded batch, so that the whole crop is one selection of runs out of
    the overlapping view that starts a run at every element. Images to mirror are mirrored before that.

    Args:
        x: images (B, C, H, W).
        top, left: (B,) whole numbers, in the coordinates of the padded image.
        size: height and width of the windows.
        padding: pixels added on all four sides.
        mode: what they hold, "zeros" or the image's "reflect"ion, which does not repeat the edge.
        mirrored: (B,) boolean.
        normalize: what to do to the windows in the same pass.
    """
    if use_kernels(x):
        from noiseproof.data.augment import kernels

        affine = None if normalize is None else normalize.affine(x.shape, x.dtype)
        return kernels.crop(x, top, left, size, padding, mode == "reflect", mirrored, affine)
    batch, channels = x.shape[:2]
    if batch == 0:
        return _finish(x.new_empty(0, channels, *size), normalize)
    slot = torch.arange(batch)
    if mirrored is None:
        padded = _pad([x], padding, mode)
    else:  # those to mirror stand last
        here, there = (~mirrored).nonzero().squeeze(1), mirrored.nonzero().squeeze(1)
        slot = invert_order(torch.cat([here, there]))
        parts = [x.index_select(0, here.to(x.device)), x.index_select(0, there.to(x.device)).flip(3)]
        padded = _pad(parts, padding, mode)
        left = torch.where(mirrored, padded.shape[3] - size[1] - left, left)
    height, width = padded.shape[2:]
    start = slot.mul_(channels * height).add_(top).mul_(width).add_(left)  # (B,) of each window
    start = start.to(x.device)[:, None] + _row_starts(channels, height, width, size[0], x.device)  # (B, C·h)
    runs = padded.as_strided((padded.numel() - size[1] + 1, size[1]), (1, 1))
    return _finish(runs.index_select(0, start.view(-1)).view(batch, channels, *size), normalize)


def _finish(made: Tensor, normalize: Normalize | None) -> Tensor:
    """Images that we have made, normalised where they are if they can be."""
    return made if normalize is None else normalize(made, out=made if made.is_floating_point() else None)


@lru_cache(maxsize=16)
def _row_starts(channels: int, height: int, width: int, rows: int, device: torch.device) -> Tensor:
    """Where the first rows of each channel start in an image: (C·rows,)."""
    return (torch.arange(channels)[:, None] * height + torch.arange(rows)).mul_(width).view(-1).to(device)


def _pad(parts: list[Tensor], padding: int, mode: Padding) -> Tensor:
    """The parts of a batch, padded, one after the other."""
    channels, height, width = parts[0].shape[1:]
    shape = (sum(map(len, parts)), channels, height + 2 * padding, width + 2 * padding)
    padded = parts[0].new_zeros(shape) if mode == "zeros" else parts[0].new_empty(shape)
    start = 0
    for part in parts:
        end = start + len(part)
        if mode == "zeros":
            padded[start:end, :, padding : padding + height, padding : padding + width] = part
        else:
            rows = reflect(torch.arange(-padding, height + padding, device=part.device), height)
            columns = reflect(torch.arange(-padding, width + padding, device=part.device), width)
            padded[start:end] = part.index_select(2, rows).index_select(3, columns)
        start = end
    return padded


def resized_crop(
    x: Tensor,
    top: Tensor,
    left: Tensor,
    height: Tensor,
    width: Tensor,
    *,
    size: tuple[int, int],
    mirrored: Tensor | None = None,
    as_float: bool = False,
    normalize: Normalize | None = None,
) -> Tensor:
    """Crop the box of each image and resize it to `size` by the bilinear filter, widened where it shrinks (antialias).

    The same filter as `F.interpolate(mode="bilinear", antialias=True)` on the box alone.

    Args:
        x: images (B, C, H, W).
        top, left, height, width: (B,) the boxes, in pixels, inside the image.
        size: height and width of the result.
        mirrored: (B,) boolean; mirror left-right.
        as_float: give uint8 images as floats in [0, 1], which spares a rounding.
        normalize: what to do to the result in the same pass.
    """
    if use_kernels(x):
        from noiseproof.data.augment import kernels

        kept = torch.float32 if as_float else x.dtype
        affine = None if normalize is None else normalize.affine(x.shape, kept)
        return kernels.resized_crop(x, (top, left, height, width), size, mirrored, as_float, affine)
    y = x if x.is_floating_point() else x.to(torch.float32)
    batch = len(x)
    if batch == 0:
        return _finish((y if as_float else x).new_empty(0, x.shape[1], *size), normalize)
    if size[0] == size[1]:  # both directions at once
        turned = None if mirrored is None else torch.cat([torch.zeros_like(mirrored), mirrored])
        both = resize_taps(torch.cat([top, left]), torch.cat([height, width]), size[0], turned)
        down, across = (Taps(both.position[part], both.weight[part]) for part in (slice(batch), slice(batch, None)))
    else:
        down, across = resize_taps(top, height, size[0]), resize_taps(left, width, size[1], mirrored)
    if as_float and x.dtype == torch.uint8:
        return _finish(filter_separably(y, down._replace(weight=down.weight / 255), across), normalize)
    return _finish(like_input(filter_separably(y, down, across), x), normalize)


def affine(x: Tensor, matrix: Tensor) -> Tensor:
    """Output pixel p shows the input at `matrix @ (p, 1)`, bilinear, black outside: PIL's AFFINE with BILINEAR.

    Args:
        x: images (B, C, H, W).
        matrix: (B, 2, 3), in pixels, where the image covers [0, W] × [0, H] and pixel (0, 0) is centred on (½, ½).

    Differs from PIL: the edge fades to black over half a pixel instead of ending at it.
    """
    batch, _, height, width = x.shape
    y = x if x.is_floating_point() else x.to(torch.float32)
    size = matrix.new_tensor([width, height])
    # grid_sample's coordinates run from -1 to 1: p = (q + 1) size / 2, so A' = 2 A size / (2 size), t' = ...
    linear = matrix[:, :, :2] * size / size[:, None]
    shift = (matrix[:, :, :2] @ size[:, None] + 2 * matrix[:, :, 2:]) / size[:, None] - 1
    theta = torch.cat([linear, shift], dim=2).to(y)
    grid = F.affine_grid(theta, [batch, 1, height, width], align_corners=False)
    return like_input(F.grid_sample(y, grid, padding_mode="zeros", align_corners=False), x)


def affine_matrix(
    *,
    size: tuple[int, int],
    degrees: Tensor | None = None,
    shear_x: Tensor | None = None,
    shear_y: Tensor | None = None,
    dx: Tensor | None = None,
    dy: Tensor | None = None,
) -> Tensor:
    """The matrix (B, 2, 3) for `affine` of a rotation, then shears about the top left corner, then a shift.

    Signs are PIL's AFFINE data, as AutoAugment has them: output (x, y) shows the input at (x + shear_x·y + dx, y +
    shear_y·x + dy), turned counter-clockwise by `degrees` about the centre. Each argument is (B,) or None.
    """
    given = [p for p in (degrees, shear_x, shear_y, dx, dy) if p is not None]
    zero = torch.zeros_like(given[0])
    degrees, shear_x, shear_y, dx, dy = (zero if p is None else p for p in (degrees, shear_x, shear_y, dx, dy))
    cos, sin = torch.cos(degrees * (math.pi / 180)), torch.sin(degrees * (math.pi / 180))
    cy, cx = size[0] / 2, size[1] / 2
    turn = torch.stack([cos, -sin, cx - cos * cx + sin * cy, sin, cos, cy - sin * cx - cos * cy], dim=1).view(-1, 2, 3)
    one = torch.ones_like(zero)
    lean = torch.stack([one, shear_x, dx, shear_y, one, dy, zero, zero, one], dim=1).view(-1, 3, 3)
    return turn @ lean


def rotate(x: Tensor, degrees: Tensor) -> Tensor:
    """Turn each image counter-clockwise about its centre by degrees (B,)."""
    return affine(x, affine_matrix(size=_size(x), degrees=degrees))


def shear(x: Tensor, shear_x: Tensor, shear_y: Tensor) -> Tensor:
    """Output (u, v) shows the input at (u + shear_x·v, v + shear_y·u); shears (B,)."""
    return affine(x, affine_matrix(size=_size(x), shear_x=shear_x, shear_y=shear_y))


def translate(x: Tensor, dx: Tensor, dy: Tensor) -> Tensor:
    """Output (u, v) shows the input at (u + dx, v + dy), in pixels: the picture moves by (−dx, −dy); shifts (B,)."""
    return affine(x, affine_matrix(size=_size(x), dx=dx, dy=dy))


def _size(x: Tensor) -> tuple[int, int]:
    return x.shape[2], x.shape[3]


def cutout(x: Tensor, top: Tensor, left: Tensor, size: int, fill: float = 0.0) -> Tensor:
    """Fill the square of `size` pixels whose corner is (top, left) (B,), which may overhang; fill is in [0, 1]."""
    top, left = column(top, x).long()[..., 0], column(left, x).long()[..., 0]  # (B, 1, 1)
    y = torch.arange(x.shape[2], device=x.device)[:, None]
    z = torch.arange(x.shape[3], device=x.device)
    hole = (y >= top) & (y < top + size) & (z >= left) & (z < left + size)  # (B, H, W)
    if fill == 0:
        return x * ~hole[:, None]
    return x.masked_fill(hole[:, None], round(255 * fill) if x.dtype == torch.uint8 else fill)


class RandomFlip(Operation):
    """Mirror each image left-right with probability p."""

    def __init__(self, p: float = 0.5) -> None:
        self.p = check_probability("p", p)

    def draw(self, batch: int, generator: torch.Generator) -> Tensor:
        """(B,) which to mirror."""
        return uniform(generator, batch) < self.p

    def __call__(self, x: Tensor, generator: torch.Generator) -> Tensor:
        check_images(x)
        mirrored = self.draw(len(x), generator)
        return flip(x, mirrored) if bool(mirrored.any()) else x


class Windowed(Pass):
    """A crop: draws windows, and cuts them out, mirrored if asked; `Compose` hands it the flip that follows."""

    @abstractmethod
    def draw(self, x: Tensor, generator: torch.Generator) -> tuple[Tensor, ...]:
        """The windows: (B,) tensors."""

    @abstractmethod
    def cut(
        self, x: Tensor, window: tuple[Tensor, ...], mirrored: Tensor | None, normalize: Normalize | None
    ) -> Tensor:
        """The windows' contents, normalised if asked."""

    def run(
        self, x: Tensor, generator: torch.Generator, normalize: Normalize | None = None, fresh: bool = False
    ) -> Tensor:
        check_images(x)
        return self.cut(x, self.draw(x, generator), None, normalize)


class CropAndFlip(Pass):
    """A crop and the flip after it in one pass: the same draws and the same result, at half the cost."""

    def __init__(self, crop: Windowed, flip: RandomFlip) -> None:
        self.crop, self.flip = crop, flip

    def run(
        self, x: Tensor, generator: torch.Generator, normalize: Normalize | None = None, fresh: bool = False
    ) -> Tensor:
        check_images(x)
        window = self.crop.draw(x, generator)
        return self.crop.cut(x, window, self.flip.draw(len(x), generator), normalize)


class RandomCrop(Windowed):
    """A window at a uniformly random place of each padded image.

    Args:
        padding: pixels added on each side first.
        mode: "zeros" or "reflect".
        size: height and width of the window; None keeps the image's.
    """

    def __init__(self, padding: int = 4, mode: Padding = "zeros", size: int | tuple[int, int] | None = None) -> None:
        if int(padding) != padding or padding < 0:
            raise InputError(f"padding must be a whole number of pixels >= 0, got {padding}; pass 0 for none")
        if mode not in ("zeros", "reflect"):
            raise InputError(f"mode must be 'zeros' or 'reflect', got {mode!r}; choose one of them")
        self.padding = int(padding)
        self.mode: Padding = mode
        self.size = None if size is None else as_pair("size", size)

    def draw(self, x: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        height, width = self._slack(x)
        return whole(generator, len(x), height + 1), whole(generator, len(x), width + 1)

    def cut(
        self, x: Tensor, window: tuple[Tensor, ...], mirrored: Tensor | None, normalize: Normalize | None
    ) -> Tensor:
        top, left = window
        return crop(
            x,
            top,
            left,
            size=_size(x) if self.size is None else self.size,
            padding=self.padding,
            mode=self.mode,
            mirrored=mirrored,
            normalize=normalize,
        )

    def _slack(self, x: Tensor) -> tuple[int, int]:
        """By how much the padded image exceeds the window."""
        if self.mode == "reflect" and self.padding >= min(x.shape[2:]):
            raise InputError(
                f"padding must be less than the image's {x.shape[2]}×{x.shape[3]} pixels to reflect, "
                f"got {self.padding}; lower it or pass mode='zeros'"
            )
        size = _size(x) if self.size is None else self.size
        height, width = x.shape[2] + 2 * self.padding, x.shape[3] + 2 * self.padding
        if size[0] > height or size[1] > width:
            raise InputError(
                f"size must fit into the padded image of {height}×{width} pixels, got {size[0]}×{size[1]}; "
                "lower size or raise padding"
            )
        return height - size[0], width - size[1]


class RandomResizedCrop(Windowed):
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
        self.size = as_pair("size", size)
        self.scale = check_range("scale", scale, 0, 1)
        self.ratio = check_range("ratio", ratio, 1e-3)
        self.as_float = as_float

    def draw(self, x: Tensor, generator: torch.Generator) -> tuple[Tensor, ...]:
        # By numpy after the draws: torch would share even these few numbers among its threads, and wait for them.
        batch, limit = len(x), np.array(_size(x), dtype=np.float32)
        shape = (batch, self.attempts + 1)
        side = np.sqrt(uniform(generator, shape, *(x.shape[2] * x.shape[3] * s for s in self.scale)).numpy())
        root = np.exp(uniform(generator, shape, *(math.log(r) / 2 for r in self.ratio)).numpy())  # of the ratio
        sides = np.maximum(np.rint(np.stack([side / root, side * root])), 1)  # (2, B, 11) height and width
        # The first that fits; in the last column stands one that always does.
        sides[0, :, -1], sides[1, :, -1] = self._central(*_size(x))
        first = ((sides[0] <= limit[0]) & (sides[1] <= limit[1])).argmax(axis=1)
        sides = sides[:, np.arange(batch), first]  # (2, B)
        place = uniform(generator, (2, batch)).numpy()
        place[:, first == self.attempts] = 0.4999  # the middle, rounded down
        room = limit[:, None] - sides
        corner = np.minimum(np.floor(place * (room + 1)), room)
        top, left, height, width = (torch.from_numpy(v) for v in (*corner, *sides))
        return top, left, height, width

    def cut(
        self, x: Tensor, window: tuple[Tensor, ...], mirrored: Tensor | None, normalize: Normalize | None
    ) -> Tensor:
        return resized_crop(x, *window, size=self.size, mirrored=mirrored, as_float=self.as_float, normalize=normalize)

    def _central(self, rows: int, columns: int) -> tuple[int, int]:
        """Height and width of the largest box of an allowed ratio."""
        if columns / rows < self.ratio[0]:
            return max(1, round(columns / self.ratio[0])), columns
        if columns / rows > self.ratio[1]:
            return rows, max(1, round(rows * self.ratio[1]))
        return rows, columns


class Cutout(Operation):
    """Fill a square of `size` pixels around a random pixel, cut off at the edges (DeVries & Taylor, 2017).

    Args:
        size: side of the square.
        p: probability for each image.
        fill: value in [0, 1]; the paper's 0 after normalisation is the mean colour, about 0.5 before.
    """

    def __init__(self, size: int, p: float = 1.0, fill: float = 0.0) -> None:
        self.size = check_positive("size", size)
        self.p = check_probability("p", p)
        self.fill = check_probability("fill", fill)

    def __call__(self, x: Tensor, generator: torch.Generator) -> Tensor:
        check_images(x)
        top = whole(generator, len(x), x.shape[2]) - self.size // 2
        left = whole(generator, len(x), x.shape[3]) - self.size // 2
        spared = uniform(generator, len(x)) >= self.p
        return cutout(x, top.masked_fill_(spared, x.shape[2]), left, self.size, self.fill)

"""Where pixels come from: flips, crops, affine maps, cutout. All keep the images' dtype.

Each operation is a pure function with explicit parameters, one per example, and a small class that draws them.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from noiseproof import checks
from noiseproof.data.augment.base import (
    Operation,
    change_rows,
    check_images,
    column,
    height_and_width,
    like_input,
    pixels,
    probability,
    size_of,
    uniform,
    whole,
)
from noiseproof.data.augment.filters import reflect
from noiseproof.errors import InputError

Padding = Literal["zeros", "reflect"]


def flip(x: Tensor, mirrored: Tensor) -> Tensor:
    """Mirror left-right the images (B, C, H, W) whose `mirrored` (B,) is true."""
    return change_rows(x, mirrored, lambda rows: rows.flip(3))


def crop(
    x: Tensor, top: Tensor, left: Tensor, *, size: tuple[int, int], padding: int = 0, mode: Padding = "zeros"
) -> Tensor:
    """The window of `size` at (top, left) of each padded image.

    A row of a window is a run of memory in the padded batch, so that the whole crop is one selection of runs out of
    the overlapping view that starts a run at every element.

    Args:
        x: images (B, C, H, W).
        top, left: (B,) whole numbers, in the coordinates of the padded image.
        size: height and width of the windows.
        padding: pixels added on all four sides.
        mode: what they hold, "zeros" or the image's "reflect"ion, which does not repeat the edge.
    """
    batch, channels = x.shape[:2]
    if batch == 0:
        return x.new_empty(0, channels, *size)
    padded = _pad(x, padding, mode).contiguous()
    height, width = size_of(padded)
    corner = (torch.arange(batch) * channels * height + top) * width + left  # (B,) where windows start
    row = (torch.arange(channels)[:, None] * height + torch.arange(size[0])) * width  # (C, h) their rows, from there
    start = (corner[:, None] + row.view(-1)).view(-1).to(x.device, non_blocking=True)  # (B·C·h,)
    runs = padded.as_strided((padded.numel() - size[1] + 1, size[1]), (1, 1))
    return runs.index_select(0, start).view(batch, channels, *size)


def _pad(x: Tensor, padding: int, mode: Padding) -> Tensor:
    if mode == "zeros":
        return F.pad(x, (padding,) * 4)
    # F.pad reflects no uint8.
    rows, columns = (reflect(torch.arange(-padding, n + padding, device=x.device), n) for n in size_of(x))
    return x.index_select(2, rows).index_select(3, columns)


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
    # grid_sample's coordinates q run from -1 to 1: p = (q + 1) size / 2 turns p' = A p + t into q' = A' q + t'.
    linear = matrix[:, :, :2] * size / size[:, None]
    shift = (matrix[:, :, :2] @ size[:, None] + 2 * matrix[:, :, 2:]) / size[:, None] - 1
    theta = torch.cat([linear, shift], dim=2).to(y, non_blocking=True)
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
    return affine(x, affine_matrix(size=size_of(x), degrees=degrees))


def shear(x: Tensor, shear_x: Tensor, shear_y: Tensor) -> Tensor:
    """Output (u, v) shows the input at (u + shear_x·v, v + shear_y·u); shears (B,)."""
    return affine(x, affine_matrix(size=size_of(x), shear_x=shear_x, shear_y=shear_y))


def translate(x: Tensor, dx: Tensor, dy: Tensor) -> Tensor:
    """Output (u, v) shows the input at (u + dx, v + dy), in pixels: the picture moves by (−dx, −dy); shifts (B,)."""
    return affine(x, affine_matrix(size=size_of(x), dx=dx, dy=dy))


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
        self.p = probability("p", p)

    def __call__(self, x: Tensor, generator: torch.Generator) -> Tensor:
        check_images(x)
        return flip(x, uniform(generator, len(x)) < self.p)


class RandomCrop(Operation):
    """A window at a uniformly random place of each padded image.

    Args:
        padding: pixels added on each side first.
        mode: "zeros" or "reflect".
        size: height and width of the window; None keeps the image's.
    """

    def __init__(self, padding: int = 4, mode: Padding = "zeros", size: int | tuple[int, int] | None = None) -> None:
        checks.choice("mode", mode, ("zeros", "reflect"))
        self.padding = pixels("padding", padding, 0)
        self.mode: Padding = mode
        self.size = None if size is None else height_and_width("size", size)

    def __call__(self, x: Tensor, generator: torch.Generator) -> Tensor:
        check_images(x)
        height, width = size_of(x)
        size = (height, width) if self.size is None else self.size
        if self.mode == "reflect" and self.padding >= min(height, width):
            raise InputError(
                f"padding must be less than the image's {height}×{width} pixels to reflect, got {self.padding}; "
                "lower it or pass mode='zeros'"
            )
        height, width = height + 2 * self.padding, width + 2 * self.padding
        if size[0] > height or size[1] > width:
            raise InputError(
                f"size must fit into the padded image of {height}×{width} pixels, got {size[0]}×{size[1]}; "
                "lower size or raise padding"
            )
        top = whole(generator, len(x), height - size[0] + 1)
        left = whole(generator, len(x), width - size[1] + 1)
        return crop(x, top, left, size=size, padding=self.padding, mode=self.mode)


class Cutout(Operation):
    """Fill a square of `size` pixels around a random pixel, cut off at the edges (DeVries & Taylor, 2017).

    Args:
        size: side of the square.
        p: probability for each image.
        fill: value in [0, 1]; the paper's 0 after normalisation is the mean colour, about 0.5 before.
    """

    def __init__(self, size: int, p: float = 1.0, fill: float = 0.0) -> None:
        self.size = pixels("size", size)
        self.p = probability("p", p)
        self.fill = probability("fill", fill)

    def __call__(self, x: Tensor, generator: torch.Generator) -> Tensor:
        check_images(x)
        top = whole(generator, len(x), x.shape[2]) - self.size // 2
        left = whole(generator, len(x), x.shape[3]) - self.size // 2
        spared = uniform(generator, len(x)) >= self.p
        return cutout(x, top.masked_fill_(spared, x.shape[2]), left, self.size, self.fill)

"""Linear filters with taps of their own for each example: what resizing and blurring share."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor


class Taps(NamedTuple):
    """A linear filter along one dimension: output i is the sum over k of weight[k, i] · input[position[k, i]]."""

    position: Tensor  # (B, k, out) whole numbers
    weight: Tensor  # (B, k, out)


def resize_taps(start: Tensor, length: Tensor, out: int) -> Taps:
    """The filter that resizes pixels start..start+length-1, (B,) each, to `out` pixels.

    Output i is centred on c = start + (i + ½) s − ½ with s = length/out; its weight of pixel j is 1 − |j − c|/max(1, s)
    where positive and inside the box, divided by their sum.
    """
    start, length = start.float().view(-1, 1, 1), length.float().view(-1, 1, 1)
    scale = length / out
    width = scale.clamp(min=1)
    centre = (torch.arange(out) + 0.5) * scale + (start - 0.5)  # (B, 1, out)
    taps = math.ceil(2 * float(width.max()))
    position = (centre - width).floor_() + torch.arange(1, taps + 1)[:, None]  # (B, k, out)
    weight = (position - centre).abs_().div_(-width).add_(1).clamp_(min=0)
    inside = position.clamp(start, start + length - 1)
    weight *= inside == position
    return Taps(inside.long(), weight / weight.sum(dim=1, keepdim=True))


def blur_taps(sigma: Tensor, taps: int, size: int) -> Taps:
    """A Gaussian of standard deviation sigma (B,) over `size` pixels, cut to an odd number of taps, edges reflected."""
    tap = torch.arange(taps) - taps // 2
    weight = torch.exp(-0.5 * (tap / sigma.float().cpu()[:, None]) ** 2)
    weight = weight / weight.sum(dim=1, keepdim=True)  # (B, k)
    position = reflect(torch.arange(size) + tap[:, None], size)  # (k, size)
    return Taps(position.expand(len(sigma), -1, -1), weight[:, :, None].expand(-1, -1, size))


def filter_separably(x: Tensor, down: Taps, across: Taps) -> Tensor:
    """Filter float images (B, C, H, W) vertically by `down`, horizontally by `across`, with taps for each example.

    Vertically, an output row is a weighted sum of a few input rows, each a run of memory: the very work of
    `embedding_bag`. Horizontally, it is a batched product with the matrix that holds the taps.
    """
    batch, channels, height, width = x.shape
    first = torch.arange(0, batch * channels * height, height).view(batch, channels, 1, 1)  # row of each channel
    source = (down.position.mT[:, None] + first).flatten(0, 2)  # (B·C·h, k)
    weight = down.weight.mT[:, None].expand(-1, channels, -1, -1).flatten(0, 2)
    x = x.reshape(-1, width)
    source, weight = source.to(x.device, non_blocking=True), weight.to(x, non_blocking=True)
    x = F.embedding_bag(source, x, per_sample_weights=weight, mode="sum")  # (B·C·h, W)
    matrix = x.new_zeros(batch, width, across.position.shape[2])  # (B, W, w)
    matrix.scatter_add_(1, across.position.to(x.device, non_blocking=True), across.weight.to(x, non_blocking=True))
    return torch.bmm(x.view(batch, -1, width), matrix).view(batch, channels, -1, matrix.shape[2])


def reflect(position: Tensor, size: int) -> Tensor:
    """Positions mirrored at the first and the last pixel into 0..size-1; they may overhang by size - 1."""
    return (size - 1) - ((size - 1) - position.abs()).abs()

"""Linear filters with taps of their own for each example: what resizing and blurring share."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor


class Taps(NamedTuple):
    """A linear filter along one dimension: output i is the sum over k of weight[k, i] · input[position[k, i]]."""

    position: Tensor  # (B or 1, k, out) whole numbers
    weight: Tensor  # (B, k, out or 1)


def resize_taps(start: Tensor, length: Tensor, out: int, mirrored: Tensor | None = None) -> Taps:
    """The filter that resizes pixels start..start+length-1 to `out` pixels, in reverse order where mirrored.

    Output i is centred on c = start + (i + ½) s − ½ with s = length/out; its weight of pixel j is 1 − |j − c|/max(1, s)
    where positive and inside the box, divided by their sum.
    """
    start, length = start.float().view(-1, 1, 1), length.float().view(-1, 1, 1)
    end, scale = start + (length - 1), length / out
    i = torch.arange(out) + 0.5
    if mirrored is not None:
        i = torch.where(mirrored.view(-1, 1, 1), i.flip(0), i)
    centre = i * scale + (start - 0.5)  # (B, 1, out)
    reach = float(scale.max())
    if reach <= 1:  # nothing shrinks: two neighbours, and beyond the edge the edge
        centre = centre.clamp_(start, end)
        position = centre.floor() + torch.tensor([[0.0], [1.0]])  # (B, 2, out)
        weight = (position - centre).abs_().neg_().add_(1)
        return Taps(position.minimum(end).long(), weight)
    width = scale.clamp(min=1)
    position = (centre - width).floor_() + torch.arange(1, math.ceil(2 * reach) + 1)[:, None]  # (B, k, out)
    weight = (position - centre).abs_().div_(-width).add_(1).clamp_(min=0)
    inside = position.clamp(start, end)
    weight *= inside == position
    return Taps(inside.long(), weight / weight.sum(dim=1, keepdim=True))


def filter_separably(x: Tensor, down: Taps, across: Taps, *, out: Tensor | None = None) -> Tensor:
    """Filter float images (B, C, H, W) vertically by `down`, horizontally by `across`, with taps for each example.

    Vertically, an output row is a weighted sum of a few input rows, each a run of memory: the very work of
    `embedding_bag`. Horizontally, it is a batched product with the matrix that holds the taps.
    """
    batch, channels, height, width = x.shape
    taps, rows = down.position.shape[1:]
    first = torch.arange(0, batch * channels * height, height).view(batch, channels, 1)
    source = (down.position.mT.reshape(-1, 1, rows * taps) + first).view(-1, taps)  # (B·C·h, k)
    weight = down.weight.mT.expand(batch, rows, taps)[:, None].expand(-1, channels, -1, -1).reshape(-1, taps)
    x = x.reshape(-1, width)
    x = F.embedding_bag(source.to(x.device), x, per_sample_weights=weight.to(x), mode="sum")  # (B·C·h, W)
    position = across.position.expand(batch, -1, -1).to(x.device)  # (B, k, w)
    weight = across.weight.expand(position.shape).to(x)
    matrix = x.new_zeros(batch, width, position.shape[2]).scatter_add_(1, position, weight)  # (B, W, w)
    shape = (batch, channels, rows, position.shape[2])
    if out is not None:
        torch.bmm(x.view(batch, channels * rows, width), matrix, out=out.view(batch, channels * rows, -1))
        return out
    return torch.bmm(x.view(batch, channels * rows, width), matrix).view(shape)


def reflect(position: Tensor, size: int) -> Tensor:
    """Positions mirrored at the first and the last pixel into 0..size-1; they may overhang by size - 1."""
    return (size - 1) - ((size - 1) - position.abs()).abs()

"""JJᵀ of a network's Jacobian, for exact spectra: accumulated over parameters, so that J is never stored.

    JJᵀ = Σ_l J_l J_lᵀ    over pieces l of the parameters

A piece is some output channels of a layer, as many as keep its rows (N, P_l) within the memory. Where it is cheaper, as
for dense layers, J_l J_lᵀ = Σ_ts (a_t·a'_s)(g_t·g'_s) over pairs of positions, without rows: for a dense layer
(AAᵀ) ∘ (GGᵀ). Each group of pieces takes another look at the data.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from noiseproof.jacobian.layerwise import Factor, Outer

if TYPE_CHECKING:
    from noiseproof.jacobian.operator import Jacobian


@dataclass(frozen=True)
class Piece:
    """Output channels lo..hi of a parameter, by rows or by pairs of positions."""

    name: str
    lo: int
    hi: int
    depth: int  # columns of J for each channel
    size: int  # values kept for each example
    pairs: bool = False

    def rows(self, factor: Factor) -> Tensor:
        """The rows (B, K, P_l) on this piece."""
        if isinstance(factor, Outer):
            return Outer(factor.a, factor.g[:, :, self.lo : self.hi]).direct().rows
        return factor.rows[:, :, self.lo * self.depth : self.hi * self.depth]


def gram(jacobian: Jacobian) -> Tensor:
    """JJᵀ (N, N)."""
    total = torch.zeros(jacobian.shape[0], jacobian.shape[0], dtype=jacobian.dtype, device=jacobian.device)
    limit = max(1, jacobian.memory // (2 * jacobian.dtype.itemsize * len(jacobian.inputs)))  # values for each example
    for group in _groups(_pieces(jacobian, limit), limit):
        _add_group(jacobian, group, total)
    return torch.tril(total) + torch.tril(total, -1).T


def _pieces(jacobian: Jacobian, limit: int) -> Iterator[Piece]:
    """The parameters, cut along their first dimension where they are too large."""
    _, found = next(jacobian.factors(jacobian.names, torch.tensor([0])))
    outputs = jacobian.rows_each
    for name, size in jacobian.sizes.items():
        factor = found[name]
        if isinstance(factor, Outer):
            channels, positions, depth = factor.g.shape[2], factor.g.shape[3], factor.a.shape[2]
            if factor.pairs_are_cheaper():
                yield Piece(name, 0, channels, depth, positions * (depth + outputs * channels), pairs=True)
                continue
        else:
            channels, depth = size, 1
        step = max(1, min(channels, limit // (outputs * depth)))
        for lo in range(0, channels, step):
            hi = min(lo + step, channels)
            yield Piece(name, lo, hi, depth, (hi - lo) * depth * outputs)


def _groups(pieces: Iterator[Piece], limit: int) -> Iterator[list[Piece]]:
    """Neighbouring pieces that fit the memory together."""
    group: list[Piece] = []
    for piece in pieces:
        if group and sum(one.size for one in group) + piece.size > limit:
            yield group
            group = []
        group.append(piece)
    yield group


def _add_group(jacobian: Jacobian, group: list[Piece], total: Tensor) -> None:
    """Add J_l J_lᵀ of a group of pieces to the lower triangle of `total` (N, N)."""
    n = len(jacobian.inputs)
    flat = [piece for piece in group if not piece.pairs]
    rows = total.new_empty(n, jacobian.rows_each, sum((p.hi - p.lo) * p.depth for p in flat))  # (n, K, P_l)
    kept: dict[str, list[Outer]] = {piece.name: [] for piece in group if piece.pairs}
    for index, found in jacobian.factors(list(dict.fromkeys(piece.name for piece in group))):
        start = 0
        for piece in flat:
            part = piece.rows(found[piece.name])
            rows[index, :, start : start + part.shape[2]] = part
            start += part.shape[2]
        for name, outers in kept.items():
            factor = found[name]
            assert isinstance(factor, Outer)
            outers.append(factor)
        del found
    if flat:
        _add_products(rows.flatten(0, 1), total, jacobian.memory)
    for outers in kept.values():
        _add_pairs(Outer(torch.cat([o.a for o in outers]), torch.cat([o.g for o in outers])), total, jacobian.memory)


def _add_products(rows: Tensor, total: Tensor, memory: int) -> None:
    """rows rowsᵀ of (N, P_l), in stripes that end at the diagonal: half of the products."""
    stripe = max(1, min(1024, memory // (4 * rows.itemsize * len(rows))))
    for start in range(0, len(rows), stripe):
        end = min(start + stripe, len(rows))
        total[start:end, :end].addmm_(rows[start:end], rows[:end].T)


def _add_pairs(outer: Outer, total: Tensor, memory: int) -> None:
    """The same by pairs of positions."""
    n, outputs, _, positions = outer.g.shape
    each = 2 * outer.g.itemsize * (outputs * positions) ** 2 * n  # bytes for each example of a stripe
    stripe = max(1, min(n, 1024 // outputs, memory // (2 * each)))
    for start in range(0, n, stripe):
        end = min(start + stripe, n)
        left, right = Outer(outer.a[start:end], outer.g[start:end]), Outer(outer.a[:end], outer.g[:end])
        block = left.gram(right)  # (B, K, end, K)
        total[start * outputs : end * outputs, : end * outputs] += block.view((end - start) * outputs, end * outputs)

"""Rows of a Jacobian on one parameter, for a block of examples: as they are, or as sums of outer products.

Products with the second form are reordered where that is cheaper: for a dense layer (one position) rows are never
formed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

_MOST_PAIRS = 1 << 23  # inner products of positions held at once


@dataclass
class Direct:
    """Rows as they are."""

    rows: Tensor  # (B, K, P)

    @property
    def nbytes(self) -> int:
        return self.rows.nbytes

    def for_columns(self, width: int) -> Direct:
        return self

    def for_gram(self) -> Direct:
        return self

    def apply(self, v: Tensor) -> Tensor:
        """Rows times v (P, b): (B, K, b)."""
        return self.rows @ v

    def adjoint(self, u: Tensor) -> Tensor:
        """Σ over examples and outputs of rows times u (B, K, b): (P, b)."""
        return self.rows.flatten(0, 1).T @ u.flatten(0, 1)

    def gram(self, other: Factor) -> Tensor:
        """Rows times the other's rows: (B·K, B'·K')."""
        return self.rows.flatten(0, 1) @ other.rows.flatten(0, 1).T


@dataclass
class Outer:
    """Rows of a weight (O, D) as sums of outer products over T positions: Σ_t g_t ⊗ a_t."""

    a: Tensor  # (B, T, D)
    g: Tensor  # (B, K, O, T)

    @property
    def rows(self) -> Tensor:
        """The rows themselves, (B, K, O·D)."""
        return (self.g.flatten(1, 2) @ self.a).view(*self.g.shape[:2], -1)

    @property
    def nbytes(self) -> int:
        return self.a.nbytes + self.g.nbytes

    def for_columns(self, width: int) -> Outer | Direct:
        """The cheaper form for products with `width` columns: K(T + b) against T·b products of size O·D."""
        outputs, positions = self.g.shape[1], self.g.shape[3]
        return self if positions * width < outputs * (positions + width) else Direct(self.rows)

    def for_gram(self) -> Outer | Direct:
        """The cheaper form for the Gram matrix: inner products over T² pairs of positions, or over O·D columns."""
        _, outputs, channels, positions = self.g.shape
        depth = self.a.shape[2]
        pairs = positions**2 * (channels + depth / outputs**2 + 1)
        return self if pairs < channels * depth else Direct(self.rows)

    def apply(self, v: Tensor) -> Tensor:
        """Rows times v (O·D, b) without the rows: (B, K, b)."""
        forward = torch.einsum("ntd,odb->notb", self.a, v.view(self.g.shape[2], -1, v.shape[1]))
        return self.g.flatten(2) @ forward.flatten(1, 2)

    def adjoint(self, u: Tensor) -> Tensor:
        """Σ over examples and outputs of rows times u (B, K, b), without the rows: (O·D, b)."""
        mixed = torch.einsum("nkb,nkot->bont", u, self.g)
        return torch.einsum("bont,ntd->odb", mixed, self.a).flatten(0, 1)

    def gram(self, other: Factor) -> Tensor:
        """Rows times the other's rows, Σ_ts (a_t·a'_s)(g_t·g'_s): (B·K, B'·K'). For T = 1: (AAᵀ) ∘ (GGᵀ)."""
        assert isinstance(other, Outer)
        pairs = self.g[0, :, 0].numel() * other.g[:, :, 0].numel()  # of outputs and positions, for each example
        step, blocks = max(1, _MOST_PAIRS // pairs), []
        for a, g in zip(self.a.split(step), self.g.split(step), strict=True):
            inputs = torch.einsum("ntd,msd->ntms", a, other.a)
            products = torch.einsum("nkot,mlos->nktmls", g, other.g)
            blocks.append(products.mul_(inputs[:, None, :, :, None]).sum(dim=(2, 5)))  # (B, K, B', K')
        return torch.cat(blocks).flatten(2).flatten(0, 1)


Factor: TypeAlias = Outer | Direct

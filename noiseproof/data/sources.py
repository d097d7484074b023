"""Where rows of inputs come from when they are not one tensor in memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

COPY_LIMIT = 64 << 20  # bytes: a subset of a smaller tensor is copied, of a larger one it is a view by index


class InputSource(ABC):
    """Something with a shape (n, ...) and a dtype that hands out rows.

    Subclass it for inputs that are not one tensor in memory; `LabeledData` trusts what it says.
    """

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """(n, C, H, W) or (n, d)."""

    @property
    @abstractmethod
    def dtype(self) -> torch.dtype:
        """uint8 or float32."""

    @abstractmethod
    def take(self, index: Tensor) -> Tensor:
        """Rows (B, ...) at the positions `index` (B,)."""


Inputs: TypeAlias = Tensor | InputSource


def take(inputs: Inputs, index: Tensor) -> Tensor:
    """Rows of a tensor or of a source."""
    return inputs.index_select(0, index) if isinstance(inputs, Tensor) else inputs.take(index)


def origin(inputs: Inputs, row: int) -> tuple[Inputs, int]:
    """What a row of inputs is a row of, where they are some rows of others."""
    return (inputs.base, int(inputs.rows[row])) if isinstance(inputs, Rows) else (inputs, row)


class Rows(InputSource):
    """Some rows of other inputs, by index: a subset that copies nothing."""

    def __init__(self, base: Inputs, rows: Tensor) -> None:
        self.base: Inputs = base
        self.rows = rows  # (m,)
        if isinstance(base, Rows):
            self.base, self.rows = base.base, base.rows.index_select(0, rows)

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.rows), *self.base.shape[1:])

    @property
    def dtype(self) -> torch.dtype:
        return self.base.dtype

    def take(self, index: Tensor) -> Tensor:
        return take(self.base, self.rows.index_select(0, index))


@dataclass(eq=False, repr=False)
class Mapped(InputSource):
    """A memory map of numbers, (n, d) or (n, C, H, W), in any byte order and any order of the axes on disk.

    Rows are read and cast when they are taken; whole numbers of images are bytes.
    """

    array: np.ndarray

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    @property
    def dtype(self) -> torch.dtype:
        return torch.uint8 if self.array.ndim == 4 and self.array.dtype.kind in "iu" else torch.float32

    def take(self, index: Tensor) -> Tensor:
        kind = np.uint8 if self.dtype == torch.uint8 else np.float32
        return torch.from_numpy(self.array[index.numpy()].astype(kind, order="C", copy=False))


def select(inputs: Inputs, rows: Tensor) -> Inputs:
    """The inputs at `rows` (m,): a copy where that is cheap, else a view by index."""
    if isinstance(inputs, Tensor) and inputs.nbytes <= COPY_LIMIT:
        return inputs.index_select(0, rows)
    return Rows(inputs, rows)

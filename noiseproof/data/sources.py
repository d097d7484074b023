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
    """An array that stays on disk: rows are read, cast and laid out as (B, d) or (B, C, H, W) when taken.

    Args:
        array: a memory map of numbers in any byte order, (n, d) or any image layout; whole numbers of images are bytes.
        layout: the axes of `array` in the order of the rows handed out, e.g. (0, 3, 1, 2) for channels-last images;
            -1 stands for a new axis of size one.
    """

    array: np.ndarray
    layout: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(1 if axis < 0 else self.array.shape[axis] for axis in self.layout)

    @property
    def dtype(self) -> torch.dtype:
        return torch.uint8 if len(self.layout) == 4 and self.array.dtype.kind in "iu" else torch.float32

    def take(self, index: Tensor) -> Tensor:
        rows = self.array[index.numpy()].astype(np.uint8 if self.dtype == torch.uint8 else np.float32, copy=False)
        if -1 in self.layout:
            return torch.from_numpy(rows).unsqueeze(self.layout.index(-1))
        return torch.from_numpy(rows).permute(self.layout).contiguous()


def select(inputs: Inputs, rows: Tensor) -> Inputs:
    """The inputs at `rows` (m,): a copy where that is cheap, else a view by index."""
    if isinstance(inputs, Tensor) and inputs.nbytes <= COPY_LIMIT:
        return inputs.index_select(0, rows)
    return Rows(inputs, rows)

"""Where rows of inputs come from when they are not one tensor in memory."""

from __future__ import annotations

import os
import sys
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

COPY_LIMIT = 64 << 20  # bytes: a subset of a smaller tensor is copied, of a larger one it is a view by index

AHEAD = 2  # batches that are read while another is used
FETCHED = 4096  # rows whose bytes are asked for together, before those in front of them are decoded
_BEHIND = 5  # niceness of who reads them: a third of the loop's share of a core that both want


class InputSource(ABC):
    """Something with a shape (n, ...) and a dtype that hands out rows.

    Subclass it for inputs that are not one tensor in memory; `LabeledData` trusts what it says.
    """

    ready = False  # whether rows are on the scale that networks take, so that nothing normalises them
    decodes = False  # whether a row costs so much that not all are taken just to know them

    def __len__(self) -> int:
        return self.shape[0]

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

    def select(self, rows: Tensor) -> Inputs:
        """Some rows (m,) as inputs of their own."""
        return Rows(self, rows)

    def places(self) -> np.ndarray | None:
        """Of each row the number of its file, and the place in it, (n, 2); None: rows are read as quickly anywhere."""
        return None

    def fetch(self, rows: Tensor) -> None:  # noqa: B027
        """Have the bytes of rows (m,) read that will be taken soon, without waiting for them."""

    def stream(self, batches: Sequence[Tensor]) -> Iterator[Tensor]:
        """What `take` gives for one batch after another, read ahead in a thread."""
        if len(batches) == 1:
            yield self.take(batches[0])
            return
        reader, reading = ThreadPoolExecutor(1, initializer=stand_back), deque[Future[Tensor]]()
        many = max(FETCHED // max(map(len, batches[:1]), default=1), 1)  # batches that are fetched at once
        try:
            for at, rows in enumerate(batches):
                for begin in (0, many) if at == 0 else (at + many,) if at % many == 0 else ():
                    if soon := batches[begin : begin + many]:
                        reader.submit(self.fetch, torch.cat(list(soon)))
                reading.append(reader.submit(self.take, rows))
                if len(reading) > AHEAD:
                    yield reading.popleft().result()
            while reading:
                yield reading.popleft().result()
        finally:
            reader.shutdown(cancel_futures=True)


def stand_back(*_: object) -> None:
    """Let whoever reads ahead, this thread and those it starts, or this process, leave the core to the loop.

    A batch is asked for in the moment that the loop has work of its own: at equal rights both would be late, with the
    cores idle afterwards. Other systems than Linux have no such rights of a thread.
    """
    if sys.platform == "linux":
        with suppress(OSError):
            os.nice(_BEHIND)


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
        self.ready, self.decodes = (getattr(base, name, False) for name in ("ready", "decodes"))

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.rows), *self.base.shape[1:])

    @property
    def dtype(self) -> torch.dtype:
        return self.base.dtype

    def take(self, index: Tensor) -> Tensor:
        return take(self.base, self.rows.index_select(0, index))

    def places(self) -> np.ndarray | None:
        found = None if isinstance(self.base, Tensor) else self.base.places()
        return None if found is None else found[self.rows.numpy()]

    def stream(self, batches: Sequence[Tensor]) -> Iterator[Tensor]:
        if isinstance(self.base, Tensor):
            return super().stream(batches)
        return self.base.stream([self.rows.index_select(0, rows) for rows in batches])


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
    return Rows(inputs, rows) if isinstance(inputs, Tensor) else inputs.select(rows)


class Ahead:
    """Takes rows of inputs; batches that were announced, in their order, are read ahead by what reads the source.

    Whoever reads, and however far ahead, a batch is what `take` gives: a run that is resumed announces its batches
    again, and goes on in the middle.
    """

    def __init__(self, inputs: Inputs) -> None:
        self.inputs = inputs
        self.batches: Sequence[Tensor] = ()
        self.at = 0  # the batch that comes next
        self.held: Tensor | None = None  # it, where `read_on` has it already
        self.stream: Iterator[Tensor] | None = None

    def announce(self, batches: Sequence[Tensor]) -> None:
        """The batches that will be taken, these very tensors, from one of them on."""
        self.batches, self.at, self.held, self.stream = batches, 0, None, None

    def take(self, rows: Tensor) -> Tensor:
        if isinstance(self.inputs, Tensor):
            return take(self.inputs, rows)
        if self.stream is None:
            self.at = next((at for at, batch in enumerate(self.batches) if batch is rows), len(self.batches))
            if self.at < len(self.batches):
                self.stream = self.inputs.stream(self.batches[self.at :])
        if self.stream is None or self.at >= len(self.batches) or self.batches[self.at] is not rows:
            return self.inputs.take(rows)
        self.at += 1
        held, self.held = self.held, None
        return next(self.stream) if held is None else held

    def read_on(self) -> None:
        """Get hold of the batch that comes next, and so have another one read.

        For who has work to do with a batch before a network does: a new one is begun with in the moment that one is
        taken, and would want the cores that this work wants. Called after it, reading goes on beside the network.
        """
        if self.stream is not None and self.held is None and self.at < len(self.batches):
            self.held = next(self.stream)

"""Tokens, and several tensors for an example: kept as one row of numbers each, and handed to the model as they were.

    Tokens([[5, 9, 2], [7, 1]])                       a model takes them as (B, L) int64, padded with 0
    Packed.of({"input_ids": [[5, 9, 2], [7, 1]]})     a model takes input_ids=… and attention_mask=…

Everything between, order, batches and subsets, sees a tensor (n, D) as of a table; nothing normalises it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from noiseproof.data.input_checks import as_array, check_finite
from noiseproof.data.sources import Inputs, InputSource
from noiseproof.errors import InputError

MASK = "attention_mask"
PREFIX = "hf:"  # of the name of a model of transformers, which takes tokens
# values (n, …) as float32; the lengths (n,) of sequences that differ in length; whether they are whole numbers
Read: TypeAlias = tuple[np.ndarray, np.ndarray | None, bool]
_LARGEST = 2**24  # float32 holds every whole number below it


@dataclass(frozen=True)
class Part:
    """One tensor of an example."""

    name: str  # "" for one that is passed alone
    shape: tuple[int, ...]  # of sequences, (L,) of the longest
    whole: bool  # int64, else float32
    sequence: bool  # shorter ones are padded with 0


@dataclass(frozen=True)
class Packing:
    """How the tensors of an example lie in its row."""

    parts: tuple[Part, ...]
    tokenizer: str | None = None  # the path of what made tokens of texts, where texts may be given again

    @property
    def width(self) -> int:
        return sum(math.prod(part.shape) for part in self.parts)

    def unpack(self, rows: Tensor) -> Tensor | dict[str, Tensor]:
        """Rows (B, D) as a model takes them; sequences as long as the longest of the batch, where there is a mask."""
        pieces = rows.split([math.prod(part.shape) for part in self.parts], dim=1)
        found = {}
        for part, piece in zip(self.parts, pieces, strict=True):
            if part.whole and not piece.equal(piece.round()):
                raise InputError("tokens were mixed or scaled; choose a method and an augmentation that do neither")
            value = piece.reshape(len(rows), *part.shape)
            found[part.name] = value.long() if part.whole else value
        if "" in found:
            return found[""]
        if MASK in found:
            used = found[MASK].any(dim=0).nonzero()
            longest, full = int(used.max()) + 1 if len(used) else 1, found[MASK].shape[1:]
            for part in self.parts:
                if part.sequence and part.shape == full:
                    found[part.name] = found[part.name][:, :longest]
        return found

    def state(self) -> dict[str, Any]:
        """For a file; `from_state` reads it."""
        return {"parts": [asdict(part) for part in self.parts], "tokenizer": self.tokenizer}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Packing:
        parts = (Part(**part | {"shape": tuple(part["shape"])}) for part in state["parts"])
        return cls(tuple(parts), state["tokenizer"])


class Packed(InputSource):
    """Examples of several tensors, or of tokens."""

    ready = True

    def __init__(self, packing: Packing, rows: Tensor) -> None:
        self.packing, self.rows = packing, rows  # (n, D) float32

    @classmethod
    def of(cls, tensors: Mapping[str, Any], packing: Packing | None = None, tokenizer: str | None = None) -> Packed:
        """Tensors (n, …) or lists of sequences by name, packed anew or as others were.

        Raises:
            InputError: they are no numbers, differ in length, or are other ones than were packed before.
        """
        read = {str(name): _read(str(name), values) for name, values in tensors.items()}
        if "" not in read and MASK not in read and (name := _masked(read, packing)) is not None:
            array, lengths, _ = read[name]
            lengths = np.full(len(array), array.shape[1]) if lengths is None else lengths
            read[MASK] = ((np.arange(array.shape[1]) < lengths[:, None]).astype(np.float32), lengths, True)
        if packing is None:
            parts = [
                Part(name, array.shape[1:], whole, whole and array.ndim == 2)
                for name, (array, _, whole) in read.items()
            ]
            packing = Packing(tuple(parts), tokenizer)
        counts = {len(array) for array, _, _ in read.values()}
        if len(counts) != 1 or counts == {0}:
            raise InputError(
                f"the tensors {', '.join(read)} must be of one length, and not empty, got {sorted(counts)}"
            )
        pieces = [_as_packed(part, read) for part in packing.parts]
        return cls(packing, torch.from_numpy(np.concatenate(pieces, axis=1)))

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.rows.shape)

    @property
    def dtype(self) -> torch.dtype:
        return torch.float32

    def take(self, index: Tensor) -> Tensor:
        return self.rows.index_select(0, index)

    def stream(self, batches: Sequence[Tensor]) -> Iterator[Tensor]:
        return map(self.take, batches)

    def select(self, rows: Tensor) -> Inputs:
        return Packed(self.packing, self.take(rows))

    def bound(self, packing: Packing) -> Packed:
        """The same examples, packed as others were."""
        if packing == self.packing:
            return self
        given = self.packing.unpack(self.rows)
        return Packed.of({"": given} if isinstance(given, Tensor) else given, packing)


def Tokens(sequences: Any) -> Packed:
    """Sequences of whole numbers, (n, L) or lists of any length: tokens, which a model takes as (B, L) int64.

    Shorter ones are padded with 0. To be told where, pass {"input_ids": sequences}: the model is then called with
    input_ids and attention_mask.
    """
    packed = Packed.of({"": sequences})
    if not packed.packing.parts[0].sequence:
        raise InputError("tokens must be whole numbers (n, L), or lists of them; pass other inputs as they are")
    return packed


def _read(name: str, values: Any) -> Read:
    what = f"tensor {name!r}" if name else "tokens"
    lengths = None
    if isinstance(values, Sequence) and not isinstance(values, str) and len({_length(one) for one in values}) > 1:
        each = [as_array(f"{what}, row {row}", one) for row, one in enumerate(values)]
        if any(one.ndim != 1 for one in each):
            raise InputError(f"{what} must be of one shape, or sequences; pad or crop them")
        lengths = np.array([len(one) for one in each])
        array = np.zeros((len(each), lengths.max()), dtype=np.result_type(*each))
        for row, one in enumerate(each):
            array[row, : len(one)] = one
    elif isinstance(values, Sequence) and len(values) and isinstance(values[0], Tensor):
        array = torch.stack(list(values)).numpy()
    else:
        array = as_array(what, values)
    if array.dtype.kind not in "iufb" or array.ndim < 1:
        raise InputError(f"{what} must be numbers (n, …), got {array.dtype} {array.shape}; tokenise texts first")
    whole = array.dtype.kind in "iub"
    if whole and array.size and np.abs(array).max() >= _LARGEST:
        raise InputError(f"{what} must lie below {_LARGEST:,}, got {np.abs(array).max():,}; number them anew")
    if lengths is not None and not lengths.all():
        raise InputError(f"{what} has a sequence of length zero at row {lengths.argmin()}; drop the row")
    array = array.astype(np.float32)
    if not whole:
        check_finite(array)
    return array, lengths, whole


def _masked(read: Mapping[str, Read], packing: Packing | None) -> str | None:
    """The sequences that need a mask: the first that differ in length, or those that had one in the training set."""
    if packing is None:
        return next((name for name, (_, lengths, whole) in read.items() if lengths is not None and whole), None)
    longest = next((part.shape for part in packing.parts if part.name == MASK), None)
    alike = [part.name for part in packing.parts if part.sequence and part.shape == longest]
    return next((name for name in alike if name in read and read[name][0].ndim == 2), None)


def _length(value: Any) -> int:
    return len(value) if isinstance(value, list | tuple) or getattr(value, "ndim", 0) > 0 else 0


def _as_packed(part: Part, read: Mapping[str, Read]) -> np.ndarray:
    """One part of each row: sequences padded, or cut, to the length that they had in the training set."""
    if part.name not in read:
        raise InputError(f"the tensor {part.name!r} is missing; there are {', '.join(read)}")
    array = read[part.name][0]
    if part.sequence and array.ndim == 2:
        longest = part.shape[0]
        array = np.pad(array[:, :longest], ((0, 0), (0, max(0, longest - array.shape[1]))))
    if array.shape[1:] != part.shape:
        raise InputError(f"tensor {part.name!r} must be (n, {', '.join(map(str, part.shape))}), got {array.shape}")
    return array.reshape(len(array), -1)

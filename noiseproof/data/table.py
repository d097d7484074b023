"""Tables with categories, gaps, dates and texts: raw columns, and the numbers that the training rows make of them.

table = Table.read({"age": [31, None], "city": ["Oslo", "Rome"]})
train = table.select(rows)          # fits its encoder on these rows when it is first asked for numbers
test = other.bound(train.encoder)   # the same columns by name, encoded as those of the training rows
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from noiseproof.data.columns import Column, check_kinds, read_column
from noiseproof.data.encoders import ENCODERS, Category, from_state
from noiseproof.data.input_checks import texts
from noiseproof.data.sources import Inputs, InputSource
from noiseproof.errors import InputError

TEXTS = ("category", "text")  # kinds of columns whose values are texts
_KEEP = 1 << 30  # bytes of encoded rows that are kept; beyond it, rows are encoded each time they are taken


class TableEncoder:
    """Columns to features, in order; made by `fit` on training rows, or from a file by `from_state`."""

    def __init__(self, parts: Sequence[Any]) -> None:
        self.parts = tuple(parts)
        self.width = sum(part.width for part in parts)
        self.kinds = {part.name: part.kind for part in parts}

    @classmethod
    def fit(cls, table: Table) -> TableEncoder:
        encoder = cls([ENCODERS[column.kind].fit(name, column) for name, column in table.columns.items()])
        if encoder.width == 0:
            raise InputError(
                f"the columns {', '.join(encoder.kinds)} hold nothing to learn from: each has one value, or one for "
                "each row; add others"
            )
        return encoder

    def encode(self, columns: Mapping[str, Column]) -> Tensor:
        """Features (n, width) of columns by name."""
        return torch.from_numpy(np.concatenate([part.encode(columns[part.name]) for part in self.parts], axis=1))

    def levels(self) -> dict[str, tuple[str, ...]]:
        """The columns of text, each with the values that have a feature of their own, if it is a category."""
        return {part.name: getattr(part, "values", ()) for part in self.parts if part.kind in TEXTS}

    def warn_of_unseen(self, columns: Mapping[str, Column]) -> None:
        """One sentence for each column with values that the training rows did not have."""
        for part in self.parts:
            unseen = part.unseen(columns[part.name]) if isinstance(part, Category) else {}
            if unseen:
                more = f" and {len(unseen) - 1} more" if len(unseen) > 1 else ""
                warnings.warn(
                    f"column {part.name!r} has {next(iter(unseen))!r:.60}{more}, in {sum(unseen.values())} rows, which "
                    "the training set did not have; it is taken for none of the values known",
                    stacklevel=3,
                )

    def state(self) -> list[dict[str, Any]]:
        """For a file; `from_state` reads it."""
        return [part.state() for part in self.parts]

    @classmethod
    def from_state(cls, state: list[dict[str, Any]]) -> TableEncoder:
        return cls([from_state(part) for part in state])


class Table(InputSource):
    """Raw columns by name, which give features once an encoder is fitted on them, or another's is bound."""

    ready = True

    def __init__(self, columns: dict[str, Column], encoder: TableEncoder | None = None) -> None:
        self.columns, self._given = columns, encoder

    @classmethod
    def read(cls, columns: Mapping[str, Any], names: Sequence[str] | None = None, kinds: Any = None) -> Table:
        """The columns of these names, of any make, each of the kind asked for or that it looks like.

        Raises:
            InputError: one is missing, cannot be read, or is of another length; or there are no rows.
        """
        chosen = tuple(columns) if names is None else texts("feature_names", names)
        for name in chosen:
            if name not in columns:
                raise InputError(f"the feature {name!r} is missing; the columns are {', '.join([*columns][:20])}")
        asked = check_kinds(kinds, chosen)
        read = {name: read_column(name, columns[name], asked.get(name)) for name in chosen}
        lengths = [len(column.values) for column in read.values()]
        if len(set(lengths)) != 1:
            raise InputError(f"the columns differ in length ({', '.join(map(str, lengths[:20])) or 'there are none'})")
        if lengths[0] == 0:
            raise InputError("the columns are empty; pass at least two rows")
        _refuse_empty_texts(read)
        return cls(read)

    @cached_property
    def encoder(self) -> TableEncoder:
        return TableEncoder.fit(self) if self._given is None else self._given

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())).values)

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self), self.encoder.width)

    @property
    def dtype(self) -> torch.dtype:
        return torch.float32

    @cached_property
    def _features(self) -> Tensor | None:
        return self.encoder.encode(self.columns) if 4 * len(self) * self.encoder.width <= _KEEP else None

    def take(self, index: Tensor) -> Tensor:
        if self._features is not None:
            return self._features.index_select(0, index)
        return self.encoder.encode({name: column.take(index.numpy()) for name, column in self.columns.items()})

    def stream(self, batches: Sequence[Tensor]) -> Iterator[Tensor]:
        return super().stream(batches) if self._features is None else map(self.take, batches)

    def select(self, rows: Tensor) -> Inputs:
        """Some rows: with the encoder of this table if that was given, else with one fitted on these rows alone."""
        return Table({name: column.take(rows.numpy()) for name, column in self.columns.items()}, self._given)

    def bound(self, encoder: TableEncoder) -> Table:
        """The same rows as an encoder fitted elsewhere sees them: its columns, read as the kinds they had there.

        Raises:
            InputError: a column is missing, or cannot be read so.
        """
        missing = [name for name in encoder.kinds if name not in self.columns]
        if missing:
            raise InputError(
                f"the feature {missing[0]!r} is missing; its features are {', '.join([*self.columns][:20])}"
            )
        columns = {}
        for name, kind in encoder.kinds.items():
            own = self.columns[name]
            columns[name] = own if own.kind == kind else read_column(name, own.arrow(), kind)
        _refuse_empty_texts(columns)
        return Table(columns, encoder)

    def levels(self) -> dict[str, tuple[str, ...]]:
        """The columns of text, each with its values, if it is a category."""
        return {name: column.levels for name, column in self.columns.items() if column.kind in TEXTS}

    def numbers(self) -> Tensor:
        """The columns as they are (n, d), where all are complete numbers.

        Raises:
            InputError: one is of another kind, or has a gap.
        """
        for name, column in self.columns.items():
            if column.kind != "number":
                raise InputError(f"column {name!r} holds a {column.kind}, the training set had numbers; convert it")
            if np.isnan(column.values).any():
                row = int(np.isnan(column.values).argmax())
                raise InputError(
                    f"column {name!r} has a missing value at row {row}, the training set had none; fill it in"
                )
        return torch.from_numpy(np.stack([c.values for c in self.columns.values()], axis=1).astype(np.float32))


def _refuse_empty_texts(columns: Mapping[str, Column]) -> None:
    """Where there are texts alone, each row must have one; beside other columns a text may be missing."""
    if any(column.kind != "text" for column in columns.values()):
        return
    for row, held in enumerate(zip(*(column.values for column in columns.values()), strict=True)):
        if not "".join(held).strip():
            named = ", ".join(map(repr, columns))
            raise InputError(
                f"column {named} holds a text of length zero at row {row}; drop the row, or write what it should be"
            )

"""What the raw inputs of a network look like: what it must be given again, after training."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from noiseproof.data.images import LazyImages
from noiseproof.data.input_checks import TEXT, as_array, columns_of, parse_inputs, texts_in, whole_columns
from noiseproof.data.labeled import LabeledData, is_table
from noiseproof.data.packing import Packed, Packing
from noiseproof.data.sources import Inputs, InputSource
from noiseproof.errors import InputError, naming

if TYPE_CHECKING:
    from noiseproof.data.table import Table, TableEncoder

_NEAR, _FAR = 2.0, 16.0  # the largest colour of floats in about 0..1; and one that is on another scale beyond doubt


@dataclass(frozen=True)
class InputForm:
    """The form of a data set's inputs.

    Attributes:
        shape: of one input, (C, H, W) or (d,).
        unit: whether images are bytes, which are scaled to 0..1, or floats of about that range; other floats are on a
            scale of their own. None: unknown.
        feature_names: of a table's columns, in order.
        encoder: what makes features of the columns, where they are more than complete numbers.
        packing: how tokens, or the tensors of a dict, lie in a row.
    """

    shape: tuple[int, ...]
    unit: bool | None = True
    feature_names: tuple[str, ...] | None = None
    encoder: TableEncoder | None = None
    packing: Packing | None = None

    @classmethod
    def of(cls, data: LabeledData) -> InputForm:
        encoder = data.inputs.encoder if is_table(data.inputs) else None
        unit = not data.is_image or colour_range(data.inputs)[1] <= _NEAR
        packing = data.inputs.packing if isinstance(data.inputs, Packed) else None
        return cls(data.input_shape, unit, data.feature_names, encoder, packing)

    def check(self, name: str, inputs: Inputs) -> None:
        """Raise an InputError if inputs (n, …) are of another shape, or images on another scale."""
        shape = tuple(inputs.shape[1:])
        if shape != self.shape:
            raise InputError(
                f"{name} has inputs of shape {shape}, the training set {self.shape}; {_remedy(shape, self.shape)}"
            )
        if len(shape) != 3:
            return
        largest = colour_range(inputs)[1]
        if self.unit and largest > _FAR:
            raise InputError(
                f"{name} has images up to {largest:g}, the training set's were bytes or lay in 0..1; "
                "divide by 255, or pass uint8"
            )
        if self.unit is False and inputs.dtype == torch.uint8:
            raise InputError(f"{name} has uint8 images, the training set's were floats beyond 0..1; scale them alike")

    def raw(self, inputs: Any) -> Inputs:
        """What a caller gives to predict on, (n, …) in this form: an array by position, a table by its columns' names.

        Raises:
            InputError: a column is missing, or it is of another form.
        """
        if isinstance(inputs, LabeledData):
            return self.match("the data", inputs).inputs
        if isinstance(inputs, Dataset | DataLoader):
            raise InputError(f"inputs must be what is asked about, got {type(inputs).__name__}; pass nf.load(dataset)")
        if self.packing is not None:
            return self._packed(inputs)
        if len(self.shape) == 3 and (pictures := images_in(inputs)) is not None:
            size = (self.shape[1], self.shape[2])
            inputs = LazyImages(pictures, size, gray=self.shape[0] == 1, names=[_picture_name(one) for one in pictures])
        if len(self.shape) == 1 and (sentences := texts_in(inputs)) is not None:
            inputs = {TEXT: sentences}
        columns = inputs if is_table(inputs) else columns_of(inputs)
        if self.encoder is not None:
            if columns is None:
                raise InputError(
                    f"inputs must be a table with the columns {', '.join(self.encoder.kinds)}, got "
                    f"{type(inputs).__name__}; pass a DataFrame or a dict of columns"
                )
            return self._encoded(columns)
        if columns is not None:
            if len(self.shape) == 3:
                raise InputError(
                    f"inputs must be images {self.shape}, got a table; give them as the training set had them"
                )
            inputs = self._numbers(columns)
        if not isinstance(inputs, InputSource):
            inputs = as_array("inputs", inputs)
        shape = tuple(inputs.shape)
        if shape[1:] != self.shape:
            wanted = ", ".join(map(str, self.shape))
            raise InputError(f"inputs must be (n, {wanted}), got {shape}; give them as the training set had them")
        if shape[0] == 0:
            return torch.zeros(shape)
        given = inputs if isinstance(inputs, InputSource) else parse_inputs(inputs, quantities=True)
        self.check("the batch", given)
        return given

    def _packed(self, inputs: Any) -> Packed:
        """Tokens, or a dict of tensors, as those of the training set were packed."""
        assert self.packing is not None
        if isinstance(inputs, Packed):
            return inputs.bound(self.packing)
        if self.packing.tokenizer is not None:
            from noiseproof.data.columns import to_arrow
            from noiseproof.data.tokenizing import tokenize

            columns = columns_of(inputs) or {}
            name = next((name for name in (*(self.feature_names or ()), TEXT) if name in columns), None)
            sentences = texts_in(inputs if name is None else to_arrow(name, columns[name]).to_pylist())
            inputs = inputs if sentences is None else tokenize(sentences, self.packing.tokenizer)
        return Packed.of(inputs if isinstance(inputs, Mapping) else {"": inputs}, self.packing)

    def _encoded(self, columns: Table | dict[str, Any]) -> Inputs:
        """The features that the training rows' encoder makes of columns."""
        from noiseproof.data.table import Table

        assert self.encoder is not None
        if not isinstance(columns, Table):
            if all(len(column) == 0 for column in columns.values()):
                return torch.zeros(0, *self.shape)
            columns = Table.read(columns, tuple(self.encoder.kinds), self.encoder.kinds)
        table = columns.bound(self.encoder)
        self.encoder.warn_of_unseen(table.columns)
        return table

    def _numbers(self, columns: Table | dict[str, Any]) -> Any:
        """Columns (n, d) that were complete numbers in the training set, and must be so again."""
        from noiseproof.data.table import Table

        if isinstance(columns, Table):
            return columns.numbers()
        names = self.feature_names or tuple(columns)
        whole = whole_columns(columns, names)
        return Table.read(columns, names).numbers() if whole is None else whole

    def match(self, name: str, data: LabeledData) -> LabeledData:
        """The data in this form: features by name, and in order.

        Raises:
            InputError: it lacks a feature, or is of another form.
        """
        if self.packing is not None:
            with naming(f"{name} does not match the training set"):
                if self.packing.tokenizer is not None:
                    from noiseproof.data.tokenizing import tokenized

                    data = tokenized(name, data, self.packing.tokenizer)
                if not isinstance(data.inputs, Packed):
                    raise InputError(
                        f"its inputs are {data.input_shape}, no tokens or dict of tensors; pass them alike"
                    )
                data = data.with_inputs(data.inputs.bound(self.packing))
        elif self.encoder is not None:
            with naming(f"{name} does not match the training set"):
                data = data.encoded_by(self.encoder)
            self.encoder.warn_of_unseen(data.inputs.columns)  # type: ignore[union-attr]
        elif self.feature_names is not None:
            with naming(f"{name} does not match the training set"):
                data = data.with_features(self.feature_names)
        self.check(name, data.inputs)
        return data

    def state(self) -> dict[str, Any]:
        """For a file; `from_state` reads it."""
        names = None if self.feature_names is None else list(self.feature_names)
        encoder = None if self.encoder is None else self.encoder.state()
        packing = None if self.packing is None else self.packing.state()
        parts = {"feature_names": names, "encoder": encoder, "packing": packing}
        return {"input_shape": list(self.shape), "unit": self.unit, **parts}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> InputForm:
        names = state.get("feature_names")  # files of an earlier version have neither names nor scale
        encoder = None
        if state.get("encoder") is not None:
            from noiseproof.data.table import TableEncoder

            encoder = TableEncoder.from_state(state["encoder"])
        packing = None if state.get("packing") is None else Packing.from_state(state["packing"])
        names = None if names is None else tuple(names)
        return cls(tuple(state["input_shape"]), state.get("unit"), names, encoder, packing)


def images_in(inputs: Any) -> list[Any] | None:
    """Paths of image files, or images of Pillow's, one or several, as a list; None for anything else."""
    given = inputs if isinstance(inputs, list | tuple) else [inputs]
    if not given or not all(isinstance(one, str | os.PathLike) or hasattr(one, "getbands") for one in given):
        return None
    pictures = [Path(one) if isinstance(one, str | os.PathLike) else one for one in given]
    for one in pictures:
        if isinstance(one, Path) and one.is_dir():
            raise InputError(f"{one} is a folder; pass the images in it: list(Path({str(one)!r}).rglob('*.jpg'))")
    return pictures


def _picture_name(picture: Any) -> str:
    return str(picture) if isinstance(picture, Path) else "the image"


def colour_range(inputs: Inputs) -> tuple[float, float]:
    """The smallest and the largest colour of images (n, C, H, W), bytes as 0 and 1; of a source, among 512 of them."""
    if inputs.dtype == torch.uint8:
        return 0.0, 1.0
    images = inputs if isinstance(inputs, Tensor) else inputs.take(torch.arange(min(inputs.shape[0], 512)))
    low, high = images.aminmax()
    return low.item(), high.item()


def _remedy(shape: tuple[int, ...], wanted: tuple[int, ...]) -> str:
    if len(shape) != 3 or len(wanted) != 3:
        return "give it the same features"
    return "convert both to grey or to colour" if shape[1:] == wanted[1:] else "bring both to one size"

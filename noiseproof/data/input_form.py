"""What the raw inputs of a network look like: what it must be given again, after training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from noiseproof.data.input_checks import as_array, columns_of, parse_inputs, stack_columns
from noiseproof.data.labeled import LabeledData
from noiseproof.data.sources import Inputs, InputSource
from noiseproof.errors import InputError, naming

_NEAR, _FAR = 2.0, 16.0  # the largest colour of floats in about 0..1; and one that is on another scale beyond doubt


@dataclass(frozen=True)
class InputForm:
    """The form of a data set's inputs.

    Attributes:
        shape: of one input, (C, H, W) or (d,).
        unit: whether images are bytes, which are scaled to 0..1, or floats of about that range; other floats are on a
            scale of their own. None: unknown.
        feature_names: of a table's columns, in order.
    """

    shape: tuple[int, ...]
    unit: bool | None = True
    feature_names: tuple[str, ...] | None = None

    @classmethod
    def of(cls, data: LabeledData) -> InputForm:
        return cls(data.input_shape, not data.is_image or colour_range(data.inputs)[1] <= _NEAR, data.feature_names)

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
        columns = columns_of(inputs)
        if columns is not None:
            inputs = stack_columns(columns, self.feature_names or tuple(columns))
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

    def match(self, name: str, data: LabeledData) -> LabeledData:
        """The data in this form: features by name, and in order.

        Raises:
            InputError: it lacks a feature, or is of another form.
        """
        if self.feature_names is not None:
            with naming(f"{name} does not match the training set"):
                data = data.with_features(self.feature_names)
        self.check(name, data.inputs)
        return data

    def state(self) -> dict[str, Any]:
        """For a file; `from_state` reads it."""
        names = None if self.feature_names is None else list(self.feature_names)
        return {"input_shape": list(self.shape), "unit": self.unit, "feature_names": names}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> InputForm:
        names = state.get("feature_names")  # files of an earlier version have neither names nor scale
        return cls(tuple(state["input_shape"]), state.get("unit"), None if names is None else tuple(names))


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
    return "convert both to grey or to colour" if shape[1:] == wanted[1:] else "bring both to one size (--image-size)"

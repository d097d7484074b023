"""What is inside of an exported file: normalisation, the networks and their mean; and how it describes itself."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from noiseproof.data.input_form import InputForm
from noiseproof.data.packing import MASK, Packing
from noiseproof.models.adapters import logits_of
from noiseproof.runs.trained import Features, Predictor

Metadata = dict[str, str]


class Deployed(nn.Module):
    """Raw inputs to logits, probabilities or features: normalisation, the networks, and their mean."""

    scale: Tensor
    shift: Tensor

    def __init__(self, trained: Predictor | Features, softmax: bool, dtype: torch.dtype) -> None:
        super().__init__()
        self.form, self.softmax, self.dtype = trained.form, softmax, dtype
        self.normalized = trained.form.packing is None
        self.is_features = isinstance(trained, Features)
        self.networks = nn.ModuleList([trained.backbone] if isinstance(trained, Features) else trained.models)
        each = (-1, *[1] * (len(trained.form.shape) - 1))
        unit = 255.0 if dtype == torch.uint8 else 1.0
        self.register_buffer("scale", (1 / (trained.normalize.std * unit)).view(each))
        self.register_buffer("shift", (-trained.normalize.mean / trained.normalize.std).view(each))

    def forward(self, *tensors: Tensor) -> Tensor:
        given = [tensors[0].to(torch.float32) * self.scale + self.shift] if self.normalized else list(tensors)
        answers = [self._ask(network, given) for network in self.networks]
        if self.is_features or (len(answers) == 1 and not self.softmax):
            return answers[0]
        probability = torch.stack([one.softmax(dim=1) for one in answers]).mean(dim=0)  # (B, K)
        return probability if self.softmax else probability.log()

    def _ask(self, network: nn.Module, given: list[Tensor]) -> Tensor:
        if self.is_features:
            return network.features(*given)  # type: ignore[operator]
        # `forward` without the hooks of models/adapters.py, which unpack rows: here the tensors come by themselves
        names = self.names
        return logits_of(
            network.forward(**dict(zip(names, given, strict=True))) if names[0] else network.forward(*given)
        )

    @property
    def names(self) -> list[str]:
        """Of the inputs, in order; "" of one that a network takes by position."""
        return [""] if self.form.packing is None else [part.name for part in self.form.packing.parts]

    @property
    def output(self) -> str:
        return "features" if self.is_features else "probabilities" if self.softmax else "logits"

    def rows(self, size: int) -> Tensor:
        """Inputs to try it with (size, …), as rows of a data set."""
        generator = torch.Generator().manual_seed(0)
        if self.dtype == torch.uint8:
            return torch.randint(0, 256, (size, *self.form.shape), generator=generator, dtype=torch.uint8)
        if self.form.packing is not None:
            return _packed(self.form.packing, size, generator)
        noise = torch.randn(size, *self.form.shape, generator=generator)
        return (noise - self.shift.cpu()) / self.scale.cpu()

    def tensors(self, rows: Tensor) -> list[Tensor]:
        """Rows as the inputs of `forward`."""
        given = rows if self.form.packing is None else self.form.packing.unpack(rows)
        return [given] if isinstance(given, Tensor) else [given[name] for name in self.names]

    def examples(self, size: int) -> list[Tensor]:
        return [tensor.to(self.scale.device) for tensor in self.tensors(self.rows(size))]

    def dimensions(self) -> list[dict[int, Any]]:
        """The free dimensions of the inputs: the batch; the length of sequences with a mask, up to the longest."""
        batch = torch.export.Dim("batch", min=1)
        parts = () if self.form.packing is None else self.form.packing.parts
        longest = next((part.shape for part in parts if part.name == MASK and part.shape[0] > 1), None)
        length = None if longest is None else torch.export.Dim("length", min=1, max=longest[0])
        free: list[dict[int, Any]] = [{0: batch} for _ in self.names]
        for place, part in enumerate(parts):
            if length is not None and part.sequence and part.shape == longest:
                free[place][1] = length
        return free

    def describe(self, trained: Predictor | Features, beside: Path | None) -> Metadata:
        """What stands in the file: what goes in and what comes out."""
        from noiseproof import __version__

        dims = self.dimensions()
        inputs = [
            {
                "name": name or "inputs",
                "dtype": str(tensor.dtype).removeprefix("torch."),
                "shape": [dims[place][d].__name__ if d in dims[place] else size for d, size in enumerate(tensor.shape)],
            }
            for place, (name, tensor) in enumerate(zip(self.names, self.tensors(self.rows(2)), strict=True))
        ]
        told: dict[str, Any] = {
            "noiseproof": __version__,
            "architecture": trained.architecture,
            "inputs": inputs,
            "holds": _holds(trained.form, self.dtype, beside),
            "output": self.output,
            "class_names": list(trained.class_names) if isinstance(trained, Predictor) else None,
            "feature_names": None if beside is not None else trained.form.feature_names,
            "encoder": None if beside is None else beside.name,
            "tokenizer": None if trained.form.packing is None else trained.form.packing.tokenizer,
        }
        return {
            key: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            for key, value in told.items()
            if value is not None
        }


def _holds(form: InputForm, dtype: torch.dtype, beside: Path | None) -> str:
    """What the inputs are, in words."""
    if form.packing is not None:
        return "tokens or tensors, as the training set had them"
    if len(form.shape) == 3:
        colours = {1: "grey", 3: "red, green, blue"}.get(form.shape[0], f"{form.shape[0]} channels")
        scale = "0..255" if dtype == torch.uint8 else "on the training set's scale" if form.unit is False else "0..1"
        return f"images, {colours}, {scale}"
    return "features" if beside is None else f"features that {beside.name} makes of the columns"


def _packed(packing: Packing, size: int, generator: torch.Generator) -> Tensor:
    """Rows of tokens 0 and 1, and of random numbers; the last example is half as long, where there is a mask."""
    rows = torch.randn(size, packing.width, generator=generator)
    at = 0
    for part in packing.parts:
        width = math.prod(part.shape)
        piece = rows[:, at : at + width]
        if part.whole:
            piece.copy_((piece > 0).float())
        if part.name == MASK:
            piece.fill_(1)
            piece[size - 1 :, (width + 1) // 2 :] = 0
        at += width
    return rows

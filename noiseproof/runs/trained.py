"""Trained networks that take raw inputs: what a run leaves behind to be used.

`Predictor` gives class probabilities, `Features` what lies below the head; `runs/loading.py` reads both from a folder.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from noiseproof.data import LabeledData
from noiseproof.data.augment import Normalize
from noiseproof.data.input_form import InputForm
from noiseproof.data.sources import Inputs, take
from noiseproof.errors import InputError
from noiseproof.models import Backbone
from noiseproof.models.inference import block_size, eval_mode, probabilities
from noiseproof.runs import checkpoint

if TYPE_CHECKING:
    from noiseproof.runs.export import Exported


class _Trained:
    """What both know: the normalisation of inputs, what a raw one looks like, and the network's name."""

    file: ClassVar[str]  # in a run's folder
    normalize: Normalize
    form: InputForm
    architecture: str | None

    @property
    def device(self) -> torch.device:
        return self.normalize.mean.device

    def _ask(
        self,
        network: nn.Module,
        ask: Callable[[Tensor], Tensor],
        width: int,
        inputs: Inputs,
        rows: Tensor,
        progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> Tensor:
        """What `ask` says (m, width) of the `rows` (m,) of raw inputs, in blocks; on the CPU."""
        answer, done = torch.empty(len(rows), width), 0
        with eval_mode(network), torch.no_grad():
            for at in torch.arange(len(rows)).split(block_size(self.form.shape)):
                answer[at] = ask(self.normalize(take(inputs, rows[at]).to(self.device))).float().cpu()
                done += len(at)
                progress(done, len(rows))
        return answer

    def export(self, path: str | Path, **options: Any) -> Exported:
        """Write it as .onnx, .pt2 or .safetensors, with its normalisation; options as of `nf.export`."""
        from noiseproof.runs.export import export

        return export(self, path, **options)  # type: ignore[arg-type]

    def _save(self, path: Path, **state: Any) -> None:
        """Write one safetensors file, atomically."""
        rest = {"normalize": self.normalize.state_dict(), **self.form.state(), "architecture": self.architecture}
        checkpoint.save(path, state | rest)


@dataclass(repr=False, eq=False)
class Predictor(_Trained):
    """Models, the normalisation of their inputs, and the names of the classes."""

    file = "model.safetensors"

    models: nn.ModuleList  # one or more, from normalised inputs to logits; their probabilities are averaged
    normalize: Normalize  # raw inputs -> what the networks take
    class_names: tuple[str, ...]  # K
    form: InputForm  # what a raw input looks like
    architecture: str | None = None  # the name the networks were built by, if they were

    def predict_proba(
        self, inputs: Any, *, progress: Callable[[int, int], None] = lambda done, total: None
    ) -> np.ndarray:
        """Class probabilities (n, K) of raw inputs (n, …), of the kind the training set had.

        Of a DataFrame (pandas, polars), an Arrow table, a dict of columns or a LabeledData, features are matched by
        name where the training set had names; of an array or a tensor they are taken by position. Of images, also the
        paths of files, or images of Pillow's, which are brought to the size of the training set's; of texts, a list.
        `progress` is called with (done, total).

        Raises:
            InputError: inputs of another form, or so far from those of the training set that the network overflows.
        """
        given = self.form.raw(inputs)
        rows = torch.arange(given.shape[0])
        ask = partial(probabilities, self.models)
        answer = self._ask(self.models, ask, len(self.class_names), given, rows, progress)
        if not (known := answer.isfinite().all(dim=1)).all():
            row = int(known.int().argmin())
            raise InputError(
                f"the network has no answer to the input at row {row} ({int((~known).sum())} such in all): its numbers "
                "are too far from those of the training set; check their unit, or leave the row out"
            )
        return answer.numpy()

    def predict(self, inputs: Any) -> np.ndarray:
        """The likeliest class (n,) of raw inputs, as a position in `class_names`."""
        return self.predict_proba(inputs).argmax(axis=1)

    def save(self, path: Path) -> None:
        """Write one safetensors file, atomically."""
        weights = [model.state_dict() for model in self.models]
        self._save(path, models=weights, class_names=list(self.class_names))


@dataclass(repr=False, eq=False)
class Features(_Trained):
    """A backbone with the normalisation of its inputs: raw inputs to features."""

    file = "backbone.safetensors"

    backbone: Backbone  # with `features` (B, …) -> (B, F); its head is not used
    normalize: Normalize  # raw inputs -> what the network takes
    form: InputForm  # what a raw input looks like
    architecture: str | None = None  # the name the network was built by, if it was

    def __repr__(self) -> str:
        return f"Features({self.architecture or type(self.backbone).__name__})"

    def __call__(self, data: LabeledData, rows: Tensor | None = None) -> Tensor:
        """Features (m, F) of the examples `rows` of a data set, or of all, on the CPU."""
        data = self.form.match("the data", data)
        rows = torch.arange(len(data)) if rows is None else rows
        return self._ask(self.backbone, self.backbone.features, self.backbone.num_features, data.inputs, rows)

    @property
    def weights(self) -> dict[str, Tensor]:
        """The weights and buffers of the backbone."""
        return without_head(self.backbone.state_dict())

    def save(self, path: Path) -> None:
        """Write one safetensors file, atomically."""
        self._save(path, backbone=self.weights)


def without_head(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """The weights and buffers of a network but those of its `head`."""
    return {key: value for key, value in weights.items() if not key.startswith("head.")}

"""Trained models that take raw inputs: what a run leaves behind to be used."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from noiseproof import models
from noiseproof.runs import checkpoint
from noiseproof.device import pick_device
from noiseproof.data.augment import Normalize
from noiseproof.data.input_checks import parse_inputs
from noiseproof.data.input_form import InputForm
from noiseproof.data.sources import InputSource, take
from noiseproof.errors import InputError
from noiseproof.models.inference import block_size, eval_mode, probabilities
from noiseproof.calls import split_call

FILE = "model.safetensors"


class Predictor:
    """Models, the normalisation of their inputs, and the names of the classes.

    Args:
        models: one or more networks from normalised inputs to logits; their probabilities are averaged.
        normalize: raw inputs -> what the networks take.
        class_names: K names.
        form: what a raw input looks like.
        architecture: the name the networks were built by, if they were.
    """

    def __init__(
        self,
        models: nn.ModuleList,
        normalize: Normalize,
        class_names: tuple[str, ...],
        form: InputForm,
        architecture: str | None = None,
    ) -> None:
        self.models, self.normalize, self.class_names = models, normalize, class_names
        self.form, self.architecture = form, architecture

    @property
    def device(self) -> torch.device:
        return self.normalize.mean.device

    @torch.inference_mode()
    def predict_proba(self, inputs: Tensor | np.ndarray | InputSource) -> np.ndarray:
        """Class probabilities (n, K) of raw inputs (n, …), of the kind the training set had."""
        shape = tuple(inputs.shape) if isinstance(inputs, InputSource) else tuple(np.shape(inputs))
        if shape[1:] != self.form.shape:
            raise InputError(
                f"inputs must be (n, {', '.join(map(str, self.form.shape))}), got {shape}; "
                "give them as the training set had them"
            )
        if shape[0] == 0:
            return np.zeros((0, len(self.class_names)), dtype=np.float32)
        given = inputs if isinstance(inputs, InputSource) else parse_inputs(inputs)
        self.form.check("the batch", given)
        result = np.empty((shape[0], len(self.class_names)), dtype=np.float32)
        with eval_mode(self.models):
            for rows in torch.arange(shape[0]).split(block_size(self.form.shape)):
                block = self.normalize(take(given, rows).to(self.device))
                result[rows.numpy()] = probabilities(self.models, block).float().cpu().numpy()
        return result

    def predict(self, inputs: Tensor | np.ndarray | InputSource) -> np.ndarray:
        """The likeliest class (n,) of raw inputs, as a position in `class_names`."""
        return self.predict_proba(inputs).argmax(axis=1)

    def save(self, path: Path) -> None:
        """Write one safetensors file, atomically."""
        state = {
            "models": [model.state_dict() for model in self.models],
            "normalize": self.normalize.state_dict(),
            "class_names": list(self.class_names),
            **self.form.state(),
            "architecture": self.architecture,
        }
        checkpoint.save(path, state)


def load_model(
    run: str | Path, model: str | Callable[[], nn.Module] | None = None, device: str | torch.device = "cpu"
) -> Predictor:
    """The trained model of a run folder (or of its model.safetensors), ready for raw inputs.

    Args:
        run: the folder `fit` wrote to.
        model: a function that makes the network (or its name), for runs of networks that have no name here.
        device: where to put it.

    Raises:
        InputError: there is none, or it needs `model`.
    """
    path = Path(run) / FILE if Path(run).is_dir() else Path(run)
    if not path.is_file():
        raise InputError(f"there is no {path}; pass the folder of a finished run")
    state = checkpoint.load(path)
    if "class_names" not in state:
        raise InputError(f"{path} holds no trained model; pass the folder of a finished run")
    names, form, architecture = state["class_names"], InputForm.from_state(state), state["architecture"]
    if model is None and architecture is None:
        raise InputError(f"{path} holds weights of a network that has no name here; pass model=, a function to make it")
    make = architecture if model is None else model
    if isinstance(make, nn.Module) or not (isinstance(make, str) or callable(make)):
        raise InputError(f"model must be a function that makes the network, or a name, got {type(make).__name__}")
    built: list[nn.Module]
    if isinstance(make, str):
        name, options = split_call(make, kind="model")
        built = [models.build(name, form.shape, len(names), **options) for _ in state["models"]]
    else:
        built = [make() for _ in state["models"]]
        if not all(isinstance(one, nn.Module) for one in built):
            raise InputError(f"model must make a network, got {type(built[0]).__name__}")
    for network, weights in zip(built, state["models"], strict=True):
        try:
            network.load_state_dict(weights)
        except RuntimeError as error:
            reason = " ".join(str(error).split())[:200]
            raise InputError(f"{path} does not fit the network: {reason}; pass the one it was trained with") from error
    normalize = Normalize(state["normalize"]["mean"], state["normalize"]["std"])
    place = pick_device(device)
    networks = nn.ModuleList(built).to(place).eval()
    return Predictor(networks, normalize.to(place), tuple(names), form, architecture)

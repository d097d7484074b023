"""Trained models that take raw inputs: what a run leaves behind to be used."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from noiseproof import checkpoint, models
from noiseproof.data.augment import Normalize
from noiseproof.data.checks import parse_inputs
from noiseproof.errors import InputError
from noiseproof.evaluate import block_size, eval_mode, probabilities

FILE = "model.safetensors"


class Predictor:
    """Models, the normalisation of their inputs, and the names of the classes.

    Args:
        models: one or more networks from normalised inputs to logits; their probabilities are averaged.
        normalize: raw inputs -> what the networks take.
        class_names: K names.
        input_shape: the shape of one raw input.
        architecture: the name the networks were built by, if they were.
    """

    def __init__(
        self,
        models: nn.ModuleList,
        normalize: Normalize,
        class_names: tuple[str, ...],
        input_shape: tuple[int, ...],
        architecture: str | None = None,
    ) -> None:
        self.models, self.normalize, self.class_names = models, normalize, class_names
        self.input_shape, self.architecture = input_shape, architecture

    @property
    def device(self) -> torch.device:
        return self.normalize.mean.device

    @torch.inference_mode()
    def predict_proba(self, inputs: Tensor | np.ndarray) -> np.ndarray:
        """Class probabilities (n, K) of raw inputs (n, …), of the kind the training set had."""
        shape = tuple(np.shape(inputs))
        if shape[1:] != self.input_shape:
            raise InputError(
                f"inputs must be (n, {', '.join(map(str, self.input_shape))}), got {shape}; "
                "give them as the training set had them"
            )
        if shape[0] == 0:
            return np.zeros((0, len(self.class_names)), dtype=np.float32)
        given = parse_inputs(inputs)
        blocks = []
        with eval_mode(self.models):
            for block in given.split(block_size(self.input_shape)):
                blocks.append(probabilities(self.models, self.normalize(block.to(self.device))).float().cpu())
        return torch.cat(blocks).numpy()

    def predict(self, inputs: Tensor | np.ndarray) -> np.ndarray:
        """The likeliest class (n,) of raw inputs, as a position in `class_names`."""
        return self.predict_proba(inputs).argmax(axis=1)

    def save(self, path: Path) -> None:
        """Write one safetensors file, atomically."""
        state = {
            "models": [model.state_dict() for model in self.models],
            "normalize": self.normalize.state_dict(),
            "class_names": list(self.class_names),
            "input_shape": list(self.input_shape),
            "architecture": self.architecture,
        }
        checkpoint.save(path, state)


def load_model(
    run: str | Path, model: Callable[[], nn.Module] | None = None, device: str | torch.device = "cpu"
) -> Predictor:
    """The trained model of a run folder (or of its model.safetensors), ready for raw inputs.

    Args:
        run: the folder `fit` wrote to.
        model: a function that makes the network, for runs of networks that have no name here.

    Raises:
        InputError: there is none, or it needs `model`.
    """
    path = Path(run) / FILE if Path(run).is_dir() else Path(run)
    if not path.is_file():
        raise InputError(f"there is no {path}; pass the folder of a finished run")
    state = checkpoint.load(path)
    names, shape, architecture = state["class_names"], tuple(state["input_shape"]), state["architecture"]
    if model is None and architecture is None:
        raise InputError(f"{path} holds weights of a network that has no name here; pass model=, a function to make it")
    built = [model() if model is not None else models.build(architecture, shape, len(names)) for _ in state["models"]]
    for network, weights in zip(built, state["models"], strict=True):
        try:
            network.load_state_dict(weights)
        except RuntimeError as error:
            reason = " ".join(str(error).split())[:200]
            raise InputError(f"{path} does not fit the network: {reason}; pass the one it was trained with") from error
    normalize = Normalize(state["normalize"]["mean"], state["normalize"]["std"])
    networks = nn.ModuleList(built).to(device)
    return Predictor(networks, normalize.to(device), tuple(names), shape, architecture)

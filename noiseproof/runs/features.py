"""A trained backbone by itself: raw inputs to features, without a head.

`Features` applies one; `load_backbone` reads it from a run's folder, of `pretrain` or of `fit`; `start_from` copies it
into networks that `fit` is about to train; `export` writes its weights under the names torchvision and timm use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from noiseproof import files, models
from noiseproof.runs import checkpoint
from noiseproof.device import pick_device
from noiseproof.data import LabeledData
from noiseproof.data.augment import Normalize
from noiseproof.data.input_form import InputForm
from noiseproof.errors import InputError
from noiseproof.models.inference import block_size, eval_mode
from noiseproof.models import Backbone
from noiseproof.runs.predictor import FILE as CLASSIFIER
from noiseproof.calls import split_call

FILE = "backbone.safetensors"
_HEAD = "head."
_OTHERS_HEAD = "fc."  # torchvision's and timm's


def without_head(network: nn.Module) -> dict[str, Tensor]:
    """The weights and buffers of a network but those of its `head`."""
    return {key: value for key, value in network.state_dict().items() if not key.startswith(_HEAD)}


class Features:
    """A backbone with the normalisation of its inputs: raw inputs to features.

    Args:
        backbone: a network with `features` (B, …) -> (B, F); its head is not used.
        normalize: raw inputs -> what the network takes.
        form: what a raw input looks like.
        architecture: the name the network was built by, if it was.
    """

    def __init__(
        self, backbone: Backbone, normalize: Normalize, form: InputForm, architecture: str | None = None
    ) -> None:
        self.backbone, self.normalize = backbone, normalize
        self.form, self.architecture = form, architecture

    def __repr__(self) -> str:
        return f"Features({self.architecture or type(self.backbone).__name__})"

    def __call__(self, data: LabeledData, rows: Tensor | None = None) -> Tensor:
        """Features (m, F) of the examples `rows` of a data set, or of all, on the CPU."""
        data = self.form.match("the data", data)
        rows = torch.arange(len(data)) if rows is None else rows
        device = self.normalize.mean.device
        features = torch.empty(len(rows), self.backbone.num_features)
        with eval_mode(self.backbone), torch.no_grad():
            for at in torch.arange(len(rows)).split(block_size(self.form.shape)):
                block = self.normalize(data.take(rows[at]).to(device))
                features[at] = self.backbone.features(block).float().cpu()
        return features

    def save(self, path: Path) -> None:
        """Write one safetensors file, atomically."""
        state = {
            "backbone": without_head(self.backbone),
            "normalize": self.normalize.state_dict(),
            **self.form.state(),
            "architecture": self.architecture,
        }
        checkpoint.save(path, state)


def read_weights(run: str | Path) -> tuple[dict[str, Tensor], dict[str, Any], Path]:
    """The backbone's weights, and what else the file says, of a finished run of `pretrain` or `fit` (its first model).

    A plain safetensors file, as `export` writes it, will do for the weights.

    Raises:
        InputError: there is none.
    """
    folder = Path(run)
    choices = [folder / FILE, folder / CLASSIFIER] if folder.is_dir() else [folder]
    path = next((choice for choice in choices if choice.is_file()), None)
    if path is None:
        raise InputError(f"there is no {choices[0]}; pass the folder of a finished run of pretrain or fit")
    state = _plain(path) or _saved(path)
    models = state.get("models")
    weights = state.get("backbone") or (models[0] if isinstance(models, list) else None)
    if weights is None:
        raise InputError(f"{path} holds no backbone; pass the folder of a finished run of pretrain or fit")
    return {key: value for key, value in weights.items() if not key.startswith(_HEAD)}, state, path


def _plain(path: Path) -> dict[str, Any] | None:
    """The tensors of a safetensors file that is not of our making."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            if checkpoint.is_ours(file.metadata()):
                return None
            return {"backbone": {key: file.get_tensor(key) for key in file.keys()}}  # noqa: SIM118
    except (SafetensorError, OSError):
        return None


def _saved(path: Path) -> dict[str, Any]:
    """What a file of ours holds."""
    try:
        return checkpoint.load(path)
    except InputError as error:
        raise InputError(
            f"{path} holds no weights that can be read; pass the folder of a finished run of pretrain or fit, "
            "or a .safetensors file"
        ) from error


def load_backbone(
    run: str | Path, model: str | Callable[[], nn.Module] | None = None, device: str | torch.device = "cpu"
) -> Features:
    """The backbone of a run's folder, ready for raw inputs.

    Args:
        run: the folder `pretrain` or `fit` wrote to.
        model: a function that makes the network (or its name), for runs of networks that have no name here.
        device: where to put it.

    Raises:
        InputError: there is none, or it needs `model`.
    """
    weights, state, path = read_weights(run)
    if "input_shape" not in state:
        raise InputError(f"{path} holds weights alone; pass the folder of a finished run of pretrain or fit")
    form = InputForm.from_state(state)
    make = state["architecture"] if model is None else model
    if make is None:
        raise InputError(f"{path} holds weights of a network that has no name here; pass model=, a function to make it")
    backbone = _build(make, form.shape) if isinstance(make, str) else as_backbone(make())
    load_weights([backbone], weights, path)
    place = pick_device(device)
    normalize = Normalize(state["normalize"]["mean"], state["normalize"]["std"]).to(place)
    return Features(backbone.to(place).eval(), normalize, form, make if isinstance(make, str) else None)


def at_random(features: Features, seed: int = 0) -> Features:
    """The same network with fresh weights, to compare with.

    Raises:
        InputError: the network has no name here.
    """
    if features.architecture is None:
        raise InputError("the network has no name here to make it anew by; compare with one of your own")
    return untrained(features.architecture, features.normalize, features.form, seed)


def untrained(architecture: str, normalize: Normalize, form: InputForm, seed: int = 0) -> Features:
    """A network by name, with fresh weights."""
    device = normalize.mean.device
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        network = _build(architecture, form.shape)
    return Features(network.to(device).eval(), normalize, form, architecture)


def _build(architecture: str, input_shape: tuple[int, ...]) -> Backbone:
    """A network by name, with fresh weights and a head that nobody needs."""
    name, options = split_call(architecture, kind="model")
    return models.build(name, input_shape, 2, **options)


def as_backbone(network: nn.Module) -> Backbone:
    """A network that can give its features.

    Raises:
        InputError: it cannot.
    """
    if not isinstance(network, Backbone):
        raise InputError(
            f"{type(network).__name__} has no features to pre-train; derive it from noiseproof.models.Backbone: "
            "`features`, `num_features` and `head`"
        )
    return network


def load_weights(
    networks: Iterable[nn.Module], weights: dict[str, Tensor], source: Path | Features, architecture: str | None = None
) -> None:
    """Copy a backbone's weights into networks, whose heads stay as they are.

    Raises:
        InputError: the weights are of another network.
    """
    for network in networks:
        own = without_head(network)
        wrong = [key for key in own if key not in weights or weights[key].shape != own[key].shape]
        extra = [key for key in weights if key not in own]
        wrong += [key for key in extra if not key.startswith(_OTHERS_HEAD)]
        if wrong:
            raise InputError(
                f"{source} does not fit the network {type(network).__name__} (at {wrong[0]}); "
                f"choose the model it was trained with{'' if architecture is None else f', {architecture}'}"
            )
        network.load_state_dict({key: weights[key] for key in own}, strict=False)


def start_from(networks: Iterable[nn.Module], source: str | Path | Features) -> None:
    """Let networks begin with a backbone, or with that of a run's folder, their heads fresh.

    Raises:
        InputError: there is none, or it is of another network.
    """
    if isinstance(source, Features):
        load_weights(networks, without_head(source.backbone), source, source.architecture)
    else:
        weights, state, path = read_weights(source)
        load_weights(networks, weights, path, state.get("architecture"))


def export(features: Features, path: str | Path) -> None:
    """Write the backbone's weights as a plain safetensors file, under torchvision's and timm's names.

    Our residual networks carry those names already (conv1, bn1, layer1.0.conv1, …); what is left out is the head, `fc`
    there. So in torchvision, and the same with `timm.create_model("resnet50")`:

        weights = safetensors.torch.load_file(path)
        model = torchvision.models.resnet50(); model.load_state_dict(weights, strict=False)   # misses fc.* alone

    A network built for small images has a 3×3 first convolution and no pooling: give torchvision's the same, or build
    with model "resnet50(stem='imagenet')". Networks that torchvision does not have keep their own names.
    """
    from safetensors.torch import save_file

    weights = {key: value.detach().cpu().contiguous().clone() for key, value in without_head(features.backbone).items()}
    files.write_atomically(Path(path), lambda temporary: save_file(weights, temporary, metadata={"format": "pt"}))

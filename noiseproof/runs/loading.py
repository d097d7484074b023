"""The one loader of trained networks: from a run's folder, of `fit` or of `pretrain`, to what takes raw inputs.

`load_model` gives a run's classifier, `load_backbone` its features without a head; `start_from` copies a backbone into
networks that `fit` is about to train.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from noiseproof import checks, models
from noiseproof.data.augment import Normalize
from noiseproof.data.input_form import InputForm
from noiseproof.device import pick_device
from noiseproof.errors import InputError, reason
from noiseproof.models import Backbone
from noiseproof.models.adapters import adapt
from noiseproof.runs import checkpoint, structure
from noiseproof.runs.trained import Features, Predictor, without_head

Maker = str | Callable[[], nn.Module]  # a network's name, or a function that makes it
Weights = dict[str, Tensor]  # and buffers, by name

_FINISHED = "pass the folder of a finished run"
_EITHER = f"{_FINISHED} of pretrain or fit"
_OTHERS_HEAD = "fc."  # torchvision's and timm's
_WEIGHTS = {...: Tensor}
# The structure of a file (runs/structure.py) beside its weights; those of an earlier version lack some.
_EARLIER: dict[str, Any] = {"unit": None, "feature_names": None, "encoder": None, "packing": None}
_NUMBER = {"kind": str, "name": str, "median": float, "mean": float, "scale": float, "missing": bool}
_TERMS = {"analyzer": str, "terms": [str, ...], "idf": [float, ...]}
_ENCODERS = (
    _NUMBER,
    {"kind": str, "name": str, "values": [str, ...], "missing": bool, "others": bool},
    {
        "kind": str,
        "name": str,
        "days": {key: like for key, like in _NUMBER.items() if key != "kind"},
        "periods": [str, ...],
    },
    {"kind": str, "name": str, "words": _TERMS, "pieces": _TERMS},
)
_PART = {"name": str, "shape": [range(1, 2**31), ...], "whole": bool, "sequence": bool}
_FILE = {
    "unit": bool | None, "feature_names": (None, [str, ...]), "input_shape": [range(1, 2**31), ...],
    "encoder": (None, [_ENCODERS, ...]),
    "packing": (None, {"parts": [_PART, ...], "tokenizer": str | None}),
    "normalize": {"mean": Tensor, "std": Tensor}, "architecture": str | None,
}  # fmt: skip


def load_model(run: str | Path, model: Maker | None = None, device: str | torch.device = "cpu") -> Predictor:
    """The trained model of a run folder (or of its model.safetensors), ready for raw inputs.

    Args:
        run: the folder `fit` wrote to.
        model: a function that makes the network (or its name), for runs of networks that have no name here.
        device: where to put it.

    Raises:
        InputError: there is none, or it needs `model`.
    """
    path = _find(run, Predictor.file, remedy=_FINISHED)
    state = checkpoint.load(path)
    if "class_names" not in state or not state.get("models"):
        raise InputError(f"{path} holds no trained model; {_FINISHED}")
    state = _EARLIER | state
    structure.check(path, state, _FILE | {"models": [_WEIGHTS, ...], "class_names": [str, ...]})
    names = tuple(state["class_names"])
    networks, normalize, form, name = _restore(path, state, state["models"], model, device, len(names))
    return Predictor(networks, normalize, names, form, name)


def load_backbone(run: str | Path, model: Maker | None = None, device: str | torch.device = "cpu") -> Features:
    """The backbone of a folder that `pretrain` or `fit` wrote to, ready for raw inputs; arguments as of `load_model`.

    Raises:
        InputError: there is none, or it needs `model`.
    """
    weights, state, path = _read_backbone(run)
    if "input_shape" not in state:
        raise InputError(f"{path} holds weights alone; {_EITHER}")
    state = {key: value for key, value in (_EARLIER | state).items() if key in _FILE}
    structure.check(path, state, _FILE)
    networks, normalize, form, name = _restore(path, state, [weights], model, device)
    return Features(as_backbone(networks[0]), normalize, form, name)


def start_from(networks: Iterable[nn.Module], source: str | Path | Features) -> None:
    """Let networks begin with a backbone, their heads fresh: with that of a run's folder, or of a safetensors file.

    Raises:
        InputError: there is none, or it is of another network.
    """
    if isinstance(source, Features):
        weights, name = source.weights, source.architecture
    else:
        weights, state, source = _read_backbone(source)
        name = state.get("architecture")
    for network in networks:
        _fill(network, _with_own_head(network, weights), source, name)


def untrained(architecture: str | None, normalize: Normalize, form: InputForm, seed: int = 0) -> Features:
    """A network by name, with fresh weights, to compare with.

    Raises:
        InputError: it has no name here.
    """
    if architecture is None:
        raise InputError("the network has no name here to make it anew by; compare with one of your own")
    device = normalize.mean.device
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        backbone = as_backbone(_build(architecture, form))
    return Features(backbone.to(device).eval(), normalize, form, architecture)


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


def _find(run: str | Path, *names: str, remedy: str) -> Path:
    """The first of these files in a run's folder, or the file that is given."""
    checks.require(isinstance(run, str | Path), "run", run, "the path of a run's folder")
    choices = [Path(run) / name for name in names] if Path(run).is_dir() else [Path(run)]
    for choice in choices:
        if choice.is_file():
            return choice
    raise InputError(f"there is no {choices[0]}; {remedy}")


def _read_backbone(run: str | Path) -> tuple[Weights, dict[str, Any], Path]:
    """The weights below the head, of the first model of a run of `fit`; what else the file says; and the file."""
    path = _find(run, Features.file, Predictor.file, remedy=_EITHER)
    try:
        state = checkpoint.load(path, plain="backbone")
    except InputError as error:
        raise InputError(f"{path} holds no weights that can be read; {_EITHER}, or a .safetensors file") from error
    trained = state.get("models")
    weights = state.get("backbone") or (trained[0] if trained and isinstance(trained, list) else None)
    if weights is None:
        raise InputError(f"{path} holds no backbone; {_EITHER}")
    structure.check(path, [weights, state.get("architecture")], [_WEIGHTS, str | None])
    return without_head(weights), state, path


def _restore(
    path: Path,
    state: dict[str, Any],
    weights: list[Weights],
    model: Maker | None,
    device: str | torch.device,
    num_classes: int | None = None,
) -> tuple[nn.ModuleList, Normalize, InputForm, str | None]:
    """Networks with these weights, the normalisation and the form of their inputs, and their name; all that is shared.

    Without `num_classes` they are backbones, whose heads nobody needs.
    """
    make = state["architecture"] if model is None else model
    if make is None:
        raise InputError(f"{path} holds weights of a network that has no name here; pass model=, a function to make it")
    try:
        form = InputForm.from_state(state)
    except (KeyError, TypeError, ValueError) as error:
        raise structure.Damaged(path, "its encoder of columns is none") from error
    for what in (form.encoder, form.packing):
        if what is not None and (what.width,) != form.shape:
            raise structure.Damaged(path, f"{what.width} features for inputs of shape {form.shape}")
    if isinstance(make, str):
        _check_size(path, make, form, num_classes, weights)
    networks = [_build(make, form, num_classes or 2) for _ in weights]
    for network, own in zip(networks, weights, strict=True):
        _fill(network, own if num_classes else _with_own_head(as_backbone(network), own), path)
    place = pick_device(device)
    normalize = Normalize(state["normalize"]["mean"], state["normalize"]["std"]).to(place)
    if [len(normalize.mean)] != state["input_shape"][:1]:
        raise structure.Damaged(path, f"{len(normalize.mean)} means for inputs of shape {form.shape}")
    return nn.ModuleList(networks).to(place).eval(), normalize, form, make if isinstance(make, str) else None


def _check_size(path: Path, name: str, form: InputForm, num_classes: int | None, weights: list[Weights]) -> None:
    """Refuse to build what is larger than the file: a damaged name or shape may ask for more than any memory."""
    try:
        with torch.device("meta"):
            own = _build(name, form, num_classes or 2).state_dict()
    except (RuntimeError, OverflowError) as error:  # sizes that cannot even be counted
        raise structure.Damaged(path, f"{name:.60} cannot be built") from error
    size, held = _numbers(own), min(map(_numbers, weights), default=0)
    if size > (held if num_classes else 3 * held + 2):  # of a backbone, a head for two classes is not in the file
        raise InputError(
            f"{path} does not fit the network: {name:.60} has {size:,} numbers, the file {held:,}; "
            "choose the model it was trained with"
        )


def _numbers(weights: Weights) -> int:
    return sum(value.numel() for value in weights.values())


def _build(make: Maker, form: InputForm, num_classes: int = 2) -> nn.Module:
    """A network with fresh weights; of a backbone, with a head that nobody needs."""
    if isinstance(make, str):
        return models.from_text(make, form.shape, num_classes, form.packing, pretrained=False)
    if isinstance(make, nn.Module) or not callable(make):
        raise InputError(f"model must be a function that makes the network, or a name, got {type(make).__name__}")
    network = make()
    if not isinstance(network, nn.Module):
        raise InputError(f"model must make a network, got {type(network).__name__}")
    return adapt(network, form.packing)


def _with_own_head(network: nn.Module, weights: Weights) -> Weights:
    """A backbone's weights, and the network's own for its head; without the head of another library."""
    own = network.state_dict()
    head = {key: own[key] for key in own.keys() - without_head(own).keys()}
    return head | {key: value for key, value in weights.items() if key in own or not key.startswith(_OTHERS_HEAD)}


def _fill(network: nn.Module, weights: Weights, source: Path | Features, name: str | None = None) -> None:
    """Copy the weights into the network, which must be the one they are of."""
    try:
        network.load_state_dict(weights)
    except RuntimeError as error:
        remedy = f"choose the model it was trained with{'' if name is None else f', {name}'}"
        raise InputError(f"{source} does not fit the network: {reason(error)}; {remedy}") from error

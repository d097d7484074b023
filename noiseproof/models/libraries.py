"""Networks of timm and torchvision by name, where these are installed; nothing is downloaded unless asked for.

timm:convnext_atto                     fresh weights; --weights FILE fills them
torchvision:resnet18(pretrained=True)  the library's own weights, which it may download
"""

from __future__ import annotations

import importlib
from typing import Any

from torch import nn

from noiseproof.calls import split_call
from noiseproof.errors import InputError, reason, unknown
from noiseproof.models.adapters import adapt
from noiseproof.models.weights import fill

IMAGENET = ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])  # mean and deviation of each channel that their weights know
LIBRARIES = ("timm", "torchvision")


def build(library: str, call: str, input_shape: tuple[int, ...], num_classes: int, *, pretrained: bool) -> nn.Module:
    """A network of one of the libraries, with a head for so many classes; options of the call are the library's own.

    Args:
        call: its name there, with options.
        pretrained: whether the option of that name counts; else other weights will be filled in.

    Raises:
        InputError: the library cannot be imported, has no such network, or cannot make it.
    """
    name, parenthesis, rest = call.partition("(")
    options = split_call(f"model{parenthesis}{rest}", kind="model")[1]
    wanted = bool(options.pop("pretrained", False)) and pretrained
    if len(input_shape) != 3:
        raise InputError(f"model {library}:{name} takes images (C, H, W), got inputs of shape {input_shape}")
    make = {"timm": _timm, "torchvision": _torchvision}[library]
    try:
        network = make(name, input_shape, num_classes, wanted, options)
    except InputError:
        raise
    except Exception as error:  # whatever the library may raise of a name, an option or a download
        raise InputError(f"{library} cannot make {call!r} ({reason(error)}); see its list of models") from error
    return adapt(network)


def _timm(name: str, shape: tuple[int, ...], num_classes: int, pretrained: bool, options: dict[str, Any]) -> nn.Module:
    timm = _imported("timm")
    if not timm.is_model(name):
        raise unknown("model of timm", name, timm.list_models())
    network = timm.create_model(name, pretrained=pretrained, num_classes=num_classes, in_chans=shape[0], **options)
    told = getattr(network, "pretrained_cfg", {})
    if shape[0] == 3:
        network.normalization = (list(told.get("mean", IMAGENET[0])), list(told.get("std", IMAGENET[1])))
    return network


def _torchvision(
    name: str, shape: tuple[int, ...], num_classes: int, pretrained: bool, options: dict[str, Any]
) -> nn.Module:
    models = _imported("torchvision.models")
    if name not in models.list_models():
        raise unknown("model of torchvision", name, models.list_models())
    network = models.get_model(name, weights=None, num_classes=num_classes, **options)
    if pretrained:
        fill(network, models.get_model_weights(name).DEFAULT.get_state_dict(progress=False), f"torchvision's {name}")
    network.normalization = IMAGENET
    return network


def _imported(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except (ImportError, RuntimeError, AttributeError) as error:  # a build of torchvision for another torch
        library = name.partition(".")[0]
        raise InputError(
            f"{library} cannot be imported ({reason(error)}); pip install {library}, in a build for this torch, or use "
            "a network of ours: noiseproof models"
        ) from error

"""Models by name."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from numbers import Integral
from typing import Any, NamedTuple

import torch
from torch import nn

from noiseproof import checks
from noiseproof.calls import split_call
from noiseproof.data.packing import PREFIX, Packing
from noiseproof.device import check_memory
from noiseproof.errors import InputError, enough_memory, reason, shown, unknown
from noiseproof.models import libraries
from noiseproof.models.backbone import Backbone
from noiseproof.models.efficientnet import EfficientNetLite0
from noiseproof.models.inception import InceptionResNetV2
from noiseproof.models.libraries import LIBRARIES
from noiseproof.models.quick import QuickNet
from noiseproof.models.resnet import PreActResNet, basic, bottleneck, cifar_resnet, imagenet_resnet
from noiseproof.models.shallow import ShallowNet
from noiseproof.models.small import CNN3, MLP, Conv4, LeNet
from noiseproof.models.vgg import vgg8, vgg11, vgg19

_USUAL = 2**19  # values of an input, or classes, with which every network here fits into memory


@dataclass(frozen=True)
class Entry:
    """One model: how to make it, a line about it, and the smallest image side it takes (None: takes any shape)."""

    make: Callable[..., Backbone]
    about: str
    min_size: int | None

    @property
    def options(self) -> list[str]:
        """The keyword-only arguments of `make`."""
        parameters = inspect.signature(self.make).parameters.values()
        return [parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY]


ENTRIES: dict[str, Entry] = {
    "mlp": Entry(MLP, "dense layers on tables or flattened images", None),
    "shallow": Entry(ShallowNet, "one hidden layer, fixed ± output weights: the theory's network", None),
    "lenet": Entry(LeNet, "LeNet-5 with ReLU and max-pooling", 12),
    "conv4": Entry(Conv4, "two convolutions, two dense layers (Li et al. 2020 on MNIST)", 6),
    "cnn3": Entry(CNN3, "three convolutions with batch norm: CIFAR at small scale", 4),
    "quicknet": Entry(QuickNet, "six wide convolutions on whitened patches: cheap for photos of 32 pixels", 9),
    "resnet8": Entry(partial(cifar_resnet, 1), "CIFAR ResNet, 3 stages of 1 block", 1),
    "resnet20": Entry(partial(cifar_resnet, 3), "CIFAR ResNet, 3 stages of 3 blocks (Li et al. 2020)", 1),
    "resnet32": Entry(partial(cifar_resnet, 5), "CIFAR ResNet, 3 stages of 5 blocks: CRUST", 1),
    "resnet18": Entry(partial(imagenet_resnet, basic, (2, 2, 2, 2)), "ResNet-18; stem by image size", 1),
    "resnet34": Entry(
        partial(imagenet_resnet, basic, (3, 4, 6, 3)), "ResNet-34; stem by image size: ELR and SOP on CIFAR", 1
    ),
    "resnet50": Entry(
        partial(imagenet_resnet, bottleneck, (3, 4, 6, 3)), "ResNet-50; stem by image size: SANE, SOP on Clothing1M", 1
    ),
    "preact_resnet18": Entry(PreActResNet, "pre-activation ResNet-18; stem by image size: SOP+", 1),
    "vgg8": Entry(vgg8, "four groups of VGG-11, narrow: CIFAR at small scale", 16),
    "vgg11": Entry(vgg11, "VGG-11, one dense layer", 32),
    "vgg19": Entry(vgg19, "VGG-19, one dense layer (Wei et al. on CIFAR-100)", 32),
    "efficientnet_lite0": Entry(EfficientNetLite0, "EfficientNet-Lite0 for photos, with ImageNet weights if asked", 1),
    "inception_resnet_v2": Entry(InceptionResNetV2, "Inception-ResNet-v2, made for 299×299: WebVision", 75),
}


class Row(NamedTuple):
    """A line of `table()`."""

    name: str
    about: str
    parameters: int  # trainable, for 10 classes and 3×32×32 images (or the model's smallest, if larger)
    min_size: int | None  # smallest image side; None: takes tables and images of any size
    options: list[str]


def names() -> list[str]:
    """The names `build` knows, small networks first."""
    return list(ENTRIES)


def from_text(
    text: str,
    input_shape: tuple[int, ...],
    num_classes: int,
    packing: Packing | None = None,
    *,
    pretrained: bool = True,
) -> nn.Module:
    """A model by name, with options: `mlp(widths=[64])`; or of a library: `hf:PATH`, `timm:NAME`, `torchvision:NAME`.

    Args:
        packing: how what a model of transformers takes lies in a row.
        pretrained: whether weights of the model's own are asked for by its name, or others will be filled in.
    """
    if text.startswith(PREFIX):
        from noiseproof.models import huggingface

        return huggingface.build(text.removeprefix(PREFIX), num_classes, packing, pretrained=pretrained)
    library, colon, call = text.partition(":")
    if colon and library in LIBRARIES:
        return libraries.build(library, call, input_shape, num_classes, pretrained=pretrained)
    name, options = split_call(text, kind="model")
    if not pretrained:
        options.pop("pretrained", None)
    return build(name, input_shape, num_classes, **options)


def build(name: str, input_shape: tuple[int, ...], num_classes: int, **options: Any) -> Backbone:
    """Make a model by name, with fresh weights drawn from PyTorch's global generator (`torch.manual_seed`).

    Args:
        name: one of `names()`.
        input_shape: shape of one example: (C, H, W) for an image, (d,) for a row of a table.
        num_classes: K, at least 2.
        options: the model's own; `table()` lists them.

    Raises:
        InputError: an unknown name or option, fewer than two classes, or inputs the model cannot take.
    """
    checks.choice("model", name, ENTRIES)
    entry = ENTRIES[name]
    for option in options:
        if not entry.options:
            raise InputError(f"model {name!r} takes no options, got {option!r}; leave it out")
        if option not in entry.options:
            raise unknown(f"option of model {name!r}", option, entry.options)
    checks.integer("num_classes", num_classes, 2, remedy="a classifier needs two classes to tell apart")
    sizes = isinstance(input_shape, Sequence) and all(isinstance(size, Integral) for size in input_shape)
    checks.require(sizes, "input_shape", input_shape, "the sizes of one example, (C, H, W) or (d,)")
    input_shape = tuple(int(size) for size in input_shape)
    _check_shape(name, entry, input_shape)
    try:
        with enough_memory():
            make = partial(entry.make, input_shape, num_classes, **options)
            if options or math.prod(input_shape) > _USUAL or num_classes > _USUAL:
                unfilled = {key: value for key, value in options.items() if key != "pretrained"}
                check_weights(f"model {name!r}", partial(entry.make, input_shape, num_classes, **unfilled))
            return make()
    except InputError:
        raise
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        given = ", ".join(f"{key}={shown(value)}" for key, value in options.items())
        raise InputError(
            f"model {name!r} cannot take {given} ({reason(error)}); `noiseproof models` lists its options"
        ) from error


def check_weights(what: str, make: Callable[[], nn.Module]) -> None:
    """The network that `make` makes must fit into memory: its weights are counted without drawing them.

    Raises:
        InputError: they do not, with their gradients, the momentum and the initial weights.
    """
    with torch.device("meta"):
        size = sum(parameter.nbytes for parameter in make().parameters())
    check_memory(what, 4 * size, "give it smaller layers, or smaller images")


def table() -> list[Row]:
    """One row per model, for a listing; parameters are counted on PyTorch's meta device, without drawing weights."""
    return [
        Row(name, entry.about, _num_parameters(name), entry.min_size, entry.options) for name, entry in ENTRIES.items()
    ]


@cache
def _num_parameters(name: str) -> int:
    side = max(32, ENTRIES[name].min_size or 0)
    with torch.device("meta"):
        model = build(name, (3, side, side), 10)
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)


def _check_shape(name: str, entry: Entry, input_shape: tuple[int, ...]) -> None:
    if not input_shape or min(input_shape) < 1:
        raise InputError(
            f"input_shape must be the positive sizes of one example, got {input_shape}; pass (C, H, W) or (d,)"
        )
    if entry.min_size is None:
        return
    if len(input_shape) != 3:
        grey = f"give grey images a channel: {(1, *input_shape)}"
        remedy = grey if len(input_shape) == 2 else "use model 'mlp' for other inputs"
        raise InputError(f"model {name!r} takes images (C, H, W), got input_shape={input_shape}; {remedy}")
    if min(input_shape[1:]) < entry.min_size:
        raise InputError(
            f"model {name!r} takes images of at least {entry.min_size}×{entry.min_size} pixels, "
            f"got {input_shape[1]}×{input_shape[2]}; enlarge the images or use a smaller model such as 'cnn3' or 'mlp'"
        )

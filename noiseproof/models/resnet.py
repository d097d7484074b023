"""Residual networks: the CIFAR family (8, 20, 32), the ImageNet family (18, 34, 50) and pre-activation 18.

Modules carry torchvision's names (conv1, bn1, layer1.0.conv1, layer1.0.downsample.0, ...) but for the head, called
`fc` there. Pre-trained ImageNet weights, as for Clothing1M in the SOP paper, therefore load with one renaming:

    model.load_state_dict({key.replace("fc.", "head."): value for key, value in weights.items()})

With fewer than 1,000 classes leave the two `fc.` entries out and pass `strict=False`.

Batch norm cannot train on a single value per channel: a batch of one whose last maps are 1×1 raises an error of
PyTorch's in training mode. Use larger batches, or drop a last batch of one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from torch import Tensor, nn
from torch.nn import functional as F

from noiseproof import checks
from noiseproof.errors import unknown
from noiseproof.models.backbone import Backbone, he_init

STEMS = ("auto", "small", "imagenet")
SHORTCUTS = ("padding", "projection")
Layer = tuple[int, int, int]  # of a block: outputs, kernel size and stride of a convolution
Layout = Callable[[int, int], list[Layer]]  # channels and stride of a block -> its layers
IMAGENET_STEM_FROM = 128  # pixels: smaller images would be 4×4 or less after a stem that divides by 4


def conv(inputs: int, outputs: int, size: int, stride: int = 1) -> nn.Conv2d:
    """A convolution without bias (a batch norm follows), padded to keep the size at stride 1."""
    return nn.Conv2d(inputs, outputs, size, stride=stride, padding=size // 2, bias=False)


class PadChannels(nn.Module):
    """The parameter-free shortcut, option A of He et al. 2016: skip every other pixel, pad new channels with zeros."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.extra = outputs - inputs
        self.stride = stride

    def forward(self, x: Tensor) -> Tensor:
        x = x[:, :, :: self.stride, :: self.stride]
        before = self.extra // 2
        return F.pad(x, (0, 0, 0, 0, before, self.extra - before))


def downsampler(inputs: int, outputs: int, stride: int, shortcut: str) -> nn.Module | None:
    """What a shortcut must do to match its block's output; None is the identity."""
    if stride == 1 and inputs == outputs:
        return None
    if shortcut == "padding":
        return PadChannels(inputs, outputs, stride)
    return nn.Sequential(conv(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))


class Block(nn.Module):
    """ReLU(shortcut(x) + path(x)); the path is convolutions, each with its batch norm, and ReLU between them.

    Args:
        inputs: channels of x.
        layers: outputs, kernel size and stride of each convolution.
        shortcut: as of `ResNet`.
    """

    def __init__(self, inputs: int, layers: Sequence[Layer], shortcut: str) -> None:
        super().__init__()
        self.depth = len(layers)
        channels = inputs
        for i, (outputs, size, stride) in enumerate(layers, start=1):
            self.add_module(f"conv{i}", conv(channels, outputs, size, stride))
            self.add_module(f"bn{i}", nn.BatchNorm2d(outputs))
            channels = outputs
        self.downsample = downsampler(inputs, channels, math.prod(stride for _, _, stride in layers), shortcut)

    def forward(self, x: Tensor) -> Tensor:
        skip = x if self.downsample is None else self.downsample(x)
        for i in range(1, self.depth + 1):
            x = getattr(self, f"bn{i}")(getattr(self, f"conv{i}")(F.relu(x) if i > 1 else x))
        return F.relu(x + skip)


def basic(channels: int, stride: int) -> list[Layer]:
    """Layers of a block of 18 or 34, and of the CIFAR family: two 3×3."""
    return [(channels, 3, stride), (channels, 3, 1)]


def bottleneck(channels: int, stride: int) -> list[Layer]:
    """1×1 down, 3×3, 1×1 up by 4. The 3×3 carries the stride (as in torchvision; He et al. 2016: the first 1×1)."""
    return [(channels, 1, 1), (channels, 3, stride), (4 * channels, 1, 1)]


def stem_layers(stem: str, input_shape: tuple[int, ...], outputs: int) -> tuple[nn.Conv2d, nn.Module]:
    """The first convolution and the pooling after its activation; "auto" goes by the image's shorter side."""
    checks.choice("stem", stem, STEMS)
    if stem == "imagenet" or (stem == "auto" and min(input_shape[1:]) >= IMAGENET_STEM_FROM):
        return conv(input_shape[0], outputs, 7, stride=2), nn.MaxPool2d(3, stride=2, padding=1)
    return conv(input_shape[0], outputs, 3), nn.Identity()


class ResNet(Backbone):
    """A stem, stages of residual blocks that halve the image and double the channels, a global average.

    He et al. 2016, "Deep Residual Learning for Image Recognition": Table 1 (18, 34, 50) and Section 4.2 (CIFAR).

    Differs from the paper: the stride of `bottleneck`; on small images the 18/34/50 family starts with a 3×3
    convolution and no pooling, as the ELR and SOP code does. Differs from that code: convolutions start from `he_init`
    as in the paper, not from PyTorch's default.

    Args:
        input_shape: (C, H, W).
        num_classes: K.
        block: `basic` or `bottleneck`.
        depths: blocks of each stage.
        widths: channels of each stage, before a bottleneck's expansion.
        stem: "small", "imagenet" or "auto" (by size).
        shortcut: "padding" (option A) or "projection" (option B) where a stage begins.
    """

    def __init__(
        self,
        input_shape: tuple[int, ...],
        num_classes: int,
        *,
        block: Layout,
        depths: Sequence[int],
        widths: Sequence[int] = (64, 128, 256, 512),
        stem: str = "auto",
        shortcut: str = "projection",
    ) -> None:
        super().__init__()
        checks.choice("shortcut", shortcut, SHORTCUTS)
        self.conv1, self.pool = stem_layers(stem, input_shape, widths[0])
        self.bn1 = nn.BatchNorm2d(widths[0])
        self.depth = len(depths)
        inputs = widths[0]
        for stage, (blocks, channels) in enumerate(zip(depths, widths, strict=True)):
            layer = nn.Sequential()
            for i in range(blocks):
                layers = block(channels, 2 if stage > 0 and i == 0 else 1)
                layer.append(Block(inputs, layers, shortcut))
                inputs = layers[-1][0]
            self.add_module(f"layer{stage + 1}", layer)
        self.num_features = inputs
        self.head = nn.Linear(inputs, num_classes)
        he_init(self)

    def features(self, x: Tensor) -> Tensor:
        x = self.pool(F.relu(self.bn1(self.conv1(x))))
        for stage in range(self.depth):
            x = self.get_submodule(f"layer{stage + 1}")(x)
        return x.mean(dim=(2, 3))  # (B, F)


class PreActBlock(nn.Module):
    """skip + conv3×3(ReLU(BN(conv3×3(a)))) with a = ReLU(BN(x)); skip is x, or a (projected where shapes change)."""

    def __init__(self, inputs: int, channels: int, stride: int, activated_skip: bool) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(inputs)
        self.conv1 = conv(inputs, channels, 3, stride)
        self.bn2 = nn.BatchNorm2d(channels)
        self.conv2 = conv(channels, channels, 3)
        self.activated_skip = activated_skip
        self.downsample = conv(inputs, channels, 1, stride) if stride != 1 or inputs != channels else None

    def forward(self, x: Tensor) -> Tensor:
        a = F.relu(self.bn1(x))
        skip = a if self.activated_skip else x
        if self.downsample is not None:
            skip = self.downsample(a)
        return self.conv2(F.relu(self.bn2(self.conv1(a)))) + skip


class PreActResNet(Backbone):
    """The pre-activation residual network with basic blocks, of widths 64, 128, 256, 512.

    `variant="he"` is He et al. 2016, "Identity Mappings in Deep Residual Networks": the first block activates before
    it splits, later identity shortcuts carry x itself, and an activation follows the last block.
    `variant="sop"` is what SOP's public code runs: an extra activation after the stem, identity
    shortcuts that carry the activated ReLU(BN(x)), and no activation after the last block. Use it to repeat SOP's
    numbers.

    Differs from the paper: nothing in "he" but the small images' stem. Differs from the authors' code ("sop"):
    convolutions start from `he_init`, not from PyTorch's default.
    """

    VARIANTS = ("he", "sop")

    def __init__(
        self,
        input_shape: tuple[int, ...],
        num_classes: int,
        depths: Sequence[int] = (2, 2, 2, 2),
        *,
        stem: str = "auto",
        variant: str = "he",
    ) -> None:
        super().__init__()
        if variant not in self.VARIANTS:
            raise unknown("variant", variant, self.VARIANTS)
        sop = variant == "sop"
        self.conv1, self.pool = stem_layers(stem, input_shape, 64)
        self.stem_norm = nn.Sequential(nn.BatchNorm2d(64), nn.ReLU()) if sop else nn.Identity()
        self.body = nn.Sequential()
        inputs = 64
        for stage, blocks in enumerate(depths):
            for i in range(blocks):
                first = stage == 0 and i == 0
                stride = 2 if stage > 0 and i == 0 else 1
                self.body.append(PreActBlock(inputs, 64 * 2**stage, stride, activated_skip=sop or first))
                inputs = 64 * 2**stage
        self.last_norm = nn.Identity() if sop else nn.Sequential(nn.BatchNorm2d(inputs), nn.ReLU())
        self.num_features = inputs
        self.head = nn.Linear(inputs, num_classes)
        he_init(self)

    def features(self, x: Tensor) -> Tensor:
        x = self.pool(self.stem_norm(self.conv1(x)))
        return self.last_norm(self.body(x)).mean(dim=(2, 3))  # (B, 512)


def cifar_resnet(blocks: int, input_shape: tuple[int, ...], num_classes: int, *, shortcut: str = "padding") -> ResNet:
    """The 6·blocks + 2 layers of He et al. 2016, Section 4.2."""
    depths, widths = (blocks,) * 3, (16, 32, 64)
    return ResNet(input_shape, num_classes, block=basic, depths=depths, widths=widths, stem="small", shortcut=shortcut)


def imagenet_resnet(
    block: Layout, depths: Sequence[int], input_shape: tuple[int, ...], num_classes: int, *, stem: str = "auto"
) -> ResNet:
    """The networks of He et al. 2016, Table 1: four stages, projection shortcuts."""
    return ResNet(input_shape, num_classes, block=block, depths=depths, stem=stem)

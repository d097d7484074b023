"""Residual networks: the CIFAR family (8, 20, 32), the ImageNet family (18, 34, 50) and pre-activation 18.

Modules carry torchvision's names (conv1, bn1, layer1.0.conv1, layer1.0.downsample.0, ...) but for the head, called
`fc` there. Pre-trained ImageNet weights, as for Clothing1M in the SOP paper, therefore load with one renaming:

    model.load_state_dict({key.replace("fc.", "head."): value for key, value in weights.items()})

With fewer than 1,000 classes leave the two `fc.` entries out and pass `strict=False`.

Batch norm cannot train on a single value per channel: a batch of one whose last maps are 1×1 raises an error of
PyTorch's in training mode. Use larger batches, or drop a last batch of one.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn
from torch.nn import functional as F

from noiseproof.errors import unknown
from noiseproof.models.backbone import Backbone, he_init

STEMS = ("auto", "small", "imagenet")
SHORTCUTS = ("padding", "projection")
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


class BasicBlock(nn.Module):
    """ReLU(shortcut(x) + BN(conv3×3(ReLU(BN(conv3×3(x))))))."""

    expansion = 1

    def __init__(self, inputs: int, channels: int, stride: int, shortcut: str) -> None:
        super().__init__()
        self.conv1 = conv(inputs, channels, 3, stride)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = conv(channels, channels, 3)
        self.bn2 = nn.BatchNorm2d(channels)
        self.downsample = downsampler(inputs, channels, stride, shortcut)

    def forward(self, x: Tensor) -> Tensor:
        skip = x if self.downsample is None else self.downsample(x)
        out = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(out)) + skip)


class Bottleneck(nn.Module):
    """1×1 down, 3×3, 1×1 up by 4. The 3×3 carries the stride (as in torchvision; He et al. 2016: the first 1×1)."""

    expansion = 4

    def __init__(self, inputs: int, channels: int, stride: int, shortcut: str) -> None:
        super().__init__()
        outputs = self.expansion * channels
        self.conv1 = conv(inputs, channels, 1)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = conv(channels, channels, 3, stride)
        self.bn2 = nn.BatchNorm2d(channels)
        self.conv3 = conv(channels, outputs, 1)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.downsample = downsampler(inputs, outputs, stride, shortcut)

    def forward(self, x: Tensor) -> Tensor:
        skip = x if self.downsample is None else self.downsample(x)
        out = F.relu(self.bn1(self.conv1(x)))
        out = F.relu(self.bn2(self.conv2(out)))
        return F.relu(self.bn3(self.conv3(out)) + skip)


def resolve_stem(stem: str, input_shape: tuple[int, ...]) -> str:
    """Turn "auto" into "imagenet" (conv 7×7 by 2, max-pooling by 2) or "small" (conv 3×3), by the shorter side."""
    if stem not in STEMS:
        raise unknown("stem", stem, STEMS)
    if stem == "auto":
        return "imagenet" if min(input_shape[1:]) >= IMAGENET_STEM_FROM else "small"
    return stem


def stem_layers(stem: str, inputs: int, outputs: int) -> tuple[nn.Conv2d, nn.Module]:
    """The first convolution and the pooling after its activation."""
    if stem == "imagenet":
        return conv(inputs, outputs, 7, stride=2), nn.MaxPool2d(3, stride=2, padding=1)
    return conv(inputs, outputs, 3), nn.Identity()


class ResNet(Backbone):
    """A stem, stages of residual blocks that halve the image and double the channels, a global average.

    He et al. 2016, "Deep Residual Learning for Image Recognition": Table 1 (18, 34, 50) and Section 4.2 (CIFAR).

    Differs from the paper: `Bottleneck`'s stride; on small images the 18/34/50 family starts with a 3×3 convolution
    and no pooling, as the ELR and SOP code does. Differs from that code: convolutions start from `he_init` as in
    the paper, not from PyTorch's default.

    Args:
        input_shape: (C, H, W).
        num_classes: K.
        block: BasicBlock or Bottleneck.
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
        block: type[BasicBlock] | type[Bottleneck],
        depths: Sequence[int],
        widths: Sequence[int] = (64, 128, 256, 512),
        stem: str = "auto",
        shortcut: str = "projection",
    ) -> None:
        super().__init__()
        if shortcut not in SHORTCUTS:
            raise unknown("shortcut", shortcut, SHORTCUTS)
        self.conv1, self.pool = stem_layers(resolve_stem(stem, input_shape), input_shape[0], widths[0])
        self.bn1 = nn.BatchNorm2d(widths[0])
        self.depth = len(depths)
        inputs = widths[0]
        for stage, (blocks, channels) in enumerate(zip(depths, widths, strict=True)):
            layer = nn.Sequential()
            for i in range(blocks):
                layer.append(block(inputs, channels, stride=2 if stage > 0 and i == 0 else 1, shortcut=shortcut))
                inputs = block.expansion * channels
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
        *,
        depths: Sequence[int],
        stem: str = "auto",
        variant: str = "he",
    ) -> None:
        super().__init__()
        if variant not in self.VARIANTS:
            raise unknown("variant", variant, self.VARIANTS)
        sop = variant == "sop"
        self.conv1, self.pool = stem_layers(resolve_stem(stem, input_shape), input_shape[0], 64)
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


def _cifar(input_shape: tuple[int, ...], num_classes: int, blocks: int, shortcut: str) -> ResNet:
    """The 6·blocks + 2 layers of He et al. 2016, Section 4.2."""
    return ResNet(
        input_shape,
        num_classes,
        block=BasicBlock,
        depths=(blocks,) * 3,
        widths=(16, 32, 64),
        stem="small",
        shortcut=shortcut,
    )


def resnet8(input_shape: tuple[int, ...], num_classes: int, *, shortcut: str = "padding") -> ResNet:
    """Three stages of one block."""
    return _cifar(input_shape, num_classes, 1, shortcut)


def resnet20(input_shape: tuple[int, ...], num_classes: int, *, shortcut: str = "padding") -> ResNet:
    """Three stages of three blocks: the network of Li et al. (2020) on CIFAR-10."""
    return _cifar(input_shape, num_classes, 3, shortcut)


def resnet32(input_shape: tuple[int, ...], num_classes: int, *, shortcut: str = "padding") -> ResNet:
    """Three stages of five blocks: CRUST's network on CIFAR."""
    return _cifar(input_shape, num_classes, 5, shortcut)


def resnet18(input_shape: tuple[int, ...], num_classes: int, *, stem: str = "auto") -> ResNet:
    """Basic blocks, two per stage."""
    return ResNet(input_shape, num_classes, block=BasicBlock, depths=(2, 2, 2, 2), stem=stem)


def resnet34(input_shape: tuple[int, ...], num_classes: int, *, stem: str = "auto") -> ResNet:
    """Basic blocks, 3-4-6-3: ELR's and SOP's network on CIFAR."""
    return ResNet(input_shape, num_classes, block=BasicBlock, depths=(3, 4, 6, 3), stem=stem)


def resnet50(input_shape: tuple[int, ...], num_classes: int, *, stem: str = "auto") -> ResNet:
    """Bottlenecks, 3-4-6-3: SANE's network, and SOP's on Clothing1M."""
    return ResNet(input_shape, num_classes, block=Bottleneck, depths=(3, 4, 6, 3), stem=stem)


def preact_resnet18(
    input_shape: tuple[int, ...], num_classes: int, *, stem: str = "auto", variant: str = "he"
) -> PreActResNet:
    """Pre-activation blocks, two per stage: SOP+'s network."""
    return PreActResNet(input_shape, num_classes, depths=(2, 2, 2, 2), stem=stem, variant=variant)

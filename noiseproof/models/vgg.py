"""VGG at CIFAR size: 3×3 convolutions in five groups, each halved by max-pooling, and a 512-d linear classifier."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from noiseproof.models.backbone import Backbone, he_init

WIDTHS = (64, 128, 256, 512, 512)


class VGG(Backbone):
    """Simonyan & Zisserman 2015, Table 1, with the three dense layers replaced by one, as is usual on CIFAR.

    Wei et al. (label noise and annealing, Appendix B) train "a VGG19" on CIFAR-100 and say no more. Whether with batch
    norm is open: they adapt the set-up of HaoChen et al. 2021, whose published commands say `--arch vgg19`, not which
    form that is. Pass `batch_norm=False` for the plain one.

    Differs from the paper: batch norm (default), one dense layer, a global average for images above 32×32.

    Args:
        input_shape: (C, H, W), at least 32×32.
        num_classes: K.
        depths: convolutions in each of the five groups.
        batch_norm: normalise before each ReLU. Convolutions keep their bias, as in torchvision's vgg*_bn.
    """

    def __init__(
        self, input_shape: tuple[int, ...], num_classes: int, *, depths: Sequence[int], batch_norm: bool
    ) -> None:
        super().__init__()
        self.body = nn.Sequential()
        inputs = input_shape[0]
        for convolutions, width in zip(depths, WIDTHS, strict=True):
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
        return self.body(x).mean(dim=(2, 3))  # (B, 512)


def vgg11(input_shape: tuple[int, ...], num_classes: int, *, batch_norm: bool = True) -> VGG:
    """Configuration A: 8 convolutions."""
    return VGG(input_shape, num_classes, depths=(1, 1, 2, 2, 2), batch_norm=batch_norm)


def vgg19(input_shape: tuple[int, ...], num_classes: int, *, batch_norm: bool = True) -> VGG:
    """Configuration E: 16 convolutions."""
    return VGG(input_shape, num_classes, depths=(2, 2, 4, 4, 4), batch_norm=batch_norm)

"""Networks small enough for a laptop: mlp, conv4, lenet and cnn3. All keep PyTorch's default initial weights."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor, nn

from noiseproof import checks
from noiseproof.models.backbone import Backbone


class MLP(Backbone):
    """Fully connected layers over a flattened input, each: linear, (batch norm), ReLU, (dropout).

    Args:
        input_shape: shape of one example, of any number of dimensions.
        num_classes: K.
        widths: units of each hidden layer; () is multinomial logistic regression.
        batch_norm: normalise before each ReLU.
        dropout: probability of dropping a hidden unit.
    """

    def __init__(
        self,
        input_shape: tuple[int, ...],
        num_classes: int,
        *,
        widths: Sequence[int] = (256, 256),
        batch_norm: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        checks.number("dropout", dropout, 0, 1, ends="[)")
        checks.boolean("batch_norm", batch_norm)
        layers: list[nn.Module] = [nn.Flatten()]
        size = math.prod(input_shape)
        for width in widths:
            layers.append(nn.Linear(size, checks.integer("widths", width, 1)))
            if batch_norm:
                layers.append(nn.BatchNorm1d(width))
            layers.append(nn.ReLU())
            if dropout > 0:
                layers.append(nn.Dropout(dropout))
            size = width
        self.body = nn.Sequential(*layers)
        self.num_features = size
        self.head = nn.Linear(size, num_classes)

    def features(self, x: Tensor) -> Tensor:
        return self.body(x)  # (B, widths[-1])


class Conv4(Backbone):
    """The four-layer network of Li et al. 2019 (arXiv:1903.11680), Figure 1: two convolutions, two dense layers.

    conv 3×3 (64) - ReLU - conv 3×3 (128) - ReLU - max-pool 2 - dense 256 - ReLU - dense K

    The paper gives the widths 64, 128, 256 and 10 and the total, "4.8 million trainable parameters" on MNIST; kernel
    size, padding and pooling follow from the total. Unpadded 3×3 kernels and one 2×2 pooling after the second
    convolution leave 12·12·128 values, hence 4,795,914 parameters: the layout of the long-lived Keras MNIST example
    at twice its width, trained with the same Adadelta. Padded 3×3 kernels would make 6.5 million, 5×5 unpadded
    ones 3.5 million, a pooling after each convolution 0.9 million.

    The paper leaves open: dropout (the Keras example has 0.25 after the pooling and 0.5 after the dense layer; here
    none, since Figure 1a reports a near-perfect fit of the corrupted labels; `dropout=p` puts p/2 and p there), the
    activation (ReLU here) and the initial weights (PyTorch's default here; Keras' is Glorot uniform). Its Figure 3
    is captioned "LENET", but the text of Section 4 says it is this model.

    Differs from the paper: nothing it states.
    """

    def __init__(self, input_shape: tuple[int, ...], num_classes: int, *, dropout: float = 0.0) -> None:
        super().__init__()
        checks.number("dropout", dropout, 0, 1, ends="[)")
        channels, height, width = input_shape
        self.num_features = 256
        self.body = nn.Sequential(
            nn.Conv2d(channels, 64, 3),
            nn.ReLU(),
            nn.Conv2d(64, 128, 3),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Dropout(dropout / 2),
            nn.Flatten(),
            nn.Linear(128 * ((height - 4) // 2) * ((width - 4) // 2), 256),
            nn.ReLU(),
            nn.Dropout(dropout),
        )
        self.head = nn.Linear(256, num_classes)

    def features(self, x: Tensor) -> Tensor:
        return self.body(x)  # (B, 256)


class LeNet(Backbone):
    """LeNet-5 (LeCun et al. 1998) as it is trained today: ReLU and max-pooling, dense connections between maps.

    conv 5×5 (6) - pool - conv 5×5 (16) - pool - dense 120 - dense 84 - dense K

    LeCun's inputs are 32×32, MNIST digits in a frame of 2 pixels: smaller images are padded by 2 in the first
    convolution, so MNIST has his 61,706 parameters.

    Differs from the paper: ReLU for scaled tanh, max-pooling for trainable averages, a linear layer for the Gaussian
    connections.
    """

    def __init__(self, input_shape: tuple[int, ...], num_classes: int) -> None:
        super().__init__()
        channels, height, width = input_shape
        pad = 2 if min(height, width) < 32 else 0
        rows, columns = (((size + 2 * pad - 4) // 2 - 4) // 2 for size in (height, width))
        self.num_features = 84
        self.body = nn.Sequential(
            nn.Conv2d(channels, 6, 5, padding=pad),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(6, 16, 5),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(16 * rows * columns, 120),
            nn.ReLU(),
            nn.Linear(120, 84),
            nn.ReLU(),
        )
        self.head = nn.Linear(84, num_classes)

    def features(self, x: Tensor) -> Tensor:
        return self.body(x)  # (B, 84)


class CNN3(Backbone):
    """Three 3×3 convolutions of `width`, 2·`width` and 4·`width` maps, each with batch norm and ReLU.

    A max-pooling by 2 follows the first two, a global average the third. Ours, for CIFAR-10 at small scale: it
    memorises a few thousand wrong labels within minutes on two cores.
    """

    def __init__(self, input_shape: tuple[int, ...], num_classes: int, *, width: int = 48) -> None:
        super().__init__()
        checks.integer("width", width, 1)
        self.num_features = 4 * width
        self.body = nn.Sequential(
            *_conv_bn_relu(input_shape[0], width),
            nn.MaxPool2d(2),
            *_conv_bn_relu(width, 2 * width),
            nn.MaxPool2d(2),
            *_conv_bn_relu(2 * width, 4 * width),
        )
        self.head = nn.Linear(self.num_features, num_classes)

    def features(self, x: Tensor) -> Tensor:
        return self.body(x).mean(dim=(2, 3))  # (B, 4·width)


def _conv_bn_relu(inputs: int, outputs: int) -> tuple[nn.Module, ...]:
    return nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()

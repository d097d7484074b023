"""What every model here is: features, then a head."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

from torch import Tensor, nn


class Backbone(nn.Module, ABC):
    """A network in two parts, so that methods can read penultimate activations and probes can replace the head.

    `forward(x) == head(features(x))`: inputs (B, ...) -> features (B, F) -> logits (B, K), with F = `num_features`.
    """

    num_features: int
    head: nn.Module

    @abstractmethod
    def features(self, x: Tensor) -> Tensor:
        """Penultimate activations (B, F)."""

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x))  # (B, K)


def flat_size(input_shape: tuple[int, ...]) -> int:
    """The number of values in one example."""
    return math.prod(input_shape)


def he_init(model: nn.Module) -> None:
    """Give every convolution of `model` the initial weights N(0, 2 / (kernel area · output channels)) and bias 0.

    He et al. 2015, "Delving Deep into Rectifiers", the backward ("fan-out") form that the ResNet authors' Torch code
    uses. Batch norms keep their (1, 0) and linear layers PyTorch's default.
    """
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            if module.bias is not None:
                nn.init.zeros_(module.bias)

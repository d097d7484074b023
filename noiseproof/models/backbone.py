"""What every model here is: features, then a head; initial weights and memory layout of convolutions."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from noiseproof.errors import InputError


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


def as_backbone(model: nn.Module, who: str) -> Backbone:
    """`model`, if it has features and a head; `who` needs them.

    Raises:
        InputError: it has not.
    """
    if not isinstance(model, Backbone):
        raise InputError(
            f"{who} needs a network of features and a head, got {type(model).__name__}; derive it from "
            "noiseproof.models.Backbone, or take another method"
        )
    return model


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


def prefers_channels_last(model: nn.Module, device: torch.device) -> bool:
    """Whether to train `model` in `torch.channels_last`: yes on a CPU if it contains a `Conv2d`, else no.

    From benchmarks/models.py (torch 2.13, two shared cores, paired steps in one run): the median speed ratio over
    contiguous images lay between 1.0 (conv4) and 1.3 (cnn3) for all seven networks tried, and was 1.1 to 1.2 for
    the ResNets. Single pairs on that noisy machine ranged from a third to six times. Other devices were not
    measured, so they keep PyTorch's default. Values change by rounding only. Convert both sides:

        model.to(memory_format=torch.channels_last), inputs.to(memory_format=torch.channels_last)
    """
    return device.type == "cpu" and any(isinstance(module, nn.Conv2d) for module in model.modules())

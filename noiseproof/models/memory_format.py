"""Which memory layout to train in."""

from __future__ import annotations

import torch
from torch import nn


def prefers_channels_last(model: nn.Module, device: torch.device) -> bool:
    """Whether to train `model` in `torch.channels_last`: yes on a CPU if it contains a `Conv2d`, else no.

    From benchmarks/models.py (torch 2.13, two shared cores, paired steps in one run): the median speed ratio over
    contiguous images lay between 1.0 (conv4) and 1.3 (cnn3) for all seven networks tried, and was 1.1 to 1.2 for
    the ResNets. Single pairs on that noisy machine ranged from a third to six times. Other devices were not
    measured, so they keep PyTorch's default. Values change by rounding only. Convert both sides:

        model.to(memory_format=torch.channels_last), inputs.to(memory_format=torch.channels_last)
    """
    return device.type == "cpu" and any(isinstance(module, nn.Conv2d) for module in model.modules())

"""Networks that follow others: exponential moving averages of weights.

    θ̄ ← α θ̄ + (1 − α) θ     after each step

Buffers are not averaged: a network in train mode keeps its own running statistics of what it sees. As a submodule of a
method, or among its networks, an average is in every checkpoint.
"""

from __future__ import annotations

import copy
import math
from typing import TypeVar

import torch
from torch import nn

Network = TypeVar("Network", bound=nn.Module)


def follower(network: Network) -> Network:
    """A copy of a network, in train mode and without gradients, that is to follow it."""
    return copy.deepcopy(network).requires_grad_(False).train()


@torch.no_grad()
def follow(average: nn.Module, network: nn.Module, memory: float) -> None:
    """θ̄ ← α θ̄ + (1 − α) θ over all parameters, in place, with the memory α in [0, 1]."""
    torch._foreach_lerp_(list(average.parameters()), list(network.parameters()), 1 - memory)


def ramp(share: float) -> float:
    """exp(−5 (1 − t)²) at the share t of a ramp: 0.007 at its start, 1 at its end and after it."""
    return math.exp(-5 * (1 - min(share, 1.0)) ** 2)

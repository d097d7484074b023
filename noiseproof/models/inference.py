"""Networks asked rather than trained: eval mode, blocks of a size that fits, probabilities."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from noiseproof import checks
from noiseproof.data.sources import Ahead

if TYPE_CHECKING:
    from noiseproof.data import LabeledData

_BLOCK = 2**20  # input values evaluated at once: enough to keep a device busy, few enough that activations stay small


def eval_mode(module: nn.Module) -> AbstractContextManager[None]:
    """Put a module and all its children into eval mode, and each back into its own mode afterwards."""
    return in_mode(module, training=False)


@contextmanager
def in_mode(module: nn.Module, *, training: bool) -> Iterator[None]:
    """Put a module and all its children into training or eval mode, and each back into its own mode afterwards."""
    modes = [(child, child.training) for child in module.modules()]
    module.train(training)
    try:
        yield
    finally:
        for child, before in modes:
            child.training = before


def block_size(input_shape: tuple[int, ...]) -> int:
    """How many examples to evaluate at once."""
    return min(max(_BLOCK // math.prod(input_shape), 16), 1024)


def probabilities(models: nn.ModuleList, inputs: Tensor) -> Tensor:
    """Class probabilities (B, K) of normalised inputs (B, …): the mean over the models, in single precision."""
    return torch.stack([checks.single(model(inputs)).softmax(dim=1) for model in models]).mean(dim=0)


def losses(probability: Tensor, label: Tensor) -> Tensor:
    """−log p of each label (B,), from probabilities (B, K)."""
    return -probability.gather(1, label[:, None]).squeeze(1).clamp_min(1e-12).log()


def predictions(
    models: nn.ModuleList,
    normalize: Callable[[Tensor], Tensor],
    data: LabeledData,
    device: torch.device,
    index: Tensor | None = None,
) -> Iterator[tuple[Tensor, Tensor]]:
    """Blocks of positions (B,) and probabilities (B, K) over `data`, or over its rows `index`, on the CPU."""
    index = torch.arange(len(data)) if index is None else index
    blocks, ahead = index.split(block_size(data.input_shape)), Ahead(data.inputs)
    ahead.announce(blocks)
    for rows in blocks:
        with eval_mode(models), torch.no_grad():
            inputs = normalize(ahead.take(rows).to(device))
            probability = probabilities(models, inputs).float().cpu()
        yield rows, probability

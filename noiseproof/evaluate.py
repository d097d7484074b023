"""Predictions of a run's models over a whole data set, in blocks, and the figures drawn from them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from noiseproof.method import Run

if TYPE_CHECKING:
    from noiseproof.data import LabeledData


@contextmanager
def eval_mode(module: nn.Module) -> Iterator[None]:
    """Put a module and all its children into eval mode, and each back into its own mode afterwards."""
    modes = [(child, child.training) for child in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for child, training in modes:
            child.training = training


_BLOCK = 2**20  # input values evaluated at once: enough to keep a device busy, few enough that activations stay small


def block_size(input_shape: tuple[int, ...]) -> int:
    """How many examples to evaluate at once."""
    return min(max(_BLOCK // math.prod(input_shape), 16), 1024)


def probabilities(models: nn.ModuleList, inputs: Tensor) -> Tensor:
    """Class probabilities (B, K) of normalised inputs (B, …): the mean over the models."""
    if len(models) == 1:
        return models[0](inputs).softmax(dim=1)
    return torch.stack([model(inputs).softmax(dim=1) for model in models]).mean(dim=0)


def predictions(run: Run, data: LabeledData, index: Tensor | None = None) -> Iterator[tuple[Tensor, Tensor]]:
    """Blocks of positions (B,) and probabilities (B, K) over `data`, or over its rows `index`, on the CPU."""
    index = torch.arange(len(data)) if index is None else index
    for rows in index.split(block_size(data.input_shape)):
        with eval_mode(run.models), torch.no_grad():
            inputs = run.normalize(data.take(rows).to(run.device))
            yield rows, probabilities(run.models, inputs).float().cpu()


def predict_all(run: Run, data: LabeledData) -> Tensor:
    """Probabilities (n, K) of every example of `data`, on the CPU."""
    return torch.cat([block for _, block in predictions(run, data)])


def measure(run: Run, data: LabeledData, index: Tensor | None = None) -> dict[str, float]:
    """Accuracy and mean −log p against the observed labels; against the true ones too, where they are known.

    `memorised` is the share of the wrongly labelled examples on which the prediction repeats the wrong label.
    """
    count = loss = right = truly = wrong = repeated = 0.0
    for rows, probability in predictions(run, data, index):
        label = data.labels[rows]  # (B,)
        guess = probability.argmax(dim=1)  # (B,)
        count += len(rows)
        loss -= probability.gather(1, label[:, None]).clamp_min(1e-12).log().sum().item()
        right += (guess == label).sum().item()
        if data.true_labels is not None:
            true_label = data.true_labels[rows]
            truly += (guess == true_label).sum().item()
            wrong += (label != true_label).sum().item()
            repeated += ((label != true_label) & (guess == label)).sum().item()
    figures = {"loss": loss / count, "accuracy": right / count}
    if data.true_labels is not None:
        figures["true_accuracy"] = truly / count
        if wrong:
            figures["memorised"] = repeated / wrong
    return figures

"""Predictions of a run's models over a whole data set, in blocks, and the figures drawn from them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from noiseproof.method import Predictions, Run

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
            probability = probabilities(run.models, inputs).float().cpu()
        yield rows, probability


def predict_all(run: Run, data: LabeledData) -> Tensor:
    """Probabilities (n, K) of every example of `data`, on the CPU."""
    probability = torch.empty(len(data), run.num_classes)  # made first: kept blocks would scatter over the heap
    for rows, block in predictions(run, data):
        probability[rows] = block
    return probability


def losses(probability: Tensor, label: Tensor) -> Tensor:
    """−log p of each label (B,), from probabilities (B, K)."""
    return -probability.gather(1, label[:, None]).squeeze(1).clamp_min(1e-12).log()


class Tally:
    """Adds up predictions over blocks of a data set.

    Figures: accuracy and mean −log p against the observed labels, and, where the true ones are known, accuracy against
    them and `memorised`, the share of the wrongly labelled examples on which the prediction repeats the wrong label.
    """

    def __init__(self, data: LabeledData) -> None:
        self.data = data
        self.count = self.loss = self.right = self.truly = self.wrong = self.repeated = 0.0

    def add(self, rows: Tensor, probability: Tensor) -> None:
        """Count the examples `rows` (B,), predicted with `probability` (B, K)."""
        label, guess = self.data.labels[rows], probability.argmax(dim=1)  # (B,)
        self.count += len(rows)
        self.loss += losses(probability, label).sum().item()
        self.right += (guess == label).sum().item()
        if self.data.true_labels is not None:
            true_label = self.data.true_labels[rows]
            self.truly += (guess == true_label).sum().item()
            self.wrong += (label != true_label).sum().item()
            self.repeated += ((label != true_label) & (guess == label)).sum().item()

    def figures(self, name: str) -> dict[str, float]:
        """What the counts come to, by `name` of the set and figure."""
        figures = {"loss": self.loss / self.count, "accuracy": self.right / self.count}
        if self.data.true_labels is not None:
            figures["true_accuracy"] = self.truly / self.count
            if self.wrong:
                figures["memorised"] = self.repeated / self.wrong
        return {f"{name}_{key}": value for key, value in figures.items()}


class Evaluation:
    """What is measured after each epoch: the training set, or its rows `index`, and the sets that are given."""

    def __init__(self, index: Tensor | None, **others: LabeledData | None) -> None:
        self.index = index
        self.others = {name: data for name, data in others.items() if data is not None}

    def __call__(self, run: Run) -> dict[str, float]:
        """The figures, by set and name, e.g. `val_accuracy`; leaves the predictions in `run.predicted`."""
        figures = {}
        index = torch.arange(len(run.data)) if self.index is None else self.index
        if len(index):
            tally, probability = Tally(run.data), torch.empty(len(index), run.num_classes)
            for rows, block in predictions(run, run.data, index):
                probability[int(tally.count) : int(tally.count) + len(rows)] = block
                tally.add(rows, block)
            run.predicted = Predictions(index, probability)
            figures = tally.figures("train")
        for name, data in self.others.items():
            tally = Tally(data)
            for rows, block in predictions(run, data):
                tally.add(rows, block)
            figures |= tally.figures(name)
        return figures

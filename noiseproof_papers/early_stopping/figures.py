"""The experiments of Li et al. (2020) that train networks: Figures 1, 3 and 4 (Figure 5 is in spectra.py).

Corruption is the paper's: a share of the labels is drawn anew from all classes, so a tenth of them come back right.
"Early stopping" is the epoch with the highest accuracy on held-out labels, as noisy as the others; the paper only says
"after a few iterations", so a fixed number of epochs, the same for all corruption, stands beside it.

Differs from the paper: at the small scale MNIST has 14 × 14 pixels (means of 2 × 2) and 3,000 training images, CIFAR-10
16 × 16 pixels and 5,000. Batch size and learning rates, which the paper does not give, are ours; Adadelta is its choice
for Figure 1. For ResNet-20 it gives no recipe: at its scale ours is that of He et al. (2016).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from noiseproof.benching.trial import find_wrong
from noiseproof.data import LabeledData
from noiseproof.data import noise as corruption
from noiseproof.method import Run
from noiseproof.models.inference import losses
from noiseproof.runs.drawing import legend_below, new_figure
from noiseproof.runs.plots import CURVES, loss_histogram
from noiseproof.runs.result import FitResult
from noiseproof.training.fit import fit
from noiseproof.training.progress import Silent
from noiseproof_papers.datadir import DataDir
from noiseproof_papers.drawing import frame, mean_and_range
from noiseproof_papers.experiment import Cell, Done, Experiment, Table, group, span, spread, spreads, where
from noiseproof_papers.fits import cell, sets

ADADELTA = {"method": "ce", "optimizer": "adadelta", "lr": 1.0, "weight_decay": 0.0, "schedule": "constant"}
RESNET: dict[str, Any] = {
    "model": "resnet20", "method": "ce", "epochs": 200, "batch_size": 128, "lr": 0.1, "momentum": 0.9,
    "weight_decay": 1e-4, "schedule": "multi_step([100, 150])", "augment": "weak",
}  # fmt: skip
SMALL_RESNET: dict[str, Any] = {
    **RESNET, "epochs": 25, "batch_size": 64, "lr": 0.05, "schedule": "cosine", "augment": "none",
}  # fmt: skip
SMALL_CIFAR: dict[str, Any] = {"data": "cifar10", "size": 16, "examples": 5000, "tested": 1000}


def prepare(cell: Cell, data: DataDir) -> tuple[LabeledData, LabeledData]:
    """The training set of a cell, corrupted, and its test set."""
    training, test = (_shrunk(one, cell["size"]) for one in sets({**cell, "size": None}, data))
    return corruption.apply(training, cell["noise"], cell["seed"]), test


def _shrunk(data: LabeledData, size: int | None) -> LabeledData:
    """The images brought to `size` by means over pixels."""
    if size is None or data.input_shape[1:] == (size, size):
        return data
    images = F.interpolate(data.take(torch.arange(len(data))).float(), (size, size), mode="area")
    return LabeledData(images.round().to(torch.uint8), data.labels, class_names=data.class_names, allow_empty=True)


def corrupted(rate: float) -> str:
    """How a cell names its noise; with rate 0 too, so that the true labels are known."""
    return f"symmetric-any:{rate:g}"


def percent(cell: Cell) -> int:
    """The corruption of a cell, in %."""
    return round(100 * corruption.parse(cell["noise"]).rate)


def _curves(result: FitResult, *keys: str) -> dict[str, list[float]]:
    return {key: [round(record[key], 5) for record in result.history] for key in keys}


class Notes(Silent):
    """Keeps what the history of a run lacks: ‖θ₀‖, and the losses of the training examples after each epoch."""

    def start(self, run: Run, title: str) -> None:
        self.norm = float(torch.cat([p.detach().flatten() for p in run.models.parameters()]).norm())
        self.losses: list[Tensor] = []  # (m,) for each epoch
        self.index = torch.zeros(0, dtype=torch.int64)  # (m,) their places in the training set

    def epoch(self, run: Run) -> None:
        assert run.predicted is not None, "Notes needs eval_examples"
        self.index = run.predicted.index
        self.losses.append(losses(run.predicted.probability, run.data.labels[self.index]))


def _noted(cell: Cell, data: DataDir) -> tuple[FitResult, Notes]:
    """A cell trained, with notes."""
    training, test = prepare(cell, data)
    notes = Notes()
    return fit(data=training, test=test, seed=cell["seed"], progress=notes, **cell["fit"]), notes


class Corrupted(Experiment):
    """Cross-entropy at several rates of corruption."""

    settings: ClassVar[dict[str, dict[str, Any]]]  # the arguments of `fits.cell`, by scale
    rates: ClassVar[dict[str, tuple[float, ...]]]  # by scale
    seeds: ClassVar[int] = 3
    stages: tuple[str, ...] = ()  # when the figures of a run are taken

    def cells(self, scale: str, seeds: int | None) -> list[Cell]:
        return [
            cell(method="ce", seed=seed, noise=corrupted(rate), **self.settings[scale])
            for rate in self.rates[scale]
            for seed in range(seeds or self.seeds)
        ]

    def by_stage(self, done: list[Done]) -> Iterator[tuple[str, str, list[dict[str, Any]]]]:
        """The rows of a table: the corruption in %, the stage, and its figures over the seeds."""
        for rate, figures in group(done, percent).items():
            for stage in self.stages:
                yield str(rate), stage, [one["stages"][stage] for one in figures]


class Figure1(Corrupted):
    """Accuracy against corruption: full training, stopped by held-out noisy labels, stopped after `few` epochs."""

    name = "early-fig1"
    title = "Full training fits the wrong labels; a run that stops early predicts the true ones"
    paper = "Li et al. 2020, Figure 1"
    settings: ClassVar[dict[str, dict[str, Any]]] = {
        "small": {"data": "mnist", "size": 14, "examples": 3000, "tested": 1000, "few": 3, "options": {
            **ADADELTA, "model": "conv4", "epochs": 25, "batch_size": 64, "val": 0.1, "eval_examples": None,
        }},
        "paper": {"data": "mnist", "few": 1, "options": {  # 50,000 of the 60,000 are trained on
            **ADADELTA, "model": "conv4", "epochs": 200, "batch_size": 128, "val": 1 / 6, "eval_examples": 10_000,
        }},
    }  # fmt: skip
    rates: ClassVar[dict[str, tuple[float, ...]]] = {
        "small": (0.0, 0.1, 0.3, 0.5, 0.7, 0.9),
        "paper": tuple(i / 10 for i in range(10)),
    }
    stages = ("full training", "stopped by held-out noisy labels", "stopped after a few epochs")
    lines = ("train_accuracy", "train_true_accuracy", "test_accuracy")

    def run(self, cell: Cell, data: DataDir) -> dict[str, Any]:
        training, test = prepare(cell, data)
        result = fit(data=training, test=test, seed=cell["seed"], **cell["fit"])
        curves = _curves(result, *self.lines, "val_accuracy")
        at = (cell["fit"]["epochs"] - 1, int(np.argmax(curves["val_accuracy"])), cell["few"] - 1)
        found = {stage: {key: curves[key][i] for key in self.lines} | {"epoch": i + 1}
                 for stage, i in zip(self.stages, at, strict=True)}  # fmt: skip
        return {"stages": found, "noise": training.noise_rate, "curves": curves}

    def draw(self, done: list[Done], path: Path) -> None:
        figure = new_figure(11.5, 3.9)
        axes = figure.subplots(1, 3, sharey=True)
        groups = group(done, percent)
        for axis, stage, letter in zip(axes, self.stages, "abc", strict=True):
            for key in self.lines:
                runs = np.array([[100 * f["stages"][stage][key] for f in fs] for fs in groups.values()])  # (R, seeds)
                legend, colour = CURVES[key]
                mean_and_range(axis, list(groups), runs.T, 0.18, color=colour, marker="o", lw=1.6, ms=3.5, label=legend)
            right = [100 * (1 - np.mean([f["noise"] for f in fs])) for fs in groups.values()]
            axis.plot(list(groups), right, color="0.5", lw=1, ls=":", label="labels that are right")
            frame(axis, f"({letter}) {stage}", "corruption, %", "accuracy, %" if letter == "a" else "")
        axes[0].set_ylim(0, 102)
        legend_below(figure, axes[:1], 4)
        figure.savefig(path, dpi=130, format="png")

    def table(self, done: list[Done]) -> Table:
        header = ["corruption, %", "stop", "epoch", "train, noisy labels", "train, true labels", "test"]
        rows = [
            [rate, stage, span([f["epoch"] for f in found]), *spreads(found, *self.lines)]
            for rate, stage, found in self.by_stage(done)
        ]
        return header, rows


class Figure3(Experiment):
    """Accuracy and loss against the distance from the initial weights; 3,000 images, as in the paper.

    Its caption names LeNet, its text the model of Figure 1: both are run.
    """

    name = "early-fig3"
    title = "The more labels are wrong, the farther from its initial weights a network must go to fit them"
    paper = "Li et al. 2020, Figure 3"
    settings: ClassVar[dict[str, Any]] = {"data": "mnist", "examples": 3000, "tested": 1000}
    networks: ClassVar[dict[str, dict[str, tuple[int, int | None]]]] = {  # epochs, and pixels on a side
        "small": {"lenet": (80, None), "conv4": (25, 14)},
        "paper": {"lenet": (400, None), "conv4": (200, None)},
    }
    options: ClassVar[dict[str, Any]] = {**ADADELTA, "batch_size": 64, "eval_examples": None}
    rates = (0.0, 0.25, 0.5, 0.75)
    reached = (0.8, 0.95, 0.99)  # of the observed labels

    def cells(self, scale: str, seeds: int | None) -> list[Cell]:
        return [
            cell(method=network, seed=seed, noise=corrupted(rate), size=size, **self.settings,
                 options={**self.options, "model": network, "epochs": epochs})
            for network, (epochs, size) in self.networks[scale].items()
            for rate in self.rates
            for seed in range(seeds or 3)
        ]  # fmt: skip

    def run(self, cell: Cell, data: DataDir) -> dict[str, Any]:
        result, notes = _noted(cell, data)
        curves = _curves(result, "distance", "train_accuracy", "train_loss", "test_accuracy")
        pairs = list(zip(curves["distance"], curves["train_accuracy"], strict=True))
        away = {f"{share}": next((far for far, fitted in pairs if fitted >= share), None) for share in self.reached}
        return {"norm": notes.norm, "away": away, "curves": curves}

    def draw(self, done: list[Done], path: Path) -> None:
        from matplotlib import colormaps

        networks = group(done, lambda c: c["method"])
        figure = new_figure(11.5, 3.2 * len(networks) + 0.5)
        axes = figure.subplots(len(networks), 3, squeeze=False)
        shades = colormaps["viridis_r"](np.linspace(0.15, 1, len({percent(one.cell) for one in done})))
        for row, network in zip(axes, networks, strict=True):
            part = group(where(done, method=network), percent)
            for (rate, figures), colour in zip(part.items(), shades, strict=False):
                for number, one in enumerate(figures):
                    curves, style = one["curves"], {"color": colour, "lw": 1.2, "alpha": 0.8}
                    distance = np.array(curves["distance"]) / one["norm"]
                    label = f"{rate} % corrupted" if number == 0 else None
                    row[0].plot(distance, 100 * np.array(curves["train_accuracy"]), label=label, **style)
                    row[1].plot(distance, curves["train_loss"], **style)
                    row[2].plot(range(1, len(distance) + 1), distance, **style)
            frame(row[0], f"{network}: accuracy", "‖θ − θ₀‖ / ‖θ₀‖", "training accuracy, observed labels, %")
            frame(row[1], f"{network}: loss", "‖θ − θ₀‖ / ‖θ₀‖", "training loss, observed labels")
            frame(row[2], f"{network}: distance", "epoch", "‖θ − θ₀‖ / ‖θ₀‖")
        legend_below(figure, axes[:1, :1], len(shades))
        figure.savefig(path, dpi=130, format="png")

    def table(self, done: list[Done]) -> Table:
        """Distances relative to the norm of the initial weights."""
        header = ["network", "corruption, %", *(f"distance to fit {100 * share:.0f} %" for share in self.reached),
                  "at the end", "fitted at the end, %"]  # fmt: skip
        rows = []
        for (network, rate), figures in group(done, lambda c: (c["method"], percent(c))).items():
            away = [[None if (d := f["away"][f"{s}"]) is None else d / f["norm"] for f in figures]
                    for s in self.reached]  # fmt: skip
            away.append([f["curves"]["distance"][-1] / f["norm"] for f in figures])
            fitted = spread([f["curves"]["train_accuracy"][-1] for f in figures])
            rows.append([network, str(rate), *(spread(values, percent=False) for values in away), fitted])
        return header, rows


class Figure4(Corrupted):
    """Losses of the training examples, right and wrong labels apart, at the early stop and at the end."""

    name = "early-fig4"
    title = "At the early stop the losses of right and wrong labels lie apart; at the end they do not"
    paper = "Li et al. 2020, Figure 4"
    settings: ClassVar[dict[str, dict[str, Any]]] = {
        "small": {**SMALL_CIFAR, "options": {**SMALL_RESNET, "val": 0.1, "eval_examples": 5000}},
        "paper": {"data": "cifar10", "options": {**RESNET, "val": 0.1, "eval_examples": 5000}},
    }
    rates: ClassVar[dict[str, tuple[float, ...]]] = {"small": (0.3, 0.5), "paper": (0.3, 0.5)}
    stages = ("early", "late")

    def run(self, cell: Cell, data: DataDir) -> dict[str, Any]:
        result, notes = _noted(cell, data)
        early = int(np.argmax([record["val_accuracy"] for record in result.history]))
        assert result.run.data.wrong is not None
        wrong = result.run.data.wrong[notes.index].numpy()
        stages = {}
        for stage, i in zip(self.stages, (early, len(result.history) - 1), strict=True):
            record, loss = result.history[i], notes.losses[i].numpy()
            stages[stage] = {
                "epoch": i + 1,
                "auroc": find_wrong(wrong, loss)["auroc"],
                "right": float(loss[~wrong].mean()),
                "wrong": float(loss[wrong].mean()),
                "memorised": record["train_memorised"],
                "test": record["test_accuracy"],
                "loss": [float(f"{value:.3g}") for value in loss.tolist()],
            }
        return {"stages": stages, "wrong": wrong.astype(int).tolist()}

    def draw(self, done: list[Done], path: Path) -> None:
        groups = group(done, percent)
        figure = new_figure(9, 2.9 * len(groups) + 0.4)
        axes = figure.subplots(len(groups), 2, squeeze=False)
        for row, (rate, figures) in zip(axes, groups.items(), strict=True):
            wrong = np.array(figures[0]["wrong"], bool)  # the losses of one run: those of the others look alike
            for axis, stage in zip(row, self.stages, strict=True):
                found = figures[0]["stages"][stage]
                loss_histogram(axis, np.array(found["loss"]), wrong)
                title = f"{rate} % corrupted, {stage}: epoch {found['epoch']}"
                frame(axis, title, "−log p of the observed label", "examples")
                axis.text(0.97, 0.62, f"AUROC {found['auroc']:.2f}", transform=axis.transAxes, ha="right", fontsize=9)
        figure.savefig(path, dpi=130, format="png")

    def table(self, done: list[Done]) -> Table:
        header = ["corruption, %", "stage", "epoch", "loss, right labels", "loss, wrong labels", "AUROC of the loss",
                  "wrong labels memorised", "test"]  # fmt: skip
        rows = []
        for rate, stage, found in self.by_stage(done):
            epochs, numbers = [str(f["epoch"]) for f in found], ("right", "wrong", "auroc")
            shares = spreads(found, "memorised", "test")
            rows.append([rate, stage, ", ".join(epochs), *spreads(found, *numbers, percent=False), *shares])
        return header, rows

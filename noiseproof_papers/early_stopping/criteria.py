"""What each criterion of `early_stop` costs against the best epoch, which only test labels know.

One run of cross-entropy for each data set, noise and seed; all criteria watch it, so that they differ in nothing else.
Digits and Fashion-MNIST with an mlp, CIFAR-10 at 16 × 16 pixels with resnet8; long enough to memorise.
"""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import numpy as np

from noiseproof.method import Run, Wrapper
from noiseproof.methods import stopping
from noiseproof.methods.cross_entropy import CrossEntropy
from noiseproof.methods.early_stop import EarlyStop
from noiseproof.runs.drawing import BLUE, GREEN, RED, YELLOW, legend_below, new_figure
from noiseproof_papers.datadir import DataDir
from noiseproof_papers.drawing import frame
from noiseproof_papers.experiment import Cell, Done, Experiment, Table, spread, where
from noiseproof_papers.fits import SMALL, SMALL_DATA, cell, train

NOISES = (None, "symmetric:0.2", "symmetric:0.4", "symmetric:0.6", "pair:0.4")
CRITERIA = ("agreement", "val_accuracy", "val_loss", "changes", "mixture", "distance(0.5)", "knee")
MLP: dict[str, Any] = {"model": "mlp", "batch_size": 64, "lr": 0.05}
SHALLOW: dict[str, Any] = {"model": "shallow(activation='softplus', init_std=0.1)", "batch_size": 64, "lr": 0.5}
SETTINGS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {  # title: data, its size, arguments of fit
    "digits": ("digits", {}, {**MLP, "epochs": 100, "val": 0.1}),
    "digits, constant rate": ("digits", {}, {**MLP, "epochs": 100, "val": 0.1, "schedule": "constant"}),
    "digits, none held out": ("digits", {}, {**MLP, "epochs": 100}),
    "digits, shallow": ("digits", {}, {**SHALLOW, "epochs": 100, "val": 0.1}),
    "fashion-mnist": ("fashion-mnist", {"examples": 5000, "tested": 2000}, {**MLP, "epochs": 40, "val": 0.1}),
    "fashion-mnist, none held out": ("fashion-mnist", {"examples": 5000, "tested": 2000}, {**MLP, "epochs": 40}),
    "cifar10": ("cifar10", SMALL_DATA, {key: value for key, value in SMALL.items() if key != "eval_examples"}),
}
MAIN = ("digits", "fashion-mnist", "cifar10")  # the settings that "overall" is about
COLOURS = dict(zip(NOISES, ("0.45", GREEN, BLUE, RED, YELLOW), strict=True))


class Watched(Wrapper):
    """A method whose run several criteria watch, each to the epoch at which it would have stopped."""

    name = "watched"

    def __init__(self, inner: CrossEntropy, criteria: tuple[str, ...]) -> None:
        super().__init__(inner)
        self.criteria = criteria
        self.rules = {criterion: stopping.build(criterion) for criterion in criteria}
        self.patience = EarlyStop(inner).patience
        self.chosen: dict[str, int] = {}
        self.stopped: dict[str, int] = {}

    def start(self, run: Run) -> None:
        super().start(run)
        for rule in self.rules.values():
            rule.start(run)

    def stop(self, run: Run) -> bool:
        for criterion, rule in self.rules.items():
            if criterion not in self.stopped:
                best, over = rule.judge(run, self.chosen.get(criterion, 0), self.patience)
                self.chosen[criterion] = best
                if over or run.epoch == run.epochs:
                    self.stopped[criterion] = run.epoch
        return super().stop(run)


class EarlyStopping(Experiment):
    """Accuracy at the epoch each criterion returns to, against the best epoch of the run by test accuracy."""

    name = "early-stopping"
    title = "points of test accuracy that each criterion of early stopping loses against the best epoch"
    paper = "Li et al. 2020, Section 1"
    scales = ("small",)

    settings = SETTINGS
    noises = NOISES

    def cells(self, scale: str, seeds: int | None) -> list[Cell]:
        return [
            cell(data, "ce", seed, noise=noise, **sizes, options={**options, "method": "ce"}, setting=title)
            for title, (data, sizes, options) in self.settings.items()
            for noise in self.noises
            for seed in range(seeds or 3)
        ]

    def run(self, cell: Cell, data: DataDir) -> dict[str, Any]:
        """Accuracies, and for each criterion the epoch it returns to, that at which it stops, and what it loses."""
        criteria = CRITERIA if "val" in cell["fit"] else tuple(c for c in CRITERIA if not c.startswith("val"))
        if "shallow" in cell["fit"]["model"]:
            criteria += ("theory",)
        watched = Watched(CrossEntropy(), criteria)
        figures = train(cell, data, method=watched)
        accuracy = figures["curves"]["test_accuracy"]
        figures["oracle"] = max(accuracy)
        figures["criteria"] = {"last epoch": _loss(accuracy, len(accuracy), len(accuracy))}
        for criterion in criteria:
            stopped = watched.stopped[criterion]
            figures["criteria"][criterion] = _loss(accuracy, watched.chosen[criterion] or stopped, stopped)
        return figures

    def draw(self, done: list[Done], path: Path) -> None:
        titles = list(dict.fromkeys(one.cell["setting"] for one in done))
        columns = min(len(titles), 4)
        rows = -(-len(titles) // columns)
        figure = new_figure(3.0 * columns + 1.2, 3.1 * rows + 0.7)
        grid = figure.subplots(rows, columns, squeeze=False, sharey=True)
        names = [name for name in ("last epoch", *CRITERIA, "theory") if any(_lost(done, name))]
        for axis, title in zip(grid.flat, titles, strict=False):
            for place, noise in enumerate(self.noises):
                part, shift = where(done, setting=title, noise=noise), 0.12 * (place - (len(self.noises) - 1) / 2)
                points = [(lost, y + shift) for y, name in enumerate(names) for lost in _lost(part, name)]
                style = {"color": COLOURS.get(noise, "0.2"), "ms": 5, "label": noise or "no noise"}
                axis.plot(*np.array(points).reshape(-1, 2).T, ".", **style)
            noisy = [one for one in where(done, setting=title) if one.cell["noise"]]
            for y, name in enumerate(names):
                if lost := _lost(noisy, name):
                    axis.plot([statistics.mean(lost)] * 2, [y - 0.38, y + 0.38], color="0.15", lw=1.6)
            axis.set_yticks(range(len(names)), names)
            axis.set_xscale("symlog", linthresh=5)
            axis.set_xlim(left=-0.3)
            axis.set_xticks([0, 2, 5, 10, 20, 40], ["0", "2", "5", "10", "20", "40"])
            frame(axis, title, "points lost", "")
        grid.flat[0].invert_yaxis()
        for axis in grid.flat[len(titles) :]:
            axis.set_visible(False)
        legend_below(figure, grid[:1, :1], len(self.noises))
        figure.savefig(path, dpi=130, format="png")

    def table(self, done: list[Done]) -> Table:
        """Points lost, mean ± standard deviation over noises and seeds, and in brackets the worst.

        Noise-free runs stand apart. The last row shows what holding a tenth out costs even the best epoch.
        """
        noisy = [one for one in done if one.cell["noise"]]
        settings = {title: where(noisy, setting=title) for title in dict.fromkeys(one.cell["setting"] for one in done)}
        main = [one for one in noisy if one.cell["setting"] in MAIN]
        rows = []
        for name in dict.fromkeys(key for one in done for key in one.figures["criteria"]):
            lost = [_worst(_lost(part, name)) for part in (*settings.values(), main)]
            watched = [one for one in noisy if name in one.figures["criteria"]]
            when = [one.figures["criteria"][name]["stopped"] / one.cell["fit"]["epochs"] for one in watched]
            stops = f"{100 * statistics.mean(when):.0f} % of epochs" if when else "–"
            rows.append([name, *lost, _points(_lost(where(done, noise=None), name)), stops])
        best = [spread([one.figures["oracle"] for one in part]) for part in settings.values()]
        rows.append(["best epoch: accuracy, %", *best, "", "", ""])
        return ["points lost", *settings, "overall", "no noise", "stops at"], rows


def _loss(accuracy: list[float], epoch: int, stopped: int) -> dict[str, Any]:
    return {"epoch": epoch, "stopped": stopped, "lost": round(100 * (max(accuracy) - accuracy[epoch - 1]), 2)}


def _lost(done: list[Done], name: str) -> list[float]:
    """The points a criterion lost in each run that it watched."""
    return [one.figures["criteria"][name]["lost"] for one in done if name in one.figures["criteria"]]


def _points(values: list[float]) -> str:
    return spread([value / 100 for value in values])


def _worst(values: list[float]) -> str:
    return f"{_points(values)} ({max(values):.1f})" if values else "–"

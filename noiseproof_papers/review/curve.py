"""What a review is worth: labels corrected and test accuracy, against the number of decisions, by several orders.

A simulated reviewer goes through the labels in an order and sets each right (a second one errs, one in twenty times).
The orders: the audit's (`nf.audit` of the features), cleanlab's (its label quality scores of the audit's own linear
predictions, out of sample: self-confidence and normalized margin), by the loss of a network trained on the labels with
cross-entropy, and at random. Test accuracy is that of least squares on the features with the labels as they then are.

The sets: digits with made noise, by their pixels; and CIFAR-10N's human labels, by the features of a network that knows
ImageNet.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from noiseproof.data import LabeledData
from noiseproof.data import noise as corruption
from noiseproof.errors import InputError
from noiseproof.models.embedding import imagenet_features
from noiseproof.runs.drawing import BLUE, GREEN, RED, YELLOW, legend_below, new_figure
from noiseproof.training.audit import audit
from noiseproof.training.fit import fit
from noiseproof_papers.datadir import DataDir
from noiseproof_papers.drawing import frame, mean_and_range
from noiseproof_papers.experiment import Cell, Done, Experiment, Table, group, spread
from noiseproof_papers.fits import sets

NOISES = ("symmetric:0.2", "symmetric:0.4", "pair:0.2")
HUMAN = ("aggre_label", "random_label1")
SHARES = (0.0, 0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)  # of the labels, decided
FOUND = 0.9  # of the wrong labels, to be found
ERRS = 0.05  # how often the second reviewer errs
ORDERS = {"audit": GREEN, "cleanlab": BLUE, "cleanlab, margin": "#7fb3d5", "loss of ce": RED, "random": YELLOW}
DECAY = 0.01  # of the least squares, per example


class Curve(Experiment):
    """Decisions, and what they bring."""

    name = "review-curve"
    title = "What a review is worth, by the order of the labels"
    paper = "ours"
    scales = ("small", "medium")

    def cells(self, scale: str, seeds: int | None) -> list[Cell]:
        sizes = {"examples": 4000, "tested": 2000} if scale == "small" else {"examples": None, "tested": None}
        rest = {"size": None, "labels": None, "noise": None}
        made: list[Cell] = [
            {"data": "digits", **rest, "noise": one, "examples": None, "tested": None} for one in NOISES
        ]
        human: list[Cell] = [{"data": "cifar10", **rest, "labels": one, **sizes} for one in HUMAN]
        return [one | {"seed": seed} for one in (*made, *human) for seed in range(seeds or 3)]

    def run(self, cell: Cell, data: DataDir) -> dict[str, Any]:
        train, test = sets(cell, data)
        if cell["noise"] is not None:
            train = corruption.apply(train, cell["noise"], seed=cell["seed"])
        assert train.true_labels is not None
        x, held = _features(train), _features(test)
        truth = train.true_labels.numpy()
        learner = LeastSquares(x, held, test.labels.numpy(), train.num_classes)
        rng = np.random.default_rng(cell["seed"])
        slips = rng.random(len(truth)) < ERRS
        erring = np.where(slips, (truth + rng.integers(1, train.num_classes, len(truth))) % train.num_classes, truth)
        figures: dict[str, Any] = {"noise": train.noise_rate, "examples": len(train)}
        for name, order in _orders(x, train, cell["seed"]).items():
            found = np.cumsum(train.labels.numpy()[order] != truth[order]) / (train.labels.numpy() != truth).sum()
            figures[name] = {
                "needed": int(np.searchsorted(found, FOUND)) + 1,  # decisions
                "sure": _walk(learner, order, train.labels.numpy(), truth, truth),
                "erring": _walk(learner, order, train.labels.numpy(), erring, truth),
            }
        return figures

    def draw(self, done: list[Done], path: Path) -> None:
        groups = group(done, _title)
        figure = new_figure(3.1 * len(groups) + 0.4, 5.6)
        grid = figure.subplots(2, len(groups), squeeze=False, sharex=True)
        for column, (title, runs) in zip(grid.T, groups.items(), strict=True):
            for name, colour in ORDERS.items():
                for axis, key in zip(column, ("wrong", "accuracy"), strict=True):
                    for who, style in (("sure", "-"), ("erring", ":")):
                        curves = 100 * np.array([one[name][who][key] for one in runs])
                        label = name if who == "sure" else None
                        mean_and_range(
                            axis, 100 * np.array(SHARES), curves, color=colour, ls=style, lw=1.5, label=label
                        )
            frame(column[0], title, "", "labels still wrong, %" if column is grid.T[0] else "")
            frame(column[1], "", "labels decided, %", "test accuracy, %" if column is grid.T[0] else "")
        legend_below(figure, grid, columns=len(ORDERS))
        figure.savefig(path, dpi=130, format="png")

    def table(self, done: list[Done]) -> Table:
        groups = group(done, _title)
        header = [f"decided, % of all, to find {100 * FOUND:.0f} % of the wrong", *groups]
        rows = []
        for name in ORDERS:
            shares = [[one[name]["needed"] / one["examples"] for one in runs] for runs in groups.values()]
            rows.append([name, *(spread(one) for one in shares)])
        for who in ("sure", "erring"):
            at = SHARES.index(0.2)
            for name in ("audit", "random"):
                gains = [[one[name][who]["accuracy"][at] - one[name][who]["accuracy"][0] for one in runs]
                         for runs in groups.values()]  # fmt: skip
                slips = "" if who == "sure" else ", errs 5 %"
                rows.append([f"accuracy gained by 20 % decided, {name}{slips}", *(spread(one) for one in gains)])
        return header, rows


class LeastSquares:
    """Least squares on features, refitted to other labels in no time: the features' part is factored once."""

    def __init__(self, x: np.ndarray, held: np.ndarray, labels: np.ndarray, num_classes: int) -> None:
        mean, std = x.mean(axis=0), x.std(axis=0) + 1e-6
        self.x, self.held = (np.c_[(one - mean) / std, np.ones(len(one))] for one in (x, held))
        self.gram = self.x.T @ self.x + DECAY * len(x) * np.eye(self.x.shape[1])
        self.ask = np.linalg.solve(self.gram, self.held.T).T @ self.x.T  # (test, n): the test scores are this @ one-hot
        self.labels, self.num_classes = labels, num_classes

    def accuracy(self, labels: np.ndarray) -> float:
        """On the test set, with training labels (n,)."""
        return float(((self.ask @ np.eye(self.num_classes)[labels]).argmax(axis=1) == self.labels).mean())


def _walk(
    learner: LeastSquares, order: np.ndarray, labels: np.ndarray, said: np.ndarray, truth: np.ndarray
) -> dict[str, list[float]]:
    """Labels still wrong and test accuracy, after shares of the labels were set to what the reviewer said, in order."""
    wrong, accuracy = [], []
    for share in SHARES:
        now = labels.copy()
        decided = order[: round(share * len(order))]
        now[decided] = said[decided]
        wrong.append(round(float((now != truth).mean()), 5))
        accuracy.append(round(learner.accuracy(now), 5))
    return {"wrong": wrong, "accuracy": accuracy}


def _features(data: LabeledData) -> np.ndarray:
    """What the labels are judged by (n, F): features of ImageNet for colours, else pixels."""
    if data.input_shape[0] == 3:
        return imagenet_features(data).astype(np.float32)
    return data.take(torch.arange(len(data))).flatten(1).numpy().astype(np.float32)


def _orders(x: np.ndarray, train: LabeledData, seed: int) -> dict[str, np.ndarray]:
    """The positions (n,) of the labels in each order, the likeliest wrong first; ties at random."""
    try:
        from cleanlab.rank import get_label_quality_scores
    except ImportError as error:
        raise InputError("review-curve compares with cleanlab; run: pip install cleanlab") from error
    rng, labels = np.random.default_rng(seed), train.labels.numpy()
    shuffled = rng.permutation(len(labels))
    report = audit(labels, features=x, seed=seed)
    assert report.basis is not None
    predicted = report.basis.evidence[0]  # of the linear model, out of sample
    scores: dict[str, Callable[[], np.ndarray]] = {
        "audit": lambda: report.scores,
        "cleanlab": lambda: -get_label_quality_scores(labels, predicted, method="self_confidence"),
        "cleanlab, margin": lambda: -get_label_quality_scores(labels, predicted, method="normalized_margin"),
        "loss of ce": lambda: _losses(x, labels, seed),
        "random": lambda: np.zeros(len(labels)),
    }
    return {name: shuffled[np.argsort(-score()[shuffled], kind="stable")] for name, score in scores.items()}


def _losses(x: np.ndarray, labels: np.ndarray, seed: int) -> np.ndarray:
    """−log p of each label by a network that was trained on all of them with cross-entropy."""
    scaled = (x - x.mean(axis=0)) / (x.std(axis=0) + 1e-6)
    result = fit("mlp", LabeledData(scaled, labels), "ce", epochs=20, lr=0.02, seed=seed, device="cpu")
    return result.losses


def _title(cell: Cell) -> str:
    return f"{cell['data']}, {cell['noise'] or cell['labels']}"

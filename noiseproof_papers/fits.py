"""What experiments that train networks share: a cell is a call of `fit`, its figures what is worth reporting of it.

A cell:

    data     "cifar10", "fashion-mnist", "digits", … (datadir.py)
    labels   a column of CIFAR-10N to train on; None for the data set's own
    size     resize the images to this many pixels; None to leave them
    examples how many training examples, stratified; None for all
    tested   how many test examples, the same in every cell; None for all
    noise    how to corrupt them, e.g. "symmetric:0.4"; None to leave them
    seed     of the subset, the noise and the run
    method   what to call it in tables and pictures
    fit      the arguments of `fit`

The small scale of CIFAR-10: resnet8 on 6,000 images (a tenth of them held out) at 16 × 16 pixels, 20 epochs, without
augmentation, so that so short a run memorises. The scale of features: an mlp on 10,000 images as a frozen network that
has seen ImageNet sees them, where the labels are learned by heart but the network is no matter; without the methods
that take two views of an example. The medium scale: a wide quicknet on all 50,000 (a tenth held out) as they are, with
crops and flips; the first seed in single precision, the others in bfloat16, in half the time where the processor has
it. The cells of both have their methods in full, with every default: other defaults are other cells, as theirs outlive
the code that ran them. In the other cells `elr`, `sop` and `sop_plus` are those that the figures were published with,
by their strengths and rates (`with_rates`), not the defaults of today, which wait for the network.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

from noiseproof.benching.trial import of_fit
from noiseproof.data import LabeledData
from noiseproof.data import noise as corruption
from noiseproof.methods import build
from noiseproof.training.fit import fit
from noiseproof_papers.datadir import DataDir
from noiseproof_papers.drawing import bars
from noiseproof_papers.experiment import Cell, Done, Experiment, Table, crossed, group, spreads

CURVES = (
    "test_accuracy", "train_accuracy", "train_true_accuracy", "val_accuracy", "selected_right",
    "explained_right", "explained_wrong",
)  # fmt: skip
SMALL: dict[str, Any] = {
    "model": "resnet8", "epochs": 20, "batch_size": 64, "lr": 0.05, "momentum": 0.9, "weight_decay": 5e-4,
    "schedule": "cosine", "augment": "none", "val": 0.1, "eval_examples": 1000,
}  # fmt: skip
SMALL_DATA: dict[str, Any] = {"size": 16, "examples": 6000, "tested": 2000}
MEDIUM: dict[str, Any] = {
    "model": "quicknet(widths=[32, 128, 256])", "epochs": 12, "batch_size": 128,
    "lr": 0.15, "momentum": 0.9, "weight_decay": 5e-4,
    "schedule": "cosine(warmup=1)", "augment": "weak", "val": 0.1, "eval_examples": 1000, "audit_features": "none",
}  # fmt: skip
ON_FEATURES: dict[str, Any] = {
    "model": "mlp(widths=[128])", "epochs": 20, "batch_size": 64, "lr": 0.01, "momentum": 0.9, "weight_decay": 5e-4,
    "schedule": "cosine", "augment": "none", "val": 0.1, "eval_examples": 1000, "audit_features": "none",
}  # fmt: skip
IN_FULL = {"features": ON_FEATURES, "medium": MEDIUM}  # scales whose cells have their methods in full
SIZES: dict[str, dict[str, Any]] = {
    "small": SMALL_DATA, "features": {"examples": 10_000, "tested": 5_000}, "medium": {}, "paper": {},
}  # fmt: skip
RUNS = {"small": 3, "features": 3, "medium": 2, "paper": 5}
ASYMMETRIC = "asymmetric:0.4"


def cell(
    data: str,
    method: str,
    seed: int,
    *,
    options: dict[str, Any],
    labels: str | None = None,
    noise: str | None = None,
    **more: Any,
) -> Cell:
    """A cell; `options` are the arguments of `fit`, its method among them; `more`: its sizes, what else it needs."""
    fitted: dict[str, Any] = {key: list(value) if isinstance(value, tuple) else value for key, value in options.items()}
    fitted |= {"method": with_rates(fitted["method"])} if "method" in fitted else {}
    whole: Cell = {"data": data, "labels": labels, "size": None, "examples": None, "tested": None, "noise": noise}
    return whole | more | {"seed": seed, "method": method, "fit": fitted}


def with_rates(method: str) -> str:
    """A method whose text says nothing of λ, or of u and v, with λ = 3 and automatic rates."""
    method = re.sub(r"\belr\b(?!\()", "elr(lam=3.0)", method)
    method = re.sub(r"\b(sop|sop_plus)\b(?!\()", r"\1()", method)
    return re.sub(r"\b(sop|sop_plus)\((?![^)]*lr_u)", r"\1(lr_u='auto', lr_v='auto', ", method).replace(", )", ")")


def in_full(scale: str, method: str) -> dict[str, Any]:
    """The arguments of `fit` at a scale whose cells have their methods in full; SOP+'s second view is strong."""
    options = {**IN_FULL[scale], "method": build(method).describe()}
    return {**options, "augment": ("weak", "strong")} if method == "sop_plus" else options


def sets(cell: Cell, data: DataDir) -> tuple[LabeledData, LabeledData]:
    """A cell's training set, its labels still the data set's, and its test set."""
    training, test = data.pair(cell["data"], labels=cell["labels"], image_size=cell["size"])
    return _some(training, cell["examples"], cell["seed"]), _some(test, cell["tested"], seed=0)


def train(cell: Cell, data: DataDir, **instead: Any) -> dict[str, Any]:
    """Train a cell; `instead` are arguments of `fit` in place of its own, e.g. its method, watched.

    Returns:
        those of `of_fit`, and curves, with None where an epoch has no such figure.
    """
    training, test = sets(cell, data)
    if cell["noise"] is not None:
        training = corruption.apply(training, cell["noise"], seed=cell["seed"])
    result = fit(data=training, test=test, seed=cell["seed"], device="auto", **{**cell["fit"], **instead})
    figures = of_fit(result)
    figures["curves"] = {
        key: [round(record[key], 4) if key in record else None for record in result.history]
        for key in CURVES
        if any(key in record for record in result.history)
    }
    return figures


def _some(data: LabeledData, count: int | None, seed: int) -> LabeledData:
    """So many examples of a data set, stratified by label."""
    return data if count is None or count >= len(data) else data.split(count / len(data), seed=seed)[1]


def last_and_best(figures: Sequence[dict[str, Any]]) -> str:
    """Test accuracy at the last epoch, and in brackets at the best by held-out noisy labels."""
    return "{} ({})".format(*spreads(figures, "last", "best"))


class Trained(Experiment):
    """An experiment whose cells are runs of `fit`."""

    kind: ClassVar[str | None] = "fit"

    def run(self, cell: Cell, data: DataDir) -> dict[str, Any]:
        return train(cell, data)


class Compared(Trained):
    """Methods in rows, kinds of noise in columns, test accuracy at the last epoch."""

    scales: ClassVar[tuple[str, ...]] = ("small", "features", "medium", "paper")
    settings: tuple[str, ...]  # kinds of noise, e.g. "symmetric:0.4"; "labels:COLUMN" of CIFAR-10N; or "none"
    methods: tuple[str, ...]
    at_paper: tuple[str, ...] = ("cifar10", "cifar100")  # data at the paper's scale; cifar10 alone at others
    gapped = True

    @abstractmethod
    def options(self, scale: str, data: str, method: str, noise: str) -> dict[str, Any]:
        """The arguments of `fit` for a method at a scale."""

    def cells(self, scale: str, seeds: int | None) -> list[Cell]:
        """Seed by seed, so that a part of it compares all methods; of features without those that take two views."""
        one = "cifar10-features" if scale == "features" else "cifar10"
        return [
            cell(data, method, seed, **_noise(noise), **SIZES[scale], options=options | _precision(scale, seed))
            for seed in range(seeds or RUNS[scale])
            for data in (self.at_paper if scale == "paper" else (one,))
            for noise in self.settings
            for method in self.methods
            for options in [self.options(scale, data, method, noise)]
            if scale != "features" or build(options["method"]).num_views == 1
        ]

    def draw(self, done: list[Done], path: Path) -> None:
        column = noise_of(done)
        groups = group(done, lambda c: (c["method"], column(c)))
        bars({key: [figures["last"] for figures in values] for key, values in groups.items()}, path, self.title)

    def table(self, done: list[Done]) -> Table:
        corner = "test accuracy, last (best)"
        return crossed(done, corner, lambda c: c["method"], noise_of(done), last_and_best)


def _precision(scale: str, seed: int) -> dict[str, str]:
    """Of a cell's steps. Within a seed, where methods are compared, it is the same."""
    return {"precision": "bfloat16"} if scale == "medium" and seed > 0 else {}


def _noise(setting: str) -> dict[str, str | None]:
    """The labels and the noise of a cell."""
    column = setting.partition("labels:")[2] or None
    return {"labels": column, "noise": None if column or setting == "none" else setting}


def noise_of(done: list[Done]) -> Callable[[Cell], str]:
    """What to call the noise of a cell: with its data set where there are several."""
    several = len({one.cell["data"] for one in done}) > 1
    return lambda c: (f"{c['data']} " if several else "") + (c["labels"] or c["noise"] or "none")

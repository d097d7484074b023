"""The experiments of Mirzasoleiman et al. (2020) that train networks: Figure 1 and Tables 1 and 2.

Table 2 is also the study that the defaults of `crust` come from: each selection, by observed and by predicted class,
with and without mixup. Its rows have the paper's fraction of 50 %, so that shares of right labels compare; "auto" has
the default one.

Differs from the paper: it trains on CIFAR-10 and CIFAR-100 only, its settings are `PAPER` here and `--scale paper`. The
α of mixup, which it does not give, is 1; nor does it mention a warm-up, ours are 5 epochs. Table 2 of the paper has no
`selection`: what its text describes are medoids, what its authors' code does is central. Its asymmetric noise is, by
that code, a derangement of the classes; Table 1 has the pairs of other papers, too.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
from torch import ones_like

from noiseproof.method import Method, Run, Selection, Wrapper
from noiseproof.methods import build
from noiseproof.methods.crust import GROUPS, SELECTIONS
from noiseproof.recipes import recipe
from noiseproof.runs.drawing import BLUE, GREEN, RED, YELLOW, count_epochs, legend_below, new_figure
from noiseproof_papers import fits
from noiseproof_papers.datadir import DataDir
from noiseproof_papers.drawing import frame, mean_and_range
from noiseproof_papers.experiment import Cell, Done, Table, crossed, group, spread, spreads

NOISES = ("symmetric:0.2", "symmetric:0.5", "symmetric:0.8", fits.ASYMMETRIC)
DERANGED = "derangement:0.4"
PAPER = recipe("crust-cifar")
PALETTE = (BLUE, RED, GREEN, YELLOW)
COLOURS = dict(zip(SELECTIONS, PALETTE, strict=False))
GREY = "0.55"


class Variant(NamedTuple):
    """A way to run CRUST around cross-entropy."""

    selection: str
    by: str
    mixup: float = 0.0
    fraction: float | str = 0.5
    weighted: bool = False

    @property
    def title(self) -> str:
        size = self.fraction if isinstance(self.fraction, str) else f"{100 * self.fraction:.0f} %"
        words = {size: self.fraction != 0.5, "weighted": self.weighted, "mixup": self.mixup > 0}
        return ", ".join([self.selection, self.by, *[word for word, there in words.items() if there]])

    @property
    def method(self) -> str:
        return (
            f"crust(ce, fraction={self.fraction!r}, selection={self.selection!r}, by={self.by!r}, "
            f"weighted={self.weighted}, mixup={self.mixup})"
        )


AS_PAPER = Variant("medoids", "prediction", mixup=1.0, weighted=True)  # Algorithm 1
AS_AUTHORS = recipe("crust-cifar-authors")["method"]
STUDY = (
    *(Variant(selection, by) for selection in SELECTIONS for by in GROUPS),
    *(Variant(selection, by, mixup=1.0) for selection in ("central", "medoids") for by in GROUPS),
    AS_PAPER,
    *(Variant(selection, "label", fraction="auto") for selection in SELECTIONS if selection != "medoids"),
    Variant("central", "label", mixup=1.0, fraction="auto"),
)


def _against_ce(variants: Iterable[Variant]) -> dict[str, str]:
    """Methods by their titles, cross-entropy before all."""
    return {"ce": "ce", **{variant.title: variant.method for variant in variants}}


class Watched(Wrapper):
    """Notes what share of each epoch's weight lies on right labels; None where all examples are visited."""

    name = "watched"

    def __init__(self, inner: Method) -> None:
        super().__init__(inner)
        self.right: list[float | None] = []

    def before_epoch(self, run: Run) -> Selection | None:
        chosen = super().before_epoch(run)
        self.right.append(None)
        if chosen is not None and run.data.wrong is not None:
            right = (~run.data.wrong[chosen.index]).float()
            weight = ones_like(right) if chosen.weight is None else chosen.weight
            self.right[-1] = round(float((right * weight).sum() / weight.sum()), 4)
        return chosen


class Figure1(fits.Trained):
    """Coresets of 30, 50 and 70 % at 50 % noise, weighted and not: right labels in them, training and test accuracy.

    The accuracy on the training set is against its true labels: only so can a coreset of 70 %, which holds wrong
    labels, end lower than one of 50 %, as it does in the paper's Figure 1 (b).
    """

    name = "crust-fig1"
    title = "Right labels in coresets of 30, 50 and 70 %, and what is learned from them"
    paper = "Mirzasoleiman et al. 2020, Figure 1"
    kind = None  # its figures have a curve more
    selections = ("central", "medoids")
    fractions = (0.3, 0.5, 0.7)
    noise = "symmetric:0.5"

    def cells(self, scale: str, seeds: int | None) -> list[Cell]:
        base, sizes = (fits.SMALL, fits.SMALL_DATA) if scale == "small" else (PAPER, {})
        variants = [
            Variant(selection, "prediction", 1.0, fraction, weighted)
            for selection in self.selections
            for weighted in (False, True)
            for fraction in self.fractions
        ]
        return [
            fits.cell("cifar10", title, seed, noise=self.noise, **sizes, options={**base, "method": method})
            for title, method in _against_ce(variants).items()
            for seed in range(seeds or 1)
        ]

    def run(self, cell: Cell, data: DataDir) -> dict[str, Any]:
        if cell["method"] == "ce":
            return fits.train(cell, data)
        watched = Watched(build(cell["fit"]["method"]))
        figures = fits.train(cell, data, method=watched)
        figures["curves"]["weight_right"] = watched.right
        return figures

    def draw(self, done: list[Done], path: Path) -> None:
        figure = new_figure(11.5, 3.2 * len(self.selections) + 0.5)
        grid = figure.subplots(len(self.selections), 3, squeeze=False, sharex=True, sharey="col")
        found = _curves(done)
        panels = ("selected_right", "train_true_accuracy", "test_accuracy")
        titles = ("(a) right labels in the coreset", "(b) training set, true labels", "(c) test set")
        for row, selection in zip(grid, self.selections, strict=True):
            for axis, key, title in zip(row, panels, titles, strict=True):
                if key != "selected_right":
                    _line(axis, found["ce"][key], "all examples (ce)", color=GREY)
                for fraction, colour in zip(self.fractions, PALETTE, strict=False):
                    for weighted, style in ((False, "-"), (True, "--")):
                        way = found[Variant(selection, "prediction", 1.0, fraction, weighted).title]
                        name = "weight_right" if weighted and key == "selected_right" else key
                        label = f"{100 * fraction:.0f} %{', weighted' if weighted else ''}"
                        _line(axis, way[name], label, color=colour, ls=style)
                if key == "selected_right":
                    _levels(axis, [one.figures["noise"] for one in done])
                frame(axis, f"{title}: {selection}", "epoch", "%")
        legend_below(figure, grid, 5)
        figure.savefig(path, dpi=130, format="png")

    def table(self, done: list[Done]) -> Table:
        header = ["", "right labels, last epoch", "of the weight", "train, true labels", "test, last", "test, best"]
        curves = ("selected_right", "weight_right", "train_true_accuracy")
        rows = [
            [method, *(spread(_last(figures, key)) for key in curves), *spreads(figures, "last", "best")]
            for method, figures in group(done, lambda c: c["method"]).items()
        ]
        return header, rows


class Table1(fits.Compared):
    """CRUST by default, as in the paper and as its authors ran it, against others. co_teaching is told the rate."""

    name = "crust-table1"
    title = "CRUST against other methods"
    paper = "Mirzasoleiman et al. 2020, Table 1"
    settings = (*NOISES[:3], DERANGED, fits.ASYMMETRIC)
    methods = (
        "ce", "forward", "co_teaching", "gce", "sce", "mixup", "elr", "sop", "crust as in the paper",
        "crust as the authors", "crust",
    )  # fmt: skip

    def options(self, scale: str, data: str, method: str, noise: str) -> dict[str, Any]:
        wrong = 0.2 if (data, noise) == ("cifar10", fits.ASYMMETRIC) else float(noise.split(":")[1])  # of all labels
        text = {
            "co_teaching": f"co_teaching(forget_rate={wrong})", "crust": "crust(ce)",
            "crust as in the paper": AS_PAPER.method, "crust as the authors": AS_AUTHORS,
        }  # fmt: skip
        asked = text.get(method, method)
        if scale in fits.IN_FULL:
            return fits.in_full(scale, asked)
        return {**(fits.SMALL if scale == "small" else PAPER), "method": asked}


class _Table2(fits.Trained):
    """Selection × classes × mixup on one data set, against cross-entropy."""

    title = "What removes wrong labels: selection, classes and mixup"
    paper = "Mirzasoleiman et al. 2020, Table 2"
    scales: ClassVar[tuple[str, ...]] = ("small",)
    data: ClassVar[str]
    sizes: ClassVar[dict[str, Any]] = {}
    base: ClassVar[dict[str, Any]] = {
        "model": "mlp", "epochs": 60, "batch_size": 64, "lr": 0.05, "val": 0.1, "eval_examples": 100,
    }  # fmt: skip
    noises: tuple[str | None, ...] = NOISES  # None: the labels that people gave

    def cells(self, scale: str, seeds: int | None) -> list[Cell]:
        base, sizes = (self.base, self.sizes) if scale == "small" else (PAPER, {})
        return [
            fits.cell(self.data, title, seed, noise=noise, labels=None if noise else "random_label1", **sizes,
                 options={**base, "method": method})
            for seed in range(seeds or 3)
            for noise in self.noises
            for title, method in {**_against_ce(STUDY), "as the authors": AS_AUTHORS}.items()
        ]  # fmt: skip

    def draw(self, done: list[Done], path: Path) -> None:
        columns = group(done, _noise)
        figure = new_figure(2.9 * len(columns) + 0.4, 6.2)
        grid = figure.subplots(2, len(columns), squeeze=False, sharex=True, sharey="row")
        for (noise, figures), (upper, lower) in zip(columns.items(), grid.T, strict=True):
            found = _curves([one for one in done if _noise(one.cell) == noise])
            _line(lower, found["ce"]["test_accuracy"], "all examples (ce)", color=GREY)
            for variant in STUDY:
                if variant.mixup or variant.weighted:
                    continue
                dots = ":" if variant.fraction == "auto" else "-" if variant.by == "label" else "--"
                style = {"color": COLOURS[variant.selection], "ls": dots}
                _line(upper, found[variant.title]["selected_right"], variant.title, **style)
                _line(lower, found[variant.title]["test_accuracy"], variant.title, **style)
            _levels(upper, [one["noise"] for one in figures])
            frame(upper, noise, "", "right labels in the coreset, %" if upper is grid[0, 0] else "")
            frame(lower, "", "epoch", "test accuracy, %" if lower is grid[1, 0] else "")
        legend_below(figure, grid, 5)
        half = "half of each class selected ('auto': as many as the network agrees with)"
        figure.suptitle(f"{self.data}: {half}", fontsize=11)
        figure.savefig(path, dpi=130, format="png")

    def table(self, done: list[Done]) -> Table:
        corner = "test, last (best); right labels of the share selected"
        return crossed(done, corner, lambda c: c["method"], _noise, _entry)


class Digits(_Table2):
    """mlp, 60 epochs."""

    name = "crust-table2-digits"
    data = "digits"


class Fashion(_Table2):
    """mlp, 5,000 images, 30 epochs."""

    name = "crust-table2-fashion"
    data = "fashion-mnist"
    sizes: ClassVar[dict[str, Any]] = {"examples": 5000, "tested": 1000}
    base: ClassVar[dict[str, Any]] = {**_Table2.base, "epochs": 30}


class Cifar(_Table2):
    """resnet8, 2,000 images of 16 × 16 pixels, 18 epochs; and the labels that people gave (CIFAR-10N)."""

    name = "crust-table2-cifar"
    scales = ("small", "paper")
    data = "cifar10"
    sizes: ClassVar[dict[str, Any]] = {**fits.SMALL_DATA, "examples": 2000, "tested": 1000}
    base: ClassVar[dict[str, Any]] = {**fits.SMALL, "epochs": 18, "eval_examples": 100}
    noises = (*NOISES, None)


def _noise(c: Cell) -> str:
    """What a cell's labels suffer from, for people."""
    if c["noise"] is None:
        return f"CIFAR-10N {c['labels']}"
    kind, rate = c["noise"].split(":")
    return f"{kind} {100 * float(rate):.0f} %"


def _last(figures: list[dict[str, Any]], key: str) -> list[float | None]:
    """The last value of a curve in each run; None where it has none."""
    return [f["curves"].get(key, [None])[-1] for f in figures]


def _entry(figures: list[dict[str, Any]]) -> str:
    """Last (best) test accuracy; what share of the labels selected at the end is right, and what share was selected."""
    right = [one for one in _last(figures, "selected_right") if one is not None]
    if not right:
        return fits.last_and_best(figures)
    selected = np.mean([f["selected"] for f in figures])
    return f"{fits.last_and_best(figures)}; {100 * np.mean(right):.0f} of {100 * selected:.0f} %"


def _curves(done: list[Done]) -> dict[str, dict[str, np.ndarray]]:
    """The curves of each method in %, (seeds, epochs), NaN where an epoch has none."""
    return {
        method: {key: 100 * np.array([f["curves"][key] for f in runs], dtype=float) for key in runs[0]["curves"]}
        for method, runs in group(done, lambda c: c["method"]).items()
    }


def _line(axis: Any, curves: np.ndarray, label: str, **style: Any) -> None:
    """Mean and range of curves (seeds, epochs)."""
    mean_and_range(axis, 1 + np.arange(curves.shape[1]), curves, lw=1.5, label=label, **style)


def _levels(axis: Any, noise: list[float]) -> None:
    """Where chance would be: the share of right labels among all."""
    axis.axhline(100 * (1 - float(np.mean(noise))), color="0.3", lw=1, ls=":", label="among all examples")
    axis.set_ylim(0, 102)
    count_epochs(axis)

"""The experiments of Liu et al. (2022) that train networks: Figure 1, Tables 1, 2 and 5, and CIFAR-10N as in Table 4.

At the small scale of fits.py rates of u and v are automatic: the paper's are for 120 epochs and more. At
the paper's scale: the recipes of its Table A.1 (recipes.py), and symmetric noise as its authors draw it, from all
classes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from noiseproof.recipes import recipe
from noiseproof.runs.plots import plot_runs
from noiseproof_papers.drawing import bars
from noiseproof_papers.experiment import Cell, Done, Table, crossed, group, spread, spreads
from noiseproof_papers.fits import ASYMMETRIC, IN_FULL, SIZES, SMALL, Compared, Trained, cell, in_full

DIGITS: dict[str, Any] = {
    "model": "mlp", "epochs": 100, "batch_size": 64, "lr": 0.05, "val": 0.1, "eval_examples": 1000,
}  # fmt: skip


def _options(scale: str, name: str, method: str, *, asymmetric: bool = False) -> dict[str, Any]:
    """The arguments of `fit` for a method of ours at a scale; `name` is the recipe that gives the paper's."""
    if scale == "small":
        options = {**SMALL, "method": method}
        return {**options, "augment": ("none", "strong")} if method == "sop_plus" else options
    if scale in IN_FULL:
        return in_full(scale, method)
    kind = f"{name}-{'asym' if asymmetric else 'sym'}"
    if method == "sop_plus":
        kind = kind.replace("sop-", "sop-plus-", 1)
    options = recipe(kind)
    return options if method in ("sop", "sop_plus") else {**options, "method": method}


def _noise(scale: str, noise: str | None) -> str | None:
    """The authors' symmetric noise at their scale: of the labels drawn anew, one in K comes back right."""
    if scale == "paper" and noise is not None and noise.startswith("symmetric:"):
        return noise.replace("symmetric", "symmetric-any")
    return noise


class Figure1(Trained):
    """Accuracy over the epochs, cross-entropy against SOP, at 0, 20 and 40 % noise."""

    name = "sop-fig1"
    title = "Training and test accuracy over the epochs, cross-entropy against SOP"
    paper = "Liu et al. 2022, Figure 1"
    scales = ("small", "medium", "paper")
    sets = ("cifar10", "fashion-mnist")
    gapped = True

    def cells(self, scale: str, seeds: int | None) -> list[Cell]:
        cells = []
        for data in self.sets if scale == "small" else self.sets[:1]:
            sizes = SIZES[scale] | ({"size": None} if data == "fashion-mnist" else {})
            for noise in (None, "symmetric:0.2", "symmetric:0.4"):
                for method in ("ce", "sop"):
                    options = _options(scale, "sop-cifar10", method)
                    options |= {"model": "preact_resnet18(variant='sop')"} if scale == "paper" else {}
                    drawn = _noise(scale, noise)
                    cells += [cell(data, method, s, noise=drawn, **sizes, options=options) for s in range(seeds or 1)]
        return cells

    def draw(self, done: list[Done], path: Path) -> None:
        runs: dict[str, list[list[dict[str, float]]]] = {}
        for one in done:
            rate = 100 * float((one.cell["noise"] or "symmetric:0").split(":")[1])
            curves = one.figures["curves"]
            history = [dict(zip(curves, values, strict=True)) for values in zip(*curves.values(), strict=True)]
            runs.setdefault(f"{one.cell['data']}, {rate:.0f} %: {one.cell['method']}", []).append(history)
        plot_runs(runs, path, title="Training on noisy labels, and what the test says", columns=6)

    def table(self, done: list[Done]) -> Table:
        groups = group(done, lambda c: (c["data"], c["noise"] or "none", c["method"]))
        header = ["data", "noise", "method", "noisy labels fitted", "test, last", "test, best"]
        return header, [[*key, *spreads(fs, "fitted", "last", "best")] for key, fs in groups.items()]


class _Compared(Compared):
    """With the paper's recipes."""

    def cells(self, scale: str, seeds: int | None) -> list[Cell]:
        return [{**one, "noise": _noise(scale, one["noise"])} for one in super().cells(scale, seeds)]

    def options(self, scale: str, data: str, method: str, noise: str) -> dict[str, Any]:
        return _options(scale, f"sop-{data}", method, asymmetric=noise == ASYMMETRIC)


class Table1(_Compared):
    """Symmetric noise."""

    name = "sop-table1"
    title = "Test accuracy with symmetric noise"
    paper = "Liu et al. 2022, Table 1"
    settings = ("symmetric:0.2", "symmetric:0.4", "symmetric:0.6", "symmetric:0.8")
    methods = ("ce", "forward", "gce", "sce", "elr", "sop")


class Table2(_Compared):
    """SOP+ against cross-entropy, mixup and ELR. ELR+ and DivideMix, which train two networks, are not in it."""

    scales = ("small", "medium", "paper")
    name = "sop-table2"
    title = "SOP+ with symmetric and asymmetric noise"
    paper = "Liu et al. 2022, Table 2"
    settings = ("symmetric:0.2", "symmetric:0.5", "symmetric:0.8", ASYMMETRIC)
    methods = ("ce", "mixup", "elr", "sop", "sop_plus")


class Table5(Trained):
    """Time: every method in turn in one process, a few epochs, several rounds."""

    name = "sop-table5"
    title = "Training time relative to cross-entropy"
    paper = "Liu et al. 2022, Table 5"
    timed = True
    kind = None
    methods = ("ce", "co_teaching(forget_rate=0.5)", "elr", "sop", "sop_plus")

    def cells(self, scale: str, seeds: int | None) -> list[Cell]:
        sizes: dict[str, Any] = {"examples": 2000, "tested": 500} if scale == "small" else {}
        cells = []
        for seed in range(seeds or 3):
            for method in self.methods:
                options = _options(scale, "sop-cifar10", method)
                if scale == "small":
                    options |= {"model": "resnet8", "epochs": 2, "eval_examples": 100}
                noise = _noise(scale, "symmetric:0.5")
                cells.append(cell("cifar10", method, seed, noise=noise, **sizes, options=options))
        return cells

    def draw(self, done: list[Done], path: Path) -> None:
        ratios = {(method, "time / ce"): values for method, values in self._ratios(done).items()}
        bars(ratios, path, self.title, percent=False)

    def table(self, done: list[Done]) -> Table:
        seconds = group(done, lambda c: c["method"])
        header = ["method", "seconds", "relative to ce"]
        return header, [
            [method, spread([f["seconds"] for f in seconds[method]], percent=False), spread(ratio, percent=False)]
            for method, ratio in self._ratios(done).items()
        ]

    def _ratios(self, done: list[Done]) -> dict[str, list[float]]:
        seconds = {(one.cell["method"], one.cell["seed"]): one.figures["seconds"] for one in done}
        seeds = sorted({seed for _, seed in seconds})
        return {method: [seconds[method, s] / seconds["ce", s] for s in seeds] for method in self.methods}


class CIFAR10N(_Compared):
    """Human label noise."""

    name = "sop-cifar10n"
    title = "Human label noise: CIFAR-10N"
    paper = "Liu et al. 2022, Table 4"
    at_paper = ("cifar10",)
    settings = ("labels:aggre_label", "labels:random_label1")
    methods = ("ce", "gce", "elr", "sop", "sop_plus")

    def table(self, done: list[Done]) -> Table:
        groups = group(done, lambda c: (c["labels"], c["method"]))
        header = ["labels", "method", "test, last", "test, best", "wrong labels memorised", "AUROC", "AUPRC"]
        return header, [
            [*key, *spreads(fs, "last", "best", "memorised"), *spreads(fs, "auroc", "auprc", percent=False)]
            for key, fs in groups.items()
        ]


class Digits(Trained):
    """Methods in rows, kinds of noise or lengths of the run in columns, on digits: test accuracy, AUROC."""

    scales = ("small",)
    gapped = True
    settings: tuple[tuple[str, int], ...]  # noise and epochs of each column
    heading: str  # of a column, filled in from a cell of it
    methods: tuple[str, ...]

    def cells(self, scale: str, seeds: int | None) -> list[Cell]:
        return [
            cell("digits", method, seed, noise=noise, options={**DIGITS, "epochs": epochs, "method": method})
            for noise, epochs in self.settings
            for method in self.methods
            for seed in range(seeds or 3)
        ]

    def draw(self, done: list[Done], path: Path) -> None:
        groups = group(done, lambda c: (c["method"], self.heading.format(**c)))
        bars({key: [f["last"] for f in fs] for key, fs in groups.items()}, path, self.title)

    def table(self, done: list[Done]) -> Table:
        def entry(figures: list[dict[str, Any]]) -> str:
            return ", ".join(spreads(figures, "last") + spreads(figures, "auroc", percent=False))

        corner = "test accuracy, last; AUROC"
        return crossed(done, corner, lambda c: c["method"], lambda c: self.heading.format(**c), entry)


class Variants(Digits):
    """The authors' code against Algorithm 1, automatic rates against fixed ones, over kinds of noise."""

    name = "sop-variants"
    title = "SOP as in the authors' code and as in the paper, over kinds of noise"
    paper = "Liu et al. 2022, Algorithm 1"
    heading = "{noise}"
    settings = (
        ("symmetric:0.2", 100), ("symmetric:0.4", 100), ("symmetric:0.6", 100),
        ("pair:0.3", 100), ("instance:0.3", 100),
    )  # fmt: skip
    methods = (
        "ce",
        "sop(variant='authors')",
        "sop(variant='paper')",
        "sop(variant='authors', lr_u=10, lr_v=10)",
        "sop(variant='paper', lr_u=10, lr_v=10)",
        "sop(variant='authors', lr_u=0.1, lr_v=10)",
        "sop(variant='authors', lr_u=10, lr_v=100)",
    )


class Visits(Digits):
    """Automatic rates: how fast should a label that the network always contradicts be explained away?"""

    name = "sop-visits"
    title = "SOP's automatic rates over the length of the run"
    paper = "Liu et al. 2022, Algorithm 1"
    heading = "{fit[epochs]} epochs"
    settings = (("symmetric:0.4", 30), ("symmetric:0.4", 100), ("symmetric:0.4", 200))
    methods = ("ce", "sop(visits=8)", "sop(visits=12)", "sop(visits=15)", "sop(visits=25)", "sop(visits=40)")

"""The experiments of Zhou et al. (2021) that train networks, and what a pre-trained start is worth with noisy labels.

`sane-tables`: features learned without labels by MoCo and by SANE with parts of it left out, probed with k nearest
neighbours and a linear classifier: the rows of ours in Table 1, and the ablations, Tables 4, 5 and 6, in one grid.

`sane-init`, not in the paper: `fit --init` from a SANE backbone of the same images, against random weights, on labels
of which a part is wrong; and how well neighbours in SANE's features find those labels.

The small scale: resnet8 on 5,000 images at 16 × 16 pixels (Fashion-MNIST: 2,000 at 28 × 28), 30 epochs, a dictionary of
2,048, batches of 128 at rate 0.06, weak augmentation where a row does not say strong. At the paper's scale: ResNet-50,
2,000 epochs for the rows of Table 1 and 1,000 for the others, strong augmentation in Tables 4 and 5.
"""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from noiseproof.benching.trial import find_wrong
from noiseproof.data import LabeledData, Normalize
from noiseproof.data import noise as corruption
from noiseproof.data.input_form import InputForm
from noiseproof.pretraining import pretrain, probe
from noiseproof.recipes import recipe
from noiseproof.runs.drawing import BLUE, GREEN, RED, count_epochs, legend_below, new_figure
from noiseproof.runs.loading import untrained
from noiseproof.runs.trained import Features
from noiseproof_papers.datadir import DataDir
from noiseproof_papers.drawing import frame, mean_and_range
from noiseproof_papers.experiment import Cell, Done, Experiment, Table, crossed, group, spread, spreads
from noiseproof_papers.fits import SMALL, SMALL_DATA, Trained, cell, last_and_best, sets, train

STRONG = "sane-strong"
PAPER_RUN: dict[str, Any] = {**recipe("moco-cifar10", "pretrain"), "probe_every": 0}
SMALL_RUN: dict[str, Any] = {"model": "resnet8", "epochs": 30, "batch_size": 128, "lr": 0.06, "probe_every": 0}
SMALL_IMAGES: dict[str, dict[str, Any]] = {
    "cifar10": {"size": 16, "examples": 5000, "tested": 2000},
    "fashion-mnist": {"examples": 2000, "tested": 2000},
}


class Row(NamedTuple):
    """A way to learn features: the options of `sane`, and the tables of the paper it is in."""

    tables: str
    options: dict[str, Any] | None  # None: MoCo
    strong: bool = False  # extra views for the mixup, strongly augmented
    epochs: int = 1000  # at the paper's scale

    def method(self, dictionary: int) -> str:
        options = dict(self.options or {}) | {"dictionary_size": dictionary}
        options |= {"crops": 1} if self.strong else {}
        return f"{'moco' if self.options is None else 'sane'}({', '.join(f'{k}={v!r}' for k, v in options.items())})"


ONE_HOT: dict[str, Any] = {"p": False, "q": False}
UNMIXED: dict[str, Any] = {"mixup": "none"}
ROWS = {
    "moco": Row("1, 4, 5", None),
    "p": Row("4", {"q": False, **UNMIXED}),
    "q": Row("4", {"p": False, **UNMIXED}),
    "p, q": Row("4", UNMIXED),
    "momentum mixup": Row("4, 6", ONE_HOT),
    "p, momentum mixup": Row("4", {"q": False}),
    "q, momentum mixup": Row("4", {"p": False}),
    "sane": Row("1, 4, 5", {}),
    "sane, λ = 0.25": Row("5", {"lam": 0.25}),
    "sane, λ = 0.75": Row("5", {"lam": 0.75}),
    "sane, λ = 1": Row("5", {"lam": 1.0}),
    "vanilla mixup": Row("6", {**ONE_HOT, "mixup": "vanilla"}),
    "vanilla mixup, strong": Row("6", {**ONE_HOT, "mixup": "vanilla"}, strong=True),
    "momentum mixup, strong": Row("6", ONE_HOT, strong=True),
    "sane, strong": Row("1", {}, strong=True),
    "momentum mixup, strong key": Row("6", {**ONE_HOT, "side": "key"}, strong=True),  # Algorithm 1 as printed
    "sane, strong key": Row("1", {"side": "key"}, strong=True),
}
PAPER_ROWS = {
    "moco": ROWS["moco"]._replace(tables="1", epochs=2000),
    "sane": ROWS["sane"]._replace(tables="1", epochs=2000),
    "sane, strong": ROWS["sane, strong"]._replace(epochs=2000),
    "moco, 1,000 epochs": ROWS["moco"]._replace(tables="4, 5"),
    "sane, strong, 1,000 epochs": ROWS["sane, strong"]._replace(tables="4, 5"),
    **{f"{name}, strong": row._replace(strong=True) for name, row in ROWS.items() if row.tables in ("4", "5")},
    "momentum mixup, strong": ROWS["momentum mixup, strong"]._replace(tables="4, 6"),
    **{name: ROWS[name]._replace(tables="6") for name in ("momentum mixup", "vanilla mixup", "vanilla mixup, strong")},
}
RANDOM = "random weights"
VARIED = ("noise", "method", "fit")  # what the cells of a seed differ in


def run_of(row: Row, scale: str) -> dict[str, Any]:
    """The arguments of `pretrain`."""
    more: dict[str, Any] = {"mix_augment": STRONG} if row.strong else {}
    if scale == "small":
        return {**SMALL_RUN, **more, "method": row.method(2048)}
    return {**PAPER_RUN, "epochs": row.epochs, **more, "method": row.method(4096)}


class Tables(Experiment):
    """Features learned without labels: which parts of SANE help?"""

    name = "sane-tables"
    title = "Features learned without labels, by MoCo and by parts of SANE"
    paper = "Zhou et al. 2021, Tables 1, 4, 5, 6"
    settings: ClassVar[tuple[str, ...]] = ("cifar10", "fashion-mnist")
    rows: ClassVar[dict[str, dict[str, Row]]] = {"small": ROWS, "paper": PAPER_ROWS}

    def cells(self, scale: str, seeds: int | None) -> list[Cell]:
        runs = {name: (row.tables, run_of(row, scale)) for name, row in self.rows[scale].items()}
        sizes = SMALL_IMAGES if scale == "small" else {}
        runs[RANDOM] = ("–", {**runs["moco"][1], "epochs": 0})
        cells = [
            cell(data, name, seed, **sizes.get(data, {}), options={}) | {"tables": tables, "pretrain": run}
            for data in (self.settings if scale == "small" else self.settings[:1])
            for seed in range(seeds or (3 if scale == "small" else 1))
            for name, (tables, run) in runs.items()
        ]
        return [{key: value for key, value in one.items() if key != "fit"} for one in cells]

    def run(self, cell: Cell, data: DataDir) -> dict[str, Any]:
        training, test = sets(cell, data)
        features = learn(training, cell["seed"], cell["pretrain"])
        return probe.probe(features, training, test)

    def draw(self, done: list[Done], path: Path) -> None:
        groups = group(done, lambda c: (c["data"], c["method"]))
        found = list(dict.fromkeys(data for data, _ in groups))
        names = list(dict.fromkeys(name for _, name in groups))[::-1]
        figure = new_figure(4.2 * len(found) + 1.6, 1.4 + 0.32 * len(names))
        grid = figure.subplots(1, len(found), squeeze=False, sharey=True)[0]
        for axis, data in zip(grid, found, strict=True):
            for key, colour, marker in (("knn", BLUE, "o"), ("linear", RED, "s")):
                values = 100 * np.array([[one[key] for one in groups[data, name]] for name in names])  # (rows, seeds)
                axis.plot(values, range(len(names)), marker, color=colour, ms=3, alpha=0.45)
                label = "50-NN" if key == "knn" else "linear"
                axis.plot(values.mean(axis=1), range(len(names)), marker, color=colour, ms=6, label=label)
            axis.set_yticks(range(len(names)), names)
            frame(axis, data, "test accuracy, %", "")
        legend_below(figure, grid, columns=2)
        figure.savefig(path, dpi=130, format="png")

    def table(self, done: list[Done]) -> Table:
        groups = group(done, lambda c: (c["method"], c["tables"], c["data"]))
        found = list(dict.fromkeys(data for *_, data in groups))
        header = ["", "of Table", *(f"{data}: {what}" for data in found for what in ("50-NN", "linear"))]
        return header, [
            [name, tables, *(one for data in found for one in spreads(groups[name, tables, data], "knn", "linear"))]
            for name, tables in dict.fromkeys(key[:2] for key in groups)
        ]


class Init(Trained):
    """Robust methods that start from SANE's features, or from random weights."""

    name = "sane-init"
    title = "Training on noisy labels from a backbone that saw no label"
    paper = "Zhou et al. 2021, not in it"
    scales = ("small",)
    starts: ClassVar[dict[str, dict[str, Any] | None]] = {"random": None, "sane": run_of(ROWS["sane"], "small")}
    noises = ("symmetric:0.2", "symmetric:0.5", "symmetric:0.8")
    methods = ("ce", "sop")

    def cells(self, scale: str, seeds: int | None) -> list[Cell]:
        return [
            cell("cifar10", method, seed, noise=noise, **SMALL_DATA, options={**SMALL, "method": method})
            | ({} if start is None else {"init": start})
            for seed in range(seeds or 3)  # outermost: a process learns the features of a seed once
            for start in self.starts.values()
            for noise in self.noises
            for method in self.methods
        ]

    def run(self, cell: Cell, data: DataDir) -> dict[str, Any]:
        if "init" not in cell:
            return train(cell, data)
        features = _learned(data.root, json.dumps({key: cell[key] for key in cell if key not in VARIED}))
        noisy = corruption.apply(sets(cell, data)[0], cell["noise"], seed=cell["seed"])
        assert noisy.wrong is not None
        found = find_wrong(noisy.wrong.numpy(), probe.neighbourhood(features(noisy), noisy.labels).suspicion.numpy())
        return train(cell, data, init=features) | {"neighbours": found["auroc"]}

    def draw(self, done: list[Done], path: Path) -> None:
        groups = group(done, lambda c: (c["noise"], c["method"], _start(c)))
        figure = new_figure(3.1 * len(self.noises) + 0.5, 3.4)
        grid = figure.subplots(1, len(self.noises), squeeze=False, sharey=True)[0]
        colours = dict(zip(self.methods, ("#7f8c8d", GREEN), strict=True))
        for axis, noise in zip(grid, self.noises, strict=True):
            for method in self.methods:
                for start, style in (("random", "--"), ("sane", "-")):
                    curves = 100 * np.array([one["curves"]["test_accuracy"] for one in groups[noise, method, start]])
                    epochs, label = 1 + np.arange(curves.shape[1]), f"{method}, {start} start"
                    look = {"ls": style, "color": colours[method], "lw": 1.6, "label": label}
                    mean_and_range(axis, epochs, curves, alpha=0.12, **look)
            frame(axis, noise, "epoch", "test accuracy, %" if axis is grid[0] else "")
            count_epochs(axis)
        legend_below(figure, grid, columns=4)
        figure.savefig(path, dpi=130, format="png")

    def table(self, done: list[Done]) -> Table:
        def entry(figures: list[dict[str, Any]]) -> str:
            return f"{last_and_best(figures)}; {spread([f['auroc'] for f in figures], percent=False)}"

        def row(cell: Cell) -> str:
            return f"{cell['method']}, {_start(cell)} start"

        header, rows = crossed(done, "test, last (best); AUROC of wrong labels", row, lambda c: c["noise"], entry)
        seen = group([one for one in done if "init" in one.cell], lambda c: (c["method"], c["noise"]))
        areas = [spreads(seen[self.methods[0], noise], "neighbours", percent=False)[0] for noise in self.noises]
        return header, [*rows, ["neighbours in SANE's features", *(f"–; {area}" for area in areas)]]


def learn(training: LabeledData, seed: int, options: dict[str, Any]) -> Features:
    """The features that `pretrain` with these options learns; after 0 epochs, those of its random weights."""
    if options["epochs"]:
        return pretrain(data=training, seed=seed, **options).features
    normalize = Normalize.of(training.take, len(training), image=training.is_image)
    return untrained(options["model"], normalize, InputForm.of(training), seed)


@lru_cache(maxsize=1)
def _learned(root: Path | None, text: str) -> Features:
    """The features that cells of one seed begin with, of which `text` is the JSON."""
    cell = json.loads(text)
    return learn(sets(cell, DataDir(root))[0], cell["seed"], cell["init"])


def _start(c: Cell) -> str:
    return "sane" if "init" in c else "random"

"""Are the defaults safe? `sop` and `elr` as they come against `ce`, over data sets, kinds of noise, lengths of a run.

Not of a paper: what a user meets. The data sets are small, so that a run takes seconds: digits and 4,000 images of
Fashion-MNIST by an mlp, frozen features of 10,000 images of CIFAR-10 by an mlp, and 1,500 photos (CIFAR-10 at 32 × 32
pixels, crops and flips) by a resnet8, which in 12 or 30 epochs is far from having learned them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from noiseproof.data import noise as corruption
from noiseproof.training.fit import fit
from noiseproof_papers.datadir import DataDir
from noiseproof_papers.drawing import bars
from noiseproof_papers.experiment import Cell, Done, Table, group, spread, spreads
from noiseproof_papers.fits import CURVES, Trained, cell, find_wrong, sets

NOISE = ("symmetric:0", "symmetric:0.2", "symmetric:0.4", "symmetric:0.6", "asymmetric:0.4", "pair:0.3", "instance:0.3")
HUMAN = ("aggre_label", "random_label1")
SHARED: dict[str, Any] = {"lr": 0.05, "val": 0.1, "eval_examples": 500}
SETTINGS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {  # name: the data of a cell, the arguments of `fit`
    "digits": ({"data": "digits"}, {"model": "mlp", "epochs": 60, "batch_size": 64}),
    "fashion": ({"data": "fashion-mnist", "examples": 3000, "tested": 5000}, {"model": "mlp", "epochs": 40}),
    "features": ({"data": "cifar10-features", "examples": 4000}, {"model": "mlp", "epochs": 30}),
    **{
        f"photos, {epochs} epochs": (
            {"data": "cifar10", "size": 16, "examples": 1500, "tested": 5000},
            {"model": "resnet8", "epochs": epochs, "augment": "weak"},
        )
        for epochs in (12, 30)
    },
}
METHODS = ("ce", "elr", "sop")


class Defaults(Trained):
    """Data sets and kinds of noise in rows."""

    name = "defaults-grid"
    title = "The defaults of sop and elr against cross-entropy"
    paper = "Liu et al. 2020 and 2022"
    scales = ("small",)
    kind = None  # what the defaults are may change, and a cell says only their names

    def cells(self, scale: str, seeds: int | None) -> list[Cell]:
        return [
            cell(
                method=method, seed=seed, noise=noise, labels=labels, **data,
                options={**SHARED, **options, "method": method}, besides={"setting": setting},
            )
            for setting, (data, options) in SETTINGS.items()
            for noise, labels in _noises(data["data"])
            for seed in range(seeds or 3)
            for method in METHODS
        ]  # fmt: skip

    def run(self, cell: Cell, data: DataDir) -> dict[str, Any]:
        """As `train`, but tested once, at the end: in runs this short the tests would cost more than the training."""
        training, test = sets(cell, data)
        if cell["noise"] is not None:
            training = corruption.apply(training, cell["noise"], seed=cell["seed"])
        result = fit(data=training, seed=cell["seed"], device="auto", **cell["fit"])
        right = result.predict(test) == test.labels.numpy()
        trained = result.split == "train"
        assert training.wrong is not None
        found = find_wrong(training.wrong.numpy()[trained], result.beliefs.suspicion.numpy()[trained])
        curves = {
            key: [round(record[key], 4) for record in result.history] for key in CURVES if key in result.history[0]
        }
        return {
            "last": float(right.mean()),
            "memorised": result.final.get("train_memorised"),
            **found,
            "curves": curves,
        }

    def draw(self, done: list[Done], path: Path) -> None:
        groups = group(done, lambda c: (c["method"], f"{c['setting']}, {_noise(c)}"))
        bars({key: [f["last"] for f in fs] for key, fs in groups.items()}, path, self.title)

    def table(self, done: list[Done]) -> Table:
        groups = group(done, lambda c: (c["setting"], _noise(c), c["method"]))
        rows = []
        for setting, noise in dict.fromkeys(key[:2] for key in groups):
            ce, elr, sop = (groups[setting, noise, method] for method in METHODS)
            shares = [
                spread([f["curves"].get(key, [None])[-1] for f in sop])
                for key in ("explained_right", "explained_wrong")
            ]
            finds = [*spreads(elr, "auroc", percent=False), *spreads(sop, "auroc", percent=False)]
            last = [spreads(figures, "last")[0] for figures in (ce, elr, sop)]
            rows.append([setting, noise, *last, *spreads(ce, "memorised"), *spreads(sop, "memorised"), *shares, *finds])
        header = ["data", "noise", *METHODS, "memorised by ce", "by sop", "right labels explained away", "wrong"]
        return [*header, "AUROC of elr", "of sop"], rows


def _noises(data: str) -> list[tuple[str | None, str | None]]:
    """Noise to add, or a column of human labels: the kinds a data set can have."""
    human = HUMAN if data.startswith("cifar10") else ()
    return [(noise, None) for noise in NOISE] + [(None, labels) for labels in human]


def _noise(cell: Cell) -> str:
    kind = cell["labels"] or cell["noise"]
    return "none" if kind == NOISE[0] else kind.replace("_label", "")

"""Do the methods ever hurt? `sop` and `elr` against `ce`, over data sets, kinds of noise, lengths of a run.

Not of a paper: what a user meets. The data sets are small, so that a run takes seconds: digits and 3,000 images of
Fashion-MNIST by an mlp, frozen features of 4,000 images of CIFAR-10 by an mlp, and 1,500 photos (CIFAR-10 at 16 × 16
pixels, crops and flips) by a resnet8, which in 12 or 30 epochs is far from having learned them. Each method with the λ
or the rates that were its default, and waiting for the network to memorise, as it is now (methods/waking.py).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from noiseproof.benching.trial import find_wrong
from noiseproof.data import noise as corruption
from noiseproof.training.fit import fit
from noiseproof_papers.datadir import DataDir
from noiseproof_papers.drawing import bars
from noiseproof_papers.experiment import Cell, Done, Table, group, spreads
from noiseproof_papers.fits import Trained, cell, sets

NOISE = ("symmetric:0", "symmetric:0.2", "symmetric:0.4", "symmetric:0.6", "asymmetric:0.4", "pair:0.3", "instance:0.3")
KINDS = ("right", "wrong")
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
METHODS = {
    "ce": "ce",
    "elr": "elr(beta=0.7, lam=3.0)",
    "sop": "sop(lr_u='auto', lr_v='auto')",
    "elr, waiting": "elr(lam='auto', beta=0.9)",
    "sop, waiting": "sop(lr_u='follow', lr_v='follow')",
}
SOPS = ("sop", "sop, waiting")


class Defaults(Trained):
    """Data sets and kinds of noise in rows."""

    name = "defaults-grid"
    title = "sop and elr, with rates and waiting, against cross-entropy"
    paper = "Liu et al. 2020 and 2022"
    scales = ("small",)
    kind = None  # what the defaults are may change, and a cell says only their names

    def cells(self, scale: str, seeds: int | None) -> list[Cell]:
        return [
            cell(
                method=name, seed=seed, noise=noise, labels=labels, **data,
                options={**SHARED, **options, "method": method}, setting=setting,
            )
            for seed in range(seeds or 3)
            for setting, (data, options) in SETTINGS.items()
            for noise, labels in _noises(data["data"])
            for name, method in METHODS.items()
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
        last = {key: result.history[-1].get(key) for key in ("awake", "explained_right", "explained_wrong")}
        return {"last": float(right.mean()), "memorised": result.final.get("train_memorised"), **found, **last}

    def draw(self, done: list[Done], path: Path) -> None:
        groups = group(done, lambda c: (c["method"], f"{c['setting']}, {_noise(c)}"))
        bars({key: [f["last"] for f in fs] for key, fs in groups.items()}, path, self.title)

    def table(self, done: list[Done]) -> Table:
        groups = group(done, lambda c: (c["setting"], _noise(c), c["method"]))
        rows = []
        for setting, noise in dict.fromkeys(key[:2] for key in groups):
            found = {name: groups[setting, noise, name] for name in METHODS}
            last = [spreads(figures, "last")[0] for figures in found.values()]
            explained = [
                spreads(found[name], f"explained_{kind}")[0] for name in ("sop", "sop, waiting") for kind in KINDS
            ]
            finds = [spreads(figures, "auroc", percent=False)[0] for figures in list(found.values())[1:]]
            rows.append([setting, noise, *last, *spreads(found["ce"], "memorised"), *explained, *finds])
        header = ["data", "noise", *METHODS, "memorised by ce"]
        header += [f"{kind} labels explained away by {name}" for name in SOPS for kind in KINDS]
        return [*header, *(f"AUROC of {name}" for name in list(METHODS)[1:])], rows


def _noises(data: str) -> list[tuple[str | None, str | None]]:
    """Noise to add, or a column of human labels: the kinds a data set can have."""
    human = HUMAN if data.startswith("cifar10") else ()
    return [(noise, None) for noise in NOISE] + [(None, labels) for labels in human]


def _noise(cell: Cell) -> str:
    kind = cell["labels"] or cell["noise"]
    return "none" if kind == NOISE[0] else kind.replace("_label", "")

"""The theory of CRUST on a small network: what its coresets do to the Jacobian, and how many wrong labels they hold.

A network is trained by cross-entropy on digits with half of the labels wrong, for a few epochs and until it memorises.
Half of 240 of its training examples are then selected, in each way, by the gradients of the last layer and by the exact
ones of all parameters, and put to the statements of papers/crust/bounds.py. Five classes: the margin δ = 2/(C − 1) of
labels in [−1, 1] is then ½, and Theorem 4.1 asks for less than δ/8 = 6.25 % of wrong labels.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from noiseproof.coreset.gradients import last_layer_gradients
from noiseproof.coreset.nearest import nearest_to_centre as core
from noiseproof.data import LabeledData
from noiseproof.data import noise as corruption
from noiseproof.jacobian.operator import Jacobian
from noiseproof.jacobian.singular import spectrum_of_gram
from noiseproof.runs.drawing import BLUE, RED, new_figure
from noiseproof.training.fit import fit
from noiseproof_papers.crust import bounds as coresets
from noiseproof_papers.crust.gradients import full_gradients
from noiseproof_papers.crust.trimmed import facility_location
from noiseproof_papers.datadir import DataDir
from noiseproof_papers.drawing import frame
from noiseproof_papers.experiment import Cell, Done, Experiment, Table, group, spreads, where


class Theory(Experiment):
    """Eq. (7), the noise ratio of Theorem 4.1 and the nuisance space, for each selection."""

    name = "crust-theory"
    title = "What coresets do to the Jacobian, and how many wrong labels they hold"
    paper = "Mirzasoleiman et al. 2020, Section 4.1"
    scales = ("small",)

    CLASSES, EXAMPLES, SHARE = 5, 240, 0.5
    SELECTIONS = ("medoids", "trimmed", "central", "core", "random")
    TRIM = 0.25  # what "trimmed" leaves uncovered; with 1 − SHARE any choice would do
    EPOCHS = (5, 100)  # before and after the network memorises
    NETWORK, NOISE = "mlp(widths=(64,))", "symmetric:0.5"
    RATIO = 0.1  # of the largest singular value, where the nuisance space begins

    def cells(self, scale: str, seeds: int | None) -> list[Cell]:
        return [{"epochs": epochs, "seed": seed} for epochs in self.EPOCHS for seed in range(seeds or 3)]

    def run(self, cell: Cell, data: DataDir) -> dict[str, Any]:
        training, _ = data.pair("digits")
        rows = (training.labels < self.CLASSES).nonzero().squeeze(1)
        clean = LabeledData(training.take(rows), training.labels[rows])
        noisy = corruption.apply(clean, self.NOISE, seed=cell["seed"])
        result = fit(self.NETWORK, noisy, "ce", epochs=cell["epochs"], batch_size=64, lr=0.05, seed=cell["seed"])
        some = noisy.subset(torch.randperm(len(noisy), generator=torch.Generator().manual_seed(0))[: self.EXAMPLES])
        assert some.wrong is not None
        model, inputs = result.model.double(), result.run.normalize(some.take(torch.arange(len(some)))).double()
        jacobian = Jacobian(model, inputs)
        gram = jacobian.gram()
        with torch.no_grad():
            probability = model(inputs).softmax(dim=1)
        guess = probability.argmax(dim=1)
        gradients = {
            "last layer": last_layer_gradients(probability, some.labels),
            "exact": full_gradients(model, inputs, some.labels),
        }
        return {
            "ways": [
                {"gradient": gradient, "by": by, "selection": selection}
                | self.measure(
                    gram, jacobian.shape[1], some, classes, *self.select(points, selection, classes, cell["seed"])
                )
                for gradient, points in gradients.items()
                for by, classes in (("label", some.labels), ("prediction", guess))
                for selection in self.SELECTIONS
            ],
            "noise": float(some.wrong.double().mean()),
            "memorised": float((guess == some.labels)[some.wrong].double().mean()),
            "all": self._nuisance(gram, jacobian.shape[1], some),
            "gradients": _compare(gradients["last layer"], gradients["exact"]),
        }

    def select(self, points: Tensor, selection: str, classes: Tensor, seed: int) -> tuple[Tensor, Tensor]:
        """Half of each class: the coreset (k,), and whom each example belongs to (n,), a position in it or −1."""
        classes = classes.unique(return_inverse=True)[1]
        if selection == "random":
            order = torch.randperm(len(classes), generator=torch.Generator().manual_seed(seed))
            members = [order[classes[order] == one] for one in range(int(classes.max()) + 1)]
            index = torch.cat([rows[: max(1, round(self.SHARE * len(rows)))] for rows in members])
            apart = torch.cdist(points, points[index]).masked_fill(classes[:, None] != classes[index], torch.inf)
            apart[index, torch.arange(len(index))] = -1  # each to itself, even among equals
            return index, apart.argmin(dim=1)
        if selection == "core":
            found = core(points, self.SHARE, groups=classes)
        else:
            algorithm = "lazy" if selection == "medoids" else selection
            trim = self.TRIM if selection == "trimmed" else None
            found = facility_location(points, self.SHARE, algorithm=algorithm, groups=classes, trim=trim)
        return found.indices, found.assignment

    def measure(
        self, gram: Tensor, columns: int, data: LabeledData, classes: Tensor, index: Tensor, assignment: Tensor
    ) -> dict[str, Any]:
        """What is true of a coreset; singular values relative to σ₁(J)."""
        assert data.wrong is not None
        assert data.true_labels is not None
        label, truth = (coresets.scalar_labels(one[index], self.CLASSES) for one in (data.labels, data.true_labels))
        weight = torch.bincount(assignment[assignment >= 0], minlength=len(index))
        picked = coresets.rows(index, self.CLASSES)
        small, space = gram[picked][:, picked], coresets.cluster_space(classes[index], self.CLASSES)
        bounds = {
            "printed": coresets.bounds(small, weight, power=1.0),
            "printed, on S₊": coresets.bounds(small, weight, space=space, power=1.0),
            "roots": coresets.bounds(small, weight),
            "roots, on S₊": coresets.bounds(small, weight, space=space),
        }
        near = coresets.closeness(gram, index, assignment)
        wrong = data.wrong[index]
        return {
            "wrong": float(wrong.double().mean()), "worst": coresets.projected(wrong, classes[index]),
            "wrong_weight": float((wrong * weight).sum() / weight.sum()),
            "projected": coresets.projected(label - truth, classes[index]),
            "bounds": {key: one._asdict() | {"below": one.below, "above": one.above} for key, one in bounds.items()},
            "excess": bounds["printed"].largest / bounds["printed"].upper,
            "error": float(near.errors[0]) / near.top, "largest_error": float(near.errors.max()) / near.top,
            "spectral": near.spectral / near.top, "frobenius": near.frobenius / near.top,
            "epsilon": near.printed / near.top,
            **self._nuisance(small, columns, data.subset(index)),
        }  # fmt: skip

    def _nuisance(self, gram: Tensor, columns: int, data: LabeledData) -> dict[str, float | None]:
        """The share of the noise's square in the nuisance space, and ‖Π_N y‖/√k of the labels."""
        assert data.true_labels is not None
        found = spectrum_of_gram(gram, columns)
        split = found.split(self.RATIO * float(found.values[0]))
        label, truth = (one_hot(one, self.CLASSES).double() for one in (data.labels, data.true_labels))
        noise = (label - truth).flatten()
        return {
            "noise_nuisance": split.shares(noise).nuisance if bool(noise.any()) else None,
            "labels_nuisance": float(split.project(label.flatten())[1].norm()) / len(data) ** 0.5,
        }

    def draw(self, done: list[Done], path: Path) -> None:
        figure = new_figure(12.5, 5.2)
        axes = figure.subplots(1, 3)
        for epochs, colour, shift in zip(self.EPOCHS, (BLUE, RED), (-0.15, 0.15), strict=True):
            ways = _ways(done, epochs, "last layer")
            for axis, shown, scale in zip(axes, _SHOWN, (100, 100, 1), strict=True):
                for (key, name), marker in zip(shown.items(), "ov", strict=False):
                    values = scale * np.array([[one[key] for one in runs] for runs in ways.values()])  # (ways, seeds)
                    mean = values.mean(1)
                    axis.errorbar(
                        np.arange(len(ways)) + shift, mean, (mean - values.min(1), values.max(1) - mean), fmt=marker,
                        color=colour, ms=6, elinewidth=0.8, mfc=colour if marker == "o" else "none",
                        label=f"{name}, {epochs} epochs",
                    )  # fmt: skip
            everything = [one.figures["all"]["labels_nuisance"] for one in where(done, epochs=epochs)]
            axes[2].axhline(np.mean(everything), color=colour, lw=1, ls=":", label=f"all examples, {epochs} epochs")
        axes[0].axhline(100 * 2 / (self.CLASSES - 1) / 8, color="0.2", lw=1, ls="--", label="δ/8")
        axes[0].set_ylim(bottom=0)
        axes[1].set(yscale="log", ylim=(0.1, 120))
        axes[2].set_ylim(bottom=0)
        frame(axes[0], "(a) wrong labels in the coreset", "", "%")
        frame(axes[1], "(b) largest singular value of √R J_S against J", "", "% of σ₁(J)")
        frame(axes[2], "(c) labels in the nuisance space", "", "‖Π y‖/√k")
        names = [f"{selection}\nby {by}" for by, selection in ways]
        for axis in axes:
            axis.set_xticks(range(len(names)), names, rotation=50, fontsize=8)
            axis.legend(fontsize=8, frameon=False, ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.32))
        figure.savefig(path, dpi=130, format="png")

    def table(self, done: list[Done]) -> Table:
        header = ["epochs", "gradients", "classes, selection", "wrong labels", "worst class", "error of σ₁, %",
                  "(7c), %", "σ₁(RJ)/√r_max‖J‖", "‖Πy‖/√k", "noise in nuisance"]  # fmt: skip
        rows = []
        for epochs in self.EPOCHS:
            for gradient in ("last layer", "exact"):
                for (by, selection), runs in _ways(done, epochs, gradient).items():
                    shares = spreads(runs, "wrong", "worst", "error", "spectral")
                    numbers = spreads(runs, "excess", "labels_nuisance", "noise_nuisance", percent=False)
                    rows.append([str(epochs), gradient, f"{by}, {selection}", *shares, *numbers])
            everything = [one.figures for one in where(done, epochs=epochs)]
            nuisance = spreads([f["all"] for f in everything], "labels_nuisance", "noise_nuisance", percent=False)
            rows.append([str(epochs), "", "all examples", *spreads(everything, "noise"), *["–"] * 4, *nuisance])
        return header, rows


_SHOWN = (  # the figures in each panel, and their names
    {"wrong": "overall", "worst": "worst class"}, {"error": "error of σ₁", "spectral": "(7c)"},
    {"labels_nuisance": "coreset"},
)  # fmt: skip


def _ways(done: list[Done], epochs: int, gradient: str) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """The figures over the seeds of each way to select: by which classes, and what."""
    ways = [Done(way, way) for one in where(done, epochs=epochs) for way in one.figures["ways"]]
    return group(where(ways, gradient=gradient), lambda c: (c["by"], c["selection"]))


def _compare(short: Tensor, exact: Tensor) -> dict[str, float]:
    """Distances of last-layer and exact gradients: the largest and median of their ratio, and the rank correlation."""
    from scipy.stats import spearmanr

    rows, columns = torch.triu_indices(len(short), len(short), 1)
    near, far = (torch.cdist(x, x)[rows, columns] for x in (short, exact))
    there = near > 1e-9
    ratio = far[there] / near[there]
    return {
        "largest_ratio": float(ratio.max()),
        "median_ratio": float(ratio.median()),
        "rank_correlation": float(spearmanr(near.numpy(), far.numpy()).statistic),
    }

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

from noiseproof.coreset.gradients import last_layer_gradients
from noiseproof.coreset.nearest import nearest_to_centre as core
from noiseproof.data import LabeledData
from noiseproof.data import noise as corruption
from noiseproof.jacobian.operator import Jacobian
from noiseproof.papers.crust import bounds as coresets
from noiseproof.papers.crust.gradients import full_gradients
from noiseproof.papers.crust.trimmed import facility_location
from noiseproof.papers.datadir import DataDir
from noiseproof.papers.drawing import faint_grid, name_axes, new_figure
from noiseproof.papers.experiment import Cell, Done, Experiment, Table
from noiseproof.papers.training import spread
from noiseproof.training.fit import fit

EARLY, LATE = "#2c6fbb", "#c0392b"


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
                    gram, jacobian.shape[1], some, group, *self.select(points, selection, group, cell["seed"])
                )
                for gradient, points in gradients.items()
                for by, group in (("label", some.labels), ("prediction", guess))
                for selection in self.SELECTIONS
            ],
            "noise": float(some.wrong.double().mean()),
            "memorised": float((guess == some.labels)[some.wrong].double().mean()),
            "all": self._nuisance(gram, jacobian.shape[1], some),
            "gradients": _compare(gradients["last layer"], gradients["exact"]),
        }

    def select(self, points: Tensor, selection: str, group: Tensor, seed: int) -> tuple[Tensor, Tensor]:
        """Half of each group: the coreset (k,), and whom each example belongs to (n,), a position in it or −1."""
        group = group.unique(return_inverse=True)[1]
        if selection == "core":
            found = core(points, self.SHARE, groups=group)
            return found.indices, found.assignment
        if selection != "random":
            algorithm = "lazy" if selection == "medoids" else selection
            trim = self.TRIM if selection == "trimmed" else None
            found = facility_location(points, self.SHARE, algorithm=algorithm, groups=group, trim=trim)
            return found.indices, found.assignment
        order = torch.randperm(len(group), generator=torch.Generator().manual_seed(seed))
        members = [order[group[order] == one] for one in range(int(group.max()) + 1)]
        index = torch.cat([rows[: max(1, round(self.SHARE * len(rows)))] for rows in members])
        apart = torch.cdist(points, points[index]).masked_fill(group[:, None] != group[index], torch.inf)
        apart[index, torch.arange(len(index))] = -1  # each to itself, even among equals
        return index, apart.argmin(dim=1)

    def measure(
        self, gram: Tensor, columns: int, data: LabeledData, group: Tensor, index: Tensor, assignment: Tensor
    ) -> dict[str, Any]:
        """What is true of a coreset; singular values relative to σ₁(J)."""
        assert data.wrong is not None
        each = self.CLASSES
        weight = torch.bincount(assignment[assignment >= 0], minlength=len(index))
        picked = (index[:, None] * each + torch.arange(each)).flatten()
        small, space = gram[picked][:, picked], coresets.cluster_space(group[index], each)
        bounds = {
            "printed": coresets.bounds(small, weight, power=1.0),
            "printed, on S₊": coresets.bounds(small, weight, space=space, power=1.0),
            "roots": coresets.bounds(small, weight),
            "roots, on S₊": coresets.bounds(small, weight, space=space),
        }
        near = coresets.closeness(gram, index, assignment)
        ratio = coresets.noise_ratio(data.wrong[index], group[index])
        return {
            "wrong": ratio.overall, "worst": ratio.worst,
            "wrong_weight": float((data.wrong[index] * weight).sum() / weight.sum()),
            "projected": coresets.projected_noise(self._noise(data)[index], group[index]),
            "bounds": {key: one._asdict() | {"below": one.below, "above": one.above} for key, one in bounds.items()},
            "excess": bounds["printed"].largest / bounds["printed"].upper,
            "error": float(near.errors[0]) / near.top, "largest_error": float(near.errors.max()) / near.top,
            "spectral": near.spectral / near.top, "frobenius": near.frobenius / near.top,
            "epsilon": near.printed / near.top,
            **self._nuisance(small, columns, data.subset(index)),
        }  # fmt: skip

    def _noise(self, data: LabeledData) -> Tensor:
        """e = y − ỹ (n,) as numbers in [−2, 2]."""
        assert data.true_labels is not None
        label, truth = (coresets.scalar_labels(one, self.CLASSES) for one in (data.labels, data.true_labels))
        return label - truth

    def _nuisance(self, gram: Tensor, columns: int, data: LabeledData) -> dict[str, float | None]:
        """The share of the noise's square in the nuisance space, and ‖Π_N y‖/√k of the labels."""
        assert data.true_labels is not None
        found = coresets.spectrum(gram, columns)
        split = found.split(self.RATIO * float(found.values[0]))
        label, truth = (
            torch.nn.functional.one_hot(one, self.CLASSES).double() for one in (data.labels, data.true_labels)
        )
        noise = (label - truth).flatten()
        return {
            "noise_nuisance": split.shares(noise).nuisance if bool(noise.any()) else None,
            "labels_nuisance": float(split.project(label.flatten())[1].norm()) / len(data) ** 0.5,
        }

    def draw(self, done: list[Done], path: Path) -> None:
        figure = new_figure(12.5, 5.2)
        axes = figure.subplots(1, 3)
        keys = list(_grouped(done, self.EPOCHS[0], "last layer"))
        for epochs, colour, shift in zip(self.EPOCHS, (EARLY, LATE), (-0.15, 0.15), strict=True):
            ways = _grouped(done, epochs, "last layer")
            at = np.arange(len(keys)) + shift
            for axis, shown in zip(
                axes, (("wrong", "worst"), ("error", "spectral"), ("labels_nuisance",)), strict=True
            ):
                for key, marker in zip(shown, "ov", strict=False):
                    values = [[one[key] for one in ways[way]] for way in keys]
                    scale = 1 if key == "labels_nuisance" else 100
                    label = f"{_NAMES[key]}, {epochs} epochs"
                    axis.plot(at, [scale * np.mean(v) for v in values], marker, color=colour, ms=6, label=label,
                              mfc=colour if marker == "o" else "none")  # fmt: skip
                    for x, v in zip(at, values, strict=True):
                        axis.plot([x, x], [scale * min(v), scale * max(v)], color=colour, lw=0.8)
            everything = [one.figures["all"]["labels_nuisance"] for one in done if one.cell["epochs"] == epochs]
            axes[2].axhline(np.mean(everything), color=colour, lw=1, ls=":", label=f"all examples, {epochs} epochs")
        axes[0].axhline(100 * coresets.margin(self.CLASSES) / 8, color="0.2", lw=1, ls="--", label="δ/8")
        axes[0].set_ylim(bottom=0)
        name_axes(axes[0], "(a) wrong labels in the coreset", "", "%")
        axes[1].set_yscale("log")
        axes[1].set_ylim(0.1, 120)
        name_axes(axes[1], "(b) largest singular value of √R J_S against J", "", "% of σ₁(J)")
        axes[2].set_ylim(bottom=0)
        name_axes(axes[2], "(c) labels in the nuisance space", "", "‖Π y‖/√k")
        for axis in axes:
            axis.set_xticks(range(len(keys)), [f"{selection}\nby {by}" for by, selection in keys], rotation=50,
                            fontsize=8)  # fmt: skip
            faint_grid(axis)
            axis.legend(fontsize=8, frameon=False, ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.32))
        figure.savefig(path, dpi=130, format="png")

    def table(self, done: list[Done]) -> Table:
        header = ["epochs", "gradients", "classes, selection", "wrong labels", "worst class", "error of σ₁, %",
                  "(7c), %", "σ₁(RJ)/√r_max‖J‖", "‖Πy‖/√k", "noise in nuisance"]  # fmt: skip
        rows = []
        for epochs in self.EPOCHS:
            for gradient in ("last layer", "exact"):
                for (by, selection), ways in _grouped(done, epochs, gradient).items():
                    shares = [spread([way[key] for way in ways]) for key in ("wrong", "worst", "error", "spectral")]
                    numbers = [spread([way[key] for way in ways], percent=False)
                               for key in ("excess", "labels_nuisance", "noise_nuisance")]  # fmt: skip
                    rows.append([str(epochs), gradient, f"{by}, {selection}", *shares, *numbers])
            everything = [one.figures for one in done if one.cell["epochs"] == epochs]
            nuisance = [spread([one["all"][key] for one in everything], percent=False)
                        for key in ("labels_nuisance", "noise_nuisance")]  # fmt: skip
            rows.append([str(epochs), "", "all examples", spread([one["noise"] for one in everything]), *["–"] * 4,
                         *nuisance])  # fmt: skip
        return header, rows


_NAMES = {"wrong": "overall", "worst": "worst class", "error": "error of σ₁", "spectral": "(7c)",
          "labels_nuisance": "coreset"}  # fmt: skip


def _grouped(done: list[Done], epochs: int, gradient: str) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """The figures of each way over the seeds."""
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for one in done:
        for way in one.figures["ways"]:
            if one.cell["epochs"] == epochs and way["gradient"] == gradient:
                found.setdefault((way["by"], way["selection"]), []).append(way)
    return found


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

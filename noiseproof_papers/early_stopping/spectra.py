"""The spectrum of a network's Jacobian before and after training: Figure 5 and Table 1 of Li et al. (2020).

The paper leaves out the five largest layers of ResNet-20, so that 85,402 parameters are left, and trains on all of
CIFAR-10. `early-fig5` has its Jacobian of all classes at full size, 10,000 × 85,402, at both scales; at the small one
training takes 4,000 images, and so does the Jacobian of the label's class (the paper: 10,000). `early-table1` takes all
269,722 parameters, trains on corrupted labels, and adds how much of the labels, the label noise and the residual lies
in the information space, spanned by the left singular vectors of the values above 0.1 of the top one.

The paper does not say what batch norm does before training: its running statistics are then 0 and 1 ("initial"), while
training uses those of the batch. "calibrated" is the initial network with the statistics of the examples.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

import numpy as np

from noiseproof.jacobian.outputs import without_largest
from noiseproof.jacobian.singular import Shares, Spectrum
from noiseproof.jacobian.spectrum import spectrum_of_run
from noiseproof.runs.drawing import BLUE, RED, YELLOW, new_figure
from noiseproof.training.fit import fit
from noiseproof_papers.datadir import DataDir
from noiseproof_papers.drawing import bars, frame
from noiseproof_papers.early_stopping.figures import RESNET, SMALL_CIFAR, SMALL_RESNET, Corrupted, percent, prepare
from noiseproof_papers.experiment import Cell, Done, Table, group, spread

RATIO = 0.1  # of the top singular value: where the paper counts, and where the information space ends
STAGES = {"initial": YELLOW, "calibrated": BLUE, "trained": RED}
BEFORE = ["initial", "calibrated"]
PAPER = {"data": "cifar10", "options": RESNET}
ROWS = {"all": 1000, "correct": 10_000}
OUTPUTS = {"all": "all classes", "correct": "label's class"}


class _Spectra(Corrupted):
    """A network is trained, and its Jacobian taken before and after. A cell has besides:

    before   the stages before training: "initial", "calibrated"
    rows     how many examples the Jacobian is taken of, for all classes and for that of the label
    left_out so many of the largest parameters are left out
    """

    def run(self, cell: Cell, data: DataDir) -> dict[str, Any]:
        training, test = prepare(cell, data)
        spectra: dict[str, dict[str, Any]] = {}
        with TemporaryDirectory() as folder:
            place = Path(folder) / "run"
            result = fit(data=training, test=test, seed=cell["seed"], out=place, **cell["fit"])
            chosen = without_largest(result.model, cell["left_out"])
            for outputs, examples in cell["rows"].items():
                stages = {}
                for stage in cell["before"]:
                    found = spectrum_of_run(
                        place, training, examples=examples, k=None, outputs=outputs, parameters=chosen,
                        ratio=RATIO, calibrate=stage == "calibrated", seed=cell["seed"],
                    )  # fmt: skip
                    stages[stage] = _record(found.initial, found.initial_shares)
                spectra[outputs] = {**stages, "trained": _record(found.now, found.now_shares)}
        last = result.history[-1]
        return {"spectra": spectra} | {key: last[f"{key}_accuracy"] for key in ("train", "train_true", "test")}

    def table(self, done: list[Done]) -> Table:
        """Of the shares, those of the information space; by chance a vector would have r/N."""
        header = ["corruption, %", "Jacobian", "N × P", "stage", f"r: values > {RATIO} σ₁", "r/N, %", "labels, %",
                  "label noise, %", "residual, %"]  # fmt: skip
        rows = []
        for rate, figures in group(done, percent).items():
            for outputs, stages in figures[0]["spectra"].items():
                for stage in stages:
                    found = [f["spectra"][outputs][stage] for f in figures]
                    n, p = found[0]["shape"]
                    counts = [f["count"] for f in found]
                    rows.append(
                        [str(rate), OUTPUTS[outputs], f"{n:,} × {p:,}", stage, ", ".join(map(str, counts)),
                         spread([count / n for count in counts]),
                         *(spread([f["shares"].get(key) for f in found]) for key in ("labels", "noise", "residual"))]
                    )  # fmt: skip
        return header, rows


def _record(spectrum: Spectrum, shares: dict[str, Shares]) -> dict[str, Any]:
    """A spectrum as JSON."""
    return {
        "shape": list(spectrum.shape),
        "count": spectrum.count(RATIO),
        "values": [float(f"{value:.4g}") for value in spectrum.values.tolist()],
        "shares": {name: share.information for name, share in shares.items()},
    }


class Figure5(_Spectra):
    """Singular values against their rank; its table is Table 1 on clean labels."""

    name = "early-fig5"
    title = "Singular values of the Jacobian, before training and after"
    paper = "Li et al. 2020, Figure 5 and Table 1"
    settings: ClassVar[dict[str, dict[str, Any]]] = {
        "small": {**SMALL_CIFAR, "size": None, "examples": 4000, "options": {**SMALL_RESNET, "epochs": 10},
                  "before": ["initial"], "rows": {"all": 1000, "correct": 4000}, "left_out": 5},
        "paper": {**PAPER, "before": BEFORE, "rows": ROWS, "left_out": 5},
    }  # fmt: skip
    rates: ClassVar[dict[str, tuple[float, ...]]] = {"small": (0.0,), "paper": (0.0,)}
    seeds = 1

    def draw(self, done: list[Done], path: Path) -> None:
        shown = done[0].figures["spectra"]  # one run: others look alike
        figure = new_figure(4.8 * len(shown), 3.9)
        axes = figure.subplots(1, len(shown), squeeze=False)[0]
        for axis, (outputs, stages), letter in zip(axes, shown.items(), "ab", strict=False):
            for stage, found in stages.items():
                values = np.array(found["values"])
                values = values[values > 3e-4 * values[0]] / values[0]  # below that JJᵀ is rounding
                label = f"{stage}: {found['count']} above {RATIO}"
                axis.loglog(range(1, len(values) + 1), values, ".-", color=STAGES[stage], lw=1.2, ms=3, label=label)
            axis.axhline(RATIO, color="0.5", lw=1, ls=":")
            n, p = stages["trained"]["shape"]
            frame(axis, f"({letter}) {OUTPUTS[outputs]}, {n:,} × {p:,}", "rank", "singular value / top one")
            axis.legend(fontsize=8, frameon=False)
        figure.savefig(path, dpi=130, format="png")


class Table1(_Spectra):
    """How many singular values are large, and what lies in their space, with 30 % of the labels corrupted."""

    name = "early-table1"
    title = "How much of labels, label noise and residual lies in the information space"
    paper = "Li et al. 2020, Table 1 and Section 3.2"
    settings: ClassVar[dict[str, dict[str, Any]]] = {
        "small": {**SMALL_CIFAR, "examples": 3000, "options": {**SMALL_RESNET, "epochs": 20},
                  "before": BEFORE, "rows": {"all": 150, "correct": 1500}, "left_out": 0},
        "paper": {**PAPER, "before": BEFORE, "rows": ROWS, "left_out": 0},
    }  # fmt: skip
    rates: ClassVar[dict[str, tuple[float, ...]]] = {"small": (0.3,), "paper": (0.3,)}

    def draw(self, done: list[Done], path: Path) -> None:
        shares: dict[tuple[str, str], list[float]] = {}
        for one in done:
            for outputs, stages in one.figures["spectra"].items():
                for stage, found in stages.items():
                    chance = found["count"] / found["shape"][0]
                    for name, share in {**found["shares"], "by chance": chance}.items():
                        shares.setdefault((name, f"{OUTPUTS[outputs]},\n{stage}"), []).append(share)
        bars(shares, path, "Share of the squared norm in the information space", percent=False)

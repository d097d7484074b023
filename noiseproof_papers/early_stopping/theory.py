"""Early stopping on clustered data (Li et al. 2020): Figure 6, and Theorem 2.3 at the sizes its conditions ask for.

The paper gives neither activation nor learning rate for Figure 6. Ours are ReLU and 1.5 over the largest eigenvalue of
JJᵀ at the start (descent is stable below 2), with which its iteration 80 lies where the curve is flat; softplus, which
the theorems cover as they do not ReLU, is run beside it.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import torch

from noiseproof.benching.trial import find_wrong
from noiseproof.runs.drawing import BLUE, GREEN, RED, new_figure
from noiseproof.runs.plots import loss_histogram
from noiseproof_papers.datadir import DataDir
from noiseproof_papers.drawing import frame, mean_and_range
from noiseproof_papers.early_stopping import bounds, clusters
from noiseproof_papers.experiment import Cell, Done, Experiment, Table, group, span


def _watched(steps: int, count: int, *also: int) -> list[int]:
    """Iterations to look at: the first, the last, some evenly spread on a logarithmic scale, and `also`."""
    return sorted({*np.geomspace(1, steps, count).round().astype(int).tolist(), 0, steps, *also})


class Figure6(Experiment):
    """Two clusters, 30 % of the labels drawn anew: the true labels are learned first, the wrong ones much later."""

    name = "early-fig6"
    title = "gradient descent finds the true labels in a few iterations and fits the wrong ones in thousands"
    paper = "Li et al. 2020, Figure 6"
    scales = ("paper",)

    K, D, N, WIDTH = 2, 20, 400, 1000
    EPS0, SHARE = 0.5, 0.3
    EARLY, LATE = 80, 4500  # iterations
    STEP = 1.5  # times the largest eigenvalue of JJᵀ
    ACTIVATIONS = ("relu", "softplus")

    def cells(self, scale: str, seeds: int | None) -> list[Cell]:
        return [{"activation": name, "seed": seed} for name in self.ACTIVATIONS for seed in range(seeds or 5)]

    def run(self, cell: Cell, data: DataDir) -> dict[str, Any]:
        seed, values = cell["seed"], torch.tensor([0.0, 1.0])
        centers = clusters.random_centers(self.K, self.D, seed=seed, apart=2 * self.EPS0)
        sizes = [self.N // self.K] * self.K
        points = clusters.clusterable(centers, sizes, [0.0, 1.0], eps0=self.EPS0, seed=seed, on_sphere=False)
        points = clusters.shuffle(points, self.SHARE, seed=seed)
        net = clusters.network(self.WIDTH, self.D, activation=cell["activation"], seed=seed)
        step = self.STEP / float(torch.linalg.eigvalsh(clusters.gram(net, points.x))[-1])
        watch = _watched(self.LATE, 60, self.EARLY)
        path = clusters.descend(net, points.x.float(), points.label, step=step, steps=self.LATE, watch=watch)
        side = clusters.nearest(path.outputs, values)  # (T, n)
        loss = (path.outputs.double() - points.label) ** 2 / 2
        wrong = points.label != points.truth
        at = {stage: path.at.index(i) for stage, i in (("early", self.EARLY), ("late", self.LATE))}
        figures: dict[str, Any] = {
            "step": step,
            "at": path.at,
            "error": (side != points.label).double().mean(1).tolist(),
            "true_error": (side != points.truth).double().mean(1).tolist(),
            "distance": path.distance.tolist(),
            "wrong": wrong.tolist(),
            "separation": {stage: find_wrong(wrong.numpy(), loss[i].numpy())["auroc"] for stage, i in at.items()},
            "loss": {stage: loss[i].tolist() for stage, i in at.items()},
        }
        if cell["activation"] != "relu":
            figures["least_distance"] = bounds.stray(net, points.x, points.label, points.cluster)
        return figures

    def draw(self, done: list[Done], path: Path) -> None:
        figure = new_figure(12.5, 3.9)
        errors, *histograms = figure.subplots(1, 3)
        for name, runs in group(done, lambda c: c["activation"]).items():
            for key, colour, against in (("error", BLUE, "observed"), ("true_error", RED, "true")):
                values = 100 * np.array([one[key] for one in runs])  # (seeds, T)
                line, label = "-" if name == "relu" else ":", f"{against} labels, {name}"
                mean_and_range(errors, runs[0]["at"], values, color=colour, ls=line, lw=1.6, label=label)
        every = [100 * np.mean(one.figures["wrong"]) for one in done]
        errors.axhline(np.mean(every), color=GREEN, lw=1.2, ls="--", label="labels that are wrong")
        shown, name = done[0].figures, done[0].cell["activation"]
        for axis, stage, i, letter in zip(histograms, ("early", "late"), (self.EARLY, self.LATE), "bc", strict=True):
            errors.axvline(i, color="0.5", lw=0.8, ls=":")
            loss_histogram(axis, np.array(shown["loss"][stage]), np.array(shown["wrong"]))
            frame(axis, f"({letter}) loss at iteration {i}, one {name} run", "½(y − f)²", "examples")
        errors.set_xscale("symlog", linthresh=1)
        errors.set(xlim=(0, self.LATE), ylim=(0, 52))
        frame(errors, "(a) errors on the training set", "iteration", "examples on the wrong side of ½, %")
        errors.legend(fontsize=7, frameon=False)
        setting = f"K = {self.K}, d = {self.D}, n = {self.N}, k = {self.WIDTH}, ε₀ = {self.EPS0}"
        seeds = len({one.cell["seed"] for one in done})
        figure.suptitle(f"{setting}: mean and range of {seeds} data sets", fontsize=9)
        figure.savefig(path, dpi=140, format="png")

    def table(self, done: list[Done]) -> Table:
        """Means, and in brackets the worst."""
        header = ["φ", "iteration", "observed labels, % off", "true labels, % off", "AUROC of loss", "distance"]
        rows = []
        for name, figures in group(done, lambda c: c["activation"]).items():
            for stage, i in (("early", self.EARLY), ("late", self.LATE)):
                at = figures[0]["at"].index(i)
                errors = [[100 * f[key][at] for f in figures] for key in ("error", "true_error")]
                ranks = [f["separation"][stage] for f in figures]
                rows.append(
                    [name, str(i), *(f"{np.mean(some):.1f} ({max(some):.1f})" for some in errors),
                     f"{np.mean(ranks):.3f} ({min(ranks):.3f})", f"{np.mean([f['distance'][at] for f in figures]):.1f}"]
                )  # fmt: skip
        return header, rows


class Theorem(Experiment):
    """Theorem 2.3 with ε₀ = 0 and ρ = δ/8: where its conditions hold, do its conclusions, and by what margin?

    "theorem": k, η, τ₀ and the radius as it gives them before W₀ is drawn, with probability 0.99. "certificate": k is
    doubled until Theorem 3.2 holds at the W₀ drawn; η, τ₀ and the radius are then its own. n copies of K inputs weigh
    as K inputs with weights, and W only acts through the span of the centres, so d = K coordinates suffice.
    """

    name = "early-theorem"
    title = "on perfect clusters gradient descent ends at every true label, well within the radius the proof gives"
    paper = "Li et al. 2020, Theorem 2.3"
    scales = ("paper",)

    D, N = 20, 400
    ACTIVATION = "softplus"
    SETTINGS = (("theorem", 2, 2), ("certificate", 3, 3), ("certificate", 4, 2), ("certificate", 8, 4))  # K, classes
    FIRST_WIDTH = 500
    BEYOND = 1.5  # runs go on for so many times τ₀

    def cells(self, scale: str, seeds: int | None) -> list[Cell]:
        return [
            {"kind": kind, "K": K, "classes": classes, "seed": seed}
            for kind, K, classes in self.SETTINGS
            for seed in range(seeds or 10)
        ]

    def run(self, cell: Cell, data: DataDir) -> dict[str, Any]:
        K, seed = cell["K"], cell["seed"]
        values = np.linspace(-1, 1, cell["classes"])
        delta = float(values[1] - values[0])
        rho, sizes = delta / 8, [self.N // K + (i < self.N % K) for i in range(K)]
        centers = clusters.random_centers(K, self.D, seed=seed, apart=1.0)
        centers = torch.linalg.qr(centers.T).R.T.contiguous()  # (K, K): the same angles
        labels = [float(values[i % len(values)]) for i in range(K)]
        points = clusters.corrupt(clusters.clusterable(centers, sizes, labels, eps0=0, seed=seed), rho, seed=seed)
        net, given = self._start(cell, points, sizes, rho)
        total = math.ceil(self.BEYOND * given.steps)
        weight = torch.tensor(sizes, dtype=torch.float64)
        mean = torch.zeros(K, dtype=torch.float64).index_add_(0, points.cluster, points.label) / weight
        watch = _watched(total, 50, given.steps)
        path = clusters.descend(net, centers, mean, step=given.step, steps=total, watch=watch, weight=weight)
        truth = torch.tensor(labels, dtype=torch.float64)
        error = (path.outputs - truth).abs().max(1).values  # (T,)
        wrong = weight @ (clusters.nearest(path.outputs, truth) != truth).double().T  # (T,) examples
        from_here = [path.at[i] for i in range(len(wrong)) if bool((wrong[i:] == 0).all())]
        late = path.at.index(given.steps)
        return {
            "width": len(net.W),
            "delta": delta,
            "guarantee": given._asdict(),
            "at": path.at,
            "distance": path.distance.tolist(),
            "error": error.tolist(),
            "worst_error": float(error[late:].max()),
            "wrong": int(wrong[late:].max()),
            "all_right_from": from_here[0] if from_here else None,
            "unit": math.sqrt(K * math.log(K) / clusters.eigenvalue(centers, self.ACTIVATION)),  # Γ√(K log K/λ), Γ = 1
        }

    def _start(
        self, cell: Cell, points: clusters.Clusters, sizes: list[int], rho: float
    ) -> tuple[clusters.Net, bounds.Guarantee]:
        """W₀, as wide as it must be, and what is then sure."""

        def start(k: int) -> clusters.Net:
            return clusters.network(k, cell["K"], activation=self.ACTIVATION, seed=cell["seed"])

        if cell["kind"] == "theorem":
            given = bounds.perfect(points.centers, sizes, rho, self.ACTIVATION)
            return start(2 * math.ceil(given.width / 2)), given
        net = start(self.FIRST_WIDTH)
        while (found := bounds.certify(net, points)) is None:
            net = start(2 * len(net.W))
        return net, found

    def draw(self, done: list[Done], path: Path) -> None:
        figure = new_figure(10.5, 4.2)
        far, worst = axes = figure.subplots(1, 2)
        settings = group(done, lambda c: (c["kind"], c["K"], c["classes"]))
        colours = dict(zip(self.SETTINGS, (BLUE, RED, GREEN, "#8e44ad"), strict=False))
        for (kind, K, classes), runs in settings.items():
            for number, f in enumerate(runs):
                time = np.array(f["at"][1:]) / f["guarantee"]["steps"]
                style = {"color": colours[kind, K, classes], "lw": 0.9, "alpha": 0.7}
                label = None if number else f"{kind}, K = {K}, {classes} labels"
                far.plot(time, np.array(f["distance"][1:]) / f["guarantee"]["radius"], label=label, **style)
                worst.plot(time, np.array(f["error"][1:]) / (f["delta"] / 2), **style)
        for axis in axes:
            axis.axhline(1, color="0.2", lw=1.2, ls="--")
            axis.axvline(1, color="0.5", lw=0.8, ls=":")
            axis.set_xscale("log")
        far.set_yscale("log")
        worst.set_ylim(0, 4)
        frame(far, "distance from W₀", "τ / τ₀", "‖W_τ − W₀‖ / bound")
        frame(worst, "worst example", "τ / τ₀", "max|f − ỹ| / (δ/2): below 1 all labels are right")
        far.legend(fontsize=8, frameon=False, loc="lower right")
        figure.savefig(path, dpi=140, format="png")

    def table(self, done: list[Done]) -> Table:
        """Ranges over seeds; of the ratios the worst. c: distance over Γ√(K log K/λ(C))."""
        header = ["kind, K, labels", "k", "τ₀", "right from", "wrong", "error / bound", "c bound", "c", "of bound"]
        rows = []
        for setting, runs in group(done, lambda c: f"{c['kind']}, {c['K']}, {c['classes']}").items():
            given, away = [f["guarantee"] for f in runs], [max(f["distance"]) for f in runs]
            rows.append([
                setting, span([f["width"] for f in runs]), span([g["steps"] for g in given]),
                span([f["all_right_from"] for f in runs]), f"{sum(f['wrong'] for f in runs)}",
                f"{max(f['worst_error'] / g['error'] for f, g in zip(runs, given, strict=True)):.2f}",
                span([g["radius"] / f["unit"] for f, g in zip(runs, given, strict=True)]),
                span([d / f["unit"] for f, d in zip(runs, away, strict=True)]),
                f"{max(d / g['radius'] for d, g in zip(away, given, strict=True)):.2f}",
            ])  # fmt: skip
        return header, rows

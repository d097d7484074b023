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
from torch import Tensor

from noiseproof.papers.datadir import DataDir
from noiseproof.papers.drawing import faint_grid, name_axes, new_figure
from noiseproof.papers.early_stopping import bounds as clusterbounds
from noiseproof.papers.early_stopping import clusters
from noiseproof.papers.experiment import Cell, Done, Experiment, Table

BLUE, RED, GREEN, GREY = "#2c6fbb", "#c0392b", "#2e8b57", "0.5"


def _label(axis: Any, title: str, x: str, y: str) -> None:
    name_axes(axis, title, x, y)
    faint_grid(axis)


def _separation(loss: Tensor, wrong: Tensor) -> float:
    """The chance that a wrongly labelled example has a higher loss than a rightly labelled one (AUROC)."""
    more = loss[wrong][:, None] - loss[~wrong]
    return float(((more > 0).double() + 0.5 * (more == 0)).mean())


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
        watch = sorted({*np.geomspace(1, self.LATE, 60).round().astype(int).tolist(), 0, self.EARLY, self.LATE})
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
            "separation": {stage: _separation(loss[i], wrong) for stage, i in at.items()},
            "loss": {stage: loss[i].tolist() for stage, i in at.items()},
        }
        if cell["activation"] != "relu":
            bound = clusterbounds.stray(net, points.x, points.label, points.cluster)
            figures["least_distance"] = bound.distance
        return figures

    def draw(self, done: list[Done], path: Path) -> None:
        figure = new_figure(12.5, 3.9)
        axes = figure.subplots(1, 3)
        for name, style in (("relu", "-"), ("softplus", ":")):
            runs = [one.figures for one in done if one.cell["activation"] == name]
            if not runs:
                continue
            for key, colour, against in (("error", BLUE, "observed"), ("true_error", RED, "true")):
                values = 100 * np.array([one[key] for one in runs])
                axes[0].plot(
                    runs[0]["at"], values.mean(0), style, color=colour, lw=1.6, label=f"{against} labels, {name}"
                )
                axes[0].fill_between(runs[0]["at"], values.min(0), values.max(0), color=colour, alpha=0.1, lw=0)
        shown = done[0].figures
        wrong = np.array(shown["wrong"])
        every = [100 * np.mean(one.figures["wrong"]) for one in done]
        axes[0].axhline(np.mean(every), color=GREEN, lw=1.2, ls="--", label="labels that are wrong")
        for i in (self.EARLY, self.LATE):
            axes[0].axvline(i, color=GREY, lw=0.8, ls=":")
        axes[0].set_xscale("symlog", linthresh=1)
        axes[0].set(xlim=(0, self.LATE), ylim=(0, 52))
        _label(axes[0], "(a) errors on the training set", "iteration", "examples on the wrong side of ½, %")
        axes[0].legend(fontsize=7, frameon=False)
        for axis, stage, i, letter in ((axes[1], "early", self.EARLY, "b"), (axes[2], "late", self.LATE, "c")):
            loss = np.array(shown["loss"][stage])
            bins = np.linspace(0, np.quantile(loss, 0.995), 45)
            axis.hist(loss[~wrong], bins, color=BLUE, alpha=0.6, label="label is right")
            axis.hist(loss[wrong], bins, color=RED, alpha=0.6, label="label is wrong")
            axis.set_yscale("log")
            _label(
                axis, f"({letter}) loss at iteration {i}, one {done[0].cell['activation']} run", "½(y − f)²", "examples"
            )
            axis.legend(fontsize=8, frameon=False)
        seeds = len({one.cell["seed"] for one in done})
        figure.suptitle(
            f"K = {self.K}, d = {self.D}, n = {self.N}, k = {self.WIDTH}, ε₀ = {self.EPS0}: "
            f"mean and range of {seeds} data sets",
            fontsize=9,
        )
        figure.savefig(path, dpi=140, format="png")

    def table(self, done: list[Done]) -> Table:
        """Means, and in brackets the worst."""
        rows = []
        for name in self.ACTIVATIONS:
            part = [one.figures for one in done if one.cell["activation"] == name]
            for stage, i in (("early", self.EARLY), ("late", self.LATE)):
                columns = {key: [100 * f[key][f["at"].index(i)] for f in part] for key in ("error", "true_error")}
                ranks = [f["separation"][stage] for f in part]
                away = [f["distance"][f["at"].index(i)] for f in part]
                rows.append(
                    [
                        name,
                        str(i),
                        *(f"{np.mean(c):.1f} ({max(c):.1f})" for c in columns.values()),
                        f"{np.mean(ranks):.3f} ({min(ranks):.3f})",
                        f"{np.mean(away):.1f}",
                    ]
                )
        return ["φ", "iteration", "observed labels, % off", "true labels, % off", "AUROC of loss", "distance"], rows


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

        def start(k: int) -> clusters.Net:
            return clusters.network(k, K, activation=self.ACTIVATION, seed=seed)

        given: clusterbounds.Guarantee | None
        if cell["kind"] == "theorem":
            given = clusterbounds.perfect(centers, sizes, rho, self.ACTIVATION)
            net = start(2 * math.ceil(given.width / 2))
        else:
            k = self.FIRST_WIDTH
            while (given := clusterbounds.certify(start(k), points)) is None:
                k *= 2
            net = start(k)
        total = math.ceil(self.BEYOND * given.steps)
        watch = sorted({*np.geomspace(1, total, 50).round().astype(int).tolist(), 0, given.steps, total})
        weight = torch.tensor(sizes, dtype=torch.float64)
        mean = torch.zeros(K, dtype=torch.float64).index_add_(0, points.cluster, points.label) / weight
        path = clusters.descend(net, centers, mean, step=given.step, steps=total, watch=watch, weight=weight)
        truth = torch.tensor(labels, dtype=torch.float64)
        error = (path.outputs - truth).abs().max(1).values  # (T,)
        wrong = weight @ (clusters.nearest(path.outputs, truth) != truth).double().T  # (T,) examples
        from_here = [path.at[i] for i in range(len(wrong)) if bool((wrong[i:] == 0).all())]
        unit = math.sqrt(K * math.log(K) / clusters.eigenvalue(centers, self.ACTIVATION))  # Γ√(K log K/λ), Γ = 1
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
            "unit": unit,
        }

    def draw(self, done: list[Done], path: Path) -> None:
        figure = new_figure(10.5, 4.2)
        axes = figure.subplots(1, 2)
        colours = dict(zip(self.SETTINGS, (BLUE, RED, GREEN, "#8e44ad"), strict=False))
        named = set()
        for one in done:
            key = (one.cell["kind"], one.cell["K"], one.cell["classes"])
            f = one.figures
            time = np.array(f["at"]) / f["guarantee"]["steps"]
            label = f"{key[0]}, K = {key[1]}, {key[2]} labels" if key not in named else None
            named.add(key)
            for axis, bound, line in (
                (axes[0], f["guarantee"]["radius"], f["distance"]),
                (axes[1], f["delta"] / 2, f["error"]),
            ):
                axis.plot(time[1:], np.array(line[1:]) / bound, color=colours[key], lw=0.9, alpha=0.7, label=label)
        for axis in axes:
            axis.axhline(1, color="0.2", lw=1.2, ls="--")
            axis.axvline(1, color=GREY, lw=0.8, ls=":")
            axis.set_xscale("log")
        axes[0].set_yscale("log")
        axes[1].set_ylim(0, 4)
        _label(axes[0], "distance from W₀", "τ / τ₀", "‖W_τ − W₀‖ / bound")
        _label(axes[1], "worst example", "τ / τ₀", "max|f − ỹ| / (δ/2): below 1 all labels are right")
        axes[0].legend(fontsize=8, frameon=False, loc="lower right")
        figure.savefig(path, dpi=140, format="png")

    def table(self, done: list[Done]) -> Table:
        """Ranges over seeds; of the ratios the worst. c: distance over Γ√(K log K/λ(C))."""
        rows = []
        for kind, K, classes in self.SETTINGS:
            part = [one.figures for one in done if (one.cell["kind"], one.cell["K"]) == (kind, K)]
            if not part:
                continue
            given = [f["guarantee"] for f in part]
            rows.append(
                [
                    f"{kind}, {K}, {classes}",
                    _spread([f["width"] for f in part]),
                    _spread([g["steps"] for g in given]),
                    _spread([f["all_right_from"] for f in part]),
                    f"{sum(f['wrong'] for f in part)}",
                    f"{max(f['worst_error'] / g['error'] for f, g in zip(part, given, strict=True)):.2f}",
                    _spread([g["radius"] / f["unit"] for f, g in zip(part, given, strict=True)]),
                    _spread([max(f["distance"]) / f["unit"] for f in part]),
                    f"{max(max(f['distance']) / g['radius'] for f, g in zip(part, given, strict=True)):.2f}",
                ]
            )
        return [
            "kind, K, labels", "k", "τ₀", "right from", "wrong", "error / bound", "c bound", "c", "of bound",
        ], rows  # fmt: skip


def _spread(values: list[Any]) -> str:
    low, high = min(values), max(values)
    if isinstance(low, int):
        return f"{low:,}–{high:,}" if high > low else f"{low:,}"
    return f"{low:.2f}–{high:.2f}"

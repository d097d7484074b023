"""Refined labels in theory (Zhou et al. 2021): what Theorems 1 and 2 say, and what a network does.

contrast.py has the formulas, and where the paper's differ.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import torch

from noiseproof.runs.drawing import BLUE, GREEN, RED, new_figure
from noiseproof_papers.datadir import DataDir
from noiseproof_papers.drawing import frame, mean_and_range
from noiseproof_papers.early_stopping import clusters
from noiseproof_papers.early_stopping.bounds import Guarantee, certify
from noiseproof_papers.experiment import Cell, Done, Experiment, Table, where
from noiseproof_papers.sane import contrast

FRESH = 1000  # added to the seed of the inputs: of those to test with
PURPLE, GREY = "#8e44ad", "0.5"


def _of(done: list[Done], **wanted: Any) -> list[dict[str, Any]]:
    return [one.figures for one in where(done, **wanted)]


def _range(values: list[float], form: str = ".2f") -> str:
    low, high = min(values), max(values)
    return f"{low:{form}}" if f"{low:{form}}" == f"{high:{form}}" else f"{low:{form}}–{high:{form}}"


def _constant(alpha: float) -> contrast.Alpha:
    return lambda t: alpha


class Theorem2(Experiment):
    """Three questions of Theorem 2, ten data sets each.

    "clock": ε = 0 and ρ = δ/32, k doubled until Theorem 3.2 of Li et al. certifies W₀, η from there. Is |f − y*| ≤ 4ρ
    at the t₀ of the proof, for one constant α after the other? Is it below `contrast.error_bound` at every t?
    "recovery": the same data with two, three or four label values, descent for the certified time, then ỹ for every α:
    from which α on is every wrong label put right?
    "lasting": ε = 0.5, ReLU, ρ = 1/4, thousands of iterations: what is left of the labels put right, for p from the
    crop itself (the proof), from another crop (the method), from all crops of the sample?
    """

    name = "contrast-theorem2"
    title = "refined labels are a slower clock if a crop guesses for itself, and lasting if another crop does"
    paper = "Zhou et al. 2021, Theorem 2"
    scales = ("paper",)

    D, EACH, FIRST_WIDTH = 20, 48, 500
    ALPHAS = (0.0, 0.5, 0.9, 0.97, 0.99, 0.999)
    SHOWN = ((0.5, BLUE), (0.9, RED), (0.99, GREEN))
    VALUES = ((2, BLUE), (3, RED), (4, GREEN))  # how many label values
    GRID = tuple(round(0.01 * i, 2) for i in range(101))
    LONG = 10  # times the certified steps
    EPS, SHARE, WIDTH, LATE, ALPHA, STOP = 0.5, 0.25, 300, 5000, 0.8, 20

    def cells(self, scale: str, seeds: int | None) -> list[Cell]:
        cells: list[Cell] = []
        for seed in range(seeds or 10):
            cells.append({"kind": "clock", "seed": seed})
            cells += [{"kind": "recovery", "values": values, "seed": seed} for values, _ in self.VALUES]
            cells.append({"kind": "lasting", "seed": seed})
        return cells

    def run(self, cell: Cell, data: DataDir) -> dict[str, Any]:
        if cell["kind"] == "lasting":
            return self._lasting(cell["seed"])
        return self._clock(cell["seed"]) if cell["kind"] == "clock" else self._recovery(cell["seed"], cell["values"])

    def _certified(self, seed: int, values: int) -> tuple[clusters.Net, clusters.Clusters, Guarantee, float]:
        """W₀ and data with ε = 0, ρ = δ/32 that Theorem 3.2 covers, its guarantee, and δ; one sample for each label."""
        labels = torch.linspace(-1, 1, values).tolist()
        delta = labels[1] - labels[0]
        crops = max(self.EACH, math.ceil(32 / delta))  # at least one is wrong
        centers = clusters.random_centers(values, self.D, seed=seed, apart=1.0)
        centers = torch.linalg.qr(centers.T).R.T.contiguous()  # the same angles in fewer coordinates
        points = clusters.clusterable(centers, [crops] * values, labels, eps0=0, seed=seed)
        points = clusters.corrupt(points, delta / 32, seed=seed)
        k = self.FIRST_WIDTH
        while True:
            net = clusters.network(k, values, activation="softplus", seed=seed)
            given = certify(net, points, precision=delta / 32)
            if given is not None:
                return net, points, given, delta
            k *= 2

    def _clock(self, seed: int) -> dict[str, Any]:
        net, points, given, delta = self._certified(seed, 2)
        rho, total = contrast.wrong_share(points), self.LONG * given.steps
        figures: dict[str, Any] = {"width": len(net.W), "steps": given.steps, "rho": rho, "runs": {}}
        for value in self.ALPHAS:
            alpha = _constant(value)
            claimed = contrast.claimed_steps(net, points, given, value, step=given.step)
            steps = max(total, claimed) if value in dict(self.SHOWN) else claimed
            watch = sorted({*np.geomspace(1, steps, 40).round().astype(int).tolist(), 0, claimed, steps})
            path = contrast.descend(net, points, alpha, step=given.step, steps=steps, watch=watch)
            bound = contrast.error_bound(net, points, given, alpha, path.at, step=given.step)
            error = (path.outputs - points.truth).abs().amax(1)
            figures["runs"][str(value)] = {
                "at": path.at,
                "label_error": contrast.label_error(path.labels, points.truth).tolist(),
                "label_bound": contrast.label_bound(points.label, points.truth, value, bound).tolist(),
                "of_bound": float((error / bound).max()),
                "claimed": claimed,
                "claimed_bound": float(contrast.label_bound(points.label, points.truth, value, 4 * rho)),
                "of_claim": float(error[path.at.index(claimed)]) / (4 * rho),
            }
        needs = contrast.asked(points.centers, len(points.x), rho, delta, "softplus", alpha_max=0.9, step=given.step)
        return figures | {"asked": needs._asdict()}

    def _recovery(self, seed: int, values: int) -> dict[str, Any]:
        net, points, given, delta = self._certified(seed, values)
        size = torch.bincount(points.cluster).double()
        mean = torch.zeros_like(size).index_add_(0, points.cluster, points.label) / size  # copies: see clusters.descend
        path = clusters.descend(net, points.centers, mean, step=given.step, steps=given.steps, weight=size)
        f, wrong = path.outputs[-1][points.cluster], points.label != points.truth
        refined = torch.stack([(1 - alpha) * points.label + alpha * f for alpha in self.GRID])  # (α, n)
        right = (clusters.nearest(refined, points.truth) == points.truth)[:, wrong].double().mean(1).tolist()
        error, largest = (float((one - points.truth).abs().max()) for one in (f, points.label))
        return {
            "delta": delta,
            "wrong": int(wrong.sum()),
            "right": right,
            "claimed": max(1 - 0.75 * delta, 0),
            "enough": contrast.enough_alpha(delta, error, largest),
            "from": self.GRID[next(i for i in range(len(right)) if min(right[i:]) == 1)],
        }

    def _lasting(self, seed: int) -> dict[str, Any]:
        labels, sizes = [-1.0, 1.0, -1.0, 1.0], [16] * 4
        centers = clusters.random_centers(4, self.D, seed=seed, apart=2 * self.EPS)
        points = clusters.clusterable(centers, sizes, labels, eps0=self.EPS, seed=seed)
        points = clusters.corrupt(points, self.SHARE, seed=seed)
        fresh = clusters.clusterable(centers, [100] * 4, labels, eps0=self.EPS, seed=FRESH + seed)
        net = clusters.network(self.WIDTH, self.D, activation="relu", seed=seed)
        step = 1 / float(torch.linalg.eigvalsh(clusters.gram(net, points.x))[-1])
        single = points._replace(x=points.x.float())
        watch = sorted({*np.geomspace(1, self.LATE, 40).round().astype(int).tolist(), 0})
        figures: dict[str, Any] = {"at": watch, "runs": {}}
        for name, (alpha, guess, last) in self._ways(points.cluster).items():
            path = contrast.descend(net, single, alpha, guess=guess, step=step, steps=self.LATE, watch=watch)
            outputs, refined = path.outputs.double(), path.labels.double()
            final = path.net._replace(W=path.net.W.double(), v=path.net.v.double())
            predicted = clusters.nearest(clusters.predict(final, fresh.x), fresh.truth)
            end = None if last is None else contrast.limit(points.label, guess, last)
            figures["runs"][name] = {
                "label_error": contrast.label_error(refined, points.truth).tolist(),
                "right": (clusters.nearest(refined, points.truth) == points.truth).double().mean(1).tolist(),
                "fresh": float((predicted == fresh.truth).double().mean()),
                "from_limit": end if end is None else float((outputs[-1] - end).abs().max()),
            }
        return figures

    def _ways(self, cluster: torch.Tensor) -> dict[str, tuple[contrast.Alpha, contrast.Guess, float | None]]:
        """Name to α_t, p, and the constant α of a limit, if there is one."""
        value, constant = self.ALPHA, _constant(self.ALPHA)
        return {
            "α = 0": (_constant(0.0), contrast.itself, 0.0),
            f"itself, α = {value}": (constant, contrast.itself, None),
            f"itself, α_t → 1 by t = {self.STOP}": (contrast.rising(1.0, self.STOP), contrast.itself, None),
            f"another crop, α = {value}": (constant, contrast.next_crop(cluster), value),
            f"all crops, α = {value}": (constant, contrast.all_crops(cluster), value),
        }

    def draw(self, done: list[Done], path: Path) -> None:
        figure = new_figure(11.5, 7.6)
        axes = figure.subplots(2, 2)
        self._draw_clock(axes[0, 0], axes[0, 1], _of(done, kind="clock"))
        self._draw_recovery(axes[1, 0], done)
        self._draw_lasting(axes[1, 1], _of(done, kind="lasting"))
        figure.savefig(path, dpi=140, format="png")

    def _draw_clock(self, curve: Any, ratio: Any, runs: list[dict[str, Any]]) -> None:
        for value, colour in self.SHOWN:
            run = runs[0]["runs"][str(value)]
            at = np.array(run["at"])
            curve.plot(at, run["label_error"], color=colour, lw=1.7, label=f"α = {value}")
            curve.plot(at, run["label_bound"], color=colour, lw=1, ls="--")
            curve.plot([run["claimed"]], [run["claimed_bound"]], "v", color=colour, ms=7)
        curve.plot([], [], color=GREY, lw=1, ls="--", label="bound")
        curve.plot([], [], "v", color=GREY, ls="none", label="the paper's bound, from t₀ on")
        curve.set(xscale="symlog", xlim=(0, None), ylim=(0, None))
        frame(curve, "(a) refined labels, x̃ = x, ε = 0, one data set", "iteration t", "‖ỹ − y*‖/√n")
        curve.legend(fontsize=7.5, frameon=False, loc="lower left", ncols=2)
        alphas = [value for value in self.ALPHAS if value > 0]
        for one in runs:
            values = [one["runs"][str(value)]["of_claim"] for value in alphas]
            ratio.plot([1 - value for value in alphas], values, ".-", color=BLUE, lw=0.7, alpha=0.6)
        ratio.axhline(1, color="0.2", lw=1.2, ls="--")
        ratio.set(xscale="log", ylim=(0, None))
        ratio.invert_xaxis()
        frame(ratio, "(b) at the paper's t₀: below 1 it is right", "1 − α", "max|f − y*| / 4ρ")

    def _draw_recovery(self, axis: Any, done: list[Done]) -> None:
        for values, colour in self.VALUES:
            part = _of(done, kind="recovery", values=values)
            if not part:
                continue
            mean = 100 * np.mean([one["right"] for one in part], axis=0)
            axis.plot(self.GRID, mean, color=colour, lw=1.7, label=f"{values} labels, δ = {part[0]['delta']:.2g}")
            axis.axvline(part[0]["claimed"], color=colour, lw=1.2, ls=":")
            axis.axvline(max(one["enough"] for one in part), color=colour, lw=1.2, ls="--")
        axis.plot([], [], color=GREY, lw=1.2, ls=":", label="enough says the paper: 1 − ¾δ")
        axis.plot([], [], color=GREY, lw=1.2, ls="--", label="enough: (D − ½δ)/(D − E)")
        axis.set(xlim=(-0.02, 1.01), ylim=(-3, 103))
        frame(axis, "(c) wrong labels that ỹ puts right, ρ ≤ δ/32, ε = 0", "α", "% of them")
        axis.legend(fontsize=7.5, loc="lower right", framealpha=1, edgecolor="none")

    def _draw_lasting(self, axis: Any, runs: list[dict[str, Any]]) -> None:
        for name, colour in zip(runs[0]["runs"], (GREY, RED, PURPLE, GREEN, BLUE), strict=True):
            values = 100 * np.array([one["runs"][name]["right"] for one in runs])
            mean_and_range(axis, runs[0]["at"], values, color=colour, lw=1.7, label=name)
        axis.set(xscale="symlog", xlim=(0, self.LATE), ylim=(30, 102))
        frame(axis, f"(d) refined labels that are right, ε = {self.EPS}, ρ = {self.SHARE}", "iteration t", "%")
        axis.legend(fontsize=7.5, frameon=False, title="p from the crop …", title_fontsize=8, alignment="left")

    def table(self, done: list[Done]) -> Table:
        """Ranges over the seeds."""
        rows = []
        clock, lasting = (_of(done, kind=kind) for kind in ("clock", "lasting"))
        for value in self.ALPHAS if clock else ():
            runs = [one["runs"][str(value)] for one in clock]
            text = f"t₀ {_range([run['claimed'] for run in runs], 'd')}, |f − y*|/4ρ there "
            text += f"{_range([run['of_claim'] for run in runs])}, of our bound at most "
            rows.append(["clock", f"α = {value}", text + f"{max(run['of_bound'] for run in runs):.2f}"])
        for values, _ in self.VALUES:
            if part := _of(done, kind="recovery", values=values):
                text = f"claimed from α = {part[0]['claimed']:.2f}, true from {_range([one['from'] for one in part])}, "
                text += f"enough above {_range([one['enough'] for one in part], '.3f')}"
                rows.append(["recovery", f"{values} labels, δ = {part[0]['delta']:.2g}", text])
        for name in lasting[0]["runs"] if lasting else ():
            runs = [one["runs"][name] for one in lasting]
            best = [100 * max(run["right"]) for run in runs]
            last, fresh = [100 * run["right"][-1] for run in runs], [100 * run["fresh"] for run in runs]
            text = f"labels right, best {np.mean(best):.1f} %, last {np.mean(last):.1f} % (worst {min(last):.1f}), "
            text += f"fresh crops {np.mean(fresh):.1f} %"
            if runs[0]["from_limit"] is not None:
                text += f", from the limit {max(run['from_limit'] for run in runs):.1g}"
            rows.append(["lasting", name, text])
        return ["question", "setting", "outcome"], rows


class Theorem1(Experiment):
    """Theorem 1(2)'s two samples: a network is trained to the labels (a, a, 1 − 2a); what does it risk at a*?"""

    name = "contrast-theorem1"
    title = "the gap of the risks is linear in the error of the labels, has either sign, and is not what they cost"
    paper = "Zhou et al. 2021, Theorem 1"
    scales = ("paper",)

    TRUE, TEMPERATURE = 0.45, 0.2
    LABELS = (0.335, 0.35, 0.37, 0.39, 0.4, 0.41, 0.42, 0.43, 0.44, 0.445, 0.455, 0.46, 0.47, 0.48, 0.49, 0.499)

    def cells(self, scale: str, seeds: int | None) -> list[Cell]:
        return [{"a": a, "seed": seed} for a in (*self.LABELS, "one-hot") for seed in range(seeds or 10)]

    def run(self, cell: Cell, data: DataDir) -> dict[str, Any]:
        truth = contrast.construction(self.TRUE)
        if cell["a"] == "one-hot":
            label = torch.tensor([[1.0, 0.0, 0.0]] * 2, dtype=torch.float64)
            expected, printed = contrast.one_hot_gap(self.TRUE, self.TEMPERATURE), None
        else:
            label = contrast.construction(cell["a"])
            expected, printed = contrast.gap(cell["a"], self.TRUE), contrast.printed_gap(cell["a"], self.TRUE)
        h = contrast.fit_construction(label, temperature=self.TEMPERATURE, seed=cell["seed"])
        return {
            "distance": float((label - truth).norm(dim=1).mean()),
            "misfit": float((h - label).abs().max()),
            "gap": float(contrast.risk(h, truth) - contrast.risk(h, label)),
            "expected": expected,
            "printed": printed,
            "upper": float((h.log().norm(dim=1) * (label - truth).norm(dim=1)).mean()),
            "excess": float(contrast.excess(h, truth)),
            "pinsker": float((truth - h).abs().sum(1).square().mean() / 2),
        }

    def draw(self, done: list[Done], path: Path) -> None:
        figure = new_figure(12.5, 3.9)
        axes = figure.subplots(1, 3)
        soft = [one for one in done if one.cell["a"] != "one-hot"]
        a = np.array([one.cell["a"] for one in soft])
        distance, gap, upper, excess, pinsker = (
            np.array([one.figures[key] for one in soft]) for key in ("distance", "gap", "upper", "excess", "pinsker")
        )
        lines = np.linspace(1 / 3 + 1e-4, 0.4995, 200)
        exact = np.array([contrast.gap(one, self.TRUE) for one in lines])
        printed = np.array([contrast.printed_gap(one, self.TRUE) for one in lines])
        away = math.sqrt(6) * (lines - self.TRUE)  # signed
        axes[0].plot(away, exact, color=BLUE, lw=1.3, label="−2(a* − a) log(a/(1 − 2a))")
        axes[0].plot(away, printed, color=RED, lw=1.3, ls="--", label="as printed")
        axes[0].plot(np.sign(a - self.TRUE) * distance, gap, ".", color="0.15", ms=5, label="trained networks")
        axes[0].axhline(0, color=GREY, lw=0.8)
        frame(axes[0], "(a) the gap has either sign", "±‖y − y*‖, the sign that of a − a*", "Q − Q̃")
        exact_c0 = math.sqrt(2 / 3) * np.abs(np.log(lines / (1 - 2 * lines)))
        axes[1].plot(lines, exact_c0, color=BLUE, lw=1.3, label="exact")
        axes[1].plot(a, np.abs(gap) / distance, ".", color="0.15", ms=5, label="trained networks")
        axes[1].plot(a, upper / distance, color=GREEN, lw=1.3, label="L_y")
        axes[1].set_ylim(0, None)
        frame(axes[1], "(b) c₀ depends on the labels, and is 0 at ⅓", "a", "|Q − Q̃| / ‖y − y*‖")
        order = np.argsort(distance)
        axes[2].loglog(distance, excess, ".", color="0.15", ms=5, label="trained networks")
        axes[2].loglog(distance[order], pinsker[order], color=BLUE, lw=1.3, label="½‖y − y*‖₁²")
        axes[2].loglog(distance, np.abs(gap), "+", color=RED, ms=5, label="|Q − Q̃|")
        axes[2].xaxis.set_minor_formatter("")
        frame(axes[2], "(c) what the labels cost is quadratic", "‖y − y*‖", "Q(f) − min Q")
        for axis in axes:
            axis.legend(fontsize=7.5, frameon=False)
        networks = f"{len({one.cell['seed'] for one in done})} networks for each a"
        figure.suptitle(f"two samples, a* = {self.TRUE}, τ = {self.TEMPERATURE}: {networks}", fontsize=9)
        figure.savefig(path, dpi=140, format="png")

    def table(self, done: list[Done]) -> Table:
        """Means over the networks of each a; of the misfit the worst."""
        rows = []
        for a in dict.fromkeys(one.cell["a"] for one in done):
            part = _of(done, a=a)
            mean = {key: float(np.mean([f[key] for f in part])) for key in ("distance", "gap", "excess", "upper")}
            misfit, expected, printed = max(f["misfit"] for f in part), part[0]["expected"], part[0]["printed"]
            rows.append([
                str(a), f"{mean['distance']:.4f}", f"{misfit:.1g}", f"{mean['gap']:+.4f}", f"{expected:+.4f}",
                "–" if printed is None else f"{printed:+.4f}", f"{mean['upper']:.4f}", f"{mean['excess']:.5f}",
            ])  # fmt: skip
        return ["a", "‖y − y*‖", "misfit", "Q − Q̃", "exact", "printed", "L_y‖y − y*‖", "cost"], rows

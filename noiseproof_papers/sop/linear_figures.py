"""Figures 2, 3 and 4 of the linear theory of SOP (Liu et al. 2022), and how fast γ → 0 makes it exact.

The paper gives sizes and ranges; the grids within the ranges are ours: 20 points a decade in Figure 2, 10 in Figure 3,
steps of 4 in Figure 4 and every value in its corner.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from noiseproof.runs.drawing import RED, legend_below, name_axes, new_figure
from noiseproof_papers.datadir import DataDir
from noiseproof_papers.drawing import frame
from noiseproof_papers.experiment import Cell, Done, Experiment, Table, where
from noiseproof_papers.sop import convex, linear, recovery
from noiseproof_papers.sop.linear import relative_difference, relative_error

LOG_GAMMA = -8.0  # γ of Figure 2
STEP = 0.01  # of gradient descent in Figure 2: see `linear.descend`
LETTERS = {"theta": "θ", "s": "s", "rank": "r", "sparsity": "k"}


def _heat(figure: Any, axis: Any, x: Any, y: Any, values: np.ndarray, label: str, **style: Any) -> None:
    """A map of values (y, x) with the bar of its colours."""
    extend = style.pop("extend", "neither")
    bar = figure.colorbar(axis.pcolormesh(x, y, values, shading="nearest", **style), ax=axis, extend=extend)
    bar.set_label(label, fontsize=9)
    bar.ax.tick_params(labelsize=8)


class Figure2(Experiment):
    """Gradient descent (16) at many α against the convex program (26) at many λ, on one data set."""

    name = "sop-fig2"
    title = "gradient descent with learning-rate ratio α solves the convex program with λ = −log γ / (2α)"
    paper = "Liu et al. 2022, Figure 2"
    scales = ("paper",)

    LAMBDAS = np.logspace(-4, 0, 81)
    ALPHAS = 4 * np.logspace(0, 3, 61)

    def cells(self, scale: str, seeds: int | None) -> list[Cell]:
        parts = [self.ALPHAS[i : i + 16] for i in range(0, len(self.ALPHAS), 16)]
        return [{"seed": seed, "alpha": part.tolist()} for seed in range(seeds or 1) for part in parts]

    def run(self, cell: Cell, data: DataDir) -> dict[str, Any]:
        problem = linear.simulate(20, 40, 3, 3, cell["seed"])
        found = linear.descend(
            problem.J, problem.y, cell["alpha"], log_gamma=LOG_GAMMA, step=STEP, tol=1e-6, max_steps=300_000
        )
        exact = convex.solve(problem.J, problem.y, self.LAMBDAS)
        return {
            "theta": relative_difference(found.theta[:, None], exact.theta).tolist(),  # (α, λ)
            "s": relative_difference(found.s[:, None], exact.s).tolist(),
            "residual": found.residual.tolist(),
            "steps": found.steps.tolist(),
            "threshold": recovery.threshold(problem),
        }

    def _differences(self, done: list[Done]) -> dict[str, np.ndarray]:
        """The means over the data sets, (α, λ), of θ and of s."""
        count = len({one.cell["seed"] for one in done})
        return {
            key: np.concatenate([one.figures[key] for one in done]).reshape(count, len(self.ALPHAS), -1).mean(axis=0)
            for key in ("theta", "s")
        }

    def draw(self, done: list[Done], path: Path) -> None:
        from matplotlib.colors import LogNorm

        figure = new_figure(9.6, 4.3)
        axes = figure.subplots(1, 2, sharex=True, sharey=True)
        least = float(np.median([one.figures["threshold"] for one in done]))
        for axis, (key, values) in zip(axes, self._differences(done).items(), strict=True):
            name = LETTERS[key]
            label = f"‖{name}_α − {name}_λ‖ / max(‖{name}_α‖, ‖{name}_λ‖)"
            norm = LogNorm(1e-5, 1)
            _heat(figure, axis, self.LAMBDAS, self.ALPHAS, values, label, norm=norm, cmap="magma", extend="min")
            curve = -LOG_GAMMA / (2 * self.ALPHAS)
            axis.plot(curve, self.ALPHAS, color="#4db8ff", lw=1.6, label="α = −log γ / (2λ), Eq. (23)")
            axis.axvline(least, color="white", lw=1.2, ls="--", label=f"recovery from λ₀ = {least:.3f} on")
            axis.set(xscale="log", yscale="log", xlim=(1e-4, 1), ylim=(4, 4000))
            name_axes(axis, f"difference in {name}", "λ of the convex program (26)", "")
        axes[0].set_ylabel("α of gradient descent (16)", fontsize=9)
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(
            handles, labels, loc="outside lower center", ncols=2, facecolor="0.6", edgecolor="none", fontsize=9
        )
        figure.savefig(path, dpi=140, format="png")

    def table(self, done: list[Done]) -> Table:
        """The differences along the curve (23)."""
        values = self._differences(done)
        rows = []
        for i in range(0, len(self.ALPHAS), 5):
            lam = -LOG_GAMMA / (2 * self.ALPHAS[i])
            j = int(np.argmin(np.abs(np.log(self.LAMBDAS / lam))))
            rows.append([f"{lam:.4f}", f"{self.ALPHAS[i]:.0f}", *(f"{values[key][i, j]:.1e}" for key in values)])
        return ["λ", "α", "difference in θ", "difference in s"], rows


class Figure3(Experiment):
    """The error of the convex program over λ, for several sparsities and ranks."""

    name = "sop-fig3"
    title = "the convex program recovers θ* and s* exactly once λ passes a threshold"
    paper = "Liu et al. 2022, Figure 3"
    scales = ("paper",)

    LAMBDAS, VALUES = np.logspace(-4, 0, 41), (10, 20, 40, 60, 80)

    def cells(self, scale: str, seeds: int | None) -> list[Cell]:
        pairs = [(20, k) for k in self.VALUES] + [(r, 20) for r in self.VALUES if r != 20]
        return [{"rank": r, "sparsity": k, "trials": seeds or 10} for r, k in pairs]

    def run(self, cell: Cell, data: DataDir) -> dict[str, Any]:
        errors: dict[str, list[Any]] = {"theta": [], "s": [], "threshold": []}
        for trial in range(cell["trials"]):
            problem = linear.simulate(100, 150, cell["rank"], cell["sparsity"], trial)
            found = convex.solve(problem.J, problem.y, self.LAMBDAS)
            errors["theta"].append(relative_error(found.theta, problem.theta).tolist())  # (trials, λ)
            errors["s"].append(relative_error(found.s, problem.s).tolist())
            least = recovery.threshold(problem)
            errors["threshold"].append(least if least < np.inf else None)
        return errors

    def draw(self, done: list[Done], path: Path) -> None:
        from matplotlib import colormaps

        figure = new_figure(9.6, 6.8)
        axes = figure.subplots(2, 2, sharex=True)
        for row, (fixed, varied) in enumerate((("rank", "sparsity"), ("sparsity", "rank"))):
            lines = sorted(where(done, **{fixed: 20}), key=lambda one: one.cell[varied])
            colours = colormaps["viridis"](np.linspace(0, 0.88, len(lines)))
            for axis, key in zip(axes[row], ("theta", "s"), strict=True):
                for one, colour in zip(lines, colours, strict=True):
                    label = f"{LETTERS[varied]} = {one.cell[varied]}"
                    axis.plot(self.LAMBDAS, np.mean(one.figures[key], axis=0), color=colour, lw=1.6, label=label)
                    if None not in one.figures["threshold"]:
                        axis.axvline(max(one.figures["threshold"]), color=colour, lw=1, ls=":")
                axis.set(xscale="log", yscale="log", ylim=(1e-16, 1e3 if key == "s" else 10))
                name, title = LETTERS[key], f"({'ab'[row]}) error of {LETTERS[key]}, {LETTERS[fixed]} = 20"
                frame(axis, title, "λ", f"‖{name} − {name}*‖ / ‖{name}*‖")
                axis.tick_params(labelbottom=True)
            axes[row, 1].legend(fontsize=8, frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
        note = "dotted: the largest λ₀ of the trials, where all have one"
        figure.suptitle(f"mean of {len(done[0].figures['theta'])} trials; {note}", fontsize=9)
        figure.savefig(path, dpi=140, format="png")

    def table(self, done: list[Done]) -> Table:
        rows = []
        for one in done:
            least = [x for x in one.figures["threshold"] if x is not None]
            middle = [f"{np.median(least):.4f}", f"{min(least):.4f}–{max(least):.4f}"] if least else ["–", "–"]
            sizes = [str(one.cell[key]) for key in ("rank", "sparsity")]
            rows.append([*sizes, f"{len(least)}/{one.cell['trials']}", *middle])
        return ["r", "k", "trials with a threshold", "λ₀, median", "λ₀, range"], rows


class Figure4(Experiment):
    """How often the convex program with λ = 0.1 recovers, over rank and sparsity, and where (28) says it must."""

    name = "sop-fig4"
    title = "recovery at λ = 0.1 needs both few wrong labels and a low rank"
    paper = "Liu et al. 2022, Figure 4"
    scales = ("paper",)

    WIDE = tuple(range(1, 100, 4))
    CORNER_RANKS, CORNER_SPARSITIES = tuple(range(1, 16)), tuple(range(1, 6))
    LAMBDA, TOL = 0.1, 1e-3

    def cells(self, scale: str, seeds: int | None) -> list[Cell]:
        trials = seeds or 20
        wide = [{"rank": r, "sparsity": list(self.WIDE), "trials": trials} for r in self.WIDE]
        corner = [{"rank": r, "sparsity": list(self.CORNER_SPARSITIES), "trials": trials} for r in self.CORNER_RANKS]
        return wide + corner

    def run(self, cell: Cell, data: DataDir) -> dict[str, Any]:
        counts: dict[str, list[int]] = {key: [] for key in ("theta", "s", "both", "certified", "failed")}
        for k in cell["sparsity"]:
            seeds = [(cell["rank"] * 1000 + k) * 1000 + trial for trial in range(cell["trials"])]
            problems = [linear.simulate(100, 150, cell["rank"], k, seed) for seed in seeds]
            found = convex.solve([one.J for one in problems], [one.y for one in problems], self.LAMBDA)
            theta = relative_error(found.theta, np.stack([one.theta for one in problems])) < self.TOL
            s = relative_error(found.s, np.stack([one.s for one in problems])) < self.TOL
            sure = np.array([self._certified(one, k) for one in problems])
            for key, flags in zip(counts, (theta, s, theta & s, sure, sure & ~(theta & s)), strict=True):
                counts[key].append(int(flags.sum()))
        return counts

    def _certified(self, problem: linear.Problem, k: int) -> bool:
        """(28) holds, and λ lies above its λ₀."""
        return recovery.bound(problem.J, problem.theta, recovery.null_space_constant(problem.J, k)) < self.LAMBDA

    def draw(self, done: list[Done], path: Path) -> None:
        figure = new_figure(13.6, 4.3)
        axes = figure.subplots(1, 3, width_ratios=(1, 1, 0.9))
        trials = done[0].cell["trials"]
        mostly = {
            (one.cell["rank"], k)
            for one in done
            for k, count in zip(one.cell["sparsity"], one.figures["certified"], strict=True)
            if 2 * count > trials
        }
        curve = np.linspace(0.5, 25, 200)
        limit = "k = ½√(N/r): the most that (28) allows any J"
        for axis, key in zip(axes, ("theta", "s", "certified"), strict=True):
            corner = key == "certified"
            sparsities = self.CORNER_SPARSITIES if corner else self.WIDE
            part = sorted(where(done, sparsity=list(sparsities)), key=lambda one: one.cell["rank"])
            ranks = [one.cell["rank"] for one in part]
            values = 100 * np.array([one.figures[key] for one in part]).T / trials  # (k, r)
            label = "trials in which (28) holds, %" if corner else "trials recovered, %"
            cmap = "Reds" if corner else "viridis"
            _heat(figure, axis, ranks, sparsities, values, label, vmin=0, vmax=100, cmap=cmap)
            axis.plot(curve, 5 / np.sqrt(curve), color="0.3", lw=1.4, ls="--", label=limit)
            if not corner:
                at = np.array(sorted(mostly)).reshape(-1, 2).T
                axis.plot(*at, "s", color=RED, ms=3, ls="", label="(28) holds in most trials")
            title = "the corner: certified by (28)" if corner else f"recovery of {LETTERS[key]}"
            name_axes(axis, title, "rank r of J", "")
        for axis in axes[:2]:
            axis.set(xlim=(0, 99), ylim=(0, 99))
        axes[2].set(xlim=(0.5, max(self.CORNER_RANKS) + 0.5), ylim=(0.5, max(self.CORNER_SPARSITIES) + 0.5))
        axes[2].set_yticks(self.CORNER_SPARSITIES)
        axes[0].set_ylabel("k, wrong labels of N = 100", fontsize=9)
        legend_below(figure, axes, columns=2)
        certified, failed = (sum(sum(one.figures[key]) for one in done) for key in ("certified", "failed"))
        note = f"λ = {self.LAMBDA}, {trials} trials a cell, recovered: error < {self.TOL}. "
        note += f"Of {certified} trials certified by (28), {failed} failed."
        figure.suptitle(note, fontsize=10)
        figure.savefig(path, dpi=140, format="png")

    def table(self, done: list[Done]) -> Table:
        rows = []
        for one in where(done, sparsity=list(self.CORNER_SPARSITIES)):
            trials, certified = one.cell["trials"], one.figures["certified"]
            reach = [k for k, n in zip(one.cell["sparsity"], one.figures["both"], strict=True) if n == trials]
            row = (one.cell["rank"], *certified[:2], max(reach, default=0), sum(one.figures["failed"]))
            rows.append([str(x) for x in row])
        header = ["r", "certified, k = 1", "certified, k = 2", "largest k ≤ 5 always recovered", "certified but failed"]
        return header, rows


class Gamma(Experiment):
    """How far the flow's end is from the convex solution, on the curve (23), as γ → 0."""

    name = "sop-gamma"
    title = (
        "the implicit bias becomes exact as γ → 0: like 1/|log γ| below the recovery threshold, like a power of γ above"
    )
    paper = "Liu et al. 2022, Proposition 3.3"
    scales = ("paper",)

    LOGS = (4, 8, 16, 32, 64, 128, 256, 512, 1024)  # −log γ
    SHARES = (0.01, 0.1, 0.5, 1.1, 1.5, 2.0, 4.0)  # λ/λ₀

    def cells(self, scale: str, seeds: int | None) -> list[Cell]:
        return [{"seed": seed} for seed in range(seeds or 10)]

    def run(self, cell: Cell, data: DataDir) -> dict[str, Any]:
        problem = linear.simulate(20, 40, 3, 3, cell["seed"])
        J, y, least = problem.J, problem.y, recovery.threshold(problem)
        gaps: dict[str, Any] = {"threshold": least, "theta": [], "s": []}
        for lam in least * np.array(self.SHARES):
            exact = convex.solve(J, y, lam)
            ends = [linear.flow_limit(J, y, linear.alpha_for(lam, -log), log_gamma=-log) for log in self.LOGS]
            gaps["theta"].append([float(relative_difference(end.theta, exact.theta)) for end in ends])  # (λ, γ)
            gaps["s"].append([float(relative_difference(end.s, exact.s)) for end in ends])
        return gaps

    def draw(self, done: list[Done], path: Path) -> None:
        from matplotlib import colormaps

        figure = new_figure(9.6, 4.4)
        axes = figure.subplots(1, 2, sharey=True)
        below = sum(share < 1 for share in self.SHARES)
        colours = [
            *colormaps["autumn"](np.linspace(0, 0.65, below)),
            *colormaps["winter"](np.linspace(0, 0.75, len(self.SHARES) - below)),
        ]
        for axis, key in zip(axes, ("theta", "s"), strict=True):
            values = np.array([one.figures[key] for one in done])  # (seeds, λ, γ)
            for i, (share, colour) in enumerate(zip(self.SHARES, colours, strict=True)):
                line, low, high = (of(values[:, i], axis=0) for of in (np.median, np.min, np.max))
                axis.plot(self.LOGS, line, "o-", ms=3, lw=1.5, color=colour, label=f"λ = {share:g} λ₀")
                axis.fill_between(self.LOGS, low, high, color=colour, alpha=0.12, lw=0)
            axis.plot(self.LOGS, 3 / np.array(self.LOGS), color="0.4", lw=1, ls="--", label="∝ 1 / |log γ|")
            axis.axvline(8, color="0.6", lw=1, ls=":")
            axis.set_xscale("log", base=2)
            axis.set(yscale="log", ylim=(1e-14, 10))
            frame(axis, f"gap in {LETTERS[key]}", "−log γ   (dotted: the paper's 8)", "")
        axes[0].set_ylabel("relative difference, end of the flow against (26)", fontsize=9)
        axes[1].legend(fontsize=8, frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
        figure.suptitle(f"median and range of {len(done)} data sets, N = 20, p = 40, r = k = 3", fontsize=9)
        figure.savefig(path, dpi=140, format="png")

    def table(self, done: list[Done]) -> Table:
        shown = [i for i, log in enumerate(self.LOGS) if log in (8, 16, 32, 128, 1024)]
        rows = []
        for i, share in enumerate(self.SHARES):
            medians = {key: np.median([one.figures[key][i] for one in done], axis=0) for key in ("theta", "s")}
            rows.append([f"{share:g}", *(f"{medians['theta'][j]:.0e} / {medians['s'][j]:.0e}" for j in shown)])
        return ["λ/λ₀", *(f"γ = e^−{self.LOGS[j]}: θ / s" for j in shown)], rows

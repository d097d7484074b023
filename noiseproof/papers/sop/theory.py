"""Figures 2, 3 and 4 of the linear theory of SOP (Liu et al. 2022), and how fast γ → 0 makes it exact.

The paper gives sizes and ranges; the grids within the ranges are ours: 20 points a decade in Figure 2, 10 in Figure 3,
steps of 4 in Figure 4 and every value in its corner.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from noiseproof.papers.datadir import DataDir
from noiseproof.papers.drawing import faint_grid, name_axes, new_figure
from noiseproof.papers.experiment import Cell, Done, Experiment, Table
from noiseproof.papers.sop import convex, linear, recovery
from noiseproof.papers.sop.linear import relative_difference, relative_error

LOG_GAMMA = -8.0  # γ of Figure 2
STEP = 0.01  # of gradient descent in Figure 2: see `linear.descend`
RED = "#c0392b"


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
        for axis, (key, values), name in zip(axes, self._differences(done).items(), ("θ", "s"), strict=True):
            mesh = axis.pcolormesh(
                self.LAMBDAS, self.ALPHAS, values, norm=LogNorm(1e-5, 1), cmap="magma", shading="nearest"
            )
            axis.plot(
                -LOG_GAMMA / (2 * self.ALPHAS),
                self.ALPHAS,
                color="#4db8ff",
                lw=1.6,
                label="α = −log γ / (2λ), Eq. (23)",
            )
            axis.axvline(least, color="white", lw=1.2, ls="--", label=f"recovery from λ₀ = {least:.3f} on")
            axis.set(xscale="log", yscale="log", xlim=(1e-4, 1), ylim=(4, 4000))
            name_axes(axis, f"difference in {key.replace('theta', 'θ')}", "λ of the convex program (26)", "")
            bar = figure.colorbar(mesh, ax=axis, extend="min")
            bar.set_label(f"‖{name}_α − {name}_λ‖ / max(‖{name}_α‖, ‖{name}_λ‖)", fontsize=9)
            bar.ax.tick_params(labelsize=8)
        axes[0].set_ylabel("α of gradient descent (16)", fontsize=9)
        handles, labels = axes[0].get_legend_handles_labels()
        legend = figure.legend(handles, labels, loc="outside lower center", ncols=2, fontsize=9, facecolor="0.6")
        legend.get_frame().set_linewidth(0)
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

    LAMBDAS = np.logspace(-4, 0, 41)
    VALUES = (10, 20, 40, 60, 80)

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
            lines = sorted((one for one in done if one.cell[fixed] == 20), key=lambda one: one.cell[varied])
            colours = colormaps["viridis"](np.linspace(0, 0.88, len(lines)))
            for column, key in enumerate(("theta", "s")):
                axis = axes[row, column]
                for one, colour in zip(lines, colours, strict=True):
                    mean = np.mean(one.figures[key], axis=0)
                    letter = {"rank": "r", "sparsity": "k"}[varied]
                    axis.plot(self.LAMBDAS, mean, color=colour, lw=1.6, label=f"{letter} = {one.cell[varied]}")
                    if None not in one.figures["threshold"]:
                        axis.axvline(max(one.figures["threshold"]), color=colour, lw=1, ls=":")
                axis.set(xscale="log", yscale="log", ylim=(1e-16, 1e3 if key == "s" else 10))
                fixed_letter = {"rank": "r", "sparsity": "k"}[fixed]
                name = {"theta": "θ", "s": "s"}[key]
                name_axes(
                    axis, f"({'ab'[row]}) error of {name}, {fixed_letter} = 20", "λ", f"‖{name} − {name}*‖ / ‖{name}*‖"
                )
                faint_grid(axis)
                axis.tick_params(labelbottom=True)
            axes[row, 1].legend(fontsize=8, frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
        figure.suptitle(
            f"mean of {len(done[0].figures['theta'])} trials; dotted: the largest λ₀ of the trials, where all have one",
            fontsize=9,
        )
        figure.savefig(path, dpi=140, format="png")

    def table(self, done: list[Done]) -> Table:
        rows = []
        for one in done:
            least = [x for x in one.figures["threshold"] if x is not None]
            middle = [f"{np.median(least):.4f}", f"{min(least):.4f}–{max(least):.4f}"] if least else ["–", "–"]
            rows.append(
                [str(one.cell["rank"]), str(one.cell["sparsity"]), f"{len(least)}/{one.cell['trials']}", *middle]
            )
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
        sure = {
            (o.cell["rank"], k): n
            for o in done
            for k, n in zip(o.cell["sparsity"], o.figures["certified"], strict=True)
        }
        mostly = np.array([pair for pair, n in sure.items() if 2 * n > trials]).reshape(-1, 2)
        curve = np.linspace(0.5, 25, 200)
        for axis, key, name in zip(axes, ("theta", "s", "certified"), ("θ", "s", ""), strict=True):
            sparsities = self.CORNER_SPARSITIES if key == "certified" else self.WIDE
            part = sorted((o for o in done if o.cell["sparsity"] == list(sparsities)), key=lambda o: o.cell["rank"])
            ranks = [one.cell["rank"] for one in part]
            values = 100 * np.array([one.figures[key] for one in part]).T / trials  # (k, r)
            mesh = axis.pcolormesh(
                ranks, sparsities, values, vmin=0, vmax=100, cmap="Reds" if key == "certified" else "viridis",
                shading="nearest",
            )  # fmt: skip
            axis.plot(
                curve,
                5 / np.sqrt(curve),
                color="0.3",
                lw=1.4,
                ls="--",
                label="k = ½√(N/r): the most that (28) allows any J",
            )
            if name:
                axis.plot(*mostly.T, "s", color=RED, ms=3, ls="", label="(28) holds in most trials")
            bar = figure.colorbar(mesh, ax=axis)
            bar.ax.tick_params(labelsize=8)
            bar.set_label("trials in which (28) holds, %" if key == "certified" else "trials recovered, %", fontsize=9)
            name_axes(axis, f"recovery of {name}" if name else "the corner: certified by (28)", "rank r of J", "")
        for axis in axes[:2]:
            axis.set(xlim=(0, 99), ylim=(0, 99))
        axes[2].set(xlim=(0.5, max(self.CORNER_RANKS) + 0.5), ylim=(0.5, max(self.CORNER_SPARSITIES) + 0.5))
        axes[2].set_yticks(self.CORNER_SPARSITIES)
        axes[0].set_ylabel("k, wrong labels of N = 100", fontsize=9)
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=2, fontsize=9, frameon=False)
        certified, failed = (sum(sum(one.figures[key]) for one in done) for key in ("certified", "failed"))
        figure.suptitle(
            f"λ = {self.LAMBDA}, {trials} trials a cell, recovered: error < {self.TOL}. "
            f"Of {certified} trials certified by (28), {failed} failed.",
            fontsize=10,
        )
        figure.savefig(path, dpi=140, format="png")

    def table(self, done: list[Done]) -> Table:
        rows = []
        for one in (one for one in done if one.cell["sparsity"] == list(self.CORNER_SPARSITIES)):
            trials, certified = one.cell["trials"], one.figures["certified"]
            reach = [k for k, n in zip(one.cell["sparsity"], one.figures["both"], strict=True) if n == trials]
            row = (one.cell["rank"], *certified[:2], max(reach, default=0), sum(one.figures["failed"]))
            rows.append([str(x) for x in row])
        return [
            "r",
            "certified, k = 1",
            "certified, k = 2",
            "largest k ≤ 5 always recovered",
            "certified but failed",
        ], rows


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
        least = recovery.threshold(problem)
        gaps: dict[str, Any] = {"threshold": least, "theta": [], "s": []}
        for lam in least * np.array(self.SHARES):
            exact = convex.solve(problem.J, problem.y, lam)
            ends = [
                linear.flow_limit(problem.J, problem.y, float(linear.alpha_for(lam, -log)), log_gamma=-log)
                for log in self.LOGS
            ]
            gaps["theta"].append([float(relative_difference(end.theta, exact.theta)) for end in ends])  # (λ, γ)
            gaps["s"].append([float(relative_difference(end.s, exact.s)) for end in ends])
        return gaps

    def draw(self, done: list[Done], path: Path) -> None:
        from matplotlib import colormaps

        figure = new_figure(9.6, 4.4)
        axes = figure.subplots(1, 2, sharey=True)
        below = sum(share < 1 for share in self.SHARES)
        above = len(self.SHARES) - below
        colours = [
            *colormaps["autumn"](np.linspace(0, 0.65, below)), *colormaps["winter"](np.linspace(0, 0.75, above)),
        ]  # fmt: skip
        for axis, key, name in zip(axes, ("theta", "s"), ("θ", "s"), strict=True):
            values = np.array([one.figures[key] for one in done])  # (seeds, λ, γ)
            for i, (share, colour) in enumerate(zip(self.SHARES, colours, strict=True)):
                line = np.median(values[:, i], axis=0)
                axis.plot(self.LOGS, line, "o-", ms=3, lw=1.5, color=colour, label=f"λ = {share:g} λ₀")
                axis.fill_between(
                    self.LOGS, values[:, i].min(axis=0), values[:, i].max(axis=0), color=colour, alpha=0.12, lw=0
                )
            axis.plot(self.LOGS, 3 / np.array(self.LOGS), color="0.4", lw=1, ls="--", label="∝ 1 / |log γ|")
            axis.axvline(8, color="0.6", lw=1, ls=":")
            axis.set_xscale("log", base=2)
            axis.set(yscale="log", ylim=(1e-14, 10))
            name_axes(axis, f"gap in {name}", "−log γ   (dotted: the paper's 8)", "")
            faint_grid(axis)
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

"""Label noise and annealing on the paper's own data (Wei, Ren and Du 2023): where Theorems 4 to 6 show at finite size.

The paper has no such experiment. Its assumptions hold at no size one can run (docs/theory/annealing.md), so the grid
goes around a point that a search found: Q scaled up until it is learned before P at small rates, as the proofs have it.
"""

from __future__ import annotations

import math
from itertools import product
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from scipy import stats

from noiseproof.runs.drawing import BLUE, GREEN, RED, new_figure
from noiseproof_papers.datadir import DataDir
from noiseproof_papers.drawing import frame
from noiseproof_papers.experiment import Cell, Done, Experiment, Table, where
from noiseproof_papers.label_noise import annealing
from noiseproof_papers.label_noise.probe import Probe

COLOURS = {"lnsgd-ls": BLUE, "lnsgd-s": RED, "fbgd-ls": GREEN}

Setting = dict[str, Any]

BASE: Setting = {
    "d": 100, "kappa": 0.5, "q0": 0.5, "r": 0.5, "q_scale": 10.0, "m": 300, "tau0": 0.04, "joint": False,
    "delta": 0.01, "eta1": 0.16, "eta2": 0.012, "eta_full": 0.2, "eps1": 0.08, "eps2": 0.15, "check": 2.0,
    "time": 2000.0,
}  # fmt: skip
PAPER: Setting = {
    "r": 100**-0.75, "q_scale": 1.0, "eta1": 1.0, "eta2": 0.05, "eta_full": 1.0, "check": 20.0, "time": 4000.0,
}  # fmt: skip
FIRST_SEED = 100  # the search that chose BASE looked at the seeds below
FRESH_SEED = 1000  # and η₁ was chosen at seeds from FIRST_SEED on: these are of neither
LS, S, FULL = annealing.ALGORITHMS
ALL, NOISY = (LS, S, FULL), (LS, S)
TITLES = {LS: LS, S: S, FULL: "fbgd"}  # without -ls: full batch has one rate here and is not annealed
FACTORS: dict[str, tuple[str, dict[float, tuple[str, ...]]]] = {  # name: the parameter, and who runs at each value
    "η₁": ("eta1", dict.fromkeys((0.03, 0.1, 0.24, 0.4), (LS,))),
    "η₂": ("eta2", {0.004: (S,), 0.04: NOISY, 0.16: NOISY}),
    "δ": ("delta", dict.fromkeys((0.0, 0.03, 0.1), NOISY)),
    "κ": ("kappa", {0.7: ALL, 0.35: ALL, 0.25: NOISY}),
    "d": ("d", dict.fromkeys((50, 200), ALL)),
    "r": ("r", dict.fromkeys((0.25, 1.0), NOISY)),
    "scale of Q": ("q_scale", dict.fromkeys((5.0, 20.0), NOISY)),
    "q₀": ("q0", {0.25: NOISY}),
    "m": ("m", dict.fromkeys((100, 1000), NOISY)),
    "τ₀": ("tau0", dict.fromkeys((0.02, 0.08), NOISY)),
    "ε₁": ("eps1", dict.fromkeys((0.02, 0.2), (LS,))),
    "ε₂": ("eps2", dict.fromkeys((0.1, 0.3), ALL)),
}
# whom a parameter does not reach: as at the base
SAME = {"η₁": (S, FULL), "ε₁": (S, FULL), "η₂": (FULL,), "δ": (FULL,)}
OTHERS: dict[str, Setting] = {"base": {}, "joint network": {"joint": True}, "the paper's r and scale": PAPER}


def change_of(parameter: str, value: float) -> Setting:
    """A parameter at another value; another scale of Q at the same rates relative to its gradients."""
    if parameter != "q_scale":
        return {parameter: value}
    rates = {key: BASE[key] * (BASE["q_scale"] / value) ** 2 for key in ("eta1", "eta2", "eta_full")}
    return {"q_scale": value, **rates}


def settings() -> list[tuple[str, str, Setting, tuple[str, ...]]]:
    """Each row: its label, the factor that is varied, what changes, and who runs it."""
    rows: list[tuple[str, str, Setting, tuple[str, ...]]] = [(name, "", change, ALL) for name, change in OTHERS.items()]
    for name, (parameter, values) in FACTORS.items():
        rows += [(f"{name} = {x:g}", name, change_of(parameter, x), who) for x, who in values.items()]
    return rows


def simulate(
    change: Setting, algorithm: str, seed: int, *, tests: int, watch: list[float], decouple: bool
) -> annealing.Run:
    """One run at BASE but for `change`. A seed gives the data, the start and the path."""
    s = {**BASE, **change}
    law = annealing.problem(s["d"], s["kappa"], q0=s["q0"], r=s["r"], q_scale=s["q_scale"])
    data = annealing.draw(law, law.size, seed=3 * seed)
    net = annealing.network(s["m"], s["d"], tau0=s["tau0"], seed=seed, joint=s["joint"])
    probe = Probe(net, law, data, seed=10_000 + 3 * seed, size=tests)
    rates = {"eta1": s["eta1"], "eta2": s["eta2"]}
    if annealing.ALGORITHMS[algorithm].full_batch:
        rates = dict.fromkeys(rates, s["eta_full"])
    return annealing.train(
        net, data, algorithm, **rates, eps1=s["eps1"], eps2=s["eps2"], delta=s["delta"], seed=20_000 + seed,
        check=s["check"], time=s["time"], watch=watch, measure=probe, decouple=decouple,
    )  # fmt: skip


def interval(values: list[float]) -> tuple[float, float]:
    """Mean, and half the width of its 95 % confidence interval (Student's t)."""
    if len(values) < 2:
        return values[0], math.nan
    return float(np.mean(values)), float(stats.t.ppf(0.975, len(values) - 1) * stats.sem(values))


def _mean(values: list[float], form: str, within: str) -> str:
    """Mean ± half the width of its interval in these formats, the mean alone of one seed; nothing for no values."""
    if not values:
        return ""
    mean, half = interval(values)
    return f"{mean:{form}}" if math.isnan(half) else f"{mean:{form}} ± {half:{within}}"


class Regimes(Experiment):
    """Each parameter in turn around the base; the base at the paper's own r and scale; the network of Section 2."""

    name = "annealing-regimes"
    title = "where a large first learning rate helps the feature that is hard to learn, and where it does not"
    paper = "Wei et al. 2023, Theorems 4 to 6"
    scales = ("small",)

    kept = ("stopped", "end.error", "end.error_p", "end.error_q", "end.loss")

    TESTS = 20_000  # new examples of each kind
    SEEDS = 6

    def cells(self, scale: str, seeds: int | None) -> list[Cell]:
        return [
            {"change": change, "algorithm": algorithm, "seed": seed}
            for _, _, change, algorithms in settings()
            for algorithm in algorithms
            for seed in range(FIRST_SEED, FIRST_SEED + (seeds or self.SEEDS))
        ]

    def run(self, cell: Cell, data: DataDir) -> dict[str, Any]:
        run = simulate(cell["change"], cell["algorithm"], cell["seed"], tests=self.TESTS, watch=[], decouple=False)
        return {
            "steps": run.steps,
            "annealed": run.annealed is not None,
            "stopped": run.stopped is not None,
            "at_anneal": next((r for r in run.records if r["event"] == "anneal"), None),
            "end": run.records[-1],
        }

    def draw(self, done: list[Done], path: Path) -> None:
        figure = new_figure(14, 8.2)
        *axes, last, spare, unused = figure.subplots(3, 5).flatten()
        for axis, (name, (parameter, values)) in zip(axes, FACTORS.items(), strict=True):
            changes = {BASE[parameter]: {}, **{x: change_of(parameter, x) for x in values}}
            for algorithm, colour in COLOURS.items():
                found = {x: _runs(done, changes[x], algorithm) for x in sorted(changes)}
                if at := [x for x in found if found[x]]:
                    _points(axis, [max(x, 1e-3) for x in at], [found[x] for x in at], colour, TITLES[algorithm])
            axis.set_xscale("log")
            axis.margins(x=0.1)
            ticks = sorted(changes)
            axis.set_xticks([max(x, 1e-3) for x in ticks], [f"{x:g}" for x in ticks])
            axis.minorticks_off()
            axis.axvline(BASE[parameter], color="0.7", lw=0.8, ls=":", zorder=0)
            _panel(axis, name)
        for i, change in enumerate(OTHERS.values()):
            for shift, (algorithm, colour) in zip((-0.15, 0, 0.15), COLOURS.items(), strict=True):
                if runs := _runs(done, change, algorithm):
                    _points(last, [i + shift], [runs], colour, TITLES[algorithm])
        last.set_xticks(range(len(OTHERS)), ["base", "joint\nnetwork", "paper's r,\nscale 1"])
        _panel(last, "")
        spare.legend(*axes[3].get_legend_handles_labels(), fontsize=10, frameon=False, loc="upper left")
        note = "mean, 95 % interval\nhollow: Q is not learned\n(Q-only error above 10 %)"
        spare.text(0.03, 0.45, note, fontsize=9, va="top", transform=spare.transAxes)
        figure.supylabel("error on P-only examples, %", fontsize=10)
        for axis in (spare, unused):
            axis.set_axis_off()
        figure.savefig(path, dpi=90, format="png")

    def table(self, done: list[Done]) -> Table:
        """Errors in %, mean ± 95 % interval, on P-only (Q-only) examples, runs that reached ε₂; differences by seed."""
        rows = []
        for label, name, change, _ in settings():
            runs = [
                _runs(done, change, algorithm)
                or (_runs(done, {}, algorithm) if algorithm in SAME.get(name, ()) else {})
                for algorithm in ALL
            ]
            differences = [_difference(other, runs[0], key) for key in ("error_p", "error") for other in runs[1:]]
            rows.append([label, *map(_errors, runs), *differences])
        more = [f"{what}: {TITLES[other]} − {LS}" for what in ("P-only", "test") for other in (S, FULL)]
        return ["", *(f"{TITLES[a]}: P (Q)" for a in ALL), *more], rows


def _runs(done: list[Done], change: Setting, algorithm: str) -> dict[int, dict[str, Any]]:
    """By seed, what the runs of a setting measured at their end."""
    return {one.cell["seed"]: one.figures["end"] for one in where(done, change=change, algorithm=algorithm)}


def _errors(runs: dict[int, dict[str, Any]]) -> str:
    if not runs:
        return ""
    on_q = 100 * np.mean([one["error_q"] for one in runs.values()])
    stopped = sum(one["event"] == "stop" for one in runs.values())
    return f"{_mean([100 * one['error_p'] for one in runs.values()], '.2f', '.2f')} ({on_q:.0f}) {stopped}/{len(runs)}"


def _difference(runs: dict[int, dict[str, Any]], against: dict[int, dict[str, Any]], key: str) -> str:
    """Of an error, in %, with its interval over the seeds that both have."""
    seeds = sorted(runs.keys() & against.keys())
    return _mean([100 * (runs[seed][key] - against[seed][key]) for seed in seeds], "+.3f", ".3f")


def _points(axis: Any, at: list[float], groups: list[dict[int, dict[str, Any]]], colour: str, label: str) -> None:
    """P-only errors with their intervals; hollow where Q is not learned."""
    spread = [interval([100 * one["error_p"] for one in group.values()]) for group in groups]
    learned = [np.mean([one["error_q"] for one in group.values()]) < 0.1 for group in groups]
    mean, half = np.array(spread).T
    low = np.minimum(np.nan_to_num(half), 0.9 * mean)
    axis.errorbar(at, mean, [low, np.nan_to_num(half)], color=colour, lw=1.1, capsize=2, label=label)
    for x, y, full in zip(at, mean, learned, strict=True):
        axis.plot(x, y, "o", color=colour, mfc=colour if full else "white", ms=5)


def _panel(axis: Any, x: str) -> None:
    axis.set_yscale("log")
    axis.set_ylim(0.003, 6)
    frame(axis, "", x, "")


class Base(Regimes):
    """The base alone, on data sets that took no part in choosing it."""

    name = "annealing-base"
    title = "the base of annealing-regimes on fresh data sets"

    SEEDS = 48

    def cells(self, scale: str, seeds: int | None) -> list[Cell]:
        fresh = range(FRESH_SEED, FRESH_SEED + (seeds or self.SEEDS))
        return [{"change": {}, "algorithm": algorithm, "seed": seed} for seed in fresh for algorithm in ALL]

    def draw(self, done: list[Done], path: Path) -> None:
        figure = new_figure(6, 3.2)
        axes = figure.subplots(1, 2)
        by_seed = {algorithm: _runs(done, {}, algorithm) for algorithm in ALL}
        for axis, (key, title) in zip(
            axes, {"error_p": "P-only examples", "error": "all examples"}.items(), strict=True
        ):
            for other in (S, FULL):
                seeds = sorted(by_seed[LS])
                pairs = [(100 * by_seed[LS][seed][key], 100 * by_seed[other][seed][key]) for seed in seeds]
                axis.plot(*zip(*pairs, strict=True), "o", ms=3.5, alpha=0.6, color=COLOURS[other], label=TITLES[other])
            axis.axline((0.1, 0.1), slope=1, color="0.6", lw=0.8)
            axis.set(xscale="log", yscale="log")
            frame(axis, title, f"error of {LS}, %", "error of the other, %")
        axes[0].legend(fontsize=8, frameon=False)
        figure.savefig(path, dpi=110, format="png")

    def table(self, done: list[Done]) -> Table:
        """One row for each figure that `annealing-regimes` has in a column; how many runs lost Q, and without them."""
        header, rows = super().table(done)
        values = [*zip(header[1:], rows[0][1:], strict=True)]
        runs = {a: _runs(done, {}, a) for a in ALL}
        kept = {a: {seed: one for seed, one in runs[a].items() if one["error_q"] <= 0.1} for a in ALL}
        values += [
            (f"test where Q was kept: {TITLES[a]} − {LS}", _difference(runs[a], kept[LS], "error")) for a in ALL[1:]
        ]
        values += [(f"{TITLES[a]}: runs that lost Q", f"{len(runs[a]) - len(kept[a])} of {len(runs[a])}") for a in ALL]
        return ["", "base"], [list(row) for row in values]


class Curves(Experiment):
    """What is learned when: the base, and the paper's own r and scale."""

    name = "annealing-curves"
    title = "the order in which the two features are learned, and what the noise does to the activations"
    paper = "Wei et al. 2023, Lemmas 7 to 20"
    scales = ("small",)

    TESTS = 4000
    SEEDS = 5
    SETTINGS: ClassVar[dict[str, Setting]] = {"base": {}, "paper": PAPER}
    NAMES: ClassVar[dict[str, str]] = {"base": "base", "paper": "paper's r, scale of Q 1"}
    POINTS = 40

    def cells(self, scale: str, seeds: int | None) -> list[Cell]:
        return [
            {"setting": setting, "algorithm": algorithm, "seed": seed}
            for setting in self.SETTINGS
            for algorithm in ALL
            for seed in range(FIRST_SEED, FIRST_SEED + (seeds or self.SEEDS))
        ]

    def run(self, cell: Cell, data: DataDir) -> dict[str, Any]:
        change = self.SETTINGS[cell["setting"]]
        watch = np.geomspace(1, {**BASE, **change}["time"], self.POINTS).tolist()
        run = simulate(change, cell["algorithm"], cell["seed"], tests=self.TESTS, watch=watch, decouple=True)
        keys = dict.fromkeys(key for record in run.records for key in record)
        curves = {key: [record[key] for record in run.records] for key in keys}
        return {"annealed": run.annealed, "stopped": run.stopped, **curves}

    def draw(self, done: list[Done], path: Path) -> None:
        rows = [setting for setting in self.SETTINGS if where(done, setting=setting)]
        figure = new_figure(13, 3.3 * len(rows) + 0.3)
        panels = {
            "error_p": "P-only test error",
            "loss_not_m1": "Q-only training loss",
            "second_difference": "|g(z+ζ) + g(z−ζ) − 2g(z)|",
            "wedge": "share of units unlike at z ± ζ",
        }
        for line, setting in zip(figure.subplots(len(rows), 4, squeeze=False), rows, strict=True):
            for axis, (key, title) in zip(line, panels.items(), strict=True):
                for one in where(done, setting=setting):
                    self._curve(axis, one, key, COLOURS[one.cell["algorithm"]])
                axis.set_xscale("log")
                if key in ("error_p", "second_difference"):
                    axis.set_yscale("log")
                if key == "loss_not_m1":
                    axis.axhline(math.log(2), color="0.5", lw=0.8, ls=":")
                    axis.set_ylim(0, 0.9)
                frame(axis, title, "time Σα", "")
            line[0].set_ylabel(self.NAMES[setting], fontsize=10)
            for algorithm, colour in COLOURS.items():
                line[0].plot([], [], color=colour, label=TITLES[algorithm])
            line[0].legend(fontsize=8, frameon=False)
        figure.savefig(path, dpi=90, format="png")

    @staticmethod
    def _curve(axis: Any, one: Done, key: str, colour: str) -> None:
        """A run, with a dot where it was annealed and a square where it stopped; 0 as the least a picture shows."""
        time, value = (np.array(one.figures[k], dtype=float) for k in ("time", key))
        value = np.maximum(value, {"error_p": 1 / Curves.TESTS, "second_difference": 1e-5}.get(key, 0))
        seen = time > 0
        axis.plot(time[seen], value[seen], color=colour, lw=0.9, alpha=0.7)
        for event, marker in (("anneal", "o"), ("stop", "s")):
            here = [i for i, what in enumerate(one.figures["event"]) if what == event]
            axis.plot(time[here], value[here], marker, color=colour, ms=4)

    def table(self, done: list[Done]) -> Table:
        """Means ± 95 % intervals over the runs, at the annealing (if any) and at the end."""
        keys = ("time", "error_p", "error_q", "loss_r_m1", "loss_not_m1", "second_difference", "alignment", "W_signal",
                "W_noise", "V_signal", "V_noise", "pattern_q", "pattern_q_noise", "active_q", "wedge_kept")  # fmt: skip
        rows = []
        for setting, algorithm, when in product(self.SETTINGS, ALL, ("anneal", "end")):
            part = where(done, setting=setting, algorithm=algorithm)
            if records := [record for one in part for record in _records(one.figures, when, keys)]:
                means = [_mean([one[key] for one in records if key in one], ".3g", ".1g") for key in keys]
                rows.append([f"{setting}, {TITLES[algorithm]}, {when}", *means])
        return ["", *keys], rows


def _records(figures: dict[str, Any], when: str, keys: tuple[str, ...]) -> list[dict[str, float]]:
    """What a run measured at its annealing, if there was one, or at its end."""
    at = [-1] if when == "end" else [i for i, event in enumerate(figures["event"]) if event == when]
    return [{key: figures[key][i] for key in keys if key in figures} for i in at]

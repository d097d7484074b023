"""The experiment of Wei et al. (2023), and what label noise of one's own does to labels that are wrong already.

`annealing-fig2`: label-noise SGD with annealing (LNSGD-LS), without (LNSGD-S), and large batches with annealing but no
label noise (FBGD-LS), for equally many iterations, on labels that are right: Appendix B. At the paper's scale its
recipes (recipes.py): VGG19 on CIFAR-100, 400,000 iterations.

Differs from the paper at the small scale: a VGG of six convolutions, 2,400 images, 3,000 iterations, half the batch
sizes, no augmentation; and batch norm, without which so few iterations fit little more than half of the images.

`annealing-stacks`, not in the paper: `label_noise` around cross-entropy, ELR and SOP, on labels that are partly wrong.
"""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from noiseproof.recipes import recipe
from noiseproof.runs.drawing import BLUE, GREEN, RED, legend_below, new_figure
from noiseproof_papers.drawing import frame, mean_and_range
from noiseproof_papers.experiment import Cell, Done, Table, group, spread
from noiseproof_papers.fits import Trained, cell

COLOURS = {"lnsgd-ls": GREEN, "lnsgd-s": BLUE, "fbgd-ls": RED}  # of the algorithms, in the paper's order


class Figure2(Trained):
    """Three algorithms, accuracy over the iterations."""

    name = "annealing-fig2"
    title = "Label noise and annealing: both, or one of them"
    paper = "Wei et al. 2023, Figure 2"
    sets: ClassVar[dict[str, tuple[int | None, int]]] = {  # at the small scale: size of images, width of the network
        "cifar10": (16, 16),
        "fashion-mnist": (None, 8),
    }
    examples, iterations = 2400, 3000

    def cells(self, scale: str, seeds: int | None) -> list[Cell]:
        repeats = range(seeds or 3)
        if scale == "paper":
            return [cell("cifar100", name, seed, options=recipe(name)) for name in COLOURS for seed in repeats]
        return [
            cell(data, name, seed, size=size, examples=self.examples, tested=1000, options=self.small(name, width))
            for data, (size, width) in self.sets.items()
            for name in COLOURS
            for seed in repeats
        ]

    def small(self, name: str, width: int) -> dict[str, Any]:
        """A recipe at the small scale."""
        options = recipe(name)
        batch = options["batch_size"] // 2
        return options | {
            "model": f"vgg8(width={width})", "batch_size": batch, "augment": "none", "eval_examples": 500,
            "epochs": self.iterations * batch // self.examples,
        }  # fmt: skip

    def draw(self, done: list[Done], path: Path) -> None:
        groups = group(done, lambda c: (c["data"], c["method"]))
        sets = list(dict.fromkeys(data for data, _ in groups))
        figure = new_figure(8.6, 0.6 + 2.9 * len(sets))
        grid = figure.subplots(len(sets), 2, squeeze=False, sharex=True)
        iterations = self.iterations if done[0].cell["examples"] else 400_000
        for (data, name), figures in groups.items():
            for axis, key in zip(grid[sets.index(data)], ("test_accuracy", "train_accuracy"), strict=True):
                curves = 100 * np.array([one["curves"][key] for one in figures])  # (seeds, epochs)
                at = iterations * np.arange(1, curves.shape[1] + 1) / curves.shape[1]
                mean_and_range(axis, at, curves, alpha=0.18, color=COLOURS[name], lw=1.6, label=name)
        for row, data in zip(grid, sets, strict=True):
            for axis, what in zip(row, ("test", "training"), strict=True):
                axis.axvline(0.1 * iterations, color="0.4", lw=1, ls="--", label="learning rate drops (ls)")
                frame(axis, f"{data}, {what}", "iteration", "accuracy, %")
        legend_below(figure, grid, columns=4)
        figure.savefig(path, dpi=130, format="png")

    def table(self, done: list[Done]) -> Table:
        groups = group(done, lambda c: (c["data"], c["method"]))
        header = ["data", *(f"{name}: test (train)" for name in COLOURS), "ls − s", "ls − fbgd", "the paper's order"]
        rows = []
        for data in dict.fromkeys(data for data, _ in groups):
            runs = {name: groups[data, name] for name in COLOURS}
            last = {name: [one["last"] for one in figures] for name, figures in runs.items()}
            ordered = [ls > s > fbgd for ls, s, fbgd in zip(*last.values(), strict=True)]
            rows.append([
                data,
                *(f"{spread(last[name])} ({spread([f['fitted'] for f in runs[name]])})" for name in COLOURS),
                *(_difference(last["lnsgd-ls"], last[other]) for other in ("lnsgd-s", "fbgd-ls")),
                f"in {sum(ordered)} of {len(ordered)} seeds",
            ])  # fmt: skip
        return header, rows


class Stacks(Trained):
    """Label noise of one's own around methods for noisy labels: does it help?"""

    name = "annealing-stacks"
    title = "Label-noise SGD on labels that are wrong already"
    paper = "Wei et al. 2023, not in it"
    scales = ("small",)
    noises = ("symmetric:0.2", "symmetric:0.4", "symmetric:0.6", "pair:0.3")
    stacks: ClassVar[dict[str, str]] = {  # method: the same without flips
        "ce": "ce",
        "label_noise(ce)": "ce",
        "label_noise(ce, anneal='cosine')": "ce",
        "elr": "elr",
        "label_noise(elr)": "elr",
        "sop": "sop",
        "label_noise(sop)": "sop",
    }
    colours: ClassVar[dict[str, str]] = {"ce": "#7f8c8d", "elr": BLUE, "sop": GREEN}
    options: ClassVar[dict[str, Any]] = {
        "model": "mlp", "batch_size": 64, "lr": 0.05, "schedule": "cosine", "val": 0.1, "eval_examples": 1000,
    }  # fmt: skip
    sets: ClassVar[dict[str, dict[str, Any]]] = {"digits": {"epochs": 100}, "fashion-mnist": {"epochs": 30}}
    examples = 5000

    def cells(self, scale: str, seeds: int | None) -> list[Cell]:
        return [
            cell(data, method, seed, noise=noise, examples=self.examples, tested=2000,
                 options={**self.options, **more, "method": method})
            for data, more in self.sets.items()
            for noise in self.noises
            for method in self.stacks
            for seed in range(seeds or 3)
        ]  # fmt: skip

    def draw(self, done: list[Done], path: Path) -> None:
        groups = group(done, lambda c: (c["data"], c["noise"], c["method"]))
        sets = list(dict.fromkeys(key[0] for key in groups))
        figure = new_figure(9, 0.6 + 2.7 * len(sets))
        grid = figure.subplots(len(sets), 1, squeeze=False)[:, 0]
        width = 0.86 / len(self.stacks)
        for axis, data in zip(grid, sets, strict=True):
            for place, (method, base) in enumerate(self.stacks.items()):
                for at, noise in enumerate(self.noises):
                    values = [100 * one["last"] for one in groups[data, noise, method]]
                    x = at + width * (place - (len(self.stacks) - 1) / 2)
                    hatch = "" if method == base else "///" if "cosine" not in method else "..."
                    axis.bar(
                        x, statistics.mean(values), 0.9 * width, color=self.colours[base], hatch=hatch,
                        edgecolor="white", alpha=0.9, lw=0, label=method,
                    )  # fmt: skip
                    axis.plot([x] * len(values), values, ".", color="0.15", ms=3)
            axis.set_xticks(range(len(self.noises)), self.noises)
            frame(axis, data, "", "test accuracy\nat the last epoch, %")
        legend_below(figure, grid, columns=4)
        figure.savefig(path, dpi=130, format="png")

    def table(self, done: list[Done]) -> Table:
        groups = group(done, lambda c: (c["data"], c["noise"], c["method"]))
        rows = []
        for data in dict.fromkeys(key[0] for key in groups):
            for method, base in self.stacks.items():
                row = [data, method]
                for noise in self.noises:
                    with_flips, without = ([f["last"] for f in groups[data, noise, one]] for one in (method, base))
                    row.append(spread(with_flips))
                    row[-1] += "" if method == base else f" ({_difference(with_flips, without)})"
                rows.append(row)
        return ["data", "test accuracy, last (gain by flips)", *self.noises], rows


def _difference(one: list[float], other: list[float]) -> str:
    """Mean ± standard deviation over the seeds of what the one is above the other, in points."""
    differences = [100 * (a - b) for a, b in zip(one, other, strict=True)]
    text = f"{statistics.mean(differences):+.1f}"
    return f"{text} ± {statistics.stdev(differences):.1f}" if len(differences) > 1 else text

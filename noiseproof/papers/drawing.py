"""What the experiments' pictures share."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import numpy as np

BLUE, RED, GREEN, GREY = "#2c6fbb", "#c0392b", "#2e8b57", "0.5"


def new_figure(width: float, height: float) -> Any:
    """A matplotlib figure, in inches, that needs no screen."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def name_axes(axis: Any, title: str, x: str, y: str) -> None:
    """Title and axis labels."""
    axis.set_title(title, fontsize=10, fontweight="bold", loc="left")
    axis.set_xlabel(x, fontsize=9)
    axis.set_ylabel(y, fontsize=9)
    axis.tick_params(labelsize=8)


def faint_grid(axis: Any) -> None:
    """A faint grid, and no box."""
    axis.grid(alpha=0.25, lw=0.5)
    axis.spines[["top", "right"]].set_visible(False)


def frame(axis: Any, title: str, x: str, y: str) -> None:
    """Title and axis labels, a faint grid, and no box."""
    name_axes(axis, title, x, y)
    faint_grid(axis)


def mean_and_range(axis: Any, x: Any, runs: np.ndarray, *, alpha: float = 0.1, **style: Any) -> None:
    """The mean of runs (seeds, T) as a line, and their range in its `color`, where none of them is NaN."""
    there = ~np.isnan(runs).any(0)
    x, runs = np.asarray(x)[there], runs[:, there]
    axis.plot(x, runs.mean(0), **style)
    axis.fill_between(x, runs.min(0), runs.max(0), color=style["color"], alpha=alpha, lw=0)


def losses_apart(axis: Any, loss: np.ndarray, wrong: np.ndarray) -> None:
    """Histograms of the losses (n,) of right and wrong labels (n,); the largest stand in the last bin."""
    bins = np.linspace(0, max(1e-3, np.quantile(loss, 0.995)), 50)
    for part, colour, legend in ((~wrong, BLUE, "label is right"), (wrong, RED, "label is wrong")):
        axis.hist(loss[part].clip(max=bins[-1]), bins, color=colour, alpha=0.6, label=legend)
    axis.legend(fontsize=8, frameon=False, loc="upper right")


def legend_below(figure: Any, axes: Any, columns: int) -> None:
    """One legend below for all panels."""
    found = {}
    for axis in axes.flat:
        found.update(dict(zip(*axis.get_legend_handles_labels()[::-1], strict=True)))
    figure.legend(found.values(), found, loc="outside lower center", ncols=columns, fontsize=9, frameon=False)


def bars(values: dict[tuple[str, str], list[float]], path: Path, title: str, *, percent: bool = True) -> None:
    """Bars of means with the runs as dots: a group for each second key, a colour for each first."""
    names, groups = (list(dict.fromkeys(key[i] for key in values)) for i in (0, 1))
    figure = new_figure(max(5.0, 1.2 + 0.34 * len(names) * len(groups)), 3.6)
    axis = figure.subplots()
    width = 0.8 / len(names)
    scale = 100 if percent else 1
    for place, name in enumerate(names):
        at = [i + width * (place - (len(names) - 1) / 2) for i in range(len(groups))]
        runs = [[scale * value for value in values.get((name, one), [])] for one in groups]
        axis.bar(at, [statistics.mean(run) if run else 0 for run in runs], 0.9 * width, label=name, alpha=0.85)
        for x, run in zip(at, runs, strict=True):
            axis.plot([x] * len(run), run, ".", color="0.15", ms=4)
    axis.set_xticks(range(len(groups)), groups)
    axis.set_ylabel("test accuracy at the last epoch, %" if percent else "")
    axis.set_title(title, fontsize=11, loc="left")
    faint_grid(axis)
    figure.legend(loc="outside lower center", ncols=min(6, len(names)), fontsize=9, frameon=False)
    figure.savefig(path, dpi=130, format="png")

"""What the experiments' pictures share."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import numpy as np

from noiseproof.runs.drawing import faint_grid, name_axes, new_figure


def frame(axis: Any, title: str, x: str, y: str) -> None:
    """Title and axis labels, a faint grid, and no box."""
    name_axes(axis, title, x, y)
    faint_grid(axis)


def mean_and_range(axis: Any, x: Any, runs: np.ndarray, alpha: float = 0.1, **style: Any) -> None:
    """The mean of runs (seeds, T) as a line, and their range in its `color`, where none of them is NaN."""
    there = ~np.isnan(runs).any(0)
    x, runs = np.asarray(x)[there], runs[:, there]
    axis.plot(x, runs.mean(0), **style)
    axis.fill_between(x, runs.min(0), runs.max(0), color=style["color"], alpha=alpha, lw=0)


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

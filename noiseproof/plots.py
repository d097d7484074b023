"""Pictures of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

Runs = Mapping[str, Sequence[Sequence[Mapping[str, Any]]]]

CURVES = {  # key in a history's records: (legend, colour)
    "train_accuracy": ("train, noisy labels", "#c0392b"),
    "train_true_accuracy": ("train, true labels", "#2471a3"),
    "test_accuracy": ("test", "#1e8449"),
    "val_accuracy": ("held out, noisy labels", "#b7950b"),
}


def plot_history(histories: Mapping[str, Sequence[Mapping[str, Any]]], path: Path) -> None:
    """The accuracies over the epochs, one panel for each named history."""
    plot_runs({name: [history] for name, history in histories.items()}, path)


def plot_runs(
    runs: Runs, path: Path, *, title: str = "", noise_rate: float | None = None, columns: int = 4
) -> None:
    """The accuracies over the epochs: a panel for each name, mean and range over its histories (seeds).

    Where the noise rate is known, a dotted line marks the share of labels that are right: accuracy on the noisy
    training labels above it is memorised noise.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    columns = min(len(runs), columns)
    rows = -(-len(runs) // columns)
    figure = Figure(figsize=(3.4 * columns + 0.4, 2.9 * rows + 0.9), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    for axis, (name, histories) in zip(grid.flat, runs.items(), strict=False):
        for key, (legend, colour) in CURVES.items():
            if all(key in history[0] for history in histories):
                _band(axis, [[100 * record[key] for record in history] for history in histories], legend, colour)
        if noise_rate is not None:
            axis.axhline(100 * (1 - noise_rate), color="0.5", lw=1, ls=":")
        axis.set_title(name, fontsize=10, fontweight="bold", loc="left")
        axis.set_xlabel("epoch", fontsize=9)
        axis.set_ylim(0, 102)
        axis.xaxis.get_major_locator().set_params(integer=True)
        axis.grid(alpha=0.25, lw=0.5)
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(labelsize=8, labelbottom=True)
    for axis in list(grid.flat)[len(runs) :]:
        axis.set_visible(False)
    for axis in grid[:, 0]:
        axis.set_ylabel("accuracy, %", fontsize=9)
    found = {}  # by legend: not every panel has every curve
    for axis in grid.flat:
        found.update(dict(zip(*axis.get_legend_handles_labels()[::-1], strict=True)))
    figure.legend(found.values(), found, loc="outside lower center", ncols=4, fontsize=9, frameon=False)
    if title:
        figure.suptitle(title, fontsize=11)
    figure.savefig(path, dpi=130, format="png")


def _band(axis: Any, curves: Sequence[Sequence[float]], legend: str, colour: str) -> None:
    """The mean of some curves with their range; curves that stopped early keep their last value."""
    length = max(len(curve) for curve in curves)
    values = np.array([list(curve) + [curve[-1]] * (length - len(curve)) for curve in curves])
    epochs = np.arange(1, length + 1)
    axis.plot(epochs, values.mean(axis=0), color=colour, lw=1.6, label=legend)
    if len(curves) > 1:
        axis.fill_between(epochs, values.min(axis=0), values.max(axis=0), color=colour, alpha=0.18, lw=0)

"""Pictures of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from noiseproof.auditing.two_modes import fit_two_modes
from noiseproof.runs.drawing import (
    BLUE,
    GREEN,
    RED,
    YELLOW,
    count_epochs,
    faint_grid,
    legend_below,
    name_axes,
    new_figure,
)

Runs = Mapping[str, Sequence[Sequence[Mapping[str, Any]]]]

CURVES = {  # key in a history's records: (legend, colour)
    "train_accuracy": ("train, noisy labels", RED),
    "train_true_accuracy": ("train, true labels", BLUE),
    "test_accuracy": ("test", GREEN),
    "val_accuracy": ("held out, noisy labels", YELLOW),
}
EXPLAINED = {"explained_right": ("right labels explained away", "0.65"), "explained_wrong": ("wrong ones", "0.35")}
LOSSES = {key.replace("accuracy", "loss"): look for key, look in CURVES.items() if "true" not in key}


def plot_run(
    history: Sequence[Mapping[str, Any]],
    losses: np.ndarray,
    wrong: np.ndarray | None,
    path: Path,
    *,
    title: str = "",
    kept: int | None = None,
) -> None:
    """A run in four panels: accuracy over the epochs, accuracy and loss against ‖θ − θ₀‖, and the examples' losses.

    Args:
        history: a record for each epoch.
        losses: (n,) −log p of the observed labels of the training examples, at the end.
        wrong: (n,) which of the labels are wrong, where that is known.
        kept: the epoch whose model is kept, if that is not the last.
    """
    figure = new_figure(10, 6.6)
    (over, accuracy), (loss, examples) = figure.subplots(2, 2)
    far, start = "‖θ − θ₀‖", "against the distance from the start"
    for axis, at, curves, scale, name, x, y in (
        (over, "epoch", CURVES | EXPLAINED, 100, "accuracy over the epochs", "epoch", "accuracy, %"),
        (accuracy, "distance", CURVES, 100, f"accuracy {start}", far, "accuracy, %"),
        (loss, "distance", LOSSES, 1, f"loss {start}", far, "mean −log p"),
        (examples, "", {}, 1, "losses of the training examples, model kept", "−log p of the label", "examples"),
    ):
        for key, (legend, colour) in curves.items():
            if key in history[0]:
                points = [(record[at], scale * record[key]) for record in history]
                axis.plot(*zip(*points, strict=True), ".-", color=colour, lw=1.3, ms=4, label=legend)
        name_axes(axis, name, x, y)
        faint_grid(axis)
    count_epochs(over)
    for axis in (over, accuracy):
        axis.set_ylim(0, 102)
        if wrong is not None:
            axis.axhline(100 * (1 - wrong.mean()), color="0.5", lw=1, ls=":", label="labels that are right")
    loss.set_ylim(bottom=0)
    for number, at in enumerate(record["annealed"] for record in history if "annealed" in record):
        over.axvline(at, color="0.4", lw=1, ls="--", label="learning rate drops" if number == 0 else None)
    if kept is not None:
        over.axvline(kept, color="0.2", lw=1, label=f"model kept: epoch {kept}")
        for axis in (accuracy, loss):
            axis.axvline(history[kept - 1]["distance"], color="0.2", lw=1)
    loss_histogram(examples, losses, wrong)
    figure.legend(*over.get_legend_handles_labels(), loc="outside lower center", ncols=5, fontsize=9, frameon=False)
    if title:
        figure.suptitle(title, fontsize=11)
    figure.savefig(path, dpi=130, format="png")


def loss_histogram(axis: Any, losses: np.ndarray, wrong: np.ndarray | None) -> None:
    """The losses of right and wrong labels; of all, with the two modes that fit them best, where it is not known.

    The upper mode is not the wrong labels, nor its weight their share: losses of right labels have two modes as well.
    """
    top = max(float(np.quantile(losses, 0.999)), 1e-3)
    shown, bins = np.minimum(losses, top), np.linspace(0, top, 50)  # the last bar holds what lies beyond
    if wrong is not None:
        for part, legend, colour in ((~wrong, "label is right", BLUE), (wrong, "label is wrong", RED)):
            if part.any():
                axis.hist(shown[part], bins, color=colour, alpha=0.6, label=f"{legend}: {part.sum():,}")
    else:
        axis.hist(shown, bins, color="0.65", label="all examples")
        modes = fit_two_modes(losses)
        if modes is not None:
            x = np.linspace(0, top, 400)
            count = len(losses) * (bins[1] - bins[0])
            for density, name, colour in zip(modes.density(x), ("lower", "upper"), (BLUE, YELLOW), strict=True):
                axis.plot(x, count * density, color=colour, lw=1.6, label=f"{name} of two modes")
    axis.set_yscale("log")
    axis.set_ylim(0.6, 3 * np.histogram(shown, bins)[0].max())
    axis.legend(loc="upper right", fontsize=8, frameon=False)


def plot_runs(runs: Runs, path: Path, *, title: str = "", noise_rate: float | None = None, columns: int = 4) -> None:
    """The accuracies over the epochs: a panel for each name, mean and range over its histories (seeds).

    Where the noise rate is known, a dotted line marks the share of labels that are right: accuracy on the noisy
    training labels above it is memorised noise.
    """
    rows = -(-len(runs) // columns)
    columns = -(-len(runs) // rows)  # as even as they can be
    figure = new_figure(3.4 * columns + 0.4, 2.9 * rows + 0.9)
    grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    for axis, (name, histories) in zip(grid.flat, runs.items(), strict=False):
        for key, (legend, colour) in CURVES.items():
            if all(key in history[0] for history in histories):
                _band(axis, [[100 * record[key] for record in history] for history in histories], legend, colour)
        if noise_rate is not None:
            axis.axhline(100 * (1 - noise_rate), color="0.5", lw=1, ls=":")
        for at in (record["annealed"] for history in histories for record in history if "annealed" in record):
            axis.axvline(at, color="0.4", lw=1, ls="--", label="learning rate drops")
        name_axes(axis, name, "epoch", "accuracy, %" if axis in grid[:, 0] else "")
        faint_grid(axis)
        count_epochs(axis)
        axis.tick_params(labelbottom=True)  # also above another panel
        axis.set_ylim(0, 102)
    for axis in list(grid.flat)[len(runs) :]:
        axis.set_visible(False)
    legend_below(figure, grid, 4)
    if title:
        figure.suptitle(title, fontsize=11)
    figure.savefig(path, dpi=130, format="png")


def _band(axis: Any, curves: Sequence[Sequence[float]], legend: str, colour: str) -> None:
    """The mean of some curves with their range; curves that stopped early keep their last value."""
    length = max(len(curve) for curve in curves)
    values = np.array([list(curve) + [curve[-1]] * (length - len(curve)) for curve in curves])
    epochs = np.arange(1, length + 1)
    dot = "." if len(epochs) == 1 else ""  # a line through one point is none
    axis.plot(epochs, values.mean(axis=0), color=colour, lw=1.6, marker=dot, label=legend)
    if len(curves) > 1:
        axis.fill_between(epochs, values.min(axis=0), values.max(axis=0), color=colour, alpha=0.18, lw=0)

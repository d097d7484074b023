"""Pictures and a page of a pre-training run: the k-NN curve, nearest neighbours, and the features in the plane."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from noiseproof import files
from noiseproof.auditing.neighbours import nearest
from noiseproof.data import LabeledData
from noiseproof.pretraining.moco import MomentumContrast, crowded
from noiseproof.pretraining.probes import PROBES
from noiseproof.pretraining.result import PretrainResult
from noiseproof.runs import report
from noiseproof.runs.drawing import BLUE, GREEN, RED, count_epochs, faint_grid, name_axes, new_figure, pixels
from noiseproof.runs.report import Section, Table

NEUTRAL, FRAME, GAP = "#333333", 3, 16  # of the tiles of neighbours: colour; pixels


def figures(result: PretrainResult) -> Table:
    """Header and rows of the table of a run: what the probes found, or the loss where they were off."""
    if not result.at_random:
        ends = {record["epoch"]: record["loss"] for record in (result.history[0], result.history[-1])}
        return ["", "loss"], [[f"epoch {epoch}", f"{loss:.3f}"] for epoch, loss in ends.items()]
    stages = {"random weights": result.at_random, "pre-trained": result.history[-1]}
    rows = [[name, *(f"{100 * one[f'{key}_accuracy']:.1f} %" for key in PROBES)] for name, one in stages.items()]
    return [f"accuracy by {len(result.bank):,} labels", *PROBES.values()], rows


def settings(folder: Path, result: PretrainResult) -> dict[str, str]:
    """The settings of a run by name, and the size of its dictionary; none where the folder has no config.json."""
    shown = report.settings(folder)
    if shown and isinstance(result.method, MomentumContrast):
        kept, asked = len(result.method.dictionary), result.method.dictionary_size
        shown["dictionary"] = f"{kept:,} keys" + (f" ({asked:,} were asked for)" if kept < asked else "")
    return shown


def write_report(folder: Path, result: PretrainResult) -> None:
    """Write curves.png, neighbours.png (of images), embedding.png and report.html to a run's folder, atomically."""
    bank, queries = result.features(result.bank), result.features(result.queries)

    def drawn(name: str, title: str, about: str, draw: Callable[[Path], None]) -> Section:
        files.write_atomically(folder / name, draw)
        return Section(title, about, picture=(folder / name).read_bytes())

    caution = crowded(result.method, len(result.run.data))
    sections = [
        Section("", "", *figures(result)),
        Section(about=f"Note: {caution}." if caution else ""),
        Section("Settings", rows=list(settings(folder, result).items())),
        drawn("curves.png", "Over the epochs", "The loss that is minimised, and the accuracy of the probes.",
              lambda path: plot_curves(result, path)),
        drawn("embedding.png", "The features in the plane",
              "Their two principal components" + (", coloured by label." if result.queries.labeled else "."),
              lambda path: plot_embedding(queries, result.queries, path)),
    ]  # fmt: skip
    if result.queries.is_image:
        sections.append(drawn(
            "neighbours.png", "Nearest neighbours", "Some images, at the left, and what lies nearest to each"
            + ("; green where the labels agree." if result.queries.labeled else "."),
            lambda path: plot_neighbours(queries, result.queries, bank, result.bank, path),
        ))  # fmt: skip
    report.write_page(folder / "report.html", result.run, result.method, sections)


def plot_curves(result: PretrainResult, path: Path) -> None:
    """The loss, and where they were measured the accuracies of the probes with those of random weights."""
    probed = [record for record in result.history if "knn_accuracy" in record]
    figure = new_figure(8.6 if probed else 4.6, 3.1)
    axes = figure.subplots(1, 2 if probed else 1, squeeze=False)[0]
    epochs = [record["epoch"] for record in result.history]
    dot = "." if len(epochs) == 1 else ""  # a line through one point is none
    axes[0].plot(epochs, [record["loss"] for record in result.history], color=BLUE, lw=1.6, marker=dot)
    if probed:
        _plot_probes(axes[1], result.at_random, probed)
    for axis, name in zip(axes, ("loss", "accuracy, %"), strict=False):
        name_axes(axis, "", "epoch", name)
        faint_grid(axis)
        count_epochs(axis)
    figure.savefig(path, dpi=130, format="png")


def _plot_probes(axis: Any, at_random: dict[str, float], probed: list[dict[str, Any]]) -> None:
    epochs = [record["epoch"] for record in probed]
    for (name, title), colour in zip(PROBES.items(), (GREEN, BLUE), strict=True):
        key = f"{name}_accuracy"
        values = [100 * record[key] for record in probed]
        axis.plot(epochs, values, color=colour, lw=1.6, marker=".", label=title)
        axis.axhline(100 * at_random[key], color=colour, lw=1, ls=":", label=f"{title}, random weights")
    axis.legend(loc="lower right", fontsize=8, frameon=False)


def principal_components(features: Tensor, count: int = 2) -> Tensor:
    """The first principal components (n, count) of features (n, F), scaled to unit length first; 0 beyond F."""
    unit = torch.nn.functional.normalize(features.double(), dim=1)
    centred = unit - unit.mean(dim=0)
    _, vectors = torch.linalg.eigh(centred.T @ centred)  # rising
    found = centred @ vectors[:, -count:].flip(1)
    return torch.nn.functional.pad(found, (0, count - found.shape[1]))


def plot_embedding(features: Tensor, data: LabeledData, path: Path, limit: int = 2000) -> None:
    """Features (n, F) in the plane of their principal components, coloured by label."""
    from matplotlib import colormaps

    points = principal_components(features[:limit]).numpy()
    labels, classes = data.labels[:limit].numpy(), data.num_classes
    many = classes > 10
    colours = colormaps["turbo" if many else "tab10"](np.linspace(0, 1, classes) if many else np.arange(classes))
    figure = new_figure(6.4, 4.6)
    axis = figure.subplots()
    for label, colour in enumerate(colours):
        chosen = points[labels == label]
        axis.plot(chosen[:, 0], chosen[:, 1], ".", ms=3.5, alpha=0.7, color=colour, label=data.class_names[label])
    name_axes(axis, "", "first principal component", "second")
    axis.spines[["top", "right"]].set_visible(False)
    axis.set(xticks=[], yticks=[])
    if data.labeled and classes <= 20:
        figure.legend(loc="outside right upper", fontsize=8, frameon=False, markerscale=2.5)
    figure.savefig(path, dpi=130, format="png")


def plot_neighbours(
    queries: Tensor, asked: LabeledData, bank: Tensor, known: LabeledData, path: Path, rows: int = 10, columns: int = 9
) -> None:
    """Some images, one of each class in turn, and to the right of each the nearest of the bank's, nearest first."""
    from PIL import Image

    columns = min(columns, len(bank))
    chosen = _one_of_each(asked.labels, rows)
    _, at = nearest(queries[chosen], bank, columns)  # (rows, columns)
    images, others = asked.take(chosen), known.take(at.flatten()).unflatten(0, at.shape)
    agree = known.labels[at] == asked.labels[chosen][:, None]
    lines = []
    for image, found, same in zip(images, others, agree.tolist(), strict=True):
        colours = [(GREEN if one else RED) if known.labeled else NEUTRAL for one in same]
        first = framed(image, NEUTRAL)
        gap = np.full_like(first[:, :GAP], 255)
        lines.append(np.concatenate([first, gap, *map(framed, found, colours)], axis=1))
    Image.fromarray(np.concatenate(lines)).save(path, format="PNG")


def framed(image: Tensor, colour: str, side: int = 64) -> np.ndarray:
    """An image (C, H, W) as bytes (H', W', 3), enlarged to about `side` pixels, in a frame on white."""
    from PIL import Image, ImageOps

    times = max(1, round(side / max(image.shape[1:])))
    tile = ImageOps.scale(Image.fromarray(pixels(image)), times, Image.Resampling.NEAREST)
    return np.asarray(ImageOps.expand(ImageOps.expand(tile, FRAME, colour), FRAME, "white"))


def _one_of_each(labels: Tensor, limit: int) -> Tensor:
    """Positions of at most so many examples, the first of each class, then the second, …"""
    seen: defaultdict[int, Iterator[int]] = defaultdict(count)
    rank = [next(seen[label]) for label in labels.tolist()]
    return torch.from_numpy(np.lexsort((labels.numpy(), np.array(rank)))[:limit])

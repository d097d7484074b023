"""Pictures and a page of a pre-training run: the k-NN curve, nearest neighbours, and the features in the plane."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from noiseproof import files
from noiseproof.data import LabeledData
from noiseproof.data.augment import POLICIES, policy
from noiseproof.pretraining.moco import MomentumContrast, crowded
from noiseproof.pretraining.probes import PROBES, nearest
from noiseproof.pretraining.result import PretrainResult
from noiseproof.runs.folder import CONFIG, RunFolder

GOOD, BAD, LINE, NEUTRAL = "#1e8449", "#c0392b", "#2471a3", "#333333"
FRAME, GAP = 3, 16  # pixels

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>noiseproof: {{ title }}</title>
<style>
  :root { color-scheme: light dark; --line: #8884; }
  body { font: 15px/1.5 system-ui, sans-serif; max-width: 1000px; margin: 2rem auto; padding: 0 1rem; }
  h1 { font-size: 1.5rem; margin-bottom: 0; } h2 { font-size: 1.1rem; margin-top: 2rem; }
  p.about { margin-top: .2rem; opacity: .75; }
  table { border-collapse: collapse; }
  th, td { padding: .3rem .9rem; border-bottom: 1px solid var(--line); text-align: right; }
  th:first-child, td:first-child, .settings td { text-align: left; }
  .settings td { overflow-wrap: anywhere; } .settings td:first-child { opacity: .75; white-space: nowrap; }
  img { max-width: 100%; background: white; border-radius: 6px; }
</style>
</head>
<body>
<h1>{{ title }}</h1>
<p class="about"><code>{{ method }}</code></p>
<table>
<tr>{% for cell in header %}<th>{{ cell }}</th>{% endfor %}</tr>
{% for row in rows %}<tr>{% for cell in row %}<td>{{ cell }}</td>{% endfor %}</tr>
{% endfor %}</table>
{% if caution %}<p>Note: {{ caution }}.</p>
{% endif %}{% if settings %}<h2>Settings</h2>
<table class="settings">
{% for name, value in settings.items() %}<tr><td>{{ name }}</td><td>{{ value }}</td></tr>
{% endfor %}</table>
{% endif %}{% for picture in pictures %}<h2>{{ picture.title }}</h2>
<p class="about">{{ picture.about }}</p>
<img alt="{{ picture.title }}" src="data:image/png;base64,{{ picture.data }}">
{% endfor %}</body>
</html>
"""


def figures(result: PretrainResult) -> tuple[list[str], list[list[str]]]:
    """Header and rows of the table of a run: what the probes found, or the loss where they were off."""
    if not result.at_random:
        ends = {record["epoch"]: record["loss"] for record in (result.history[0], result.history[-1])}
        return ["", "loss"], [[f"epoch {epoch}", f"{loss:.3f}"] for epoch, loss in ends.items()]
    stages = {"random weights": result.at_random, "pre-trained": result.history[-1]}
    rows = [[name, *(f"{100 * one[f'{key}_accuracy']:.1f} %" for key in PROBES)] for name, one in stages.items()]
    return [f"accuracy by {len(result.bank):,} labels", *PROBES.values()], rows


def settings(folder: Path, result: PretrainResult) -> dict[str, str]:
    """The settings of a run by name, as its folder's config.json holds them; none where there is no such file."""
    if not (folder / CONFIG).is_file():
        return {}
    config = RunFolder(folder).config()
    call, command = config["call"], config["command"]
    source = Path(str(command["data"])).name + ": " if command and command.get("data") else ""
    shape = " × ".join(map(str, call["data"]["input_shape"]))
    shown = {
        "data": f"{source}{call['data']['examples']:,} examples of {shape}",
        "model": f"{call['model']}, {call['weights']:,} weights with its projection head",
        "epochs": f"{call['epochs']:,}",
        "batch size": f"{call['batch_size']:,}",
        "rate": f"{call['lr']:g}, {call['schedule']}",
        "optimizer": f"{call['optimizer']}, momentum {call['momentum']:g}, weight decay {call['weight_decay']:g}",
        "augmentation": _views(call["augment"]),
        "seed": str(call["seed"]),
    }
    if isinstance(result.method, MomentumContrast):
        kept, asked = len(result.method.dictionary), result.method.dictionary_size
        shown["dictionary"] = f"{kept:,} keys" + (f" ({asked:,} were asked for)" if kept < asked else "")
    return shown


def _views(augments: Sequence[str]) -> str:
    """`2 × simclr, sane-strong at 96 × 96`: the augmentation of each view, from its description."""
    counts = [(name, len(list(same))) for name, same in groupby(map(_named, augments))]
    return ", ".join(name if count == 1 else f"{count} × {name}" for name, count in counts)


def _named(augment: str) -> str:
    """A policy of a size of its own by its name; anything else as it is."""
    size = re.search(r"size=\((\d+), (\d+)\)", augment)
    if size is not None:
        height, width = int(size[1]), int(size[2])
        for name in POLICIES:
            if repr(policy(name, (height, width))) == augment:
                return f"{name} at {height} × {width}"
    return augment


def write_report(folder: Path, result: PretrainResult) -> None:
    """Write curves.png, neighbours.png (of images), embedding.png and report.html to a run's folder, atomically."""
    from jinja2 import Environment

    bank, queries = result.features(result.bank), result.features(result.queries)
    drawings = [
        ("curves.png", "Over the epochs", "The loss that is minimised, and the accuracy of the probes.",
         lambda path: plot_curves(result, path)),
        ("embedding.png", "The features in the plane",
         "Their two principal components" + (", coloured by label." if result.queries.labeled else "."),
         lambda path: plot_embedding(queries, result.queries, path)),
    ]  # fmt: skip
    if result.queries.is_image:
        drawings.append((
            "neighbours.png", "Nearest neighbours",
            "Some images, at the left, and what lies nearest to each"
            + ("; green where the labels agree." if result.queries.labeled else "."),
            lambda path: plot_neighbours(queries, result.queries, bank, result.bank, path),
        ))  # fmt: skip
    pictures = []
    for name, title, about, draw in drawings:
        files.write_atomically(folder / name, draw)
        data = base64.b64encode((folder / name).read_bytes()).decode()
        pictures.append({"title": title, "about": about, "data": data})
    header, rows = figures(result)
    page = (
        Environment(autoescape=True)
        .from_string(PAGE)
        .render(
            title=f"{result.method.title()} on {len(result.run.data):,} examples",
            method=result.method.describe(),
            header=header,
            rows=rows,
            caution=crowded(result.method, len(result.run.data)),
            settings=settings(folder, result),
            pictures=pictures,
        )
    )
    files.write_text(folder / "report.html", page)


def plot_curves(result: PretrainResult, path: Path) -> None:
    """The loss, and where they were measured the accuracies of the probes with those of random weights."""
    probed = [record for record in result.history if "knn_accuracy" in record]
    figure = _figure(8.6 if probed else 4.6, 3.1)
    left, *others = figure.subplots(1, 2 if probed else 1, squeeze=False)[0]
    epochs = [record["epoch"] for record in result.history]
    dot = "." if len(epochs) == 1 else ""  # a line through one point is none
    left.plot(epochs, [record["loss"] for record in result.history], color=LINE, lw=1.6, marker=dot)
    _tidy(left, "loss")
    for right in others:
        _plot_probes(right, result, probed)
    figure.savefig(path, dpi=130, format="png")


def _plot_probes(axis: Any, result: PretrainResult, probed: list[dict[str, Any]]) -> None:
    epochs = [record["epoch"] for record in probed]
    for (name, title), colour in zip(PROBES.items(), (GOOD, LINE), strict=True):
        key = f"{name}_accuracy"
        values = [100 * record[key] for record in probed]
        axis.plot(epochs, values, color=colour, lw=1.6, marker=".", label=title)
        axis.axhline(100 * result.at_random[key], color=colour, lw=1, ls=":", label=f"{title}, random weights")
    axis.legend(fontsize=8, frameon=False)
    _tidy(axis, "accuracy, %")


def principal_components(features: Tensor, count: int = 2) -> Tensor:
    """The first principal components (n, count) of features (n, F), scaled to unit length first; 0 beyond F."""
    unit = torch.nn.functional.normalize(features.double(), dim=1)
    centred = unit - unit.mean(dim=0)
    _, vectors = torch.linalg.eigh(centred.T @ centred)  # rising
    found = centred @ vectors[:, -count:].flip(1)
    return torch.nn.functional.pad(found, (0, count - found.shape[1]))


def plot_embedding(features: Tensor, data: LabeledData, path: Path, limit: int = 2000) -> None:
    """Features (n, F) in the plane of their principal components, coloured by label."""
    points = principal_components(features[:limit]).numpy()
    labels = data.labels[:limit].numpy()
    figure = _figure(6.4, 4.6)
    axis = figure.subplots()
    for label, colour in zip(range(data.num_classes), _colours(data.num_classes), strict=True):
        chosen = points[labels == label]
        axis.plot(chosen[:, 0], chosen[:, 1], ".", ms=3.5, alpha=0.7, color=colour, label=data.class_names[label])
    axis.set_xticks([])
    axis.set_yticks([])
    axis.spines[["top", "right"]].set_visible(False)
    axis.set_xlabel("first principal component", fontsize=9)
    axis.set_ylabel("second", fontsize=9)
    if data.labeled and data.num_classes <= 20:
        figure.legend(loc="outside right upper", fontsize=8, frameon=False, markerscale=2.5)
    figure.savefig(path, dpi=130, format="png")


def plot_neighbours(
    queries: Tensor, asked: LabeledData, bank: Tensor, known: LabeledData, path: Path, rows: int = 10, columns: int = 9
) -> None:
    """Some images, one of each class in turn, and to the right of each the nearest of the bank's, nearest first."""
    from PIL import Image

    columns = min(columns, len(bank))
    chosen = _one_of_each(asked.labels, rows)
    _, at = nearest(queries[chosen], bank, columns)
    images, others = asked.take(chosen), known.take(at.flatten())
    lines = []
    for row, label in enumerate(asked.labels[chosen].tolist()):
        agree = [GOOD if same else BAD for same in (known.labels[at[row]] == label).tolist()]
        agree = agree if known.labeled else [NEUTRAL] * columns
        found = [framed(others[row * columns + i], colour) for i, colour in enumerate(agree)]
        first = framed(images[row], NEUTRAL)
        gap = np.full_like(first[:, :GAP], 255)
        lines.append(np.concatenate([first, gap, *found], axis=1))
    Image.fromarray(np.concatenate(lines)).save(path, format="PNG")


def framed(image: Tensor, colour: str, side: int = 64) -> np.ndarray:
    """An image (C, H, W) as bytes (H', W', 3), enlarged to about `side` pixels, in a frame on white."""
    image = image if len(image) in (1, 3) else image[:1]  # other channels are no colours
    pixels = image if image.dtype == torch.uint8 else (image.clamp(0, 1) * 255).to(torch.uint8)
    times = max(1, round(side / max(image.shape[1:])))
    array = pixels.expand(3, -1, -1).permute(1, 2, 0).numpy().repeat(times, axis=0).repeat(times, axis=1)
    rgb = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)], dtype=np.uint8)
    inner = np.empty((array.shape[0] + 2 * FRAME, array.shape[1] + 2 * FRAME, 3), dtype=np.uint8)
    inner[:] = rgb
    inner[FRAME:-FRAME, FRAME:-FRAME] = array
    return np.pad(inner, ((FRAME, FRAME), (FRAME, FRAME), (0, 0)), constant_values=255)


def _one_of_each(labels: Tensor, count: int) -> Tensor:
    """Positions of at most so many examples, the first of each class, then the second, …"""
    seen: dict[int, int] = {}
    rank = []
    for label in labels.tolist():
        seen[label] = seen.get(label, -1) + 1
        rank.append(seen[label])
    order = np.lexsort((labels.numpy(), np.asarray(rank)))[:count]
    return torch.from_numpy(order)


def _colours(count: int) -> Sequence[Any]:
    from matplotlib import colormaps

    return [
        colormaps["tab10" if count <= 10 else "turbo"](i / max(count - 1, 1) if count > 10 else i) for i in range(count)
    ]


def _figure(width: float, height: float) -> Any:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _tidy(axis: Any, y: str) -> None:
    axis.set_xlabel("epoch", fontsize=9)
    axis.xaxis.get_major_locator().set_params(integer=True)
    axis.set_ylabel(y, fontsize=9)
    axis.tick_params(labelsize=8)
    axis.grid(alpha=0.25, lw=0.5)
    axis.spines[["top", "right"]].set_visible(False)

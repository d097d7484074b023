"""A run as one self-contained HTML page: figures, curves, and the most suspicious labels."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from noiseproof import files
from noiseproof.runs.result import FitResult

Rows = tuple[Sequence[str], Sequence[Sequence[str]]]  # header, rows


def write_report(
    path: Path, result: FitResult, *, picture: Path, table: Rows | None = None, suspects: int = 48
) -> None:
    """Write the page to `path`, atomically.

    Args:
        result: the run whose labels are shown.
        picture: a PNG with the curves.
        table: header and rows to show instead of the run's own figures.
        suspects: how many of the most suspicious examples to show.
    """
    from jinja2 import Environment, PackageLoader, select_autoescape

    environment = Environment(loader=PackageLoader("noiseproof.runs", ""), autoescape=select_autoescape(default=True))
    header, rows = table or figures(result)
    data = result.data
    page = environment.get_template("report.html.j2").render(
        title=f"{result.method.title()} on {len(result.run.data):,} examples",
        method=result.method.describe(),
        classes=data.num_classes,
        noise=None if data.noise_rate is None else f"{100 * data.noise_rate:.1f} %",
        header=header,
        rows=rows,
        curves=base64.b64encode(picture.read_bytes()).decode(),
        suspects=_suspects(result, suspects),
    )
    files.write_text(path, page)


def figures(result: FitResult) -> Rows:
    """The figures worth reporting of one run."""
    keys = {"test_accuracy": "test accuracy", "val_accuracy": "held-out accuracy", "train_memorised": "noise memorised"}
    names = {"last": "last epoch", "best": "best held-out epoch", "final": "model kept"}
    rows = []
    summary = result.summary()
    for name, meaning in names.items():
        if name in summary:
            record = summary[name]
            cells = ["–" if record.get(key) is None else f"{100 * record[key]:.1f} %" for key in keys]
            rows.append([meaning, str(record.get("epoch", "–")), *cells])
    return ["", "epoch", *keys.values()], rows


def _suspects(result: FitResult, count: int) -> list[dict[str, Any]]:
    """The examples whose labels the run trusts least, most suspicious first."""
    data, beliefs = result.data, result.beliefs
    order = beliefs.suspicion.argsort(descending=True, stable=True)[:count].cpu()
    suggested = beliefs.soft_label[order].argmax(dim=1)
    inputs = data.take(order) if data.is_image else None
    names = data.class_names
    return [
        {
            "image": None if inputs is None else _png(inputs[place]),
            "id": str(i if data.ids is None else data.ids[i]),
            "label": names[int(data.labels[i])],
            "suggested": names[int(suggested[place])],
            "truth": None if data.true_labels is None else names[int(data.true_labels[i])],
            "suspicion": f"{float(beliefs.suspicion[i]):.2f}",
        }
        for place, i in enumerate(order.tolist())
    ]


def _png(image: Tensor) -> str:
    """An image (C, H, W), as the text of a data URL's PNG."""
    from PIL import Image

    image = image if len(image) in (1, 3) else image[:1]  # other channels are no colours
    pixels = image if image.dtype == torch.uint8 else (image.clamp(0, 1) * 255).to(torch.uint8)
    array = pixels.permute(1, 2, 0).numpy()
    array = array[..., 0] if array.shape[2] == 1 else array
    buffer = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(array)).save(buffer, format="PNG")
    return base64.b64encode(buffer.getvalue()).decode()

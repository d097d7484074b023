"""What pictures share: a figure that needs no screen, plain axes, an image as pixels."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

GREEN, RED, BLUE, YELLOW = "#1e8449", "#c0392b", "#2471a3", "#b7950b"


def new_figure(width: float, height: float) -> Any:
    """A matplotlib figure, in inches, that needs no screen."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


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


def legend_below(figure: Any, axes: Any, columns: int) -> None:
    """One legend below for all panels, of which some may lack a line."""
    found = {}
    for axis in axes.flat:
        found.update(dict(zip(*axis.get_legend_handles_labels()[::-1], strict=True)))
    figure.legend(found.values(), found, loc="outside lower center", ncols=columns, fontsize=9, frameon=False)


def count_epochs(axis: Any) -> None:
    """Whole numbers alone at the ticks of the x axis."""
    axis.xaxis.get_major_locator().set_params(integer=True)


def pixels(image: Tensor) -> np.ndarray:
    """An image (C, H, W) as bytes (H, W, 3); of other channels than colours, the first."""
    image = image if len(image) in (1, 3) else image[:1]
    image = image if image.dtype == torch.uint8 else (image.clamp(0, 1) * 255).to(torch.uint8)
    return np.ascontiguousarray(image.expand(3, -1, -1).permute(1, 2, 0).numpy())

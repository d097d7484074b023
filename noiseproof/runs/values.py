"""The values of a row, and which of them speak against its label.

A number or a date does where it lies farther from the middle of its class than from that of the suggested one, by a
spread of the classes or more; a category where it is twice as frequent in the suggested class, and not rare there.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch

from noiseproof.data import LabeledData
from noiseproof.data.labeled import is_table

SPEAKING = 1.0  # spreads by which a number must be farther from its class
TWICE, RARE = 2.0, 0.05  # how much more frequent a category must be in the suggested class, and there at least
_LONGEST = 2000  # characters of a value that are shown


@dataclass(eq=False)
class _Numbers:
    """A column of numbers or dates (n,), NaN where missing, of examples of classes (n,), −1 for none."""

    values: np.ndarray
    classes: np.ndarray
    num_classes: int
    date: bool = False

    @cached_property
    def middles(self) -> tuple[np.ndarray, float]:
        """The median of each class (K,), of all where it has no value, and the spread within classes."""
        there = np.isfinite(self.values) & (self.classes >= 0)
        values, classes = self.values[there], self.classes[there]
        middle = np.full(self.num_classes, np.median(values) if len(values) else np.nan)
        for k in np.unique(classes):
            middle[k] = np.median(values[classes == k])
        away = np.abs(values - middle[classes])
        spread = 1.4826 * float(np.median(away)) if len(away) else 0.0  # a standard deviation, of normal values
        return middle, spread or float(away.mean() if len(away) else 0) or 1.0

    def against(self, row: int, given: int, suggested: int) -> tuple[str, str, str, float]:
        """The value, the middles of both classes, and how much it speaks against the given one; 1 is enough."""
        middle, spread = self.middles
        own = self.values[row]
        speaks = (abs(own - middle[given]) - abs(own - middle[suggested])) / spread
        return self._text(own), self._text(middle[given]), self._text(middle[suggested]), _known(speaks / SPEAKING)

    def _text(self, value: float) -> str:
        if not np.isfinite(value):
            return "missing"
        if self.date:
            return str(np.datetime64(round(value), "D"))
        return f"{value:.4g}" if abs(value) < 1e4 else f"{value:,.0f}"


@dataclass(eq=False)
class _Categories:
    """A column of categories: codes (n,), −1 where missing, and what they stand for; otherwise the same."""

    values: np.ndarray
    classes: np.ndarray
    num_classes: int
    levels: tuple[str, ...]

    @cached_property
    def shares(self) -> np.ndarray:
        """(K, levels + 1): how frequent each value is in each class; the last is that it is missing."""
        width = len(self.levels) + 1
        there = self.classes >= 0
        place = self.classes[there] * width + self.values[there] % width  # −1 is the last
        counts = np.bincount(place, minlength=self.num_classes * width).reshape(self.num_classes, width)
        return counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)

    def against(self, row: int, given: int, suggested: int) -> tuple[str, str, str, float]:
        code = self.values[row]
        there, here = self.shares[given, code], self.shares[suggested, code]
        speaks = min(float(here / (TWICE * max(there, 1e-9))), 10.0) if here >= RARE else 0.0
        value = self.levels[code] if code >= 0 else "missing"
        return value, f"{100 * there:.0f} %", f"{100 * here:.0f} %", speaks


class Values:
    """The values of data, whose examples are of classes (n,), −1 for those that are not reviewed."""

    def __init__(self, data: LabeledData, classes: np.ndarray, num_classes: int) -> None:
        self.texts: dict[str, np.ndarray] = {}
        self.columns: dict[str, _Numbers | _Categories] = {}
        if data.is_image:
            return
        if is_table(data.inputs):
            for name, column in data.inputs.columns.items():
                if column.kind == "text":
                    self.texts[name] = column.values
                elif column.kind == "category":
                    self.columns[name] = _Categories(column.values, classes, num_classes, column.levels)
                else:
                    self.columns[name] = _Numbers(column.values, classes, num_classes, column.kind == "date")
            return
        inputs = data.take(torch.arange(len(data))).numpy()
        for j, name in enumerate(data.feature_names or [f"x{j}" for j in range(inputs.shape[1])]):
            self.columns[name] = _Numbers(inputs[:, j], classes, num_classes)

    def of(self, row: int, given: int, suggested: int, cells: dict[str, Any]) -> list[dict[str, Any]]:
        """Texts and further cells of the table, then values beside those of both classes, those that speak first."""
        shown = {name: values[row] for name, values in self.texts.items()}
        shown |= {name: cell for name, cell in cells.items() if name not in self.columns and name not in shown}
        found = [(name, *column.against(row, given, suggested)) for name, column in self.columns.items()]
        found.sort(key=lambda one: -one[4])
        return [{"name": name, "value": _shortened(value)} for name, value in shown.items()] + [
            {"name": name, "value": _shortened(value), "given": there, "suggested": here, "against": speaks >= 1}
            for name, value, there, here, speaks in found
        ]


def _known(value: float) -> float:
    return float(value) if np.isfinite(value) else 0.0


def _shortened(value: Any) -> str:
    text = "" if value is None else str(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} …"

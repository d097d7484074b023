"""The examples behind the rows of a labels.parquet: their pictures, their cells, and others to compare them with."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from noiseproof.data import LabeledData
from noiseproof.data.decisions import ids_of, keys
from noiseproof.errors import InputError
from noiseproof.reviewing.items import Items
from noiseproof.reviewing.thumbnails import Picture, Thumbnails
from noiseproof.runs.values import Values

Embed = Callable[[LabeledData, Tensor], Tensor]  # rows (m,) of data -> (m, F), in which near means alike
Cells = Callable[[str], dict[str, Any]]  # id -> what else a table says of the example, by column

BANK = 300  # examples of a class to compare with, those whose labels are trusted most
NEAR = 4
_SIDE = 16  # pixels images are compared at, where there is no network's opinion


class Examples:
    """The data that is reviewed.

    Args:
        items: what is to be reviewed.
        train, test: the data as it was read.
        cells: text and other columns of its table, by id.
        embed: what examples are compared by; by default pixels, or features scaled alike.

    Raises:
        InputError: none of the items is in the data.
    """

    def __init__(
        self,
        items: Items,
        train: LabeledData,
        test: LabeledData | None = None,
        *,
        cells: Cells | None = None,
        embed: Embed | None = None,
    ) -> None:
        self.items, self.parts = items, (train,) if test is None else (train, test)
        self.cells, self.embed = cells or (lambda id: {}), embed or _plain(train)
        place = {id: (0, row) for row, id in enumerate(ids_of(train))}
        if test is not None:
            own = keys(ids_of(test), ids_of(train))
            place = {id: (1, row) for row, id in enumerate(own)} | place
        self.place = np.array([place.get(id, (-1, -1)) for id in items.ids], dtype=np.int32)  # (n, 2): part, row in it
        if (self.place < 0).all():
            raise InputError(
                f"the data has none of the examples that the labels are of, as {items.ids[0]!r}; pass the run's data"
            )
        self._thumbnails = Thumbnails(self.parts)
        self._banks: dict[int, tuple[np.ndarray, Tensor]] = {}
        self._by_part: dict[int, Values] = {}
        self._lock = threading.Lock()

    @property
    def is_image(self) -> bool:
        return self.parts[0].is_image

    def picture(self, row: int, longest: int) -> Picture | None:
        """The picture of an item; None where it has none."""
        part, at = self.place[row].tolist()
        return self._thumbnails.picture(part, at, longest) if part >= 0 and self.is_image else None

    def near(self, row: int) -> dict[str, list[int]]:
        """The rows of trusted examples nearest to an item, of its class and of the suggested one."""
        part, at = self.place[row].tolist()
        if part < 0:
            return {}
        own = self.embed(self.parts[part], torch.tensor([at]))  # (1, F)
        found = {}
        for name, k in (("label", self.items.label[row]), ("suggested", self.items.suggested[row])):
            rows, bank = self._bank(int(k))
            nearest = torch.cdist(own, bank)[0].argsort().tolist() if len(rows) else []
            found[name] = [int(rows[i]) for i in nearest if rows[i] != row][:NEAR]
        return found

    def _bank(self, k: int) -> tuple[np.ndarray, Tensor]:
        """The rows (m,) of a class whose labels are trusted most, and what they are compared by (m, F)."""
        with self._lock:
            if k not in self._banks:
                rows = np.flatnonzero((self.items.label == k) & ~self.items.issue)
                rows = rows[np.argsort(self.items.p[rows], kind="stable")]
                rows = rows[self.place[rows, 0] >= 0][:BANK]
                self._banks[k] = rows, self._embedded(rows) if len(rows) else torch.empty(0)
            return self._banks[k]

    def _embedded(self, rows: np.ndarray) -> Tensor:
        """What some items are compared by (m, F)."""
        places = torch.from_numpy(self.place[rows]).long()  # (m, 2)
        found: list[Tensor] = [torch.empty(0)] * len(rows)
        for part, data in enumerate(self.parts):
            inside = (places[:, 0] == part).nonzero()[:, 0]
            if len(inside):
                for i, vector in zip(inside.tolist(), self.embed(data, places[inside, 1]), strict=True):
                    found[i] = vector
        return torch.stack(found)

    def values(self, row: int) -> list[dict[str, Any]]:
        """The values of an item, as `Values.of` has them."""
        part, at = self.place[row].tolist()
        if part < 0:
            return []
        given, suggested = int(self.items.label[row]), int(self.items.suggested[row])
        return self._values(part).of(at, given, suggested, self.cells(self.items.ids[row]))

    def _values(self, part: int) -> Values:
        with self._lock:
            if part not in self._by_part:
                classes = np.full(len(self.parts[part]), -1)
                rows = np.flatnonzero(self.place[:, 0] == part)
                classes[self.place[rows, 1]] = self.items.label[rows]
                self._by_part[part] = Values(self.parts[part], classes, len(self.items.classes))
            return self._by_part[part]

    def brief(self, row: int) -> str:
        """Some values of an item in a few lines: features that speak against its label before others, then text."""
        values = sorted(self.values(row), key=lambda one: "given" not in one)
        return "\n".join(f"{one['name']}: {one['value'][:200]}" for one in values[:4])


def _plain(train: LabeledData) -> Embed:
    """Compares images by a few pixels, brightness aside, and features by their values, each scaled alike."""
    if train.is_image:

        def pooled(data: LabeledData, rows: Tensor) -> Tensor:
            pixels = F.adaptive_avg_pool2d(data.take(rows).float(), _SIDE).flatten(1)
            return pixels - pixels.mean(dim=1, keepdim=True)

        return pooled
    some = train.take(torch.linspace(0, len(train) - 1, min(len(train), 10_000)).long())
    spread = some.std(dim=0, correction=0).clamp(min=1e-6)
    return lambda data, rows: data.take(rows) / spread


def embed_with(features: Callable[[LabeledData, Tensor], Tensor]) -> Embed:
    """Compares examples by the angle between features of a trained network."""
    return lambda data, rows: F.normalize(features(data, rows), dim=1)


def table_cells(table: Any, ids: Sequence[str]) -> Cells:
    """What an Arrow table says of the examples with these ids, one for each row."""
    place = {id: row for row, id in enumerate(ids)}
    return lambda id: table.slice(place[id], 1).to_pylist()[0] if id in place else {}

"""The data behind the rows: joined by id, shown as pictures and cells, compared with trusted examples."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from PIL import Image
from reviewing.support import write_labels

from noiseproof.data import LabeledData, load
from noiseproof.errors import InputError
from noiseproof.reviewing.examples import Examples, table_cells
from noiseproof.reviewing.items import Items
from noiseproof.reviewing.thumbnails import Thumbnails


def rows_of(path: Path, *rows: dict[str, Any]) -> Items:
    write_labels(path / "labels.parquet", rows)
    return Items(path / "labels.parquet")


def pixels_of(content: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(content)).convert("RGB"))


def test_rows_find_their_examples_by_id_whatever_the_order(tmp_path: Path) -> None:
    shades = torch.arange(4, dtype=torch.uint8).reshape(4, 1, 1, 1).expand(4, 1, 5, 6) * 60
    train = LabeledData(shades[:3], ["a", "b", "a"], ids=["x", "y", "z"])
    test = LabeledData(shades[3:], ["a"], ids=["x"], class_names=["a", "b"], allow_empty=True)
    items = rows_of(tmp_path, *({"id": id, "label": "a", "suggested": "b", "p": p}
                                for id, p in (("z", 0.9), ("test:x", 0.8), ("x", 0.7), ("gone", 0.6))))  # fmt: skip
    examples = Examples(items, train, test)
    found = [examples.picture(row, 96) for row in range(4)]
    assert [None if one is None else int(pixels_of(one.content)[0, 0, 0]) for one in found] == [120, 180, 0, None]
    assert pixels_of(found[0].content).shape == (5, 6, 3)
    assert (examples.values(3), examples.near(3)) == ([], {})
    with pytest.raises(InputError, match="none of the examples"):
        Examples(rows_of(tmp_path, {"id": "q", "label": "a", "suggested": "b", "p": 1.0}), train)


def test_large_pictures_are_shown_whole_and_small_ones_as_they_are(tmp_path: Path) -> None:
    for name, size in (("cat", (400, 200)), ("dog", (20, 30))):
        (tmp_path / name).mkdir()
        Image.new("RGB", size, "red").save(tmp_path / name / "0.png")
    data = load(tmp_path, image_size=8, decode=False)
    thumbnails = Thumbnails((data,))
    assert pixels_of(thumbnails.picture(0, 0, 192).content).shape == (96, 192, 3)  # not cropped to what is trained on
    assert pixels_of(thumbnails.picture(0, 1, 192).content).shape == (30, 20, 3)


def test_floats_beyond_the_unit_range_are_brought_into_it() -> None:
    data = LabeledData(torch.tensor([-2.0, 2.0]).reshape(2, 1, 1, 1).expand(2, 1, 3, 3), ["a", "b"])
    thumbnails = Thumbnails((data,))
    assert [int(pixels_of(thumbnails.picture(0, row, 96).content).max()) for row in range(2)] == [0, 255]


def test_pictures_are_kept_within_a_budget() -> None:
    data = LabeledData(torch.randint(0, 256, (30, 3, 32, 32), dtype=torch.uint8), ["a", "b"] * 15)
    thumbnails = Thumbnails((data,), budget=20_000)
    for row in range(30):
        thumbnails.picture(0, row, 96)
    assert sum(len(one.content) for one in thumbnails._kept.values()) == thumbnails._size <= 20_000
    assert thumbnails.picture(0, 29, 96) is thumbnails.picture(0, 29, 96)


def test_values_that_speak_against_the_label_come_first(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    middle = np.array([[0.0, 5.0, 1.0], [10.0, 5.0, 1.0]])
    truth = np.arange(40) % 2
    inputs = (middle[truth] + rng.normal(0, [1, 1, 1e-9], (40, 3))).astype(np.float32)
    label = truth.copy()
    label[0] = 1  # it lies where class 0 lies
    data = LabeledData(inputs, label, feature_names=["width", "same", "constant"])
    items = rows_of(tmp_path, *({"id": str(i), "label": str(label[i]), "suggested": str(truth[i]),
                                 "p": 0.9 if label[i] != truth[i] else 0.1} for i in range(40)))  # fmt: skip
    notes = pa.table({"note": [f"n{i}" for i in range(40)], "width": inputs[:, 0]})
    examples = Examples(items, data, cells=table_cells(notes, [str(i) for i in range(40)]))
    values = examples.values(items.row["0"])
    assert [one["name"] for one in values][:2] == ["note", "width"]
    assert values[0]["value"] == "n0"
    assert [one["name"] for one in values if one.get("against")] == ["width"]
    assert not any(one.get("against") for one in examples.values(items.row["5"]))
    assert examples.brief(items.row["0"]).startswith("width: ")
    near = examples.near(items.row["0"])
    assert all(items.label[row] == 1 for row in near["label"])
    assert all(items.label[row] == 0 for row in near["suggested"])
    nearest = near["suggested"][0]
    zeros = list(range(2, 40, 2))
    scale = inputs.std(axis=0).clip(1e-6)
    away = [np.linalg.norm((inputs[i] - inputs[0]) / scale) for i in zeros]
    assert items.ids[nearest] == str(zeros[int(np.argmin(away))])


def test_suspected_examples_are_not_compared_with(tmp_path: Path) -> None:
    data = LabeledData(np.eye(6, dtype=np.float32), ["a", "b"] * 3)
    items = rows_of(tmp_path, *({"id": str(i), "label": "ab"[i % 2], "suggested": "ba"[i % 2], "p": p}
                                for i, p in enumerate([0.9, 0.8, 0.7, 0.1, 0.1, 0.1])))  # fmt: skip
    near = Examples(items, data).near(items.row["0"])
    assert {name: sorted(items.ids[row] for row in rows) for name, rows in near.items()} == {
        "label": ["4"], "suggested": ["3", "5"]
    }  # fmt: skip

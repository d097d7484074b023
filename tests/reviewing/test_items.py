"""Rows of a labels.parquet: filters, orders, groups, and tables that are none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from reviewing.support import write_labels

from noiseproof.data.decisions import DROP, KEEP, RELABEL
from noiseproof.errors import InputError
from noiseproof.reviewing.items import Items
from noiseproof.reviewing.store import SKIP, Entry

ROWS = [
    {"id": "10", "label": "cat", "suggested": "dog", "p": 0.99},
    {"id": "9", "label": "cat", "suggested": "dog", "p": 0.9, "split": "val"},
    {"id": "e", "label": "dog", "suggested": "cat", "p": 0.8, "kind": "duplicate", "group": 3},
    {"id": "D", "label": "owl", "suggested": "owl", "p": 0.6, "kind": "off-topic"},
    {"id": "c/d", "label": "dog", "suggested": "dog", "p": 0.1, "kind": "", "group": 3},
    {"id": "b", "label": "owl", "suggested": "owl", "p": 0.0},
]


@pytest.fixture
def items(tmp_path: Path) -> Items:
    write_labels(tmp_path / "labels.parquet", ROWS)
    return Items(tmp_path / "labels.parquet", ("owl",))


def entry(version: int, id: str, action: str, label: str) -> Entry:
    return Entry(version, version, id, "train", "?", action, label, 1, "Ada", "now", "s", None, None)


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ({}, [0, 1, 2, 3, 4, 5]),
        ({"issue": "1"}, [0, 1, 2, 3]),
        ({"label": "cat", "suggested": "dog"}, [0, 1]),
        ({"label": "cat", "split": "val"}, [1]),
        ({"kind": "duplicate"}, [2]),
        ({"group": "3"}, [2, 4]),
        ({"above": "0.8"}, [0, 1, 2]),
        ({"search": "d"}, [3, 4]),
        ({"label": "<b>"}, []),
        ({"state": "open"}, [3, 5]),
        ({"state": "decided"}, [0, 1, 2]),
        ({"state": "skip"}, [4]),
        ({"state": "relabel"}, [0]),
        ({"order": "id"}, [1, 0, 3, 5, 4, 2]),
        ({"order": "group"}, [2, 4, 0, 1, 3, 5]),
        ({"order": "pair", "issue": "1"}, [0, 1, 3, 2]),
    ],
)
def test_filters_and_orders(items: Items, filters: dict[str, str], found: list[int]) -> None:
    items.take_in([entry(1, "10", KEEP, "cat"), entry(2, "9", DROP, "cat"), entry(3, "e", KEEP, "dog")])
    items.take_in([entry(4, "c/d", SKIP, "dog"), entry(5, "10", RELABEL, "dog"), entry(6, "gone", KEEP, "cat")])
    assert items.find(filters).tolist() == found


@pytest.mark.parametrize("filters", [{"nme": "x"}, {"state": "opn"}, {"order": "x"}, {"above": "x"}, {"group": "x"}])
def test_wrong_filters_are_refused(items: Items, filters: dict[str, str]) -> None:
    with pytest.raises(InputError):
        items.find(filters)


def test_an_item_says_why_and_what_was_decided(items: Items) -> None:
    assert items.classes == ["owl", "cat", "dog"]
    assert items.describe(0)["why"] == "dog fits with 99 %; cat has 1.0 %."
    assert "group 3" in items.describe(2)["why"]
    assert "No class fits" in items.describe(3)["why"]
    assert items.describe(5)["action"] == "undecided"
    items.take_in([entry(7, "10", RELABEL, "owl")])
    now = items.describe(0)
    assert (now["action"], now["now"], now["version"], now["who"]) == (RELABEL, "owl", 7, "Ada")


def test_pairs_count_what_is_open(items: Items) -> None:
    assert items.pairs()[0] == {"label": "cat", "suggested": "dog", "count": 2, "open": 2}
    items.take_in([entry(1, "10", KEEP, "cat")])
    assert items.pairs()[0]["open"] == 1


def test_many_rows_are_filtered_at_once(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    p = rng.random(20_000)
    names = np.array([f"class {k}" for k in range(100)])
    label, suggested = names[rng.integers(100, size=len(p))], names[rng.integers(100, size=len(p))]
    columns = zip(label.tolist(), suggested.tolist(), p.tolist(), strict=True)
    rows = [{"id": str(i), "label": a, "suggested": b, "p": value} for i, (a, b, value) in enumerate(columns)]
    write_labels(tmp_path / "labels.parquet", rows)
    many = Items(tmp_path / "labels.parquet")
    assert len(many.find({"above": "0.5", "order": "pair"})) == (many.p >= 0.5).sum()
    assert many.find({"search": "19999"}).tolist() == [many.row["19999"]]


def test_a_table_that_is_none_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "labels.parquet"
    with pytest.raises(InputError, match="does not exist"):
        Items(path)
    path.write_bytes(b"PAR1 and no more")
    with pytest.raises(InputError, match="damaged"):
        Items(path)
    write_labels(path, ROWS)
    table = pq.read_table(path)
    pq.write_table(table.drop_columns("candidates"), path)
    with pytest.raises(InputError, match="no column 'candidates'"):
        Items(path)
    pq.write_table(pa.concat_tables([table, table.slice(0, 1)]), path)
    with pytest.raises(InputError, match="twice"):
        Items(path)

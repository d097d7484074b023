"""Decisions, read from a store or a table, and applied to data by id."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from noiseproof.data import LabeledData
from noiseproof.data.decisions import DROP, KEEP, RELABEL, Decision, apply, decisions_of, keys, suggestions
from noiseproof.data.relabel import decisions_csv
from noiseproof.errors import InputError
from noiseproof.reviewing.store import SKIP, Store, Wanted

DATA = LabeledData(np.eye(4, dtype=np.float32), ["cat", "dog", "cat", "owl"], ids=["a", "b", "c", "d"])
CHOSEN = {"c": Decision(RELABEL, "dog", "cat"), "a": Decision(KEEP, "cat", "cat"), "d": Decision(DROP, "owl", "owl")}


def test_decided_rows_get_their_label_and_dropped_ones_leave() -> None:
    decided = apply(DATA, CHOSEN)
    assert decided.ids == ["a", "b", "c"]
    assert [decided.class_names[k] for k in decided.labels] == ["cat", "dog", "dog"]
    assert decided.class_names == DATA.class_names
    assert DATA.labels.tolist() == [0, 1, 0, 2]  # as it was


def test_data_without_ids_goes_by_position() -> None:
    plain = LabeledData(np.eye(3, dtype=np.float32), [0, 1, 0])
    assert apply(plain, {"2": Decision(RELABEL, "1")}).labels.tolist() == [0, 1, 1]


def test_decisions_of_the_training_set_do_not_touch_a_test_set_of_the_same_ids() -> None:
    train, test = (LabeledData(np.eye(3, dtype=np.float32), [0, 1, 0]) for _ in range(2))
    decided = {"2": Decision(RELABEL, "1"), "test:0": Decision(RELABEL, "1")}
    assert apply(train, decided).labels.tolist() == [0, 1, 1]
    assert apply(test, decided, beside=train).labels.tolist() == [1, 1, 0]
    assert keys(["x"], ["y"]) == ["x"]
    assert keys(["x", "z"], ["y", "z"]) == ["test:x", "test:z"]


def test_a_label_must_be_a_class_and_something_must_be_left() -> None:
    with pytest.raises(InputError, match="none of the classes"):
        apply(DATA, {"a": Decision(RELABEL, "../../etc")})
    with pytest.raises(InputError, match="every example was dropped"):
        apply(DATA, {id: Decision(DROP, "") for id in "abcd"})


def test_a_store_and_the_tables_made_of_it_say_the_same(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for id, one in CHOSEN.items():
        store.decide([Wanted(id, "train", str(one.before), one.action, one.label, 0)], who="Ada")
    store.decide([Wanted("b", "train", "dog", SKIP, "dog", 0)])
    found = decisions_of(tmp_path)
    assert {id: one[:3] for id, one in found.items()} == {id: one[:3] for id, one in CHOSEN.items()}
    assert {(one.who, one.split) for one in found.values()} == {("Ada", "train")}
    assert decisions_of(tmp_path / "decisions.sqlite") == found
    table = tmp_path / "decisions.csv"
    table.write_text(decisions_csv(found))
    assert decisions_of(table) == found
    store.close()


def test_a_plain_table_of_ids_and_labels_relabels(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [3, 4], "label": ["dog", "cat"]}), tmp_path / "a.parquet")
    assert decisions_of(tmp_path / "a.parquet") == {"3": Decision(RELABEL, "dog"), "4": Decision(RELABEL, "cat")}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name,label\n1,cat\n2,dog\n", "no column 'id'"),
        ("id,label\n1,cat\n1,dog\n", "each id once"),
        ("id,label,decision\n1,cat,kepe\n", "did you mean 'keep'"),
        ("id,label,decision\n1,,relabel\n2,cat,keep\n", "no label at row 0"),
    ],
)
def test_a_table_that_is_none_is_refused(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(InputError, match=said):
        decisions_of(tmp_path / "a.csv")


def test_what_holds_no_decisions_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="noiseproof review"):
        decisions_of(tmp_path)
    with pytest.raises(InputError, match="does not exist"):
        decisions_of(tmp_path / "nowhere")
    Store(tmp_path).close()
    with pytest.raises(InputError, match="holds no decisions"):
        decisions_of(tmp_path)
    (tmp_path / "decisions.sqlite").write_bytes(b"SQLite format 3\0" + bytes(range(256)) * 16)
    with pytest.raises(InputError, match="damaged"):
        decisions_of(tmp_path)


def test_suggestions_above_a_confidence(tmp_path: Path) -> None:
    table = {"id": ["a", "b", "c"], "split": ["train"] * 3, "label": ["x", "x", "y"], "suggested": ["y", "y", "y"]}
    pq.write_table(pa.table(table | {"confidence": pa.array([0.97, 0.9, 0.99], pa.float32())}), tmp_path / "l.parquet")
    assert suggestions(tmp_path / "l.parquet", 0.95) == {"a": Decision(RELABEL, "y", "x", "auto", split="train")}


def test_any_csv_that_others_write_is_read(tmp_path: Path) -> None:
    text = "id;note;label\n007;" + "x" * 200_000 + ";01\nNA;;True\n"
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(text.encode()))
    assert {id: one.label for id, one in decisions_of(tmp_path / "a.csv.gz").items()} == {"007": "01", "NA": "True"}

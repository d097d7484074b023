"""Noisy copies of files: labels change, the old ones are kept, nothing else moves, and nothing half-written is left."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from noiseproof.data import corrupt_table, load, noise
from noiseproof.errors import InputError

ROWS = [f'{i}.50,"a ""b"", {i}",{["cat", "dog", "owl"][i % 3]}' for i in range(30)]


def rows_of(path: Path) -> list[list[str]]:
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.reader(file))


def test_csv_keeps_every_other_cell(make: Any) -> None:
    source, out = make.text("a.csv", "x,note,label", *ROWS), make.root / "b.csv"
    before = source.read_bytes()
    done = corrupt_table(source, out, label_column="label", spec="symmetric:0.4", seed=1)
    assert (done.n, done.changed, done.rate) == (30, 12, 0.4)
    assert done.class_names == ("cat", "dog", "owl")
    assert done.transition.diagonal().tolist() == pytest.approx([0.6] * 3)
    old, new = rows_of(source), rows_of(out)
    assert new[0] == ["x", "note", "label", "true_label"]
    assert [r[:2] for r in new] == [r[:2] for r in old]
    assert [r[3] for r in new[1:]] == [r[2] for r in old[1:]]
    assert sum(r[2] != r[3] for r in new[1:]) == 12
    assert source.read_bytes() == before
    assert load(out, feature_columns=["x"]).noise_rate == pytest.approx(0.4)
    again = make.root / "c.csv"
    corrupt_table(source, again, spec="symmetric:0.4", seed=1)
    assert again.read_bytes() == out.read_bytes()
    assert sorted(p.name for p in make.root.iterdir()) == ["a.csv", "b.csv", "c.csv"]


def test_csv_labels_keep_their_spelling(make: Any) -> None:
    source, out = make.text("a.csv", "x;label", "1;true", "2;false", "3;true", "4;false"), make.root / "b.csv"
    corrupt_table(source, out, spec="pair:1")
    assert out.read_text().split() == [
        "x;label;true_label",
        "1;false;true",
        "2;true;false",
        "3;false;true",
        "4;true;false",
    ]


def test_labels_need_not_count_from_zero(make: Any) -> None:
    source, out = make.text("a.csv", "x,y", "1,5", "2,7", "3,5", "4,7"), make.root / "b.csv"
    corrupt_table(source, out, spec="pair:1")
    assert [r[1] for r in rows_of(out)[1:]] == ["7", "5", "7", "5"]


@pytest.mark.parametrize("kind", ["text", "dictionary", "int8"])
def test_parquet_keeps_schema(make: Any, kind: str) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    types = {"text": pa.string(), "dictionary": pa.dictionary(pa.int32(), pa.string()), "int8": pa.int8()}
    labels = [0, 1, 2, 1] * 5 if kind == "int8" else ["a", "b", "c", "b"] * 5
    columns = {"x": np.arange(20.0), "label": labels, "when": ["now"] * 20}
    source = make.parquet("a.parquet", columns, {b"note": b"kept"}, label=types[kind])
    done = corrupt_table(source, make.root / "b.parquet", spec="symmetric:0.5")
    old, new = pq.read_table(source), pq.read_table(make.root / "b.parquet")
    assert new.column_names == [*old.column_names, "true_label"]
    assert new.schema.field("label").type == old.schema.field("label").type
    assert new.schema.metadata == old.schema.metadata
    assert new.column("true_label").to_pylist() == old.column("label").to_pylist()
    assert new.column("when").equals(old.column("when"))
    changed = sum(a != b for a, b in zip(new.column("label").to_pylist(), labels, strict=True))
    assert changed == done.changed == 9  # round(2.5) twice and round(5.0): half to even


@pytest.mark.parametrize("compressed", [True, False])
def test_npz(make: Any, compressed: bool) -> None:
    arrays = {"x_train": np.eye(8), "y_train": np.arange(8) % 2, "x_test": np.eye(8), "y_test": np.arange(8) % 2}
    source, out = make.npz("a.npz", compressed, **arrays), make.root / "b.npz"
    corrupt_table(source, out, spec="pair:0.5")
    data = load(out)
    assert data.noise_rate == 0.5
    assert data.true_labels.tolist() == [0, 1] * 4
    assert load(out, split="test").labels.tolist() == [0, 1] * 4


def test_instance_noise_reads_the_features(make: Any) -> None:
    lines = [f"{x:.3f},{i % 2}" for i, x in enumerate(np.linspace(-1, 1, 200))]
    done = corrupt_table(make.text("a.csv", "x,label", *lines), make.root / "b.csv", spec="instance:0.4")
    assert 0.2 < done.rate < 0.6


def test_asymmetric_noise_knows_cifar(make: Any) -> None:
    names = [{"bytes": make.image((32, 32), seed=i), "path": None} for i in range(20)]
    source = make.parquet("a.parquet", {"img": names, "label": [i % 10 for i in range(20)]})
    corrupt_table(source, make.root / "b.parquet", spec="asymmetric:1")
    data = load(make.root / "b.parquet")
    pairs = zip(data.true_labels.tolist(), data.labels.tolist(), strict=True)
    assert {(a, b) for a, b in pairs if a != b} == set(noise.CIFAR10_PAIRS.items())
    text = make.text("t.csv", "words,label", *(f"w{i},{i % 3}" for i in range(9)))
    assert corrupt_table(text, make.root / "u.csv", spec="asymmetric:1").rate == 1.0


def test_true_label_column(make: Any) -> None:
    same = make.text("same.csv", "x,label,true_label", "1,a,a", "2,b,b")
    corrupt_table(same, make.root / "out.csv", label_column="label", spec="pair:1")
    assert rows_of(make.root / "out.csv") == [["x", "label", "true_label"], ["1", "b", "a"], ["2", "a", "b"]]
    with pytest.raises(InputError, match="noisy labels already"):
        corrupt_table(make.root / "out.csv", make.root / "twice.csv", label_column="label", spec="pair:1")


def test_source_is_never_overwritten_and_failure_leaves_nothing(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    source = make.text("a.csv", "x,label", "1,a", "2,b")
    (make.root / "link.csv").symlink_to(source)
    for out in (source, make.root / "link.csv"):
        with pytest.raises(InputError, match="source itself"):
            corrupt_table(source, out, spec="pair:1")

    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("os.replace", fail)
    with pytest.raises(InputError, match="disk full"):
        corrupt_table(source, make.root / "b.csv", spec="pair:1")
    assert sorted(p.name for p in make.root.iterdir()) == ["a.csv", "link.csv"]


@pytest.mark.parametrize("name", ["true_label", "true_labels", "True_Label"])
def test_a_file_with_true_labels_is_noisy_already(make: Any, name: str) -> None:
    source = make.text("a.csv", f"x,{name},label", *[f"{i},{(i + 1) % 3},{i % 3}" for i in range(30)])
    with pytest.raises(InputError, match=f"noisy labels already \\('{name}'"):
        corrupt_table(source, make.root / "b.csv", spec="pair:0.5")
    x = np.zeros((30, 2))
    arrays = make.npz("a.npz", **{"x": x, "y": np.arange(30) % 3, name: np.arange(30) % 2})
    with pytest.raises(InputError, match=f"noisy labels already \\('{name}'"):
        corrupt_table(arrays, make.root / "b.npz", spec="pair:0.5")


def test_npz_names_in_any_case_and_columns_of_labels(make: Any) -> None:
    source = make.npz("a.npz", X_TRAIN=np.zeros((20, 2)), y_TRAIN=(np.arange(20) % 2)[:, None])
    done = corrupt_table(source, make.root / "b.npz", spec="symmetric:0.4")
    assert done.rate == 0.4
    data = load(make.root / "b.npz")
    assert data.noise_rate == pytest.approx(0.4)
    with np.load(make.root / "b.npz") as arrays:
        assert arrays["y_TRAIN"].shape == (20, 1)


@pytest.mark.parametrize(
    ("labels", "phrase"),
    [
        (np.array([0.0, np.nan, 1.0]), "got nan at row 1"),
        (np.array([0.0, np.inf, 1.0]), "got inf at row 1"),
        (np.arange(30) * 0.5, "got 0.5 at row 1"),
        (np.arange(30), "30 distinct values in 30 rows"),
        (np.array([], dtype=int), "empty"),
        (np.array(3), "one-dimensional"),
        (np.eye(3), "argmax"),
    ],
)
def test_labels_that_fit_would_refuse(make: Any, labels: np.ndarray, phrase: str) -> None:
    source = make.npz("a.npz", x=np.zeros((3, 2)), y=labels)
    with pytest.raises(InputError, match=phrase):
        corrupt_table(source, make.root / "b.npz", spec="symmetric:0.4")
    assert not (make.root / "b.npz").exists()


def test_a_file_of_another_form_is_no_table(make: Any) -> None:
    source = make.text("a.jsonl", *[f'{{"x": {i}, "label": {i % 2}}}' for i in range(10)])
    with pytest.raises(InputError, match=r"a\.jsonl is of another form; pass a CSV, Parquet or npz file"):
        corrupt_table(source, make.root / "b.jsonl", spec="symmetric:0.4")
    assert not (make.root / "b.jsonl").exists()


def test_csv_keeps_its_line_ends_and_its_mark(make: Any) -> None:
    lines = ["x,label", *[f"{i},{i % 2}" for i in range(10)], ""]
    source = make.bytes("a.csv", b"\xef\xbb\xbf" + "\r\n".join(lines).encode())
    corrupt_table(source, make.root / "b.csv", spec="symmetric:0.4")
    content = (make.root / "b.csv").read_bytes()
    assert content.startswith(b"\xef\xbb\xbfx,label,true_label\r\n")
    assert content.count(b"\n") == content.count(b"\r\n") == 11
    long = make.text("long.csv", "x,note,label", *[f"{i},{'z' * 200_000},{i % 2}" for i in range(4)])
    corrupt_table(long, make.root / "c.csv", spec="symmetric:0.5")
    assert len(rows_of(make.root / "c.csv")[1][1]) == 200_000


def test_parquet_categories_keep_their_order(make: Any) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = pa.array(["low", "mid", "high", "never"])
    column = pa.DictionaryArray.from_arrays(pa.array([i % 3 for i in range(30)], pa.int8()), names, ordered=True)
    pq.write_table(pa.table({"x": list(range(30)), "label": column}), make.root / "a.parquet")
    corrupt_table(make.root / "a.parquet", make.root / "b.parquet", spec="symmetric:0.4")
    field, stored = pq.read_schema(make.root / "b.parquet").field("label"), pq.read_table(make.root / "b.parquet")
    assert field.type.ordered
    assert stored.column("label").chunk(0).dictionary.to_pylist() == names.to_pylist()
    assert (
        sum(a != b for a, b in zip(*(stored.column(n).to_pylist() for n in ("label", "true_label")), strict=True)) == 12
    )

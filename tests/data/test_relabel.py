"""Corrected copies of image folders, CSV, Parquet and npz: every decision arrives, and nothing else changes."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from noiseproof.data import load, load_pair
from noiseproof.data import relabel as corrected
from noiseproof.data.decisions import DROP, KEEP, RELABEL, Decision, Decisions, decisions_of
from noiseproof.data.relabel import relabel
from noiseproof.errors import InputError

TEXT = "x,note,label\n" + "".join(f'{i}.50,"a ""b"", {i}",{["cat", "dog", "owl"][i % 3]}\n' for i in range(9))


def images(root: Path, *, split: str = "") -> Path:
    """cat/0.png … owl/2.png, each with its own bytes."""
    for k, name in enumerate(("cat", "dog", "owl")):
        for i in range(3):
            path = root / split / name / f"{i}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(np.full((4, 4), 40 * k + i + len(split), np.uint8)).save(path)
    return root


def content(root: Path) -> dict[str, bytes]:
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_an_image_folder(tmp_path: Path) -> None:
    source, out = images(tmp_path / "photos"), tmp_path / "clean"
    before = content(source)
    done = relabel(
        source,
        {"cat/1.png": Decision(RELABEL, "dog", "cat"), "owl/2.png": Decision(DROP, "owl", "owl"),
         "dog/0.png": Decision(KEEP, "dog", "dog")},
        out,
    )  # fmt: skip
    expected = {name: data for name, data in before.items() if name not in ("cat/1.png", "owl/2.png")}
    assert content(out) == expected | {"dog/1-cat.png": before["cat/1.png"]}  # dog/1.png was there already
    assert content(source) == before
    assert (done.n, dict(done.changed), done.dropped, done.confirmed) == (9, {("cat", "dog"): 1}, 1, 1)
    assert (out / "dog/0.png").stat().st_ino == (source / "dog/0.png").stat().st_ino  # a link
    assert not list(tmp_path.glob(".*"))
    assert decisions_of(tmp_path / "clean.decisions.csv").keys() == {"cat/1.png", "owl/2.png", "dog/0.png"}
    assert load(out).class_names == ("cat", "dog", "owl")


def test_an_image_folder_with_a_test_set(tmp_path: Path) -> None:
    source, out = images(images(tmp_path / "photos", split="train"), split="test"), tmp_path / "clean"
    before = content(source)
    decided = {"cat/0.png": Decision(RELABEL, "owl", "cat"), "test:dog/1.png": Decision(DROP, "dog", split="test")}
    done = relabel(source, decided, out, copy=True)
    gone = {name: data for name, data in before.items() if name not in ("train/cat/0.png", "test/dog/1.png")}
    assert content(out) == gone | {"train/owl/0-cat.png": before["train/cat/0.png"]}
    assert (done.n, done.elsewhere) == (18, 0)
    assert (out / "train/dog/0.png").stat().st_ino != (source / "train/dog/0.png").stat().st_ino


def test_a_csv_keeps_every_other_cell_and_the_old_label(tmp_path: Path) -> None:
    source, out = tmp_path / "a.csv", tmp_path / "b.csv"
    source.write_text(TEXT)
    done = relabel(source, {"4": Decision(RELABEL, "owl", "dog"), "7": Decision(DROP, "dog", "dog")}, out)
    old, new = (list(csv.reader(path.read_text().splitlines())) for path in (source, out))
    assert new[0] == ["x", "note", "label", "label_before"]
    kept = [row for i, row in enumerate(old[1:]) if i != 7]
    assert [row[:2] for row in new[1:]] == [row[:2] for row in kept]
    assert [row[3] for row in new[1:]] == [row[2] for row in kept]
    assert [row[2] for row in new[1:]] == [*(row[2] for row in kept[:4]), "owl", *(row[2] for row in kept[5:])]
    assert source.read_text() == TEXT
    assert done.table == tmp_path / "b.decisions.csv"
    assert load(out, feature_columns=["x"]).class_names == ("cat", "dog", "owl")


def test_the_old_label_is_no_feature(tmp_path: Path) -> None:
    source, out, again = (tmp_path / name for name in ("a.csv", "b.csv", "c.csv"))
    source.write_text("x,y\n" + "".join(f"{i},{i % 2 + 5}\n" for i in range(6)))
    relabel(source, {"0": Decision(RELABEL, "6", "5")}, out)
    assert load(out).feature_names == ("x",)
    relabel(out, {"1": Decision(RELABEL, "5", "6")}, again)  # a second round keeps the labels of the first
    rows = list(csv.DictReader(again.read_text().splitlines()))
    assert [row["label_before"] for row in rows] == ["5", "6"] * 3
    assert [row["y"] for row in rows] == ["6", "5", "5", "6", "5", "6"]


@pytest.mark.parametrize("form", ["text", "dictionary", "numbers", "hugging face"])
def test_parquet(tmp_path: Path, form: str) -> None:
    names = ["cat", "dog", "owl"]
    labels: Any = pa.array([names[i % 3] for i in range(9)])
    if form == "dictionary":
        labels = labels.dictionary_encode()
    if form in ("numbers", "hugging face"):
        labels = pa.array([i % 3 for i in range(9)], pa.int16())
    table = pa.table({"id": [f"n{i}" for i in range(9)], "x": np.arange(9.0), "label": labels, "more": ["m"] * 9})
    if form == "hugging face":
        info = {"info": {"features": {"label": {"names": [*names, "elk"]}}}}
        table = table.replace_schema_metadata({"huggingface": json.dumps(info)})
    source, out = tmp_path / "a.parquet", tmp_path / "b.parquet"
    pq.write_table(table, source)
    new = {"numbers": "2", "hugging face": "elk"}.get(form, "owl")  # a name that no row has yet, where there are names
    old = {"numbers": "1"}.get(form, "dog")
    relabel(source, {"n4": Decision(RELABEL, new, old), "n8": Decision(DROP, "")}, out)
    got = pq.read_table(out)
    assert got.column_names == ["id", "x", "label", "more", "label_before"]
    assert got.schema.metadata == pq.read_table(source).schema.metadata
    assert got.select(["id", "x", "more"]).equals(table.select(["id", "x", "more"]).slice(0, 8))
    values = table.column("label").to_pylist()
    value = {"numbers": 2, "hugging face": 3}.get(form, "owl")
    assert got.column("label").to_pylist() == [*values[:4], value, *values[5:8]]
    assert got.column("label_before").to_pylist() == values[:8]
    assert got.schema.field("label").type == table.schema.field("label").type


def test_npz_with_a_test_set(tmp_path: Path) -> None:
    source, out = tmp_path / "a.npz", tmp_path / "b.npz"
    rng = np.random.default_rng(0)
    arrays = {"x_train": rng.random((6, 3)), "y_train": np.arange(6) % 3, "x_test": rng.random((6, 3)),
              "y_test": np.arange(6) % 3, "other": np.arange(4), "class_names": np.array(["a", "b", "c"])}  # fmt: skip
    np.savez(source, **arrays)
    decided = {"1": Decision(RELABEL, "c", "b"), "2": Decision(DROP, "c"),
               "test:0": Decision(RELABEL, "b", "a", split="test")}  # fmt: skip
    relabel(source, decided, out)
    got = np.load(out)
    assert got["y_train"].tolist() == [0, 2, 0, 1, 2]
    assert got["label_before_train"].tolist() == [0, 1, 0, 1, 2]
    assert np.array_equal(got["x_train"], np.delete(arrays["x_train"], 2, axis=0))
    assert got["y_test"].tolist() == [1, 1, 2, 0, 1, 2]
    assert np.array_equal(got["x_test"], arrays["x_test"])
    assert got["other"].tolist() == [0, 1, 2, 3]
    train, test = load_pair(out)
    assert test is not None
    assert (len(train), len(test)) == (5, 6)


def test_nothing_dropped_leaves_the_bytes_of_other_arrays(tmp_path: Path) -> None:
    import zipfile

    source, out = tmp_path / "a.npz", tmp_path / "b.npz"
    np.savez_compressed(source, x=np.arange(12.0).reshape(6, 2), y=np.array(["cat", "dog"] * 3))
    relabel(source, {"1": Decision(RELABEL, "cat", "dog")}, out)
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(out) as new:
        assert new.read("x.npy") == old.read("x.npy")
    assert np.load(out)["y"].tolist() == ["cat", "cat", "cat", "dog", "cat", "dog"]


def test_a_test_set_in_a_file_of_its_own(tmp_path: Path) -> None:
    for name in ("a-train.csv", "a-test.csv"):
        (tmp_path / name).write_text("x,y\n" + "".join(f"{i},{i % 2}\n" for i in range(6)))
    decided = {"0": Decision(RELABEL, "1", "0", split="train"), "test:3": Decision(RELABEL, "0", "1", split="test")}
    train = relabel(tmp_path / "a-train.csv", decided, tmp_path / "clean-train.csv")
    test = relabel(tmp_path / "a-test.csv", decided, tmp_path / "clean-test.csv", split="test")
    assert (sum(train.changed.values()), train.elsewhere) == (1, 1)
    assert (sum(test.changed.values()), test.elsewhere) == (1, 1)
    rows = list(csv.DictReader((tmp_path / "clean-test.csv").read_text().splitlines()))
    assert [row["y"] for row in rows] == ["0", "1", "0", "0", "0", "1"]


def test_a_dry_run_writes_nothing(tmp_path: Path) -> None:
    source = images(tmp_path / "photos")
    done = relabel(source, {"cat/1.png": Decision(RELABEL, "dog", "cat")}, tmp_path / "clean", dry_run=True)
    assert (dict(done.changed), done.table) == ({("cat", "dog"): 1}, None)
    assert [path.name for path in tmp_path.iterdir()] == ["photos"]


WRONG: list[tuple[Decisions, str]] = [
    ({"12": Decision(RELABEL, "dog")}, "has no example '12'"),
    ({"../../etc/passwd": Decision(DROP, "cat")}, "has no example"),
    ({"4": Decision(RELABEL, "../../up")}, "none of the classes"),
    ({"4": Decision(RELABEL, "cat", "owl")}, "is a dog in the data but was a owl"),
    ({"4": Decision(RELABEL, "cat", split="test"), "4x": Decision(DROP, "", split="test")}, ""),
]


@pytest.mark.parametrize(("decided", "said"), WRONG)
def test_decisions_of_other_data_are_refused(tmp_path: Path, decided: Decisions, said: str) -> None:
    source = tmp_path / "a.csv"
    source.write_text(TEXT)
    if said:
        with pytest.raises(InputError, match=said):
            relabel(source, decided, tmp_path / "b.csv")
    else:
        assert relabel(source, decided, tmp_path / "b.csv", dry_run=True).elsewhere == 1
    assert [path.name for path in tmp_path.iterdir()] == ["a.csv"]


def test_a_decision_made_already_may_be_made_again(tmp_path: Path) -> None:
    source = tmp_path / "a.csv"
    source.write_text(TEXT)
    decided = {"4": Decision(RELABEL, "owl", "dog")}
    relabel(source, decided, tmp_path / "b.csv")
    assert relabel(tmp_path / "b.csv", decided, tmp_path / "c.csv").confirmed == 1


def test_places_that_cannot_be_written(tmp_path: Path) -> None:
    source, decided = images(tmp_path / "photos"), {"cat/1.png": Decision(DROP, "cat")}
    (tmp_path / "there").mkdir()
    for out, said in (("there", "already"), ("no/where", "does not exist"), ("photos/cat/in", "inside")):
        with pytest.raises(InputError, match=said):
            relabel(source, decided, tmp_path / out)
    with pytest.raises(InputError, match="fit --decisions"):
        relabel("digits", decided, tmp_path / "x")
    (tmp_path / "a.idx").write_bytes(b"\0\0\x08\x03" + bytes(60))
    with pytest.raises(InputError, match="another form"):
        relabel(tmp_path / "a.idx", decided, tmp_path / "b.idx")


def test_labels_that_are_no_classes_are_named(tmp_path: Path) -> None:
    decided = {"0": Decision(RELABEL, "1", "0")}
    for labels, names, said in (
        ([0, 1, 2], ["0", "1"], "has the label 2 at row 2, and no name for it"),
        ([0, 1, 0.5], None, "y must hold whole numbers, got 0.5 at row 2"),
    ):
        more = {} if names is None else {"class_names": np.array(names)}
        np.savez(tmp_path / "a.npz", x=np.eye(3), y=np.array(labels), **more)
        with pytest.raises(InputError, match=said):
            relabel(tmp_path / "a.npz", decided, tmp_path / "b.npz")
    assert [path.name for path in tmp_path.iterdir()] == ["a.npz"]


def test_a_class_that_the_dictionary_lacks(tmp_path: Path) -> None:
    labels = pa.array(["cat", "dog", "cat"]).dictionary_encode()
    pq.write_table(
        pa.table({"x": [1, 2, 3], "label": labels, "true_label": ["owl", "dog", "cat"]}), tmp_path / "a.parquet"
    )
    relabel(tmp_path / "a.parquet", {"0": Decision(RELABEL, "owl", "cat")}, tmp_path / "b.parquet")
    assert pq.read_table(tmp_path / "b.parquet").column("label").to_pylist() == ["owl", "dog", "cat"]


def test_a_copy_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sets = {f"x_{part}": np.eye(4) for part in ("train", "test")}
    np.savez(tmp_path / "a.npz", **sets, y_train=np.arange(4) % 2, y_test=np.arange(4) % 2)
    write = corrected._write

    def fail_at_the_test_set(labels: Any, path: Path, change: Any) -> None:
        write(labels, path, change)
        if labels.name == "y_test":
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(corrected, "_write", fail_at_the_test_set)
    with pytest.raises(InputError, match=r"cannot write .*: No space left on device"):
        relabel(tmp_path / "a.npz", {"0": Decision(RELABEL, "1", "0")}, tmp_path / "b.npz")
    assert [path.name for path in tmp_path.iterdir()] == ["a.npz"]

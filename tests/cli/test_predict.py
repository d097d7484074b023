"""`noiseproof predict`: class names for images, folders, tables, arrays and what comes from stdin."""

from __future__ import annotations

import io
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image

import noiseproof as nf


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on a table with a category and a gap, and one on images, with what to ask them about."""
    folder = tmp_path_factory.mktemp("predict")
    n = 60
    table = pd.DataFrame(
        {"id": np.arange(n) + 500, "a": np.arange(n) % 7 + 0.5, "b": np.where(np.arange(n) % 2, "u", "v")}
    )
    table.loc[3, "a"] = np.nan
    table.to_csv(folder / "rows.csv", index=False)
    table.drop(columns="id").to_parquet(folder / "rows.parquet")
    nf.fit("mlp", table.assign(label=np.where(np.arange(n) % 2, "odd", "even")), "ce", epochs=20, out=folder / "table")
    pixels = np.zeros((n, 3, 8, 8), np.uint8)
    pixels[1::2] = 255
    nf.fit("mlp", (pixels, ["dark", "light"] * 30), "ce", epochs=5, out=folder / "images")
    (folder / "photos" / "sub").mkdir(parents=True)
    for name, grey in (("a.png", 0), ("sub/b.png", 255), ("c.png", 250)):
        Image.new("RGB", (20, 12), (grey, grey, grey)).save(folder / "photos" / name)
    np.save(folder / "x.npy", pixels)
    np.savez(folder / "x.npz", x=pixels[:4])
    return folder


def test_tables_by_name(runs: Path, command: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    code, _, _ = command("predict", str(runs / "table"), str(runs / "rows.csv"), "--out", str(runs / "p.parquet"))
    found = pd.read_parquet(runs / "p.parquet")
    assert code == 0
    assert list(found) == ["id", "predicted", "confidence", "p_even", "p_odd"]
    assert found["id"].tolist()[:2] == ["500", "501"]
    assert found["predicted"].tolist() == ["even", "odd"] * 30
    np.testing.assert_allclose(found["p_even"] + found["p_odd"], 1, atol=1e-6)
    command("predict", str(runs / "table"), str(runs / "rows.parquet"), "--out", str(runs / "p.csv"))
    assert pd.read_csv(runs / "p.csv")["predicted"].tolist() == found["predicted"].tolist()
    sink = SimpleNamespace(buffer=io.BytesIO())
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO((runs / "rows.csv").read_bytes())))
    monkeypatch.setattr("noiseproof.cli.predict.sys.stdout", sink)
    code, _, _ = command("predict", str(runs / "table"), "-")
    assert code == 0
    assert pd.read_csv(io.BytesIO(sink.buffer.getvalue()))["predicted"].tolist() == found["predicted"].tolist()


def test_a_row_is_told_alike_whatever_rows_are_beside_it(runs: Path, command: Any) -> None:
    n = 60
    table = pd.DataFrame({"zip": ["007", "X7"] * 30, "a": np.arange(n) % 5, "label": ["odd", "even"] * 30})
    nf.fit("mlp", table, "ce", epochs=20, out=runs / "codes")
    table[["zip", "a"]].iloc[:4].to_csv(runs / "four.csv", index=False)
    table[["zip", "a"]].iloc[:1].to_csv(runs / "one.csv", index=False)
    for name in ("four", "one"):
        command("predict", str(runs / "codes"), str(runs / f"{name}.csv"), "--out", str(runs / f"{name}.parquet"))
    four, one = (pd.read_parquet(runs / f"{name}.parquet")["p_odd"] for name in ("four", "one"))
    np.testing.assert_allclose(one[0], four[0], atol=1e-6)


def test_tables_of_images(runs: Path, command: Any) -> None:
    files = [runs / "photos" / name for name in ("sub/b.png", "a.png")]
    for images, name in (([file.read_bytes() for file in files], "bytes"), ([str(file) for file in files], "paths")):
        pd.DataFrame({"img": images, "id": ["u", "v"], "label": ["x", "x"]}).to_parquet(runs / f"{name}.parquet")
        command("predict", str(runs / "images"), str(runs / f"{name}.parquet"), "--out", str(runs / "t.csv"))
        found = pd.read_csv(runs / "t.csv")
        assert dict(zip(found["id"], found["predicted"], strict=True)) == {"u": "light", "v": "dark"}


def test_names_of_files_that_are_no_text(runs: Path, command: Any) -> None:
    name = os.fsdecode(b"caf\xe9.png")
    try:
        (runs / "photos" / "sub" / name).write_bytes((runs / "photos" / "a.png").read_bytes())
    except OSError:
        pytest.skip("this disk has no such names")
    command("predict", str(runs / "images"), str(runs / "photos" / "sub"), "--out", str(runs / "n.csv"))
    (runs / "photos" / "sub" / name).unlink()
    assert pd.read_csv(runs / "n.csv")["id"].tolist() == ["b.png", r"caf\udce9.png"]


def test_images_folders_and_arrays(runs: Path, command: Any) -> None:
    out = runs / "i.csv"
    command("predict", str(runs / "images"), str(runs / "photos"), "--out", str(out))
    found = pd.read_csv(out)
    assert dict(zip(found["id"], found["predicted"], strict=True)) == {
        "a.png": "dark",
        "c.png": "light",
        "sub/b.png": "light",
    }
    files = [str(runs / "photos" / name) for name in ("sub/b.png", "a.png")]
    command("predict", str(runs / "images"), *files, "--out", str(out))
    assert pd.read_csv(out)["predicted"].tolist() == ["light", "dark"]
    command("predict", str(runs / "images"), str(runs / "x.npz"), "--out", str(out))
    assert pd.read_csv(out)["predicted"].tolist() == ["dark", "light"] * 2
    model = nf.load_model(runs / "images")
    with Image.open(files[0]) as picture:
        for given in (files[0], [Path(files[0])], picture, [picture]):
            assert model.predict(given).tolist() == [1]
        assert picture.getpixel((0, 0)) == (255, 255, 255)  # still open


@pytest.mark.parametrize(
    ("run", "inputs", "words"),
    [
        ("table", ["nowhere.csv"], "nowhere.csv does not exist"),
        ("nowhere", ["photos"], "there is no"),
        ("table", ["rows.csv", "rows.parquet"], "give image files, or one of anything else"),
        ("table", ["x.npz"], "the data does not match the training set"),
        ("images", ["rows.csv"], "rows.csv has no column of images"),
    ],
)
def test_mistakes_are_one_sentence(runs: Path, command: Any, run: str, inputs: list[str], words: str) -> None:
    code, _, error = command(
        "predict", str(runs / run), *(str(runs / one) for one in inputs), "--out", str(runs / "n.csv")
    )
    assert code == 2
    assert words in " ".join(error.split())


def test_the_kind_of_file_is_told_by_its_name(runs: Path, command: Any) -> None:
    code, _, error = command("predict", str(runs / "table"), str(runs / "rows.csv"), "--out", "p.xlsx")
    assert code == 2
    assert "--out must end in .parquet or .csv" in " ".join(error.split())

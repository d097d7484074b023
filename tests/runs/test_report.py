"""The page of a run: what it shows, and that it shows nothing as HTML that is none."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from noiseproof.data import LabeledData
from noiseproof.runs.folder import RunFolder
from noiseproof.runs.report import Section, settings, suspects, waited, write_page
from noiseproof.training.fit import fit


def page(tmp_path: Path, *sections: Section, facts: tuple[str, ...] = ()) -> str:
    run: Any = SimpleNamespace(data=range(1200))
    method: Any = SimpleNamespace(title=lambda: "elr", describe=lambda: "elr(beta=<b>)")
    write_page(tmp_path / "report.html", run, method, sections, facts)
    return (tmp_path / "report.html").read_text(encoding="utf-8")


def test_parts_that_are_empty_are_left_out(tmp_path: Path) -> None:
    empty = page(tmp_path, Section("Settings"), Section(), Section("Curves"))
    assert "elr on 1,200 examples" in empty
    assert "elr(beta=&lt;b&gt;)" in empty
    assert "<h2>" not in empty
    assert "<table" not in empty
    assert "<img" not in empty
    assert "color-scheme: light dark" in empty


def test_every_part_is_shown(tmp_path: Path) -> None:
    suspect = {"id": "7", "label": "<i>", "suggested": "cat", "probability_wrong": 0.987, "image": b"png"}
    full = page(
        tmp_path,
        Section(header=["", "loss"], rows=[["epoch 1", "2.3"]]),
        Section("Settings", rows=[("model", "<b>")]),
        Section("Curves", "What is drawn", picture=b"png"),
        Section("Labels", suspects=[suspect, suspect | {"label": "cat", "true_label": "dog"}]),
        facts=("3 classes",),
    )
    assert "</code> · 3 classes" in full
    assert "<th>loss</th>" in full
    assert '<table class="words">\n<tr><td>model</td><td>&lt;b&gt;</td></tr>' in full
    assert '<img class="picture" alt="Curves" src="data:image/png;base64,cG5n">' in full
    assert '<span class="given">&lt;i&gt;</span> <span class="suggested">cat</span>' in full
    assert full.count('<span class="quiet">0.99</span>') == 2
    assert full.count("truly dog") == 1
    assert full.count('alt="example 7"') == 2


@pytest.mark.parametrize("batch_size", [64, "all"])
def test_the_report_of_a_fit_says_its_settings(
    digits: tuple[LabeledData, LabeledData], batch_size: int | str, tmp_path: Path
) -> None:
    folder = RunFolder(tmp_path / "run", command={"data": "/data/photos", "noise": "symmetric:0.4"})
    result = fit(
        "mlp(widths=[8])", digits[0], "ce", epochs=1, batch_size=batch_size, seed=1234, device="cpu", out=folder,
    )  # fmt: skip
    n = len(result.run.data)
    assert settings(tmp_path / "run") == {
        "data": f"photos: {n:,} examples of 1 × 8 × 8", "noise": "symmetric:0.4",
        "model": "mlp(widths=[8]), 610 weights", "epochs": "1", "batch size": str(batch_size), "rate": "0.05, cosine",
        "optimizer": "sgd, momentum 0.9, weight decay 0.0005", "augmentation": "none", "seed": "1234",
    }  # fmt: skip
    assert "<td>mlp(widths=[8]), 610 weights</td>" in (tmp_path / "run/report.html").read_text(encoding="utf-8")
    result.save(tmp_path / "elsewhere")  # no config.json
    assert "Settings" not in (tmp_path / "elsewhere/report.html").read_text(encoding="utf-8")


def test_values_of_many_rows_are_not_read_to_compare_with(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)
    data = LabeledData(values, (values[:, 0] > 0) ^ (np.arange(60) < 6))
    found = fit("mlp(widths=[])", data, "ce", epochs=1).report
    assert any(one["words"] for one in suspects(found, range(60)))
    monkeypatch.setattr("noiseproof.runs.report._MOST", 60 * 3 - 1)
    monkeypatch.setattr(data, "take", lambda rows: pytest.fail("it reads rows"))
    assert not any(one["words"] for one in suspects(found, range(60)))


def test_from_when_on_a_method_that_waits_was_robust() -> None:
    assert waited([{"epoch": 1}]) is None
    assert waited([{"awake": 0.0}] * 3) == "It did not turn robust: the network was not seen to memorise."
    found = waited([{"awake": one} for one in (0.0, 0.0, 1.0, 1.0)])
    assert found == "Robust from epoch 3 on, when the network began to memorise or was about to."

"""The experiments on CRUST, at the size of a test: digits, few epochs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from papers.support import run, shown

from noiseproof.methods import build
from noiseproof.methods.crust import CRUST
from noiseproof_papers.crust import tables as crust_tables
from noiseproof_papers.crust.tables import AS_PAPER, STUDY, Digits, Figure1, Table1, Variant
from noiseproof_papers.experiment import Cell

TINY: dict[str, Any] = {"model": "mlp(widths=(32,))", "epochs": 8, "batch_size": 64, "lr": 0.05, "val": 0.1}


def on_digits(one: Cell) -> Cell:
    return {**one, "data": "digits", "size": None, "examples": 400, "tested": 100,
            "fit": {**TINY, "method": one["fit"]["method"]}}  # fmt: skip


@pytest.mark.parametrize("variant", STUDY, ids=lambda variant: variant.title)
def test_a_variant_is_the_method_its_title_says(variant: Variant) -> None:
    method = build(variant.method)
    assert isinstance(method, CRUST)
    assert (method.selection, method.by, method.mixup, method.weighted) == (
        variant.selection, variant.by, variant.mixup, variant.weighted,
    )  # fmt: skip
    assert ("auto" in variant.title) == (method.fraction == "auto")


def test_the_study_runs_mixup_where_it_is_asked_for() -> None:
    titles = [variant.title for variant in STUDY]
    assert len(set(titles)) == len(titles)
    mixed = {(variant.selection, variant.by) for variant in STUDY if variant.mixup and not variant.weighted}
    assert mixed == {(selection, by) for selection in ("central", "medoids") for by in ("label", "prediction")}
    assert AS_PAPER.title == "medoids, prediction, weighted, mixup"


def test_figure_1_notes_the_weighted_share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Figure1, "selections", ("medoids",))
    monkeypatch.setattr(Figure1, "fractions", (0.5,))
    experiment = Figure1()
    cells = [on_digits(one) for one in experiment.cells("small", 1)]
    done = run(experiment, cells)
    rows = shown(experiment, done, tmp_path)
    assert len(rows) == 3
    assert "selected_right" not in done[0].figures["curves"]
    for one in done[1:]:
        curves = one.figures["curves"]
        assert curves["selected_right"][:2] == [None, None]
        assert None not in curves["selected_right"][2:]
        plain = pytest.approx(curves["selected_right"][2:], abs=1e-4)
        assert (curves["weight_right"][2:] == plain) == ("weighted" not in one.cell["method"])


def test_table_2_separates_central_from_medoids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = [variant for variant in STUDY if variant.selection in ("central", "medoids")][:4]
    monkeypatch.setattr(crust_tables, "STUDY", study)
    monkeypatch.setattr(Digits, "base", {**Digits.base, "epochs": 16})
    monkeypatch.setattr(Digits, "noises", ("symmetric:0.5",))
    experiment = Digits()
    done = run(experiment, experiment.cells("small", 1))
    rows = shown(experiment, done, tmp_path)
    assert [row[0] for row in rows] == ["ce", *[variant.title for variant in study], "as the authors"]
    right = {one.cell["method"]: one.figures["curves"].get("selected_right", [None])[-1] for one in done}
    assert right["ce"] is None
    assert min(right["central, label"], right["central, prediction"], right["as the authors"]) > 0.85
    assert max(right["medoids, label"], right["medoids, prediction"]) < 0.6
    assert all(abs(one.figures["selected"] - 0.5) < 0.01 for one in done if one.cell["method"] != "ce")


def test_table_1_tells_co_teaching_the_noise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cells = Table1().cells("paper", 1)
    rates = {(one["data"], one["noise"]): one["fit"]["method"] for one in cells if one["method"] == "co_teaching"}
    assert rates["cifar10", "asymmetric:0.4"] == "co_teaching(forget_rate=0.2)"
    assert rates["cifar100", "asymmetric:0.4"] == "co_teaching(forget_rate=0.4)"
    assert rates["cifar10", "derangement:0.4"] == "co_teaching(forget_rate=0.4)"
    as_authors = {one["fit"]["method"] for one in cells if one["method"] == "crust as the authors"}
    assert as_authors == {"crust(ce, fraction=0.5, variant='authors')"}
    assert {one["fit"]["model"] for one in cells} == {"resnet32"}
    monkeypatch.setattr(Table1, "settings", ("symmetric:0.5",))
    monkeypatch.setattr(Table1, "methods", ("ce", "crust as in the paper", "crust"))
    experiment = Table1()
    rows = shown(experiment, run(experiment, [on_digits(one) for one in experiment.cells("small", 1)]), tmp_path)
    assert len(rows) == 3

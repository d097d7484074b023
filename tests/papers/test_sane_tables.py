"""The experiments on SANE, at the size of a test: digits, few epochs."""

from __future__ import annotations

from pathlib import Path

import pytest
from papers.support import run, shown

from noiseproof.pretraining import SANE, MoCo, build
from noiseproof_papers.experiment import Cell
from noiseproof_papers.sane import tables as sane_tables
from noiseproof_papers.sane.tables import PAPER_ROWS, ROWS, Init, Tables, run_of

TINY = {"model": "mlp(widths=(32,))", "epochs": 2, "batch_size": 32, "augment": "weak", "dim": 16, "probe_every": 0}


def on_digits(one: Cell) -> Cell:
    one = {**one, "data": "digits", "size": None, "examples": 200, "tested": 100}
    if "pretrain" in one:
        one["pretrain"] = {**TINY, "method": one["pretrain"]["method"], "epochs": min(2, one["pretrain"]["epochs"])}
    if "init" in one:
        one["init"] = {**TINY, "method": "sane(dictionary_size=128)"}
    if "fit" in one:
        one["fit"] = {"model": TINY["model"], "epochs": 2, "batch_size": 32, "method": one["fit"]["method"], "val": 0.1}
    return one


@pytest.mark.parametrize(
    ("scale", "name"), [*(("small", name) for name in ROWS), *(("paper", name) for name in PAPER_ROWS)]
)
def test_a_row_is_the_method_its_name_says(name: str, scale: str) -> None:
    options = run_of(Tables.rows[scale][name], scale)
    method = build(options["method"])
    assert isinstance(method, MoCo if "moco" in name else SANE)
    assert method.num_views == (3 if "strong" in name else 2)
    assert ("mix_augment" in options) == ("strong" in name)
    name = name.removesuffix(", 1,000 epochs").removesuffix(", strong")
    if isinstance(method, SANE):
        assert method.mixup == (
            "vanilla" if "vanilla" in name else "none" if name in ("p", "q", "p, q") else "momentum"
        )
        assert method.p == (name.startswith("p") or "sane" in name)
        assert method.q == (name in ("q", "p, q", "q, momentum mixup") or "sane" in name)
        assert method.lam == (float(name.split("= ")[1]) if "λ" in name else 0.5)


def test_at_the_papers_scale_a_table_has_one_length_and_one_augmentation() -> None:
    for table, epochs in (("1", 2000), ("4", 1000), ("5", 1000), ("6", 1000)):
        rows = [row for row in PAPER_ROWS.values() if table in row.tables]
        assert {row.epochs for row in rows} == {epochs}
        if table in "45":
            assert all(row.strong for row in rows if row.options is not None)
    assert {len([1 for row in PAPER_ROWS.values() if table in row.tables]) for table in "45"} == {8, 5}


def test_idx_files_are_read_at_their_own_size() -> None:
    sizes = {one["data"]: one["size"] for one in Tables().cells("small", 1)}
    assert sizes == {"cifar10": 16, "fashion-mnist": None}  # their reader refuses another


def test_the_tables_have_every_row_and_random_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tables, "rows", {"small": {name: ROWS[name] for name in ("moco", "sane")}})
    experiment = Tables()
    cells = experiment.cells("small", 2)
    assert {cell["data"] for cell in cells} == {"cifar10", "fashion-mnist"}
    done = run(experiment, [on_digits(one) for one in cells if one["data"] == "cifar10"])
    rows = shown(experiment, done, tmp_path)
    assert [row[0] for row in rows] == ["moco", "sane", "random weights"]
    assert all(0.1 < one.figures[key] <= 1 for one in done for key in ("knn", "linear"))
    assert done[-1].figures != done[-2].figures  # another seed


def test_a_start_from_sane_is_not_a_random_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    learnt = []
    monkeypatch.setattr(Init, "noises", ("symmetric:0.5",))
    real = sane_tables.learn
    monkeypatch.setattr(sane_tables, "learn", lambda *given: learnt.append(1) or real(*given))
    sane_tables._learned.cache_clear()
    experiment = Init()
    done = run(experiment, [on_digits(one) for one in experiment.cells("small", 1)])
    rows = shown(experiment, done, tmp_path)
    assert [row[0] for row in rows] == [
        "ce, random start", "sop, random start", "ce, sane start", "sop, sane start", "neighbours in SANE's features",
    ]  # fmt: skip
    assert len(learnt) == 1  # both methods begin with the same features
    ce = [one.figures["curves"]["test_accuracy"] for one in done if one.cell["method"] == "ce"]
    assert ce[0] != ce[1]
    assert done[-1].figures["neighbours"] > 0.6

"""The comparison of methods: its cells, its statistics, its page, and that nothing is run twice."""

from __future__ import annotations

import json
import math
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats
from typer.testing import CliRunner

from noiseproof import cli
from noiseproof.benching import criteria, page, plan, published, trial
from noiseproof.benching.board import Board
from noiseproof.benching.cells import Cell, Record, complete, read
from noiseproof.benching.statistics import critical_difference, difference, mean_ranks, rank_correlation
from noiseproof.cli import app
from noiseproof.cli.sets import noises_of, sets, split_outside
from noiseproof.errors import InputError


def record(method: str, noise: str, seed: int, kept: float | None, processor: float = 1.0, **more: Any) -> Record:
    fit = {"model": "mlp", "epochs": 10, "lr": 0.05}
    cell = {"source": {"data": "digits"}, "noise": noise, "limit": None, "tested": None, "seed": seed, "method": method}
    cell |= {"options": f"{method}()", "fit": fit, "budget": "epochs"}
    figures = {"failed": "it diverged"} if kept is None else {"kept": kept, "last": kept, "processor": processor} | more
    return {"cell": cell, "figures": figures, "seconds": 1.0, "commit": "abc"}


@pytest.fixture
def records() -> list[Record]:
    values = {"ce": (0.90, 0.50), "elr": (0.89, 0.70), "gce": (0.80, 0.60)}
    return [
        record(method, noise, seed, base + 0.01 * seed, {"elr": 2.0}.get(method, 1.0))
        for method, bases in values.items()
        for noise, base in zip(("none", "symmetric:0.4"), bases, strict=True)
        for seed in (1, 0)
    ]


def test_paired_difference_is_students() -> None:
    a, b = [0.5, 0.7, 0.8], [0.4, 0.65, 0.6]
    mean, half = difference(a, b)
    low, high = stats.ttest_rel(a, b).confidence_interval(0.95)
    assert (mean - half, mean + half) == pytest.approx((low, high))
    assert math.isnan(difference([1.0], [0.5])[1])


def test_ranks_and_critical_difference() -> None:
    assert mean_ranks(np.array([[0.9, 0.5, 0.9], [0.1, 0.2, 0.3]])).tolist() == [2.25, 2.5, 1.25]
    # Demšar 2006, Table 5: q of 0.05 for 2, 5 and 10 classifiers
    for k, q in ((2, 1.960), (5, 2.728), (10, 3.164)):
        assert critical_difference(k, 14) == pytest.approx(q * math.sqrt(k * (k + 1) / (6 * 14)), abs=2e-3)
    assert rank_correlation([1, 2, 3], [10, 30, 20]) == pytest.approx(0.5)
    assert rank_correlation([1, 1, 1], [1, 2, 3]) is None


def test_board(records: list[Record]) -> None:
    board = Board(records)
    assert board.columns == ["digits none", "digits symmetric:0.4"]
    assert board.ranked == ["elr", "ce", "gce"]  # 1.5, 2, 2.5
    header, rows = board.accuracy()
    assert header == ["method", "all", "digits none", "digits symmetric:0.4"]
    assert list(map(str, rows[0])) == ["elr", "80.0, rank 1.5", "89.5 ± 0.7", "70.5 ± 0.7"]
    elr = {row[0]: row for row in board.against()[1]}["elr"]
    assert list(map(str, elr)) == ["elr", "+9.5 ± 133.4", "-1.0 ± 0.0", "+20.0 ± 0.0"]
    assert [row[1:] for row in board.regret()[1]] == [
        ["0.50", "1.00", "-1.00", "2.00"], ["10.00", "20.00", "+0.00", "1.00"], ["10.00", "10.00", "-10.00", "1.00"],
    ]  # fmt: skip
    assert board.cost_of("elr") == 2.0
    part = Board([*records, record("sop", "none", 0, 0.99)])  # of one column, and not ranked
    assert part.accuracy()[1][-1][:2] == ["sop", "99.0 (1 of 2)"]


def test_pairs_go_by_seed_and_a_method_that_fails_is_last(records: list[Record]) -> None:
    records = [one for one in records if one["cell"]["method"] != "gce"]
    records += [record("gce", noise, seed, None) for noise in ("none", "symmetric:0.4") for seed in (0, 1)]
    records = [one for one in records if one["cell"]["method"] != "elr" or one["cell"]["seed"] == 1]
    board = Board(records)
    assert board.ranked[-1] == "gce"
    elr = {row[0]: row for row in board.against()[1]}["elr"]
    assert list(map(str, elr[2:])) == ["-1.0", "+20.0"]  # of seed 1 alone
    assert str(board.accuracy()[1][-1][2]) == "–"
    assert "it diverged" in board.settings()[1][-1][1]
    for one in records:
        if (one["cell"]["method"], one["cell"]["seed"]) == ("ce", 0):
            one["figures"]["processor"] = 4.0
    assert Board(records).cost_of("elr") == 2.0  # of seed 1, too


def test_equal_time(records: list[Record], tmp_path: Path) -> None:
    again = plan.in_equal_time(records)
    assert {(cell["method"], cell["fit"]["epochs"]) for cell in again} == {("ce", 10), ("elr", 5), ("gce", 10)}
    log = tmp_path / "cells.jsonl"
    log.write_text("".join(json.dumps(one) + "\n" for one in records))
    wanted = {json.dumps(cell, sort_keys=True) for cell in again}
    borrowed = plan.known(log, None, again, wanted)
    assert {one["cell"]["method"] for one in borrowed} == {"ce", "gce"}
    assert {one["cell"]["budget"] for one in borrowed} == {"time"}
    elr = next(cell for cell in again if cell["method"] == "elr")
    known = [{"cell": elr | {"fit": elr["fit"] | {"epochs": 6}, "seed": 7}}]
    later = plan.in_equal_time(records, known)  # other seeds and noise have as many epochs as the first had
    assert {(cell["method"], cell["fit"]["epochs"]) for cell in later} == {("ce", 10), ("elr", 6), ("gce", 10)}


def test_groups_of_the_picture_and_page(records: list[Record], tmp_path: Path) -> None:
    assert page._groups([1.0, 1.5, 2.2, 5.0], 1.0) == [(0, 1), (1, 2)]
    assert page._groups([1.0, 5.0], 1.0) == []
    path = page.write(tmp_path, records)
    html = path.read_text()
    for row in Board(records).accuracy()[1]:
        for entry in row[2:]:
            assert f'href="#{entry.to}"' in html
            assert f'id="{entry.to}"' in html
    assert "seeds 0, 1: 70.00, 71.00" in html
    assert (tmp_path / "leaderboard.png").read_bytes().startswith(b"\x89PNG")
    assert "| elr | 80.0, rank 1.5 | 89.5 ± 0.7 | 70.5 ± 0.7 |" in (tmp_path / "leaderboard.md").read_text()
    published.publish(records, tmp_path / "small.json")
    again = [json.loads(line) for line in (tmp_path / "small.json").read_text().splitlines()]
    assert Board(again).accuracy()[1][0][1] == "80.0, rank 1.5"


def test_of_several_data_sets_each_has_its_tables(records: list[Record], tmp_path: Path) -> None:
    other = [
        one | {"cell": one["cell"] | {"source": {"data": "photos/clothes.parquet", "features": "imagenet"}}}
        for one in records
        if one["cell"]["noise"] == "none" or one["cell"]["method"] != "gce"
    ]
    late = [one | {"cell": one["cell"] | {"budget": "time"}} for one in records]
    parts = {part.title: part for part in page.sections([*records, *other, *late])}
    name = "clothes (imagenet)"
    titles = ["Accuracy", "Ranks", "Regret", "Cost"]
    titles += [
        f"{one}, {data}"
        for data in ("digits", name)
        for one in ("Accuracy", "Against ce", "Last and best epoch", "Wrong labels")
    ]
    titles += [f"{one}, equal processor time" for one in ("Accuracy", "Ranks", "Against ce", "Regret")]
    assert list(parts) == [*titles, "Settings", "Settings, equal processor time"]
    whole = {str(row[0]): list(map(str, row)) for row in parts["Accuracy"].rows}
    assert list(parts["Accuracy"].header) == ["method", "all", "digits", name]
    assert whole["elr"] == ["elr", "80.0, rank 1.5", "80.0", "80.0"]
    assert whole["gce"][1:] == ["3 of 4 columns", "70.5", "–"]  # no mean over some of the columns
    assert list(parts["Accuracy, digits"].header) == ["method", "all", "none", "symmetric:0.4"]
    assert [row[0] for row in parts["Regret"].rows] == ["ce", "elr"]
    html = page.write(tmp_path, [*records, *other, *late]).read_text()
    leads_to_places(html)
    assert f"## Accuracy, {name}" in (tmp_path / "leaderboard.md").read_text()


def leads_to_places(html: str) -> None:
    """Every link of a page leads to one place of it."""
    places, links = re.findall(r'id="([^"]+)"', html), set(re.findall(r'href="#([^"]+)"', html))
    assert len(places) == len(set(places))
    assert links <= set(places)
    assert links


def test_every_figure_of_the_committed_page_leads_to_its_settings(tmp_path: Path) -> None:
    leads_to_places(page.write(tmp_path, published.committed()).read_text())


def test_criteria_find_the_better_model() -> None:
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 4, 2000)
    noisy = np.where(rng.random(2000) < 0.3, rng.integers(0, 4, 2000), truth)

    def model(accuracy: float) -> np.ndarray:
        guess = np.where(rng.random(2000) < accuracy, truth, rng.integers(0, 4, 2000))
        return np.where(np.arange(4) == guess[:, None], 0.7, 0.1).astype(np.float32)

    scores = criteria.score({"good": model(0.95), "fair": model(0.85), "poor": model(0.6)}, noisy)
    for name in criteria.NAMES:
        assert scores["good"][name] > scores["fair"][name] > scores["poor"][name]
    assert scores["good"]["corrected"] == pytest.approx(0.9625, abs=0.04)  # the truth: 0.95 + 0.05 / 4
    assert scores["good"]["low"] < scores["good"]["corrected"] < scores["good"]["high"]
    assert scores["good"]["agreed"] < 0.8 < scores["good"]["corrected"]
    among = criteria.score({"a": model(0.9), "b": model(0.9), "wild": model(0.0)}, noisy, ["a", "b"])
    assert among["wild"]["consensus"] < 0.3  # it has no part in what the others say


def test_splits_and_noise() -> None:
    assert split_outside("ce, early_stop(elr(lam=1), patience=3) ,backward(transition=[[1,0],[0,1]])") == [
        "ce", "early_stop(elr(lam=1), patience=3)", "backward(transition=[[1,0],[0,1]])",
    ]  # fmt: skip
    assert noises_of(None) == [None]
    with pytest.raises(InputError, match="symmetric"):
        noises_of("none,symmetrical:0.4")


def test_a_test_set_of_right_labels_or_none() -> None:
    cell = {"source": {"data": "digits"}, "limit": 300, "tested": 50, "seed": 0}
    train, test = sets(cell | {"noise": "symmetric:0.4"})
    assert (len(train), len(test or [])) == (300, 50)
    assert train.noise_rate == pytest.approx(0.4, abs=0.02)
    assert sets(cell | {"noise": None})[1] is None
    clean, _ = sets(cell | {"noise": "none"})
    assert clean.labels.tolist() == train.clean().labels.tolist()  # the same examples whatever the noise


def test_command_line_goes_on_and_runs_nothing_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["bench", "digits", "--noise", "none,symmetric:0.4", "--limit", "200", "--epochs", "3", "--seeds", "1"]
    words += ["--out", str(tmp_path), "-q", "--equal-time"]
    first = CliRunner().invoke(app, [*words, "--methods", "ce"])
    assert first.exit_code == 0, first.output
    ran: list[str] = []
    fit = trial.fit
    monkeypatch.setattr(trial, "fit", lambda **options: ran.append(options["method"]) or fit(**options))
    result = CliRunner().invoke(app, [*words, "--methods", "ce,gce"])
    assert result.exit_code == 0, result.output
    assert ran[:2] == ["gce(q=0.7)"] * 2
    assert "ce" not in {name.partition("(")[0] for name in ran}
    lines = [json.loads(line) for line in (tmp_path / "cells.jsonl").read_text().splitlines()]
    for one in lines:
        assert {"kept", "best", "agreed", "processor", "peak_mb", "f1", "estimated"} <= one["figures"].keys()
        assert one["figures"]["peak_mb"] > 50
    assert len(list((tmp_path / trial.HELD_OUT).iterdir())) >= 4
    judged = plan.judged(lines, tmp_path)
    assert all("corrected" in one["figures"] for one in judged)
    for one, other in zip(lines, judged, strict=True):  # kept predictions are those of the model that was measured
        assert one["figures"]["agreed"] == pytest.approx(other["figures"]["agreed"], abs=0.06)


def test_what_was_published_is_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither are files of the same name in another folder another cell, nor are other columns forgotten."""
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    for folder in ("one", "two"):
        rows = [f"{i % 7},{i % 5},{i % 3}" for i in range(120)]
        (tmp_path / folder / "table.csv").write_text("\n".join(["a,b,label", *rows]))
    small = tmp_path / "small.json"
    published.publish([record("ce", "none", 0, 0.5)], small)
    words = ["--noise", "symmetric:0.2", "--epochs", "2", "--seeds", "1", "-q", "--publish", str(small), "--equal-time"]

    def run(folder: str, methods: str) -> list[str]:
        ran: list[str] = []
        fit = trial.fit
        with monkeypatch.context() as patch:
            patch.setattr(trial, "fit", lambda **options: ran.append(options["method"]) or fit(**options))
            data = str(tmp_path / folder / "table.csv")
            out = str(tmp_path / folder / "out")
            result = CliRunner().invoke(app, ["bench", data, "--methods", methods, "--out", out, *words])
        assert result.exit_code == 0, result.output
        return [name.partition("(")[0] for name in ran]

    first = run("one", "ce,elr")
    assert first[:2] == ["ce", "elr"]
    assert run("two", "ce,elr") == []
    assert set(run("two", "ce,gce")) == {"gce"}
    cells = [one["cell"] for one in published.records(small)]
    assert [cell["source"]["data"] for cell in cells] == ["digits", *["table.csv"] * (len(cells) - 1)]
    assert {(cell["method"], cell["budget"]) for cell in cells[1:]} == {
        (method, budget) for method in ("ce", "elr", "gce") for budget in ("epochs", "time")
    }
    assert str(tmp_path) not in small.read_text()


def test_what_failed_is_tried_again(tmp_path: Path) -> None:
    log, cells = tmp_path / "cells.jsonl", [{"name": "good"}, {"name": "poor"}]
    ran: list[str] = []

    def work(cell: Cell) -> dict[str, Any]:
        ran.append(cell["name"])
        return {"failed": "no such device"} if cell["name"] == "poor" and len(ran) < 3 else {"kept": 0.5}

    for _ in range(3):
        records, _ = complete(work, cells, log, what="test", progress=False)
    assert ran == ["good", "poor", "poor"]
    assert [one["figures"] for one in records] == [{"kept": 0.5}] * 2
    assert read(log) == records  # each once


def test_without_right_labels_the_agreement_is_shown(tmp_path: Path) -> None:
    words = ["bench", "digits", "--limit", "200", "--epochs", "2", "--seeds", "1", "--methods", "ce", "-q"]
    result = CliRunner().invoke(app, [*words, "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert "Agreement with held-out labels as they are" in (tmp_path / "leaderboard.md").read_text()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "give the data"),
        (["digits", "--methods", "cee"], "did you mean 'ce'"),
        (["digits", "--features", "resnet"], "must be imagenet"),
        (["digits", "--device", "gpu0"], "cannot be used here"),
        (["digits", "--state", "sharded"], "No such option"),  # it would change nothing
        (["digits", "--noise", "labels:none.csv:x"], "none.csv"),
        (["digitz"], "did you mean 'digits'"),
    ],
)
def test_mistakes_are_one_sentence(
    words: list[str], says: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["noiseproof", "bench", *words])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert stop.value.code == 2
    assert says in capsys.readouterr().err

"""Choosing a method without right labels, and how far the choice is to be trusted."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_bench import record
from typer.testing import CliRunner

from noiseproof.benching import criteria
from noiseproof.cli import app


def test_track_record() -> None:
    values = {"ce": (0.50, 0.60), "elr": (0.70, 0.65), "gce": (0.695, 0.70)}
    records = [record(name, "symmetric:0.4", 0, kept, agreed=agreed) for name, (kept, agreed) in values.items()]
    records += [record(name, "none", 0, kept, agreed=kept) for name, (kept, _) in values.items()]
    found = criteria.track_record(records, "agreed")
    assert found is not None
    assert found.runs == 2
    assert found.correlation == pytest.approx((0.5 + 1.0) / 2)
    assert (found.near, found.regret, found.worst) == pytest.approx((1.0, 0.25, 0.5))
    assert criteria.track_record(records, "corrected") is None
    poor = criteria.track_record(records, "agreed", methods=("ce", "elr"))
    assert poor is None  # two candidates have no order to speak of


def test_the_pick_is_the_first_named_of_those_that_held_out_labels_do_not_tell_apart() -> None:
    figures = {"ce": {"agreed": 0.60}, "auto": {"agreed": 0.66}, "elr": {"agreed": 0.70, "error": 0.045}}
    assert criteria.pick(figures, "agreed", ["ce", "auto", "elr"]) == "auto"
    assert criteria.pick(figures, "agreed", ["elr", "auto", "ce"]) == "elr"
    figures["elr"]["error"] = 0.035
    assert criteria.pick(figures, "agreed", ["ce", "auto", "elr"]) == "elr"
    del figures["elr"]["error"]
    assert criteria.pick(figures, "agreed", ["ce", "auto", "elr"]) == "elr"
    records = [
        record(name, "none", seed, kept, agreed=agreed, error=0.05)
        for seed in range(2)
        for name, kept, agreed in (("ce", 0.5, 0.6), ("auto", 0.7, 0.66), ("elr", 0.6, 0.7))
    ]
    found = criteria.track_record(records, "agreed", methods=("auto", "ce", "elr"))
    assert found is not None
    assert (found.near, found.regret) == (1.0, 0.0)


def test_command_line(tmp_path: Path) -> None:
    words = ["compare", "digits", "--limit", "600", "--epochs", "4", "--methods", "ce,gce,auto", "-q", "--val", "0.3"]
    result = CliRunner().invoke(app, [*words, "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    take = next(line for line in result.output.splitlines() if line.startswith("Take "))
    assert ": noiseproof fit digits --limit 600 --epochs 4 --val 0.3 --method " in take
    assert "By agreement with held-out labels" in " ".join(result.output.split())
    for words in (["digits", "--methods", "ce"], ["digits", "--val", "0"], ["digits", "--features", "x"]):
        assert CliRunner().invoke(app, ["compare", *words]).exit_code != 0

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


def test_command_line(tmp_path: Path) -> None:
    words = ["compare", "digits", "--limit", "600", "--epochs", "4", "--methods", "ce,gce,auto", "-q", "--val", "0.3"]
    result = CliRunner().invoke(app, [*words, "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    take = next(line for line in result.output.splitlines() if line.startswith("Take "))
    assert ": noiseproof fit digits --limit 600 --epochs 4 --val 0.3 --method " in take
    assert "By agreement with held-out labels" in " ".join(result.output.split())
    for words in (["digits", "--methods", "ce"], ["digits", "--val", "0"], ["digits", "--features", "x"]):
        assert CliRunner().invoke(app, ["compare", *words]).exit_code != 0

"""Theorems 1 and 2 of refined labels: small parts of each grid, and what the pictures claim of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from papers.support import run, shown

from noiseproof_papers.sane.contrast_figures import Theorem1, Theorem2


def test_theorem_1(tmp_path: Path) -> None:
    experiment = Theorem1()
    experiment.LABELS = (0.35, 0.4, 0.48)  # type: ignore[assignment, misc]
    done = run(experiment, experiment.cells("paper", 1))
    assert len(shown(experiment, done, tmp_path)) == 4
    for one in done:
        assert one.figures["gap"] == pytest.approx(one.figures["expected"], abs=1e-3)
        assert abs(one.figures["gap"]) <= one.figures["upper"]
        assert one.figures["excess"] >= one.figures["pinsker"] - 1e-12


def test_theorem_2(tmp_path: Path) -> None:
    experiment = Theorem2()
    experiment.EACH, experiment.LONG, experiment.ALPHAS = 16, 2, (0.0, 0.9, 0.999)  # type: ignore[misc, assignment]
    experiment.SHOWN, experiment.LATE = ((0.9, "red"),), 800  # type: ignore[misc, assignment]
    done = run(experiment, [cell for cell in experiment.cells("paper", 3) if cell["seed"] == 2])
    assert len(shown(experiment, done, tmp_path)) == 3 + 3 + 5
    clock, *recovery, lasting = (one.figures for one in done)
    assert all(one["of_bound"] <= 1 + 1e-9 for one in clock["runs"].values())
    assert clock["runs"]["0.0"]["of_claim"] < 1 < clock["runs"]["0.999"]["of_claim"]
    for one in recovery:
        assert one["claimed"] < one["from"]  # the paper's α is not enough
        assert one["enough"] <= one["from"] <= one["enough"] + 0.02
    last = [one["right"][-1] for one in lasting["runs"].values()]
    assert max(last[:2]) < min(last[3:])

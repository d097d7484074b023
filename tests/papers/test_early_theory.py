"""Figure 6 and Theorem 2.3 of early stopping: small parts of each grid, and what the paper claims of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from papers.support import run, shown

from noiseproof_papers.early_stopping.theory import Figure6, Theorem
from noiseproof_papers.experiment import Done


def test_figure_6_learns_the_true_labels_first(tmp_path: Path) -> None:
    experiment = Figure6()
    experiment.N, experiment.WIDTH, experiment.LATE = 120, 150, 700  # type: ignore[misc]
    done = run(experiment, experiment.cells("paper", 1))
    assert len(shown(experiment, done, tmp_path)) == 4
    relu, softplus = (one.figures for one in done)
    early, late = relu["at"].index(experiment.EARLY), relu["at"].index(experiment.LATE)
    assert relu["true_error"][early] <= 0.06
    assert relu["error"][late] < 0.5 * relu["error"][early]
    assert relu["separation"]["early"] > 0.95
    assert relu["separation"]["late"] < relu["separation"]["early"]
    assert 0 < softplus["least_distance"] < softplus["distance"][late]


def test_theorem_2_3_holds_with_room_to_spare(tmp_path: Path) -> None:
    experiment = Theorem()
    experiment.SETTINGS = (("certificate", 2, 2), ("certificate", 3, 3))  # type: ignore[assignment, misc]
    done = run(experiment, experiment.cells("paper", 2))
    assert len(shown(experiment, done, tmp_path)) == 2
    for one in done:
        check(one)


def check(one: Done) -> None:
    figures, given = one.figures, one.figures["guarantee"]
    assert figures["width"] >= given["width"]
    assert figures["wrong"] == 0
    assert figures["all_right_from"] <= given["steps"]
    assert figures["worst_error"] <= given["error"]
    assert max(figures["distance"]) <= given["radius"]


@pytest.mark.slow
def test_figure_6_at_full_size() -> None:
    experiment = Figure6()
    experiment.ACTIVATIONS = ("relu",)  # type: ignore[assignment, misc]
    for one in run(experiment, experiment.cells("paper", 2)):
        early, late = (one.figures["at"].index(i) for i in (experiment.EARLY, experiment.LATE))
        assert one.figures["true_error"][early] <= 0.02
        assert one.figures["error"][late] <= 0.02


@pytest.mark.slow
def test_theorem_2_3_at_the_size_it_asks_for() -> None:
    experiment = Theorem()
    experiment.SETTINGS = (("theorem", 2, 2),)  # type: ignore[assignment, misc]
    for one in run(experiment, experiment.cells("paper", 2)):
        check(one)

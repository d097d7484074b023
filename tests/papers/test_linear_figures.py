"""Figures 2, 3 and 4 of SOP's linear theory: small parts of each grid, and what the papers' claims need of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from papers.support import run, shown

from noiseproof_papers.sop.linear_figures import LOG_GAMMA, Figure2, Figure3, Figure4, Gamma


def test_figure_2_has_its_valley_on_the_curve(tmp_path: Path) -> None:
    experiment = Figure2()
    experiment.ALPHAS = np.array([40.0, 4000.0])  # type: ignore[misc]
    done = run(experiment, experiment.cells("paper", None))
    rows = shown(experiment, done, tmp_path)
    assert len(rows) == 1
    for one in done:
        for alpha, differences in zip(one.cell["alpha"], one.figures["theta"], strict=True):
            lam = -LOG_GAMMA / (2 * alpha)
            at_curve = differences[int(np.argmin(np.abs(np.log(experiment.LAMBDAS / lam))))]
            if lam > 3 * one.figures["threshold"]:
                assert at_curve < 1e-3
            else:
                assert at_curve < 0.25
                best = experiment.LAMBDAS[int(np.argmin(differences))]
                assert 0.6 < best / lam < 1.7  # γ = e⁻⁸ is not 0: the valley is a little beside the curve
                assert np.median(differences) > 0.5


def test_figure_3_falls_at_the_threshold(tmp_path: Path) -> None:
    experiment = Figure3()
    experiment.VALUES = (10, 20)  # type: ignore[misc]
    done = run(experiment, experiment.cells("paper", 1))
    rows = shown(experiment, done, tmp_path)
    assert [row[:3] for row in rows] == [["20", "10", "1/1"], ["20", "20", "1/1"], ["10", "20", "1/1"]]
    for one in done:
        for least, theta, s in zip(one.figures["threshold"], one.figures["theta"], one.figures["s"], strict=True):
            above = least < experiment.LAMBDAS
            assert np.array(theta)[above].max() < 1e-8
            assert np.array(s)[above].max() < 1e-7
            assert np.array(theta)[~above].min() > 1e-6


def test_figure_4_has_no_failure_where_it_is_certified(tmp_path: Path) -> None:
    experiment = Figure4()
    experiment.WIDE, experiment.CORNER_RANKS = (1, 5, 61), (1, 2, 6)  # type: ignore[misc]
    done = run(experiment, experiment.cells("paper", 4))
    rows = shown(experiment, done, tmp_path)
    assert all(row[-1] == "0" for row in rows)
    assert sum(sum(one.figures["certified"]) for one in done) >= 12
    (last,) = (one.figures for one in done if one.cell["rank"] == 61)
    assert last["both"][-1] == 0  # of rank 61 with 61 wrong labels nothing is recovered


def test_gamma_study_closes_the_gap(tmp_path: Path) -> None:
    experiment = Gamma()
    experiment.LOGS, experiment.SHARES = (8, 32, 128), (0.1, 2.0)  # type: ignore[misc]
    done = run(experiment, experiment.cells("paper", 2))
    shown(experiment, done, tmp_path)
    for one in done:
        below, above = one.figures["theta"]
        assert below[0] / below[2] == pytest.approx(128 / 8, rel=0.4)  # like 1/|log γ|
        assert above[2] < 1e-9

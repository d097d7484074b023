"""The laboratory of annealing: a small part of each grid, and that a table says what the cells do."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from papers.support import run, shown

from noiseproof_papers.experiment import Experiment
from noiseproof_papers.label_noise import annealing_figures
from noiseproof_papers.label_noise.annealing_figures import FIRST_SEED, Base, Curves, Regimes, interval

TINY = {"d": 10, "m": 20, "r": 1.0, "q_scale": 3.0, "eta1": 0.5, "eta2": 0.1, "eta_full": 0.5, "time": 60.0}


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(annealing_figures, "BASE", annealing_figures.BASE | TINY)
    monkeypatch.setattr(Regimes, "TESTS", 200)
    monkeypatch.setattr(Curves, "TESTS", 200)


@pytest.mark.parametrize("kind", [Regimes, Base, Curves])
def test_cells_are_distinct_json(kind: type[Experiment]) -> None:
    cells = [json.dumps(cell, sort_keys=True) for cell in kind().cells("small", None)]
    assert len(set(cells)) == len(cells)


def test_regimes_run_and_compare_seed_by_seed(tmp_path: Path) -> None:
    experiment = Regimes()
    cells = [cell for cell in experiment.cells("small", 2) if cell["change"] in ({}, {"delta": 0.1})]
    done = run(experiment, cells)
    rows = shown(experiment, done, tmp_path)
    base = next(row for row in rows if row[0] == "base")
    ends = {(one.cell["algorithm"], one.cell["seed"]): one.figures["end"] for one in done if not one.cell["change"]}
    for column, key in ((4, "error_p"), (6, "error")):
        difference = [100 * (ends["lnsgd-s", seed][key] - ends["lnsgd-ls", seed][key]) for seed in (100, 101)]
        mean, half = interval(difference)
        assert base[column] == f"{mean:+.3f} ± {half:.3f}"
    noisier = next(row for row in rows if row[0] == "δ = 0.1")
    assert noisier[3] == base[3]  # full batch has no label noise: as at the base
    assert next(row for row in rows if row[0] == "κ = 0.7")[1:] == [""] * 7  # not run here


def test_the_base_is_run_on_seeds_that_did_not_choose_it(tmp_path: Path) -> None:
    experiment = Base()
    chosen = {cell["seed"] for cell in Regimes().cells("small", None)} | set(range(FIRST_SEED))
    assert not chosen & {cell["seed"] for cell in experiment.cells("small", None)}
    done = run(experiment, experiment.cells("small", 2))
    for one in done:  # as if Q had been lost once
        one.figures["end"]["error_q"] = 0.5 if one is done[0] else 0.0
    rows = dict(shown(experiment, done, tmp_path))
    assert rows["lnsgd-ls: runs that lost Q"] == "1 of 2"
    assert "fbgd: P (Q)" in rows  # full batch is not annealed here
    ends = {(one.cell["algorithm"], one.cell["seed"]): one.figures["end"]["error"] for one in done}
    second = max(seed for _, seed in ends)
    apart = 100 * (ends["lnsgd-s", second] - ends["lnsgd-ls", second])
    assert rows["test where Q was kept: lnsgd-s − lnsgd-ls"] == f"{apart:+.3f}"


def test_curves_end_where_the_run_ends(tmp_path: Path) -> None:
    experiment = Curves()
    done = run(experiment, [cell for cell in experiment.cells("small", 1) if cell["setting"] == "base"])
    shown(experiment, done, tmp_path)
    for one in done:
        assert np.all(np.diff(one.figures["time"]) > 0)
        assert len(one.figures["error_p"]) == len(one.figures["event"])
    assert "W_noise" in done[0].figures
    assert "W_noise" not in done[2].figures  # full batch


def test_interval_is_students() -> None:
    mean, half = interval([1.0, 2.0, 4.0])
    assert (mean, half) == pytest.approx((7 / 3, 4.302653 * math.sqrt(7 / 3) / math.sqrt(3)))
    assert math.isnan(interval([1.0])[1])

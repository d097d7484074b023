"""The stopping table: every criterion watches the same run, and its figures are those of the run."""

from __future__ import annotations

from pathlib import Path

import pytest

from noiseproof.training.fit import fit
from noiseproof_papers.datadir import DataDir
from noiseproof_papers.early_stopping.criteria import CRITERIA, SETTINGS, EarlyStopping
from noiseproof_papers.experiment import Done


def small() -> EarlyStopping:
    experiment = EarlyStopping()
    experiment.settings = {  # type: ignore[misc]
        title: (data, {"examples": 250, "tested": 200}, {**options, "epochs": 9})
        for title, (data, _, options) in SETTINGS.items()
        if data == "digits" and "constant" not in title
    }
    experiment.noises = (None, "symmetric:0.4")  # type: ignore[misc, assignment]
    return experiment


@pytest.fixture(scope="module")
def done() -> list[Done]:
    experiment = small()
    return [Done(cell, experiment.run(cell, DataDir())) for cell in experiment.cells("small", 1)]


def test_figures_are_those_of_the_run(done: list[Done]) -> None:
    for one in done:
        accuracy = one.figures["curves"]["test_accuracy"]
        criteria = one.figures["criteria"]
        held_out = "val" in one.cell["fit"]
        shallow = "shallow" in one.cell["fit"]["model"]
        expected = {"last epoch", *(c for c in CRITERIA if held_out or not c.startswith("val"))}
        assert set(criteria) == expected | ({"theory"} if shallow else set())
        for found in criteria.values():
            assert 1 <= found["epoch"] <= found["stopped"] <= 9
            assert found["lost"] == pytest.approx(100 * (max(accuracy) - accuracy[found["epoch"] - 1]), abs=0.01)
        assert criteria["last epoch"]["epoch"] == 9


def test_watching_picks_what_early_stop_keeps(done: list[Done]) -> None:
    """A run that is stopped keeps the model that watching said it would."""
    one = next(one for one in done if one.cell["noise"] and one.cell["setting"] == "digits")
    from noiseproof.data import noise
    from noiseproof_papers.fits import _some

    train, test = DataDir().pair("digits")
    train, test = _some(train, 250, 0), _some(test, 200, 0)
    data = noise.apply(train, one.cell["noise"], seed=0)
    for criterion in ("agreement", "mixture", "distance(0.5)"):
        settings = {**one.cell["fit"], "method": f'early_stop(ce, criterion="{criterion}")'}
        result = fit(data=data, test=test, seed=0, **settings)
        found = one.figures["criteria"][criterion]
        assert int(result.method.best_epoch) == found["epoch"]  # type: ignore[arg-type]
        assert result.run.epoch == found["stopped"]
        kept = result.summary()["final"]["test_accuracy"]
        assert kept == pytest.approx(one.figures["curves"]["test_accuracy"][found["epoch"] - 1], abs=1e-3)


def test_picture_and_table(done: list[Done], tmp_path: Path) -> None:
    experiment = small()
    experiment.draw(done, tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes()[:4] == b"\x89PNG"
    table = experiment.table(done)
    assert table is not None
    header, rows = table
    assert all(len(row) == len(header) for row in rows)
    assert {row[0] for row in rows} == {"last epoch", *CRITERIA, "theory", "best epoch: accuracy, %"}

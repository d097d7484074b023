"""The theory of CRUST on a small network: what must hold does, and central coresets are the cleaner ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from noiseproof_papers.crust.theory import Theory
from noiseproof_papers.datadir import DataDir
from noiseproof_papers.experiment import Done


@pytest.fixture(scope="module")
def done() -> list[Done]:
    experiment = Theory()
    experiment.EXAMPLES, experiment.NETWORK, experiment.EPOCHS = 60, "mlp(widths=(32,))", (8, 9)  # type: ignore[misc]
    return [Done(cell, experiment.run(cell, DataDir())) for cell in experiment.cells("small", 1)]


def test_what_is_proved_holds_for_every_selection(done: list[Done]) -> None:
    ways = [way for one in done for way in one.figures["ways"]]
    assert len(ways) == 2 * 2 * 2 * 5
    for way in ways:
        roots, inside = way["bounds"]["roots"], way["bounds"]["roots, on S₊"]
        assert roots["below"]
        assert roots["above"]
        assert inside["above"]
        assert way["largest_error"] <= way["spectral"] + 1e-6
        assert way["spectral"] <= way["frobenius"] + 1e-6
        assert way["projected"] <= 2 * way["worst"] + 1e-9
        assert 0 <= way["wrong"] <= way["worst"] <= 1


def test_central_coresets_are_the_cleaner_ones(done: list[Done]) -> None:
    wrong = {
        name: np.mean([w["wrong"] for one in done for w in one.figures["ways"] if w["selection"] == name])
        for name in ("central", "core", "medoids", "random")
    }
    assert max(wrong["central"], wrong["core"]) < 0.25 < wrong["random"] < wrong["medoids"]
    for one in done:
        assert one.figures["gradients"]["rank_correlation"] > 0.5
        labels = {w["selection"]: w["labels_nuisance"] for w in one.figures["ways"] if w["by"] == "label"}
        assert labels["central"] < one.figures["all"]["labels_nuisance"]


def test_picture_and_table(done: list[Done], tmp_path: Path) -> None:
    experiment = Theory()
    experiment.EPOCHS = (8, 9)  # type: ignore[misc]
    experiment.draw(done, tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")
    header, rows = experiment.table(done)
    assert len(rows) == 2 * (20 + 1)
    assert all(len(row) == len(header) for row in rows)

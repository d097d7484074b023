"""Pictures of a run: they are drawn from any history, with the truth known or not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from noiseproof.data import LabeledData
from noiseproof.runs import plots
from noiseproof.training.fit import fit

pytestmark = pytest.mark.pictures
RNG = np.random.default_rng(0)
LOSSES = np.concatenate([RNG.exponential(0.2, 80), RNG.normal(3, 0.5, 40)])
WRONG = np.arange(120) >= 80


def history(*keys: str) -> list[dict[str, Any]]:
    return [{"epoch": t, "distance": t**0.5, **dict.fromkeys(keys, 1 / (1 + t))} for t in range(1, 6)]


@pytest.mark.parametrize("keys", [("train_accuracy", "train_loss", "test_accuracy", "test_loss"), ()])
def test_plot_run(keys: tuple[str, ...], tmp_path: Path) -> None:
    records = history(*keys)
    records[2]["annealed"] = 2.5
    plots.plot_run(records, LOSSES, WRONG if keys else None, tmp_path / "run.png", title="ce")
    assert (tmp_path / "run.png").read_bytes()[:4] == b"\x89PNG"


@pytest.mark.parametrize(
    ("losses", "wrong", "expected"),
    [
        (LOSSES, WRONG, ["label is right: 80", "label is wrong: 40"]),
        (LOSSES, np.zeros(120, bool), ["label is right: 120"]),
        (LOSSES, None, ["all examples", "lower of two modes", "upper of two modes"]),
        (np.zeros(5), None, ["all examples"]),
        (np.zeros(5), WRONG[:5], ["label is right: 5"]),
    ],
)
def test_histogram_shows_the_truth_or_two_modes(
    losses: np.ndarray, wrong: np.ndarray | None, expected: list[str]
) -> None:
    from matplotlib.figure import Figure

    axis = Figure().subplots()
    plots.loss_histogram(axis, losses, wrong)
    assert sorted(axis.get_legend_handles_labels()[1]) == expected


def test_losses_of_a_result_are_those_of_its_model(digits: tuple[LabeledData, LabeledData]) -> None:
    result = fit("mlp", digits[0], "ce", epochs=2, val=0.2, device="cpu")
    data = result.run.data
    probability = torch.from_numpy(result.predict_proba(data.inputs))
    expected = -probability[torch.arange(len(data)), data.labels].log()
    np.testing.assert_allclose(result.losses, expected.numpy(), rtol=1e-4, atol=1e-6)
    assert result.losses.mean() == pytest.approx(result.final["train_loss"], rel=1e-5)

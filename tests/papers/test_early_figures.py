"""Figures 1, 3, 4 and 5 and Table 1 of early stopping, on digits at toy size."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from papers.support import run, shown

import noiseproof as nf
from noiseproof.errors import InputError
from noiseproof.jacobian.operator import Jacobian
from noiseproof_papers.datadir import DataDir
from noiseproof_papers.early_stopping.figures import Figure1, Figure3, Figure4, Notes, corrupted, prepare
from noiseproof_papers.early_stopping.spectra import BEFORE, RATIO, Figure5, Table1
from noiseproof_papers.experiment import Done
from noiseproof_papers.fits import cell

NO_DATA = DataDir(None)
DIGITS: dict[str, Any] = {"data": "digits", "examples": 400, "tested": 200}
MLP: dict[str, Any] = {
    "model": "mlp(widths=[256])", "method": "ce", "epochs": 40, "batch_size": 32, "lr": 0.1, "weight_decay": 0.0,
    "schedule": "constant", "val": 0.2, "eval_examples": None,
}  # fmt: skip


def test_absent_mnist_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOISEPROOF_DATA", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="mnist"):
        Figure1().run(Figure1().cells("small", 1)[0], DataDir(None))


def test_images_shrink_by_means_and_labels_stay_known() -> None:
    whole, small = (
        prepare(cell("digits", "ce", 3, noise=corrupted(0.0), size=size, examples=100, tested=50, options={}), NO_DATA)
        for size in (None, 4)
    )
    for large, little in zip(whole, small, strict=True):
        x, y = (one.take(torch.arange(len(one))).float() for one in (large, little))
        means = x.reshape(len(x), 1, 4, 2, 4, 2).mean(dim=(3, 5))
        assert torch.equal(y, means.round())
        assert torch.equal(large.labels, little.labels)
    assert len(small[0]) == 100
    assert len(small[1]) == 50
    assert small[0].noise_rate == 0


def test_notes_agree_with_the_history() -> None:
    data = nf.noise.apply(nf.load("digits").subset(range(100)), "symmetric-any:0.5", seed=0)
    torch.manual_seed(5)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))
    norm = sum(float(p.detach().square().sum()) for p in model.parameters()) ** 0.5
    notes = Notes()
    result = nf.fit(model, data, "ce", epochs=3, eval_examples=60, progress=notes)
    assert notes.norm == pytest.approx(norm)
    assert [float(loss.mean()) for loss in notes.losses] == pytest.approx([r["train_loss"] for r in result.history])
    probability = torch.from_numpy(result.predict_proba(data.take(notes.index)))
    loss = -probability[torch.arange(60), data.labels[notes.index]].log()
    torch.testing.assert_close(notes.losses[-1], loss, rtol=1e-4, atol=1e-5)


def test_figure_1_early_stopping_keeps_the_true_labels(tmp_path: Path) -> None:
    experiment = Figure1()
    experiment.settings = {"small": {**DIGITS, "few": 3, "options": MLP}}  # type: ignore[misc]
    experiment.rates = {"small": (0.0, 0.6)}  # type: ignore[misc]
    done = run(experiment, experiment.cells("small", 1))
    assert len(shown(experiment, done, tmp_path)) == 2 * len(experiment.stages)
    clean, noisy = (one.figures for one in done)
    full, held_out, few = (noisy["stages"][stage] for stage in experiment.stages)
    assert clean["noise"] == 0
    assert 0.45 < noisy["noise"] < 0.63
    assert full["train_accuracy"] > 0.95  # fits the wrong labels too
    assert full["epoch"] == MLP["epochs"]
    assert few["epoch"] == 3
    for early in (held_out, few):
        assert early["test_accuracy"] > full["test_accuracy"] + 0.1
        assert early["train_true_accuracy"] > full["train_true_accuracy"] + 0.1
    assert clean["stages"][experiment.stages[0]]["test_accuracy"] > 0.85


def test_figure_3_more_corruption_goes_farther(tmp_path: Path) -> None:
    experiment = Figure3()
    experiment.settings = DIGITS  # type: ignore[misc]
    experiment.networks = {"small": {"mlp(widths=[256])": (40, None)}}  # type: ignore[misc]
    experiment.options = {**MLP, "val": None}  # type: ignore[misc]
    experiment.rates = (0.0, 0.3, 0.6)  # type: ignore[assignment]
    done = run(experiment, experiment.cells("small", 1))
    assert len(shown(experiment, done, tmp_path)) == 3
    for share in experiment.reached:
        away = [one.figures["away"][f"{share}"] for one in done]
        assert away == sorted(away)
        assert away[-1] > 1.2 * away[0]


def test_figure_3_says_where_a_run_did_not_get(tmp_path: Path) -> None:
    experiment = Figure3()
    curves = {"distance": [1.0, 2.0], "train_accuracy": [0.2, 0.9], "train_loss": [2.0, 1.0]}
    done = [
        Done({"method": "lenet", "noise": corrupted(0.5), "seed": seed},
             {"norm": 2.0, "away": {"0.8": 2.0, "0.95": 4.0 if seed else None, "0.99": None}, "curves": curves})
        for seed in (0, 1)
    ]  # fmt: skip
    (row,) = shown(experiment, done, tmp_path)
    assert row == ["lenet", "50", "1.000 ± 0.000", "2.000 (1 of 2)", "–", "1.000 ± 0.000", "90.0 ± 0.0"]


def test_figure_4_losses_part_early_and_mix_late(tmp_path: Path) -> None:
    experiment = Figure4()
    experiment.settings = {"small": {**DIGITS, "options": {**MLP, "eval_examples": 200}}}  # type: ignore[misc]
    done = run(experiment, experiment.cells("small", 1))
    assert len(shown(experiment, done, tmp_path)) == 2 * len(experiment.rates["small"])
    for one in done:
        early, late = (one.figures["stages"][stage] for stage in experiment.stages)
        assert len(early["loss"]) == len(one.figures["wrong"]) == 200
        assert early["epoch"] < late["epoch"]
        assert early["auroc"] > max(0.9, late["auroc"])
        assert early["memorised"] < late["memorised"]
        assert early["wrong"] > early["right"]


@pytest.fixture(scope="module")
def spectra() -> list[Done]:
    experiment = Table1()
    options = {**MLP, "model": "cnn3(width=4)", "epochs": 5, "val": None}
    asked = {"before": BEFORE, "rows": {"all": 30, "correct": 80}, "left_out": 1}
    experiment.settings = {"small": {**DIGITS, "options": options, **asked}}  # type: ignore[misc]
    return run(experiment, experiment.cells("small", 1))


@pytest.mark.parametrize("kind", [Figure5, Table1])
def test_spectra_of_both_jacobians_at_three_stages(
    kind: type[Figure5] | type[Table1], spectra: list[Done], tmp_path: Path
) -> None:
    assert len(shown(kind(), spectra, tmp_path)) == 6
    for outputs, rows in (("all", 300), ("correct", 80)):
        stages = spectra[0].figures["spectra"][outputs]
        for found in stages.values():
            values = np.array(found["values"])
            assert found["shape"][0] == rows
            assert found["shape"][1] == stages["trained"]["shape"][1]
            assert found["count"] == (values > RATIO * values[0]).sum()
            assert 0 < found["count"] < rows
            assert set(found["shares"]) == {"labels", "noise", "residual"}
            assert all(0 <= share <= 1 for share in found["shares"].values())
        assert stages["initial"]["values"] != stages["calibrated"]["values"]  # batch norm makes a difference


def test_a_stage_is_what_a_dense_svd_says(spectra: list[Done]) -> None:
    """The initial network, made again from its seed: singular values, and the share of the labels."""
    one = spectra[0]
    training, _ = prepare(one.cell, NO_DATA)
    torch.manual_seed(one.cell["seed"])
    model = nf.models.build("cnn3", training.input_shape, 10, width=4)
    rows = torch.randperm(len(training), generator=torch.Generator().manual_seed(one.cell["seed"]))[:80].sort().values
    result = nf.fit(model, training, "ce", epochs=1, lr=1e-9)
    inputs, labels = result.predictor.normalize(training.take(rows)), training.labels[rows]
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.reset_running_stats()
    sizes = {name: p.numel() for name, p in model.named_parameters()}
    chosen = [name for name in sizes if name != max(sizes, key=lambda name: sizes[name])]
    J = Jacobian(model, inputs, outputs="correct", labels=labels, parameters=chosen).rows().double()
    left, values, _ = torch.linalg.svd(J, full_matrices=False)
    found = one.figures["spectra"]["correct"]["initial"]
    np.testing.assert_allclose(found["values"][:20], values[:20].numpy(), rtol=1e-3)
    inside = left[:, values >= RATIO * values[0]]
    labels_vector = torch.ones(80, dtype=torch.float64)  # one-hot labels at the class of the label
    assert found["shares"]["labels"] == pytest.approx(float((inside.T @ labels_vector).square().sum()) / 80, abs=1e-3)

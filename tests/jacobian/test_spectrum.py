"""The spectrum of a run's network at initialisation and now, and its picture."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from noiseproof.data import LabeledData
from noiseproof.errors import InputError
from noiseproof.jacobian.operator import Jacobian
from noiseproof.jacobian.singular import exact_spectrum
from noiseproof.jacobian.spectrum import plot_spectrum, spectrum_of_run
from noiseproof.models import build
from noiseproof.runs import checkpoint
from noiseproof.runs.folder import INITIAL
from noiseproof.runs.loading import load_model
from noiseproof.training.fit import fit

MODEL = "mlp(widths=(16,), batch_norm=True)"


@pytest.fixture(scope="module")
def run(digits: tuple[LabeledData, LabeledData], tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "digits"
    fit(MODEL, digits[0], "ce", epochs=3, batch_size=32, lr=0.1, seed=3, device="cpu", out=out)
    return out


def test_at_initialisation_and_now(run: Path, digits: tuple[LabeledData, LabeledData]) -> None:
    """The initial network is the one the run's seed makes, with fresh batch statistics; the top values are exact."""
    data = digits[0]
    found = spectrum_of_run(run, data, examples=30, k=8, tolerance=1e-5)
    again = spectrum_of_run(run, data, examples=30, k=None)
    torch.testing.assert_close(found.examples, again.examples)
    torch.manual_seed(3)
    fresh = build("mlp", data.input_shape, 10, widths=(16,), batch_norm=True)
    inputs = load_model(run).normalize(data.take(found.examples))
    expected = exact_spectrum(Jacobian(fresh, inputs)).values
    torch.testing.assert_close(again.initial.values[:100], expected[:100], rtol=1e-4, atol=1e-6)
    for few, everything in ((found.initial, again.initial), (found.now, again.now)):
        torch.testing.assert_close(few.values, everything.values[: len(few.values)], rtol=1e-3, atol=0)
        assert few.count(0.1) == everything.count(0.1)
    assert abs(float(found.now.values[0] / found.initial.values[0]) - 1) > 0.05
    assert set(found.now_shares) == {"residual", "labels", "noise"}
    for before, after in zip(found.now_shares.values(), again.now_shares.values(), strict=True):
        assert before == pytest.approx(after, abs=1e-3)
        assert sum(after) == pytest.approx(1.0)
    shares = again.now_shares  # the paper's claim, Section 3.2: labels in the information space, noise outside
    assert shares["labels"].information > shares["noise"].information


def test_correct_class_and_calibration(run: Path, digits: tuple[LabeledData, LabeledData]) -> None:
    plain = spectrum_of_run(run, digits[0], examples=50, k=5, outputs="correct")
    assert plain.now.shape == (50, 64 * 16 + 16 + 32 + 170)
    calibrated = spectrum_of_run(run, digits[0], examples=50, k=5, outputs="correct", calibrate=True)
    torch.testing.assert_close(calibrated.now.values, plain.now.values)
    assert float((calibrated.initial.values[0] / plain.initial.values[0] - 1).abs()) > 0.05


def test_a_run_that_began_with_batch_statistics(
    run: Path, digits: tuple[LabeledData, LabeledData], tmp_path: Path
) -> None:
    """Of a run from another's backbone, at a rate that moves nothing: then and now are the same network."""
    out = tmp_path / "run"
    options = {"epochs": 1, "lr": 1e-9, "momentum": 0.0, "weight_decay": 0.0, "seed": 3, "device": "cpu"}
    fit(MODEL, digits[0], "ce", init=run, out=out, **options)
    began = checkpoint.load(out / INITIAL)["buffers"]
    source = load_model(run).models.state_dict()
    assert all(torch.equal(value, source[name]) for name, value in began.items())
    assert bool(began["0.body.2.running_mean"].any())
    found = spectrum_of_run(out, digits[0], examples=20, k=5)
    assert found.initial.values[0] > 0


def test_a_jacobian_that_is_zero(digits: tuple[LabeledData, LabeledData], tmp_path: Path) -> None:
    out = tmp_path / "run"
    fit("shallow(width=8, init_std=0)", digits[0], "ce", epochs=1, lr=1e-9, device="cpu", out=out)
    with pytest.raises(InputError, match="the Jacobian is zero"):
        spectrum_of_run(out, digits[0], examples=20, k=5)


def test_picture(run: Path, digits: tuple[LabeledData, LabeledData], tmp_path: Path) -> None:
    found = spectrum_of_run(run, digits[0], examples=20, k=5, parameters="head")
    path = tmp_path / "spectrum.png"
    plot_spectrum({"at initialisation": found.initial, "now": found.now}, path, title="digits")
    assert path.read_bytes()[:4] == b"\x89PNG"


def test_mistakes(run: Path, digits: tuple[LabeledData, LabeledData], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no"):
        spectrum_of_run(tmp_path / "nowhere", digits[0])
    other = LabeledData(torch.randn(4, 3), torch.tensor([0, 1, 0, 1]))
    with pytest.raises(InputError, match="the data has inputs of shape"):
        spectrum_of_run(run, other)
    other = LabeledData(torch.rand(4, *digits[0].input_shape), torch.tensor([0, 1, 0, 1]))
    with pytest.raises(InputError, match="has 10 classes, data has 2; pass its own data"):
        spectrum_of_run(run, other)

    def frozen() -> nn.Module:
        model = build("mlp", digits[0].input_shape, 10, widths=(16,), batch_norm=True)
        model.get_submodule("head").requires_grad_(False)
        return model

    with pytest.raises(InputError, match=r"initial\.safetensors does not fit"):
        spectrum_of_run(run, digits[0], model=frozen)


def test_the_command_line(command: Callable[..., tuple[int, str, str]]) -> None:
    header = "u,v,label\n"
    rows = [f"{i % 7},{i * i % 11},{'ab'[i * i % 11 > 4]}\n" for i in range(60)]
    Path("a.csv").write_text(header + "".join(rows))
    quick = ["--model", "mlp(widths=[8])", "--epochs", 1, "--device", "cpu", "--quiet"]
    assert command("fit", "a.csv", "--method", "ce", "--val", "0.2", "--out", "run", *quick)[0] == 0
    code, out, err = command("jacobian", "run", "--examples", 20, "--quiet")
    assert (code, err) == (0, "")
    assert "initialisation" in out
    assert Path("run/spectrum.png").exists()
    command("pretrain", "digits", "--augment", "weak", "--limit", 50, "--out", "features", *quick)
    Path("a.csv").write_text(header + "".join(rows[::-1]))
    for words, message in (
        (["jacobian", "run"], "is not what the run in run was trained on"),
        (["jacobian", "features"], "was not begun by noiseproof fit"),
        (["jacobian", "nowhere"], "there is no folder nowhere"),
    ):
        code, _, err = command(*words)
        assert (code, message in err) == (2, True), err

"""Every recipe is a call of `fit` that its own checks accept; the command line lets other options win."""

from __future__ import annotations

import inspect
import json
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from noiseproof import methods, models, schedule
from noiseproof.cli import app
from noiseproof.data.augment import policy
from noiseproof.errors import InputError
from noiseproof.recipes import RECIPES, recipe
from noiseproof.spec import split_call
from noiseproof.train import fit


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_is_a_call_of_fit(name: str) -> None:
    options = recipe(name)
    assert set(options) <= set(inspect.signature(fit).parameters)
    method = methods.build(options["method"])
    augments = options["augment"] if isinstance(options["augment"], tuple) else (options["augment"],)
    assert len(augments) == method.num_views
    for augment in augments:
        policy(augment, 32)
    schedule.parse(options["schedule"])
    name, more = split_call(options["model"], kind="model")
    models.build(name, (3, 96, 96), 10, **more)


def test_other_options_win_over_the_recipe(tmp_path: Path) -> None:
    out = tmp_path / "run"
    arguments = ["fit", "digits", "--recipe", "sop-cifar10-sym", "--model", "mlp", "--epochs", "2", "--limit", "200"]
    result = CliRunner().invoke(app, [*arguments, "--augment", "none", "--out", str(out), "-q"])
    assert result.exit_code == 0, result.output
    call = json.loads((out / "config.json").read_text())["call"]
    assert call["epochs"] == 2
    assert call["method"].startswith("sop(lr_u=10.0, lr_v=10.0, variant='authors'")
    assert (call["lr"], call["schedule"], call["batch_size"]) == (0.02, "multi_step([40, 80])", 128)
    with pytest.raises(InputError, match="did you mean 'sop-cifar10-sym'"):
        recipe("sop-cifar10-symm")
    assert "sop-webvision" in CliRunner().invoke(app, ["recipes"]).output


@pytest.mark.parametrize("name", ["lnsgd-ls", "lnsgd-s", "fbgd-ls"])
def test_label_noise_recipes_take_another_network(name: str, tmp_path: Path) -> None:
    out = tmp_path / "run"
    arguments = ["fit", "digits", "--recipe", name, "--model", "mlp", "--epochs", "10", "--limit", "300"]
    result = CliRunner().invoke(app, [*arguments, "--out", str(out), "-q"])
    assert result.exit_code == 0, result.output
    history = [json.loads(line) for line in (out / "history.jsonl").read_text().splitlines()]
    assert [record["epoch"] for record in history if "annealed" in record] == ([] if name == "lnsgd-s" else [2])
    rates = [0.001] * 10 if name == "lnsgd-s" else [0.01] + [0.001] * 9
    assert [record["lr"] for record in history] == pytest.approx(rates)
    method = json.loads((out / "config.json").read_text())["call"]["method"]
    assert method == ("ce()" if name == "fbgd-ls" else "label_noise(ce(), rate=0.1, anneal='constant')")


def test_one_augmentation_for_each_view(tmp_path: Path) -> None:
    pixels = torch.randint(0, 256, (40, 3, 16, 16), dtype=torch.uint8)
    import numpy as np

    np.savez(tmp_path / "images.npz", images=pixels.numpy(), labels=np.arange(40) % 2)
    arguments = ["fit", str(tmp_path / "images.npz"), "--method", "sop_plus", "--model", "cnn3(width=4)"]
    for text, expected in (("auto", ["weak", "strong"]), ("none,weak", ["none", "weak"])):
        out = tmp_path / text.replace(",", "-")
        options = ["--epochs", "1", "--augment", text, "--out", str(out), "-q"]
        result = CliRunner().invoke(app, [*arguments, *options])
        assert result.exit_code == 0, result.output
        assert json.loads((out / "config.json").read_text())["call"]["augment"] == expected

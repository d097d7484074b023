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
from noiseproof.loop import fit
from noiseproof.recipes import RECIPES, recipe


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
    assert options["model"] in models.names()


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

"""Every recipe is a call of `fit` or `pretrain` that its own checks accept; other options of the command line win."""

from __future__ import annotations

import inspect
import json
import math
import re
from pathlib import Path

import pytest
import torch
from reference import recipes as printed
from typer.testing import CliRunner

from noiseproof import methods, models
from noiseproof import pretraining as pretrain
from noiseproof import schedules as schedule
from noiseproof.calls import split_call
from noiseproof.cli import app
from noiseproof.data import LabeledData, load
from noiseproof.data.augment import policy
from noiseproof.errors import InputError
from noiseproof.pretraining import SANE
from noiseproof.pretraining.train import view_augments
from noiseproof.recipes import RECIPES, recipe
from noiseproof.training.fit import fit

FITS = [name for name, one in RECIPES.items() if one.verb == "fit"]
PRETRAINS = [name for name, one in RECIPES.items() if one.verb == "pretrain"]


@pytest.mark.parametrize("name", FITS)
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


def test_the_recipes_of_sop_are_its_authors() -> None:
    """Table A.1 of Liu et al. (2022), Appendix A.4 and the README of their code."""
    rates = {name: methods.build(recipe(name)["method"]) for name in FITS if name.startswith("sop")}
    assert {(one.lr_u, one.lr_v) for name, one in rates.items() if "cifar100-asym" in name} == {(0.1, 100)}
    assert {(one.lr_u, one.lr_v) for name, one in rates.items() if "cifar10-asym" in name} == {(10, 100)}
    assert {recipe(name)["model"] for name in FITS if "sop-plus" in name} == {"preact_resnet18(variant='sop')"}
    windows = {
        name: policy(recipe(name)["augment"], RECIPES[name].image_size or 0).operations[0].size
        for name in ("sop-clothing1m", "sop-webvision")
    }
    assert windows == {"sop-clothing1m": (224, 224), "sop-webvision": (227, 227)}


@pytest.mark.parametrize("name", PRETRAINS)
def test_a_recipe_is_a_call_of_pretrain(name: str) -> None:
    options = recipe(name, "pretrain")
    assert set(options) <= set(inspect.signature(pretrain.pretrain).parameters)
    method = pretrain.build(options["method"])
    side = RECIPES[name].image_size or 32
    picture = LabeledData(torch.zeros(2, 3, side, side, dtype=torch.uint8), [0, 1])
    given = [options["augment"], options.get("mix_augment"), options.get("crop_sizes")]
    views = [
        policy(view, side) if isinstance(view, str) else view
        for view in view_augments(*given, method.num_views, picture)
    ]
    sizes = [view(picture.inputs, torch.Generator().manual_seed(0)).shape[-1] for view in views]
    extra = [224, 192, 160, 128, 96] if "multi" in name else [96] if "single" in name else [32] * ("strong" in name)
    assert sizes == [side, side, *extra]
    assert ["RandAugment" in repr(view) for view in views] == [False, False, *["strong" in name] * len(extra)]
    schedule.parse(options["schedule"])


def test_every_recipe_of_fit_is_its_papers() -> None:
    """Each number against a table read off the papers; of a schedule, the rates that it gives."""
    assert set(FITS) == set(printed.FITS)
    for name, paper in printed.FITS.items():
        options = recipe(name)
        found = [options[key] for key in ("model", "epochs", "batch_size", "lr", "weight_decay", "val")]
        assert found == [paper.network, paper.epochs, paper.batch, paper.rate, paper.decay, paper.held_out], name
        assert (options["optimizer"], options["momentum"]) == ("sgd", 0.9), name
        views = options["augment"]
        assert (views if isinstance(views, tuple) else (views,)) == paper.views, name
        factor = schedule.parse(options["schedule"])
        for epoch in range(paper.epochs):
            assert factor(schedule.Clock(epoch, paper.epochs)) == pytest.approx(expected_factor(paper, epoch)), name
        method = methods.build(options["method"])
        assert {key: getattr(method, key) for key in paper.method} == paper.method, name
        kept = {"model", "epochs", "batch_size", "lr", "weight_decay", "val", "optimizer", "momentum", "augment"}
        assert set(options) == kept | {"schedule", "method"}


def expected_factor(paper: printed.Printed, epoch: int) -> float:
    """Of the rate, in an epoch."""
    if paper.drops in ("cosine", "cosine to a hundredth"):
        final = 0.01 if paper.drops != "cosine" else 0.0
        return final + (1 - final) * (1 + math.cos(math.pi * epoch / paper.epochs)) / 2
    if paper.drops == "a tenth":  # iteration 40,000 of 400,000
        assert paper.epochs * 50_000 / paper.batch == 400_000
        return 1.0 if epoch * 50_000 / paper.batch < 40_000 else 0.1
    return 1.0 if paper.drops == "constant" else 0.1 ** sum(epoch >= drop for drop in paper.drops)


def test_every_recipe_of_pretrain_is_its_papers() -> None:
    assert set(PRETRAINS) == set(printed.PRETRAINS)
    for name, paper in printed.PRETRAINS.items():
        options = recipe(name, "pretrain")
        kept = ("model", "batch_size", "lr", "momentum", "weight_decay", "optimizer", "schedule", "augment")
        found = [options[key] for key in kept]
        chain = "moco-cifar10" if "cifar10" in name else "simclr"  # as in MoCo's demonstration on CIFAR-10: no blur
        assert found == ["resnet50", 256, 0.03, 0.9, 1e-4, "sgd", "cosine", chain], name
        assert pretrain.build(options["method"]).groups == (8 if "cifar10" in name else 1), name
        assert (options["epochs"], RECIPES[name].image_size) == (paper.epochs, paper.images), name
        assert options.get("crop_sizes") == paper.crops, name
        assert options.get("mix_augment") == ("sane-strong" if paper.strong else None), name
        method = pretrain.build(options["method"])
        assert {key: getattr(method, key) for key in paper.method} == paper.method, name
        if isinstance(method, SANE):
            assert (method.side, method.mixup, method.p, method.q) == ("query", "momentum", True, True)
        assert set(options) <= {*kept, "epochs", "method", "crop_sizes", "mix_augment"}


def pictures(folder: Path) -> None:
    """60 digits as files."""
    from PIL import Image

    folder.mkdir()
    for i, image in enumerate(load("digits").inputs[:60]):
        Image.fromarray(image[0].numpy()).save(folder / f"{i}.png")


def test_pretrain_by_a_recipe(tmp_path: Path) -> None:
    pictures(tmp_path / "photos")
    words = ["--epochs", "1", "--model", "cnn3(width=4)", "--batch-size", "20", "--device", "cpu", "-q"]
    for name, more, views in (
        ("sane-cifar10", [], 2),
        ("sane-single-imagenet-strong", ["--image-size", "8", "--crop-sizes", "6"], 3),
    ):
        out = tmp_path / name
        arguments = ["pretrain", str(tmp_path / "photos"), "--recipe", name, "--out", str(out), *words, *more]
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 0, result.output
        config = json.loads((out / "config.json").read_text())
        call = config["call"]
        assert (call["epochs"], call["batch_size"], call["lr"], call["model"]) == (1, 20, 0.03, "cnn3(width=4)")
        assert call["method"] == pretrain.build(recipe(name, "pretrain")["method"]).describe()
        assert (len(call["augment"]), call["data"]["input_shape"]) == (views, [1, 8, 8])
        assert config["command"]["recipe"] == name
    arguments = [
        "pretrain",
        str(tmp_path / "photos"),
        "--recipe",
        "sane-cifar10-strong",
        "--out",
        str(tmp_path / "moco"),
    ]
    other = CliRunner().invoke(app, [*arguments, "--method", "moco(dictionary_size=20)", *words])
    assert other.exit_code == 0, other.output
    again = CliRunner().invoke(app, ["pretrain", "--out", str(tmp_path / "sane-cifar10"), "--resume", "-q"])
    assert again.exit_code == 0, again.output


def test_the_images_are_read_at_the_recipes_size(tmp_path: Path) -> None:
    pictures(tmp_path / "photos")
    words = ["--recipe", "moco-imagenet", "--epochs", "1", "--model", "mlp(widths=[4])", "--augment", "none"]
    arguments = ["pretrain", str(tmp_path / "photos"), *words, "--out", str(tmp_path / "run"), "--device", "cpu", "-q"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    call = json.loads((tmp_path / "run/config.json").read_text())["call"]
    assert call["data"]["input_shape"] == [1, 224, 224]


def test_fit_reads_and_crops_photographs_as_the_recipe_says(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    for name in ("cats", "dogs"):
        pictures(tmp_path / "photos" / name)
    words = ["--recipe", "sop-clothing1m", "--epochs", "1", "--model", "cnn3(width=4)", "--limit", "12"]
    arguments = ["fit", str(tmp_path / "photos"), *words, "--out", str(tmp_path / "run"), "--device", "cpu", "-q"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    call = json.loads((tmp_path / "run/config.json").read_text())["call"]
    assert (call["data"]["input_shape"], call["augment"]) == ([1, 256, 256], "crop")


@pytest.mark.parametrize(
    ("verb", "name", "sentence"),
    [
        ("pretrain", "sane-cifar", "unknown recipe 'sane-cifar'; did you mean 'sane-cifar10'?"),
        (
            "pretrain",
            "sop-cifar10-sym",
            "recipe 'sop-cifar10-sym' is for fit, not for pretrain; choose from moco-cifar10,",
        ),
        ("fit", "sane-cifar10", "recipe 'sane-cifar10' is for pretrain, not for fit; choose from crust-cifar,"),
        ("fit", "sop-cifar10-symm", "unknown recipe 'sop-cifar10-symm'; did you mean 'sop-cifar10-sym'?"),
    ],
)
def test_a_wrong_name_is_one_sentence(command, verb: str, name: str, sentence: str) -> None:
    code, _, err = command(verb, "digits", "--recipe", name)
    assert (code, err.count("\n")) == (2, 1)
    assert err.startswith(f"error: {sentence}")
    assert not Path("runs").exists()


def test_the_table_says_what_a_recipe_is_for(command) -> None:
    code, out, _ = command("recipes")
    assert code == 0
    for verb, names in (("fit", FITS), ("pretrain", PRETRAINS)):
        for name in names:
            line = next(line for line in out.splitlines() if f" {name} " in line)
            assert re.search(rf"│ {verb}\b", line)


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

"""Settings are described once: signatures, documentation, checks, options and recipes come from one place."""

from __future__ import annotations

import inspect

import pytest

import noiseproof as nf
from noiseproof.cli.options import NoisySource, Source, parameters, values
from noiseproof.data.augment import POLICIES
from noiseproof.errors import InputError
from noiseproof.recipes import RECIPES
from noiseproof.training import optimizers, settings
from noiseproof.training.settings import Fitting, Pretraining, Training, settings_of

VERBS = [(nf.fit, Fitting), (nf.pretrain, Pretraining)]
DATA = nf.LabeledData([[0.0], [1.0]], [0, 1])
REQUIRED = {"model": "mlp", "data": DATA}


@pytest.mark.parametrize(("verb", "kind"), VERBS)
def test_a_verb_takes_its_settings(verb, kind):
    taken = inspect.signature(verb).parameters
    assert list(taken) == list(settings_of(kind))
    assert list(taken)[:3] == ["model", "data", "method"]
    assert all(f"        {name}: {setting.help[:40]}" in verb.__doc__ for name, setting in settings_of(kind).items())
    assert max(map(len, verb.__doc__.splitlines())) <= 120


def test_the_help_names_all_optimizers_and_augmentations():
    assert settings.OPTIMIZERS.split(", ") == list(optimizers.OPTIMIZERS)
    assert settings.AUGMENTATIONS.split(", ") == list(POLICIES)


@pytest.mark.parametrize("value", ["weaK", ["weak", "strongest"]])
def test_an_unknown_augmentation_is_refused_before_the_data_is_looked_at(value):
    with pytest.raises(InputError, match=r"unknown augmentation '.*'; did you mean '(weak|strong)'"):
        Fitting("mlp", DATA, augment=value)


def test_a_new_default_inherits_the_rest():
    assert settings_of(Pretraining)["epochs"] == settings_of(Training)["epochs"]
    assert (Fitting("mlp", DATA).epochs, Pretraining("mlp", DATA).epochs) == (30, 200)


@pytest.mark.parametrize(("kind", "source"), [(Fitting, NoisySource), (Pretraining, Source)])
def test_options_of_the_command_line_are_settings(kind, source):
    found = parameters(kind, source)
    assert {"epochs", "lr", "seed", "label_column"} <= set(found)
    assert not {"out", "progress", "notes", "data"} & set(found)
    defaults = {name: one.default for name, one in found.items()}
    kind(**REQUIRED | values(kind, defaults))  # what the command line gives by default, a verb takes


@pytest.mark.parametrize("name", RECIPES)
def test_recipes_hold_settings(name):
    recipe = RECIPES[name]
    kind = {"fit": Fitting, "pretrain": Pretraining}[recipe.verb]
    assert set(recipe.options) <= set(settings_of(kind))
    kind(data=DATA, method=recipe.method, **recipe.options)


WRONG = {
    "epochs": (0, 1.5, "3", True, None), "batch_size": (1, "some", 2.5, None), "lr": (0, -1, "x", float("nan"), None),
    "momentum": (1, -0.1, None), "weight_decay": (-1, float("inf"), "x"), "optimizer": ("sdg", 5, None),
    "schedule": ("cosin", 3, None), "clip": (0, "x"), "precision": ("float8", None, 3), "seed": (-1, 2**63, 0.5, None),
    "checkpoint_seconds": (0, None), "checkpoint_steps": (0, 1.5), "out": (5, ["run"]), "resume": (1, None, "yes"),
    "progress": (3, "yes", None), "notes": ("text", [1]), "eval_examples": (-1, "all"),
    "class_weight": ("even", 2, {}, {"0": -1}, {"0": 0, "1": 0}), "callbacks": (3, [print, 1], "print"),
    "track": ("mlflow", 1), "shuffle": ("files", None, 1),
}  # fmt: skip


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, many in WRONG.items() for value in many])
def test_a_wrong_value_is_one_sentence_that_names_the_setting(name, value):
    with pytest.raises(InputError) as caught:
        Fitting(**REQUIRED | {name: value})
    assert name in str(caught.value) or "did you mean" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [("dim", 1), ("hidden", 0), ("probe_every", -1), ("probe_examples", 9), ("mix_augment", 3), ("batch_size", "all"),
     ("crop_sizes", [0]), ("crop_sizes", "8"), ("crop_sizes", 8)],
)  # fmt: skip
def test_wrong_values_of_pre_training(name, value):
    with pytest.raises(InputError, match=f"{name} must be"):
        Pretraining(**REQUIRED | {name: value})

"""Names, text and tables; and every method through the same few steps."""

from __future__ import annotations

import contextlib
import copy
import inspect
import re
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import noiseproof as nf
from noiseproof import methods, pretraining
from noiseproof.errors import InputError
from noiseproof.method import Batch, Method, Run, Wrapper
from noiseproof.methods import build, registry, table
from noiseproof.methods.co_teaching import CoTeaching
from noiseproof.methods.elr import ELR
from noiseproof.methods.mixup import MixUp
from noiseproof.models.inference import probabilities

Train = Callable[..., list[float]]
NAMES = sorted(registry())


def make(name: str) -> Method:
    cls = registry()[name]
    return cls(ELR()) if issubclass(cls, Wrapper) else cls()


def test_discovery_finds_the_papers() -> None:
    expected = {"ce", "mixup", "gce", "sce", "forward", "backward", "elr", "sop", "co_teaching"}
    assert expected | {"early_stop"} <= set(NAMES)
    assert registry()["elr"] is ELR


def test_registry_cannot_be_spoilt() -> None:
    registry().clear()
    assert "elr" in registry()


@pytest.mark.parametrize("name", NAMES)
def test_text_round_trip(name: str) -> None:
    method = make(name)
    again = build(method.describe())
    assert type(again) is type(method)
    assert again.describe() == method.describe()


@pytest.mark.parametrize(
    ("text", "described"),
    [
        ("elr", "elr(beta=0.9, lam='auto')"),
        ("elr(lam=3)", "elr(beta=0.7, lam=3.0)"),
        (" ELR ( beta = .8 ) ", "elr(beta=0.8, lam='auto')"),
        ("Co-Teaching(forget-rate=1e-1)", "co_teaching(forget_rate=0.1, warmup=10, exponent=1.0)"),
        ("sce(A=-6)", "sce(alpha=0.1, beta=1.0, A=-6.0)"),
        (
            "early-stop(elr(lam=7), patience=3, criterion='distance(0.8)')",
            "early_stop(elr(beta=0.7, lam=7.0), criterion='distance(radius=0.8, relative=True)', patience=3)",
        ),
        (
            "forward(transition=[[0.75, 0.25], (0.5, 0.5)])",
            "forward(transition=[[0.75, 0.25], [0.5, 0.5]], warmup=None, quantile=None)",
        ),
    ],
)
def test_parse(text: str, described: str) -> None:
    assert build(text).describe() == described
    assert build(described).describe() == described


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("elrr", "unknown method 'elrr'; did you mean 'elr'"),
        ("early_stop(elrr)", "unknown method 'elrr'"),
        ("elr(bta=0.9)", "'bta'; did you mean 'beta'"),
        ("ce(beta=0.9)", "'beta'"),
        ("early_stop", "early_stop.*inner"),
        ("early_stop(patience=3)", "early_stop.*inner"),
        ("early_stop(3)", "early_stop wraps a method, got 3"),
        ("ce(elr)", "ce"),
        ("elr(0.9)", "elr"),
        ("elr(beta=2)", r"beta must be a number in \[0, 1\), got 2"),
        ("elr(beta='a')", "beta must be a number"),
        ("elr(beta=gce)", "beta must be a number"),
        ("sop(lr_u=early_stop(ce))", r"lr_u must be a number.* got the method early_stop\(ce\)"),
        ("elr(beta=1+x)", "cannot read"),
        ("elr(**{})", "elr"),
        ("early_stop(ce, criterion=distance(0.5))", r"quote text: criterion='distance\(0.5\)'"),
        ("early_stop(ce, criterion=agreement)", "quote text: criterion='agreement'"),
        ("elr(", "cannot read method"),
        ("", "cannot read method"),
        ("3", "cannot read method"),
        ("elr.beta()", "cannot read method"),
        ("__import__('os')", "unknown method"),
        ("early_stop(" * 3000, "cannot read method"),
    ],
)
def test_parse_refuses(text: str, says: str) -> None:
    with pytest.raises(InputError, match=says) as caught:
        build(text)
    assert "\n" not in str(caught.value)


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet="elrcb_-(),=.0159 '[]xA", max_size=25))
def test_any_text_is_a_method_or_an_input_error(text: str) -> None:
    with contextlib.suppress(InputError):
        assert isinstance(build(text), Method)


def test_build() -> None:
    method = ELR()
    assert build(method) is method
    assert isinstance(build("elr"), ELR)
    with pytest.raises(InputError, match=r"write ELR\(\)"):
        build(ELR)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="got int"):
        build(3)  # type: ignore[arg-type]


SOP = {"lr_u": "follow", "lr_v": "follow", "variant": "authors", "visits": None, "std": 1e-8, "full_u": False}
CORRECTION = {"transition": None, "warmup": None, "quantile": None}
DEFAULTS = {  # the papers' values; where docs/methods says so, those that did best here
    "auto": {},
    "backward": CORRECTION,
    "ce": {},
    "co_teaching": {"forget_rate": 0.2, "warmup": 10, "exponent": 1.0},
    "co_teaching_plus": {"forget_rate": 0.2, "warmup": 10, "agree": None},
    "cores": {"beta": 2.0, "warmup": None, "consistency": 0.0},
    "crust": {
        "fraction": "auto", "selection": "smallest", "by": "label", "warmup": 5, "every": 1, "weighted": False,
        "mixup": 0.0, "variant": "ours"},
    "d2l": {"lam": 5.0, "neighbours": 20, "window": None},
    "decoupling": {"warmup": 2, "least": 0.1},
    "dividemix": {
        "warmup": None, "threshold": 0.5, "temperature": 0.5, "alpha": 4.0, "lam_u": 25.0, "ramp": 16.0, "lam_r": 1.0,
        "penalty": 0.0, "views": 2},
    "dmi": {"scale": 0.001, "warmup": None},
    "early_stop": {"criterion": "agreement", "patience": 5},
    "elr": {"beta": None, "lam": "auto"},
    "elr_plus": {"beta": 0.7, "lam": 3.0, "alpha": 1.0, "ema": 0.997, "ramp": 0.5},
    "forward": CORRECTION,
    "gce": {"q": 0.7},
    "incv": {"rounds": 2, "share": 0.4, "remove": True},
    "jocor": {"forget_rate": 0.2, "lam": 0.9, "warmup": 10},
    "joint": {"alpha": 0.8, "beta": 0.4, "memory": 10, "warmup": None},
    "label_noise": {"rate": 0.1, "anneal": "constant"},
    "left_out": {"rounds": 3},
    "mentornet": {"percentile": 0.7, "decay": 0.9, "band": 1.0, "warmup": None, "dropout": 0.5},
    "mixup": {"alpha": 1.0},
    "pes": {"warmup": None},
    "pull": {"strength": 0.03},
    "refine": {"m1": 0.0, "m2": 10.0, "sharpness": 0.5, "ramp": 20.0, "views": 1},
    "sce": {"alpha": 0.1, "beta": 1.0, "A": -4.0},
    "self_adaptive": {"alpha": None, "warmup": None},
    "sop": SOP,
    "sop_plus": {**SOP, "consistency": 0.9, "balance": 0.1, "prior": "labels"},
    "t_revision": {"transition": None, "warmup": None, "quantile": None, "lr": 0.01},
}  # fmt: skip


def test_defaults_are_as_documented() -> None:
    """Of the methods, and the same of the losses for other loops."""
    assert {row.name: row.options for row in table()} == DEFAULTS
    for loss, name in ((nf.GCELoss, "gce"), (nf.SCELoss, "sce"), (nf.ELRLoss, "elr"), (nf.SOPLoss, "sop")):
        parameters = inspect.signature(loss).parameters
        assert {option: parameters[option].default for option in DEFAULTS[name]} == DEFAULTS[name]
        assert parameters["reduction"].default == "mean"
    parameters = inspect.signature(nf.RefineLoss).parameters
    expected = DEFAULTS["refine"] | {"reduction": "mean"}
    assert {name: one.default for name, one in parameters.items()} | {"views": 1} == expected


def test_table_is_complete() -> None:
    rows = {row.name: row for row in table()}
    assert sorted(rows) == NAMES
    assert rows["elr"].cls == "ELR"
    assert rows["co_teaching"].needs == "noise rate"
    for row in rows.values():
        assert row.paper
        assert row.description.endswith(".")
        assert "\n" not in row.description


@pytest.mark.parametrize("name", NAMES)
def test_a_method_resumes_to_the_same_bits(name: str, make_run: Callable[..., Run], train: Train) -> None:
    """Losses are finite, take weights; a run continued from its state goes on to the same bits."""
    method = make(name)
    run = make_run(num_models=method.num_models)
    method.start(run)
    losses = train(method, run, 3, weight=torch.linspace(0.5, 1.5, len(run.data)))
    assert all(torch.tensor(losses).isfinite())

    resumed = make(name)
    again = make_run(num_models=method.num_models, epoch=run.epoch)
    resumed.start(again)
    resumed.load_state_dict(method.state_dict())
    again.models.load_state_dict(run.models.state_dict())
    again.generator.set_state(run.generator.get_state())
    assert train(method, run, 2) == train(resumed, again, 2)


@pytest.mark.parametrize("name", ["ce", "gce", "sce", "co_teaching"])
def test_equal_weights_change_nothing(name: str, make_run: Callable[..., Run], train: Train) -> None:
    values = []
    for weight in (None, torch.ones(12)):
        method = make(name)
        run = make_run(num_models=method.num_models)
        method.start(run)
        values.append(train(method, run, 2, weight=weight))
    assert values[0] == values[1]


def test_mixup_draws_from_the_runs_generator_alone(make_run: Callable[..., Run], train: Train) -> None:
    values = []
    for seed in (1, 2):
        run = make_run()
        torch.manual_seed(seed)
        values.append(train(MixUp(), run, 3))
    assert values[0] == values[1]


def test_co_teaching_trains_two_networks_on_the_small_losses(make_run: Callable[..., Run], train: Train) -> None:
    run, method = make_run(num_models=2), CoTeaching(forget_rate=0.5, warmup=1)
    before = [model[0].weight.clone() for model in run.models]
    [whole] = train(method, run, 1)
    assert not any(torch.equal(old, model[0].weight) for old, model in zip(before, run.models, strict=True))
    run.models.load_state_dict(make_run(num_models=2).models.state_dict())
    [half] = train(method, run, 1)
    assert half < whole


def test_predict_all_is_the_mean_of_the_models_in_eval_mode(make_run: Callable[..., Run]) -> None:
    run = make_run(num_models=2)
    run.models[0].eval()
    probs = run.predict()
    assert [model.training for model in run.models] == [False, True]
    run.models.eval()
    torch.testing.assert_close(probs, probabilities(run.models, run.data.take(torch.arange(12))))
    assert probs.dtype == torch.float32
    assert not probs.is_inference()


@pytest.mark.parametrize("name", sorted({*NAMES, "byol", "imix", "moco", "sane", "simclr"} - {"label_noise"}))
def test_what_goes_by_the_epochs_planned_says_so(name: str) -> None:
    """Else a run could be given more epochs, and would differ from one planned so. label_noise goes by its schedule."""
    built = make(name) if name in NAMES else pretraining.build(name)
    built = build("sop(lr_u='auto', lr_v='auto')") if name == "sop" else built  # with rates alone
    source = inspect.getsource(inspect.getmodule(type(built)))  # type: ignore[arg-type]
    asks = re.search(r"run\.(epochs|total_steps)", re.sub(r"\.check\(.*?\)", "", source))
    assert built.plans or not asks


def test_what_methods_say_of_themselves() -> None:
    """How many networks and views, what is kept of each example, and whether the epochs planned matter."""
    built = {name: make(name) for name in NAMES} | {
        name: pretraining.build(name) for name in ("byol", "imix", "moco", "sane", "simclr")
    }
    two = {"co_teaching", "co_teaching_plus", "decoupling", "dividemix", "elr_plus", "jocor"}
    assert {name for name, one in built.items() if one.num_models == 2} == two
    assert all(one.num_models == 1 for name, one in built.items() if name not in two)
    views = {"byol", "dividemix", "imix", "moco", "sane", "simclr", "sop_plus"}
    assert {name for name, one in built.items() if one.num_views == 2} == views
    assert all(one.num_views == 1 for name, one in built.items() if name not in views)
    assert {name for name, one in built.items() if one.plans} == {
        "auto", "backward", "byol", "co_teaching_plus", "cores", "crust", "d2l", "dividemix", "dmi", "elr_plus",
        "forward", "incv", "joint", "mentornet", "pes", "sane", "self_adaptive", "t_revision",
    }  # fmt: skip
    for name in ("cores", "dividemix", "dmi", "pes"):  # only where the warm-up is theirs to choose
        assert not build(f"{name}(warmup=2)").plans
    assert not build("co_teaching_plus(agree=2)").plans
    assert [build(f"self_adaptive({one})").plans for one in ("warmup=2", "alpha=0.9", "warmup=2, alpha=0.9")] == [
        True, True, False,
    ]  # fmt: skip
    assert not build("sop(lr_u=1.0, lr_v=1.0)").plans
    assert build("sop(lr_u=1.0, lr_v='auto')").plans
    assert [name for name, one in built.items() if one.looks_up_labels] == ["left_out"]
    assert not any(one.labels_change for one in built.values())
    assert all(part.labels_change for part in build("label_noise(elr)").modules() if part.__class__ is ELR)


@pytest.mark.parametrize("epoch", [0, 12])
@pytest.mark.parametrize("name", [name for name in NAMES if make(name).num_views == 1] + ["dividemix"])
def test_of_more_views_than_it_asked_for_a_method_takes_the_first(
    name: str, epoch: int, make_run: Callable[..., Run]
) -> None:
    """As where a wrapper trains plainly what takes two views. In its warm-up dividemix does, too."""
    if name == "dividemix" and epoch:
        return
    method = make(name)
    run = make_run(num_models=method.num_models, epochs=20, epoch=epoch)
    method.start(run)
    everyone, losses = torch.arange(12), []
    x, state, fresh = run.data.take(everyone), run.generator.get_state(), copy.deepcopy(method)
    for one, other in ((method, x), (fresh, x.flip(0))):  # a shift would be lost in batch norm
        run.generator.set_state(state)
        losses.append(one.loss(run, Batch((x, other), run.data.labels, everyone)))
    torch.testing.assert_close(losses[0], losses[1])


def test_what_is_found_is_found_again() -> None:
    """Not what the modules import from each other, nor what has no name; without what was found before."""
    again = methods._discover.__wrapped__()
    assert again == methods._discover()
    assert [name for name, _ in again] == sorted(DEFAULTS)
    assert all(cls.__module__.startswith("noiseproof.methods.") for _, cls in again)

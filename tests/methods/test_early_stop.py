"""EarlyStop: when it stops, what it keeps, what it gives back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from noiseproof.errors import InputError
from noiseproof.method import Method, Run
from noiseproof.methods.cross_entropy import CrossEntropy
from noiseproof.methods.early_stop import EarlyStop
from noiseproof.methods.elr import ELR

Train = Callable[..., list[float]]


def epochs(method: Method, run: Run, train: Train, metric: str, values: list[float]) -> list[tuple[bool, dict]]:
    """Train an epoch per value, which the metric then reads; the answers of `stop`, and copies of the models."""
    seen = []
    for value in values:
        train(method, run, 1)
        run.history.append({"epoch": run.epoch, metric: value})
        weights = {key: tensor.clone() for key, tensor in run.models.state_dict().items()}
        seen.append((method.stop(run), weights))
    return seen


def same(one: dict, two: dict) -> bool:
    return one.keys() == two.keys() and all(torch.equal(one[key], two[key]) for key in one)


@pytest.mark.parametrize(
    ("metric", "values", "best", "stops"),
    [
        ("val_accuracy", [0.3, 0.6, 0.5, 0.6], 2, [False, False, False, True]),
        ("val_loss", [3.0, 1.0, 0.5, 0.7, 0.6], 3, [False, False, False, False, True]),
        ("val_accuracy", [0.9, 0.1, 0.2], 1, [False, False, True]),
        ("val_accuracy", [float("nan"), 0.1, 0.2], 3, [False, False, False]),
    ],
)
def test_returns_to_the_best_epoch(
    metric: str, values: list[float], best: int, stops: list[bool], make_run: Callable[..., Run], train: Train
) -> None:
    run, method = make_run(), EarlyStop(CrossEntropy(), patience=2, metric=metric)
    method.start(run)
    seen = epochs(method, run, train, metric, values)
    assert [stop for stop, _ in seen] == stops
    assert int(method.best_epoch) == best
    assert float(method.best_value) == pytest.approx(values[best - 1])
    method.finish(run)
    assert same(dict(run.models.state_dict()), seen[best - 1][1])  # the BatchNorm statistics are among them


def test_never_measured_means_nothing_to_return_to(make_run: Callable[..., Run], train: Train) -> None:
    run, method = make_run(), EarlyStop(CrossEntropy(), patience=2)
    method.start(run)
    seen = epochs(method, run, train, "val_accuracy", [float("nan")] * 2)
    assert [stop for stop, _ in seen] == [False, True]
    method.finish(run)
    assert same(dict(run.models.state_dict()), seen[-1][1])


def test_beliefs_return_with_the_weights(make_run: Callable[..., Run], train: Train) -> None:
    run, method = make_run(), EarlyStop(ELR(), patience=3)
    method.start(run)
    epochs(method, run, train, "val_accuracy", [0.5])
    predicted = torch.full((len(run.data), run.num_classes), 1 / run.num_classes)
    then = method.beliefs(run, predicted)
    epochs(method, run, train, "val_accuracy", [0.4, 0.3])
    assert not torch.equal(method.beliefs(run, predicted).suspicion, then.suspicion)  # type: ignore[union-attr]
    method.finish(run)
    assert torch.equal(method.beliefs(run, predicted).suspicion, then.suspicion)  # type: ignore[union-attr]


def test_a_resumed_run_returns_to_the_same_weights(make_run: Callable[..., Run], train: Train) -> None:
    run, method = make_run(), EarlyStop(ELR(), patience=3)
    method.start(run)
    epochs(method, run, train, "val_accuracy", [0.5, 0.4])
    resumed_run, resumed = make_run(), EarlyStop(ELR(), patience=3)
    resumed.start(resumed_run)
    resumed.load_state_dict(method.state_dict())
    resumed.finish(resumed_run)
    method.finish(run)
    assert same(dict(run.models.state_dict()), dict(resumed_run.models.state_dict()))
    assert not any(key.count(".") > 1 for key in method.state_dict())


def test_keys_that_look_alike_stay_apart(make_run: Callable[..., Run]) -> None:
    run = make_run()
    run.models.append(nn.Module())
    run.models[1].add_module("a/b", nn.Linear(1, 1))
    run.models[1].add_module("a", nn.Module())
    run.models[1].a.add_module("b", nn.Linear(1, 1))
    method = EarlyStop(CrossEntropy())
    method.start(run)
    assert len(dict(method.best_models.named_buffers())) == len(run.models.state_dict())


def test_inner_may_stop_too(make_run: Callable[..., Run]) -> None:
    class Impatient(CrossEntropy):
        def stop(self, run: Run) -> bool:
            return True

    run, method = make_run(epoch=1, history=[{"val_accuracy": 0.5}]), EarlyStop(Impatient())
    method.start(run)
    assert method.stop(run)
    assert int(method.best_epoch) == 1


@pytest.mark.parametrize(
    ("options", "record", "says"),
    [
        ({"metric": "val_acc"}, {"val_accuracy": 0.5}, "unknown metric 'val_acc'; did you mean 'val_accuracy'"),
        ({"metric": "lose"}, {"loss": 0.5}, "unknown metric 'lose'; did you mean 'loss'"),
    ],
)
def test_missing_metric(options: dict[str, Any], record: dict, says: str, make_run: Callable[..., Run]) -> None:
    run, method = make_run(epoch=1, history=[record]), EarlyStop(CrossEntropy(), **options)
    method.start(run)
    with pytest.raises(InputError, match=says):
        method.stop(run)


def test_needs_a_validation_split(make_run: Callable[..., Run]) -> None:
    with pytest.raises(InputError, match=r"early_stop needs a validation split: pass val=... or --val 0\.1"):
        EarlyStop(CrossEntropy()).start(make_run(val=None))
    EarlyStop(CrossEntropy(), metric="loss").start(make_run(val=None))


@pytest.mark.parametrize(
    ("inner", "options", "says"),
    [
        ("elr", {}, "early_stop wraps a method, got 'elr'"),
        (CrossEntropy(), {"patience": 0}, "patience must be an integer of at least 1, got 0"),
        (CrossEntropy(), {"metric": ""}, "metric must name"),
        (CrossEntropy(), {"metric": "test_accuracy"}, "not of the test set"),
    ],
)
def test_bad_options(inner: Any, options: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        EarlyStop(inner, **options)

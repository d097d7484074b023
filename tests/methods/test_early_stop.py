"""EarlyStop: when it stops, what it keeps, what it gives back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from noiseproof.errors import InputError
from noiseproof.method import Method, Run
from noiseproof.methods import build, stopping
from noiseproof.methods.cross_entropy import CrossEntropy
from noiseproof.methods.early_stop import EarlyStop
from noiseproof.methods.elr import ELR

Train = Callable[..., list[float]]
Seen = list[tuple[bool, dict]]


def epochs(method: Method, run: Run, train: Train, values: list[float], key: str = "val_accuracy") -> Seen:
    """Train an epoch per value, which the history then has; the answers of `stop`, and copies of the models."""
    seen = []
    for value in values:
        train(method, run, 1)
        run.history.append({"epoch": run.epoch, key: value})
        weights = {name: tensor.clone() for name, tensor in run.models.state_dict().items()}
        seen.append((method.stop(run), weights))
    return seen


def same(one: dict, two: dict) -> bool:
    return one.keys() == two.keys() and all(torch.equal(one[key], two[key]) for key in one)


def held_out(inner: Method, patience: int = 3) -> EarlyStop:
    return EarlyStop(inner, criterion="val_accuracy", patience=patience)


class Late(stopping.Peak):
    """Scores read from the history, of two epochs ago."""

    name = "late"
    lag = 2

    def score(self, run: Run) -> float:
        return run.history[-3]["val_accuracy"] if run.epoch > 2 else float("nan")


@pytest.mark.parametrize(
    ("key", "values", "best", "stops"),
    [
        ("val_accuracy", [0.3, 0.6, 0.5, 0.6], 2, [False, False, False, True]),
        ("val_loss", [3.0, 1.0, 0.5, 0.7, 0.6], 3, [False, False, False, False, True]),
        ("val_accuracy", [0.9, 0.1, 0.2], 1, [False, False, True]),
        ("val_accuracy", [float("nan"), 0.1, 0.2], 3, [False, False, False]),
    ],
)
def test_returns_to_the_best_epoch(
    key: str, values: list[float], best: int, stops: list[bool], make_run: Callable[..., Run], train: Train
) -> None:
    run, method = make_run(), EarlyStop(CrossEntropy(), criterion=key, patience=2)
    method.start(run)
    seen = epochs(method, run, train, values, key)
    assert [stop for stop, _ in seen] == stops
    assert int(method.best_epoch) == best
    method.finish(run)
    assert same(dict(run.models.state_dict()), seen[best - 1][1])  # the BatchNorm statistics are among them


@pytest.mark.parametrize(
    ("values", "best", "after"),
    [
        ([0.3, 0.6, 0.5, 0.6, 0.1, 0.1, 0.1], 2, 6),
        ([0.9, 0.1, 0.2, 0.3, 0.4], 1, 5),
        ([0.1, 0.2, 0.3, 0.4, 0.5, 0.6], 4, None),  # the last two were never judged
        ([0.1, 0.5, 0.2, 0.6, 0.1, 0.7, 0.2, 0.1, 0.1, 0.1], 6, 10),
    ],
)
def test_a_verdict_that_comes_late_still_finds_the_weights(
    values: list[float], best: int, after: int | None, make_run: Callable[..., Run], train: Train
) -> None:
    run, method = make_run(), EarlyStop(CrossEntropy(), criterion=Late(), patience=2)
    method.start(run)
    seen = epochs(method, run, train, values[:after])
    assert [stop for stop, _ in seen] == [False] * (len(seen) - 1) + [after is not None]
    assert int(method.best_epoch) == best
    assert len(method.snapshots.slots) == 3
    method.finish(run)
    assert same(dict(run.models.state_dict()), seen[best - 1][1])


def test_never_measured_means_nothing_to_return_to(make_run: Callable[..., Run], train: Train) -> None:
    run, method = make_run(), held_out(CrossEntropy(), patience=2)
    method.start(run)
    seen = epochs(method, run, train, [float("nan")] * 3)
    assert [stop for stop, _ in seen] == [False, False, True]
    method.finish(run)
    assert same(dict(run.models.state_dict()), seen[-1][1])


def test_beliefs_return_with_the_weights(make_run: Callable[..., Run], train: Train) -> None:
    run, method = make_run(), held_out(ELR())
    method.start(run)
    epochs(method, run, train, [0.5])
    predicted = torch.full((len(run.data), run.num_classes), 1 / run.num_classes)
    then = method.beliefs(run, predicted)
    epochs(method, run, train, [0.4, 0.3])
    assert not torch.equal(method.beliefs(run, predicted).suspicion, then.suspicion)  # type: ignore[union-attr]
    method.finish(run)
    assert torch.equal(method.beliefs(run, predicted).suspicion, then.suspicion)  # type: ignore[union-attr]


@pytest.mark.parametrize("criterion", ["val_accuracy", Late])
def test_a_resumed_run_returns_to_the_same_weights(criterion: Any, make_run: Callable[..., Run], train: Train) -> None:
    def fresh() -> tuple[Run, EarlyStop]:
        run = make_run()
        method = EarlyStop(ELR(), criterion=criterion if isinstance(criterion, str) else criterion(), patience=3)
        method.start(run)
        return run, method

    run, method = fresh()
    epochs(method, run, train, [0.5, 0.4, 0.3, 0.2])
    resumed_run, resumed = fresh()
    resumed.load_state_dict(method.state_dict())
    resumed.finish(resumed_run)
    method.finish(run)
    assert int(method.best_epoch) == 1
    assert same(dict(run.models.state_dict()), dict(resumed_run.models.state_dict()))


def test_an_object_may_be_started_again(make_run: Callable[..., Run], train: Train) -> None:
    method = held_out(CrossEntropy(), patience=1)
    for _ in range(2):
        run = make_run()
        method.start(run)
        assert [stop for stop, _ in epochs(method, run, train, [0.5, 0.4])] == [False, True]


def test_keys_that_look_alike_stay_apart(make_run: Callable[..., Run]) -> None:
    run = make_run()
    run.models.append(nn.Module())
    run.models[1].add_module("a/b", nn.Linear(1, 1))
    run.models[1].add_module("a", nn.Module())
    run.models[1].a.add_module("b", nn.Linear(1, 1))
    method = EarlyStop(CrossEntropy())
    method.start(run)
    assert len(dict(method.snapshots.slots[0].named_buffers())) == len(run.models.state_dict())


def test_inner_may_stop_too(make_run: Callable[..., Run]) -> None:
    class Impatient(CrossEntropy):
        def stop(self, run: Run) -> bool:
            return True

    run, method = make_run(epoch=1, history=[{"val_accuracy": 0.5}]), held_out(Impatient())
    method.start(run)
    assert method.stop(run)
    assert int(method.best_epoch) == 1


@pytest.mark.parametrize("criterion", stopping.CRITERIA)
def test_every_criterion_can_be_written_down(criterion: str) -> None:
    text = f"early_stop(ce, criterion='{criterion}{'(2)' if criterion == 'distance' else ''}', patience=3)"
    method = build(text)
    assert build(method.describe()).describe() == method.describe()
    assert build("early_stop(ce, criterion='Distance(0.8, relative=False)')").describe() == (
        "early_stop(ce(), criterion='distance(radius=0.8, relative=False)', patience=5)"
    )


@pytest.mark.parametrize(
    ("inner", "options", "says"),
    [
        ("elr", {}, "early_stop wraps a method, got 'elr'"),
        (CrossEntropy(), {"patience": 0}, "patience must be a whole number, 1 or more, got 0"),
        (CrossEntropy(), {"criterion": "agrement"}, "unknown criterion 'agrement'; did you mean 'agreement'"),
        (CrossEntropy(), {"criterion": "test_accuracy"}, "unknown criterion 'test_accuracy'"),
        (CrossEntropy(), {"criterion": "distance"}, "criterion 'distance': missing a required argument: 'radius'"),
        (CrossEntropy(), {"criterion": "distance(0)"}, r"radius must be a number above 0, got 0"),
        (CrossEntropy(), {"criterion": "knee(share=2)"}, r"share must be a number in \(0, 1\), got 2"),
        (CrossEntropy(), {"criterion": 3}, "criterion must be a Criterion or text such as"),
    ],
)
def test_bad_options(inner: Any, options: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        EarlyStop(inner, **options)

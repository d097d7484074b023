"""Schedules against their formulas."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noiseproof.errors import InputError
from noiseproof.schedules import Clock, Schedule, anneal_at, anneal_on_loss, constant, cosine, multi_step, of, parse


@given(epoch=st.floats(0, 100), loss=st.floats(0, 10))
def test_values(epoch, loss):
    clock = Clock(epoch, 100, loss)
    assert constant()(clock) == 1
    assert cosine()(clock) == pytest.approx((1 + math.cos(math.pi * epoch / 100)) / 2)
    assert cosine(final=0.1)(clock) >= 0.1 - 1e-12
    assert multi_step([40, 80], gamma=0.5)(clock) == 0.5 ** ((epoch >= 40) + (epoch >= 80))
    assert anneal_on_loss(0.5, factor=0.2)(clock) == (0.2 if loss <= 0.5 else 1.0)
    assert anneal_at(0.3, factor=0.2)(clock) == (0.2 if epoch / 100 >= 0.3 else 1.0)


def test_warmup_rises_from_above_zero():
    factors = [cosine(warmup=5)(Clock(epoch, 100)) for epoch in range(6)]
    assert factors == sorted(factors)
    assert factors[0] > 0
    assert factors[-1] == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize("epochs", [10, 30, 70, 130, 256])
@pytest.mark.parametrize("tenth", range(1, 10))
def test_a_share_of_the_run_is_reached_to_the_epoch(epochs, tenth):
    epoch = epochs * tenth / 10
    schedule = anneal_at(tenth / 10)
    assert schedule.drops(Clock(epoch, epochs)) == 1
    assert schedule.drops(Clock(epoch - 1e-6, epochs)) == 0


@given(losses=st.lists(st.floats(-2, 3), min_size=1, max_size=30), threshold=st.floats(-1, 2))
def test_a_loss_triggers_one_drop_and_one_end_whatever_it_does_later(losses, threshold):
    schedule = anneal_on_loss(threshold, stop=threshold - 0.5)
    lowest, drops, ended = math.inf, [], []
    for epoch, loss in enumerate(losses):
        lowest = min(lowest, loss)
        clock = Clock(epoch, 100, lowest)
        drops.append(schedule.drops(clock))
        ended.append(schedule.ended(clock))
        assert schedule(clock) == pytest.approx(0.1 ** drops[-1])
    first = next((i for i, loss in enumerate(losses) if loss <= threshold), len(losses))
    assert drops == [0] * first + [1] * (len(losses) - first)
    assert ended == [min(losses[: i + 1]) <= threshold - 0.5 for i in range(len(losses))]
    assert not any(ended[:first])


def test_which_schedules_look_at_the_loss():
    assert [parse(text).loss for text in ("constant", "cosine", "multi_step([3])", "anneal_at(0.1)")] == [None] * 4
    assert [anneal_on_loss(1, loss=loss).loss for loss in ("running", "epoch", "full")] == ["running", "epoch", "full"]
    function = of(lambda clock: 0.5 if clock.lowest_loss < 1 else 1.0)
    assert isinstance(function, Schedule)
    assert (function.loss, function(Clock(0, 1, 0.9))) == ("epoch", 0.5)
    assert of(function) is function


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("anneal_at(1.0)", r"share of a schedule must be a number in \[0, 1\)"),
        ("anneal_at(0.5, factor=-1)", r"factor of a schedule must be a number, 0 or more"),
        ("anneal_on_loss(0.5, stop=0.5)", "stop must lie below the threshold"),
        ("anneal_on_loss(0.5, loss='fulll')", "did you mean 'full'"),
        ("anneal_on_loss(0.5, memory=0)", r"memory of a schedule must be a number above 0"),
        ("anneal_on_loss", "missing a required argument: 'threshold'"),
    ],
)
def test_refuses(text, says):
    with pytest.raises(InputError, match=says):
        parse(text)


def test_text():
    assert parse("multi-step([40, 80], gamma=0.1)")(Clock(50, 100)) == pytest.approx(0.1)

"""Schedules against their formulas."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noiseproof.schedule import Clock, anneal_on_loss, constant, cosine, multi_step, parse


@given(epoch=st.floats(0, 100), loss=st.floats(0, 10))
def test_values(epoch, loss):
    clock = Clock(epoch, 100, loss)
    assert constant()(clock) == 1
    assert cosine()(clock) == pytest.approx((1 + math.cos(math.pi * epoch / 100)) / 2)
    assert cosine(final=0.1)(clock) >= 0.1 - 1e-12
    assert multi_step([40, 80], gamma=0.5)(clock) == 0.5 ** ((epoch >= 40) + (epoch >= 80))
    assert anneal_on_loss(0.5, factor=0.2)(clock) == (0.2 if loss <= 0.5 else 1.0)


def test_warmup_rises_from_above_zero():
    factors = [cosine(warmup=5)(Clock(epoch, 100)) for epoch in range(6)]
    assert factors == sorted(factors)
    assert factors[0] > 0
    assert factors[-1] == pytest.approx(1, abs=1e-3)


def test_text():
    assert parse("multi-step([40, 80], gamma=0.1)")(Clock(50, 100)) == pytest.approx(0.1)

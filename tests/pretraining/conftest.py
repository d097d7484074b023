"""Digits as images, and short runs of pre-training on them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from noiseproof.data import LabeledData, load
from noiseproof.pretraining import PretrainResult, pretrain


@pytest.fixture(scope="session")
def pictures() -> tuple[LabeledData, LabeledData]:
    """120 digits to train on, and 100 others."""
    digits = load("digits")
    rest, train = digits.split(120 / len(digits), seed=0)
    return train, rest.split(100 / len(rest), seed=1)[1]


@pytest.fixture
def run(pictures: tuple[LabeledData, LabeledData]) -> Callable[..., PretrainResult]:
    """`run("sane", epochs=3, …)`: pre-train a small network."""

    def _run(method: Any, **options: Any) -> PretrainResult:
        settings = {"epochs": 2, "batch_size": 32, "lr": 0.05, "augment": "weak", "dim": 16, "seed": 3, "device": "cpu"}
        settings["test"] = pictures[1]
        model = options.pop("model", "mlp(widths=[32], batch_norm=True)")
        return pretrain(model, pictures[0], method, **(settings | options))

    return _run

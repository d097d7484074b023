"""Digits as images, and short runs of pre-training on them."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from test_contract import KillAt, Killed, assert_same, without_times

from noiseproof.data import LabeledData, load
from noiseproof.pretraining import PretrainResult, pretrain
from noiseproof.runs import checkpoint
from noiseproof.runs.folder import CHECKPOINT


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


@pytest.fixture
def killed_and_resumed(
    run: Callable[..., PretrainResult], tmp_path: Path
) -> Callable[[str], tuple[PretrainResult, PretrainResult]]:
    """`killed_and_resumed("sane")`: a whole run, and one killed at a random step and resumed; to the same bits."""

    def both(method: str) -> tuple[PretrainResult, PretrainResult]:
        whole = run(method, out=tmp_path / "whole")
        options = {"out": tmp_path / "killed", "checkpoint_steps": 2}
        with pytest.raises(Killed):
            run(method, progress=KillAt(random.Random(method).randrange(1, whole.run.step)), **options)
        resumed = run(method, resume=True, **options)
        assert without_times(resumed.history) == without_times(whole.history)
        assert_same(*(checkpoint.load(tmp_path / name / CHECKPOINT) for name in ("whole", "killed")))
        return whole, resumed

    return both

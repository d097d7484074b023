"""Runs without evaluation, and without the report that takes most of their time: the loop and its folder alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from noiseproof.data import LabeledData
from noiseproof.method import Run
from noiseproof.methods import build
from noiseproof.training import setup
from noiseproof.training.settings import Fitting


def train(data: LabeledData, out: Path, **options: Any) -> Run:
    """Begin a run in a folder, or resume it, and end it."""
    settings = {"epochs": 3, "batch_size": 64, "seed": 3, "device": "cpu", "checkpoint_steps": 2}
    call = Fitting("mlp(widths=[8])", data, "elr", out=out, **(settings | options))
    parts, method = setup.Setup(call), build(call.method)
    with parts.running():
        run = parts.run(setup.build_models(call.model, method.num_models, data, parts.device), data)
        loop = parts.loop(run, method, (None,), lambda run: {})
        loop.open(parts.describe(call.model, run, method, augment="none", val=None, test=None, init=None))
        loop.train()
    return run

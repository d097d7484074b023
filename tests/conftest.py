"""Small real data for the tests: 300 of scikit-learn's digits with 40 % wrong labels."""

from __future__ import annotations

import pytest
import torch

from noiseproof.data import LabeledData, load, noise


@pytest.fixture(scope="session", autouse=True)
def _one_thread():
    """The machine that runs the tests should not decide how sums are ordered."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def digits() -> tuple[LabeledData, LabeledData]:
    """(noisy training set, clean test set)."""
    train, test = load("digits").split(0.8, seed=0)
    train, _ = train.split(0.1, seed=1)
    return noise.apply(train, "symmetric:0.4", seed=0), test.split(0.8, seed=0)[0]

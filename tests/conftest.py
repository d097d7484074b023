"""Small real data for the tests: 300 of scikit-learn's digits with 40 % wrong labels; and the command line."""

from __future__ import annotations

import base64
import os
import sys

import pytest
import torch

from noiseproof import cli
from noiseproof.data import LabeledData, load, noise


@pytest.fixture(scope="session", autouse=True)
def _one_thread():
    """The machine that runs the tests should not decide how sums are ordered."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory):
    """Features of images are kept; not those of tests."""
    os.environ["NOISEPROOF_CACHE"] = str(tmp_path_factory.mktemp("cache"))


PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg=="  # a PNG


@pytest.fixture(autouse=True)
def _small_pictures(request, monkeypatch):
    """The picture of a run is a pixel: drawing it takes longer than the runs of most tests. `pictures`: it is drawn."""

    def pixel(history, losses, wrong, path, **words):
        path.write_bytes(base64.b64decode(PIXEL))

    if "pictures" not in request.keywords:
        monkeypatch.setattr("noiseproof.runs.plots.plot_run", pixel)


@pytest.fixture(scope="session")
def digits() -> tuple[LabeledData, LabeledData]:
    """(noisy training set, clean test set)."""
    train, test = load("digits").split(0.8, seed=0)
    train, _ = train.split(0.1, seed=1)
    return noise.apply(train, "symmetric:0.4", seed=0), test.split(0.8, seed=0)[0]


@pytest.fixture
def command(monkeypatch, capsys, tmp_path):
    """Run the command line in an empty folder; gives (exit code, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["noiseproof", *map(str, arguments)])
        code = 0
        try:
            cli.main()
        except SystemExit as stop:
            code = int(stop.code or 0)
        output = capsys.readouterr()
        return code, output.out, output.err

    return call

"""Run folders that a bad disk or a careless hand has changed: each still works, or is refused in one sentence.

Files are mutated as bytes, and checkpoints as states too, saved again with a checksum that holds. The address space is
limited meanwhile: a size that a damaged file declares must not be allocated.
"""

from __future__ import annotations

import random
import resource
import shutil
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from fuzz.mutations import mutants
from runs.light import train
from test_contract import KillAt, Killed
from torch import Tensor

from noiseproof.errors import InputError
from noiseproof.runs import checkpoint
from noiseproof.runs.folder import CHECKPOINT, CONFIG, INITIAL, PREVIOUS
from noiseproof.runs.loading import load_backbone, load_model
from noiseproof.training.fit import fit

ODD = (None, True, -1, 0, 2**40, 10**30, 1.5, float("nan"), "", "text", [], {}, [[1]], {"a": 1}, torch.zeros(0))
MORE = 2 << 30  # bytes of address space, beyond what is in use


@pytest.fixture(scope="module", autouse=True)
def _little_memory() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MORE, hard))
    yield
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@pytest.fixture(scope="module")
def folders(digits, tmp_path_factory) -> tuple[Path, Path]:
    """A finished run, and one that was killed a few steps before its end."""
    finished, killed = tmp_path_factory.mktemp("finished"), tmp_path_factory.mktemp("killed")
    fit("mlp(widths=[4])", digits[0], "ce", epochs=1, out=finished, device="cpu")
    with pytest.raises(Killed):
        train(digits[0], killed, epochs=2, progress=KillAt(9))
    return finished, killed


def predict(folder: Path) -> None:
    load_model(folder).predict(torch.zeros(2, 1, 8, 8, dtype=torch.uint8))
    load_backbone(folder)


def held(use: Callable[[Path], object], folder: Path) -> bool:
    """Whether the folder could be used; it may be refused too, but in no other way."""
    said = ""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # that the checkpoint before was taken
            use(folder)
    except InputError as error:
        said = str(error)
    assert "\n" not in said
    return not said


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every dict or list inside a state, with each of its keys."""
    for key, one in list(value.items() if isinstance(value, dict) else enumerate(value)):
        yield value, key
        if isinstance(one, dict | list):
            yield from places(one)


def tampered(path: Path, rng: random.Random) -> None:
    """Save a checkpoint again, with something in its state taken out, added or replaced."""
    state = checkpoint.load(path)
    container, key = rng.choice(list(places(state)))
    value, how = container[key], rng.randrange(4)
    if how == 0:
        del container[key]
    elif how == 1 and isinstance(value, Tensor):
        others = (value[None], value.flatten()[:1], value.to(torch.float16), value.to(torch.int64), value.sum())
        container[key] = rng.choice(others)
    elif how == 2 and isinstance(container, dict):
        container[rng.choice(("more", 7))] = value
    else:
        container[key] = rng.choice(ODD)
    checkpoint.save(path, state)


def fuzz(folder: Path, tmp_path: Path, name: str, count: int, use: Callable[[Path], object]) -> int:
    """Mutate a file in copies of a folder, as bytes and (a checkpoint) as a state; how many of these were refused."""
    refused, rng = 0, random.Random(count)
    for number, content in enumerate(mutants((folder / name).read_bytes(), count, seed=len(name))):
        copy = tmp_path / f"{number}"
        shutil.copytree(folder, copy)
        if number % 2 and name != PREVIOUS:
            (copy / PREVIOUS).unlink(missing_ok=True)
        if number % 4 < 2 or name == CONFIG:
            (copy / name).write_bytes(content)
        else:
            tampered(copy / name, rng)
        refused += not held(use, copy)
        shutil.rmtree(copy)
    return refused


@pytest.mark.parametrize("count", [24, pytest.param(2000, marks=pytest.mark.slow)])
def test_trained_models(folders, tmp_path, count):
    assert fuzz(folders[0], tmp_path, "model.safetensors", count, predict) >= count / 2


@pytest.mark.parametrize("count", [24, pytest.param(1000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", [CHECKPOINT, PREVIOUS, INITIAL, CONFIG])
def test_runs_to_resume(digits, folders, tmp_path, name, count):
    refused = fuzz(folders[1], tmp_path, name, count, lambda folder: train(digits[0], folder, epochs=2, resume=True))
    assert (refused > 0) == (name != PREVIOUS)  # which nobody looks at while the newest is whole


@pytest.mark.parametrize("count", [12, pytest.param(300, marks=pytest.mark.slow)])
def test_the_command_line(command, tmp_path, count):
    """Its remembered options are what it reads the data by."""
    model = ["--model", "mlp(widths=[4])", "--method", "ce"]
    assert command("fit", "digits", "--out", "run", "--epochs", "1", "--limit", "64", "--quiet", *model)[0] == 0
    config = (tmp_path / "run" / CONFIG).read_bytes()
    for content in mutants(config, count, seed=1):
        (tmp_path / "run" / CONFIG).write_bytes(content)
        code, _, err = command("fit", "--out", "run", "--resume", "--quiet")
        assert code in (0, 2)
        assert code == 0 or (err.startswith("error: ") and err.count("\n") == 1), err

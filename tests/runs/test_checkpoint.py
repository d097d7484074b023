"""Saving is atomic, loading is safe, and nothing is lost on the way."""

from __future__ import annotations

import errno

import pytest
import torch
from safetensors.torch import save_file

from noiseproof.errors import InputError
from noiseproof.runs import checkpoint


def test_round_trip_of_a_nested_state(tmp_path):
    shared = torch.arange(6.0).reshape(2, 3)
    state = {
        "a": shared, "tied": shared, "transposed": shared.T, "bits": torch.tensor([True, False]),
        "empty": torch.zeros(0),
        "half": torch.ones(2, dtype=torch.bfloat16), "list": [1, 2.5, "text", None, True, {"deep": shared[0]}],
        "state": {0: {"step": 3}, 1: {"step": torch.tensor(4)}}, "inf": float("inf"),
    }  # fmt: skip
    checkpoint.save(tmp_path / "c.safetensors", state)
    loaded = checkpoint.load(tmp_path / "c.safetensors")
    assert loaded.keys() == state.keys()
    for key in ("a", "tied", "transposed", "bits", "empty", "half"):
        assert loaded[key].dtype == state[key].dtype
        assert torch.equal(loaded[key], state[key])
    assert loaded["list"][:5] == state["list"][:5]
    assert loaded["state"][0] == {"step": 3}
    assert loaded["inf"] == float("inf")


def test_refuses_what_it_cannot_hold(tmp_path):
    with pytest.raises(TypeError, match="'/a' is a object"):
        checkpoint.save(tmp_path / "c.safetensors", {"a": object()})
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_damages_nothing(tmp_path, monkeypatch):
    path = tmp_path / "c.safetensors"
    checkpoint.save(path, {"epoch": 1})

    def full(*args, **kwargs):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(InputError, match="No space left on device"):
        checkpoint.save(path, {"epoch": 2})
    assert checkpoint.load(path) == {"epoch": 1}
    assert [file.name for file in tmp_path.iterdir()] == ["c.safetensors"]


@pytest.mark.parametrize("length", [0, 1, 7, 8, 40, 100])
def test_a_truncated_file_is_refused(tmp_path, length):
    path = tmp_path / "c.safetensors"
    checkpoint.save(path, {"weights": torch.ones(100)})
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(InputError, match="damaged or no checkpoint"):
        checkpoint.load(path)


def test_a_strange_file_is_refused(tmp_path):
    save_file({"a": torch.ones(1)}, tmp_path / "other.safetensors")
    with pytest.raises(InputError, match="not a noiseproof checkpoint"):
        checkpoint.load(tmp_path / "other.safetensors")
    with pytest.raises(InputError, match="there is no checkpoint"):
        checkpoint.load(tmp_path / "none.safetensors")

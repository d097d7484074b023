"""An epoch by pieces of files: every example once, mixed, of a process's own files; to the same bits again."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from test_replicas import together
from test_sampled_normalization import Kill, Killed

import noiseproof as nf
from noiseproof import distributed
from noiseproof.data.readers.shards import Members
from noiseproof.errors import InputError
from noiseproof.training.shuffling import MIXED, STRETCH, by_pieces, step_sizes

FILES, EACH = 40, 333


def places() -> np.ndarray:
    """Examples of files, a thousand bytes each, in no order."""
    every = np.array([(file, 1000 * place) for file in range(FILES) for place in range(EACH)])
    return np.random.default_rng(0).permutation(every)


def drawn(seed: int, size: int = 100) -> torch.Tensor:
    return by_pieces(places(), size, torch.Generator().manual_seed(seed))


def test_every_example_once_and_mixed_over_files() -> None:
    order = drawn(0)
    assert torch.equal(order.sort().values, torch.arange(FILES * EACH))
    assert torch.equal(order, drawn(0))
    assert not torch.equal(order, drawn(1))
    file = places()[order.numpy(), 0]
    in_batches = [len(set(batch)) for batch in np.split(file[:13_300], 133)]
    assert min(in_batches[:-10]) >= 20  # of 40 files in a batch of 100; the last ones mix what is left
    window = places()[order.numpy()[: STRETCH * MIXED]]  # read together: long stretches
    lying = window[np.lexsort((window[:, 1], window[:, 0]))]
    jumps = ((np.diff(lying[:, 0]) != 0) | (np.diff(lying[:, 1]) != 1000)).sum()
    assert jumps <= 1.5 * MIXED


def test_processes_read_files_of_their_own(tmp_path: Path) -> None:
    def work(folder: Path) -> Any:
        order = distributed.from_main(lambda: drawn(3))
        own = []
        for piece in order.split(step_sizes(len(order), 100)):
            own.append(piece[distributed.own_part(distributed.sizes_of(len(piece)))])
        return sorted(set(places()[torch.cat(own).numpy(), 0].tolist()))

    first, second, third = map(set, together(work, tmp_path, world=3))
    assert first | second | third == set(range(FILES))
    assert len(first) + len(second) + len(third) <= FILES + 2


def shards(folder: Path) -> Path:
    rng = np.random.default_rng(0)
    for number in range(3):
        with tarfile.open(folder / f"train-{number}.tar", "w") as tar:
            for i in range(30):
                image = io.BytesIO()
                Image.fromarray(rng.integers(256, size=(8, 8, 3), dtype=np.uint8)).save(image, "png")
                for kind, content in (("png", image.getvalue()), ("cls", str(number).encode())):
                    info = tarfile.TarInfo(f"{i:06}.{kind}")
                    info.size = len(content)
                    tar.addfile(info, io.BytesIO(content))
    return folder


@pytest.mark.parametrize("method", ["elr", "crust(ce)"])
def test_killed_within_an_epoch_and_resumed_to_the_same_bits(tmp_path: Path, method: str) -> None:
    data = nf.load(shards(tmp_path), memory_limit=1)
    settings: Any = {"epochs": 2, "batch_size": 16, "shuffle": "shards", "checkpoint_steps": 1, "val": 0.2, "seed": 1}
    whole = nf.fit("mlp", data, method, **settings)
    with pytest.raises(Killed):
        nf.fit("mlp", data, method, out=tmp_path / "run", progress=Kill(), **settings)
    again = nf.fit("mlp", data, method, out=tmp_path / "run", resume=True, **settings)
    for one, other in zip(whole.model.parameters(), again.model.parameters(), strict=True):
        assert one.equal(other)
    assert not torch.equal(
        next(whole.model.parameters()),
        next(nf.fit("mlp", data, method, **settings | {"shuffle": "examples"}).model.parameters()),
    )


def test_what_is_in_memory_needs_none() -> None:
    with pytest.raises(InputError, match="shuffle='shards' is for images in tar files; leave it out"):
        nf.fit("mlp", nf.load("digits"), "ce", epochs=1, shuffle="shards")


@pytest.mark.skipif(not hasattr(os, "posix_fadvise"), reason="this system takes no such advice")
def test_long_stretches_are_asked_for_before_they_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "posix_fadvise", lambda _, start, length, advice: asked.append((start, length)))
    paths = [tmp_path / "a.tar", tmp_path / "gone.tar"]
    paths[0].write_bytes(b"")
    near = [(0, 1000 * i, 600) for i in range(10)]
    far = [(0, 10**8 + 2**30 * i, 600) for i in range(10)]
    members = Members(paths, np.array([*near, *far, (1, 0, 600), (1, 1000, 600)]))
    members.fetch(np.array([3, 9, 2, 0, 1, 5, 6, 7, 8, 20, 21, 4, 10]))
    assert asked == [(0, 9600), (10**8, 600)]
    asked.clear()
    members.fetch(np.arange(10, 20))  # at random places
    assert asked == []

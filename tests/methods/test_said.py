"""What methods say of the labels: figures for the history, and beliefs."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from noiseproof.method import Run
from noiseproof.methods._selected import share_right
from noiseproof.methods.dividemix import DivideMix
from noiseproof.methods.sop import SOP

WRONG = torch.tensor([True] * 4 + [False] * 8)


def test_the_share_of_right_labels_among_the_chosen(make_run: Callable[..., Run]) -> None:
    run, chosen = make_run(), torch.tensor([True, False] * 6)
    run.data.wrong = WRONG
    assert share_right(run, chosen) == {"selected_right": pytest.approx(4 / 6)}
    assert share_right(run, torch.ones(12, dtype=torch.bool)) == share_right(run, torch.zeros(12).bool()) == {}
    run.data.wrong = None
    assert share_right(run, chosen) == {}


def test_dividemix(make_run: Callable[..., Run]) -> None:
    run, method = make_run(num_models=2, epochs=20), DivideMix(warmup=2, threshold=0.5)
    method.start(run)
    run.data.wrong = WRONG
    method.clean.copy_(torch.linspace(0, 1, 24).reshape(12, 2))
    mean = method.clean.mean(dim=1)  # above one half from the seventh on
    predicted = torch.rand(12, 3, generator=torch.Generator().manual_seed(0)).softmax(dim=1)
    run.epoch = 2  # before any w
    assert method.beliefs(run, predicted) is None
    assert method.figures(run) == {}
    run.epoch = 3
    beliefs = method.beliefs(run, predicted)
    assert beliefs is not None
    own = predicted.gather(1, run.data.labels[:, None]).squeeze(1)
    torch.testing.assert_close(beliefs.suspicion, (1 - mean + 1 - own) / 2)
    assert torch.equal(beliefs.soft_label, predicted)
    assert method.figures(run) == {"labelled": pytest.approx(6 / 12), "labelled_right": pytest.approx(1.0)}
    run.data.wrong = ~WRONG
    assert method.figures(run)["labelled_right"] == pytest.approx(0.0)


def test_sop_says_which_labels_it_explains_away(make_run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch) -> None:
    run, method = make_run(), SOP()
    method.start(run)
    explained = torch.tensor([True, True, True, False] + [True] + [False] * 7)
    monkeypatch.setattr(type(method.noise), "explained", lambda self, labels: explained)
    run.data.wrong = WRONG
    said = method.figures(run)
    assert said["explained_wrong"] == pytest.approx(3 / 4)
    assert said["explained_right"] == pytest.approx(1 / 8)
    run.data.wrong = None
    said = method.figures(run)
    assert said["explained"] == pytest.approx(4 / 12)
    assert not {"explained_wrong", "explained_right", "explained_never"} & set(said)

"""Schedules of rivals: the paper's in a run of the paper's length, and what becomes of them in a shorter one."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from noiseproof.method import Batch, Run
from noiseproof.methods.co_teaching_plus import CoTeachingPlus
from noiseproof.methods.correction import estimate_transition
from noiseproof.methods.dividemix import DivideMix
from noiseproof.methods.self_adaptive import SelfAdaptive
from noiseproof.methods.t_revision import TRevision


def whole(run: Run) -> Batch:
    everyone = torch.arange(len(run.data))
    return Batch((run.data.take(everyone),), run.data.labels, everyone)


@pytest.mark.parametrize(("epochs", "alpha"), [(400, 0.9), (200, 0.9), (100, 0.81), (40, 0.9**5), (20, 0.5), (4, 0.5)])
def test_self_adaptive_forgets_as_much_in_a_short_run(make_run: Callable[..., Run], epochs: int, alpha: float) -> None:
    targets = []
    for method in (SelfAdaptive(), SelfAdaptive(alpha=alpha)):
        run = make_run(epochs=epochs, epoch=epochs // 2)
        method.start(run)
        method.loss(run, whole(run))
        targets.append(method.target)
    torch.testing.assert_close(targets[0], targets[1])
    given, said = run.data.labels[:, None], run.model(whole(run).views[0]).softmax(dim=1)
    lost = (1 - targets[0].gather(1, given)) / (1 - said.gather(1, given))
    torch.testing.assert_close(lost, torch.full_like(lost, 1 - alpha))


@pytest.mark.parametrize(("epochs", "expected"), [(1, 1), (9, 4), (50, 5), (120, 6), (200, 10), (300, 10), (900, 10)])
def test_dividemix_warms_up_for_ten_epochs_or_the_share_of_a_short_run(
    make_run: Callable[..., Run], epochs: int, expected: int
) -> None:
    assert DivideMix().warm_epochs(make_run(num_models=2, epochs=epochs)) == expected
    assert DivideMix(warmup=7).warm_epochs(make_run(num_models=2, epochs=epochs)) == 7


@pytest.mark.parametrize(("epochs", "expected"), [(1, 1), (6, 2), (20, 2), (50, 5), (200, 20), (400, 20)])
def test_co_teaching_plus_begins_plainly_for_a_tenth(make_run: Callable[..., Run], epochs: int, expected: int) -> None:
    assert CoTeachingPlus().plain_epochs(make_run(num_models=2, epochs=epochs)) == expected
    assert CoTeachingPlus(agree=0).plain_epochs(make_run(num_models=2, epochs=epochs)) == 0


def test_t_revision_ends_each_stage_with_its_best_epoch(make_run: Callable[..., Run]) -> None:
    """By held-out labels, the first of equals; the estimate is by the network gone back to."""
    run, method = make_run(epochs=10), TRevision(warmup=3)  # stages of 3, 4 (half of 7, rounded up) and 3 epochs
    method.start(run)
    accuracy = [0.3, 0.5, 0.4, 0.1, 0.3, 0.3, 0.2, 0.2, 0.1, 0.2]
    begun, ended = [], []
    for run.epoch in range(10):
        method.before_epoch(run)
        begun.append(run.model.head.bias.detach().clone())
        if run.epoch == 3:
            estimate, stood = method.matrix.clone(), run.predict()
        with torch.no_grad():
            run.model.head.bias.add_(torch.tensor([1.0, 0.0, 0.0]))
            method.slack.add_(1)
        ended.append((run.model.head.bias.detach().clone(), method.slack.detach().clone()))
        run.history.append({"val_accuracy": accuracy[run.epoch]})
        run.epoch += 1
        assert not method.stop(run)
    torch.testing.assert_close(begun[3], ended[1][0])  # the second epoch's
    torch.testing.assert_close(estimate, estimate_transition(stood, (1 - shares(run) / 2).clamp_min(0.97)).float())
    torch.testing.assert_close(begun[7], ended[4][0])
    assert method.finish(run) == 8
    torch.testing.assert_close(run.model.head.bias.detach(), ended[7][0])
    torch.testing.assert_close(method.slack.detach(), ended[7][1])
    for epoch in {1, 2, 4, 5, 6, 8, 9}:
        torch.testing.assert_close(begun[epoch], ended[epoch - 1][0])


def shares(run: Run) -> Tensor:
    return torch.bincount(run.data.labels, minlength=run.num_classes) / len(run.data)


def test_t_revision_goes_on_without_held_out_examples(make_run: Callable[..., Run]) -> None:
    run, method = make_run(epochs=4, val=None), TRevision(transition=0.7 * torch.eye(3) + 0.1)
    method.start(run)
    before = run.model.head.bias.detach().clone()
    for run.epoch in range(4):
        method.before_epoch(run)
        with torch.no_grad():
            run.model.head.bias.add_(1)
        assert not method.stop(run)
    assert method.finish(run) is None
    torch.testing.assert_close(run.model.head.bias.detach(), before + 4)

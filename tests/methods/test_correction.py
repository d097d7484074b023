"""Estimating the transition matrix, and when the corrections begin to use it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

from noiseproof.errors import InputError
from noiseproof.method import Batch, Run
from noiseproof.methods import _warmup
from noiseproof.methods.correction import (
    BackwardCorrection,
    Correction,
    ForwardCorrection,
    check_transition,
    estimate_transition,
    invert,
)

T = torch.tensor([[0.7, 0.2, 0.1], [0.05, 0.9, 0.05], [0.0, 0.4, 0.6]])
KINDS = [ForwardCorrection, BackwardCorrection]


def whole(run: Run) -> Batch:
    return Batch((run.data.take(torch.arange(len(run.data))),), run.data.labels, torch.arange(len(run.data)))


def test_anchors_give_the_matrix_back() -> None:
    """A perfect network on noisy labels predicts Tᵀ applied to the clean posterior; its surest examples show T."""
    clean = torch.eye(3).repeat(30, 1)
    unsure = torch.full((40, 3), 1 / 3)
    torch.testing.assert_close(estimate_transition(torch.cat([clean, unsure]) @ T, 1.0), T, atol=1e-5, rtol=0)
    torch.testing.assert_close(estimate_transition(torch.cat([clean, unsure]) @ T, 0.97), T, atol=1e-5, rtol=0)


def test_quantile_keeps_clear_of_an_outlier() -> None:
    probs = torch.cat([torch.eye(3).repeat(40, 1) @ T, torch.tensor([[0.999, 0.001, 0.0]])])
    assert estimate_transition(probs, 1.0)[0, 0] > 0.99
    torch.testing.assert_close(estimate_transition(probs, 0.97)[0], T[0], atol=1e-5, rtol=0)


def test_estimate_makes_no_label_impossible() -> None:
    transition = estimate_transition(torch.eye(3).repeat(2, 1), 1.0)
    assert (transition > 0).all()
    torch.testing.assert_close(transition.sum(dim=1), torch.ones(3))


@pytest.mark.parametrize("kind", KINDS)
def test_correction_begins_after_the_warmup(
    kind: type[Correction], make_run: Callable[..., Run], train: Callable[..., list[float]]
) -> None:
    run, method = make_run(epochs=9), kind()
    method.start(run)
    train(method, run, 4)  # half of nine epochs
    assert not method.known
    batch = whole(run)
    expected = F.cross_entropy(run.model(batch.views[0]), batch.label)
    assert torch.equal(method.loss(run, batch), expected)

    run.model[1].eval()
    method.before_epoch(run)
    assert method.known
    assert [module.training for module in run.model] == [True, False, True, True]
    torch.testing.assert_close(method.matrix.sum(dim=1), torch.ones(3))
    matrix = method.matrix.clone()
    train(method, run, 2)
    assert torch.equal(method.matrix, matrix)

    resumed = kind()
    resumed.start(run)
    resumed.load_state_dict(method.state_dict())
    assert torch.equal(resumed.loss(run, batch), method.loss(run, batch))


@pytest.mark.parametrize("kind", KINDS)
def test_given_transition_works_from_the_start(kind: type[Correction], make_run: Callable[..., Run]) -> None:
    run, method = make_run(), kind(transition=T)
    method.start(run)
    batch = whole(run)
    logits = run.model(batch.views[0])
    if kind is ForwardCorrection:
        expected = F.nll_loss((logits.softmax(dim=1) @ T).log(), batch.label)
    else:
        expected = -(T.inverse()[batch.label] * logits.log_softmax(dim=1)).sum(dim=1).mean()
    torch.testing.assert_close(method.loss(run, batch), expected)
    assert method.before_epoch(run) is None
    torch.testing.assert_close(method.matrix, T)


def test_the_anchor_of_a_rare_class_is_one_of_its_examples(make_run: Callable[..., Run]) -> None:
    """A class of 1 % of the examples has none at the 0.97 quantile of all predictions for it."""
    labels = torch.arange(1000) % 9
    labels[:10] = 9
    probs = F.one_hot(labels, 10).double() * 0.9 + 0.01 + torch.rand(1000, 10, dtype=torch.float64) * 1e-3
    share = torch.bincount(labels, minlength=10) / 1000
    assert estimate_transition(probs, 0.97)[9, 9] < 0.1
    transition = estimate_transition(probs, (1 - share / 2).clamp_min(0.97))
    assert (transition.diag() > 0.8).all()

    for options, quantile in (
        ({}, (1 - share / 2).clamp_min(0.97)), ({"quantile": 0.9}, torch.full((10,), 0.9)),
    ):  # fmt: skip
        run, method = make_run(num_classes=10, n=1000, epoch=3), ForwardCorrection(warmup=3, **options)
        run.data.labels = labels
        method.start(run)
        method.before_epoch(run)
        assert method.known
        torch.testing.assert_close(method.matrix, estimate_transition(run.predict(), quantile).float())


@pytest.mark.parametrize(
    ("epochs", "expected"),
    [(1, 1), (3, 1), (4, 2), (29, 2), (30, 3), (49, 4), (50, 5), (119, 5), (120, 6), (139, 6), (200, 10)],
)
def test_the_warmup_is_a_twentieth_but_five_epochs_or_a_tenth_of_a_short_run(
    make_run: Callable[..., Run], epochs: int, expected: int
) -> None:
    method = ForwardCorrection()
    run = make_run(epochs=epochs, n=80)
    run.batch_size = 2  # 40 steps an epoch
    method.start(run)
    for epoch in range(expected + 1):
        assert not method.known
        run.epoch = epoch
        method.before_epoch(run)
    assert method.known


@pytest.mark.parametrize(
    ("epochs", "size", "expected"),
    [(3, 2, 1), (20, 2, 2), (20, 3, 3), (20, 4, 4), (9, 80, 4), (20, 80, 5), (200, 80, 10)],
)
def test_the_warmup_of_a_short_run_has_eighty_steps_but_five_epochs_at_most(
    make_run: Callable[..., Run], epochs: int, size: int, expected: int
) -> None:
    run = make_run(epochs=epochs, n=80)
    run.batch_size = size
    assert _warmup.early(run) == expected


def test_backward_refuses_a_useless_estimate(make_run: Callable[..., Run]) -> None:
    run, method = make_run(epoch=3), BackwardCorrection(warmup=3)
    torch.nn.init.zeros_(run.model[3].weight)  # the same prediction everywhere: all rows of T alike
    method.start(run)
    with pytest.raises(InputError, match=r"condition number .* use forward correction"):
        method.before_epoch(run)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"transition": T, "warmup": 3}, "leave them out"),
        ({"warmup": 0}, "warmup must be a whole number, 1 or more"),
        ({"warmup": 6}, "warmup must be below epochs=6"),
        ({"quantile": 0.0}, r"quantile must be a number in \(0, 1\]"),
        ({"transition": torch.eye(4)}, r"transition must be 3 x 3 \(num_classes=3\), got 4 rows"),
        ({"transition": "T"}, "K x K matrix of numbers"),
    ],
)
@pytest.mark.parametrize("kind", KINDS)
def test_bad_options(kind: type[Correction], options: dict, says: str, make_run: Callable[..., Run]) -> None:
    with pytest.raises(InputError, match=says):
        kind(**options).start(make_run())


@pytest.mark.parametrize(("flip", "taken"), [(0.4949, True), (0.4952, False)])
def test_a_matrix_is_inverted_up_to_a_condition_of_a_hundred(flip: float, taken: bool) -> None:
    matrix = torch.tensor([[1 - flip, flip], [flip, 1 - flip]], dtype=torch.float64)
    if taken:
        torch.testing.assert_close(invert(matrix) @ matrix, torch.eye(2, dtype=torch.float64))
    else:
        with pytest.raises(InputError, match=r"got condition number 104 \(at most 100\)"):
            invert(matrix)


@pytest.mark.parametrize(
    ("matrix", "says"),
    [
        ([[1.00008, 0.0], [0.0, 1.0]], "hold probabilities"),
        ([[0.5, 0.50008], [0.5, 0.5]], None),
        ([[0.5, 0.49992], [0.5, 0.5]], None),
        ([[0.5, 0.50015], [0.5, 0.5]], "rows that sum to 1, got 1.00015 in row 0"),
        ([[0.5, 0.5], [0.49985, 0.5]], "rows that sum to 1, got 0.99985 in row 1"),
        ([[1.0, 0.0], [1.1, -0.1]], "hold probabilities, got .* in row 1"),
        ([[1.0]], "K > 1"),
        ([[1.0, 0.0]], "K > 1"),
        ([[0.5, 0.3, 0.2], [0.2, 0.3, 0.5]], "K > 1"),
        ([0.5, 0.5], "K > 1"),
        ([[1, 0], [1, 0]], "a column 1 of zeros"),
        ([[1, 0], [0, 1]], None),
    ],
)
def test_what_is_a_transition(matrix: list[list[float]], says: str | None) -> None:
    if says is None:
        assert check_transition(matrix).dtype == torch.float32
    else:
        with pytest.raises(InputError, match=says):
            check_transition(matrix)


def test_the_anchor_lies_at_the_quantile() -> None:
    """Of 100 examples the 97th by default, of 4 the last; no entry is below a millionth."""
    p = torch.linspace(0.01, 0.99, 100, dtype=torch.float64)
    probs = torch.stack([p, 1 - p], dim=1)
    torch.testing.assert_close(estimate_transition(probs), torch.stack([probs[96], probs[3]]))
    torch.testing.assert_close(estimate_transition(probs, 0.5), torch.stack([probs[49], probs[50]]))
    torch.testing.assert_close(estimate_transition(probs, torch.tensor([1.0, 0.001])), probs[[99, 99]])
    sure = estimate_transition(torch.eye(2, dtype=torch.float64), 1.0)
    torch.testing.assert_close(sure[0], torch.tensor([1.0, 1e-6], dtype=torch.float64) / (1 + 1e-6))


def test_what_is_estimated_goes_by_the_epochs_planned() -> None:
    assert ForwardCorrection().plans
    assert not ForwardCorrection(warmup=3).plans
    assert not ForwardCorrection(transition=T).plans

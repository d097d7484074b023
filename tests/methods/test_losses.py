"""Each loss against its slow twin, values and gradients, and what the papers say of its limits."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import losses as reference
from torch import Tensor, nn

from noiseproof.errors import InputError
from noiseproof.methods.co_teaching import co_teaching_loss, keep_rate
from noiseproof.methods.correction import BackwardLoss, ForwardLoss, backward_loss, check_transition, invert
from noiseproof.methods.elr import ELRLoss
from noiseproof.methods.gce import GCELoss, gce
from noiseproof.methods.mixup import mixup, mixup_loss, sample_lam
from noiseproof.methods.sce import SCELoss, sce

some = settings(max_examples=15, deadline=None)


@st.composite
def batches(draw: st.DrawFn, scales: tuple[float, ...] = (0.1, 3.0, 50.0)) -> tuple[Tensor, Tensor]:
    """Logits (B, K) up to ±scale, and labels (B,)."""
    size, classes = draw(st.integers(1, 6)), draw(st.integers(2, 7))
    return make_batch(draw(st.integers(0, 10**6)), size, classes, draw(st.sampled_from(scales)))


def make_batch(seed: int, size: int, classes: int, scale: float) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    logits = scale * (2 * torch.rand(size, classes, generator=generator, dtype=torch.float64) - 1)
    return logits, torch.randint(classes, (size,), generator=generator)


def make_transition(seed: int, classes: int) -> Tensor:
    """A well-conditioned one: 0.6 on the diagonal, the rest spread at random."""
    spread = torch.rand(classes, classes, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return 0.6 * torch.eye(classes, dtype=torch.float64) + 0.4 * spread / spread.sum(dim=1, keepdim=True)


def agree(fast: Callable[[Tensor], Tensor], slow: Callable[[Tensor], Tensor], logits: Tensor) -> None:
    """Same values and same gradients of a weighted sum, to 1e-10."""
    weight = torch.linspace(0.5, 2.0, len(logits), dtype=torch.float64)
    ours, theirs = logits.clone().requires_grad_(), logits.clone().requires_grad_()
    value, expected = fast(ours), slow(theirs)
    torch.testing.assert_close(value, expected, rtol=1e-10, atol=1e-10)
    (value * weight).sum().backward()
    (expected * weight).sum().backward()
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-10, atol=1e-10)


CASES: dict[str, Callable[[int], tuple[nn.Module, Callable[[Tensor, Tensor], Tensor]]]] = {
    "gce": lambda K: (GCELoss(reduction="none"), lambda x, y: reference.gce(x, y, 0.7)),
    "gce-mae": lambda K: (GCELoss(q=1.0, reduction="none"), lambda x, y: reference.gce(x, y, 1.0)),
    "sce": lambda K: (
        SCELoss(alpha=0.3, beta=2.0, A=-5.0, reduction="none"),
        lambda x, y: reference.sce(x, y, 0.3, 2.0, -5.0),
    ),
    "forward": lambda K: (
        ForwardLoss(make_transition(3, K), reduction="none"),
        lambda x, y: reference.forward_correction(x, y, make_transition(3, K)),
    ),
    "backward": lambda K: (
        BackwardLoss(make_transition(3, K), reduction="none"),
        lambda x, y: reference.backward_correction(x, y, make_transition(3, K)),
    ),
}


@pytest.mark.parametrize("case", CASES)
@some
@given(batch=batches())
def test_loss_equals_its_twin(case: str, batch: tuple[Tensor, Tensor]) -> None:
    logits, label = batch
    loss, twin = CASES[case](logits.shape[1])
    agree(lambda x: loss(x, label), lambda x: twin(x, label), logits)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(("classes", "scale"), [(2, 50.0), (1000, 5.0)])
def test_loss_equals_its_twin_at_the_ends(case: str, classes: int, scale: float) -> None:
    logits, label = make_batch(4, 2, classes, scale)
    loss, twin = CASES[case](classes)
    agree(lambda x: loss(x, label), lambda x: twin(x, label), logits)


@pytest.mark.parametrize("case", CASES)
def test_reductions_belong_together(case: str) -> None:
    logits, label = make_batch(5, 6, 4, 3.0)
    loss, _ = CASES[case](4)
    each = loss(logits, label)
    assert each.shape == (6,)
    loss.reduction = "sum"
    torch.testing.assert_close(loss(logits, label), each.sum())
    loss.reduction = "mean"
    torch.testing.assert_close(loss(logits, label), each.mean())


@pytest.mark.parametrize("case", CASES)
def test_extreme_logits_in_single_precision_stay_finite(case: str) -> None:
    logits = torch.tensor([[50.0, -50.0, 0.0], [-50.0, 50.0, 0.0], [300.0, -300.0, 0.0]], requires_grad=True)
    loss, _ = CASES[case](3)
    value = loss(logits, torch.tensor([1, 1, 1]))
    value.sum().backward()
    assert value.isfinite().all()
    assert logits.grad is not None
    assert logits.grad.isfinite().all()


def test_half_precision_logits_are_raised_to_single() -> None:
    logits, label = make_batch(6, 4, 3, 3.0)
    assert GCELoss()(logits.bfloat16(), label).dtype == torch.float32


@some
@given(batch=batches(scales=(0.1, 3.0)), visits=st.integers(1, 3))
def test_elr_equals_its_twin_over_visits(batch: tuple[Tensor, Tensor], visits: int) -> None:
    logits, label = batch
    size, classes = logits.shape
    loss = ELRLoss(size + 3, classes, beta=0.6, lam=2.0, reduction="none").double()
    index = torch.randperm(size + 3, generator=torch.Generator().manual_seed(0))[:size]
    target = [[0.0] * classes for _ in range(size + 3)]
    for visit in range(visits):
        ours, theirs = ((logits * (1 + visit)).requires_grad_() for _ in range(2))
        value = loss(ours, label, index)
        expected, target = reference.elr(theirs, label, index, target, 0.6, 2.0)
        torch.testing.assert_close(value, expected, rtol=1e-10, atol=1e-10)
        value.sum().backward()
        expected.sum().backward()
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(loss.target, torch.tensor(target, dtype=torch.float64), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(("classes", "scale"), [(2, 50.0), (1000, 5.0)])
def test_elr_equals_its_twin_at_the_ends(classes: int, scale: float) -> None:
    logits, label = make_batch(7, 2, classes, scale)
    loss = ELRLoss(2, classes, lam=3.0, reduction="none").double()
    index = torch.tensor([1, 0])
    start = [[0.0] * classes for _ in range(2)]
    agree(lambda x: loss(x, label, index), lambda x: reference.elr(x, label, index, start, 0.7, 3.0)[0], logits)


@some
@given(batch=batches(), lam=st.floats(0, 1))
def test_mixup_loss_equals_its_twin(batch: tuple[Tensor, Tensor], lam: float) -> None:
    logits, label = batch
    permutation = torch.randperm(len(label), generator=torch.Generator().manual_seed(1))
    weight = torch.linspace(0.1, 3.0, len(label), dtype=torch.float64)
    agree(
        lambda x: mixup_loss(x, label, lam, permutation, weight),
        lambda x: reference.mixup_loss(x, label, lam, permutation, weight) + 0 * x.sum(dim=1),
        logits,
    )


@some
@given(batch=batches(), data=st.data())
def test_co_teaching_equals_its_twin(batch: tuple[Tensor, Tensor], data: st.DataObject) -> None:
    logits, label = batch
    keep = data.draw(st.integers(1, len(label)))
    ours, theirs = logits.clone().requires_grad_(), logits.clone().requires_grad_()
    value = co_teaching_loss(ours, ours.flip(1), label, keep)
    expected = reference.co_teaching(theirs, theirs.flip(1), label, keep)
    torch.testing.assert_close(value, expected, rtol=1e-10, atol=1e-10)
    (value[0] + 2 * value[1]).backward()
    (expected[0] + 2 * expected[1]).backward()
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-10, atol=1e-10)


@some
@given(batch=batches(scales=(0.1, 3.0)))
def test_gce_runs_from_cross_entropy_to_mean_absolute_error(batch: tuple[Tensor, Tensor]) -> None:
    logits, label = batch
    torch.testing.assert_close(gce(logits, label, 1e-9), F.cross_entropy(logits, label, reduction="none"))
    absolute = (F.one_hot(label, logits.shape[1]) - logits.softmax(dim=1)).abs().sum(dim=1)
    torch.testing.assert_close(2 * gce(logits, label, 1.0), absolute)


@some
@given(batch=batches())
def test_what_reduces_to_cross_entropy(batch: tuple[Tensor, Tensor]) -> None:
    logits, label = batch
    ce = F.cross_entropy(logits, label, reduction="none")
    identity = torch.eye(logits.shape[1], dtype=torch.float64)
    torch.testing.assert_close(sce(logits, label, 1.0, 0.0, -4.0), ce)
    torch.testing.assert_close(ForwardLoss(identity, reduction="none")(logits, label), ce)
    torch.testing.assert_close(BackwardLoss(identity, reduction="none")(logits, label), ce)
    torch.testing.assert_close(mixup_loss(logits, label, 1.0, torch.arange(len(label)).flip(0)), ce)


@some
@given(batch=batches(scales=(0.1, 3.0)), seed=st.integers(0, 100))
def test_backward_is_unbiased(batch: tuple[Tensor, Tensor], seed: int) -> None:
    """The mean over the noisy label, given the true one, is the loss at the true one: exactly, by the sum."""
    logits, label = batch
    classes = logits.shape[1]
    transition = make_transition(seed, classes)
    noisy = torch.stack(
        [backward_loss(logits, torch.full_like(label, j), invert(transition)) for j in range(classes)], dim=1
    )  # (B, K)
    mean = (transition[label] * noisy).sum(dim=1)
    torch.testing.assert_close(mean, F.cross_entropy(logits, label, reduction="none"))


def test_reverse_cross_entropy_is_bounded() -> None:
    wrong = torch.tensor([[100.0, -100.0]])
    assert SCELoss(alpha=0.0, A=-4.0)(wrong, torch.tensor([1])).item() == pytest.approx(4.0)


def test_mixup_mixes() -> None:
    x = torch.tensor([[0.0, 0.0], [1.0, 2.0]])
    torch.testing.assert_close(mixup(x, 0.25, torch.tensor([1, 0])), torch.tensor([[0.75, 1.5], [0.25, 0.5]]))
    with pytest.raises(InputError, match="floating-point"):
        mixup(torch.tensor([1, 2]), 0.5, torch.tensor([1, 0]))


@pytest.mark.parametrize("alpha", [0.2, 1.0, 8.0])
def test_lam_has_the_moments_of_its_beta(alpha: float) -> None:
    generator = torch.Generator().manual_seed(0)
    draws = torch.tensor([sample_lam(alpha, generator) for _ in range(4000)])
    assert draws.mean().item() == pytest.approx(0.5, abs=0.03)
    assert draws.var().item() == pytest.approx(1 / (4 * (2 * alpha + 1)), rel=0.1)


def test_keep_rate_falls_and_then_stays() -> None:
    rates = [keep_rate(epoch, 0.4, 10, 1.0) for epoch in range(15)]
    assert rates[0] == 1
    assert rates[5] == pytest.approx(0.8)
    assert rates[10:] == pytest.approx([0.6] * 5)


GOOD = torch.zeros(3, 4)
LABEL = torch.tensor([0, 1, 3])


@pytest.mark.parametrize(
    ("logits", "label", "says"),
    [
        (GOOD.long(), LABEL, "logits must be a float tensor"),
        (GOOD[0], LABEL, "logits must be a float tensor"),
        (GOOD[:0], LABEL[:0], "logits must be a float tensor"),
        ([[0.0]], LABEL, "logits must be a float tensor .*got list"),
        (GOOD, LABEL[:2], r"label must be an int64 tensor \(3,\)"),
        (GOOD, LABEL.int(), "label must be an int64 tensor .*torch.int32"),
        (GOOD, torch.tensor([0, 4, 1]), r"label must lie in 0..3 \(num_classes=4\), got 4 at position 1"),
        (GOOD, torch.tensor([0, 1, -1]), "got -1 at position 2"),
    ],
)
@pytest.mark.parametrize("case", CASES)
def test_door_refuses_a_bad_batch(case: str, logits: Tensor, label: Tensor, says: str) -> None:
    with pytest.raises(InputError, match=says):
        CASES[case](4)[0](logits, label)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: GCELoss(q=0), r"q must be a number in \(0, 1\], got 0"),
        (lambda: GCELoss(q="a"), r"q must be a number in \(0, 1\], got 'a'"),
        (lambda: GCELoss(q=float("nan")), "q must be"),
        (lambda: GCELoss(q=True), "q must be a number"),
        (lambda: GCELoss(reduction="avg"), "unknown reduction .avg."),
        (lambda: SCELoss(A=0), r"A must be a number in \(-inf, 0\), got 0"),
        (lambda: SCELoss(alpha=-1), r"alpha must be a number, 0 or more, got -1"),
        (lambda: ELRLoss(0, 3), "num_examples must be a whole number, 1 or more, got 0"),
        (lambda: ELRLoss(5, 1), "num_classes must be a whole number, 2 or more"),
        (lambda: ELRLoss(5, 3, beta=1.0), r"beta must be a number in \[0, 1\), got 1.0"),
        (lambda: ForwardLoss([[0.5, 0.5]]), r"K x K .*of shape \(1, 2\)"),
        (lambda: ForwardLoss([[0.5, 0.5], [1.0]]), "ragged"),
        (lambda: ForwardLoss([[0.5, 0.4], [0.0, 1.0]]), "sum to 1, got 0.9 in row 0"),
        (lambda: ForwardLoss([[1.0, 0.0], [1.5, -0.5]]), "probabilities, got .* in row 1"),
        (lambda: ForwardLoss([[1.0, 0.0], [1.0, 0.0]]), "column 1 of zeros"),
        (lambda: ForwardLoss([[float("nan"), 1.0], [0.0, 1.0]]), "probabilities"),
        (lambda: BackwardLoss([[0.5, 0.5], [0.5, 0.5]]), "invertible transition, got condition number"),
        (lambda: ForwardLoss([[1.0, 0.0], [0.0, 1.0]])(GOOD, LABEL), "num_classes=2 columns, got 4"),
    ],
)
def test_door_refuses_bad_arguments(make: Callable[[], object], says: str) -> None:
    with pytest.raises(InputError, match=says):
        make()


def test_integers_make_a_transition() -> None:
    assert check_transition([[1, 0], [0, 1]]).dtype == torch.float32


@pytest.mark.parametrize("kind", [ForwardLoss, BackwardLoss])
def test_transition_is_in_the_state(kind: type[ForwardLoss] | type[BackwardLoss]) -> None:
    loss, other = kind(make_transition(1, 3)), kind(torch.eye(3, dtype=torch.float64))
    other.load_state_dict(loss.state_dict())
    logits, label = make_batch(0, 4, 3, 2.0)
    assert torch.equal(other(logits, label), loss(logits, label))


def test_backward_correction_needs_a_condition_number_of_a_hundred_at_most() -> None:
    """That of two classes of which each is mistaken for the other with probability δ is 1/(1 − 2δ)."""
    for condition, taken in ((99.5, True), (100.5, False)):
        flip = (1 - 1 / condition) / 2
        transition = torch.tensor([[1 - flip, flip], [flip, 1 - flip]], dtype=torch.float64)
        with contextlib.nullcontext() if taken else pytest.raises(InputError, match=r"condition number 10[01]"):
            BackwardLoss(transition)

"""ELR's targets: the first visit, eval mode, the guard at the door, beliefs, state."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from reference import losses as reference
from torch import Tensor

from noiseproof.errors import InputError
from noiseproof.method import Run
from noiseproof.methods._judged import judged
from noiseproof.methods.elr import ELR, ELRLoss, believed, clamped_softmax
from noiseproof.methods.index_guard import IndexGuard, check_index

LOGITS = torch.tensor([[2.0, 0.0, -1.0], [0.0, 1.0, 0.5]])
LABEL = torch.tensor([0, 2])
INDEX = torch.tensor([3, 1])


def test_first_visit_leaves_a_share_of_the_prediction() -> None:
    loss = ELRLoss(5, 3, beta=0.7, lam=3.0)
    loss(LOGITS, LABEL, INDEX)
    torch.testing.assert_close(loss.target[INDEX], 0.3 * LOGITS.softmax(dim=1))
    assert loss.target[[0, 2, 4]].count_nonzero() == 0
    torch.testing.assert_close(loss.soft_labels()[INDEX], LOGITS.softmax(dim=1))
    torch.testing.assert_close(loss.soft_labels()[0], torch.full((3,), 1 / 3))


def test_no_strength_is_cross_entropy() -> None:
    torch.testing.assert_close(ELRLoss(5, 3, lam=0.0)(LOGITS, LABEL, INDEX), F.cross_entropy(LOGITS, LABEL))


def test_eval_mode_leaves_no_trace() -> None:
    loss = ELRLoss(5, 3)
    loss(LOGITS, LABEL, INDEX)
    before = {key: value.clone() for key, value in loss.state_dict().items()}
    loss.eval()
    loss(5 * LOGITS, LABEL, INDEX)
    loss(LOGITS, LABEL, torch.tensor([0, 2]))
    assert all(torch.equal(before[key], value) for key, value in loss.state_dict().items())


def test_a_refused_batch_leaves_no_trace() -> None:
    loss = ELRLoss(5, 3)
    with pytest.raises(InputError):
        loss(LOGITS, LABEL, torch.tensor([2, 9]))
    assert loss.target.count_nonzero() == 0
    assert (loss.guard.label == -1).all()


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_prediction_that_is_no_number_is_not_remembered(bad: float) -> None:
    loss, twin = ELRLoss(5, 3), ELRLoss(5, 3)
    for one in (loss, twin):
        one(LOGITS, LABEL, INDEX)
    broken = 2 * LOGITS
    broken[1, 0] = bad
    assert not loss(broken, LABEL, INDEX).isfinite()
    twin(2 * LOGITS[:1], LABEL[:1], INDEX[:1])
    assert torch.equal(loss.target, twin.target)
    assert loss(LOGITS, LABEL, INDEX).isfinite()


def test_gradient_stops_at_the_target() -> None:
    """With t fixed in eval mode the loss has the same gradient as in train mode, where t has just moved to it."""
    trained, fixed = ELRLoss(5, 3), ELRLoss(5, 3)
    one, two = LOGITS.clone().requires_grad_(), LOGITS.clone().requires_grad_()
    trained(one, LABEL, INDEX).backward()
    fixed.load_state_dict(trained.state_dict())
    fixed.eval()(two, LABEL, INDEX).backward()
    assert torch.equal(one.grad, two.grad)  # type: ignore[arg-type]


def test_state_round_trip_goes_on_alike() -> None:
    one, two = ELRLoss(5, 3), ELRLoss(5, 3)
    one(LOGITS, LABEL, INDEX)
    two.load_state_dict(one.state_dict())
    assert torch.equal(one(2 * LOGITS, LABEL, INDEX), two(2 * LOGITS, LABEL, INDEX))


@pytest.mark.parametrize(
    ("index", "says"),
    [
        (torch.tensor([0.0, 1.0]), "int64 tensor .*got torch.float32"),
        (torch.tensor([[0], [1]]), r"shape \(2, 1\)"),
        ([0, 1], "got list"),
        (torch.tensor([0, 5]), r"0..4 \(num_examples=5\), got 5 at position 1"),
        (torch.tensor([-1, 0]), "got -1 at position 0"),
        (torch.tensor([4, 4]), "must not repeat within a batch, got 4"),
    ],
)
def test_index_is_checked(index: Tensor, says: str) -> None:
    with pytest.raises(InputError, match=says):
        check_index(index, 5)
    with pytest.raises(InputError, match=says):
        ELRLoss(5, 3)(LOGITS, LABEL, index)


def test_guard_catches_positions_in_the_batch() -> None:
    labels = torch.tensor([0, 1, 2, 2, 1, 0])
    guard = IndexGuard(6)
    guard(torch.arange(3), labels[:3])
    guard(torch.tensor([5, 1]), labels[[5, 1]])
    with pytest.raises(InputError, match=r"not in the batch: 0 \(position 0 .* with label 0 and now with 2"):
        guard(torch.arange(3), labels[3:])
    assert guard.label.tolist() == [0, 1, 2, -1, -1, 0]
    with pytest.raises(InputError, match="same length, got 2 and 3"):
        guard(torch.arange(2), labels[:3])


def test_a_guard_that_allows_repeats_knows_every_label_it_has_seen() -> None:
    for first, second in ((0, 1), (1, 0), (2, 1)):
        guard = IndexGuard(6, repeats=True)
        guard(torch.tensor([4, 4]), torch.tensor([first, first]))
        with pytest.raises(InputError, match=f"came first with label {first} and now with {second}"):
            guard(torch.tensor([4]), torch.tensor([second]))
    relaxed = IndexGuard(6, repeats=True, relabel=True)
    for label in (0, 1):
        relaxed(torch.tensor([4]), torch.tensor([label]))


def test_method_equals_its_loss(make_run: Callable[..., Run], train: Callable[..., list[float]]) -> None:
    run, method = make_run(), ELR(beta=0.5, lam=2.0)
    method.start(run)
    [value] = train(method, run, 1)
    fresh = make_run()
    loss = ELRLoss(len(fresh.data), 3, beta=0.5, lam=2.0)
    expected = loss(fresh.model(fresh.data.inputs), fresh.data.labels, torch.arange(len(fresh.data)))
    assert value == expected.item()
    assert torch.equal(loss.target, method.target)


@pytest.mark.parametrize(("n", "classes", "scale"), [(1, 2, 1.0), (30, 4, 1.0), (30, 4, 8.0), (12, 20, 3.0)])
def test_beliefs_equal_their_twin(n: int, classes: int, scale: float) -> None:
    """With examples that were never visited, and targets at the clamp."""
    draw = torch.Generator().manual_seed(0)
    logits = scale * torch.randn(2, n, classes, generator=draw, dtype=torch.float64)
    label = torch.randint(classes, (n,), generator=draw)
    target = 0.4 * clamped_softmax(logits[0])
    target[::5] = 0
    expected = reference.elr_beliefs(target, logits[1].softmax(dim=1), label)
    found = believed(target, logits[1].softmax(dim=1), label)
    for ours, theirs in zip((found.soft_label, found.suspicion), expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-12)


def test_beliefs_doubt_what_the_network_disagrees_with(make_run: Callable[..., Run]) -> None:
    """Of two examples the network is sure; the others were never visited, and it knows nothing of them."""
    run, method = make_run(), ELR()
    method.start(run)
    label, predicted = run.data.labels, torch.full((len(run.data), 3), 1 / 3)
    wrong = (label[1] + 1) % 3
    for at, said in ((0, label[0]), (1, wrong)):
        method.target[at, said], predicted[at] = 0.5, F.one_hot(said, 3).float()
    beliefs = method.beliefs(run, predicted)
    torch.testing.assert_close(beliefs.soft_label.sum(dim=1), torch.ones(len(run.data)))
    assert beliefs.suspicion[:2].tolist() == pytest.approx([0.0, 1.0])
    assert beliefs.soft_label[1].argmax() == wrong
    assert ((beliefs.suspicion[2:] > 0.4) & (beliefs.suspicion[2:] < 0.9)).all()


def test_labels_as_they_would_be_drawn_change_no_belief() -> None:
    """Each class is as often the label as q says: C = E, and b = q."""
    said = torch.tensor([[0.8, 0.2]] * 5 + [[0.2, 0.8]] * 5, dtype=torch.float64)
    label = torch.tensor([0, 0, 0, 0, 1, 1, 1, 1, 1, 0])
    torch.testing.assert_close(judged(said, label).soft_label, said)


def test_a_class_that_wrong_labels_come_from_is_believed_more() -> None:
    """Of two labels that look alike to the network, that which its rival often carries is the more suspicious."""
    sure = 0.9 * F.one_hot(torch.tensor([0] * 10 + [1] * 10 + [2] * 10), 3) + 0.1 / 3
    label = torch.tensor([0] * 6 + [1] * 4 + [1] * 10 + [2] * 10)  # four of class 0 are called 1
    doubtful = torch.tensor([[0.5, 0.5 - 1 / 60, 1 / 60], [0.5, 1 / 60, 0.5 - 1 / 60]])
    believes = judged(torch.cat([sure, doubtful]), torch.cat([label, torch.tensor([1, 2])])).soft_label[-2:]
    assert believes[0, 1] + 0.1 < believes[1, 2]


def test_awake_an_example_is_held_to_its_target_or_to_its_label() -> None:
    """λ = "auto": log(1 − ⟨p, t⟩) where t, as a distribution, clearly contradicts the label, else −log p_y."""
    loss = ELRLoss(5, 3, beta=0.9, lam="auto", reduction="none")
    loss.waking.awake.fill_(True)
    logits = torch.tensor([[2.0, 0.0, -1.0], [0.0, 1.0, 0.5], [3.0, 0.0, 0.0], [1.0, 0.9, 0.0]], requires_grad=True)
    label, index = torch.tensor([0, 0, 1, 1]), torch.arange(4)
    p = logits.softmax(dim=1)
    found = loss(logits, label, index)
    margin = (p.scatter(1, label[:, None], -1.0).max(dim=1).values - p.gather(1, label[:, None])[:, 0]).detach()
    sure = -margin[margin < 0].mean() * 4 / 5  # of the batch, which is 4/5 of n
    held = margin > max(0.1, 0.4 * float(sure))
    assert held.tolist() == [False, True, True, False]
    target = 0.1 * p.detach()  # after one visit
    expected = torch.where(held, torch.log1p(-(p * target).sum(dim=1)), -p.log()[index, label])
    torch.testing.assert_close(found, expected)
    (ours,) = torch.autograd.grad(found.sum(), logits, retain_graph=True)
    (theirs,) = torch.autograd.grad(expected.sum(), logits)
    torch.testing.assert_close(ours, theirs)

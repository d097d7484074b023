"""Single-network rivals: each equation against its slow twin, values and gradients, and what their schedules do."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from reference import rivals as reference
from torch import Tensor, nn

from noiseproof.errors import InputError
from noiseproof.method import Batch, Run
from noiseproof.methods import build, pes
from noiseproof.methods.cores import CORES, cores, losses, sieve, strength
from noiseproof.methods.d2l import D2L, d2l_loss, dimensionality, trust, turned
from noiseproof.methods.dmi import DMI, DMILoss, dmi
from noiseproof.methods.incv import CANDIDATE, INCV, REMOVED, SELECTED, judge, noise_rate
from noiseproof.methods.joint import Joint, divergence, entropy
from noiseproof.methods.mentornet import MentorNet, curriculum
from noiseproof.methods.self_adaptive import SelfAdaptive, self_adaptive_loss, update_target
from noiseproof.methods.semi import prior_loss
from noiseproof.methods.t_revision import TRevision, revised, reweighted
from noiseproof.models.small import MLP

SEEDS = [0, 1, 2]


def make(seed: int, size: int = 7, classes: int = 4) -> tuple[Tensor, Tensor, torch.Generator]:
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(size, classes, generator=generator, dtype=torch.float64)
    return logits, torch.randint(classes, (size,), generator=generator), generator


def agree(fast: Callable[..., Tensor], slow: Callable[..., Tensor], *inputs: Tensor) -> None:
    """Same values and same gradients of a weighted sum in every input, to 1e-9."""
    sides = [[one.clone().requires_grad_() for one in inputs] for _ in range(2)]
    for function, given in zip((fast, slow), sides, strict=True):
        value = function(*given)
        (value * torch.linspace(0.5, 2.0, value.numel(), dtype=torch.float64).view(value.shape)).sum().backward()
    torch.testing.assert_close(fast(*inputs), slow(*inputs), rtol=1e-9, atol=1e-9)
    for ours, theirs in zip(*sides, strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-9, atol=1e-9)


def whole(run: Run, weight: Tensor | None = None) -> Batch:
    everyone = torch.arange(len(run.data))
    return Batch((run.data.take(everyone),), run.data.labels, everyone, weight)


@pytest.mark.parametrize("seed", SEEDS)
def test_self_adaptive_equals_its_twin(seed: int) -> None:
    logits, label, generator = make(seed)
    before = torch.rand(logits.shape, generator=generator, dtype=torch.float64).softmax(dim=1)
    moved = update_target(before, label, logits.softmax(dim=1), 0.7)
    torch.testing.assert_close(moved, reference.self_adaptive(logits, label, before, 0.7)[1])
    agree(
        lambda x: self_adaptive_loss(x, update_target(before, label, x.softmax(dim=1), 0.7)).mean(),
        lambda x: reference.self_adaptive(x, label, before, 0.7)[0],
        logits,
    )
    fresh = update_target(torch.zeros_like(before), label, logits.softmax(dim=1), 0.7)
    torch.testing.assert_close(fresh, 0.7 * F.one_hot(label, 4) + 0.3 * logits.softmax(dim=1))


@pytest.mark.parametrize("band", [0.5, 1.0])
def test_curriculum_is_the_least_of_the_self_paced_problem(band: float) -> None:
    loss = torch.tensor([0.0, 0.9, 1.0, 1.2, 1.49, 1.6, 3.0], dtype=torch.float64)
    expected = torch.tensor(reference.curriculum(loss.tolist(), 1.0, band), dtype=torch.float64)
    torch.testing.assert_close(curriculum(loss, torch.tensor(1.0), band), expected, atol=1e-4, rtol=0)
    assert curriculum(loss, torch.tensor(1.0), 0.0).tolist() == [1, 1, 1, 0, 0, 0, 0]
    assert not curriculum(loss.requires_grad_(), torch.tensor(1.0), band).requires_grad


@pytest.mark.parametrize("seed", SEEDS)
def test_dmi_equals_its_twin(seed: int) -> None:
    logits, label, _ = make(seed, size=12)
    agree(lambda x: dmi(x, label), lambda x: reference.dmi(x, label), logits)
    torch.testing.assert_close(DMILoss()(logits, label), dmi(logits, label, torch.ones(12)))
    missing = torch.zeros(12, dtype=torch.int64)
    value = dmi(logits.requires_grad_(), missing)
    value.backward()
    assert value.isfinite()
    assert logits.grad is not None
    assert logits.grad.isfinite().all()


@pytest.mark.parametrize("seed", SEEDS)
def test_cores_equals_its_twin(seed: int) -> None:
    logits, label, _ = make(seed)
    share = torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64)
    agree(
        lambda x: cores(losses(x), label, share, 1.7),
        lambda x: reference.cores(x, label, share.tolist(), 1.7)[0],
        logits,
    )
    assert sieve(losses(logits), label).tolist() == reference.cores(logits, label, share.tolist(), 1.7)[1]


def test_cores_follows_the_authors_epochs() -> None:
    assert [strength(epoch, 10, 2.0) for epoch in (0, 10, 25, 40, 99)] == pytest.approx([0, 0, 1, 2, 2])


@pytest.mark.parametrize("seed", SEEDS)
def test_joint_equals_its_twin(seed: int) -> None:
    logits, label, generator = make(seed)
    target = torch.rand(logits.shape, generator=generator, dtype=torch.float64).softmax(dim=1)
    target[0] = F.one_hot(label[0], 4)
    prior = torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64)
    agree(
        lambda x: divergence(x, target).mean() + 1.2 * prior_loss(x, prior) + 0.8 * entropy(x).mean(),
        lambda x: reference.joint(x, target, prior.tolist(), 1.2, 0.8),
        logits,
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_d2l_equals_its_twin(seed: int) -> None:
    logits, label, _ = make(seed)
    agree(lambda x: d2l_loss(x, label, 0.6), lambda x: reference.d2l(x, label, 0.6), logits)
    expected = torch.tensor(reference.dimensionality(logits, 3), dtype=torch.float64)
    torch.testing.assert_close(dimensionality(logits, 3), expected)


def test_dimensionality_is_that_of_a_cube() -> None:
    generator = torch.Generator().manual_seed(0)
    for dimension in (2, 5):
        cube = torch.rand(1500, dimension, generator=generator) @ torch.randn(dimension, 20, generator=generator)
        assert float(dimensionality(cube, 20).median()) == pytest.approx(dimension, rel=0.15)


def test_the_turning_point_is_two_deviations_up() -> None:
    flat = torch.tensor([9.0, 5.0, 4.9, 5.1, 5.0])
    assert turned(torch.cat([flat, torch.tensor([5.2])]), 4)
    assert not turned(torch.cat([flat, torch.tensor([5.1])]), 4)
    assert turned(torch.tensor([0.0, 9.0, 9.0, 7.1, 6.9, 9.21]), 2)  # of the two before it, 7 ± 0.1
    assert not turned(torch.tensor([0.0, 0.0, 0.0, 7.1, 6.9, 7.19]), 2)
    assert turned(torch.tensor([0.0, 0.0, 0.0, 7.1, 6.9, 7.21]), 2)
    assert trust(torch.tensor([4.0, 2.0, 3.0]), 0.5, 2.0) == pytest.approx(torch.tensor(-1.5).exp().item())


@pytest.mark.parametrize("seed", SEEDS)
def test_t_revision_equals_its_twin(seed: int) -> None:
    logits, label, generator = make(seed)
    spread = torch.rand(4, 4, generator=generator, dtype=torch.float64)
    transition = 0.6 * torch.eye(4, dtype=torch.float64) + 0.4 * spread / spread.sum(dim=1, keepdim=True)
    agree(lambda x, t: reweighted(x, label, t), lambda x, t: reference.reweighted(x, label, t), logits, transition)
    torch.testing.assert_close(revised(transition, torch.zeros(4, 4)), transition)
    torch.testing.assert_close(revised(transition, -9 * torch.eye(4)).sum(dim=1), torch.ones(4).double())


def test_t_revision_learns_its_slack_only_at_the_end(make_run: Callable[..., Run]) -> None:
    run, method = make_run(epochs=10), TRevision(warmup=2)
    method.start(run)
    for epoch, learned in ((2, False), (5, False), (6, True)):
        run.epoch = epoch
        method.before_epoch(run)
        method.slack.grad = None
        method.loss(run, whole(run)).backward()
        assert (method.slack.grad is not None) == learned


@pytest.mark.parametrize("classes", [2, 10])
def test_the_noise_rate_is_that_of_the_accuracy(classes: int) -> None:
    for epsilon in (0.0, 0.1, 0.3, 0.45):
        assert noise_rate(reference.incv_accuracy(epsilon, classes), classes) == pytest.approx(epsilon, abs=1e-6)
    assert noise_rate(0.0, classes) == pytest.approx((classes - 1) / classes)


def test_judge_selects_what_is_predicted_and_removes_the_worst_of_the_rest() -> None:
    loss = torch.tensor([0.1, 5.0, 2.0, 0.2, 9.0])
    selected, removed = judge(loss, torch.tensor([True, False, False, True, False]), 2.0)
    assert selected.tolist() == [True, False, False, True, False]
    assert removed.tolist() == [False, True, True, False, True]  # the fourth of the largest loss is selected
    assert judge(loss, selected, 1.0)[1].tolist() == [False, True, False, False, True]


def test_incv_trains_each_half_from_the_start_and_then_what_was_selected(make_run: Callable[..., Run]) -> None:
    run, method = make_run(n=40, epochs=20), INCV(build("ce"), rounds=2, share=0.4)
    method.start(run)
    first = [p.clone() for p in run.model.parameters()]
    seen = []
    for epoch in range(20):
        run.epoch = epoch
        selection = method.before_epoch(run)
        assert selection is not None
        if epoch in (0, 2, 4, 6, 8):  # four halves of two epochs, then the inner method
            assert all(torch.equal(p, q) for p, q in zip(run.model.parameters(), first, strict=True))
        if epoch in (1, 3):  # a half is judged by what was trained on the other
            judged = method.side == (1 if epoch == 1 else 0)
            assert (method.loss_held[judged] > 0).all()
            assert epoch == 3 or (method.loss_held[~judged] == 0).all()
        seen.append(selection.index)
        with torch.no_grad():
            for p in run.model.parameters():
                p.add_(0.1)
    assert sorted(torch.cat([seen[0], seen[2]]).tolist()) == list(range(40))
    assert torch.equal(seen[0], seen[1])
    assert seen[8].tolist() == (method.part == SELECTED).nonzero().squeeze(1).tolist()
    assert set(method.part.tolist()) <= {CANDIDATE, SELECTED, REMOVED}
    assert method._own(run).epoch == 11  # type: ignore[union-attr]
    wrong = INCV(build("incv(ce)"))
    wrong.start(run)
    run.epoch = 8  # the inner method's first
    with pytest.raises(InputError, match="selects examples itself"):
        wrong.before_epoch(run)


def test_pes_parts_and_what_is_held(make_run: Callable[..., Run]) -> None:
    model = MLP((4,), 3, widths=(5, 6, 7))
    early, middle, last = pes.parts(model)
    assert (early, middle, last) == ([model.body[1], model.body[3]], [model.body[5]], [model.head])
    with pytest.raises(InputError, match="layer by layer"):
        pes.parts(nn.Linear(2, 2))
    run, method = make_run(epochs=40), pes.PES(warmup=10)
    run.models = nn.ModuleList([MLP((2,), 3, widths=(5, 6))])
    method.start(run)
    before = {key: p.clone() for key, p in run.model.state_dict().items()}
    with torch.no_grad():
        for p in run.model.parameters():
            p.add_(1)
    for epoch, trained in ((0, [1, 1, 1]), (10, [0, 1, 1]), (12, [0, 1, 1]), (13, [0, 0, 1]), (15, [1, 1, 1])):
        run.epoch = epoch
        method.before_epoch(run)
        run.model.zero_grad()
        method.loss(run, whole(run)).backward()
        layers = [run.model.body[1], run.model.body[3], run.model.head]
        assert [int(layer.weight.grad is not None) for layer in layers] == trained
        if epoch == 10:
            assert torch.equal(run.model.head.weight, before["head.weight"])
            assert torch.equal(run.model.body[3].weight, before["body.3.weight"])
            assert not torch.equal(run.model.body[1].weight, before["body.1.weight"])


def test_confident_examples_weigh_alike_by_class() -> None:
    probability = torch.eye(3)[torch.tensor([0, 0, 0, 1, 2, 2])]
    selection = pes.confident(probability, torch.tensor([0, 0, 0, 1, 1, 2]))
    assert selection is not None
    assert selection.index.tolist() == [0, 1, 2, 3, 5]
    assert selection.weight is not None
    torch.testing.assert_close(selection.weight, torch.tensor([5 / 9, 5 / 9, 5 / 9, 5 / 3, 5 / 3]))
    assert pes.confident(probability, torch.tensor([1, 1, 1, 0, 0, 0])) is None


def test_joint_labels_are_means_of_completed_epochs(make_run: Callable[..., Run]) -> None:
    run, method = make_run(epochs=20), Joint(memory=2, warmup=2, alpha=0.0, beta=0.0)
    method.start(run)
    seen = []
    for epoch in range(3):
        run.epoch = epoch
        seen.append(run.model(whole(run).views[0]).softmax(dim=1).detach())
        loss = method.loss(run, whole(run))
        with torch.no_grad():
            run.model[3].weight.mul_(1.5)
    target = (seen[0] + seen[1]) / 2
    torch.testing.assert_close(loss, divergence(seen[2].log(), target).mean())
    torch.testing.assert_close(method.past[:, 0], seen[2])
    run.epoch = 13  # 7 of 20 epochs are the second training, from the initial weights
    method.before_epoch(run)
    torch.testing.assert_close(run.model[3].weight, method.initial["0.3.weight"])


def test_mentornet_drops_in_the_burn_in_and_the_worst_after_it(make_run: Callable[..., Run]) -> None:
    run, method = make_run(epochs=20, n=12), MentorNet(warmup=2, percentile=0.5, decay=0.0)
    method.start(run)
    logits = run.model(whole(run).views[0])
    loss = F.cross_entropy(logits, run.data.labels, reduction="none")
    generator = run.generator.get_state()
    assert float(method.loss(run, whole(run)).detach()) < float(loss.mean().detach())
    run.generator.set_state(generator)
    assert int(method._kept(run, torch.arange(12)).sum()) == 6
    run.epoch = 2
    expected = loss[loss <= loss.quantile(0.5)].sum() / 12
    torch.testing.assert_close(method.loss(run, whole(run)), expected)
    slow = MentorNet(percentile=0.5, decay=0.9)
    slow.start(run)
    for loss in (torch.tensor([1.0, 2.0, 9.0]), torch.tensor([4.0, 4.0, 4.0])):
        slow._move(loss)
    assert float(slow.threshold) == pytest.approx(0.9 * 2 + 0.1 * 4)


def test_dmi_follows_cross_entropy_with_its_scale(make_run: Callable[..., Run]) -> None:
    run, method = make_run(epochs=6), DMI(scale=0.25, warmup=2)
    method.start(run)
    logits, label = run.model(whole(run).views[0]), run.data.labels
    for epoch, expected in ((1, F.cross_entropy(logits, label)), (2, 0.25 * dmi(logits, label))):
        run.epoch = epoch
        torch.testing.assert_close(method.loss(run, whole(run)), expected)


def test_joint_sums_its_three_terms(make_run: Callable[..., Run]) -> None:
    run, method = make_run(epochs=20), Joint(alpha=1.2, beta=0.8, warmup=2)
    method.start(run)
    label = run.data.labels
    logits, prior = run.model(whole(run).views[0]).double(), torch.bincount(label, minlength=3) / len(label)
    expected = reference.joint(logits, F.one_hot(label, 3).double(), prior.tolist(), 1.2, 0.8)
    torch.testing.assert_close(method.loss(run, whole(run)).double(), expected, rtol=1e-5, atol=1e-5)


def test_cores_drops_labels_below_chance_and_follows_the_shares(make_run: Callable[..., Run]) -> None:
    run, method = make_run(epochs=20), CORES(warmup=1)
    method.start(run)
    run.epoch, label = 3, run.data.labels
    share = method.share.clone()
    loss = method.loss(run, whole(run))
    each, beta = losses(run.model(whole(run).views[0])), strength(3, 1, 2.0)
    assert torch.equal(method.kept, sieve(each, label))
    torch.testing.assert_close(loss, cores(each, label, share, beta)[method.kept].mean() / (1 + beta))
    assert method.kept.any()
    assert not method.kept.all()
    method.before_epoch(run)
    counted = torch.bincount(run.data.labels[method.kept], minlength=3)
    torch.testing.assert_close(method.share, counted / counted.sum())


def test_d2l_needs_features_and_goes_back_at_the_turn(make_run: Callable[..., Run], monkeypatch) -> None:
    run = make_run(epochs=20, n=30)
    run.models = nn.ModuleList([nn.Sequential(nn.Linear(2, 3))])
    with pytest.raises(InputError, match="d2l needs a network of features and a head, got Sequential"):
        D2L().start(run)
    run.models, method = nn.ModuleList([MLP((2,), 3, widths=(5,))]), D2L(window=2, lam=1.0)
    method.start(run)
    found = [5.0, 4.0, 4.1, 4.0, 4.05, 9.0, 6.0]
    monkeypatch.setattr(D2L, "_dimension", lambda self, run: found[run.epoch])
    weights = []
    for epoch in range(7):
        run.epoch = epoch
        method.before_epoch(run)
        weights.append(run.model.head.weight.detach().clone())
        with torch.no_grad():
            run.model.head.weight.add_(1)
    assert int(method.turn) == 4
    torch.testing.assert_close(weights[5], weights[4])  # went back
    torch.testing.assert_close(weights[6], weights[5] + 1)
    assert method._trust(run, 6) == pytest.approx(torch.tensor(-6 / 20 * 6.0 / 4.0).exp().item())


@pytest.mark.parametrize(
    "method", ["self_adaptive", "mentornet", "dmi", "cores", "joint", "pes", "t_revision", "dividemix"]
)
def test_a_warmup_must_end(method: str, make_run: Callable[..., Run]) -> None:
    with pytest.raises(InputError, match="warmup must be below epochs=6, got 6"):
        build(f"{method}(warmup=6)").start(make_run(epochs=6))


def test_agreement_must_end(make_run: Callable[..., Run]) -> None:
    with pytest.raises(InputError, match="agree must be below epochs=6, got 20"):
        build("co_teaching_plus(agree=20)").start(make_run(num_models=2))


def test_self_adaptive_believes_its_targets(make_run: Callable[..., Run]) -> None:
    run, method = make_run(epochs=6), SelfAdaptive(warmup=1)
    method.start(run)
    run.epoch = 1
    method.loss(run, whole(run))
    beliefs = method.beliefs(run, torch.zeros(12, 3))
    torch.testing.assert_close(beliefs.soft_label, method.target)

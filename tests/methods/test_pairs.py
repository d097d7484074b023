"""The methods with two networks against their slow twins, and what each does in a run."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
from reference import pairs as reference
from torch import Tensor, nn

from noiseproof.method import Batch, Method, Run
from noiseproof.methods import ema, semi
from noiseproof.methods.co_teaching import co_teaching_loss
from noiseproof.methods.co_teaching_plus import CoTeachingPlus, co_teaching_plus_loss
from noiseproof.methods.decoupling import Decoupling, decoupling_loss, disagreement
from noiseproof.methods.dividemix import DivideMix, clean_probability, co_targets
from noiseproof.methods.elr import update_target
from noiseproof.methods.elr_plus import ELRPlus, elr_plus
from noiseproof.methods.jocor import JoCoR, joint_loss, small_losses
from noiseproof.methods.mixup import sample_lam

Train = Callable[..., list[float]]
SHAPES = [(1, 2), (6, 4), (9, 3)]


def draw(size: int, classes: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Two networks' logits and labels, in double precision."""
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(2, size, classes, generator=generator, dtype=torch.float64)
    return logits[0], logits[1], torch.randint(classes, (size,), generator=generator)


def agree(fast: Callable[..., Any], slow: Callable[..., Any], *inputs: Tensor) -> None:
    """Same values and same gradients, where they are scalars with different weights, or many."""
    grads = []
    for function in (fast, slow):
        leaves = [one.clone().requires_grad_() for one in inputs]
        found = function(*leaves)
        values = torch.stack(list(found)) if isinstance(found, Sequence) or not isinstance(found, Tensor) else found
        (values * torch.linspace(1, 2, values.numel(), dtype=values.dtype).view(values.shape)).sum().backward()
        grads.append([values.detach(), *(one.grad for one in leaves)])
    torch.testing.assert_close(grads[0], grads[1], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("seed", range(3))
def test_pairs_equal_their_twins(shape: tuple[int, int], seed: int) -> None:
    one, two, label = draw(*shape, seed)
    for least in (0.0, 0.9):
        agree(
            lambda a, b, least=least: decoupling_loss(a, b, label, disagreement(a, b), least),
            lambda a, b, least=least: reference.decoupling(a, b, label, least), one, two,
        )  # fmt: skip
    for rate in (0.3, 1.0):
        agree(
            lambda a, b, rate=rate: co_teaching_plus_loss(a, b, label, rate),
            lambda a, b, rate=rate: reference.co_teaching_plus(a, b, label, rate), one, two,
        )  # fmt: skip
    keep = max(1, shape[0] - 2)
    agree(
        lambda a, b: small_losses(joint_loss(a, b, label, 0.8), keep),
        lambda a, b: reference.jocor(a, b, label, 0.8, keep), one, two,
    )  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
def test_elr_plus_equals_its_twin(shape: tuple[int, int]) -> None:
    one, two, label = draw(*shape, 5)
    target = 0.9 * two.softmax(dim=1)
    permutation = torch.arange(shape[0]).roll(1)
    weight = torch.linspace(0.5, 2, shape[0], dtype=torch.float64)
    arguments = label, target, 0.7, permutation, 2.0, weight
    agree(lambda a: elr_plus(a, *arguments), lambda a: reference.elr_plus(a, *arguments), one)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("threshold", [0.0, 0.5, 0.999])
def test_the_semi_supervised_step_equals_its_twin(shape: tuple[int, int], threshold: float) -> None:
    one, two, label = draw(*shape, 7)
    clean = torch.rand(shape[0], generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    own, other = one.softmax(dim=1), two.softmax(dim=1)
    target, labelled = co_targets(own, other, label, clean, threshold, 0.5)
    expected, known = reference.co_targets(own, other, label, clean, threshold, 0.5)
    torch.testing.assert_close(target, torch.tensor(expected, dtype=torch.float64), rtol=1e-10, atol=1e-10)
    assert labelled.tolist() == known
    weight = torch.linspace(0.5, 2, shape[0], dtype=torch.float64)
    agree(
        lambda a: semi.semi_loss(a, target, labelled, weight), lambda a: reference.semi_loss(a, target, known, weight),
        two,
    )  # fmt: skip
    prior = torch.linspace(1, 2, shape[1], dtype=torch.float64)
    prior /= prior.sum()
    agree(lambda a: semi.prior_loss(a, prior), lambda a: reference.prior_loss(a, prior), one)


def test_mixtures_keep_the_larger_share_of_their_own() -> None:
    inputs = torch.eye(6)
    for seed in range(20):
        mixed, target = semi.mix(inputs, 2 * inputs, 4.0, torch.Generator().manual_seed(seed))
        assert (mixed.diagonal() >= 0.5).all()
        torch.testing.assert_close(target, 2 * mixed)
        torch.testing.assert_close(mixed.sum(dim=1), torch.ones(6))


def test_where_two_networks_agree_nothing_is_learned() -> None:
    one, _, label = draw(5, 3, 0)
    one.requires_grad_()
    for losses in (
        decoupling_loss(one, one, label, disagreement(one, one), 0.1),
        co_teaching_plus_loss(one, one, label, 0.5),
    ):
        value = losses[0] + losses[1]
        assert value.item() == 0
        [gradient] = torch.autograd.grad(value, one)
        assert gradient.count_nonzero() == 0


def of(method: Method, make_run: Callable[..., Run], **fields: Any) -> tuple[Run, Batch]:
    """A started run of a method, and its one batch."""
    run = make_run(num_models=2, **fields)
    method.start(run)
    index = torch.arange(len(run.data))
    return run, Batch((run.data.take(index),) * method.num_views, run.data.labels, index)


def in_double(run: Run, batch: Batch, method: Method) -> Batch:
    """The networks, the method and the batch in double precision; a batch of different views."""
    run.models.double()
    method.double()
    return Batch(tuple(view.double() + i for i, view in enumerate(batch.views)), batch.label, batch.index)


def drawn(run: Run, alpha: float, size: int) -> Iterator[tuple[float, Tensor]]:
    """What a method is going to draw for two networks."""
    generator = torch.Generator()
    generator.set_state(run.generator.get_state())
    return iter([(sample_lam(alpha, generator), torch.randperm(size, generator=generator)) for _ in range(2)])


def test_a_step_of_elr_plus_equals_its_twin(make_run: Callable[..., Run]) -> None:
    method = ELRPlus(beta=0.6, lam=2.0, alpha=0.5)
    run, batch = of(method, make_run)
    batch = in_double(run, batch, method)
    before = torch.rand(12, 2, 3, generator=torch.Generator().manual_seed(3), dtype=torch.float64) / 4
    method.target.copy_(before)
    draws, networks, averages = drawn(run, 0.5, 12), copy.deepcopy(run.models), copy.deepcopy(method.averages)
    loss = method.loss(run, batch)
    expected, target = reference.elr_plus_step(
        networks,
        averages,
        batch.views[0],
        batch.label,
        before,
        draws,
        0.6,
        2.0,  # type: ignore[arg-type]
    )
    same_gradients(loss, run.models, expected, networks)
    torch.testing.assert_close(method.target, target, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("views", [1, 2])
def test_a_step_of_dividemix_equals_its_twin(make_run: Callable[..., Run], views: int) -> None:
    options = {"threshold": 0.4, "temperature": 0.7, "lam_u": 9.0, "lam_r": 0.3}
    method = DivideMix(warmup=1, ramp=0.0, alpha=0.5, views=views, **options)  # type: ignore[arg-type]
    run, batch = of(method, make_run, epoch=1)
    batch = in_double(run, batch, method)
    method.clean.copy_(torch.rand(12, 2, generator=torch.Generator().manual_seed(3)))
    draws, networks = drawn(run, 0.5, 12 * views), copy.deepcopy(run.models)
    loss = method.loss(run, batch)
    expected = reference.dividemix_step(
        networks,
        batch.views,
        batch.label,
        method.clean,
        draws,
        **options,  # type: ignore[arg-type]
    )
    same_gradients(loss, run.models, expected, networks)


def same_gradients(loss: Tensor, ours: nn.Module, expected: Tensor, theirs: nn.Module) -> None:
    torch.testing.assert_close(loss, expected, rtol=1e-7, atol=1e-7)
    found, wanted = (torch.autograd.grad(a, list(b.parameters())) for a, b in ((loss, ours), (expected, theirs)))
    torch.testing.assert_close(found, wanted, rtol=1e-6, atol=1e-7)


def test_dividemix_penalises_confidence_in_its_warm_up(make_run: Callable[..., Run]) -> None:
    values = []
    for penalty in (0.0, 2.0):
        run, batch = of(method := DivideMix(warmup=1, penalty=penalty), make_run)
        values.append(method.loss(run, batch).item())
    again = make_run(num_models=2)
    rows = [model(batch.views[0]).softmax(dim=1) for model in again.models]
    assert values[1] - values[0] == pytest.approx(
        sum(2 * (p * p.log()).sum(dim=1).mean().item() for p in rows), rel=1e-4
    )


def test_warm_ups_are_plain(make_run: Callable[..., Run]) -> None:
    """On all examples: cross-entropy, or co-teaching."""
    for method in (Decoupling(warmup=1), CoTeachingPlus(agree=1), JoCoR(lam=0.0), DivideMix(warmup=1)):
        run, batch = of(method, make_run)
        value = method.loss(run, batch)
        again, _ = of(method, make_run)  # batch norm's statistics do not enter in train mode
        one, two = (model(batch.views[0]) for model in again.models)
        expected = sum(co_teaching_loss(one, two, batch.label, len(batch.label)))
        torch.testing.assert_close(value, expected)


def test_co_teaching_plus_drops_agreement_after_its_first_epochs(make_run: Callable[..., Run]) -> None:
    method = CoTeachingPlus(forget_rate=0.5, warmup=1, agree=2)
    run, batch = of(method, make_run)
    run.epoch = 2
    one, two = (model(batch.views[0]) for model in run.models)
    torch.testing.assert_close(method.loss(run, batch), sum(co_teaching_plus_loss(one, two, batch.label, 0.5)))


def test_elr_plus_takes_its_targets_from_the_other_networks_average(make_run: Callable[..., Run]) -> None:
    method = ELRPlus(beta=0.6)
    run, batch = of(method, make_run)
    for k in range(2):
        with torch.no_grad():
            method.averages[k][-1].bias.fill_(0).add_(5 * torch.eye(3)[k])  # sure of class k
    method.loss(run, batch)
    assert (method.target[:, 0].argmax(dim=1) == 1).all()
    assert (method.target[:, 1].argmax(dim=1) == 0).all()
    torch.testing.assert_close(method.target.sum(dim=2), torch.full((12, 2), 0.4))
    beliefs = method.beliefs(run, torch.full((12, 3), 1 / 3))
    torch.testing.assert_close(beliefs.soft_label.sum(dim=1), torch.ones(12))


def test_elr_plus_averages_follow_the_weights(make_run: Callable[..., Run], train: Train) -> None:
    method = ELRPlus(ema=0.9, ramp=0.0)
    run, _ = of(method, make_run)
    before = [model[0].weight.clone() for model in run.models]
    train(method, run, 1)
    for old, average, model in zip(before, method.averages, run.models, strict=True):
        torch.testing.assert_close(average[0].weight, 0.9 * old + 0.1 * model[0].weight)
        assert not torch.equal(old, model[0].weight)
    assert ema.ramp(0.0) == pytest.approx(0.006738, rel=1e-4)
    assert ema.ramp(0.5) == pytest.approx(0.2865048)
    assert ema.ramp(1.0) == ema.ramp(3.0) == 1
    early = ELRPlus(ema=0.9, ramp=1.0)
    run, batch = of(early, make_run, step=2)  # the third step of six
    with torch.no_grad():
        run.model[0].bias.add_(1)
    before = early.averages[0][0].bias.clone()
    early.after_step(run, batch)
    moved = early.averages[0][0].bias - before
    torch.testing.assert_close(moved, torch.full_like(moved, 1 - 0.9 * ema.ramp(0.5)))


def test_clean_probability_tells_small_losses_from_large() -> None:
    generator = torch.Generator().manual_seed(0)
    loss = torch.cat([torch.rand(60, generator=generator), 4 + torch.rand(40, generator=generator)])
    w = clean_probability(loss)
    assert (w[:60] > 0.9).all()
    assert (w[60:] < 0.1).all()
    assert torch.equal(clean_probability(torch.ones(5)), torch.ones(5))


def test_dividemix_teaches_each_network_by_the_others_sorting(make_run: Callable[..., Run]) -> None:
    """w of network k decides what the other one is told: labels with w = 1, guesses with w = 0."""

    class Telling(DivideMix):
        def mixed_loss(self, run: Run, network: nn.Module, batch: Batch, target: Tensor, labelled: Tensor) -> Tensor:
            told.append((target, labelled))
            return target.sum()

    for kept in (0, 1):
        told: list[tuple[Tensor, Tensor]] = []
        method = Telling(warmup=1)
        run, batch = of(method, make_run, epoch=1)
        method.clean.zero_()
        method.clean[:, kept] = 1
        method.loss(run, batch)
        target, labelled = told[1 - kept]
        assert labelled.all()
        assert torch.equal(target.argmax(dim=1), batch.label)
        assert not told[kept][1].any()


def test_dividemix_sorts_before_each_epoch_and_says_what_it_kept(make_run: Callable[..., Run], train: Train) -> None:
    method = DivideMix(warmup=1)
    run, _ = of(method, make_run)
    method.before_epoch(run)
    assert (method.clean == 1).all()
    losses = train(method, run, 3)
    assert torch.tensor(losses).isfinite().all()
    assert (method.clean < 1).any()
    assert not torch.equal(method.clean[:, 0], method.clean[:, 1])
    run.data.wrong = torch.zeros(12, dtype=torch.bool)  # type: ignore[misc]
    kept = method.figures(run)
    assert kept["labelled_right"] == 1
    assert 0 < kept["labelled"] <= 1
    predicted = torch.eye(3)[run.data.labels]
    beliefs = method.beliefs(run, predicted)
    assert beliefs is not None
    torch.testing.assert_close(beliefs.suspicion, (1 - method.clean.mean(dim=1)) / 2)


def test_dividemix_raises_the_guesses_share(make_run: Callable[..., Run]) -> None:
    """Halfway up the ramp, half of λ_u counts."""
    values = []
    for epoch in (1, 3, 5):
        method = DivideMix(warmup=1, ramp=4.0, lam_u=100.0)
        run, batch = of(method, make_run, epoch=epoch)
        method.clean.zero_()
        values.append(method.loss(run, batch).item())
    assert values[1] - values[0] == pytest.approx((values[2] - values[0]) / 2, rel=1e-4)
    assert values[2] > values[0]


def test_a_target_of_elr_plus_moves_as_that_of_elr() -> None:
    p = torch.tensor([[0.9, 0.1]])
    torch.testing.assert_close(update_target(torch.zeros(1, 2), p, 0.7), 0.3 * p)


@pytest.mark.parametrize("size", [1, 5, 9])
def test_weights_multiply_the_losses_of_those_kept_and_choose_nobody(size: int) -> None:
    """The other network's losses choose, as without weights; by loops over examples."""
    one, two, label = draw(size, 3, size)
    weight = torch.linspace(0.5, 3, size, dtype=torch.float64)
    apart = reference.different(one, two)

    def slow(rows: list[int], keep: int) -> list[Tensor]:
        losses = [-logits.log_softmax(dim=1)[range(size), label] for logits in (one, two)]
        found = []
        for own, other in (losses, losses[::-1]):
            kept = sorted(rows, key=lambda i: float(other[i]))[:keep]
            found.append(sum((weight[i] * own[i] for i in kept), torch.zeros(())) / keep)
        return found

    for keep in range(1, size + 1):
        found = co_teaching_loss(one, two, label, keep, weight)
        torch.testing.assert_close(torch.stack(found), torch.stack(slow(list(range(size)), keep)))
        rate = keep / size
        found = co_teaching_plus_loss(one, two, label, rate, weight)
        expected = slow(apart, max(1, round(rate * len(apart))))
        torch.testing.assert_close(torch.stack(found), torch.stack(expected), check_dtype=False)


def test_co_teaching_plus_keeps_less_from_epoch_to_epoch(make_run: Callable[..., Run]) -> None:
    """1 − τ t / T_k of those that differ, until 1 − τ is left."""
    run, method = make_run(num_models=2, n=60), CoTeachingPlus(forget_rate=0.5, warmup=4, agree=0)
    batch = Batch((run.data.inputs,), run.data.labels, torch.arange(60))
    run.models.eval()
    one, two = (model(run.data.inputs) for model in run.models)
    for epoch, rate in enumerate((1.0, 0.875, 0.75, 0.625, 0.5, 0.5)):
        run.epoch = epoch
        expected = reference.co_teaching_plus(one.double(), two.double(), batch.label, rate)
        torch.testing.assert_close(method.loss(run, batch).double(), sum(expected), rtol=1e-5, atol=1e-6)

"""Waking up: by labels held out, or by examples that stand watch; asleep, the methods are cross-entropy."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from noiseproof.data import LabeledData, load, noise
from noiseproof.method import Run
from noiseproof.methods.elr import ELR, ELRLoss
from noiseproof.methods.sop import SOPLoss
from noiseproof.methods.waking import Waking, shown_now
from noiseproof.training.fit import fit

N, K = 1000, 4

MakeRun = Callable[..., Run]


def test_how_clear_a_contradiction_must_be() -> None:
    """By more than 0.1, and by more than 4/10 of the margin for labels that it agrees with; not while asleep."""
    mean = torch.tensor([[0.44, 0.56, 0.0], [0.452, 0.548, 0.0], [0.1, 0.3, 0.6], [0.3, 0.404, 0.296], [0.9, 0.1, 0]])
    label, one = torch.tensor([0, 0, 1, 0, 0]), waking()
    assert not one.contradicts(mean, label)[0].any()
    one.awake.fill_(True)
    found, guess = one.contradicts(mean, label)
    assert found.tolist() == [True, False, True, True, False]
    assert guess[:4].tolist() == [1, 1, 2, 1]
    for sure, first in ((0.29, True), (0.31, False)):  # its margin is 0.12
        one.sure.fill_(sure)
        assert one.contradicts(mean, label)[0].tolist() == [first, False, True, False, False]


def test_how_sure_it_is_is_a_mean_over_n_visits() -> None:
    one, index = waking(), torch.arange(N // 4)
    label = torch.zeros(N // 4, dtype=torch.int64)
    mean = torch.tensor([[0.8, 0.2, 0.0, 0.0]]).repeat(N // 4, 1)
    mean[::2] = torch.tensor([0.1, 0.9, 0.0, 0.0])  # contradicts: does not count
    for visits in range(1, 9):
        one.see(mean, mean, label, index)
        assert float(one.sure) == pytest.approx(0.6 * (1 - 0.75**visits))


@pytest.mark.parametrize("val", [0, 100])
def test_a_prediction_that_is_no_number_is_forgotten(val: int) -> None:
    one, batch = waking(val), visits(torch.ones(N, dtype=torch.bool))
    one.see(torch.full((1, K), math.nan), torch.full((1, K), math.nan), torch.tensor([0]), torch.tensor([0]))
    assert one.sums.isfinite().all()
    for _ in range(2):
        one.see(*batch)
    assert 0.9 < float(one.sure) <= 1


def waking(val: int = 0) -> Waking:
    return Waking(N, torch.Generator().manual_seed(0), val=val)


def visits(agrees: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """p, its mean, labels and index of all examples, at which the network agrees where it is told to (N,)."""
    label = torch.arange(N) % K
    p = F.one_hot((label + (~agrees).long()) % K, K).float()
    return p, p, label, torch.arange(N)


def agreeing(one: Waking, shown: float, watching: float) -> Tensor:
    """So large a part of the examples shown, and of those that stand watch, is agreed with: (N,)."""
    agrees = torch.zeros(N, dtype=torch.bool)
    for part, share in ((~one.watching, shown), (one.watching, watching)):
        rows = part.nonzero().squeeze(1)
        agrees[rows[: round(share * len(rows))]] = True
    return agrees


def test_a_tenth_stands_watch_and_is_not_trained_on() -> None:
    one = waking()
    assert int(one.watching.sum()) == 100
    assert not one.awake
    shown = one.see(*visits(torch.ones(N, dtype=torch.bool)))
    assert torch.equal(shown, (~one.watching).float())
    assert int(Waking(50_000, torch.Generator()).watching.sum()) == 1000


@pytest.mark.parametrize(("shown", "wakes"), [(0.40, False), (0.48, False), (0.51, True), (0.9, True)])
def test_it_wakes_when_a_part_of_what_it_would_doubt_is_taken_over(shown: float, wakes: bool) -> None:
    """m₀ = 0.4 of 100: m must exceed 0.4 + 0.075 · 0.6 + √(0.24 / 100) = 0.494."""
    one = waking()
    batch = visits(agreeing(one, shown, 0.4))
    half = [(part[: N // 2], part[N // 2 :]) for part in batch]
    one.see(*(part[0] for part in half))
    assert not one.awake  # n visits are not over
    one.see(*(part[1] for part in half))
    assert bool(one.awake) == wakes
    assert one.figures() == {"awake": wakes, "by_heart": pytest.approx((shown - 0.4) / 0.6, abs=1e-6)}
    assert not one.sums.any()  # and the next n are counted afresh
    assert one.see(*batch).bool().all() == wakes  # once awake, all are trained on
    known = (shown - 0.4) / 0.6 if wakes else 0.0  # what woke it up stays; asleep, it is that of the last comparison
    one.see(*visits(torch.ones(N, dtype=torch.bool)))
    assert float(one.by_heart) == pytest.approx(known, abs=1e-6)


def saying(label: Tensor, given: float, classes: int) -> Tensor:
    """Predictions (m, K) with the same probability of each label (m,)."""
    p = torch.full((len(label), classes), (1 - given) / (classes - 1))
    return p.scatter(1, label[:, None], given)


def with_held_out(make_run: MakeRun, unseen: float, now: float) -> tuple[Run, list[list[int]]]:
    """A run of 40 examples and 12 held out, given such probabilities if asked, and which of the 40 were."""
    run, asked = make_run(n=40, val=make_run(n=12).data), []

    def predict(data: LabeledData | None = None, index: Tensor | None = None) -> Tensor:
        if data is not None:
            assert data is run.val
            return saying(data.labels, unseen, run.num_classes)
        assert index is not None
        asked.append(index.tolist())
        return saying(run.data.labels[index], now, run.num_classes)

    run.predict = predict  # type: ignore[method-assign,assignment]
    return run, asked


@pytest.mark.parametrize(
    ("unseen", "now", "asks", "m", "wakes"),
    [
        (0.566, 0.9, True, 0.6, True),  # m = 0.6 on the way, and more at the end
        (0.568, 0.9, False, 0.6, False),
        (0.5, 0.55, True, 0.55, True),  # less at the end, but enough
        (0.5, 0.53, True, 0.53, False),
        (0.5, 0.4, True, 0.4, False),
    ],
)
def test_a_validation_set_takes_the_place_of_the_watch(
    make_run: MakeRun, unseen: float, now: float, asks: bool, m: float, wakes: bool
) -> None:
    """p_y = m₀ of all labels held out: awake above m₀ + 0.075 · (1 − m₀), with m the lesser of 0.6 and p_y now."""
    run, asked = with_held_out(make_run, unseen, now)
    one, label = Waking(40, torch.Generator(), val=12), run.data.labels
    assert not one.watching.any()
    for half, given in ((torch.arange(20), 0.5), (torch.arange(20, 40), 0.7)):
        p = saying(label[half], given, run.num_classes)
        assert one.see(p, p, label[half], half).all()
    one.before_epoch(run)
    assert not one.awake  # no epoch is over
    assert one.figures() == {"awake": 0.0}  # nor anything compared
    run.epoch = 1
    one.before_epoch(run)
    assert one.figures() == {"awake": wakes, "by_heart": pytest.approx((m - unseen) / (1 - unseen), abs=1e-5)}
    assert [len(rows) for rows in asked] == [12] * asks
    assert not one.sums.any()  # the next epoch is counted afresh
    one.compare(run, torch.full((12,), 0.9))
    assert bool(one.awake) == wakes  # for good, and φ stays that which woke it up
    assert float(one.by_heart) == pytest.approx((m - unseen) / (1 - unseen) if wakes else -9, abs=1e-5)


def test_as_many_are_asked_again_as_are_held_out(make_run: MakeRun) -> None:
    """Examples of the training set, others after each epoch, drawn without the generator of the run."""
    run, asked = make_run(n=40), []
    state, everyone, predict = run.generator.get_state(), run.predict(), run.predict

    def recorded(index: Tensor) -> Tensor:
        asked.append(index)
        return predict(index=index)

    run.predict = recorded  # type: ignore[method-assign,assignment]
    for run.epoch in (1, 1, 2):
        found, rows = shown_now(run, 12), asked[-1]
        assert len(set(rows.tolist())) == 12
        torch.testing.assert_close(found, everyone[rows, run.data.labels[rows]])
    assert torch.equal(asked[0], asked[1])
    assert not torch.equal(asked[0].sort().values, asked[2].sort().values)
    assert len(shown_now(run, 100)) == 40
    assert torch.equal(asked[-1].sort().values, torch.arange(40))
    assert torch.equal(run.generator.get_state(), state)


def test_too_few_to_tell_never_wake_and_fixed_rates_are_awake_from_the_start(make_run: MakeRun) -> None:
    generator = torch.Generator()
    assert [int(Waking(n, generator).watching.sum()) for n in (99, 100)] == [0, 10]
    assert [int(Waking(N, generator, val=val).watching.sum()) for val in (9, 10)] == [100, 0]
    few, label = Waking(50, generator, val=9), torch.zeros(50, dtype=torch.int64)
    p = F.one_hot(label, K).float()
    run = make_run()
    run.val, run.epoch = run.data, 1
    for _ in range(3):
        assert few.see(p, p, label, torch.arange(50)).all()
        few.before_epoch(run)
    assert few.figures() == {"awake": 0.0}
    assert Waking(N, generator, automatic=False).awake
    assert SOPLoss(N, K, lr_u=1.0, lr_v=1.0).model.waking.awake
    assert ELRLoss(N, K, lam=3.0).waking.awake


@pytest.mark.parametrize(
    "make", [partial(SOPLoss, lr_u="follow", lr_v="follow"), partial(ELRLoss, beta=0.9, lam="auto")]
)
def test_asleep_a_loss_is_cross_entropy_and_awake_it_is_not(make: partial) -> None:
    criterion = make(N, K, reduction="none")
    part = criterion.model if make.func is SOPLoss else criterion
    generator = torch.Generator().manual_seed(1)
    logits, label, index = torch.randn(N, K, generator=generator), torch.arange(N) % K, torch.arange(N)
    expected = F.cross_entropy(logits, label, reduction="none") * ~part.waking.watching
    for _ in range(3):
        torch.testing.assert_close(criterion(logits.requires_grad_(), label, index), expected)
        if make.func is SOPLoss:
            assert not criterion.model.explained(label).any()
            criterion.step()
    part.waking.awake.fill_(True)
    changed = (criterion(logits, label, index) - F.cross_entropy(logits, label, reduction="none")).abs() > 0.1
    p = logits.softmax(dim=1)
    given = p.gather(1, label[:, None])[:, 0]
    assert changed[p.max(dim=1).values - given > 0.3].all()  # clearly contradicted, four times
    assert not changed[given > 0.5].any()


@pytest.mark.parametrize(("lam", "automatic"), [(3.0, False), ("auto", True)])
def test_elr_waits_where_it_is_asked_to(make_run: MakeRun, lam: float | str, automatic: bool) -> None:
    method, run = ELR(lam=lam), make_run(n=600)
    method.start(run)
    assert method.waking.automatic == automatic
    assert bool(method.waking.awake) != automatic


@pytest.mark.slow
@pytest.mark.parametrize("method", ["sop(lr_u='follow', lr_v='follow')", "elr(lam='auto', beta=0.9)"])
@pytest.mark.parametrize("val", [0.1, None])
def test_digits_wake_once_they_are_memorised(method: str, val: float | None) -> None:
    """Two epochs on digits leave them asleep; with 40 % noise they wake before half of it is memorised, and undo it."""
    data = noise.apply(load("digits"), "symmetric:0.4")
    options = {"batch_size": 64, "lr": 0.05, "val": val, "device": "cpu"}
    assert fit("mlp", data, method, epochs=2, **options).history[-1]["awake"] == 0
    history = fit("mlp", data, method, epochs=60, **options).history
    woke = next(number for number, record in enumerate(history) if record["awake"])
    assert history[woke]["train_memorised"] < 0.5
    assert history[-1]["train_memorised"] < 0.25


def test_sop_tells_what_was_said_at_a_visit_apart_from_its_mean() -> None:
    """m is of the predictions of each visit, how sure it is of their mean."""
    loss, label, index = SOPLoss(N, K), torch.arange(40) % K, torch.arange(40)
    shown = ~loss.model.waking.watching[:40]
    given, generator = 0.0, torch.Generator().manual_seed(0)
    for _ in range(3):
        logits = 3 * torch.randn(40, K, generator=generator)
        loss(logits, label, index)
        loss.step()
        given += float(logits.softmax(dim=1)[shown, label[shown]].sum())
    assert float(loss.model.waking.sums[0, 1]) == pytest.approx(given, rel=1e-5)

"""`auto`: its equations against slow twins, and when it turns robust."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest
import torch
from reference import auto as reference
from torch import nn

from noiseproof.auditing import left_out, posterior
from noiseproof.data import LabeledData, load, noise
from noiseproof.data.packing import Tokens
from noiseproof.method import Batch, Run
from noiseproof.methods import auto, waking
from noiseproof.methods.auto import (
    HOLDS,
    TAUGHT,
    WAITS,
    Auto,
    balance,
    by_label,
    class_shares,
    corrected,
    found_transition,
    held_to,
    mixture,
    refined,
    uneven,
    with_gradient,
)
from noiseproof.methods.elr import believed
from noiseproof.methods.mixup import sample_lam
from noiseproof.models import parts
from noiseproof.training.fit import fit


def same_with_gradient(ours: tuple[torch.Tensor, torch.Tensor], slow: torch.Tensor, logits: torch.Tensor) -> None:
    """A loss, of each example or of all, and its W (B, K), against a twin that torch differentiates."""
    value, w = ours
    torch.testing.assert_close(value, slow.detach())
    weight = torch.linspace(1, 2, value.numel(), dtype=torch.float64).reshape(value.shape)
    whole = with_gradient((weight * value).sum(), logits.log_softmax(dim=1), weight.reshape(-1, 1) * w)
    assert float(whole.detach()) == pytest.approx(float((weight * slow.detach()).sum()), rel=1e-12)
    (one,) = torch.autograd.grad(whole, logits)
    (other,) = torch.autograd.grad((slow * weight).sum(), logits)
    torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("q", [0.0, 0.3, 0.7])
def test_loss_and_gradient(q: float) -> None:
    torch.manual_seed(0)
    logits = (3 * torch.randn(6, 4, dtype=torch.float64)).requires_grad_()
    label = torch.tensor([0, 1, 2, 3, 3, 0])
    T = torch.softmax(torch.randn(4, 4, dtype=torch.float64) + 3 * torch.eye(4), dim=1)
    ours = corrected(logits.detach().softmax(dim=1), by_label(T)[label], q)
    same_with_gradient(ours, reference.loss(logits, label, T, q), logits)


def test_at_first_it_is_cross_entropy() -> None:
    torch.manual_seed(0)
    logits, label = torch.randn(5, 3, dtype=torch.float64), torch.tensor([0, 1, 2, 0, 1])
    found, w = corrected(logits.softmax(dim=1), by_label(torch.eye(3))[label], 0.0)
    ce = torch.nn.functional.cross_entropy(logits, label, reduction="none")
    torch.testing.assert_close(found, ce, atol=1e-4, rtol=1e-4)  # T is not below 1e-6
    torch.testing.assert_close(w, torch.eye(3, dtype=torch.float64)[label], atol=1e-4, rtol=1e-4)


def test_mean_predictions_are_held_to_shares() -> None:
    torch.manual_seed(0)
    logits = (3 * torch.randn(5, 4, dtype=torch.float64)).requires_grad_()
    shares = torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64)
    same_with_gradient(balance(logits.detach().softmax(dim=1), shares), reference.balance(logits, shares), logits)
    lost = torch.tensor([[1.0, 0.0], [1.0, 0.0]])  # a class that single precision gives nothing
    assert all(part.isfinite().all() for part in balance(lost, torch.tensor([0.5, 0.5])))


def test_held_to_what_it_came_to_believe() -> None:
    """Where probabilities are clamped, there is no gradient by them."""
    torch.manual_seed(0)
    logits = (3 * torch.randn(6, 4, dtype=torch.float64)).requires_grad_()
    logits.data[:2] *= 6
    p = logits.detach().softmax(dim=1)
    assert (p[:2] > 1 - 1e-4).any()
    assert (p[:2] < 1e-4).any()
    mean, label = torch.rand(6, 4, dtype=torch.float64).softmax(dim=1), torch.tensor([0, 1, 2, 3, 3, 0])
    held = [True, True, True, False, True, False]
    ours = held_to(p.log(), label, mean, torch.tensor(held))
    same_with_gradient(ours, reference.holding(logits, label, mean, held), logits)


def noisy_digits(kind: str | None, n: int = 1200) -> LabeledData:
    data = load("digits").limit(n)
    return data if kind is None else noise.apply(data, kind, seed=0)


@pytest.mark.parametrize("K", [2, 3, 10])
def test_uneven_leaves_what_is_not_alike(K: int) -> None:
    alike = 0.6 * np.eye(K) + 0.4 / (K - 1) * (1 - np.eye(K))
    np.testing.assert_allclose(uneven(alike), np.eye(K), atol=1e-12)
    one_way = np.eye(K)
    one_way[0, :2] = 0.7, 0.3
    np.testing.assert_allclose(uneven(one_way), one_way)
    drawn = np.random.default_rng(0).dirichlet(np.ones(K), K)
    np.testing.assert_allclose(uneven(drawn), reference.uneven(drawn.tolist()))


MakeRun = Callable[..., Run]


def test_transition_counts_what_is_right_by_label() -> None:
    rng = np.random.default_rng(0)
    right, labels = rng.dirichlet(np.ones(4), 50), rng.integers(0, 3, 50)  # no label is 3
    found = found_transition(right, labels)
    np.testing.assert_allclose(found, reference.transition(right.tolist(), labels.tolist()), rtol=1e-5)
    np.testing.assert_allclose(found.sum(axis=1), 1, rtol=1e-5)


@pytest.mark.parametrize(("kind", "rate"), [("symmetric:0.4", 0.4), ("derangement:0.4", 0.4), (None, 0.0)])
def test_noise_is_known_before_the_first_step(kind: str | None, rate: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the labels of the others; of right labels it is next to nothing."""
    looked = []

    def features(*given: object, inputs: bool) -> torch.Tensor:
        assert inputs
        looked.append(parts.given_to_head(*given, inputs=inputs))  # type: ignore[arg-type]
        return looked[-1]

    monkeypatch.setattr(auto, "given_to_head", features)
    monkeypatch.setattr(waking, "_MEMORISED", -1.0)  # as soon as it can be told
    result = fit("mlp", noisy_digits(kind), "auto", epochs=4, lr=0.05, seed=0)
    method, labels = result.method, result.run.data.labels.numpy()
    assert isinstance(method, Auto)
    assert len(looked) == 1
    assert [record["noise_estimate"] > 0 for record in result.history] == [False, False, True, True]
    assert [record["awake"] for record in result.history] == [0, 0, 1, 1]
    assert not any(record["holds"] for record in result.history)
    said = left_out.said(looked[0].numpy(), labels, 10)
    right = posterior.fit(labels, [said]).posterior([said], labels)
    assert float(method.rate) == pytest.approx(1 - right[np.arange(len(labels)), labels].mean(), abs=1e-4)
    np.testing.assert_allclose(method.transition, reference.transition(right.tolist(), labels.tolist()), atol=1e-4)
    np.testing.assert_allclose(method.confusion, reference.uneven(method.transition.double().tolist()), atol=1e-6)
    assert float(method.rate) == pytest.approx(rate, abs=0.05)
    assert result.history[-1]["noise_estimate"] == pytest.approx(float(method.rate))
    assert result.history[-1]["robustness"] == pytest.approx(min(0.7, 4 * float(method.rate)))
    assert result.history[-1]["examples"] == len(labels)  # none is left out


class Led(NamedTuple):
    """What a method did in a run."""

    stages: list[int]  # in each epoch
    weights: list[int]  # which epoch's weights it has in each epoch
    estimated: list[np.ndarray]  # what the network had said, where it goes by that
    compared: list[int]  # in which epochs it asked the validation set
    between: list[int]  # in which it asked whether examples can be mixed


def led(
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
    wakes: int,
    *,
    share: float = 0.7,
    surprises: tuple[float, ...] = (2.0,),
    others: float = 1.0,
    well: bool = True,
    val: bool = True,
) -> Led:
    """A method led through a run where the network memorises from so many epochs on.

    `share`: of what lies between examples; `surprises`: S_1, S_2, …, the last for ever; `others`: S;
    `well`: whether the others know the classes well.
    """
    run.val = run.data if val else None
    method, weight = Auto(), next(run.model.parameters())
    method.start(run)
    told = Led([], [], [], [], [])

    def look(self: Auto, run: Run) -> None:
        self.surprise[0] = others
        self.well.fill_(well)

    def wake() -> None:
        method.waking.awake.fill_(run.epoch >= wakes)

    def compare(self: waking.Waking, run: Run, given: torch.Tensor) -> None:
        assert len(given) == 600
        told.compared.append(run.epoch)
        wake()

    def between(run: Run) -> float:
        told.between.append(run.epoch)
        return share

    def held_out(run: Run) -> torch.Tensor:
        return torch.tensor(math.exp(-surprises[min(run.epoch, len(surprises)) - 1])).repeat(600)

    monkeypatch.setattr(Auto, "_look", look)
    monkeypatch.setattr(Auto, "_estimate", lambda self, model, said, labels: told.estimated.append(said))
    monkeypatch.setattr(auto, "share_between", between)
    monkeypatch.setattr(auto, "held_out", held_out)
    monkeypatch.setattr(waking.Waking, "compare", compare)
    epochs = run.epochs
    for run.epoch in range(epochs):
        if not val:  # it is told by those that stand watch, in a step
            wake()
        with torch.no_grad():
            weight.fill_(run.epoch)
        method.mean.fill_(run.epoch / 100)
        method.mean[:, 0] = run.epoch
        method.before_epoch(run)
        told.stages.append(int(method.stage))
        told.weights.append(int(weight.flatten()[0]))
    return told


def from_epoch(begins: int, stage: int, epochs: int = 16) -> list[int]:
    """The stage in each epoch, where one begins after so many."""
    return [WAITS] * min(begins, epochs) + [stage] * (epochs - begins)


@pytest.mark.parametrize(
    ("wakes", "begins", "back"),
    [(1, 2, 1), (2, 2, 1), (3, 3, 2), (4, 4, 2), (8, 8, 4), (9, 9, 8), (12, 12, 8), (13, 13, 13), (99, 99, 0)],
)
@pytest.mark.parametrize(("share", "stage"), [(0.7, TAUGHT), (0.69, HOLDS)])
@pytest.mark.parametrize("val", [True, False])
def test_once_the_network_memorises_it_teaches_or_holds(
    make_run: MakeRun,
    monkeypatch: pytest.MonkeyPatch,
    wakes: int,
    begins: int,
    back: int,
    share: float,
    stage: int,
    val: bool,
) -> None:
    """For good. To teach it goes back to the last power of two of 16 epochs, if as many are left: 13 would undo 5."""
    told = led(make_run(n=600, epochs=16), monkeypatch, wakes, share=share, val=val)
    assert told.stages == from_epoch(begins, stage)
    assert told.weights == [back if epoch == begins and stage == TAUGHT else epoch for epoch in range(16)]
    assert not told.estimated  # the others are believed
    assert told.between == [begins] * (begins < 99)
    assert told.compared == list(range(1, min(begins, 15) + 1)) * val  # and no more from then on


@pytest.mark.parametrize(
    ("surprises", "begins", "between"),
    [
        ((1.09, 1.09), 2, [2]),  # level with the others, and settled
        ((1.3, 1.11, 1.11, 1.09), 4, [4]),  # not level before
        ((1.2, 1.0, 0.94, 0.9), 4, [4]),  # getting better by more than a twentieth before
        ((1.2, 0.79, 0.85, 0.85), 99, []),  # it has outrun them once, and they are not believed any more
        ((2.0,), 99, []),  # never level
    ],
)
@pytest.mark.parametrize(
    ("share", "well", "val"),
    [(0.7, True, True), (0.69, True, True), (0.77, False, True), (0.78, False, True), (0.7, True, False)],
)
def test_it_begins_where_examples_can_be_mixed_once_it_is_level_with_the_others_and_has_settled(
    make_run: MakeRun,
    monkeypatch: pytest.MonkeyPatch,
    surprises: tuple[float, ...],
    begins: int,
    between: list[int],
    share: float,
    well: bool,
    val: bool,
) -> None:
    """As labels held out tell; where examples cannot be mixed, or others know little, it may learn much, and waits."""
    told = led(make_run(n=600, epochs=16), monkeypatch, 99, surprises=surprises, share=share, well=well, val=val)
    teaches = val and share >= (0.7 if well else 0.78)
    assert told.stages == from_epoch(begins, TAUGHT if teaches else WAITS)
    assert told.weights == [begins // 2 if epoch == begins and teaches else epoch for epoch in range(16)]
    assert told.between[:1] == between * val
    assert not told.estimated


@pytest.mark.parametrize(
    ("surprises", "others", "itself"),
    [
        ((1.2, 1.1, 1.0), 1.0, False),
        ((1.2, 1.0, 0.81), 1.0, False),  # better than the others, but not by a fifth
        ((0.79, 1.5), 1.0, True),  # it has outrun them once, and they are not believed any more
        ((1.5, 1.5, 0.79), 1.0, True),
        ((1.5, 1.5, 1.5, 0.79), 1.0, False),  # after it began
        ((1.0,), math.nan, True),  # they do not know the classes
    ],
)
@pytest.mark.parametrize(("share", "stage"), [(0.7, TAUGHT), (0.69, HOLDS)])
def test_the_others_are_believed_unless_the_network_has_outrun_them(
    make_run: MakeRun,
    monkeypatch: pytest.MonkeyPatch,
    surprises: tuple[float, ...],
    others: float,
    itself: bool,
    share: float,
    stage: int,
) -> None:
    """Else it goes by what it had said by the epoch that it goes back to, the second; holding, by neither."""
    run = make_run(n=600, epochs=8)
    told = led(run, monkeypatch, 3, share=share, surprises=surprises, others=others)
    assert told.stages == from_epoch(3, stage, 8)
    assert len(told.estimated) == (itself and stage == TAUGHT)
    for said in told.estimated:
        np.testing.assert_allclose(said, np.tile([2 / 2.04, 0.02 / 2.04, 0.02 / 2.04], (600, 1)), rtol=1e-6)


def test_it_looks_once_before_the_first_step(make_run: MakeRun, monkeypatch: pytest.MonkeyPatch) -> None:
    """And believes what it sees only if the classes are known."""
    run, looked = make_run(n=600, epochs=8), []
    drawn = torch.randn(600, 8, generator=torch.Generator().manual_seed(0))
    for told in (4, 0):

        def features(network: nn.Module, *_: object, inputs: bool, told: int = told) -> torch.Tensor:
            assert network is run.model
            assert inputs
            looked.append(run.epoch)
            return drawn + told * nn.functional.one_hot(run.data.labels, 8)

        monkeypatch.setattr(auto, "given_to_head", features)
        method = Auto()
        method.start(run)
        for run.epoch in range(8):
            method.before_epoch(run)
        assert math.isnan(method.surprise[0]) is (told == 0)
        assert method.stage == WAITS  # nothing was trained on, nor learned by heart
    assert looked == [0, 0]


def test_held_out_labels_have_their_probabilities(make_run: MakeRun) -> None:
    run = make_run(n=20, epochs=8)
    assert run.val is not None
    p, labels = run.predict(run.val), run.val.labels.tolist()
    assert waking.held_out(run).tolist() == pytest.approx([float(p[i, y]) for i, y in enumerate(labels)])
    run.held_out = torch.arange(60.0).reshape(20, 3)  # what is known already is not asked again
    assert waking.held_out(run).tolist() == [3 * i + y for i, y in enumerate(labels)]


@pytest.mark.parametrize(
    ("sure", "known", "well"), [(180, True, True), (179, True, False), (90, True, False), (89, False, False)]
)
def test_the_others_know_the_classes_when_some_are_sure(
    make_run: MakeRun, monkeypatch: pytest.MonkeyPatch, sure: int, known: bool, well: bool
) -> None:
    """Of 600 examples 15 % are 90; and well when 30 % are."""
    run, method = make_run(n=600, epochs=8), Auto()
    method.start(run)
    r = np.full((600, 3), 0.05)
    r[:, 0] = 0.9
    r[sure:] = 0.89, 0.06, 0.05

    class Said:
        def right(self, _: object) -> np.ndarray:
            return r

        def posterior(self, _: object, __: object) -> np.ndarray:
            return r

        def given(self, _: object) -> np.ndarray:
            return r

    monkeypatch.setattr(posterior, "fit", lambda *_: Said())
    method.before_epoch(run)
    own = -np.log(r[np.arange(600), run.data.labels.numpy()]).mean()
    assert float(method.surprise[0]) == pytest.approx(own, rel=1e-5) if known else math.isnan(method.surprise[0])
    assert (method.rate > 0) == known
    assert bool(method.well) is well


def test_without_held_out_labels_some_stand_watch(make_run: MakeRun) -> None:
    """They are looked at, and not trained on, until the network memorises; then it begins."""
    run, method = make_run(n=600, epochs=8, val=None), Auto()
    method.start(run)
    watching = method.waking.watching
    assert int(watching.sum()) == 60
    everyone, labels = torch.arange(600), run.data.labels
    x = run.data.take(everyone)
    run.model.train()
    each = nn.functional.cross_entropy(run.model(x).detach(), labels, reduction="none")
    loss = method.loss(run, Batch((x,), labels, everyone))
    assert float(loss.detach()) == pytest.approx(float(each[~watching].sum() / 600), rel=1e-5)
    for run.epoch in (1, 2):
        method.before_epoch(run)
    assert method.stage == WAITS
    method.waking.awake.fill_(True)
    method.before_epoch(run)
    assert method.stage != WAITS
    assert method.waking.trained_on(everyone).all()


@pytest.mark.parametrize(
    ("n", "classes", "tokens", "looks"), [(200, 3, False, 1), (199, 3, False, 0), (200, 2, False, 0), (200, 3, True, 0)]
)
def test_of_few_examples_and_what_cannot_be_mixed_it_learns_nothing_of_the_noise(
    make_run: MakeRun, monkeypatch: pytest.MonkeyPatch, n: int, classes: int, tokens: bool, looks: int
) -> None:
    run, method, looked = make_run(n=n, num_classes=classes, epochs=8), Auto(), []
    method.start(run)
    if tokens:
        run.data = LabeledData(Tokens([[1, 2, 3]] * n), run.data.labels)
    monkeypatch.setattr(Auto, "_look", lambda *_: looked.append(1))
    method.before_epoch(run)
    assert len(looked) == looks


@pytest.mark.parametrize(("n", "val"), [(400, 0.1), (199, None)])
def test_as_long_as_the_noise_is_not_known_it_is_cross_entropy_to_the_bit(n: int, val: float | None) -> None:
    """While the network does not memorise; and of few examples, all of which are trained on."""
    weights = [
        fit("mlp", noisy_digits("symmetric:0.4", n), method, val=val, epochs=3, lr=0.05, seed=0).run.model.state_dict()
        for method in ("auto", "ce")
    ]
    for name, one in weights[0].items():
        assert torch.equal(one, weights[1][name])


@pytest.mark.parametrize(
    ("stage", "val", "counted"), [(WAITS, True, 12), (WAITS, False, 12), (TAUGHT, True, 0), (HOLDS, True, 0)]
)
def test_visits_are_counted_until_it_begins(make_run: MakeRun, stage: int, val: bool, counted: int) -> None:
    run, method = make_run(n=12, epochs=8), Auto()
    run.val = run.val if val else None
    method.start(run)
    method.stage.fill_(stage)
    everyone = torch.arange(12)
    x = run.data.take(everyone)
    run.model.train()
    p = run.model(x).detach().softmax(dim=1)[everyone, run.data.labels]
    method.loss(run, Batch((x,), run.data.labels, everyone))
    sums = [12.0, float(p.sum()), float(p.square().sum())] if counted else [0.0] * 3
    assert method.waking.sums[0].tolist() == pytest.approx(sums, rel=1e-4)


def test_of_many_examples_some_are_asked_about(make_run: MakeRun, monkeypatch: pytest.MonkeyPatch) -> None:
    run, method, asked = make_run(n=600, epochs=8), Auto(), []
    state = run.generator.get_state()
    method.start(run)
    assert torch.equal(method.asked, torch.arange(600))
    assert torch.equal(run.generator.get_state(), state)  # nothing is drawn
    monkeypatch.setattr(auto, "MOST", 550)
    method.start(run)
    assert torch.equal(method.asked, method.asked.unique())
    assert len(method.asked) == 550
    assert not torch.equal(method.asked, torch.arange(550))

    def features(*given: object, inputs: bool) -> torch.Tensor:
        asked.append(given[-1])
        return torch.zeros(550, 2)

    monkeypatch.setattr(auto, "given_to_head", features)
    method.before_epoch(run)
    assert torch.equal(asked[0], method.asked)
    assert torch.equal(run.generator.get_state(), state)


def says(run: Run, labels: torch.Tensor, epoch: int) -> torch.Tensor:
    """What a network might say of labels (m,) after an epoch: more for right ones, and never the same twice."""
    drawn = torch.rand(len(labels), run.num_classes, generator=torch.Generator().manual_seed(epoch))
    return (3 * torch.nn.functional.one_hot(labels, run.num_classes) * (torch.arange(len(labels)) % 4 > 0)[:, None]
            + 2 * drawn).softmax(dim=1)  # fmt: skip


@pytest.mark.parametrize(("stage", "told"), [(WAITS, [0, 0, 0, 0]), (TAUGHT, [0.05, 0.2, 0, 1]), (HOLDS, [0, 0, 1, 1])])
def test_figures(make_run: MakeRun, stage: int, told: list[float]) -> None:
    run, method = make_run(n=600), Auto()
    method.start(run)
    method.rate.fill_(0.05)
    method.stage.fill_(stage)
    figures = method.figures(run)
    assert "by_heart" not in figures  # nothing is compared yet
    names = ["noise_estimate", "robustness", "holds", "awake"]
    assert sorted(figures) == sorted(names)
    assert [figures[name] for name in names] == pytest.approx(told)


def test_a_step_and_what_is_believed_after_it(make_run: MakeRun) -> None:
    run, method = make_run(n=12, epochs=8), Auto()
    method.start(run)
    everyone = torch.arange(12)
    U = torch.softmax(torch.randn(3, 3, generator=torch.Generator().manual_seed(1)) + 2 * torch.eye(3), dim=1)
    method.confusion.copy_(U)
    method.transition.copy_(U.flip(0))
    method.mean[:] = before = says(run, run.data.labels, 0)
    weight = torch.linspace(0.5, 1.5, 12)
    run.epoch = 1  # too early for mixtures
    for stage, rate, q in ((WAITS, 0.3, 0.0), (TAUGHT, 0.0, 0.0), (TAUGHT, 0.05, 0.2), (TAUGHT, 0.3, 0.7)):
        method.stage.fill_(stage)
        method.rate.fill_(rate)
        method._plan = None
        method.mean.copy_(before)
        x = run.data.take(everyone)
        logits = run.model(x).detach()
        run.model.train()
        loss = method.loss(run, Batch((x,), run.data.labels, everyone, weight))
        used = U if stage == TAUGHT else torch.eye(3)
        expected = (reference.loss(logits.double(), run.data.labels, used.double(), q) * weight).mean()
        assert float(loss.detach()) == pytest.approx(float(expected), rel=1e-4)
        torch.testing.assert_close(method.mean, 0.9 * before + 0.1 * logits.softmax(dim=1), rtol=1e-4, atol=1e-5)
    method.rate.zero_()
    assert float(method.loss(run, Batch((x,), run.data.labels, everyone, weight)).detach()) == pytest.approx(
        float(expected), rel=1e-4
    )  # until the next epoch
    method.mean[3:] = 0
    predicted = says(run, run.data.labels, 5)
    for stage in (WAITS, HOLDS):
        method.stage.fill_(stage)
        found, plain = method.beliefs(run, predicted), believed(method.mean, predicted, run.data.labels)
        assert torch.equal(found.soft_label, plain.soft_label)
        assert torch.equal(found.suspicion, plain.suspicion)
    method.stage.fill_(TAUGHT)
    found = method.beliefs(run, predicted)
    for i, y in enumerate(run.data.labels.tolist()):
        said = method.mean[i] if i < 3 else predicted[i]
        joint = [float(said[k] * U.flip(0)[k, y]) for k in range(3)]
        np.testing.assert_allclose(found.soft_label[i], np.array(joint) / sum(joint), rtol=1e-4)
        assert float(found.suspicion[i]) == pytest.approx(1 - joint[y] / sum(joint), abs=1e-5)


def test_no_label_is_impossible() -> None:
    p = torch.tensor([[1e-12, 1 - 1e-12, 1e-13]], dtype=torch.float64)
    value, w = corrected(p, by_label(torch.eye(3))[[0]], 0.0)
    assert float(value) == pytest.approx(-np.log(1e-6), abs=1e-4)
    torch.testing.assert_close(w, p, rtol=0, atol=1e-5)  # that label tells nothing


def test_a_label_that_its_class_never_carries_is_believed_a_millionth(make_run: MakeRun) -> None:
    run, method = make_run(n=2, num_classes=2), Auto()
    method.start(run)
    run.data.labels = torch.tensor([0, 0])
    method.stage.fill_(TAUGHT)
    found = method.beliefs(run, torch.tensor([[1e-5, 1 - 1e-5], [0.5, 0.5]]))
    np.testing.assert_allclose(found.suspicion, [1 / 11, 1e-6], rtol=0.1)


@pytest.mark.parametrize("q", [0.0, 0.35])
def test_mixtures_and_their_gradient(q: float) -> None:
    torch.manual_seed(0)
    logits = (3 * torch.randn(5, 4, dtype=torch.float64)).requires_grad_()
    target = torch.rand(5, 4, dtype=torch.float64)  # not of sum 1 where examples have weights
    ours = mixture(logits.detach().log_softmax(dim=1), target, q)
    same_with_gradient(ours, reference.mixture_loss(logits, target, q), logits)


def test_refined_labels_are_those_of_bayes_squared() -> None:
    torch.manual_seed(0)
    mean, T = torch.rand(6, 3, dtype=torch.float64), torch.rand(3, 3, dtype=torch.float64).softmax(dim=1)
    mean[4] = 0  # never visited: by T alone
    label = torch.tensor([0, 1, 2, 2, 1, 0])
    slow = reference.refined(mean.tolist(), label.tolist(), T.tolist())
    np.testing.assert_allclose(refined(mean, by_label(T)[label]), slow, rtol=1e-9)
    np.testing.assert_allclose(slow[4], (T[:, 1].square() / T[:, 1].square().sum()).numpy(), rtol=1e-9)


def test_class_shares_are_those_that_make_the_labels() -> None:
    T = torch.tensor([[0.6, 0.4, 0.0], [0.0, 1.0, 0.0], [0.1, 0.1, 0.8]], dtype=torch.float64)
    shares = torch.tensor([0.5, 0.2, 0.3], dtype=torch.float64)
    counts = (1000 * T.T @ shares).round().long()
    labels = torch.repeat_interleave(torch.arange(3), counts)
    found = class_shares(T, labels)
    np.testing.assert_allclose(found, reference.class_shares(T.tolist(), labels.tolist()), rtol=1e-9)
    half_way = shares.sqrt() / shares.sqrt().sum()
    torch.testing.assert_close(found, half_way, atol=0.01, rtol=0)  # the labels' are 0.33, 0.43 and 0.24
    found = class_shares(torch.eye(3), torch.tensor([0, 0, 0, 0, 1, 2]))
    torch.testing.assert_close(found, torch.tensor([0.5, 0.25, 0.25]))


def taught_method(run: Run, rate: float, epoch: int = 3) -> Auto:
    """A method in the midst of a run of eight epochs, with T known, that teaches itself."""
    method = Auto()
    method.start(run)
    drawn = torch.randn(3, 3, generator=torch.Generator().manual_seed(1))
    method.confusion.copy_(torch.softmax(drawn + 2 * torch.eye(3), dim=1))
    method.transition.copy_(method.confusion.flip(0))
    method.mean[:] = says(run, run.data.labels, 0)
    method.rate.fill_(rate)
    method.stage.fill_(TAUGHT)
    run.epoch = epoch
    return method


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("rate", "mixed"), [(0.3, 6), (0.0875, 3), (0.0, 0)])
def test_a_step_with_mixtures(make_run: MakeRun, rate: float, mixed: int, weighted: bool) -> None:
    """Half of a batch where there is much noise, the less the fewer labels are wrong, and none without."""
    run = make_run(n=12, epochs=8)
    method, q, plain = taught_method(run, rate), min(0.7, 4 * rate), 12 - mixed
    everyone, label = torch.arange(12), run.data.labels
    weight = torch.linspace(0.5, 1.5, 12) if weighted else None
    before = method.mean.clone()
    x = run.data.take(everyone)
    lam = sample_lam(4.0, torch.Generator().set_state(run.generator.get_state())) if mixed else 1.0
    drawn = run.generator.get_state()
    inputs = (
        torch.cat([x[:plain], torch.stack([lam * x[plain + j] + (1 - lam) * x[j] for j in range(mixed)])])
        if mixed
        else x
    )
    run.model.train()
    state = {name: value.clone() for name, value in run.model.state_dict().items()}
    logits = run.model(inputs)
    p = logits.detach().softmax(dim=1)
    after = before.clone()
    after[:plain] = 0.7 * before[:plain] + 0.3 * p[:plain]
    target = torch.tensor(reference.refined(after.tolist(), label.tolist(), method.transition.tolist()))
    w = torch.ones(12) if weight is None else weight
    each = reference.loss(logits[:plain].double(), label[:plain], method.confusion.double(), q) * w[:plain]
    if mixed:
        soft = torch.stack([
            lam * w[plain + j] * target[plain + j] + (1 - lam) * w[j] * target[j] for j in range(mixed)
        ])  # fmt: skip
        each = torch.cat([each, reference.mixture_loss(logits[plain:].double(), soft, q / 2)])
    expected = each.mean()
    if weight is None:
        shares = torch.tensor(reference.class_shares(method.transition.tolist(), label.tolist()))
        expected = expected + 0.5 * q / 0.7 * reference.balance(logits.double(), shares)
    parameters = list(run.model.parameters())
    gradients = torch.autograd.grad(expected, parameters)
    run.model.load_state_dict(state)
    loss = method.loss(run, Batch((x,), label, everyone, weight))
    torch.testing.assert_close(method.mean, after, rtol=1e-4, atol=1e-5)
    assert float(loss.detach()) == pytest.approx(float(expected.detach()), rel=1e-4)
    for one, other in zip(torch.autograd.grad(loss, parameters), gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5)
    assert torch.equal(run.generator.get_state(), drawn) is (mixed == 0)


@pytest.mark.parametrize(
    ("stage", "epoch", "mixes"),
    [(TAUGHT, 1, False), (TAUGHT, 2, True), (TAUGHT, 9, True), (WAITS, 9, False), (HOLDS, 9, False)],
)
def test_it_mixes_where_it_teaches_once_a_fifth_is_over(make_run: MakeRun, stage: int, epoch: int, mixes: bool) -> None:
    run = make_run(n=12, epochs=10)
    method = taught_method(run, 0.3, epoch)
    method.stage.fill_(stage)
    assert method._planned(run) == (stage, 0.7 if stage == TAUGHT else 0.0, mixes)
    drawn = run.generator.get_state()
    everyone = torch.arange(12)
    method.loss(run, Batch((run.data.take(everyone),), run.data.labels, everyone))
    assert torch.equal(run.generator.get_state(), drawn) is not mixes


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("size", [20, 200])  # what is clear: by a tenth, and by more where it is known how sure it is
def test_a_step_that_holds(make_run: MakeRun, size: int, weighted: bool) -> None:
    """To the running means where these clearly contradict the label, else it is cross-entropy."""
    run = make_run(n=400, epochs=8)
    method = taught_method(run, 0.3).double()
    method.stage.fill_(HOLDS)
    method.waking.awake.fill_(True)
    run.model.double().train()
    with torch.no_grad():
        run.model.head.weight.mul_(20)  # so that some probabilities are clamped
    rows, before = torch.arange(400 - size, 400), 0.5 * method.mean.clone()  # half of its memory is filled
    method.mean.copy_(before)
    x, label = run.data.take(rows).double(), run.data.labels[rows]
    weight = torch.linspace(0.5, 1.5, size, dtype=torch.float64) if weighted else None
    logits = run.model(x)
    p = logits.detach().softmax(dim=1)
    assert (p < 1e-4).any()
    before[rows] = 0.9 * before[rows] + 0.1 * p
    mean = before[rows] / before[rows].sum(dim=1, keepdim=True)
    sure = size / 400 * reference.sureness(mean, label)
    assert (0.4 * sure > 0.1) is (size == 200)
    held = reference.held(mean, label, sure)
    assert 0 < sum(held) < size
    each = reference.holding(logits, label, mean, held)
    expected = (each if weight is None else each * weight).mean()
    loss = method.loss(run, Batch((x,), label, rows, weight))
    torch.testing.assert_close(method.mean, before, rtol=1e-10, atol=0)
    assert float(method.waking.sure) == pytest.approx(sure, rel=1e-9)
    torch.testing.assert_close(loss, expected, rtol=1e-9, atol=0)
    parameters = list(run.model.parameters())
    gradients = (torch.autograd.grad(one, parameters) for one in (loss, expected))
    for ours, slow in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, slow, rtol=1e-8, atol=1e-12)

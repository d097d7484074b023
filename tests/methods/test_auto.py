"""`auto`: its equations against slow twins, and when it turns robust."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from reference import auto as reference
from torch import nn

from noiseproof.auditing import left_out, posterior
from noiseproof.data import LabeledData, load, noise
from noiseproof.method import Batch, Beliefs, Run
from noiseproof.methods import auto, waking
from noiseproof.methods.auto import (
    Auto,
    balance,
    by_label,
    class_shares,
    corrected,
    found_transition,
    mixture,
    refined,
    uneven,
    with_gradient,
)
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
    said = left_out.said(looked[0].numpy(), labels, 10)
    right = posterior.fit(labels, [said]).posterior([said], labels)
    assert float(method.rate) == pytest.approx(1 - right[np.arange(len(labels)), labels].mean(), abs=1e-4)
    np.testing.assert_allclose(method.transition, reference.transition(right.tolist(), labels.tolist()), atol=1e-4)
    np.testing.assert_allclose(method.confusion, reference.uneven(method.transition.double().tolist()), atol=1e-6)
    assert float(method.rate) == pytest.approx(rate, abs=0.05)
    assert result.history[-1]["noise_estimate"] == pytest.approx(float(method.rate))
    assert result.history[-1]["robustness"] == pytest.approx(min(0.7, 4 * float(method.rate)))
    assert result.history[-1]["examples"] == len(labels)  # none is left out


def led(
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
    surprises: list[float],
    wakes: int = 99,
    others: float = 1.0,
    share: float = 0.0,
) -> tuple[Auto, list[int], list[np.ndarray]]:
    """A method led through a run whose held-out labels surprise the network so much, S_1, S_2, …, the last for ever.

    The method, which epoch's weights it has in each epoch, and what the network had said where it goes by that.
    `wakes`: after how many epochs the network memorises; `share`: of what lies between examples of a class.
    """
    method, weight, estimated = Auto(), next(run.model.parameters()), []

    def look(self: Auto, run: Run) -> None:
        self.surprise[0] = others

    monkeypatch.setattr(Auto, "_look", look)
    monkeypatch.setattr(auto, "share_between", lambda run: share)
    monkeypatch.setattr(Auto, "_estimate", lambda self, model, said, labels: estimated.append(said))
    monkeypatch.setattr(
        auto, "held_out", lambda run: torch.tensor(math.exp(-surprises[min(run.epoch, len(surprises)) - 1])).repeat(600)
    )
    monkeypatch.setattr(
        waking.Waking, "compare", lambda self, given: self.awake.fill_(torch.tensor(run.epoch >= wakes))
    )
    run.val, weights = run.data, []
    method.start(run)
    epochs = run.epochs
    for run.epoch in range(epochs):
        with torch.no_grad():
            weight.fill_(run.epoch)
        method.mean.fill_(run.epoch / 100)
        method.mean[:, 0] = run.epoch
        method.before_epoch(run)
        weights.append(int(weight.flatten()[0]))
    return method, weights, estimated


@pytest.mark.parametrize(
    ("wakes", "begins", "back"),
    [(1, 2, 1), (2, 2, 1), (3, 3, 2), (4, 4, 2), (8, 8, 4), (9, 9, 8), (12, 12, 8), (13, 13, 13), (99, 0, 0)],
)
def test_once_the_network_memorises_it_goes_back_if_there_is_time(
    make_run: MakeRun, monkeypatch: pytest.MonkeyPatch, wakes: int, begins: int, back: int
) -> None:
    """To the last power of two of 16 epochs, if as many are left as that undoes: 13 would undo 5, and 3 are left."""
    method, weights, estimated = led(make_run(n=600, epochs=16), monkeypatch, [1.0], wakes)
    assert bool(method.begun) is (begins > 0)
    assert weights == [back if epoch == begins > 0 else epoch for epoch in range(16)]
    assert not estimated  # the others are believed


@pytest.mark.parametrize(
    ("surprises", "share", "begins"),
    [
        ([1.09, 1.09], 0.7, 2),  # level with the others, and settled
        ([1.09, 1.09], 0.69, 0),  # but between examples of a class there are others: it may still learn much
        ([1.3, 1.11, 1.11, 1.09], 0.7, 4),  # not level before
        ([1.2, 1.0, 0.94, 0.9], 0.7, 4),  # getting better by more than a twentieth before
        ([1.2, 0.79, 0.85, 0.85], 0.7, 0),  # it has outrun them once, and they are not believed any more
        ([2.0, 2.0, 2.0, 2.0], 0.7, 0),  # never level
    ],
)
def test_it_begins_when_the_network_is_level_with_the_others_and_has_settled(
    make_run: MakeRun, monkeypatch: pytest.MonkeyPatch, surprises: list[float], share: float, begins: int
) -> None:
    method, weights, estimated = led(make_run(n=600, epochs=16), monkeypatch, surprises, share=share)
    assert bool(method.begun) is (begins > 0)
    assert weights == [begins // 2 if epoch == begins > 0 else epoch for epoch in range(16)]
    assert not estimated
    assert bool(method.convex) is (begins > 0)


@pytest.mark.parametrize(
    ("surprises", "others", "itself"),
    [
        ([1.0], 1.0, False),
        ([0.81], 1.0, False),  # better than the others, but not by a fifth
        ([0.79, 1.5], 1.0, True),  # it has outrun them once, and they are not believed any more
        ([1.5, 1.5, 0.79], 1.0, True),
        ([1.5, 1.5, 1.5, 0.79], 1.0, False),  # after it began
        ([1.0], math.nan, True),  # they do not know the classes
    ],
)
def test_the_others_are_believed_unless_the_network_has_outrun_them(
    make_run: MakeRun, monkeypatch: pytest.MonkeyPatch, surprises: list[float], others: float, itself: bool
) -> None:
    """Else it goes by what it had said by the epoch that it goes back to, the second."""
    method, weights, estimated = led(make_run(n=600, epochs=8), monkeypatch, surprises, 3, others)
    assert method.begun
    assert weights[3] == 2
    assert len(estimated) == itself
    if itself:
        np.testing.assert_allclose(estimated[0], np.tile([2 / 2.04, 0.02 / 2.04, 0.02 / 2.04], (600, 1)), rtol=1e-6)


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
        assert not method.begun  # nothing was trained on, nor learned by heart
        assert not any(method.figures(run)[name] for name in ("noise_estimate", "robustness", "awake"))
    assert looked == [0, 0]


def test_held_out_labels_have_their_probabilities(make_run: MakeRun) -> None:
    run = make_run(n=20, epochs=8)
    assert run.val is not None
    p, labels = run.predict(run.val), run.val.labels.tolist()
    assert waking.held_out(run).tolist() == pytest.approx([float(p[i, y]) for i, y in enumerate(labels)])


@pytest.mark.parametrize(("sure", "known"), [(90, True), (89, False)])
def test_the_others_know_the_classes_when_some_are_sure(
    make_run: MakeRun, monkeypatch: pytest.MonkeyPatch, sure: int, known: bool
) -> None:
    """Of 600 examples 15 % are 90."""
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
    assert not method.begun
    method.waking.awake.fill_(True)
    method.before_epoch(run)
    assert method.begun
    assert method.waking.trained_on(everyone).all()


@pytest.mark.parametrize(("n", "looks"), [(200, 1), (199, 0)])
def test_of_few_examples_it_learns_nothing_of_the_noise(
    make_run: MakeRun, monkeypatch: pytest.MonkeyPatch, n: int, looks: int
) -> None:
    run, method, looked = make_run(n=n, epochs=8), Auto(), []
    method.start(run)

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


def test_visits_are_counted_until_the_noise_is_known(make_run: MakeRun) -> None:
    run, method = make_run(n=12, epochs=8), Auto()
    method.start(run)
    everyone = torch.arange(12)
    x = run.data.take(everyone)
    run.model.train()
    p = run.model(x).detach().softmax(dim=1)[everyone, run.data.labels]
    method.loss(run, Batch((x,), run.data.labels, everyone))
    sums = [12.0, float(p.sum()), float(p.square().sum())]
    assert method.waking.sums[0].tolist() == pytest.approx(sums, rel=1e-4)
    method.begun.fill_(True)
    method._plan = None
    method.loss(run, Batch((x,), run.data.labels, everyone))
    assert float(method.waking.sums[0, 0]) == 12


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


def test_a_step_and_what_is_believed_after_it(make_run: MakeRun) -> None:
    run, method = make_run(n=12, epochs=8), Auto()
    method.start(run)
    everyone = torch.arange(12)
    U = torch.softmax(torch.randn(3, 3, generator=torch.Generator().manual_seed(1)) + 2 * torch.eye(3), dim=1)
    method.confusion.copy_(U)
    method.transition.copy_(U.flip(0))
    method.mean[:] = before = says(run, run.data.labels, 0)
    run.epoch = 3
    for begun, rate, q in ((False, 0.3, 0.0), (True, 0.0, 0.0), (True, 0.05, 0.2), (True, 0.3, 0.7)):
        method.begun.fill_(begun)
        method.rate.fill_(rate)
        method._plan = None
        method.mean.copy_(before)
        x = run.data.take(everyone)
        logits = run.model(x).detach()
        run.model.train()
        loss = method.loss(run, Batch((x,), run.data.labels, everyone))
        used = U if begun else torch.eye(3)
        expected = reference.loss(logits.double(), run.data.labels, used.double(), q).mean()
        assert float(loss.detach()) == pytest.approx(float(expected), rel=1e-4)
        torch.testing.assert_close(method.mean, 0.9 * before + 0.1 * logits.softmax(dim=1), rtol=1e-4, atol=1e-5)
    method.rate.zero_()
    assert float(method.loss(run, Batch((x,), run.data.labels, everyone)).detach()) == pytest.approx(
        float(expected), rel=1e-4
    )  # until the next epoch
    method.mean[3:] = 0
    predicted = says(run, run.data.labels, 5)
    method.begun.zero_()
    plain = Beliefs.of(torch.cat([method.mean[:3], predicted[3:]]), run.data.labels)  # as long as T is not known
    torch.testing.assert_close(method.beliefs(run, predicted).suspicion, plain.suspicion)
    method.begun.fill_(True)
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
    method.begun.fill_(True)
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
    """A method in the midst of a run of eight epochs, with T known, of examples that can be mixed."""
    method = Auto()
    method.start(run)
    drawn = torch.randn(3, 3, generator=torch.Generator().manual_seed(1))
    method.confusion.copy_(torch.softmax(drawn + 2 * torch.eye(3), dim=1))
    method.transition.copy_(method.confusion.flip(0))
    method.mean[:] = says(run, run.data.labels, 0)
    method.rate.fill_(rate)
    method.begun.fill_(True)
    method.convex.fill_(True)
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
    ("begun", "convex", "epoch", "taught"),
    [(1, 1, 3, True), (1, 1, 2, True), (1, 1, 1, False), (0, 1, 3, False), (1, 0, 3, False), (1, 1, 7, True)],
)
def test_it_mixes_once_the_noise_is_known_and_a_fifth_is_over(
    make_run: MakeRun, begun: int, convex: int, epoch: int, taught: bool
) -> None:
    run = make_run(n=12, epochs=8)
    method = taught_method(run, 0.3, epoch)
    method.begun.fill_(bool(begun))
    method.convex.fill_(bool(convex))
    plan = method._planned(run)
    assert plan.known is bool(begun)
    assert plan.taught is taught
    drawn = run.generator.get_state()
    everyone = torch.arange(12)
    method.loss(run, Batch((run.data.take(everyone),), run.data.labels, everyone))
    assert torch.equal(run.generator.get_state(), drawn) is not taught


@pytest.mark.parametrize(("share", "convex"), [(0.7, True), (0.69, False)])
def test_whether_examples_can_be_mixed_is_told_when_it_begins(
    make_run: MakeRun, monkeypatch: pytest.MonkeyPatch, share: float, convex: bool
) -> None:
    method, _, _ = led(make_run(n=600, epochs=8), monkeypatch, [2.0], 3, share=share)
    assert bool(method.convex) is convex

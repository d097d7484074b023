"""`auto`: its equations against slow twins, when it turns robust, and what it leaves out."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from reference import auto as reference
from sklearn.datasets import load_digits

from noiseproof.auditing import posterior
from noiseproof.data import LabeledData, load, noise
from noiseproof.data.packing import Tokens
from noiseproof.estimator import RobustClassifier
from noiseproof.method import Batch, Run, Selection
from noiseproof.methods.auto import (
    ENOUGH,
    Auto,
    auto_loss,
    by_label,
    class_shares,
    log_corrected,
    mixture_loss,
    raised,
    refined,
    uneven,
)
from noiseproof.methods.mixup import sample_lam
from noiseproof.training.fit import fit


@pytest.mark.parametrize("q", [0.0, 0.3, 0.7])
def test_loss_and_gradient(q: float) -> None:
    torch.manual_seed(0)
    logits = (3 * torch.randn(6, 4, dtype=torch.float64)).requires_grad_()
    label = torch.tensor([0, 1, 2, 3, 3, 0])
    T = torch.softmax(torch.randn(4, 4, dtype=torch.float64) + 3 * torch.eye(4), dim=1)
    ours = auto_loss(log_corrected(logits.log_softmax(dim=1), label, by_label(T).log()), q)
    slow = reference.loss(logits, label, T, q)
    torch.testing.assert_close(ours, slow)
    weight = torch.linspace(1, 2, 6, dtype=torch.float64)
    (one,) = torch.autograd.grad((ours * weight).sum(), logits, retain_graph=True)
    (other,) = torch.autograd.grad((slow * weight).sum(), logits)
    torch.testing.assert_close(one, other)


def test_at_first_it_is_cross_entropy() -> None:
    torch.manual_seed(0)
    logits, label = torch.randn(5, 3, dtype=torch.float64), torch.tensor([0, 1, 2, 0, 1])
    found = auto_loss(log_corrected(logits.log_softmax(dim=1), label, by_label(torch.eye(3)).log()), 0.0)
    ce = torch.nn.functional.cross_entropy(logits, label, reduction="none")
    torch.testing.assert_close(found, ce, atol=1e-4, rtol=1e-4)  # T is not below 1e-6


def noisy_digits(kind: str | None, n: int = 1200) -> LabeledData:
    data = load("digits").limit(n)
    return data if kind is None else noise.apply(data, kind, seed=0)


def test_transition_is_that_of_the_posterior() -> None:
    result = fit("mlp", noisy_digits("symmetric:0.4"), "auto", epochs=8, lr=0.05, val=0.2, seed=0)
    method = result.method
    assert isinstance(method, Auto)
    said = (method.mean / method.mean.sum(dim=1, keepdim=True)).numpy()
    labels = result.run.data.labels.numpy()
    right = raised(posterior.fit(labels, [said]).posterior([said], labels), labels, float(method.rate))
    assert 1 - right[np.arange(len(labels)), labels].mean() >= float(method.rate) - 1e-3
    slow = reference.transition(right.tolist(), labels.tolist())
    np.testing.assert_allclose(method._transition(result.run), slow, atol=1e-4)
    assert float(method.rate) == pytest.approx(0.4, abs=0.15)
    assert method.q == 0.7
    assert int(method.begun) >= 2
    assert (method.transition.diagonal() < 0.9).all()
    np.testing.assert_allclose(method.confusion, reference.uneven(method.transition.double().tolist()), atol=1e-6)


@pytest.mark.parametrize("K", [2, 3, 10])
def test_uneven_leaves_what_is_not_alike(K: int) -> None:
    alike = 0.6 * np.eye(K) + 0.4 / (K - 1) * (1 - np.eye(K))
    np.testing.assert_allclose(uneven(alike), np.eye(K), atol=1e-12)
    one_way = np.eye(K)
    one_way[0, :2] = 0.7, 0.3
    np.testing.assert_allclose(uneven(one_way), one_way)
    drawn = np.random.default_rng(0).dirichlet(np.ones(K), K)
    np.testing.assert_allclose(uneven(drawn), reference.uneven(drawn.tolist()))


def test_right_labels_leave_it_next_to_cross_entropy() -> None:
    method = fit("mlp", noisy_digits(None), "auto", epochs=12, lr=0.05, val=0.2, seed=0).method
    assert isinstance(method, Auto)
    assert float(method.rate) < 0.06
    assert (method.transition.diagonal() > 0.8).all()


def test_raised_multiplies_the_odds_of_being_wrong() -> None:
    right = np.array([[0.9, 0.1, 0.0], [0.6, 0.3, 0.1], [0.0, 0.2, 0.8]], np.float32)
    labels = np.array([0, 0, 2])
    found = raised(right, labels, 0.5)
    own, before = found[[0, 1, 2], labels], right[[0, 1, 2], labels]
    assert 1 - own.mean() == pytest.approx(0.5, abs=1e-6)
    factors = (1 - own) / own * before / (1 - before)
    assert factors == pytest.approx([factors[0]] * 3, rel=1e-4)
    assert found[1, 1] / found[1, 2] == pytest.approx(3, rel=1e-5)
    assert raised(right, labels, 0.1) is right


def test_without_a_validation_set_a_tenth_is_left_out_at_first() -> None:
    seen: dict[int, int] = {}

    class Watched(Auto):
        name = "watched"

        def figures(self, run: Run) -> dict[str, float]:
            seen[run.epoch] = run.history[-1]["examples"]
            return super().figures(run)

    result = fit("mlp", noisy_digits("symmetric:0.4"), Watched(), epochs=6, lr=0.05, seed=0)
    assert [seen[epoch] for epoch in range(1, 7)] == [1080] * 3 + [1200] * 3
    assert isinstance(result.method, Auto)
    assert float(result.method.rate) > 0.2


def test_of_few_examples_it_learns_nothing_of_the_noise() -> None:
    result = fit("mlp", noisy_digits(None, 8 * ENOUGH), "auto", epochs=4, seed=0)
    assert isinstance(result.method, Auto)
    assert float(result.method.rate) == 0
    assert result.history[0]["examples"] == 8 * ENOUGH


def test_rows_left_out_of_a_table_are_encoded_as_the_rest() -> None:
    X, y = load_digits(return_X_y=True)  # columns that are constant in some of the rows
    fitted = RobustClassifier("auto", "mlp(widths=[8])", epochs=2, class_weight="balanced", random_state=0)
    history = fitted.fit(X[:600], y[:600]).history_
    assert [record["examples"] for record in history] == [540, 600]
    assert history[-1]["noise_estimate"] >= 0


MakeRun = Callable[..., Run]


def says(run: Run, labels: torch.Tensor, epoch: int) -> torch.Tensor:
    """What a network might say of labels (m,) after an epoch: more for right ones, and never the same twice."""
    drawn = torch.rand(len(labels), run.num_classes, generator=torch.Generator().manual_seed(epoch))
    return (3 * torch.nn.functional.one_hot(labels, run.num_classes) * (torch.arange(len(labels)) % 4 > 0)[:, None]
            + 2 * drawn).softmax(dim=1)  # fmt: skip


def test_when_it_looks_and_what_follows(make_run: MakeRun) -> None:
    """After 1, 2, … epochs, then from the first without a clear rise on again after 1, 2, 4, …; in the first half."""
    run, method = make_run(n=60, epochs=16), Auto()
    method.start(run)
    assert run.val is not None
    given = run.val.labels.numpy()
    told, rate, T = torch.full((60, 3), 0.1), 0.0, np.eye(3)
    run.told = {"val": told.clone()}
    accuracy = [0.40, 0.60, 0.61, 0.5, 0.9, 0.5, 0.5, 0.5, 0.5]
    assert method.before_epoch(run) is None
    for run.epoch in range(1, 10):
        run.told["val"] += says(run, run.val.labels, run.epoch)
        run.history.append({"val_accuracy": accuracy[run.epoch - 1]})
        method.mean.copy_(says(run, run.data.labels, 100 + run.epoch) * 0.8)
        method.mean[:10] = 0  # not visited yet
        assert method.before_epoch(run) is None
        if run.epoch in (1, 2, 3, 4, 6):
            mean = ((run.told["val"] - told) / run.epoch).numpy()
            rate = float(posterior.fit(given, [mean]).wrong([mean], given).mean())
        if run.epoch in (3, 4, 6):
            seen, said = run.data.labels[10:].numpy(), (method.mean[10:] / 0.8).numpy()
            right = raised(posterior.fit(seen, [said]).posterior([said], seen), seen, rate)
            T = np.array(reference.transition(right.tolist(), seen.tolist()))
        assert float(method.rate) == pytest.approx(rate, abs=1e-5)
        np.testing.assert_allclose(method.transition, T, atol=1e-4)
        np.testing.assert_allclose(method.confusion, reference.uneven(T.tolist()), atol=2e-4)
        assert int(method.begun) == (3 if run.epoch >= 3 else 0)
        assert float(method.best) == pytest.approx(max(accuracy[: min(run.epoch, 8)]))
        assert method.figures(run) == pytest.approx(
            {"noise_estimate": rate, "robustness": min(0.7, 4 * rate)}, abs=1e-4
        )


@pytest.mark.parametrize(("second", "begun"), [(0.46, 2), (0.47, 0)])
def test_a_rise_is_clear_beyond_its_standard_error(make_run: MakeRun, second: float, begun: int) -> None:
    """Of 60 examples 0.46 is 0.064 uncertain."""
    run, method = make_run(n=60, epochs=16), Auto()
    method.start(run)
    assert run.val is not None
    run.told = {"val": torch.zeros(60, 3)}
    method.mean.fill_(1 / 3)
    method.before_epoch(run)
    for run.epoch, accuracy in ((1, 0.40), (2, second)):
        run.told["val"] += says(run, run.val.labels, run.epoch)
        run.history.append({"val_accuracy": accuracy})
        method.before_epoch(run)
    assert int(method.begun) == begun


def test_what_is_left_out_is_asked_about(make_run: MakeRun, monkeypatch: pytest.MonkeyPatch) -> None:
    run, method = make_run(n=600, epochs=6, val=None), Auto()
    method.start(run)
    held, asked = method.held, []
    assert len(held) == len(held.unique()) == 60

    def predict(self: Run, index: torch.Tensor) -> torch.Tensor:
        asked.append(run.epoch)
        assert torch.equal(index, held)
        return says(run, run.data.labels[index], run.epoch)

    monkeypatch.setattr(Run, "predict", predict)
    total, label = torch.zeros(60, 3), run.data.labels[held]
    for run.epoch in range(6):
        method.mean.fill_(1 / 3)
        selection = method.before_epoch(run)
        assert isinstance(selection, Selection) is (run.epoch < 3)
        if selection is not None:
            assert sorted([*selection.index.tolist(), *held.tolist()]) == list(range(600))
        if 0 < run.epoch <= 3:
            total += says(run, label, run.epoch)
    torch.testing.assert_close(method.said, total)
    agreed = max(float((says(run, label, epoch).argmax(dim=1) == label).float().mean()) for epoch in (1, 2, 3))
    assert float(method.best) == pytest.approx(agreed)
    assert asked == [1, 2, 3]
    assert not torch.equal(held, torch.arange(60))  # at random


@pytest.mark.parametrize(("n", "count", "looks"), [(500, 50, True), (499, 49, False), (50_010, 5000, True)])
def test_how_many_are_left_out(make_run: MakeRun, n: int, count: int, looks: bool) -> None:
    run, method = make_run(n=n, val=None), Auto()
    method.start(run)
    assert len(method.held) == len(method.said) == count
    assert (method.before_epoch(run) is not None) is looks


def test_a_step_and_what_is_believed_after_it(make_run: MakeRun) -> None:
    run, method = make_run(n=12, epochs=8), Auto()
    method.start(run)
    everyone = torch.arange(12)
    U = torch.softmax(torch.randn(3, 3, generator=torch.Generator().manual_seed(1)) + 2 * torch.eye(3), dim=1)
    method.confusion.copy_(U)
    method.transition.copy_(U.flip(0))
    method.mean[:] = before = says(run, run.data.labels, 0)
    for rate, q in ((0.0, 0.0), (0.05, 0.2), (0.3, 0.7)):
        method.rate.fill_(rate)
        method._plan = None
        method.mean.copy_(before)
        x = run.data.take(everyone)
        logits = run.model(x).detach()
        run.model.train()
        loss = method.loss(run, Batch((x,), run.data.labels, everyone))
        expected = reference.loss(logits.double(), run.data.labels, U.double(), q).mean()
        assert float(loss.detach()) == pytest.approx(float(expected), rel=1e-4)
        torch.testing.assert_close(method.mean, 0.9 * before + 0.1 * logits.softmax(dim=1), rtol=1e-4, atol=1e-5)
    method.rate.zero_()
    assert float(method.loss(run, Batch((x,), run.data.labels, everyone)).detach()) == pytest.approx(
        float(expected), rel=1e-4
    )  # until the next epoch
    method.mean[3:] = 0
    predicted = says(run, run.data.labels, 5)
    found = method.beliefs(run, predicted)
    for i, y in enumerate(run.data.labels.tolist()):
        said = method.mean[i] if i < 3 else predicted[i]
        joint = [float(said[k] * U.flip(0)[k, y]) for k in range(3)]
        np.testing.assert_allclose(found.soft_label[i], np.array(joint) / sum(joint), rtol=1e-4)
        assert float(found.suspicion[i]) == pytest.approx(1 - joint[y] / sum(joint), abs=1e-5)


def test_no_label_is_impossible_and_not_all_are_wrong() -> None:
    log_p = torch.tensor([[1e-12, 1 - 1e-12, 1e-13]], dtype=torch.float64).log()
    assert float(log_corrected(log_p, torch.tensor([0]), by_label(torch.eye(3)).log())) == pytest.approx(
        np.log(1e-6), abs=1e-4
    )
    right = np.array([[0.9, 0.1, 0.0], [0.6, 0.3, 0.1], [0.1, 0.2, 0.7]])
    found = raised(right, np.array([0, 0, 2]), 0.99)
    assert 1 - found[[0, 1, 2], [0, 0, 2]].mean() == pytest.approx(0.95, abs=1e-6)


def test_a_label_that_its_class_never_carries_is_believed_a_millionth(make_run: MakeRun) -> None:
    run, method = make_run(n=2, num_classes=2), Auto()
    method.start(run)
    run.data.labels = torch.tensor([0, 0])
    found = method.beliefs(run, torch.tensor([[1e-5, 1 - 1e-5], [0.5, 0.5]]))
    np.testing.assert_allclose(found.suspicion, [1 / 11, 1e-6], rtol=0.1)


@pytest.mark.parametrize("q", [0.0, 0.35])
def test_mixtures_and_their_gradient(q: float) -> None:
    torch.manual_seed(0)
    logits = (3 * torch.randn(5, 4, dtype=torch.float64)).requires_grad_()
    target = torch.rand(5, 4, dtype=torch.float64)  # not of sum 1 where examples have weights
    ours, slow = mixture_loss(logits.log_softmax(dim=1), target, q), reference.mixture_loss(logits, target, q)
    torch.testing.assert_close(ours, slow)
    weight = torch.linspace(1, 2, 5, dtype=torch.float64)
    (one,) = torch.autograd.grad((ours * weight).sum(), logits, retain_graph=True)
    (other,) = torch.autograd.grad((slow * weight).sum(), logits)
    torch.testing.assert_close(one, other)


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
    torch.testing.assert_close(found, shares, atol=0.01, rtol=0)  # the labels' are 0.33, 0.43 and 0.24
    torch.testing.assert_close(class_shares(torch.eye(3), torch.tensor([0, 0, 1, 2])), torch.tensor([0.5, 0.25, 0.25]))


def taught(run: Run, rate: float, epoch: int = 3) -> Auto:
    """A method in the midst of a run of eight epochs, with T known since the second."""
    method = Auto()
    method.start(run)
    drawn = torch.randn(3, 3, generator=torch.Generator().manual_seed(1))
    method.confusion.copy_(torch.softmax(drawn + 2 * torch.eye(3), dim=1))
    method.transition.copy_(method.confusion.flip(0))
    method.mean[:] = says(run, run.data.labels, 0)
    method.rate.fill_(rate)
    method.begun.fill_(2)
    run.epoch = epoch
    return method


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("rate", "mixed"), [(0.3, 6), (0.0875, 3), (0.0, 0)])
def test_a_step_with_mixtures(make_run: MakeRun, rate: float, mixed: int, weighted: bool) -> None:
    """Half of a batch where there is much noise, the less the fewer labels are wrong, and none without."""
    run = make_run(n=12, epochs=8)
    method, q, plain = taught(run, rate), min(0.7, 4 * rate), 12 - mixed
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
    logits = run.model(inputs).detach()
    run.model.load_state_dict(state)
    loss = method.loss(run, Batch((x,), label, everyone, weight))
    p = logits.softmax(dim=1)
    after = before.clone()
    after[:plain] = 0.7 * before[:plain] + 0.3 * p[:plain]
    torch.testing.assert_close(method.mean, after, rtol=1e-4, atol=1e-5)
    target = torch.tensor(reference.refined(after.tolist(), label.tolist(), method.transition.tolist()))
    w = torch.ones(12) if weight is None else weight
    each = reference.loss(logits[:plain].double(), label[:plain], method.confusion.double(), q) * w[:plain]
    if mixed:
        soft = torch.stack([
            lam * w[plain + j] * target[plain + j] + (1 - lam) * w[j] * target[j] for j in range(mixed)
        ])  # fmt: skip
        each = torch.cat([each, reference.mixture_loss(logits[plain:].double(), soft, q / 2)])
    expected = float(each.mean())
    if weight is None:
        shares = reference.class_shares(method.transition.tolist(), label.tolist())
        expected -= 0.5 * q / 0.7 * sum(share * float(p[:, k].mean().log()) for k, share in enumerate(shares))
    assert float(loss.detach()) == pytest.approx(expected, rel=1e-4)
    assert torch.equal(run.generator.get_state(), drawn) is (mixed == 0)


@pytest.mark.parametrize(("begun", "epoch", "part"), [(2, 3, 0.5), (2, 2, 0.0), (0, 3, 0.0), (2, 7, 0.5)])
def test_it_mixes_once_the_noise_is_known_and_three_tenths_are_over(
    make_run: MakeRun, begun: int, epoch: int, part: float
) -> None:
    run = make_run(n=12, epochs=8)
    method = taught(run, 0.3, epoch)
    method.begun.fill_(begun)
    plan = method._planned(run)
    assert plan.part == pytest.approx(part)
    assert plan.taught is (part > 0)


def test_tokens_are_not_mixed(make_run: MakeRun) -> None:
    run = make_run(n=12, epochs=8)
    method = taught(run, 0.3)
    run.data = LabeledData(Tokens([[1, 2, 3]] * 12), run.data.labels)
    plan = method._planned(run)
    assert plan.part == 0
    assert plan.taught

"""`auto`: its equations against slow twins, when it turns robust, and what it leaves out."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from reference import auto as reference
from sklearn.datasets import load_digits

from noiseproof.auditing import posterior
from noiseproof.data import LabeledData, load, noise
from noiseproof.estimator import RobustClassifier
from noiseproof.method import Run
from noiseproof.methods.auto import ENOUGH, Auto, auto_loss, log_corrected, raised, uneven
from noiseproof.training.fit import fit


@pytest.mark.parametrize("q", [0.0, 0.3, 0.7])
def test_loss_and_gradient(q: float) -> None:
    torch.manual_seed(0)
    logits = (3 * torch.randn(6, 4, dtype=torch.float64)).requires_grad_()
    label = torch.tensor([0, 1, 2, 3, 3, 0])
    T = torch.softmax(torch.randn(4, 4, dtype=torch.float64) + 3 * torch.eye(4), dim=1)
    ours = auto_loss(log_corrected(logits.log_softmax(dim=1), label, T), q)
    slow = reference.loss(logits, label, T, q)
    torch.testing.assert_close(ours, slow)
    weight = torch.linspace(1, 2, 6, dtype=torch.float64)
    (one,) = torch.autograd.grad((ours * weight).sum(), logits, retain_graph=True)
    (other,) = torch.autograd.grad((slow * weight).sum(), logits)
    torch.testing.assert_close(one, other)


def test_at_first_it_is_cross_entropy() -> None:
    torch.manual_seed(0)
    logits, label = torch.randn(5, 3, dtype=torch.float64), torch.tensor([0, 1, 2, 0, 1])
    found = auto_loss(log_corrected(logits.log_softmax(dim=1), label, torch.eye(3)), 0.0)
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

"""Probes: the linear classifier, and the neighbours' vote as beliefs."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from sklearn.linear_model import LogisticRegression

from noiseproof.data import LabeledData
from noiseproof.errors import InputError
from noiseproof.method import Beliefs
from noiseproof.pretraining import probes


def features(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_linear_agrees_with_scikit_learn():
    x, centres = features(300, 6), 1.5 * features(4, 6, seed=2)
    labels = torch.arange(300) % 4
    x = 3 + 2 * (x + centres[labels])
    ours = probes.linear(x[:200], labels[:200], x[200:], decay=1e-2)
    mean, std = x[:200].mean(dim=0), x[:200].std(dim=0, correction=0)
    oracle = LogisticRegression(C=1 / (1e-2 * 200), tol=1e-8, max_iter=2000)
    oracle.fit(((x[:200] - mean) / std).numpy(), labels[:200].numpy())
    expected = torch.from_numpy(oracle.predict_proba(((x[200:] - mean) / std).numpy()))
    torch.testing.assert_close(ours.double(), expected.double(), atol=2e-3, rtol=0)


@pytest.mark.parametrize("protocol", probes.PROTOCOLS)
def test_the_papers_protocols_end_near_the_optimum(protocol: str) -> None:
    x, centres = features(600, 6), 1.5 * features(4, 6, seed=2)
    labels = torch.arange(600) % 4
    x = 0.5 * (x + centres[labels])
    ours = probes.linear_by_steps(x[:500], labels[:500], x[500:], protocol=protocol)
    best = probes.linear(x[:500], labels[:500], x[500:])
    torch.testing.assert_close(ours.sum(dim=1), torch.ones(100))
    assert (ours.argmax(dim=1) == best.argmax(dim=1)).float().mean() > 0.93
    assert torch.equal(ours, probes.linear_by_steps(x[:500], labels[:500], x[500:], protocol=protocol))


def test_the_imagenet_protocol_is_sgd_at_10_that_falls_to_0(monkeypatch: pytest.MonkeyPatch) -> None:
    rates, step = [], torch.optim.SGD.step

    def watched(self: torch.optim.SGD) -> None:
        rates.append((self.param_groups[0]["lr"], self.param_groups[0]["momentum"], len(rates)))
        step(self)

    monkeypatch.setattr(probes.PROTOCOLS["imagenet"].optimizer, "step", watched)
    probes.linear_by_steps(features(300, 2), torch.arange(300) % 2, features(3, 2))
    assert len(rates) == 100 * 2
    assert rates[0][:2] == (10.0, 0.9)
    assert rates[100][0] == pytest.approx(5.0)
    assert rates[-1][0] < 0.01


def test_features_that_never_change_do_no_harm():
    x = torch.cat([features(50, 2), torch.ones(50, 1)], dim=1)
    labels = (x[:, 0] > 0).long()
    assert probes.accuracy(probes.linear(x, labels, x), labels) > 0.95


def test_mistakes_are_one_sentence():
    x, labels = features(9, 2), torch.zeros(9, dtype=torch.int64)
    with pytest.raises(InputError, match="decay"):
        probes.linear(x, labels, features(3, 2), decay=-1)
    with pytest.raises(InputError, match="did you mean 'imagenet'"):
        probes.linear_by_steps(x, labels, features(3, 2), protocol="imagnet")
    for probe in (probes.linear, probes.linear_by_steps):
        with pytest.raises(InputError, match=r"must be features .m, F. and .n, F., got .3, 3. and .9, 2."):
            probe(x, labels, features(3, 3))
        with pytest.raises(InputError, match="queries must be a float tensor"):
            probe(x, labels, features(3, 2).long())
    with pytest.raises(InputError, match="steps must be"):
        probes.linear(x, labels, features(3, 2), steps=0)
    with pytest.raises(InputError, match="seed must be"):
        probes.linear_by_steps(x, labels, features(3, 2), seed=-1)


def test_neighbours_are_at_hand():
    x, labels = features(40, 5), torch.arange(40) % 4
    found = probes.neighbourhood(x, labels, k=7)
    torch.testing.assert_close(found.soft_label, probes.knn(x, labels, k=7))
    assert torch.equal(found.suspicion, Beliefs.of(found.soft_label, labels).suspicion)
    assert probes.nearest(x, x, 3, exclude_self=True)[1].shape == (40, 3)


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("protocol", ["imagenet", "cifar10"])
def test_the_steps_of_the_papers_written_out(protocol: str, seed: int) -> None:
    """SGD at 10 with momentum 0.9, the rate falling by half a cosine over 100 epochs; or 200 of Adam at 0.01."""
    n = 257 - seed  # two batches, of 256 and of one; or one
    x, queries, labels = 0.1 * features(n, 3).double(), features(5, 3, seed=1).double(), torch.arange(n) % 3
    generator = torch.Generator().manual_seed(seed)
    weight, bias = (0.01 * torch.randn(3, 3, generator=generator)).double(), torch.zeros(3).double()
    epochs = 100 if protocol == "imagenet" else 200
    parameters = [weight.requires_grad_(), bias.requires_grad_()]
    speed, adam = [torch.zeros(3, 3).double(), torch.zeros(3).double()], torch.optim.Adam(parameters, lr=0.01)
    for epoch in range(epochs):
        for number, rows in enumerate(torch.randperm(n, generator=generator).split(256)):
            loss = torch.nn.functional.cross_entropy(x[rows] @ weight.T + bias, labels[rows])
            gradients = torch.autograd.grad(loss, parameters)
            if protocol == "cifar10":
                weight.grad, bias.grad = gradients
                adam.step()
                continue
            share = (2 * epoch + number) / 200 if seed == 0 else epoch / 100
            rate = 5 * (1 + math.cos(math.pi * share))
            speed = [0.9 * one + gradient for one, gradient in zip(speed, gradients, strict=True)]
            with torch.no_grad():
                for parameter, one in zip(parameters, speed, strict=True):
                    parameter -= rate * one
    expected = (queries @ weight.T + bias).softmax(dim=1).detach()
    given = {} if seed == 0 else {"seed": seed}
    found = probes.linear_by_steps(x, labels, queries, protocol=protocol, **given)
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-6)
    if protocol == "imagenet":
        assert torch.equal(found, probes.linear_by_steps(x, labels, queries, **given))


def test_the_decay_of_a_linear_probe() -> None:
    x, labels, queries = features(60, 3), torch.arange(60) % 3, features(9, 3, seed=1)
    found = probes.linear(x, labels, queries)
    assert torch.equal(found, probes.linear(x, labels, queries, decay=1e-4, steps=200))
    for decay in (5e-5, 2e-4):
        assert (found - probes.linear(x, labels, queries, decay=decay)).abs().max() > 1e-5


def test_a_probe_asks_fifty_neighbours_for_the_true_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(probes, "knn", lambda *_, **options: asked.append(options) or torch.eye(2)[[0, 1, 1, 1]])
    train = LabeledData(features(6, 2), [0, 1] * 3)
    test = LabeledData(features(4, 2), [1, 1, 1, 1], true_labels=[0, 0, 1, 1])
    found = [probes.probe(lambda data: data.inputs, train, test, **given) for given in ({}, {"k": 3})]
    assert asked == [{"k": 50, "num_classes": 2}, {"k": 3, "num_classes": 2}]
    assert [one["knn"] for one in found] == [0.75, 0.75]


@pytest.mark.parametrize("probe", [probes.linear, probes.linear_by_steps])
def test_features_of_any_precision(probe: Any) -> None:
    x, labels, queries = 0.1 * features(60, 3), torch.arange(60) % 3, 0.1 * features(9, 3, seed=1)
    plain = probe(x, labels, queries)
    for one, other in ((x.double(), queries.double()), (x.double(), queries), (x, queries.double())):
        found = probe(one, labels, other)
        assert found.dtype == torch.float64
        torch.testing.assert_close(found.float(), plain, atol=2e-3, rtol=0)
    for kind in (torch.float16, torch.bfloat16):
        assert torch.equal(
            probe(x.to(kind), labels, queries.to(kind)), probe(x.to(kind).float(), labels, queries.to(kind).float())
        )

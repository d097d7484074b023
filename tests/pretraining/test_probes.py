"""Probes: the linear classifier, and the neighbours' vote as beliefs."""

from __future__ import annotations

import pytest
import torch
from sklearn.linear_model import LogisticRegression

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
    with pytest.raises(InputError, match="must be features"):
        probes.linear(x, labels, features(3, 3))


def test_neighbours_are_at_hand():
    x, labels = features(40, 5), torch.arange(40) % 4
    found = probes.neighbourhood(x, labels, k=7)
    torch.testing.assert_close(found.soft_label, probes.knn(x, labels, k=7))
    assert torch.equal(found.suspicion, Beliefs.of(found.soft_label, labels).suspicion)
    assert probes.nearest(x, x, 3, exclude_self=True)[1].shape == (40, 3)

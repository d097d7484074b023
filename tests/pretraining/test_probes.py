"""Probes: exact neighbours without the whole matrix, the weighted vote, the linear classifier."""

from __future__ import annotations

import pytest
import torch
from sklearn.linear_model import LogisticRegression

from noiseproof.errors import InputError
from noiseproof.pretraining import probes


def features(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def slow_vote(bank, labels, query, k, temperature, classes):
    """The definition, for one query, in double precision."""
    cosine = [float(torch.nn.functional.cosine_similarity(query.double(), row.double(), dim=0)) for row in bank]
    near = sorted(range(len(bank)), key=lambda j: -cosine[j])[:k]
    votes = torch.zeros(classes, dtype=torch.float64)
    for j in near:
        votes[labels[j]] += torch.tensor(cosine[j] / temperature, dtype=torch.float64).exp()
    return votes / votes.sum()


def test_knn_agrees_with_its_definition():
    bank, queries, labels = features(60, 5), features(7, 5, seed=1), torch.arange(60) % 3
    ours = probes.knn(bank, labels, queries, k=9, temperature=0.05)
    slow = torch.stack([slow_vote(bank, labels, query, 9, 0.05, 3) for query in queries])
    torch.testing.assert_close(ours.double(), slow, atol=1e-5, rtol=1e-4)
    everyone = probes.knn(bank, labels, queries, k=1000)  # more than there are
    torch.testing.assert_close(everyone, probes.knn(bank, labels, queries, k=60))


def test_neighbours_judge_a_label_without_its_own_vote():
    bank, labels = features(40, 5), torch.arange(40) % 4
    found = probes.neighbourhood(bank, labels, k=7, temperature=0.1)
    for i in range(40):
        others = torch.arange(40) != i
        slow = slow_vote(bank[others], labels[others], bank[i], 7, 0.1, 4)
        torch.testing.assert_close(found.soft_label[i].double(), slow, atol=1e-5, rtol=1e-4)
        assert found.suspicion[i].item() == pytest.approx(1 - slow[labels[i]].item(), abs=1e-5)
    all_others = probes.neighbourhood(bank, labels, k=1000)
    torch.testing.assert_close(all_others.soft_label, probes.neighbourhood(bank, labels, k=39).soft_label)


def test_neighbours_find_wrong_labels():
    right = torch.arange(400) % 4
    bank = torch.eye(4)[right] + 0.1 * features(400, 4)
    wrong = torch.arange(400) % 5 == 0
    labels = torch.where(wrong, (right + 1) % 4, right)
    found = probes.neighbourhood(bank, labels)
    assert found.suspicion[wrong].min() > found.suspicion[~wrong].max()
    assert torch.equal(found.soft_label.argmax(dim=1), right)


@pytest.mark.parametrize(("n", "k"), [(100, 5), (3200, 5), (3207, 50), (5000, 1), (5000, 80)])
def test_the_largest_are_the_largest(n, k):
    scores = features(6, n)
    values, at = probes.largest(scores, k)
    expected = scores.topk(k, dim=1)
    assert torch.equal(values, expected.values)
    assert torch.equal(at, expected.indices)


def test_the_largest_survive_ties_and_minus_infinity():
    scores = torch.full((2, 4000), -torch.inf)
    scores[0, ::7], scores[1, 5] = 1.0, 2.0
    values, at = probes.largest(scores, 3)
    assert torch.equal(scores.gather(1, at), values)
    assert values.tolist() == [[1.0, 1.0, 1.0], [2.0, -torch.inf, -torch.inf]]
    assert all(len(set(row)) == 3 for row in at.tolist())


@pytest.mark.parametrize("exclude_self", [False, True])
def test_blocks_do_not_matter(monkeypatch, exclude_self):
    bank = features(300, 8)
    whole = probes.nearest(bank, bank, 6, exclude_self=exclude_self)
    monkeypatch.setattr(probes, "_COLUMNS", 64)
    monkeypatch.setattr(probes, "_BLOCK", 64 * 7)
    parts = probes.nearest(bank, bank, 6, exclude_self=exclude_self)
    assert torch.equal(parts[1], whole[1])
    torch.testing.assert_close(parts[0], whole[0])
    own = torch.arange(300)[:, None]
    assert ((whole[1] == own).any(dim=1) != exclude_self).all()


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


def test_features_that_never_change_do_no_harm():
    x = torch.cat([features(50, 2), torch.ones(50, 1)], dim=1)
    labels = (x[:, 0] > 0).long()
    assert probes.accuracy(probes.linear(x, labels, x), labels) > 0.95


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: probes.knn(features(9, 2), torch.zeros(8, dtype=torch.int64), features(3, 2)), "labels must be int64"),
        (lambda: probes.knn(features(9, 2), torch.zeros(9, dtype=torch.int64), features(3, 3)), "must be features"),
        (lambda: probes.knn(features(9, 2), torch.zeros(9, dtype=torch.int64), features(3, 2), k=0), "k must be"),
        (lambda: probes.nearest(features(9, 2), features(9, 2), 9, exclude_self=True), "k must lie in 1..8"),
        (lambda: probes.nearest(features(9, 2), features(8, 2), 3, exclude_self=True), "pass it twice"),
        (lambda: probes.linear(features(9, 2), torch.zeros(9, dtype=torch.int64), features(3, 2), decay=-1), "decay"),
        (lambda: probes.neighbourhood(features(9, 2), torch.zeros(8, dtype=torch.int64)), "labels must be int64"),
        (lambda: probes.neighbourhood(features(1, 2), torch.zeros(1, dtype=torch.int64)), "k must lie"),
    ],
)
def test_mistakes_are_one_sentence(call, words):
    with pytest.raises(InputError, match=words):
        call()

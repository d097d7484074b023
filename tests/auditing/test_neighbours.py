"""Neighbours: exact without the whole matrix, their weighted vote, and the labels that disagree with it."""

from __future__ import annotations

import inspect

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from noiseproof.auditing import neighbours
from noiseproof.errors import InputError


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
    ours = neighbours.knn(bank, labels, queries, k=9, temperature=0.05)
    slow = torch.stack([slow_vote(bank, labels, query, 9, 0.05, 3) for query in queries])
    torch.testing.assert_close(ours.double(), slow, atol=1e-5, rtol=1e-4)
    nearest = torch.nn.functional.one_hot(labels[neighbours.nearest(queries, bank, 1)[1][:, 0]])
    torch.testing.assert_close(neighbours.knn(bank, labels, queries, k=1), nearest.float())
    torch.testing.assert_close(neighbours.knn(bank, 0 * labels, queries, num_classes=1), torch.ones(7, 1))
    everyone = neighbours.knn(bank, labels, queries, k=1000)  # more than there are
    torch.testing.assert_close(everyone, neighbours.knn(bank, labels, queries, k=60))


def test_neighbours_judge_a_label_without_its_own_vote():
    bank, labels = features(40, 5), torch.arange(40) % 4
    soft_label, suspicion = neighbours.neighbourhood(bank, labels, k=7, temperature=0.1)
    for i in range(40):
        others = torch.arange(40) != i
        slow = slow_vote(bank[others], labels[others], bank[i], 7, 0.1, 4)
        torch.testing.assert_close(soft_label[i].double(), slow, atol=1e-5, rtol=1e-4)
        assert suspicion[i].item() == pytest.approx(1 - slow[labels[i]].item(), abs=1e-5)
    all_others, _ = neighbours.neighbourhood(bank, labels, k=1000)
    torch.testing.assert_close(all_others, neighbours.neighbourhood(bank, labels, k=39)[0])


def test_fifty_neighbours_at_a_temperature_of_a_twentieth():
    """The SANE paper's settings are the defaults of each."""
    bank, labels = features(80, 5), torch.arange(80) % 4
    slow = torch.stack([slow_vote(bank, labels, query, 50, 0.05, 4) for query in features(6, 5, seed=1)])
    torch.testing.assert_close(
        neighbours.knn(bank, labels, features(6, 5, seed=1)).double(), slow, atol=1e-5, rtol=1e-4
    )
    stated = neighbours.neighbourhood(bank, labels, k=50, temperature=0.05)
    assert torch.equal(neighbours.neighbourhood(bank, labels)[0], stated[0])
    defaults = [inspect.signature(one).parameters["k"].default for one in (neighbours.knn, neighbours.neighbourhood)]
    assert defaults == [50, 50]  # the last of them weighs next to nothing
    similarity = torch.tensor([[0.9, 0.8]])
    votes = neighbours.vote(similarity, torch.tensor([[0, 1]]), 2)
    torch.testing.assert_close(votes, (similarity / 0.05).softmax(dim=1))


def test_neighbours_find_wrong_labels():
    right = torch.arange(400) % 4
    bank = torch.eye(4)[right] + 0.1 * features(400, 4)
    wrong = torch.arange(400) % 5 == 0
    labels = torch.where(wrong, (right + 1) % 4, right)
    soft_label, suspicion = neighbours.neighbourhood(bank, labels)
    assert suspicion[wrong].min() > suspicion[~wrong].max()
    assert torch.equal(soft_label.argmax(dim=1), right)


@pytest.mark.parametrize("exclude_self", [False, True])
def test_blocks_do_not_matter(monkeypatch, exclude_self):
    bank = features(300, 8)
    whole = neighbours.nearest(bank, bank, 6, exclude_self=exclude_self)
    monkeypatch.setattr(neighbours, "_COLUMNS", 64)
    monkeypatch.setattr(neighbours, "_BLOCK", 64 * 7)
    parts = neighbours.nearest(bank, bank, 6, exclude_self=exclude_self)
    assert torch.equal(parts[1], whole[1])
    torch.testing.assert_close(parts[0], whole[0])
    own = torch.arange(300)[:, None]
    assert ((whole[1] == own).any(dim=1) != exclude_self).all()


NINE = torch.zeros(9, dtype=torch.int64)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: neighbours.knn(features(9, 2), NINE[:8], features(3, 2)), "labels must be int64"),
        (lambda: neighbours.knn(features(9, 2), NINE, features(3, 3)), "must be features"),
        (lambda: neighbours.knn(features(9, 2), NINE, features(3, 2), k=0), "k must be"),
        (lambda: neighbours.knn(features(9, 2), NINE + 3, features(3, 2), num_classes=3), r"must lie in 0\.\.2"),
        (
            lambda: neighbours.nearest(features(9, 2), features(9, 2), 9, exclude_self=True),
            "from 1 to 8",
        ),
        (lambda: neighbours.nearest(features(9, 2), features(8, 2), 3, exclude_self=True), "pass it twice"),
        (lambda: neighbours.neighbourhood(features(9, 2), NINE[:8]), "labels must be int64"),
        (lambda: neighbours.neighbourhood(features(1, 2), NINE[:1]), "the bank has no more rows"),
        (lambda: neighbours.nearest(features(9), features(9, 2), 3), "must be features"),
        (lambda: neighbours.nearest(features(9, 2), features(2), 3), "must be features"),
        (lambda: neighbours.nearest(features(9, 2, 2), features(9, 2, 2), 3), "must be features"),
        (lambda: neighbours.nearest(features(9, 2), features(9, 2).long(), 3), "bank must be a float tensor"),
        (lambda: neighbours.knn(features(9, 2), NINE - 1), r"must lie in 0\.\.-1, got -1\.\.-1"),
        (lambda: neighbours.knn(features(9, 2), NINE.int()), "labels must be int64"),
        (lambda: neighbours.knn(features(9, 2), NINE, num_classes=0), "num_classes must be"),
        (lambda: neighbours.knn(features(9, 2), NINE, temperature=0), "temperature must be"),
        (lambda: neighbours.knn(features(0, 2), NINE[:0]), "with n > 0"),
    ],
)
def test_mistakes_are_one_sentence(call, words):
    with pytest.raises(InputError, match=words):
        call()


def test_no_suspicion_is_below_zero_by_rounding():
    _, suspicion = neighbours.neighbourhood(features(200, 3), torch.zeros(200, dtype=torch.int64), num_classes=2)
    assert float(suspicion.min()) == 0


@settings(max_examples=60, deadline=None)
@given(
    m=st.integers(1, 12), n=st.integers(2, 12), k=st.integers(1, 12), width=st.integers(1, 13), rows=st.integers(1, 5),
    own=st.booleans(), seed=st.integers(0, 10**6),
)  # fmt: skip
def test_in_any_blocks_the_nearest_are_those_of_all_pairs(m, n, k, width, rows, own, seed):
    bank = features(n, 3, seed=seed)
    queries = bank if own else features(m, 3, seed=seed + 1)
    k = min(k, n - own)
    cosine = torch.nn.functional.cosine_similarity(queries[:, None].double(), bank.double(), dim=2)
    if own:
        cosine.fill_diagonal_(-2)
    expected, at = cosine.sort(dim=1, descending=True, stable=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(neighbours, "_COLUMNS", width)
        patch.setattr(neighbours, "_BLOCK", rows * min(n, width))
        values, positions = neighbours.nearest(queries, bank, k, exclude_self=own)
    torch.testing.assert_close(values.double(), expected[:, :k], atol=1e-5, rtol=0)
    assert torch.equal(positions, at[:, :k])
    halves = neighbours.nearest(queries.half(), bank.half(), k, exclude_self=own)[0]
    assert halves.dtype == torch.float32
    torch.testing.assert_close(halves, values, atol=1e-2, rtol=0)


def test_no_more_similarities_are_held_than_there_is_room_for(monkeypatch):
    """2²¹ of them, 2¹³ columns of the bank at most; fewer columns leave room for more rows."""
    assert (neighbours._BLOCK, neighbours._COLUMNS) == (2**21, 2**13)
    monkeypatch.setattr(neighbours, "_COLUMNS", 10)
    monkeypatch.setattr(neighbours, "_BLOCK", 30)
    seen = []
    topk = torch.Tensor.topk
    monkeypatch.setattr(
        torch.Tensor, "topk", lambda one, *given, **more: seen.append(one.shape) or topk(one, *given, **more)
    )
    neighbours.nearest(features(7, 2), features(25, 2), 1)
    assert seen[:4] == [(3, 10), (3, 10), (3, 5), (3, 3)]  # three blocks of columns, and the best of them
    seen.clear()
    neighbours.nearest(features(7, 2), features(5, 2), 1)
    assert seen == [(6, 5), (6, 1), (1, 5), (1, 1)]

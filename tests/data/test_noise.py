"""Noise: exact where it says exact, statistically right where it draws, and nothing at rate zero."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from noiseproof.data import LabeledData, load, noise
from noiseproof.data.sources import Rows
from noiseproof.errors import InputError

CLASSES = 4
labels_of = st.lists(st.integers(0, CLASSES - 1), min_size=1, max_size=60)
rates = st.floats(0, 1)
seeds = st.integers(0, 20)


def every_kind(labels: list[int], rate: float, seed: int, exact: bool = True) -> dict[str, noise.Noisy]:
    options = {"num_classes": CLASSES, "seed": seed, "exact": exact}
    matrix = (1 - rate) * np.eye(CLASSES) + rate / CLASSES
    inputs = np.random.default_rng(0).normal(size=(len(labels), 3)).astype(np.float32)
    return {
        "symmetric": noise.symmetric(labels, rate, **options),
        "symmetric-any": noise.symmetric(labels, rate, include_self=True, **options),
        "asymmetric": noise.asymmetric(labels, rate, mapping={0: 1, 2: 3}, **options),
        "pair": noise.pair_flip(labels, rate, **options),
        "instance": noise.instance_dependent(labels, rate, inputs, num_classes=CLASSES, seed=seed),
        "transition": noise.from_transition(labels, matrix, seed=seed, exact=exact),
    }


@given(labels_of, seeds, st.booleans())
def test_rate_zero_changes_nothing(labels: list[int], seed: int, exact: bool) -> None:
    for kind, noisy in every_kind(labels, 0.0, seed, exact).items():
        assert noisy.labels.tolist() == labels, kind
        assert noisy.labels.dtype == torch.int64
        assert noisy.rate == 0
        assert torch.equal(noisy.transition, torch.eye(CLASSES, dtype=torch.float64))


@given(labels_of, rates, seeds, st.booleans())
def test_transition_and_rate_are_what_came_about(labels: list[int], rate: float, seed: int, exact: bool) -> None:
    for kind, noisy in every_kind(labels, rate, seed, exact).items():
        old, new = np.array(labels), noisy.labels.numpy()
        assert noisy.transition.shape == (CLASSES, CLASSES)
        assert torch.allclose(noisy.transition.sum(dim=1), torch.ones(CLASSES, dtype=torch.float64)), kind
        assert noisy.rate == pytest.approx((old != new).mean())
        assert ((new >= 0) & (new < CLASSES)).all()
        for i in set(labels):
            for j in range(CLASSES):
                assert noisy.transition[i, j] == pytest.approx((new[old == i] == j).mean())


@given(labels_of, rates, seeds)
def test_exact_counts_per_class(labels: list[int], rate: float, seed: int) -> None:
    kinds = every_kind(labels, rate, seed)
    for c in set(labels):
        rows = torch.tensor(labels) == c
        due = round(rate * int(rows.sum()))
        assert int((kinds["symmetric"].labels[rows] != c).sum()) == due  # hence never to itself
        assert int((kinds["symmetric-any"].labels[rows] != c).sum()) <= due
        assert int((kinds["pair"].labels[rows] == (c + 1) % CLASSES).sum()) == due
        mapped = {0: 1, 2: 3}.get(c)
        changed = kinds["asymmetric"].labels[rows] != c
        assert int(changed.sum()) == (0 if mapped is None else due)
        assert (kinds["asymmetric"].labels[rows][changed] == (mapped or 0)).all()


@given(labels_of, seeds)
def test_exact_transition_counts(labels: list[int], seed: int) -> None:
    matrix = np.array([[0.5, 0.5, 0, 0], [0, 1, 0, 0], [0.1, 0.2, 0.3, 0.4], [0.25] * 4])
    noisy = noise.from_transition(labels, matrix, seed=seed)
    for c in set(labels):
        count = labels.count(c)
        assert (np.abs(noisy.transition[c].numpy() * count - matrix[c] * count) < 1).all()


@given(labels_of, rates, seeds)
def test_same_seed_same_labels(labels: list[int], rate: float, seed: int) -> None:
    before = list(labels)
    for exact in (True, False):
        first, second = every_kind(labels, rate, seed, exact), every_kind(labels, rate, seed, exact)
        assert all(torch.equal(first[kind].labels, second[kind].labels) for kind in first)
    assert labels == before


def test_seeds_differ_and_input_is_kept() -> None:
    labels = torch.arange(1000) % CLASSES
    kept = labels.clone()
    one, two = noise.symmetric(labels, 0.5, seed=1), noise.symmetric(labels, 0.5, seed=2)
    assert not torch.equal(one.labels, two.labels)
    assert torch.equal(labels, kept)


def test_bernoulli_statistics() -> None:
    labels = np.arange(40_000) % CLASSES
    off = 1 - np.eye(CLASSES)
    tolerance = 0.02  # four standard deviations of a frequency over 10,000 draws
    expected = {
        "symmetric": 0.6 * np.eye(CLASSES) + 0.4 / 3 * off,
        "symmetric-any": 0.6 * np.eye(CLASSES) + 0.1,
        "pair": 0.6 * np.eye(CLASSES) + 0.4 * np.roll(np.eye(CLASSES), 1, axis=1),
        "transition": 0.6 * np.eye(CLASSES) + 0.1,
    }
    drawn = every_kind(labels, 0.4, 0, exact=False)
    exact = every_kind(labels, 0.4, 0)
    for kind, matrix in expected.items():
        assert np.abs(drawn[kind].transition.numpy() - matrix).max() < tolerance, kind
        assert np.abs(exact[kind].transition.numpy() - matrix).max() < tolerance, kind
    assert drawn["symmetric"].rate != exact["symmetric"].rate == 0.4


def test_instance_dependent_rate_and_dependence() -> None:
    rng = np.random.default_rng(0)
    labels = np.arange(20_000) % CLASSES
    inputs = rng.normal(size=(20_000, 8)).astype(np.float32)
    noisy = noise.instance_dependent(labels, 0.3, inputs, seed=3)
    assert noisy.rate == pytest.approx(0.3, abs=0.015)  # q has mean 0.3002; four standard deviations are 0.013
    # The same input of the same class goes to the same wrong class whatever the draw: strong projections decide.
    strong = 50 * np.repeat(rng.normal(size=(1, 8)).astype(np.float32), 2000, axis=0)
    one_class = noise.instance_dependent(np.zeros(2000, dtype=int), 0.5, strong, num_classes=CLASSES, seed=0)
    assert (one_class.transition[0, 1:] > 0.3).sum() == 1


def test_instance_dependent_takes_sources_and_uint8() -> None:
    data = load("digits")
    whole = noise.instance_dependent(data.labels, 0.4, data.inputs, seed=1)
    lazy = noise.instance_dependent(data.labels, 0.4, Rows(data.inputs, torch.arange(len(data))), seed=1)
    scaled = noise.instance_dependent(data.labels, 0.4, data.inputs.float() / 255, seed=1)
    assert torch.equal(whole.labels, lazy.labels)
    assert torch.equal(whole.labels, scaled.labels)


def test_truncated_normal_stays_inside() -> None:
    draws = noise._truncated_normal(0.1, 0.1, np.random.default_rng(0).random(20_000))
    assert 0 <= draws.min() <= draws.max() <= 1
    assert draws.mean() == pytest.approx(0.1288, abs=0.003)  # 0.1 + 0.1·φ(1)/Φ(1)


def test_cifar10_pairs_flip_a_fifth() -> None:
    labels = np.arange(1000) % 10
    noisy = noise.asymmetric(labels, 0.4, mapping=noise.CIFAR10_PAIRS)
    assert noisy.rate == pytest.approx(0.2)
    names = noise.CIFAR10_CLASSES
    pairs = {names[a]: names[b] for a, b in noise.CIFAR10_PAIRS.items()}
    assert pairs == {"truck": "automobile", "bird": "airplane", "deer": "horse", "cat": "dog", "dog": "cat"}


def test_cifar100_circles_within_superclasses() -> None:
    mapping = noise.cifar100_superclass_circular()
    names = noise.CIFAR100_CLASSES
    assert sorted(mapping) == sorted(mapping.values()) == list(range(100))
    circle = [start := names.index("beaver")]
    for _ in range(4):
        circle.append(mapping[circle[-1]])
    assert [names[c] for c in circle] == ["beaver", "dolphin", "otter", "seal", "whale"]
    assert mapping[circle[-1]] == start
    assert (names[0], names[99]) == ("apple", "worm")


@given(st.integers(2, 30), seeds)
def test_derangement_moves_every_class(k: int, seed: int) -> None:
    order = noise.derangement(k, seed)
    assert sorted(order) == list(range(k))
    assert all(order[i] != i for i in range(k))
    assert order == noise.derangement(k, seed)


@pytest.mark.parametrize("spec", [f"{kind}:0.3" for kind in noise.KINDS])
def test_apply_sets_true_labels(spec: str) -> None:
    data = load("digits")
    noisy = noise.apply(data, spec, seed=1)
    assert torch.equal(noisy.true_labels, data.labels)
    assert noisy.noise_rate == pytest.approx(noise.parse(spec).rate * (0.9 if "any" in spec else 1), abs=0.03)
    assert torch.equal(noise.apply(data, spec, seed=1).labels, noisy.labels)
    assert noisy.inputs is data.inputs


def test_apply_picks_the_papers_mapping() -> None:
    def changed(k: int, shape: tuple[int, ...], names: tuple[str, ...] | None) -> set[tuple[int, int]]:
        data = LabeledData(np.zeros((5 * k, *shape), np.uint8), np.arange(5 * k) % k, class_names=names)
        noisy = noise.apply(data, "asymmetric:1")
        return {(a, b) for a, b in zip(data.labels.tolist(), noisy.labels.tolist(), strict=True) if a != b}

    pairs = set(noise.CIFAR10_PAIRS.items())
    assert changed(10, (1, 4, 4), noise.CIFAR10_CLASSES) == pairs
    assert changed(10, (3, 32, 32), None) == pairs
    assert changed(10, (1, 4, 4), None) == set(enumerate(noise.derangement(10, 0)))
    assert changed(100, (1, 2, 2), noise.CIFAR100_CLASSES) == set(noise.cifar100_superclass_circular().items())


def test_parse() -> None:
    assert noise.parse("symmetric:0.4") == ("symmetric", 0.4)
    assert noise.parse(" Symmetric_any : 1") == ("symmetric-any", 1.0)
    with pytest.raises(InputError, match="did you mean 'symmetric'"):
        noise.parse("symetric:0.4")
    with pytest.raises(InputError, match="lacks a rate"):
        noise.parse("pair")

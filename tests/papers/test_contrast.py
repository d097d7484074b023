"""Refined labels in theory: each formula against its slow twin, each claim of the paper as a measurement."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import contrast as slow

from noiseproof.errors import InputError
from noiseproof_papers.early_stopping import bounds as clusterbounds
from noiseproof_papers.early_stopping import clusters
from noiseproof_papers.early_stopping.clusters import Clusters, Net
from noiseproof_papers.sane import contrast


def small(seed: int = 0, *, eps0: float = 0.3, k: int = 6, name: str = "softplus") -> tuple[Clusters, Net]:
    centers = clusters.random_centers(3, 4, seed=seed, apart=0.5)
    data = clusters.clusterable(centers, [3, 2, 4], [-1.0, 1.0, 0.0], eps0=eps0, seed=100 + seed)
    return clusters.corrupt(data, 0.5, seed=seed), clusters.network(k, 4, activation=name, seed=200 + seed)


def certified(seed: int) -> tuple[Clusters, Net, clusterbounds.Guarantee]:
    """Two samples of 16 crops, labels ±1, ρ = δ/32, ε = 0, and a W₀ that Theorem 3.2 covers."""
    data = clusters.clusterable(torch.eye(2, dtype=torch.float64), [16, 16], [-1.0, 1.0], eps0=0, seed=seed)
    data = clusters.corrupt(data, 2 / 32, seed=seed)
    k = 250
    while (found := clusterbounds.certify(clusters.network(k, 2, activation="softplus", seed=seed), data)) is None:
        k *= 2
    return data, clusters.network(k, 2, activation="softplus", seed=seed), found


# --- Theorem 2: the descent ---


@pytest.mark.parametrize("name", ["relu", "softplus", "erf"])
@pytest.mark.parametrize("kind", ["itself", "next crop"])
def test_descent_agrees_with_its_twin(name: str, kind: str) -> None:
    data, net = small(name=name)
    guess = contrast.itself if kind == "itself" else contrast.next_crop(data.cluster)
    positive = data.x[guess(torch.arange(len(data.x)))]
    alphas = [0.1, 0.5, 0.9, 0.3, 1.0, 0.7]
    path = contrast.descend(net, data, alphas.__getitem__, guess=guess, step=0.2, steps=5)
    W, v, x, y, other = (one.numpy() for one in (net.W, net.v, data.x, data.label, positive))
    f, refined = slow.descend(W, v, name, x, y, other, alphas, 0.2)
    np.testing.assert_allclose(path.outputs[0].numpy(), f, rtol=1e-10)
    np.testing.assert_allclose(path.labels[0].numpy(), refined, rtol=1e-10)


def test_a_crop_that_guesses_for_itself_only_slows_the_clock() -> None:
    """f − ỹ = (1 − α)(f − y): the same path as plain descent with steps η(1 − α)."""
    data, net = small()
    watch = [0, 1, 7, 40]
    refined = contrast.descend(net, data, lambda t: 0.75, step=0.2, steps=40, watch=watch)
    plain = clusters.descend(net, data.x, data.label, step=0.05, steps=40, watch=watch)
    torch.testing.assert_close(refined.outputs, plain.outputs, rtol=1e-10, atol=1e-12)


def test_positives_are_other_crops_of_the_same_sample() -> None:
    cluster = torch.tensor([0, 1, 0, 2, 1, 0])
    other = contrast.next_crop(cluster)(torch.arange(6))
    assert other.tolist() == [2, 4, 5, 3, 1, 0]
    assert contrast.all_crops(cluster)(torch.arange(6.0)).tolist() == pytest.approx([7 / 3, 2.5, 7 / 3, 3, 2.5, 7 / 3])


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10**6), alpha=st.floats(0, 0.95))
def test_limit_agrees_with_its_twin(seed: int, alpha: float) -> None:
    data, _ = small(seed % 50)
    for guess in (contrast.next_crop(data.cluster), contrast.all_crops(data.cluster)):
        P = torch.stack([guess(column) for column in torch.eye(9, dtype=torch.float64)], 1)
        found = contrast.limit(data.label, guess, alpha)
        np.testing.assert_allclose(found.numpy(), slow.limit(data.label.numpy(), P.numpy(), alpha), atol=1e-10)


@pytest.mark.parametrize("n", [1, 2, 5])
def test_weight_of_the_own_label_in_the_limit(n: int) -> None:
    alpha, label, cluster = 0.8, torch.eye(n, dtype=torch.float64)[0], torch.zeros(n, dtype=torch.int64)
    around = contrast.limit(label, contrast.next_crop(cluster), alpha)[0]
    assert float(around) == pytest.approx((1 - alpha) / (1 - alpha**n))
    mean = contrast.limit(label, contrast.all_crops(cluster), alpha)[0]
    assert float(mean) == pytest.approx(1 - alpha + alpha / n)


def test_guesses_of_other_crops_last_and_own_guesses_do_not() -> None:
    """ε > 0, long after t₀: with x̃ = x the network ends at the wrong labels, with other crops at `limit`."""
    centers = clusters.random_centers(2, 6, seed=3, apart=1.0)
    data = clusters.clusterable(centers, [6, 6], [-1.0, 1.0], eps0=0.7, seed=4)
    data = clusters.corrupt(data, 0.2, seed=5)
    net = clusters.network(60, 6, activation="relu", seed=6)
    step = 1 / float(torch.linalg.eigvalsh(clusters.gram(net, data.x))[-1])
    wrong = data.label != data.truth
    assert wrong.sum() == 2
    alpha = 0.8
    for guess, lasts in ((contrast.itself, False), (contrast.all_crops(data.cluster), True)):
        path = contrast.descend(net, data, lambda t: alpha, guess=guess, step=step, steps=4000)
        end = contrast.limit(data.label, guess, alpha)
        torch.testing.assert_close(path.outputs[0], end, atol=0.02, rtol=0)
        torch.testing.assert_close(path.labels[0], end, atol=0.02, rtol=0)
        right = clusters.nearest(path.labels[0], data.truth) == data.truth
        assert right[~wrong].all()
        assert bool(right[wrong].all()) == lasts


def test_a_clock_that_stops_is_early_stopping() -> None:
    data, net = small()
    alpha = contrast.rising(1.0, 10)
    assert alpha(0) == 0
    assert alpha(5) == pytest.approx(0.5)
    path = contrast.descend(net, data, alpha, step=0.2, steps=500, watch=[10, 500])
    assert torch.equal(path.outputs[0], path.outputs[1])
    assert not torch.allclose(path.outputs[1], data.label, atol=0.1)
    assert sum(1 - alpha(t) for t in range(500)) == pytest.approx(5.5)


# --- Theorem 2: the bounds ---


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("last", [0.0, 0.6, 0.95])
def test_the_bounds_hold_at_every_iteration(seed: int, last: float) -> None:
    data, net, given = certified(seed)
    alpha = contrast.rising(last, 50)
    at = [0, 1, 5, 20, 60, 200]
    path = contrast.descend(net, data, alpha, step=given.step, steps=200, watch=at)
    bound = contrast.error_bound(net, data, given, alpha, at, step=given.step)
    error = (path.outputs - data.truth).abs().amax(1)
    assert (error <= bound + 1e-9).all()
    a = torch.tensor([alpha(t) for t in at], dtype=torch.float64)
    assert (
        contrast.label_error(path.labels, data.truth) <= contrast.label_bound(data.label, data.truth, a, bound)
    ).all()
    with pytest.raises(InputError, match="step must be a number in"):
        contrast.error_bound(net, data, given, alpha, at, step=2 * given.step)


def test_the_bound_is_one_over_one_minus_alpha_long() -> None:
    """With a constant α the certified time is that of plain descent over 1 − α, and then |f − y*| is in bounds."""
    data, net, given = certified(0)
    steps = math.ceil(given.steps / 0.2)
    path = contrast.descend(net, data, lambda t: 0.8, step=given.step, steps=steps)
    assert float((path.outputs[0] - data.truth).abs().max()) <= given.error


@pytest.mark.parametrize("seed", range(3))
def test_the_papers_t0_is_too_short(seed: int) -> None:
    """|f − y*| ≤ 4ρ from t₀ ∝ log(1/(1 − α)) on is true for α = 0 and false for α near 1."""
    data, net, given = certified(seed)
    rho = contrast.wrong_share(data)
    assert rho == 2 / 32
    for alpha, holds in ((0.0, True), (0.999, False)):
        steps = contrast.claimed_steps(net, data, given, alpha, step=given.step)
        path = contrast.descend(net, data, lambda t, alpha=alpha: alpha, step=given.step, steps=steps)
        assert (float((path.outputs[0] - data.truth).abs().max()) <= 4 * rho) == holds


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 10**6), values=st.integers(2, 6), share=st.floats(0, 0.99), more=st.floats(1e-6, 1))
def test_enough_alpha_is_enough_and_no_less_is(seed: int, values: int, share: float, more: float) -> None:
    rng = np.random.default_rng(seed)
    gamma = torch.linspace(-1, 1, values, dtype=torch.float64)
    delta = 2 / (values - 1)
    error = share * delta / 2
    least = contrast.enough_alpha(delta, error, largest=2.0)
    alpha = least + more * (1 - least)
    truth, label = (gamma[torch.from_numpy(rng.integers(values, size=40))] for _ in range(2))
    guess = truth + error * torch.from_numpy(rng.uniform(-1, 1, 40))
    assert torch.equal(clusters.nearest((1 - alpha) * label + alpha * guess, gamma), truth)
    below = 0.999 * least  # the worst case: the label at the other end, the guess leaning there
    refined = torch.tensor([(1 - below) * 1.0 + below * (-1 + error)], dtype=torch.float64)
    assert clusters.nearest(refined, gamma)[0] != -1


@pytest.mark.parametrize("values", [2, 3, 4])
def test_the_papers_alpha_is_not_enough(values: int) -> None:
    """α = 1 − ¾δ leaves a wrong label wrong even where the network is right."""
    gamma = torch.linspace(-1, 1, values, dtype=torch.float64)
    alpha = max(1 - 0.75 * 2 / (values - 1), 0)
    refined = torch.tensor([(1 - alpha) * 1.0 + alpha * -1.0], dtype=torch.float64)
    assert clusters.nearest(refined, gamma)[0] != -1


def test_theorem_2_asks_for_sizes_no_machine_has() -> None:
    centers = clusters.random_centers(2, 20, seed=0, apart=1.0)
    asked = contrast.asked(centers, 400, 2 / 32, 2.0, "softplus", alpha_max=0.9, step=0.01)
    expected = slow.asked(
        centers.numpy(), clusters.covariance(centers, "softplus").numpy(), 400, 2 / 32, 2.0, 0.9, 0.01
    )
    assert asked == pytest.approx(expected, rel=1e-9)
    assert asked.width > 1e6
    assert asked.eps < 1e-4
    longer = contrast.asked(centers, 400, 2 / 32, 2.0, "softplus", alpha_max=0.99, step=0.01)
    assert longer.steps < 2 * asked.steps  # although descent is ten times as slow


# --- Theorem 1 ---


@pytest.mark.parametrize("a", [0.35, 0.4, 0.47])
def test_a_trained_network_has_the_gap_of_the_formula(a: float) -> None:
    label, truth = contrast.construction(a), contrast.construction(0.45)
    h = contrast.fit_construction(label, seed=1)
    torch.testing.assert_close(h, label, atol=1e-4, rtol=0)
    found = float(contrast.risk(h, truth) - contrast.risk(h, label))
    assert found == pytest.approx(contrast.gap(a, 0.45), abs=1e-3)
    assert found == pytest.approx(slow.risk(h.numpy(), truth.numpy()) - slow.risk(h.numpy(), label.numpy()))
    assert math.copysign(1, found) == math.copysign(1, a - 0.45)  # the paper has it positive at 0.4
    assert contrast.printed_gap(a, 0.45) == pytest.approx(-contrast.gap(a, 0.45) / 3)
    distance = float((label - truth).norm(dim=1).mean())
    assert distance == pytest.approx(math.sqrt(6) * abs(0.45 - a))
    assert abs(found) <= float(h.log().norm(dim=1).max()) * distance  # Theorem 1(1), L_y = max‖log h‖


def test_labels_may_be_wrong_without_a_gap() -> None:
    assert contrast.gap(1 / 3, 0.45) == pytest.approx(0)
    assert contrast.one_hot_gap(0.5, 0.2) == 0


def test_one_hot_labels_drive_the_similarities_to_their_ends() -> None:
    label = torch.tensor([[1.0, 0.0, 0.0]] * 2, dtype=torch.float64)
    h = contrast.fit_construction(label, temperature=0.5, seed=0)
    truth = contrast.construction(0.4)
    found = float(contrast.risk(h, truth) - contrast.risk(h, label))
    assert found == pytest.approx(contrast.one_hot_gap(0.4, 0.5), rel=1e-3)


@settings(max_examples=25, deadline=None)
@given(a=st.floats(0.01, 0.49), true=st.floats(0.01, 0.49))
def test_wrong_labels_cost_at_least_half_their_squared_error(a: float, true: float) -> None:
    h, truth = contrast.construction(a), contrast.construction(true)
    assert float(contrast.excess(h, truth)) >= 0.5 * (4 * abs(true - a)) ** 2 - 1e-12
    assert float(contrast.excess(h, truth)) == pytest.approx(
        sum(float(p * (p / q).log()) for p, q in zip(truth[0], h[0], strict=True)), abs=1e-12
    )


def test_similarities_agree_with_their_twin() -> None:
    features = torch.randn(2, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = contrast.similarities(features, 0.3)
    np.testing.assert_allclose(found.numpy(), slow.keys(features.numpy(), 0.3), rtol=1e-12)
    assert (found[:, 0] >= 1 / 3).all()


# --- the door ---


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (
            lambda d, n: contrast.descend(n, d, lambda t: 1.5, step=0.1, steps=1),
            r"alpha of iteration 0 must be a number in \[0, 1\], got 1.5",
        ),
        (lambda d, n: contrast.descend(n, d, lambda t: 0.0, step=0.1, steps=1, watch=[2]), "watch must rise within"),
        (lambda d, n: contrast.descend(n, d, lambda t: 0.0, step=1e6, steps=400), "diverged before iteration"),
        (lambda d, n: contrast.limit(d.label, contrast.itself, 1.0), r"alpha must be a number in \[0, 1\)"),
        (lambda d, n: contrast.enough_alpha(1.0, 0.5, 2.0), r"error must be a number in \[0, 0.5\)"),
        (lambda d, n: contrast.enough_alpha(1.0, 0.1, 0.5), "largest must be a number, 1 or more"),
        (lambda d, n: contrast.construction(0.5), r"a must be a number in \(0, 0.5\)"),
        (lambda d, n: contrast.fit_construction(contrast.construction(0.4), temperature=0, seed=0), "temperature"),
    ],
)
def test_bad_input_is_refused(call: Callable[[Clusters, Net], object], says: str) -> None:
    data, net = small(1, name="relu")  # seed 0 has no unit left alive after the large step, and so stays finite
    with pytest.raises(InputError, match=says):
        call(data, net)

"""Early stopping's theory: each formula against its slow twin, each theorem as a measurement or a property."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import clusterbounds as further
from reference import clusters as slow
from torch import Tensor

from noiseproof_papers.early_stopping import bounds as clusterbounds
from noiseproof_papers.early_stopping import clusters
from noiseproof_papers.early_stopping.clusters import ACTIVATIONS, Clusters, Net

SMOOTH = ["softplus", "erf"]


def small(seed: int = 0, *, eps0: float = 0.3, name: str = "softplus", k: int = 6) -> tuple[Clusters, Net]:
    centers = clusters.random_centers(3, 4, seed=seed, apart=0.5)
    data = clusters.clusterable(centers, [3, 2, 4], [-1.0, 1.0, 0.0], eps0=eps0, seed=seed)
    return clusters.corrupt(data, 0.5, seed=seed), clusters.network(k, 4, activation=name, seed=seed)


def norm(x: Tensor) -> float:
    return float(torch.linalg.matrix_norm(x, 2))


# --- data ---


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), eps0=st.floats(0, 1.9), rho=st.floats(0, 1))
def test_data_obeys_definitions_1_1_and_1_2(seed: int, eps0: float, rho: float) -> None:
    centers = clusters.random_centers(4, 3, seed=seed)
    sizes, labels = [5, 9, 7, 6], [0.5, -1.0, 0.5, 0.0]
    clean = clusters.clusterable(centers, sizes, labels, eps0=eps0, seed=seed)
    torch.testing.assert_close(clean.x.norm(dim=1), torch.ones(27, dtype=torch.float64))
    torch.testing.assert_close((clean.x - centers[clean.cluster]).norm(dim=1), torch.full((27,), eps0).double())
    assert torch.bincount(clean.cluster).tolist() == sizes
    assert torch.equal(clean.truth, torch.tensor(labels, dtype=torch.float64)[clean.cluster])
    noisy = clusters.corrupt(clean, rho, seed=seed)
    changed = torch.bincount(clean.cluster[noisy.label != noisy.truth], minlength=4).tolist()
    assert changed == [math.floor(rho * size + 1e-9) for size in sizes]
    assert set(noisy.label.tolist()) <= set(labels)
    assert torch.equal(noisy.truth, clean.label)


def test_figure_6_data_lies_on_spheres_around_the_centres_and_half_of_the_shuffled_labels_change() -> None:
    centers = clusters.random_centers(2, 20, seed=1, apart=1.0)
    assert float(torch.pdist(centers)) >= 1
    data = clusters.clusterable(centers, [1000, 1000], [0.0, 1.0], eps0=0.5, seed=1, on_sphere=False)
    torch.testing.assert_close((data.x - centers[data.cluster]).norm(dim=1), torch.full((2000,), 0.5).double())
    assert float((data.x.norm(dim=1) - 1).abs().max()) > 0.1  # not of norm 1, as Definition 1.1 would have it
    noisy = clusters.shuffle(data, 0.3, seed=2)
    assert abs(float((noisy.label != noisy.truth).double().mean()) - 0.15) < 0.03


def test_nearest_takes_the_nearest_label_value() -> None:
    found = clusters.nearest(torch.tensor([[-3.0, 0.4], [0.6, 0.2]]), torch.tensor([1.0, -1.0, 0.0, 1.0]))
    assert found.tolist() == [[-1.0, 0.0], [1.0, 0.0]]


def test_projection_and_diffusedness_match_the_definitions() -> None:
    data, _ = small()
    P = slow.projection(data.cluster.numpy())
    r = torch.randn(9, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    np.testing.assert_allclose(clusters.cluster_means(r, data.cluster).numpy(), P @ r.numpy(), atol=1e-14)
    assert slow.diffusedness(P) == pytest.approx(9 / 2)  # n / min n_ℓ


# --- network ---


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("k", [6, 7])
def test_network_and_descent_match_the_loops(name: str, k: int) -> None:
    data, net = small(name=name, k=k)
    W, v, x = net.W.numpy(), net.v.numpy(), data.x.numpy()
    assert abs(v.sum()) < 1e-14
    assert np.count_nonzero(v) == k // 2 * 2
    J = slow.jacobian(W, v, name, x)
    np.testing.assert_allclose(clusters.predict(net, data.x).numpy(), slow.predict(W, v, name, x), atol=1e-13)
    np.testing.assert_allclose(clusters.gram(net, data.x).numpy(), J @ J.T, atol=1e-13)
    path = clusters.descend(net, data.x, data.label, step=0.1, steps=7, watch=[0, 3, 7])
    for i, at in enumerate(path.at):
        expected = slow.descend(W, v, name, x, data.label.numpy(), 0.1, at)
        np.testing.assert_allclose(path.outputs[i].numpy(), slow.predict(expected, v, name, x), atol=1e-12)
        assert float(path.distance[i]) == pytest.approx(float(np.linalg.norm(expected - W)), abs=1e-12)
    np.testing.assert_allclose(path.net.W.numpy(), expected, atol=1e-12)
    assert torch.equal(net.W, torch.from_numpy(W))  # the start is left alone


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_have_the_stated_slope_and_bounds(name: str) -> None:
    phi = ACTIVATIONS[name]
    z = torch.linspace(-6, 6, 20_001, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(phi.value(z).sum(), z)
    torch.testing.assert_close(phi.slope(z).detach(), slope)
    assert 0.99 * phi.max_slope <= float(slope.max()) <= phi.max_slope + 1e-12
    if name != "relu":
        (curvature,) = torch.autograd.grad(phi.slope(z).sum(), z)
        assert float(curvature.abs().max()) == pytest.approx(phi.max_curvature, rel=1e-5)


@pytest.mark.parametrize("name", SMOOTH)
def test_copies_of_an_input_weigh_as_one(name: str) -> None:
    data, net = small(eps0=0.0, name=name)
    full = clusters.descend(net, data.x, data.label, step=0.05, steps=40)
    weight = torch.bincount(data.cluster).double()
    means = torch.zeros(3, dtype=torch.float64).index_add_(0, data.cluster, data.label) / weight
    brief = clusters.descend(net, data.centers, means, step=0.05, steps=40, weight=weight)
    torch.testing.assert_close(brief.net.W, full.net.W)


# --- covariance ---


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_covariance_matches_the_integral(name: str) -> None:
    C = torch.tensor([[1.0, 0.0], [0.8, 0.6], [-0.6, 0.8]], dtype=torch.float64)
    np.testing.assert_allclose(clusters.covariance(C, name).numpy(), slow.covariance(C.numpy(), name), atol=1e-8)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_covariance_is_the_kernel_of_a_wide_network(name: str) -> None:
    C = clusters.random_centers(4, 6, seed=0)
    net = clusters.network(200_000, 6, activation=name, seed=0)
    torch.testing.assert_close(clusters.gram(net, C), clusters.covariance(C, name), atol=0.01, rtol=0)


def test_quadrature_is_exact_to_round_off() -> None:
    c = torch.linspace(-1, 1, 21, dtype=torch.float64)
    by_quadrature = clusters._quadrature(ACTIVATIONS["erf"].slope)(c)
    torch.testing.assert_close(by_quadrature, ACTIVATIONS["erf"].kernel(c), atol=1e-10, rtol=0)
    both = ACTIVATIONS["softplus"].kernel(c) + ACTIVATIONS["softplus"].kernel(-c)
    torch.testing.assert_close(both, torch.full_like(c, 0.5), atol=1e-12, rtol=0)  # σ(−z) = 1 − σ(z)


def test_opposite_centres_are_one_to_erf_only() -> None:
    C = torch.tensor([[1.0, 0.0], [-1.0, 0.0]], dtype=torch.float64)
    assert clusters.eigenvalue(C, "erf") == pytest.approx(0, abs=1e-12)
    assert clusters.eigenvalue(C, "relu") == pytest.approx(0.5)
    assert clusters.eigenvalue(C, "softplus") > 0.05
    assert further.condition(C, "relu") == pytest.approx(math.sqrt(2) / 0.5)


# --- upper bounds ---


def test_theorem_2_3_has_the_constants_of_its_proof() -> None:
    C, sizes, rho = clusters.random_centers(3, 5, seed=0), [10, 20, 30], 0.1
    found = clusterbounds.perfect(C, sizes, rho, "softplus", failure=0.02)
    n, K, low, up = 60, 3, 0.5, 1.5
    r0 = math.sqrt(n) * (1 + math.sqrt(2 * math.log(4 * K / 0.02)))  # Lemma 6.9
    lam = clusters.eigenvalue(C, "softplus")
    alpha = math.sqrt(low * n * lam / (2 * K)) / 2
    beta = math.sqrt(up * n / K) * norm(C)
    assert found.radius == pytest.approx(4 * r0 / alpha)
    assert found.step == pytest.approx(1 / (2 * beta**2))
    assert found.steps == math.ceil(5 / (found.step * alpha**2) * math.log(r0 / (2 * rho)))
    L = 0.25 * norm(C) * math.sqrt(up * n / (K * found.width))
    assert L * found.radius == pytest.approx(alpha)  # Eq. (6.41), with equality at the least k


def test_the_start_is_as_theorem_6_8_and_lemma_6_9_say() -> None:
    C = clusters.random_centers(2, 6, seed=0, apart=1.0)
    lam, failure = clusters.eigenvalue(C, "softplus"), 0.1
    k = math.ceil(norm(C) ** 2 * math.log(2 * 2 / failure) / ((0.5 - 0.5 * math.log(2)) * lam))
    bad_start = bad_fit = 0
    for seed in range(200):
        net = clusters.network(k, 6, activation="softplus", seed=seed)
        bad_start += float(torch.linalg.eigvalsh(clusters.gram(net, C))[0]) < lam / 2
        bad_fit += float(clusters.predict(net, C).abs().max()) > math.sqrt(2 * math.log(4 * 2 / failure))
    assert bad_start <= failure / 2 * 200
    assert bad_fit <= failure / 2 * 200


@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 10**6), name=st.sampled_from(SMOOTH))
def test_certified_descent_does_what_theorem_3_2_promises(seed: int, name: str) -> None:
    C = clusters.random_centers(2, 2, seed=seed, apart=1.0)
    if clusters.eigenvalue(C, name) < 0.1:  # erf, nearly opposite
        return
    data = clusters.corrupt(clusters.clusterable(C, [16, 24], [-1.0, 1.0], eps0=0, seed=seed), 0.25, seed=seed)
    k = 64
    while (found := clusterbounds.certify(clusters.network(k, 2, activation=name, seed=seed), data)) is None:
        k *= 2
        assert k < 10**6
    net = clusters.network(k, 2, activation=name, seed=seed)
    weight = torch.bincount(data.cluster).double()
    means = torch.zeros(2, dtype=torch.float64).index_add_(0, data.cluster, data.label) / weight
    watch = [*range(0, found.steps, 7), found.steps, found.steps + 50]
    path = clusters.descend(net, C, means, step=found.step, steps=watch[-1], watch=watch, weight=weight)
    error = (path.outputs - torch.tensor([-1.0, 1.0], dtype=torch.float64)).abs().amax(1)
    assert float(path.distance.max()) <= found.radius
    assert float(error[-2:].max()) <= found.error < 1


def test_no_certificate_for_a_narrow_network() -> None:
    data, net = small(eps0=0.0)
    assert clusterbounds.certify(net, data) is None


def test_theorem_2_2_asks_for_the_impossible() -> None:
    C = clusters.random_centers(2, 20, seed=0, apart=1.0)
    perfect = clusterbounds.perfect(C, [200, 200], 0.125, "softplus")
    found = further.clustered(C, [200, 200], 0.125, 1.0, "softplus")
    assert perfect.width < 10**5
    assert found.width > 10**15
    assert found.eps0 < 1e-8
    assert found.radius > perfect.radius
    assert found.error == pytest.approx(0.5)  # δ/2


# --- lower bounds ---


def drawn(seed: int, k: int, d: int, n: int, name: str, scale: float, aim: bool) -> tuple[Net, Net, Tensor, Tensor]:
    """W₀, another W, inputs and clusters; `aim`: W − W₀ along the direction that changes Π₋f fastest."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, d, generator=generator, dtype=torch.float64)
    cluster = torch.randint(0, 2, (n,), generator=generator)
    cluster[0], cluster[-1] = 0, 1
    net = clusters.network(k, d, activation=name, seed=seed)
    D = torch.randn(k, d, generator=generator, dtype=torch.float64)
    if aim:
        J = torch.from_numpy(slow.jacobian(net.W.numpy(), net.v.numpy(), name, x.numpy()))
        off = torch.eye(n, dtype=torch.float64) - torch.from_numpy(slow.projection(cluster.numpy()))
        D = torch.linalg.svd(off @ J, full_matrices=False).Vh[0].reshape(k, d)
    return net, net._replace(W=net.W + scale * D / D.norm()), x, cluster


RANDOM_NETS = {
    "seed": st.integers(0, 10**6), "k": st.integers(2, 16), "d": st.integers(1, 4), "n": st.integers(2, 7),
    "name": st.sampled_from(SMOOTH), "log_scale": st.floats(-3, 3), "aim": st.booleans(),
}  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(**RANDOM_NETS)
def test_theorem_3_3_never_exceeds_the_distance(
    seed: int, k: int, d: int, n: int, name: str, log_scale: float, aim: bool
) -> None:
    """Every W fits the labels f(W) exactly, so every W is a trial."""
    net, other, x, cluster = drawn(seed, k, d, n, name, 10**log_scale, aim)
    y = clusters.predict(other, x)
    found = clusterbounds.stray(net, x, y, cluster)
    assert found <= float((other.W - net.W).norm()) * (1 + 1e-9) + 1e-9
    curvature = ACTIVATIONS[name].max_curvature
    twin = slow.stray(net.W.numpy(), net.v.numpy(), name, x.numpy(), y.numpy(), cluster.numpy(), curvature)
    assert found == pytest.approx(twin, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("name", SMOOTH)
def test_theorem_3_3_is_tight_for_short_steps(name: str) -> None:
    net, other, x, cluster = drawn(0, 12, 3, 6, name, 1e-3, True)
    found = clusterbounds.stray(net, x, clusters.predict(other, x), cluster)
    assert found > 0.99 * float((other.W - net.W).norm())


@pytest.mark.parametrize("seed", range(4))
def test_descent_that_fits_wrong_labels_goes_at_least_as_far_as_theorem_3_3(seed: int) -> None:
    """Training to zero loss: two clusters, one wrong label in each, the rest right."""
    name = SMOOTH[seed % 2]
    C = clusters.random_centers(2, 5, seed=seed, apart=1.0)
    data = clusters.clusterable(C, [4, 4], [-1.0, 1.0], eps0=0.6, seed=seed)
    data = clusters.corrupt(data, 0.25, seed=seed)
    net = clusters.network(60, 5, activation=name, seed=seed)
    step = 1 / float(torch.linalg.eigvalsh(clusters.gram(net, data.x))[-1])
    path = clusters.descend(net, data.x, data.label, step=step, steps=6000)
    fitted = path.outputs[-1]
    assert float((fitted - data.label).abs().max()) < 0.5  # the wrong labels, too, are on their side
    found = clusterbounds.stray(net, data.x, fitted, data.cluster)
    assert 0.02 * float(path.distance[-1]) < found <= float(path.distance[-1])
    off = torch.eye(8, dtype=torch.float64) - torch.from_numpy(slow.projection(data.cluster.numpy()))
    start = clusters.predict(net, data.x)
    assert (off @ (start - fitted)).norm() > (off @ (start - data.truth)).norm()  # what lies off S₊ is the noise


@settings(max_examples=150, deadline=None)
@given(**RANDOM_NETS, log_eps=st.floats(-6, 0))
def test_theorem_2_4_never_exceeds_the_distance(
    seed: int, k: int, d: int, n: int, name: str, log_scale: float, aim: bool, log_eps: float
) -> None:
    net, other, x, _ = drawn(seed, k, d, n, name, 10**log_scale, aim)
    x1, x2 = x[0], x[0] + 10**log_eps * x[1]
    y1, y2 = clusters.predict(other, torch.stack([x1, x2])).tolist()
    distance = norm(other.W - net.W)
    slack = 1e-12 / float((x2 - x1).norm())  # round-off in y₂ − y₁
    assert further.pair(net, x1, x2, y1, y2) <= distance * (1 + 1e-9) + slack


def test_theorem_2_4_grows_like_the_gap_over_eps_at_every_eps() -> None:
    net = clusters.network(100, 5, activation="softplus", seed=0)
    x1 = torch.eye(5, dtype=torch.float64)[0]
    u = torch.eye(5, dtype=torch.float64)[1]
    for eps in (1e-6, 1e-4, 1e-2, 1e-1):
        x2 = (1 - eps**2 / 2) * x1 + eps * math.sqrt(1 - eps**2 / 4) * u
        assert 0.15 < further.pair(net, x1, x2, -1.0, 1.0) * eps / 2 <= 1
    assert further.pair(net, x1, x1, -1.0, 1.0) == math.inf


def test_theorem_2_4_before_the_draw_is_below_that_after_it() -> None:
    k, d, eps = 50, 5, 0.02
    x1, u = torch.eye(d, dtype=torch.float64)[:2]
    x2 = (1 - eps**2 / 2) * x1 + eps * math.sqrt(1 - eps**2 / 4) * u
    before = further.pair_before(1.0, eps, k, d, "softplus")
    assert before > 1
    for seed in range(50):
        net = clusters.network(k, d, activation="softplus", seed=seed)
        assert further.pair(net, x1, x2, 0.0, 1.0) >= before


@settings(max_examples=100, deadline=None)
@given(**RANDOM_NETS)
def test_lemma_2_5_never_exceeds_the_norm(
    seed: int, k: int, d: int, n: int, name: str, log_scale: float, aim: bool
) -> None:
    _, other, x, _ = drawn(seed, k, d, 2 * n, name, 10**log_scale, aim)
    for kind in (name, "relu"):
        net = other._replace(activation=kind)
        y = clusters.predict(net, x)
        assert further.norm_to_fit(net, x[:n], x[n:], y[:n], y[n:]) <= float(net.W.norm()) * (1 + 1e-9)


def test_lemma_2_5_holds_with_its_probability() -> None:
    d, s, eps0, delta = 10, 10, 0.3, 1.0
    net = clusters.network(4, d, activation="softplus", seed=0)
    generator = torch.Generator().manual_seed(0)
    x = eps0 / math.sqrt(d) * torch.randn(400, 2, s, d, generator=generator, dtype=torch.float64)
    y = torch.zeros(s, dtype=torch.float64)
    found = [further.norm_to_fit(net, one[0], one[1], y, y + delta) for one in x]
    assert np.mean(np.array(found) < math.sqrt(s) * delta / (3 * math.sqrt(2) * eps0)) <= math.exp(-d / 2)


# --- what the paper has wrong ---


def test_lemma_6_11_is_false_for_large_weights() -> None:
    eps = 1e-3
    x, other = torch.tensor([[1.0, eps / 2], [1.0, -eps / 2]], dtype=torch.float64)[:, None]
    net = Net(torch.tensor([[0.0, 1e5], [0.0, 1e5]]).double(), torch.tensor([1.0, -1.0]).double() / 2**0.5, "softplus")
    J = [slow.jacobian(net.W.numpy(), net.v.numpy(), "softplus", at.numpy()) for at in (x, other)]
    assert np.linalg.norm(J[0] - J[1], 2) > 900 * eps  # the lemma: at most Γ√n ε₀ = ε₀


def test_theorem_3_2_lacks_a_factor_of_two_on_the_projected_noise() -> None:
    e = torch.tensor([1.0, 1.0, 0.0, 0.0, 0.0, 0.0], dtype=torch.float64)  # S₊: constants, γ = 1
    projected = float(clusters.cluster_means(e, torch.zeros(6, dtype=torch.int64)).abs().max())
    gamma = slow.diffusedness(np.full((6, 6), 1 / 6))
    printed = gamma * math.sqrt(2) / 6 * float(e.norm())
    assert projected == pytest.approx(printed)  # Lemma 6.3, with equality
    assert 2 * projected > printed


def test_theorem_3_3_has_no_small_epsilon_over_all_weights() -> None:
    x = torch.tensor([[1.0, 1e-3], [1.0, -1e-3]], dtype=torch.float64)
    apart = clusters.network(10, 2, activation="softplus", seed=0)
    apart.W[:] = torch.tensor([0.0, 1e6])  # φ' is 1 at one input, 0 at the other
    off = np.eye(2) - slow.projection(np.zeros(2, dtype=np.int64))
    J = slow.jacobian(apart.W.numpy(), apart.v.numpy(), "softplus", x.numpy())
    assert np.linalg.norm(off @ J, 2) == pytest.approx(0.5 * norm(x), rel=1e-3)


def test_one_seed_serves_every_purpose():
    """Centres, inputs and network of one seed must not be made of the same numbers."""
    centers = clusters.random_centers(3, 6, seed=5)
    rows = clusters.network(4, 6, activation="relu", seed=5).W[:3]
    assert (torch.nn.functional.normalize(rows, dim=1) - centers).abs().max() > 0.1
    data = clusters.clusterable(centers, [1, 1, 1], [-1.0, 0.0, 1.0], eps0=0.5, seed=5)
    offset = torch.nn.functional.normalize(data.x - centers, dim=1)
    assert (offset - centers).abs().max() > 0.1

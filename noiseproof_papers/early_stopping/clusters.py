"""Clustered data with wrong labels, the network with one hidden layer, and gradient descent on it.

Mingchen Li, Mahdi Soltanolkotabi and Samet Oymak, "Gradient Descent with Early Stopping is Provably Robust to Label
Noise for Overparameterized Neural Networks", AISTATS 2020 (arXiv:1903.11680), Sections 1.3, 2.1 and 3. The theorems
are in bounds.py.

Data: n inputs of norm 1 in K clusters, ‖x_i − c_ℓ‖ ≤ ε₀ within cluster ℓ, which has n_ℓ examples,
c_low n/K ≤ n_ℓ ≤ c_up n/K. All of a cluster have one true label ỹ in [−1, 1]; different labels lie δ apart: (1.1).
At most ρn_ℓ labels of each cluster are then replaced by others (Definitions 1.1, 1.2).

    f(W, x) = vᵀφ(Wx),  v half 1/√k, half −1/√k, fixed                                   Eq. (1.2)
    L(W) = ½ Σ_i (y_i − f(W, x_i))²                                                      Eq. (1.3)
    W ← W − η∇L(W)  from W₀ with standard Gaussian entries                               Eq. (1.4)
    ∇L = [diag(v) φ'(WXᵀ) diag(r)] X,   r = f(W, X) − y
    J(W)ᵀ = (diag(v) φ'(WXᵀ)) * Xᵀ (columns of Kronecker products)                       Definition 6.6
    JJᵀ = XXᵀ ⊙ φ'(WXᵀ)ᵀ diag(v²) φ'(WXᵀ)

    Σ(C) = CCᵀ ⊙ E φ'(Cg)φ'(Cg)ᵀ,  λ(C) its least eigenvalue                            Definition 2.1
    S₊ = vectors constant on each cluster; it is γ diffused: |v_i| ≤ √(γ/n) ‖v‖          Definitions 6.5, 3.1

For correlation c the expectation is (π − arccos c)/(2π) for ReLU, 4/(π√(9 − 4c²)) for erf, and by Gauss–Hermite
quadrature for softplus.

Differs from the paper: Definition 1.1 asks for c_low < c_up < 1, which no data satisfies, since Σ n_ℓ = n; it is
c_low ≤ 1 ≤ c_up. The inputs of its Figure 6, c_ℓ + ε₀u with u on the sphere, have no norm 1: `on_sphere=False`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from noiseproof.errors import InputError
from noiseproof.models.shallow import SLOPES, jacobian_gram

_NODES = 80  # of the quadrature, each way: round-off for softplus


class Activation(NamedTuple):
    """φ, φ', and what the theory needs of them."""

    value: Callable[[Tensor], Tensor]
    slope: Callable[[Tensor], Tensor]
    kernel: Callable[[Tensor], Tensor]  # E φ'(a)φ'(b) for standard Gaussians a, b of the given correlation
    max_slope: float  # sup |φ'|: Γ of the paper where it bounds φ'
    max_curvature: float  # sup |φ''|: Γ where it bounds φ''; infinite for ReLU


class Clusters(NamedTuple):
    """A (ρ, ε₀, δ)-corrupted data set, Definition 1.2; with label = truth it is the clusterable one, Definition 1.1."""

    x: Tensor  # (n, d)
    label: Tensor  # (n,) y, observed
    truth: Tensor  # (n,) ỹ
    cluster: Tensor  # (n,) int64, from 0
    centers: Tensor  # (K, d)


class Net(NamedTuple):
    """The network (1.2)."""

    W: Tensor  # (k, d)
    v: Tensor  # (k,)
    activation: str


class Path(NamedTuple):
    """Gradient descent at T of its iterations, and the network at the end."""

    at: list[int]  # (T,)
    outputs: Tensor  # (T, n)
    distance: Tensor  # (T,) ‖W_τ − W₀‖_F
    net: Net


def _quadrature(slope: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """E φ'(a)φ'(b) with b = ca + √(1 − c²)a', by a product rule."""
    points, mass = np.polynomial.hermite_e.hermegauss(_NODES)
    nodes, weights = torch.from_numpy(points), torch.from_numpy(mass / mass.sum())

    def kernel(c: Tensor) -> Tensor:
        c = c.clamp(-1, 1)[..., None, None]
        other = slope(c * nodes[:, None] + (1 - c * c).sqrt() * nodes) @ weights  # (..., Q)
        return other @ (weights * slope(nodes))

    return kernel


ACTIVATIONS = {
    "relu": Activation(
        torch.relu, SLOPES["relu"], lambda c: (math.pi - torch.arccos(c.clamp(-1, 1))) / (2 * math.pi), 1.0, math.inf
    ),
    "softplus": Activation(
        lambda z: F.softplus(z, threshold=40.0), SLOPES["softplus"], _quadrature(SLOPES["softplus"]), 1.0, 0.25
    ),
    "erf": Activation(
        torch.erf, SLOPES["erf"], lambda c: 4 / (math.pi * (9 - 4 * c * c).sqrt()),
        2 / math.sqrt(math.pi), math.sqrt(8 / (math.pi * math.e)),
    ),
}  # fmt: skip


# --- data ---


def _stream(purpose: str, seed: int) -> torch.Generator:
    """Random numbers of their own for each purpose, so that one seed may serve centres, inputs, labels and network."""
    words = np.random.SeedSequence([seed, *purpose.encode()]).generate_state(2)
    return torch.Generator().manual_seed(int(words[0]) << 31 | int(words[1]) >> 1)


def random_centers(K: int, d: int, *, seed: int, apart: float = 0.0) -> Tensor:
    """K centres (K, d), uniform on the sphere, drawn again until no two are nearer than `apart`.

    Raises:
        InputError: there is hardly room for so many.
    """
    generator = _stream("centers", seed)
    for _ in range(10_000):
        C = F.normalize(torch.randn(K, d, generator=generator, dtype=torch.float64))
        if K < 2 or float(torch.pdist(C).min()) >= apart:
            return C
    raise InputError(f"no {K} random centres in {d} dimensions were {apart} apart; lower apart or raise d")


def clusterable(
    centers: Tensor, sizes: Sequence[int], labels: Sequence[float], *, eps0: float, seed: int, on_sphere: bool = True
) -> Clusters:
    """An (ε₀, δ)-clusterable data set, Definition 1.1: inputs at distance ε₀ from their centres, uniformly.

    Centres (K, d) have norm 1, sizes are n_ℓ, clusters may share a label. On the sphere inputs have norm 1, as the
    definition asks; if not, they are c_ℓ + ε₀u as in Figure 6.
    """
    cluster = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    x = c = centers[cluster]  # (n, d)
    u = torch.randn(c.shape, generator=_stream("inputs", seed), dtype=torch.float64)
    if eps0 > 0 and on_sphere:
        u = F.normalize(u - (u * c).sum(1, keepdim=True) * c)  # along the sphere
        x = (1 - eps0**2 / 2) * c + eps0 * math.sqrt(1 - eps0**2 / 4) * u  # ‖x‖ = 1, ‖x − c‖ = ε₀
    elif eps0 > 0:
        x = c + eps0 * F.normalize(u)
    truth = torch.tensor(labels, dtype=torch.float64)[cluster]
    return Clusters(x, truth, truth, cluster, centers)


def corrupt(data: Clusters, rho: float, *, seed: int) -> Clusters:
    """Replace ⌊ρn_ℓ⌋ labels of each cluster by another of the label values, chosen uniformly: Definition 1.2."""
    values = torch.unique(data.truth)
    generator = _stream("corruption", seed)
    label = data.truth.clone()
    for cluster in data.cluster.unique():
        members = torch.nonzero(data.cluster == cluster)[:, 0]
        chosen = members[torch.randperm(len(members), generator=generator)[: math.floor(rho * len(members) + 1e-9)]]
        away = torch.randint(1, len(values), (len(chosen),), generator=generator)
        label[chosen] = values[(torch.searchsorted(values, data.truth[chosen]) + away) % len(values)]
    return data._replace(label=label)


def shuffle(data: Clusters, share: float, *, seed: int) -> Clusters:
    """Draw a share of all labels anew from the label values, as in Figure 6: some keep their own."""
    generator = _stream("shuffle", seed)
    values, label = torch.unique(data.truth), data.truth.clone()
    chosen = torch.randperm(len(label), generator=generator)[: round(share * len(label))]
    label[chosen] = values[torch.randint(0, len(values), (len(chosen),), generator=generator)]
    return data._replace(label=label)


def nearest(outputs: Tensor, values: Tensor) -> Tensor:
    """The label value nearest to each output, (2.1); `values` may repeat."""
    values = torch.unique(values)
    return values[(outputs[..., None] - values).abs().argmin(-1)]


def cluster_means(r: Tensor, cluster: Tensor) -> Tensor:
    """Π₊ r (n,): each entry replaced by the mean over its cluster. Π₋ r is r less that."""
    total = torch.zeros(int(cluster.max()) + 1, dtype=r.dtype).index_add_(0, cluster, r)
    return (total / torch.bincount(cluster))[cluster]


# --- network ---


def network(k: int, d: int, *, activation: str, seed: int) -> Net:
    """W₀ with standard Gaussian entries (k, d), and v: ±1/√k, half each; one entry is 0 if k is odd."""
    W = torch.randn(k, d, generator=_stream("network", seed), dtype=torch.float64)
    v = torch.zeros(k, dtype=torch.float64)
    v[: k // 2], v[k - k // 2 :] = 1 / math.sqrt(k), -1 / math.sqrt(k)
    return Net(W, v, activation)


def predict(net: Net, x: Tensor) -> Tensor:
    """f(W, x_i) (n,), Eq. (1.2)."""
    return net.v @ ACTIVATIONS[net.activation].value(net.W @ x.T)


def gram(net: Net, x: Tensor) -> Tensor:
    """JJᵀ (n, n) of the Jacobian of Definition 6.6."""
    return jacobian_gram(x, net.W, net.v, net.activation)


def descend(
    net: Net, x: Tensor, y: Tensor, *, step: float, steps: int, watch: Sequence[int] = (), weight: Tensor | None = None
) -> Path:
    """Gradient descent (1.4) in the dtype of x (n, d); outputs and distance are kept at iterations `watch`, rising.

    `weight` (n,) is that of each squared error in (1.3): n_ℓ copies of an input weigh as one of weight n_ℓ with their
    mean label.
    """
    watch = list(watch) or [steps]
    phi, xt = ACTIVATIONS[net.activation], x.T.contiguous()
    W, v, y = net.W.to(x.dtype, copy=True), net.v.to(x.dtype), y.to(x.dtype)
    start, scale = net.W.to(x.dtype), -step * (torch.ones_like(y) if weight is None else weight.to(x.dtype))
    outputs, distance, kept = [], [], set(watch)
    for i in range(steps + 1):
        h = W @ xt  # (k, n)
        f = v @ phi.value(h)
        if i in kept:
            outputs.append(f)
            distance.append((W - start).norm())
        if i < steps:
            W.addmm_(phi.slope(h).mul_(v[:, None]).mul_(scale * (f - y)), x)  # Eq. (1.4)
    return Path(watch, torch.stack(outputs), torch.stack(distance), net._replace(W=W, v=v))


# --- the covariance of the centres ---


def covariance(centers: Tensor, name: str) -> Tensor:
    """Σ(C) (K, K), Definition 2.1: what JJᵀ at the centres tends to for k → ∞."""
    cosine = centers @ centers.T
    return cosine * ACTIVATIONS[name].kernel(cosine)


def eigenvalue(centers: Tensor, name: str) -> float:
    """λ(C), the least eigenvalue of Σ(C)."""
    return float(torch.linalg.eigvalsh(covariance(centers, name))[0])

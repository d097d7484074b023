"""What gradient descent is sure to do on clustered data with wrong labels, and how far it must go to fit them.

Li, Soltanolkotabi and Oymak (2020), Theorems 2.3, 3.2 and 3.3, with the constants their proofs give (2.2, 2.4 and
Lemma 2.5, which no experiment needs: tests/reference/clusterbounds.py). Notation of clusters.py; Γ₁ = sup |φ'| and
Γ₂ = sup |φ''| (the paper writes Γ for both), r₀ = f(W₀) − y. For ReLU Γ₂ = ∞: nothing is sure.

Upper bounds. Let α ≤ ‖J(W)ᵀu‖ ≤ β for unit u in S₊, J(W)ᵀu = 0 for u ⊥ S₊, ‖J(W) − J(W')‖ ≤ L‖W − W'‖, all within
4‖Π₊r₀‖/α of W₀. Then with η ≤ 1/(2β²), as long as 4L‖Π₊r₀‖ ≤ α², all iterates obey                       Theorem 3.2

    ‖W_τ − W₀‖ ≤ 4‖Π₊r₀‖/α,    max|f(W_τ) − ỹ| ≤ ν + max|Π₊(y − ỹ)|  for τ ≥ 5/(ηα²) log(‖Π₊r₀‖/ν).

Perfect clusters, ε₀ = 0 (Theorem 2.3): β = Γ₁‖C‖√(c_up n/K), L = Γ₂‖C‖√(c_up n/(kK)), and, but for a probability p,

    ‖r₀‖ ≤ √n (1 + Γ₁√(2 log(4K/p)))                     Lemma 6.9, by concentration of a Lipschitz function
    σ_min(J(W₀)) over S₊ ≥ α₀ = √(c_low nλ(C)/(2K))      Theorem 6.8, by the matrix Chernoff bound, if
    k ≥ Γ₁²‖C‖² log(2K/p) / ((½ − ½ log 2) λ(C))

With α = α₀/2, R = 8‖r₀‖/α₀, η = 1/(2β²), |Π₊(y − ỹ)| ≤ 2ρ (Lemma 6.10) and ν = 2ρ:

    ‖W_τ − W₀‖_F ≤ R,   max|f − ỹ| ≤ 4ρ  for  τ ≥ τ₀ = 40K/(η c_low nλ(C)) log(‖r₀‖/2ρ),
    if k ≥ 8 (c_up/c_low) Γ₂²‖C‖²R²/λ(C), that is LR ≤ α₀/2                               Eq. (6.41)

Lower bound, for any W with f(W) = y and D = W − W₀:

    ‖D‖_F (s + L‖D‖_F/2) ≥ ‖Πr₀‖,  s = ‖ΠJ(W₀)‖, Π = Π₊ or Π₋, L = Γ₂‖v‖_∞‖X‖ max‖x_i‖       Theorem 3.3

Differs from the paper:
- Theorem 3.3 wants ε with ‖Π₋J(W)‖ ≤ ε on a ball as large as the bound itself. Over all W it is not small: ½Γ₁‖X‖ for
  a W that tells two near inputs apart. So s is taken at W₀, and L says how fast it can grow: one look at W₀ is enough.
- Theorem 2.3's condition on k lacks the log K that (6.41) has. Theorem 3.2 says 2max|Π₊e| ≤ γ√s/n ‖e‖; twice that.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from noiseproof_papers.early_stopping.clusters import (
    ACTIVATIONS,
    Activation,
    Clusters,
    Net,
    cluster_means,
    eigenvalue,
    gram,
    predict,
)

_CHERNOFF = (1 - math.log(2)) / 2  # −log(e^{−½}/√½): the matrix Chernoff bound at half the mean


class Guarantee(NamedTuple):
    """Gradient descent with `step` has |f − ỹ| ≤ `error` after `steps`, within `radius`, if its conditions hold."""

    step: float  # η, the largest
    steps: int  # τ₀
    radius: float  # of ‖W_τ − W₀‖_F
    error: float
    width: float  # the fewest hidden units k
    eps0: float = 0.0  # the largest ε₀


def perfect(centers: Tensor, sizes: Sequence[int], rho: float, name: str, *, failure: float = 0.01) -> Guarantee:
    """Theorem 2.3: inputs equal to their centres, at most ρn_ℓ wrong labels in each cluster.

    Centres (K, d) have rows of norm 1, sizes are n_ℓ, ρ lies in (0, 1), `name` is of the activation, and `failure` is
    the probability p over W₀ that the guarantee fails; the paper has 2K⁻¹⁰⁰.
    """
    phi, K, n = ACTIVATIONS[name], len(sizes), sum(sizes)
    norm, least = float(torch.linalg.matrix_norm(centers, 2)), eigenvalue(centers, name)
    low, up = min(sizes) * K / n, max(sizes) * K / n
    misfit = start_misfit(K, failure, phi)
    radius = 8 * misfit * math.sqrt(2 * K / (low * least))
    step = K / (2 * up * n * (phi.max_slope * norm) ** 2)
    steps = 40 * K / (step * low * n * least) * math.log(max(misfit * math.sqrt(n) / (2 * rho), 1))
    starts = (phi.max_slope * norm) ** 2 * math.log(2 * K / failure) / (_CHERNOFF * least)
    stays = 8 * up / low * (phi.max_curvature * norm * radius) ** 2 / least  # Eq. (6.41)
    return Guarantee(step, math.ceil(steps), radius, 4 * rho, max(starts, stays))


def certify(net: Net, data: Clusters, *, precision: float = 0.1) -> Guarantee | None:
    """Theorem 3.2 at the W₀ at hand, for inputs equal to their centres: no probability, and the best α it allows.

    α must be at most α₀ − LR on the ball of radius R = 4‖Π₊r₀‖/α, with α₀ the least singular value of J(W₀) over S₊:
    α = (α₀ + √(α₀² − 16L‖Π₊r₀‖))/2. That is at least α₀/2 ≥ LR, as the step needs.
    `precision` is ν; None where k is too small for a guarantee.
    """
    phi = ACTIVATIONS[net.activation]
    root = torch.bincount(data.cluster, minlength=len(data.centers)).double().sqrt()  # (K,) √n_ℓ
    values = torch.linalg.eigvalsh(root[:, None] * gram(net, data.centers) * root).clamp_min(0)
    least, most = math.sqrt(values[0]), math.sqrt(values[-1])  # of J(W₀) over S₊
    size = float(torch.linalg.matrix_norm(root[:, None] * data.centers, 2))  # ‖X‖
    lipschitz = phi.max_curvature * float(net.v.abs().max()) * size
    residual = float(cluster_means(predict(net, data.x) - data.label, data.cluster).norm())
    inside = least**2 - 16 * lipschitz * residual
    if inside < 0:
        return None
    alpha = (least + math.sqrt(inside)) / 2
    radius = 4 * residual / alpha
    beta = min(most + lipschitz * radius, phi.max_slope * size)
    step = 1 / (2 * beta**2)
    steps = math.ceil(5 / (step * alpha**2) * math.log(max(residual / precision, 1)))
    shift = float(cluster_means(data.label - data.truth, data.cluster).abs().max())  # max|Π₊e|
    return Guarantee(step, steps, radius, precision + shift, float(len(net.W)))


def least_distance(residual: float, size: float, lipschitz: float) -> float:
    """The least R ≥ 0 with R(s + LR/2) ≥ E: no zero-loss point lies nearer, Theorem 3.3. E/s for L = 0."""
    if residual <= 0:
        return 0.0
    down = size + math.sqrt(size**2 + 2 * lipschitz * residual)
    return 2 * residual / down if down > 0 else math.inf


def stray(net: Net, x: Tensor, y: Tensor, cluster: Tensor) -> float:
    """Theorem 3.3 for the network (1.2): how far from W₀ = net.W every W with f(W, x) = y must be.

    x is (n, d) of any norm, y (n,), cluster (n,) defines S₊.
    """
    phi = ACTIVATIONS[net.activation]
    JJ, r = gram(net, x), predict(net, x) - y
    mean = torch.nn.functional.one_hot(cluster).to(x.dtype)
    onto = mean @ (mean / mean.sum(0).clamp_min(1)).T  # Π₊ (n, n)
    off = torch.eye(len(x), dtype=x.dtype) - onto
    size = float(torch.linalg.matrix_norm(x, 2)) * float(x.norm(dim=1).max())
    L = phi.max_curvature * float(net.v.abs().max()) * size
    norms = [math.sqrt(max(float(torch.linalg.eigvalsh(P @ JJ @ P)[-1]), 0)) for P in (onto, off)]  # ‖ΠJ(W₀)‖
    return max(least_distance(float((P @ r).norm()), s, L) for P, s in zip((onto, off), norms, strict=True))


def start_misfit(K: int, failure: float, phi: Activation) -> float:
    """‖r₀‖/√n, but for a probability of failure/2: Lemma 6.9."""
    return 1 + phi.max_slope * math.sqrt(2 * math.log(4 * K / failure))

"""What gradient descent is sure to do on clustered data with wrong labels, and how far it must go to fit them.

Li, Soltanolkotabi and Oymak (2020), Theorems 2.2 to 2.4, 3.2, 3.3 and Lemma 2.5, with the constants their proofs give.
Notation of clusters.py; Γ₁ = sup |φ'| and Γ₂ = sup |φ''| (the paper writes Γ for both), r₀ = f(W₀) − y.

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

Lower bounds, for any W with f(W) = y and D = W − W₀:

    ‖D‖_F (s + L‖D‖_F/2) ≥ ‖Πr₀‖,  s = ‖ΠJ(W₀)‖, Π = Π₊ or Π₋, L = Γ₂‖v‖_∞‖X‖ max‖x_i‖       Theorem 3.3
    ‖D‖ (Γ₁ + Γ₂‖v‖_∞(‖W₀‖ + ‖D‖/2)) ε ≥ |y₂ − y₁| − |f(W₀, x₂) − f(W₀, x₁)|, ε = ‖x₂ − x₁‖   Theorem 2.4
    ‖W‖_F ≥ ‖y − ỹ‖ / (Γ₁‖X − X̃‖)                                                             Lemma 2.5

Differs from the paper:
- Theorem 3.3 wants ε with ‖Π₋J(W)‖ ≤ ε on a ball as large as the bound itself. Over all W it is not small: ½Γ₁‖X‖ for
  a W that tells two near inputs apart. So s is taken at W₀, and L says how fast it can grow: one look at W₀ is enough.
- Theorem 2.4 also holds without ‖W − W₀‖_F ≤ c√k, and W₀ is given, so no t is needed. In its own form, δ/(CΓε₀) −
  t/1000, C is 1000√2, for its proof needs C ≥ 1000c with |f(W₀, x₂) − f(W₀, x₁)| ≤ ctΓε₀, c = √2; `pair_before` has
  the constant that matters. Its 2exp(−(k + d)) is exp(−(k + d)/2).
- Theorem 2.3's condition on k lacks the log K that (6.41) has. Theorem 3.2 says 2max|Π₊e| ≤ γ√s/n ‖e‖; twice that.
- Lemma 6.11 drops the change of φ'(WX) as X moves; see `clustered`. There, too, ρ ≤ δ/8 gives |f − ỹ| ≤ ¾δ by the
  paper's own sums (4ρ + δ/4), not the δ/2 it needs: `clustered` runs a little longer instead, and keeps ρ ≤ δ/8.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from noiseproof import checks
from noiseproof.errors import InputError
from noiseproof.papers.early_stopping.clusters import (
    Activation,
    Clusters,
    Net,
    activation,
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
    radius: float  # of ‖W_τ − W₀‖_F, for Theorem 2.2 up to τ₀ only
    error: float
    width: float  # the fewest hidden units k
    eps0: float  # the largest ε₀


class Stray(NamedTuple):
    """Theorem 3.3 at a W₀."""

    signal: float  # E₊ = ‖Π₊r₀‖
    noise: float  # E₋ = ‖Π₋r₀‖
    beta: float  # ‖Π₊J(W₀)‖
    epsilon: float  # ‖Π₋J(W₀)‖
    lipschitz: float  # L
    distance: float  # no W nearer to W₀ fits the labels


def perfect(centers: Tensor, sizes: Sequence[int], rho: float, name: str, *, failure: float = 0.01) -> Guarantee:
    """Theorem 2.3: inputs equal to their centres, at most ρn_ℓ wrong labels in each cluster.

    Args:
        centers: (K, d), rows of norm 1.
        sizes: n_ℓ.
        rho: in (0, 1).
        name: of the activation.
        failure: the probability p over W₀ that the guarantee fails; the paper has 2K⁻¹⁰⁰.

    Raises:
        InputError: an argument out of range, λ(C) = 0, an activation without φ''.
    """
    phi, norm, least, low, up, n = _setting(centers, sizes, rho, name, failure)
    K = len(sizes)
    misfit = _misfit(K, failure, phi)
    radius = 8 * misfit * math.sqrt(2 * K / (low * least))
    step = K / (2 * up * n * (phi.max_slope * norm) ** 2)
    steps = 40 * K / (step * low * n * least) * math.log(max(misfit * math.sqrt(n) / (2 * rho), 1))
    starts = (phi.max_slope * norm) ** 2 * math.log(2 * K / failure) / (_CHERNOFF * least)
    stays = 8 * up / low * (phi.max_curvature * norm * radius) ** 2 / least  # Eq. (6.41)
    return Guarantee(step, math.ceil(steps), radius, 4 * rho, max(starts, stays), 0.0)


def clustered(
    centers: Tensor, sizes: Sequence[int], rho: float, delta: float, name: str, *, failure: float = 0.01
) -> Guarantee:
    """Theorem 2.2 (6.13): inputs within ε₀ of their centres. It asks for sizes no machine has.

    Let W̃_τ be the descent on the centres. Theorem 6.12, with E in place of Γ√n ε₀, β' = 2β and T = ητ₀:

        ‖J(W, X) − J(W̃, X̃)‖ ≤ Γ₂√(n/k) ‖W − W̃‖_F + E,  E = √n ε₀(Γ₁ + Γ₂‖W̃‖/√k) ≤ √n ε₀(Γ₁ + 2Γ₂)   Lemma 6.11
        ‖W_τ − W̃_τ‖_F ≤ 2TEΘ(1 + 8Tβ'²)  if  8TEβ' ≤ 1, E ≤ β, 2√(n/k) Γ₂TΘ(1 + 8Tβ'²) ≤ 1            (6.65), (6.66)

    where ‖r₀‖ ≤ Θ. Then |f(W_τ, x) − f(W̃_τ, x̃)| ≤ Γ₁‖W_τ − W̃_τ‖ + ε₀((Γ₁ + 2Γ₂)R + Γ₁√2 t), t = √(2 log(6n/p)),
    and it and ν may each take half of δ/2 − 2ρ. ‖W̃‖ ≤ 2√k by k ≥ (√d + √(2 log(3/p)) + R)².

    Differs from the paper: Lemma 6.11 has E = Γ√n ε₀. It forgets that φ'(WX) moves with X: for a large W it is false.
    (6.58) takes ‖J(W, X)‖ ≤ β, which holds at X̃; hence β'. And see the module's docstring on ρ ≤ δ/8.

    Args:
        delta: δ, the gap between labels; ρ < δ/4 is needed.
        failure: p, a third of it for each of Theorem 2.3, ‖W₀‖ and t.

    Raises:
        InputError: as `perfect`, or ρ not below δ/4.
    """
    if not rho < delta / 4:
        raise InputError(f"rho must be below delta/4 = {delta / 4:g}, got {rho}: wrong labels would win a cluster over")
    phi, norm, least, low, up, n = _setting(centers, sizes, rho, name, failure)
    K, d = centers.shape
    clean = perfect(centers, sizes, rho, name, failure=failure / 3)
    misfit = _misfit(K, failure / 3, phi)
    slack = (delta / 2 - 2 * rho) / 2  # for ν, and again for the move from x̃ to x
    T = 40 * K / (low * n * least) * math.log(misfit * math.sqrt(n) / slack)  # ητ₀
    beta = phi.max_slope * norm * math.sqrt(up * n / K)
    grown = 1 + 8 * T * (2 * beta) ** 2
    per_eps = math.sqrt(n) * (phi.max_slope + 2 * phi.max_curvature)  # E/ε₀
    drift = 2 * T * per_eps * misfit * math.sqrt(n) * grown  # ‖W − W̃‖_F / ε₀
    t = math.sqrt(2 * math.log(6 * n / failure))
    direct = per_eps / math.sqrt(n) * clean.radius + phi.max_slope * math.sqrt(2) * t
    eps0 = min(beta / per_eps, 1 / (16 * T * per_eps * beta), slack / (phi.max_slope * drift + direct))
    width = max(
        clean.width,
        n * (2 * phi.max_curvature * T * misfit * math.sqrt(n) * grown) ** 2,
        (math.sqrt(d) + math.sqrt(2 * math.log(3 / failure)) + clean.radius) ** 2,
    )
    steps, radius = math.ceil(T / clean.step), clean.radius + drift * eps0
    return Guarantee(clean.step, steps, radius, 2 * rho + 2 * slack, width, eps0)


def certify(net: Net, data: Clusters, *, precision: float = 0.1) -> Guarantee | None:
    """Theorem 3.2 at the W₀ at hand, for inputs equal to their centres: no probability, and the best α it allows.

    α must be at most α₀ − LR on the ball of radius R = 4‖Π₊r₀‖/α, with α₀ the least singular value of J(W₀) over S₊:
    α = (α₀ + √(α₀² − 16L‖Π₊r₀‖))/2. That is at least α₀/2 ≥ LR, as the step needs.

    Args:
        precision: ν.

    Returns:
        The guarantee; None where k is too small for one.

    Raises:
        InputError: inputs that are not their centres, an activation without φ''.
    """
    phi = _smooth(net.activation)
    if not torch.equal(data.x, data.centers[data.cluster]):
        raise InputError("the certificate is for inputs equal to their centres; make the data with eps0=0")
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
    return Guarantee(step, steps, radius, precision + shift, float(len(net.W)), 0.0)


def least_distance(residual: float, size: float, lipschitz: float) -> float:
    """The least R ≥ 0 with R(s + LR/2) ≥ E: no zero-loss point lies nearer, Theorem 3.3. E/s for L = 0."""
    if residual <= 0:
        return 0.0
    down = size + math.sqrt(size**2 + 2 * lipschitz * residual)
    return 2 * residual / down if down > 0 else math.inf


def stray(net: Net, x: Tensor, y: Tensor, cluster: Tensor) -> Stray:
    """Theorem 3.3 for the network (1.2): how far from W₀ = net.W every W with f(W, x) = y must be.

    Args:
        x: (n, d) of any norm, y: (n,), cluster: (n,), which defines S₊.

    Raises:
        InputError: an activation without φ''.
    """
    phi = _smooth(net.activation)
    JJ, r = gram(net, x), predict(net, x) - y
    mean = torch.nn.functional.one_hot(cluster).to(x.dtype)
    onto = mean @ (mean / mean.sum(0).clamp_min(1)).T  # Π₊ (n, n)
    off = torch.eye(len(x), dtype=x.dtype) - onto
    beta, epsilon = (math.sqrt(max(float(torch.linalg.eigvalsh(P @ JJ @ P)[-1]), 0)) for P in (onto, off))
    signal, noise = float((onto @ r).norm()), float((off @ r).norm())
    size = float(torch.linalg.matrix_norm(x, 2)) * float(x.norm(dim=1).max())
    L = phi.max_curvature * float(net.v.abs().max()) * size
    distance = max(least_distance(signal, beta, L), least_distance(noise, epsilon, L))
    return Stray(signal, noise, beta, epsilon, L, distance)


def pair(net: Net, x1: Tensor, x2: Tensor, y1: float, y2: float) -> float:
    """Theorem 2.4 at the W₀ at hand: ‖W − W₀‖ (spectral) for any W with f(W, x₁) = y₁ and f(W, x₂) = y₂.

    The larger of two bounds: the one of the module's docstring, and ‖W‖ ≥ |y₂ − y₁|/(Γ₁ε) less ‖W₀‖, the better one
    for ε → 0. Together they are of order |y₂ − y₁|/ε throughout. Inputs of norm other than 1 scale Γ₂.
    """
    gap, eps = abs(y2 - y1), float((x2 - x1).norm())
    at_start = predict(net, torch.stack([x1, x2]))
    already = abs(float(at_start[1] - at_start[0]))
    norm = float(torch.linalg.matrix_norm(net.W, 2))
    reach = float(net.v.abs().max()) * max(float(x1.norm()), float(x2.norm()))
    return _pair(gap, already, eps, norm, reach, _smooth(net.activation))


def pair_before(delta: float, eps0: float, k: int, d: int, name: str, *, t: float = 3.0) -> float:
    """Theorem 2.4 before W₀ is drawn: holds with probability 1 − 2exp(−t²/2) − exp(−(k + d)/2).

    |f(W₀, x₂) − f(W₀, x₁)| ≤ √2 tΓ₁ε₀, since each pair of units of opposite sign is sub-Gaussian with variance proxy
    4Γ₁²ε₀²/k; and ‖W₀‖ ≤ 2(√k + √d).
    """
    phi = _smooth(name)
    norm = 2 * (math.sqrt(k) + math.sqrt(d))
    return _pair(delta, math.sqrt(2) * t * phi.max_slope * eps0, eps0, norm, 1 / math.sqrt(k), phi)


def norm_to_fit(net: Net, x: Tensor, x_other: Tensor, y: Tensor, y_other: Tensor) -> float:
    """Lemma 2.5 for given pairs: ‖W‖_F of any W with f(W, x_i) = y_i and f(W, x̃_i) = ỹ_i, whatever the pairs.

    For s ≤ d pairs from c + N(0, ε₀²/d I) with labels δ apart it is at least √s δ/(3√2 Γ₁ε₀) with probability
    1 − exp(−d/2); the paper has 5 for 3√2 = 4.24. It says nothing of W − W₀ unless it exceeds ‖W₀‖_F ≈ √(kd).
    """
    scale = activation(net.activation).max_slope * float(net.v.norm())
    return float((y - y_other).norm()) / (scale * float(torch.linalg.matrix_norm(x - x_other, 2)))


def _pair(gap: float, already: float, eps: float, norm: float, reach: float, phi: Activation) -> float:
    if eps == 0:
        return math.inf if gap > 0 else 0.0
    curvature = phi.max_curvature * reach
    curved = least_distance((gap - already) / eps, phi.max_slope + curvature * norm, curvature)
    return max(curved, gap / (phi.max_slope * eps) - norm, 0.0)


def _misfit(K: int, failure: float, phi: Activation) -> float:
    """‖r₀‖/√n, but for a probability of failure/2: Lemma 6.9."""
    return 1 + phi.max_slope * math.sqrt(2 * math.log(4 * K / failure))


def _smooth(name: str) -> Activation:
    phi = activation(name)
    if math.isinf(phi.max_curvature):
        raise InputError(f"{name} has no bounded second derivative, which the theorem needs; take softplus or erf")
    return phi


def _setting(
    centers: Tensor, sizes: Sequence[int], rho: float, name: str, failure: float
) -> tuple[Activation, float, float, float, float, int]:
    """φ, ‖C‖, λ(C), c_low, c_up, n."""
    phi, least, n = _smooth(name), eigenvalue(centers, name), sum(sizes)
    if len(sizes) != len(centers) or min(sizes) < 1:
        raise InputError(f"sizes needs one number of at least 1 for each of {len(centers)} centres, got {list(sizes)}")
    for argument, value in (("rho", rho), ("failure", failure)):
        checks.number(argument, value, 0, 1, ends="()")
    if least <= 1e-12:
        raise InputError("λ(C) is 0: two centres cannot be told apart (for erf, opposite ones cannot); move them")
    K = len(sizes)
    return phi, float(torch.linalg.matrix_norm(centers, 2)), least, min(sizes) * K / n, max(sizes) * K / n, n

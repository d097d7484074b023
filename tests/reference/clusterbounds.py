"""Li et al. (2020), Theorems 2.2 and 2.4 and Lemma 2.5, which no experiment needs, with the constants of their proofs.

Notation of noiseproof_papers/early_stopping/bounds.py. For any W with f(W) = y and D = W − W₀:

    ‖D‖ (Γ₁ + Γ₂‖v‖_∞(‖W₀‖ + ‖D‖/2)) ε ≥ |y₂ − y₁| − |f(W₀, x₂) − f(W₀, x₁)|, ε = ‖x₂ − x₁‖   Theorem 2.4
    ‖W‖_F ≥ ‖y − ỹ‖ / (Γ₁‖X − X̃‖)                                                             Lemma 2.5

Differs from the paper: Theorem 2.4 also holds without ‖W − W₀‖_F ≤ c√k, and W₀ is given, so no t is needed. In its own
form, δ/(CΓε₀) − t/1000, C is 1000√2, for its proof needs C ≥ 1000c with |f(W₀, x₂) − f(W₀, x₁)| ≤ ctΓε₀, c = √2;
`pair_before` has the constant that matters. Its 2exp(−(k + d)) is exp(−(k + d)/2).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from noiseproof_papers.early_stopping.bounds import Guarantee, least_distance, perfect, start_misfit
from noiseproof_papers.early_stopping.clusters import ACTIVATIONS, Activation, Net, eigenvalue, predict


def condition(centers: Tensor, name: str) -> float:
    """κ(C) = √(d/K) ‖C‖ / λ(C)."""
    K, d = centers.shape
    return math.sqrt(d / K) * float(torch.linalg.matrix_norm(centers, 2)) / eigenvalue(centers, name)


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
    (6.58) takes ‖J(W, X)‖ ≤ β, which holds at X̃; hence β'. ρ ≤ δ/8 gives |f − ỹ| ≤ ¾δ by the
    paper's own sums (4ρ + δ/4), not the δ/2 it needs: here descent runs a little longer instead, and ρ ≤ δ/8 stays.

    Args:
        delta: δ, the gap between labels; ρ < δ/4 is needed.
        failure: p, a third of it for each of Theorem 2.3, ‖W₀‖ and t.
    """
    phi, n = ACTIVATIONS[name], sum(sizes)
    K, d = centers.shape
    low, up = min(sizes) * K / n, max(sizes) * K / n
    norm, least = float(torch.linalg.matrix_norm(centers, 2)), eigenvalue(centers, name)
    clean = perfect(centers, sizes, rho, name, failure=failure / 3)
    misfit = start_misfit(K, failure / 3, phi)
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
    return _pair(gap, already, eps, norm, reach, ACTIVATIONS[net.activation])


def pair_before(delta: float, eps0: float, k: int, d: int, name: str, *, t: float = 3.0) -> float:
    """Theorem 2.4 before W₀ is drawn: holds with probability 1 − 2exp(−t²/2) − exp(−(k + d)/2).

    |f(W₀, x₂) − f(W₀, x₁)| ≤ √2 tΓ₁ε₀, since each pair of units of opposite sign is sub-Gaussian with variance proxy
    4Γ₁²ε₀²/k; and ‖W₀‖ ≤ 2(√k + √d).
    """
    phi = ACTIVATIONS[name]
    norm = 2 * (math.sqrt(k) + math.sqrt(d))
    return _pair(delta, math.sqrt(2) * t * phi.max_slope * eps0, eps0, norm, 1 / math.sqrt(k), phi)


def norm_to_fit(net: Net, x: Tensor, x_other: Tensor, y: Tensor, y_other: Tensor) -> float:
    """Lemma 2.5 for given pairs: ‖W‖_F of any W with f(W, x_i) = y_i and f(W, x̃_i) = ỹ_i, whatever the pairs.

    For s ≤ d pairs from c + N(0, ε₀²/d I) with labels δ apart it is at least √s δ/(3√2 Γ₁ε₀) with probability
    1 − exp(−d/2); the paper has 5 for 3√2 = 4.24. It says nothing of W − W₀ unless it exceeds ‖W₀‖_F ≈ √(kd).
    """
    scale = ACTIVATIONS[net.activation].max_slope * float(net.v.norm())
    return float((y - y_other).norm()) / (scale * float(torch.linalg.matrix_norm(x - x_other, 2)))


def _pair(gap: float, already: float, eps: float, norm: float, reach: float, phi: Activation) -> float:
    if eps == 0:
        return math.inf if gap > 0 else 0.0
    curvature = phi.max_curvature * reach
    curved = least_distance((gap - already) / eps, phi.max_slope + curvature * norm, curvature)
    return max(curved, gap / (phi.max_slope * eps) - norm, 0.0)

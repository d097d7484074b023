"""Zhou et al. (2021), Theorems 1 and 2, slow and obvious: loops, in float64."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from reference.clusters import jacobian, predict

Array = npt.NDArray[np.float64]


def refined(label: Array, guess: Array, alpha: float) -> Array:
    """ỹ_i = (1 − α) y_i + α p_i, Eq. (5) with β = 0."""
    return np.array([(1 - alpha) * y + alpha * p for y, p in zip(label, guess, strict=True)])


def descend(
    W: Array, v: Array, name: str, x: Array, y: Array, positive: Array, alphas: Sequence[float], step: float
) -> tuple[Array, Array]:
    """f(W_t, X) and ỹᵗ after len(alphas) − 1 steps of (7), p_i = f(W_t, x̃_i) with x̃_i the rows of `positive`."""
    for t, alpha in enumerate(alphas):
        f = predict(W, v, name, x)
        target = refined(y, predict(W, v, name, positive), alpha)
        if t < len(alphas) - 1:
            W = W - step * (jacobian(W, v, name, x).T @ (f - target)).reshape(W.shape)
    return f, target


def limit(label: Array, P: Array, alpha: float) -> Array:
    """f with f = (1 − α) y + αPf, by putting f in until nothing moves."""
    f = label.copy()
    for _ in range(2000):
        f = (1 - alpha) * label + alpha * P @ f
    return f


def keys(features: Array, temperature: float) -> Array:
    """Eq. (12), without the minus sign: query x_i against x_i itself and the dictionary x₁, x₂."""
    rows = []
    for i in range(2):
        scores = []
        for key in (features[i], features[0], features[1]):
            cosine = features[i] @ key / math.sqrt(float(features[i] @ features[i]) * float(key @ key))
            scores.append(math.exp(cosine / temperature))
        rows.append([score / sum(scores) for score in scores])
    return np.array(rows)


def risk(h: Array, label: Array) -> float:
    """−1/q Σ_i Σ_k y_ik log h_ik, Eq. (2)."""
    total = 0.0
    for row, y in zip(h, label, strict=True):
        for k in range(len(row)):
            total -= y[k] * math.log(row[k])
    return total / len(h)


def asked(
    centers: np.ndarray, covariance: np.ndarray, n: int, rho: float, delta: float, alpha_max: float, step: float
) -> tuple[float, ...]:
    """Theorem 2's k, ε, ε for exact recovery, t₀ and (ζ − 4ρ)/ε, word by word, with c₁ to c₆, Γ and ψ' put to 1."""
    K, d = centers.shape
    lam, norm = np.linalg.eigvalsh(covariance).min(), np.linalg.svd(centers)[1].max()
    xi = np.log(n**0.5 * np.log(K) / rho)
    k = K**2 * xi**6 * norm**4 / (alpha_max**2 * lam**4)
    eps = min(lam / (K * xi**6), rho / alpha_max)
    exact = delta * min(lam**2 / (K**2 * xi**3), 1 / d**0.5)
    t0 = K / (step * n * lam) * np.log(n**0.5 * np.log(K) / ((1 - alpha_max) * rho))
    return k, eps, exact, t0, K * xi * np.log(K) ** 0.5 / lam

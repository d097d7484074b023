"""Wei, Ren and Du (2023), slow and obvious: the paper's formulas in all 2d coordinates, in loops and in float64."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


def p_feature(y: int, w_star: Array, gamma0: float, rng: np.random.Generator) -> Array:
    """x₁ ~ P_y: β is drawn until it lies on the side of y (Section 2)."""
    d = len(w_star)
    while True:
        beta = rng.normal(0, 1 / math.sqrt(d), d)
        if y * float(w_star @ beta) >= 0:
            return y * gamma0 * w_star + beta


def q_feature(y: int, z: Array, zeta: Array, alpha: float, b: int) -> Array:
    """x₂ ~ Q_y."""
    return alpha * z if y == 1 else alpha * (z + b * zeta)


def loss(z: float) -> float:
    """ℓ(z)."""
    return math.log1p(math.exp(-z)) if z > 0 else -z + math.log1p(math.exp(z))


def slope(z: float) -> float:
    """ℓ'(z)."""
    return -1 / (1 + math.exp(z))


def smoothed(z: float, delta: float) -> float:
    """ℓ̄(z), the mean of ℓ(σz)."""
    return delta * loss(-z) + (1 - delta) * loss(z)


def smoothed_slope(z: float, delta: float) -> float:
    """ℓ̄'(z)."""
    return (1 - delta) * slope(z) - delta * slope(-z)


def noise(z: float, sigma: int, delta: float) -> float:
    """ε_t for σ_t = sigma, D.1."""
    big_gamma = slope(z) + slope(-z)
    return delta * big_gamma if sigma == 1 else -(1 - delta) * big_gamma


def predict(W: Array, V: Array, w: Array, v: Array, x1: Array, x2: Array, joint: bool) -> float:
    """f(x): of the proofs, Σ w_i σ(W_i x₁) + Σ v_i σ(V_i x₂); joint, of Section 2: Σ w_i σ(W_i x₁ + V_i x₂)."""
    total = 0.0
    for i in range(len(w)):
        a, b = float(W[i] @ x1), float(V[i] @ x2)
        total += w[i] * max(a + b, 0.0) if joint else w[i] * max(a, 0.0) + v[i] * max(b, 0.0)
    return total


def gradient(W: Array, V: Array, w: Array, v: Array, x1: Array, x2: Array, joint: bool) -> tuple[Array, Array]:
    """B = ∇_U f, as its parts by W and by V (Appendix E.1)."""
    by_W, by_V = np.zeros_like(W), np.zeros_like(V)
    for i in range(len(w)):
        a, b = float(W[i] @ x1), float(V[i] @ x2)
        if joint:
            a = b = a + b
        by_W[i] = w[i] * (a >= 0) * x1
        by_V[i] = (w[i] if joint else v[i]) * (b >= 0) * x2
    return by_W, by_V


def label_noise_sgd(
    W: Array, V: Array, w: Array, v: Array, x1: Array, x2: Array, y: Array, index: Sequence[int], flip: Sequence[int],
    rate: float, delta: float, joint: bool,
) -> dict[str, Array]:  # fmt: skip
    """U_t by the update rule of Section 3.1, and beside it Ū_t and Ũ_t as the sums of Appendix D.1."""
    W, V = W.copy(), V.copy()
    W_signal, V_signal, W_noise, V_noise = np.zeros_like(W), np.zeros_like(V), W.copy(), V.copy()
    for i, sigma in zip(index, flip, strict=True):
        margin = y[i] * predict(W, V, w, v, x1[i], x2[i], joint)
        by_W, by_V = gradient(W, V, w, v, x1[i], x2[i], joint)
        signal, epsilon = smoothed_slope(margin, delta), noise(margin, sigma, delta)
        W_signal -= rate * signal * y[i] * by_W
        V_signal -= rate * signal * y[i] * by_V
        W_noise -= rate * epsilon * y[i] * by_W
        V_noise -= rate * epsilon * y[i] * by_V
        W -= rate * sigma * slope(sigma * margin) * y[i] * by_W
        V -= rate * sigma * slope(sigma * margin) * y[i] * by_V
    return {
        "W": W, "V": V, "W_signal": W_signal, "V_signal": V_signal, "W_noise": W_noise, "V_noise": V_noise,
    }  # fmt: skip


def descend(
    W: Array, V: Array, w: Array, v: Array, x1: Array, x2: Array, y: Array, rate: float, steps: int, joint: bool
) -> tuple[Array, Array]:
    """Full-batch gradient descent on L̂."""
    for _ in range(steps):
        by_W, by_V = np.zeros_like(W), np.zeros_like(V)
        for i in range(len(y)):
            c = slope(y[i] * predict(W, V, w, v, x1[i], x2[i], joint)) * y[i] / len(y)
            one_W, one_V = gradient(W, V, w, v, x1[i], x2[i], joint)
            by_W, by_V = by_W + c * one_W, by_V + c * one_V
        W, V = W - rate * by_W, V - rate * by_V
    return W, V

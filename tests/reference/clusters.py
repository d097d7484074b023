"""Li et al. (2020), slow and obvious: each formula as the paper prints it, in loops and in float64."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from scipy import integrate, special

Array = npt.NDArray[np.float64]

VALUE: dict[str, Callable[[float], float]] = {
    "relu": lambda z: max(z, 0.0),
    "softplus": lambda z: float(np.logaddexp(0.0, z)),
    "erf": math.erf,
}
SLOPE: dict[str, Callable[[float], float]] = {
    "relu": lambda z: float(z > 0),
    "softplus": lambda z: float(special.expit(z)),
    "erf": lambda z: 2 / math.sqrt(math.pi) * math.exp(-z * z),
}


def predict(W: Array, v: Array, name: str, x: Array) -> Array:
    """f(W, x_i) = Σ_j v_j φ(w_jᵀx_i), Eq. (1.2)."""
    return np.array([sum(v[j] * VALUE[name](float(W[j] @ xi)) for j in range(len(v))) for xi in x])


def jacobian(W: Array, v: Array, name: str, x: Array) -> Array:
    """∂f(W, x_i)/∂W_jl = v_j φ'(w_jᵀx_i) x_il (n, k·d), Definition 6.6."""
    rows = [[v[j] * SLOPE[name](float(W[j] @ xi)) * xi for j in range(len(v))] for xi in x]
    return np.array(rows).reshape(len(x), -1)


def descend(W: Array, v: Array, name: str, x: Array, y: Array, step: float, steps: int) -> Array:
    """W after (1.4), with ∇L = Jᵀ(f − y), Eq. (3.1)."""
    for _ in range(steps):
        W = W - step * (jacobian(W, v, name, x).T @ (predict(W, v, name, x) - y)).reshape(W.shape)
    return W


def covariance(C: Array, name: str) -> Array:
    """Σ(C) of Definition 2.1, each expectation as a double integral over (a, b), c_j = c_i·c_j c_i + rest."""
    out = np.empty((len(C), len(C)))

    def density(a: float) -> float:
        return math.exp(-a * a / 2) / math.sqrt(2 * math.pi)

    for i in range(len(C)):
        for j in range(len(C)):
            c = float(C[i] @ C[j])
            s = math.sqrt(max(1 - c * c, 0))

            def integrand(b: float, a: float, c: float = c, s: float = s) -> float:
                return SLOPE[name](a) * SLOPE[name](c * a + s * b) * density(a) * density(b)

            if name == "relu":  # a > 0 and b > −ca/s, so that the integrand is smooth
                low = (lambda a, c=c, s=s: max(-c * a / s, -9.0)) if s > 1e-9 else (lambda a: -9.0)
                value = integrate.dblquad(integrand, 0, 9, low, 9, epsabs=1e-11)[0]
            else:
                value = integrate.dblquad(integrand, -9, 9, -9, 9, epsabs=1e-11)[0]
            out[i, j] = c * value
    return out


def projection(cluster: npt.NDArray[np.int64]) -> Array:
    """P = Σ_ℓ 1(ℓ)1(ℓ)ᵀ/n_ℓ, in the proof of Lemma 6.10."""
    P = np.zeros((len(cluster), len(cluster)))
    for one in np.unique(cluster):
        indicator = (cluster == one).astype(np.float64)
        P += np.outer(indicator, indicator) / indicator.sum()
    return P


def diffusedness(P: Array) -> float:
    """The least γ of Definition 3.1: |v_i| is largest, for v in the span and of norm 1, at v = Pe_i/‖Pe_i‖."""
    return max(len(P) * float(P[i, i]) for i in range(len(P)) if P[i, i] > 0)


def least_distance(residual: float, size: float, lipschitz: float) -> float:
    """The root R of R(size + lipschitz·R/2) = residual, by halving."""
    low, high = 0.0, 1.0
    while high * (size + lipschitz * high / 2) < residual:
        high *= 2
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if middle * (size + lipschitz * middle / 2) < residual else (low, middle)
    return high


def stray(W: Array, v: Array, name: str, x: Array, y: Array, cluster: npt.NDArray[np.int64], curvature: float) -> float:
    """Theorem 3.3 with dense matrices."""
    J, r = jacobian(W, v, name, x), predict(W, v, name, x) - y
    P = projection(cluster)
    L = curvature * np.abs(v).max() * np.linalg.norm(x, 2) * np.linalg.norm(x, axis=1).max()
    return max(
        least_distance(float(np.linalg.norm(Q @ r)), float(np.linalg.norm(Q @ J, 2)), float(L))
        for Q in (P, np.eye(len(P)) - P)
    )

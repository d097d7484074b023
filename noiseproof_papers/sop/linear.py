"""Why SOP works, on a linear model: gradient descent that separates sparse label noise from the data.

Sheng Liu, Zhihui Zhu, Qing Qu and Chong You, "Robust Training under Label Noise by Over-parameterization", ICML 2022,
Section 3 and Appendix B. Labels y = Jθ* + s* with J (N, p) of rank r and s* k-sparse; the model is fitted by

    h(θ, u, v) = ½‖r‖²,  r = Jθ + u² − v² − y                                             Eq. (15)
    θ ← θ − τJᵀr,  u ← u − 2ατ u ⊙ r,  v ← v + 2ατ v ⊙ r                                  Eq. (16)
    from θ = 0, u = v = γ                                                                Eq. (19)

For τ → 0, with ν_t = −∫r dt, this is θ = Jᵀν, u = γ e^{2αν}, v = γ e^{−2αν}: Eqs. (20), (21). Hence

    ν' = −∇F(ν),   F(ν) = ½‖Jᵀν‖² + (γ²/2α) Σ cosh(4αν_i) − yᵀν,   s = 2γ² sinh(4αν).

Where the flow ends: it is the gradient flow of F, which for γ > 0 is strictly convex and grows in all directions, so it
converges to the one minimiser, where ∇F = 0: JJᵀν + 2γ² sinh(4αν) = y. By duality that point minimises

    ½‖θ‖² + (1/4α) Σ [s_i asinh(s_i/2γ²) − √(s_i² + 4γ⁴)]   subject to   y = Jθ + s.

With α = −log γ/(2λ), Eq. (23), the penalty is λ|s_i| (1 + (log|s_i| − 1)/(2|log γ|)) up to a smaller term: it becomes
λ‖s‖₁ of the convex program (26) as γ → 0, with an error of order 1/|log γ|. (26) has one minimiser, therefore the
limits that Proposition 3.3 assumes to exist do exist.

Differs from the paper: see `hessian`, and `bound` in recovery.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from noiseproof import checks
from noiseproof_papers.sop.convex import Array, ArrayLike, positive, row_space, system

_CHECK_EVERY = 50  # steps of descent between looks at the residual
_NEWTON_STEPS = 300
_TOL = 1e-13  # of max|∇F| / max|y|, in `flow_limit`
_STAGE = 3.0  # by which 2 log γ falls from one stage of `flow_limit` to the next


class Problem(NamedTuple):
    """y = Jθ + s with θ of least norm."""

    J: Array  # (N, p)
    theta: Array  # (p,)
    s: Array  # (N,)
    y: Array  # (N,)


class Descent(NamedTuple):
    """Where gradient descent stopped, for each of B values of α."""

    theta: Array  # (B, p)
    s: Array  # (B, N)
    u: Array  # (B, N)
    v: Array  # (B, N)
    residual: Array  # (B,): max|r| / max|y|
    steps: npt.NDArray[np.int64]  # (B,)


class Flow(NamedTuple):
    """Where the gradient flow ends."""

    theta: Array  # (p,)
    s: Array  # (N,)
    nu: Array  # (N,)


class Point(NamedTuple):
    """A point of the landscape of h, Eq. (15)."""

    theta: Array  # (p,)
    u: Array  # (N,)
    v: Array  # (N,)


def simulate(N: int, p: int, rank: int, sparsity: int, seed: int) -> Problem:
    """The data of Section 3.2: J = LR with Gaussian L (N, rank), R (rank, p), and `sparsity` Gaussian entries in s*.

    y = Jθ + s* for a Gaussian θ; θ* is the one of least norm among those with y = Jθ* + s*, Eq. (14): the projection
    of θ on the rows of J. All Gaussians are standard.

    Raises:
        InputError: a rank outside 1..min(N, p) or a sparsity outside 1..N.
    """
    checks.integer("rank", rank, 1, min(N, p))
    checks.integer("sparsity", sparsity, 1, N)
    generator = np.random.default_rng(seed)
    J = generator.standard_normal((N, rank)) @ generator.standard_normal((rank, p))
    s = np.zeros(N)
    s[generator.choice(N, sparsity, replace=False)] = generator.standard_normal(sparsity)
    theta = generator.standard_normal(p)
    _, Q = row_space(J)
    return Problem(J, Q @ (Q.T @ theta), s, J @ theta + s)  # Eqs. (13), (14)


def alpha_for(lam: float, log_gamma: float) -> float:
    """α = −log γ / (2λ), Eq. (23): the ratio of learning rates that stands for the weight λ of (26)."""
    return -_below_one(log_gamma) / (2 * checks.number("lam", lam, 0, ends="()"))


def descend(
    J: ArrayLike,
    y: ArrayLike,
    alpha: ArrayLike,
    *,
    log_gamma: float = -8.0,
    step: float = 0.01,
    tol: float = 1e-7,
    max_steps: int = 200_000,
) -> Descent:
    """Gradient descent (16) from (19), for many α at once.

    The learning rate is τ = min(1/‖J‖², step/(α max|y|)): the first keeps θ stable, the second bounds by 2·step the
    relative change of u and v in a step. A finite τ shifts the end by an amount of order `step`: u ⊙ v, which the flow
    keeps at γ², shrinks by 1 − (2ατr)² in every step, as if γ were smaller. θ stays in the row space of J and is kept
    in coordinates there, which changes nothing but the cost.

    Args:
        J: (N, p), y: (N,), alpha: α > 0, a number or (B,).
        log_gamma: log γ.
        step: in (0, 0.25).
        tol: an α is done when max|r| ≤ tol · max|y|.
        max_steps: or after so many steps.

    Raises:
        InputError: an argument outside its range.
    """
    J, y = system(J, y)
    a = np.atleast_1d(positive("alpha", alpha))[:, None]  # (B, 1)
    checks.number("step", step, 0, 0.25, ends="()", remedy="0.01 is a good start")
    A, Q = row_space(J)
    unit = np.abs(y).max() or 1.0
    tau = np.minimum(1 / max(np.linalg.norm(J, 2) ** 2, 1e-300), step / (a * unit))  # (B, 1)
    beta = np.zeros((len(a), A.shape[1]))
    u = v = np.full((len(a), len(y)), np.exp(log_gamma))
    live, steps, residual = np.arange(len(a)), np.zeros(len(a), dtype=np.int64), np.empty(len(a))
    ends = np.empty_like(beta), np.empty_like(u), np.empty_like(v), residual, steps
    for k in range(max_steps + 1):
        r = beta @ A.T + u * u - v * v - y
        if k % _CHECK_EVERY == 0 or k == max_steps:
            worst = np.abs(r).max(axis=1) / unit
            done = (worst <= tol) | (k == max_steps)
            for end, x in zip(ends, (beta, u, v, worst, np.full(len(live), k)), strict=True):
                end[live[done]] = x[done]
            live, a, tau, beta, u, v, r = (x[~done] for x in (live, a, tau, beta, u, v, r))
            if not len(live):
                break
        move = 2 * a * tau * r
        beta, u, v = beta - tau * (r @ A), u - u * move, v + v * move  # Eq. (16)
    beta, u, v, *_ = ends
    return Descent(beta @ Q.T, u * u - v * v, u, v, residual, steps)


def _sinh(x: Array, log_square: float) -> tuple[Array, Array]:
    """2γ² sinh x and 2γ² cosh x from log γ², without forming either γ² or eˣ alone."""
    size, fade = np.exp(log_square + np.abs(x)), -2 * np.abs(x)
    return -np.sign(x) * size * np.expm1(fade), size * (1 + np.exp(fade))


def flow_limit(J: ArrayLike, y: ArrayLike, alpha: float, *, log_gamma: float = -8.0) -> Flow:
    """Where the gradient flow (17) ends for t → ∞: the minimiser of F in the module's docstring.

    Newton with halved steps, in x = 4αν; first for a γ of the size of y, where F is nearly quadratic, then for smaller
    and smaller γ down to the wanted one, each started from the last. All in logarithms: log γ = −1000 is no harder.

    Where s_i is below round-off of y, ν_i has no more digits, but θ and s do.

    Raises:
        InputError: an argument outside its range.
    """
    J, y = system(J, y)
    checks.number("alpha", alpha, 0, ends="()")
    final = 2 * _below_one(log_gamma)
    unit = float(np.abs(y).max())
    x = np.zeros_like(y)
    if unit == 0:
        return Flow(np.zeros(J.shape[1]), x, x)
    K = J @ J.T / (4 * alpha)
    log_square = max(float(np.log(unit)), final)
    while True:
        x, error = _minimise(K, y, x, log_square, unit * (_TOL if log_square == final else 1e-2))
        if log_square == final:
            break
        lower = max(log_square - _STAGE, final)
        x = np.where(np.abs(x) > 1, x + np.sign(x) * (log_square - lower), x)  # keeps s where s is not small
        log_square = lower
    round_off = 16 * np.finfo(float).eps * float((np.abs(K) @ np.abs(x)).max())  # of Kx, whose terms may cancel
    assert error <= unit * _TOL * 100 + round_off, f"the minimiser was missed by {error / unit:.1e}"
    return Flow(J.T @ x / (4 * alpha), _sinh(x, final)[0], x / (4 * alpha))


def _minimise(K: Array, y: Array, x: Array, log_square: float, tol: float) -> tuple[Array, float]:
    """Newton on ½xᵀKx + 2γ² Σ cosh x_i − yᵀx with halved steps; and the largest entry of the gradient left.

    A step is taken when it lowers the function as Armijo asks, or, where round-off hides that, halves the gradient.
    """
    ridge = 1e-14 * np.trace(K)  # where the function is flat to round-off, stay

    def at(x: Array) -> tuple[float, Array, Array]:
        s, slope = _sinh(x, log_square)
        Kx = K @ x
        return float(0.5 * x @ Kx + slope.sum() - y @ x), Kx + s - y, slope

    with np.errstate(over="ignore", invalid="ignore"):
        value, g, slope = at(x)
        for _ in range(_NEWTON_STEPS):
            error = float(np.abs(g).max())
            if error <= tol:
                break
            d = -np.linalg.solve(K + np.diag(slope + ridge), g)
            length = 1.0
            while length > 1e-12:
                ahead = at(x + length * d)
                if ahead[0] < value + 1e-4 * length * (g @ d) or np.abs(ahead[1]).max() < error / 2:
                    x, (value, g, slope) = x + length * d, ahead
                    break
                length /= 2
            else:
                break
    return x, error


def relative_difference(a: Array, b: Array) -> Array:
    """‖a − b‖ / max(‖a‖, ‖b‖) over the last axis, Figure 2; 0 where both are 0."""
    size = np.maximum(np.linalg.norm(a, axis=-1), np.linalg.norm(b, axis=-1))
    return np.linalg.norm(a - b, axis=-1) / np.where(size > 0, size, 1)


def relative_error(found: Array, true: Array) -> Array:
    """‖found − true‖ / ‖true‖ over the last axis, Figures 3 and 4; not divided where the truth is 0."""
    size = np.linalg.norm(true, axis=-1)
    return np.linalg.norm(found - true, axis=-1) / np.where(size > 0, size, 1)


def hessian(J: Array, y: Array, point: Point) -> Array:
    """∇²h (p + 2N, p + 2N) of h, Eq. (15), B.1.

        JᵀJ           2Jᵀdiag(u)          −2Jᵀdiag(v)
        2diag(u)J     2diag(r + 2u²)      −4diag(u ⊙ v)
        −2diag(v)J    −4diag(u ⊙ v)       −2diag(r − 2v²)

    Differs from the paper: its matrix, as far as it can be read, has −2diag(v ⊙ u) where −4 is right, as its own
    quadratic form (B.2) has it. The proof only uses (B.2).
    """
    r = J @ point.theta + point.u**2 - point.v**2 - y
    G = np.concatenate([J, 2 * np.diag(point.u), -2 * np.diag(point.v)], axis=1)  # (N, p + 2N): the Jacobian of r
    return G.T @ G + np.diag(np.concatenate([np.zeros(J.shape[1]), 2 * r, -2 * r]))


def critical_point(J: Array, y: Array, rows: Sequence[int]) -> Point:
    """A critical point of h with u_i = v_i = 0 on `rows` and r_i = 0 elsewhere.

    θ is the least-squares fit of `rows` alone, so that Jᵀr = 0; elsewhere u² − v² takes up what θ leaves. Not a global
    minimiser unless the fit is exact; every critical point is of this kind (Lemma B.1), and if J has full row rank all
    are global minimisers.
    """
    at = np.asarray(rows, dtype=np.int64)
    theta: Array = np.linalg.lstsq(J[at], y[at], rcond=None)[0].astype(np.float64)
    s = y - J @ theta
    s[at] = 0.0
    return Point(theta, np.sqrt(np.maximum(s, 0)), np.sqrt(np.maximum(-s, 0)))


def _below_one(log_gamma: float) -> float:
    return checks.number("log_gamma", log_gamma, high=0, ends="()", remedy="the paper has -8")

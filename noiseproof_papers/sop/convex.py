"""The convex program behind SOP: sparse noise s beside a linear model, solved to round-off, many at once.

Liu et al. (2022), Section 3.2. With J (N, p) of rank r:

    min ½‖θ‖² + λ‖s‖₁   subject to   y = Jθ + s                                        Eq. (26)

Write J = A Qᵀ with Q (p, r) orthonormal; the minimiser has θ = Qβ, and the dual is a box-constrained least squares:

    max yᵀν − ½‖Aᵀν‖²   over   |ν_i| ≤ λ,     β = Aᵀν,   ν ∈ λ sign(s)                 (B.3), (B.4)

`solve` follows the central path of that pair by Mehrotra's predictor and corrector, each iteration one r × r system
per program, then guesses which s_i are zero and solves for β exactly. What it returns carries its own proof: the
duality gap bounds the error, ½‖θ − θ_best‖² ≤ gap. θ_best is unique, for the objective is strictly convex in θ, and so
is s = y − Jθ.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.linalg

from noiseproof.errors import InputError

Array = npt.NDArray[np.float64]
ArrayLike = npt.ArrayLike

_RANK = 1e-10  # singular directions below this share of the largest do not count
_CENTRED = 1e-11  # complementarity at which the active set is read off; beyond, round-off eats the Newton steps
_ITERATIONS = 60
_CORRECTIONS = 10  # of the guess which s_i are zero


class Convex(NamedTuple):
    """A solution of (26); with a leading axis when several programs were solved."""

    theta: Array  # (p,)
    s: Array  # (N,)
    nu: Array  # (N,), within [−λ, λ]: the multiplier of y = Jθ + s
    gap: Array  # (): primal minus dual objective, at least ½‖θ − θ_best‖² but for round-off


def solve(J: ArrayLike, y: ArrayLike, lam: ArrayLike) -> Convex:
    """The minimiser of ½‖θ‖² + λ‖s‖₁ subject to y = Jθ + s, Eq. (26).

    As long as λ‖J‖² ≤ 10⁷ max|y|, the gap is below 10⁻⁸ of the objective; beyond, round-off in y − Jθ limits it.

    Args:
        J: (N, p), or (B, N, p) for B programs of equal size.
        y: (N,) or (B, N).
        lam: λ > 0, a number or (B,). One J with many λ is factorised once.

    Raises:
        InputError: shapes that do not fit, values that are not finite, λ not positive.
    """
    J, y = system(J, y, many=True)
    lam = positive("lam", lam)
    try:
        batch = np.broadcast_shapes(J.shape[:-2], y.shape[:-1], lam.shape)
    except ValueError:
        raise InputError(
            f"J, y and lam must be of one program or of equally many, got {J.shape}, {y.shape} and {lam.shape}; "
            "pass lam as a number or with one entry for each program"
        ) from None
    y, lam = np.broadcast_to(y, (*batch, y.shape[-1])).reshape(-1, y.shape[-1]), np.broadcast_to(lam, batch).ravel()
    factors = [row_space(one) for one in J.reshape(-1, *J.shape[-2:])]
    factors *= len(y) // len(factors)  # (A (N, r), Q (p, r)) of each program
    parts: list[Any] = [None] * len(y)
    for rank in {A.shape[1] for A, _ in factors}:
        index = [b for b, (A, _) in enumerate(factors) if A.shape[1] == rank]
        near = _central_path(np.stack([factors[b][0] for b in index]), y[index], lam[index])
        for b, *guess in zip(index, *near, strict=True):
            A, Q = factors[b]
            beta, *rest = _polish(A, y[b], lam[b], *guess)
            parts[b] = (Q @ beta, *rest)
    return Convex(*(np.stack(column).reshape((*batch, *np.shape(column[0]))) for column in zip(*parts, strict=True)))


def duality_gap(A: Array, y: Array, lam: float, beta: Array, nu: Array) -> float:
    """½‖β‖² + λ‖y − Aβ‖₁ − (yᵀν − ½‖Aᵀν‖²) for any β (r,) and |ν| ≤ λ (N,); zero at the solution only."""
    # yᵀν = (y − Aβ)ᵀν + βᵀAᵀν: sums of small terms instead of a difference of large ones
    s = y - A @ beta
    return float(0.5 * np.sum((beta - A.T @ nu) ** 2) + np.sum(lam * np.abs(s) - s * nu))


def row_space(J: Array) -> tuple[Array, Array]:
    """J = A Qᵀ by a pivoted QR of Jᵀ: A (N, r) and an orthonormal basis Q (p, r) of the rows, r the rank of J."""
    Q, R, pivot = scipy.linalg.qr(J.T, mode="economic", pivoting=True)
    size = np.abs(np.diag(R))
    rank = int(np.count_nonzero(size > _RANK * size[0]))
    A = np.empty((J.shape[0], rank))
    A[pivot] = R[:rank].T
    return A, Q[:, :rank]


def _central_path(A: Array, y: Array, lam: Array) -> tuple[npt.NDArray[np.bool_], Array, Array]:
    """Which s_i are zero (b, N), and β (b, r) and ν (b, N) near the solution, of b programs with A (b, N, r).

    In units where λ = 1 and max|y| = 1, with s = s⁺ − s⁻ and the slacks t⁺ = 1 − ν, t⁻ = 1 + ν, the path is
    Aβ + s⁺ − s⁻ = y, β = Aᵀν, t⁺s⁺ = t⁻s⁻ = μ with μ → 0. The start β = ν = 0 satisfies both linear equations.
    """
    unit = np.abs(y).max(axis=1)
    unit[unit == 0] = 1.0
    scale = np.sqrt(lam / unit)  # (b,)
    A, y = A * scale[:, None, None], y / unit[:, None]
    beta = np.zeros(A.shape[::2])
    point = np.stack([*np.ones((2, *y.shape)), np.maximum(y, 0) + 0.1, np.maximum(-y, 0) + 0.1])  # t⁺, t⁻, s⁺, s⁻
    out = np.zeros(y.shape, dtype=bool), np.empty_like(beta), np.empty_like(y)
    live = np.arange(len(y))
    for _ in range(_ITERATIONS):
        mu = _mean_product(point)
        done = mu < _CENTRED
        if done.any():
            near = ((point[2:] / point[:2]).max(axis=0) < 1, beta, (point[1] - point[0]) / 2)
            for whole, part in zip(out, near, strict=True):
                whole[live[done]] = part[done]
            live, A, beta, mu, point = live[~done], A[~done], beta[~done], mu[~done], point[:, ~done]
            if not len(live):
                break
        newton = _Newton(A, beta, point)
        _, ahead = newton(np.zeros_like(point[:2]))
        wanted = (_mean_product(point + _longest(ahead, point) * ahead) / mu) ** 3 * mu  # Mehrotra's guess
        along, ahead = newton(wanted[:, None] - ahead[:2] * ahead[2:])
        length = 0.99 * _longest(ahead, point)
        beta, point = beta + length * along, point + length * ahead
    assert not len(live), "the central path was not reached"
    return out[0], out[1] * (scale * unit)[:, None], out[2] * lam[:, None]


class _Newton:
    """Newton steps of β (b, r) and of t and s (4, b, N) towards wanted products ts (2, b, N), all from one point.

    The matrix I + AᵀD⁻¹A is made once.
    """

    def __init__(self, A: Array, beta: Array, point: Array) -> None:
        self.A, self.t, self.s = A, point[:2], point[2:]
        self.D = (self.s / self.t).sum(axis=0)  # (b, N)
        self.matrix = np.eye(A.shape[2]) + A.swapaxes(1, 2) @ (A / self.D[:, :, None])  # (b, r, r)
        self.off = beta - _times(A.swapaxes(1, 2), (point[1] - point[0]) / 2)  # (b, r): round-off in β − Aᵀν

    def __call__(self, wanted: Array) -> tuple[Array, Array]:
        plus, minus = wanted / self.t
        right = self.s[0] - self.s[1] - plus + minus  # (b, N)
        pull = _times(self.A.swapaxes(1, 2), right / self.D) - self.off
        beta = np.linalg.solve(self.matrix, pull[:, :, None])[:, :, 0]
        nu = (right - _times(self.A, beta)) / self.D
        t = np.stack([-nu, nu])
        return beta, np.concatenate([t, (wanted - self.s * t) / self.t - self.s])


def _times(M: Array, x: Array) -> Array:
    return (M @ x[:, :, None])[:, :, 0]


def _mean_product(point: Array) -> Array:
    """The mean (b,) of t⁺s⁺ and t⁻s⁻."""
    return (point[:2] * point[2:]).sum(axis=0).mean(axis=1) / 2


def _longest(ahead: Array, point: Array) -> Array:
    """The longest step (b, 1), at most 1, that keeps all of t and s at or above zero."""
    return 1 / np.maximum((-ahead / point).max(axis=(0, 2)), 1)[:, None]


def _polish(
    A: Array, y: Array, lam: float, zero: npt.NDArray[np.bool_], beta: Array, nu: Array
) -> tuple[Array, Array, Array, float]:
    """β, s, ν and the gap of one program, exact once it is known which s_i are 0: `zero` is a first guess, then
    an s_i that turned its sign becomes 0 and a ν_i that left the box pins its s_i's sign. The least gap wins.

    Given s_Z = 0 and ν = λσ elsewhere, β minimises ½‖β‖² − λσᵀAβ over A_Zβ = y_Z: its part in the row space of A_Z is
    A_Z⁺y_Z, the rest is that of λAᵀσ.
    """
    sign = np.where(zero, 0.0, np.sign(nu))
    nu = np.clip(nu, -lam, lam)
    best = beta, y - A @ beta, nu, duality_gap(A, y, lam, beta, nu)
    for _ in range(_CORRECTIONS):
        zero = sign == 0
        W, size, Vt = np.linalg.svd(A[zero], full_matrices=False)
        keep = size > _RANK * size.max(initial=0)
        W, size, Vt = W[:, keep], size[keep], Vt[keep]
        pull = lam * (A.T @ sign)  # (r,)
        beta = pull + Vt.T @ ((W.T @ y[zero]) / size - Vt @ pull)
        s = np.where(zero, 0.0, y - A @ beta)
        nu = np.where(zero, nu, lam * sign)
        nu[zero] += W @ ((Vt @ (beta - A.T @ nu)) / size)  # the least change that makes Aᵀν = β
        out, turned = zero & (np.abs(nu) > (1 + _RANK) * lam), s * sign < 0
        sign = np.where(out, np.sign(nu), np.where(turned, 0.0, sign))
        nu = np.clip(nu, -lam, lam)
        gap = duality_gap(A, y, lam, beta, nu)
        if gap < best[3]:
            best = beta, s, nu, gap
        if not (out | turned).any():
            break
    return best


def system(J: ArrayLike, y: ArrayLike, *, many: bool = False) -> tuple[Array, Array]:
    """J (N, p) and y (N,) in float64, checked; of `many` programs perhaps (B, N, p) and (B, N)."""
    J, y = np.asarray(J, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if J.ndim not in (2, 2 + many) or y.ndim not in (1, 1 + many) or J.shape[-2] != y.shape[-1] or 0 in J.shape:
        raise InputError(f"J must be (N, p) and y (N,) with the same N, got {J.shape} and {y.shape}")
    if not (np.isfinite(J).all() and np.isfinite(y).all()):
        raise InputError("J and y must be finite; remove the infinite and missing values")
    return J, y


def positive(name: str, value: ArrayLike) -> Array:
    """`value` in float64, every entry finite and above zero."""
    array = np.asarray(value, dtype=np.float64)
    if not (np.isfinite(array).all() and (array > 0).all() and array.size):
        raise InputError(f"{name} must be finite and above 0, got {array}; pass a positive number")
    return array

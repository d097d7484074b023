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

import importlib
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
    J, y = system(J, y)
    lam = positive("lam", lam)
    if lam.ndim > 1 or len({n for n in (*J.shape[:-2], *y.shape[:-1], *lam.shape) if n != 1}) > 1:
        raise InputError(
            f"J, y and lam must be of one program or of equally many, got {J.shape}, {y.shape} and {lam.shape}; "
            "pass lam as a number or with one entry for each program"
        )
    batch = np.broadcast_shapes(J.shape[:-2], y.shape[:-1], lam.shape)
    ones = [row_space(each) for each in J.reshape(-1, *J.shape[-2:])]  # (A (N, r), Q (p, r)) of each J
    size = int(np.prod(batch))
    each_y, each_lam = (
        np.broadcast_to(y, (*batch, y.shape[-1])).reshape(size, -1),
        np.broadcast_to(lam, batch).ravel(),
    )
    parts: list[Any] = [None] * size
    for rank in {A.shape[1] for A, _ in ones}:
        index = [b for b in range(size) if ones[b % len(ones)][0].shape[1] == rank]
        A = np.stack([ones[b % len(ones)][0] for b in index])  # (b, N, r)
        zero, beta, nu = _central_path(A, each_y[index], each_lam[index])
        for b, *start in zip(index, A, zero, beta, nu, strict=True):
            one_beta, s, one_nu, gap = _polish(start[0], each_y[b], each_lam[b], start[1], start[2], start[3])
            parts[b] = (ones[b % len(ones)][1] @ one_beta, s, one_nu, gap)
    return Convex(*(np.stack(column).reshape((*batch, *np.shape(column[0]))) for column in zip(*parts, strict=True)))


def solve_cvxpy(J: ArrayLike, y: ArrayLike, lam: float) -> Convex:
    """The same program (26) by CVXPY and Clarabel, one at a time: the judge of `solve`.

    Raises:
        InputError: CVXPY is not installed, or as `solve`.
    """
    J, y = system(J, y)
    lam = float(positive("lam", lam))
    try:
        cp = importlib.import_module("cvxpy")
    except ImportError:
        raise InputError("solve_cvxpy needs CVXPY; install it with pip install 'noiseproof[theory]'") from None
    theta, s = cp.Variable(J.shape[1]), cp.Variable(J.shape[0])
    match = J @ theta + s == y
    program = cp.Problem(cp.Minimize(0.5 * cp.sum_squares(theta) + lam * cp.norm1(s)), [match])
    program.solve(solver="CLARABEL", tol_gap_abs=1e-13, tol_gap_rel=1e-13, tol_feas=1e-13)
    nu = np.clip(-np.asarray(match.dual_value), -lam, lam)
    return Convex(theta.value, s.value, nu, np.asarray(duality_gap(J, y, lam, theta.value, nu)))


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

    In units where λ = 1 and max|y| = 1, with s = s⁺ − s⁻ and the slacks a = 1 − ν, b = 1 + ν, the path is
    Aβ + s⁺ − s⁻ = y, β = Aᵀν, a s⁺ = b s⁻ = μ with μ → 0. The start β = ν = 0 satisfies both linear equations.
    """
    unit = np.abs(y).max(axis=1)
    unit[unit == 0] = 1.0
    scale = np.sqrt(lam / unit)  # (b,)
    A, y = A * scale[:, None, None], y / unit[:, None]
    beta, a, b = np.zeros(A.shape[::2]), np.ones_like(y), np.ones_like(y)
    plus, minus = np.maximum(y, 0) + 0.1, np.maximum(-y, 0) + 0.1
    out = np.zeros(y.shape, dtype=bool), np.empty_like(beta), np.empty_like(y)
    live = np.arange(len(y))
    for _ in range(_ITERATIONS):
        mu = (a * plus + b * minus).mean(axis=1) / 2
        done = mu < _CENTRED
        if done.any():
            near = (np.maximum(plus / a, minus / b) < 1, beta, (b - a) / 2)
            for whole, part in zip(out, near, strict=True):
                whole[live[done]] = part[done]
            live, A, beta, a, b, plus, minus, mu = (x[~done] for x in (live, A, beta, a, b, plus, minus, mu))
            if not len(live):
                break
        point = a, b, plus, minus
        newton = _Newton(A, beta, *point)
        flat = np.zeros_like(a)
        step = newton(flat, flat)
        length = _longest(step, point)
        ahead = _moved(step, point, length)
        wanted = ((ahead[0] * ahead[2] + ahead[1] * ahead[3]).mean(axis=1) / 2 / mu) ** 3 * mu  # Mehrotra's guess
        step = newton(wanted[:, None] + step.nu * step.plus, wanted[:, None] - step.nu * step.minus)
        length = 0.99 * _longest(step, point)
        beta = beta + length * step.beta
        a, b, plus, minus = _moved(step, point, length)
    assert not len(live), "the central path was not reached"
    return out[0], out[1] * (scale * unit)[:, None], out[2] * lam[:, None]


class _Step(NamedTuple):
    beta: Array
    nu: Array
    plus: Array
    minus: Array


class _Newton:
    """Newton steps towards a s⁺ = first, b s⁻ = second, from one point; the matrix I + AᵀD⁻¹A is made once."""

    def __init__(self, A: Array, beta: Array, a: Array, b: Array, plus: Array, minus: Array) -> None:
        self.A, self.a, self.b, self.plus, self.minus = A, a, b, plus, minus
        self.D = plus / a + minus / b  # (b, N)
        self.matrix = np.eye(A.shape[2]) + A.swapaxes(1, 2) @ (A / self.D[:, :, None])  # (b, r, r)
        self.off = beta - _times(A.swapaxes(1, 2), (b - a) / 2)  # (b, r): what round-off left of β − Aᵀν

    def __call__(self, first: Array, second: Array) -> _Step:
        right = self.plus - self.minus - first / self.a + second / self.b  # (b, N)
        pull = _times(self.A.swapaxes(1, 2), right / self.D) - self.off
        beta = np.linalg.solve(self.matrix, pull[:, :, None])[:, :, 0]
        nu = (right - _times(self.A, beta)) / self.D
        plus = (first + self.plus * nu) / self.a - self.plus
        return _Step(beta, nu, plus, (second - self.minus * nu) / self.b - self.minus)


def _times(M: Array, x: Array) -> Array:
    return (M @ x[:, :, None])[:, :, 0]


def _longest(step: _Step, point: tuple[Array, ...]) -> Array:
    """The longest step (b, 1), at most 1, that keeps all of a, b, s⁺, s⁻ at or above zero."""
    a, b, plus, minus = point
    worst = np.maximum.reduce([step.nu / a, -step.nu / b, -step.plus / plus, -step.minus / minus]).max(axis=1)
    return 1 / np.maximum(worst, 1)[:, None]


def _moved(step: _Step, point: tuple[Array, ...], length: Array) -> tuple[Array, Array, Array, Array]:
    a, b, plus, minus = point
    return a - length * step.nu, b + length * step.nu, plus + length * step.plus, minus + length * step.minus


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


def system(J: ArrayLike, y: ArrayLike) -> tuple[Array, Array]:
    """J (..., N, p) and y (..., N) in float64, checked."""
    J, y = np.asarray(J, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if J.ndim not in (2, 3) or y.ndim not in (1, 2) or J.shape[-2] != y.shape[-1] or 0 in J.shape:
        raise InputError(
            f"J must be (N, p) and y (N,) with the same N, got {J.shape} and {y.shape}; check their shapes"
        )
    if not (np.isfinite(J).all() and np.isfinite(y).all()):
        raise InputError("J and y must be finite; remove the infinite and missing values")
    return J, y


def positive(name: str, value: ArrayLike) -> Array:
    """`value` in float64, every entry finite and above zero."""
    array = np.asarray(value, dtype=np.float64)
    if not (np.isfinite(array).all() and (array > 0).all() and array.size):
        raise InputError(f"{name} must be finite and above 0, got {array}; pass a positive number")
    return array

"""Liu et al. (2022), Section 3 and B, as printed: one loop, one equation at a time, in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp
from scipy.optimize import linprog
from torch import Tensor


def descent(
    J: np.ndarray, y: np.ndarray, alpha: float, gamma: float, tau: float, steps: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """θ, u, v after so many steps of Eq. (16) from Eq. (19)."""
    theta, u, v = np.zeros(J.shape[1]), np.full(len(y), gamma), np.full(len(y), gamma)
    for _ in range(steps):
        r = J @ theta + u * u - v * v - y
        theta, u, v = theta - tau * J.T @ r, u - 2 * alpha * tau * u * r, v + 2 * alpha * tau * v * r
    return theta, u, v


def flow(J: np.ndarray, y: np.ndarray, alpha: float, gamma: float, times: list[float]) -> tuple[np.ndarray, np.ndarray]:
    """θ (T, p) and ν (T, N) of the gradient flow (17) at rising times, by LSODA, which switches to stiff steps.

    In x = 4αν, for which θ = Jᵀν and u² − v² = 2γ² sinh x: Eqs. (20), (21).
    """
    K = J @ J.T

    def slope(_: float, x: np.ndarray) -> np.ndarray:
        return 4 * alpha * (y - 2 * gamma**2 * np.sinh(x)) - K @ x  # 4αν' = −4αr

    def jacobian(_: float, x: np.ndarray) -> np.ndarray:
        return -K - 8 * alpha * gamma**2 * np.diag(np.cosh(x))

    with np.errstate(over="ignore", invalid="ignore"):  # a trial step that overflows is rejected
        path = solve_ivp(
            slope, (0.0, times[-1]), np.zeros_like(y), "LSODA", t_eval=times, jac=jacobian, rtol=1e-9, atol=1e-9
        )
    assert path.success, path.message
    nu = path.y.T / (4 * alpha)
    return nu @ J, nu


def convex(J: np.ndarray, y: np.ndarray, lam: float, sweeps: int) -> tuple[np.ndarray, np.ndarray]:
    """θ and s of Eq. (26) by coordinate ascent on its dual, yᵀν − ½‖Jᵀν‖² over |ν_i| ≤ λ."""
    nu, theta = np.zeros(len(y)), np.zeros(J.shape[1])
    for _ in range(sweeps):
        for i, row in enumerate(J):
            new = np.clip(nu[i] + (y[i] - row @ theta) / (row @ row), -lam, lam)
            theta += (new - nu[i]) * row
            nu[i] = new
    return theta, y - J @ theta


def convex_by_cvxpy(J: np.ndarray, y: np.ndarray, lam: float) -> tuple[np.ndarray, np.ndarray]:
    """θ and s of Eq. (26) by CVXPY and Clarabel."""
    cp = pytest.importorskip("cvxpy")
    theta, s = cp.Variable(J.shape[1]), cp.Variable(J.shape[0])
    program = cp.Problem(cp.Minimize(0.5 * cp.sum_squares(theta) + lam * cp.norm1(s)), [J @ theta + s == y])
    program.solve(solver="CLARABEL", tol_gap_abs=1e-13, tol_gap_rel=1e-13, tol_feas=1e-13)
    return theta.value, s.value


def compact_svd(J: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """U (N, r), Σ (r,), V (p, r) of Definition 3.4."""
    U, S, Vt = np.linalg.svd(J, full_matrices=False)
    r = np.linalg.matrix_rank(J)
    return U[:, :r], S[:r], Vt[:r].T


def coherence(J: np.ndarray) -> float:
    """Eq. (27)."""
    U, S, _ = compact_svd(J)
    N, r = len(J), len(S)
    return N / r * max(np.linalg.norm(U.T @ np.eye(N)[i]) ** 2 for i in range(N))


def least_norm(J: np.ndarray, y: np.ndarray, s: np.ndarray) -> np.ndarray:
    """Eq. (14)."""
    U, S, V = compact_svd(J)
    return V @ ((U.T @ (y - s)) / S)


def printed_bound(J: np.ndarray, theta: np.ndarray, rho: float) -> float:
    """(B.25), with its 2."""
    U, S, V = compact_svd(J)
    return 2 * (1 + rho) / (1 - rho) * np.abs(U @ ((V.T @ theta) / S)).max()


def threshold(J: np.ndarray, theta: np.ndarray, s: np.ndarray) -> float:
    """The least λ at which (θ*, s*) satisfies the KKT conditions (B.3) for some ν: a linear program in (ν, λ)."""
    N = len(J)
    wrong, right = np.flatnonzero(s), np.flatnonzero(s == 0)
    pin, box = np.zeros((len(wrong), N + 1)), np.zeros((2 * len(right), N + 1))
    for row, i in enumerate(wrong):
        pin[row, i], pin[row, N] = 1, -np.sign(s[i])  # ν_i = λ sign(s_i)
    for row, i in enumerate(right):
        box[2 * row, i], box[2 * row + 1, i] = 1, -1  # ±ν_i ≤ λ
    box[:, N] = -1
    _, _, V = compact_svd(J)
    match = np.hstack([V.T @ J.T, np.zeros((V.shape[1], 1))])  # Jᵀν = θ*, in the row space of J
    found = linprog(
        np.r_[np.zeros(N), 1], box, np.zeros(len(box)),
        np.vstack([pin, match]), np.r_[np.zeros(len(wrong)), V.T @ theta],
        bounds=[(None, None)] * N + [(0, None)], method="highs",
    )  # fmt: skip
    return found.x[-1] if found.status == 0 else np.inf


def objective(J: Tensor, y: Tensor, at: Tensor) -> Tensor:
    """h(θ, u, v), Eq. (15), of one vector (p + 2N,)."""
    theta, u, v = at.split([J.shape[1], len(y), len(y)])
    return 0.5 * (J @ theta + u * u - v * v - y).square().sum()


def gradient_and_hessian(J: np.ndarray, y: np.ndarray, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of h, by automatic differentiation."""
    args = torch.from_numpy(J), torch.from_numpy(y)
    point = torch.from_numpy(at)
    g = torch.autograd.functional.jacobian(lambda x: objective(*args, x), point)
    H = torch.autograd.functional.hessian(lambda x: objective(*args, x), point)
    return g.numpy(), H.numpy()


def quadratic_form(
    J: np.ndarray, u: np.ndarray, v: np.ndarray, r: np.ndarray, d: tuple[np.ndarray, np.ndarray, np.ndarray]
) -> float:
    """(B.2), term by term as printed."""
    theta, du, dv = d
    Jd = J @ theta
    return float(
        Jd @ Jd + 4 * np.sum((u * du) ** 2) + 4 * np.sum((v * dv) ** 2) + 2 * r @ (du * du - dv * dv)
        + 4 * Jd @ (u * du - v * dv) - 8 * (u * du) @ (v * dv)
    )  # fmt: skip

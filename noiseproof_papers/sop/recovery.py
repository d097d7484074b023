"""When the convex program (26) finds the truth: few wrong labels, and a J whose columns are spread over all labels.

Liu et al. (2022), Section 3.3 and B.3. With J = UΣVᵀ (N, p) of rank r and k wrong labels:

    μ(J) = (N/r) max_i ‖Uᵀe_i‖²                                                           Eq. (27)
    k²r < N/(4μ(J))  ⟹  (26) gives θ* and s* for every λ > λ₀                            Eq. (28)
    λ₀ = (1 + ρ)/(1 − ρ) ‖UΣ⁻¹Vᵀθ*‖_∞   with ρ from (B.22)                                (B.25), corrected

Differs from the paper: see `bound`.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from noiseproof_papers.sop.convex import Array, ArrayLike, row_space, solve
from noiseproof_papers.sop.linear import Problem, relative_error

_LOW, _HIGH, _DIGITS = 1e-6, 1e3, 1e-4  # of the search in `threshold`


def null_space_constant(J: Array, sparsity: int) -> float:
    """The least ρ for which (B.22), k²r ≤ (N/μ)(ρ/(1 + ρ))², holds; infinite if none does.

    With c = k max_i ‖Uᵀe_i‖ = k √(rμ/N) it is c/(1 − c). It is below 1 exactly when (28), k²r < N/(4μ), holds: then any
    noise of this sparsity is recovered by (26) with λ > `bound`.
    """
    U = row_space(J.T)[1]  # (N, r)
    c = sparsity * float(np.linalg.norm(U, axis=1).max())
    return c / (1 - c) if c < 1 else np.inf


def bound(J: Array, theta: Array, rho: float) -> float:
    """λ₀ = (1 + ρ)/(1 − ρ) ‖UΣ⁻¹Vᵀθ*‖_∞, (B.25): above it (26) recovers θ* and s*; infinite unless ρ < 1.

    From g(s) − g(s*) ≥ λ(1 − ρ)/(1 + ρ)‖s − s*‖₁ + ½‖VΣ⁻¹Uᵀ(s* − s)‖² + ⟨s* − s, UΣ⁻¹Vᵀθ*⟩, where the middle term is
    not negative and the last at least −‖UΣ⁻¹Vᵀθ*‖_∞ ‖s − s*‖₁.

    Differs from the paper: (B.25) is twice this. Its proof drops the ½ of g when it expands the square. Twice is still
    sufficient, but once is, and no smaller factor is in general: for J = (0, 1)ᵀ and noise on the first label, λ₀ is
    the exact threshold.

    Args:
        J: (N, p), theta: (p,).
        rho: the null space constant ρ of Definition B.3, such as `null_space_constant`.
    """
    if rho >= 1:
        return np.inf
    A, Q = row_space(J)
    nu = np.linalg.lstsq(A.T, Q.T @ theta, rcond=None)[0]  # the least ν with Jᵀν = θ*: UΣ⁻¹Vᵀθ*
    return (1 + rho) / (1 - rho) * float(np.abs(nu).max())


def recovered(problem: Problem, lam: ArrayLike, tol: float) -> npt.NDArray[np.bool_]:
    """Whether (26) with each λ gives back θ* and s*, both to a relative `tol`."""
    found = solve(problem.J, problem.y, lam)
    errors = relative_error(found.theta, problem.theta), relative_error(found.s, problem.s)
    return np.maximum(*errors) < tol


def threshold(problem: Problem) -> float:
    """The least λ from which on (26) recovers θ* and s*, found by search to four digits; infinite if there is none.

    Searched is from 10⁻⁶ to 10³ in units of ‖UΣ⁻¹Vᵀθ*‖_∞ (`bound` for ρ = 0), whatever the problem's scale.

    (θ*, s*) solves (26) if some ν has Jᵀν = θ*, ν_i = λ sign(s*_i) where s*_i ≠ 0, and |ν_i| ≤ λ elsewhere. These are
    convex conditions on (ν, λ), so the good λ form an interval, and it is unbounded if (26) recovers at the upper end.
    """
    unit = bound(problem.J, problem.theta, 0) or 1.0
    ends = np.log(_LOW * unit), np.log(_HIGH * unit)
    if not recovered(problem, _HIGH * unit, 1e-6):
        return np.inf
    while ends[1] - ends[0] > _DIGITS:
        trial = np.linspace(*ends, 10)[1:-1]
        good = np.r_[recovered(problem, np.exp(trial), 1e-6), True]
        first = int(np.argmax(good))
        ends = float(np.r_[ends[0], trial][first]), float(np.r_[trial, ends[1]][first])
    return float(np.exp(ends[1]))

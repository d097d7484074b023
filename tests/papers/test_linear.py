"""SOP's linear theory: each formula against its slow twin, and each claim of Section 3 as a measurement."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from reference import linear as slow

from noiseproof.errors import InputError
from noiseproof_papers.sop import convex, linear, recovery
from noiseproof_papers.sop.linear import Point, relative_difference

FIGURE_2 = (20, 40, 3, 3)  # (N, p, r, k)


def close(found: Any, expected: Any, tol: float) -> None:
    """‖found − expected‖ ≤ tol · ‖expected‖."""
    np.testing.assert_array_less(np.linalg.norm(found - expected), tol * np.linalg.norm(expected) + 1e-300)


# --- data ---


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6), rank=st.integers(1, 8), sparsity=st.integers(1, 8))
def test_simulate_is_section_3_2(seed: int, rank: int, sparsity: int) -> None:
    J, theta, s, y = linear.simulate(8, 11, rank, sparsity, seed)
    assert np.linalg.matrix_rank(J) == rank
    assert np.count_nonzero(s) == sparsity
    close(J @ theta + s, y, 1e-11)
    close(theta, slow.least_norm(J, y, s), 1e-8)  # Eq. (14)


def test_simulated_entries_have_the_stated_spread() -> None:
    problems = [linear.simulate(30, 40, 5, 10, seed) for seed in range(200)]
    entries = np.concatenate([problem.J.ravel() for problem in problems])
    noise = np.concatenate([problem.s[problem.s != 0] for problem in problems])
    assert abs(entries.var() - 5) < 0.1  # a sum of 5 products of standard Gaussians
    assert abs(noise.var() - 1) < 0.1
    assert abs(np.mean([np.sum(problem.theta**2) for problem in problems]) - 5) < 0.5  # 5 of 40 directions are left


# --- the dynamics ---


def test_descent_is_equation_16() -> None:
    J, _, _, y = linear.simulate(6, 9, 2, 2, 0)
    alphas = np.array([5.0, 60.0])
    found = linear.descend(J, y, alphas, log_gamma=-3.0, step=0.05, tol=0.0, max_steps=400)
    assert list(found.steps) == [400, 400]
    for b, alpha in enumerate(alphas):
        tau = min(1 / np.linalg.norm(J, 2) ** 2, 0.05 / (alpha * np.abs(y).max()))
        theta, u, v = slow.descent(J, y, alpha, np.exp(-3.0), tau, 400)
        close(found.theta[b], theta, 1e-10)
        close(found.u[b], u, 1e-10)
        close(found.v[b], v, 1e-10)
        close(found.s[b], u * u - v * v, 1e-10)


def test_flow_is_descent_with_small_steps() -> None:
    J, _, _, y = linear.simulate(6, 9, 2, 2, 1)
    alpha, gamma, end = 10.0, np.exp(-3.0), 0.02
    theta, nu = slow.flow(J, y, alpha, gamma, [0.0, end])
    assert not theta[0].any()
    coarse, fine = (slow.descent(J, y, alpha, gamma, end / n, n) for n in (5_000, 10_000))
    extrapolated = [2 * b - a for a, b in zip(coarse, fine, strict=True)]  # Euler's error is of order τ
    close(theta[1], extrapolated[0], 1e-6)
    close(gamma * np.exp(2 * alpha * nu[1]), extrapolated[1], 1e-6)  # u of Eq. (20)
    s = 2 * gamma**2 * np.sinh(4 * alpha * nu[1])
    close(s, extrapolated[1] ** 2 - extrapolated[2] ** 2, 1e-5)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("alpha", [4.0, 100.0, 4000.0])
def test_flow_ends_at_its_limit(seed: int, alpha: float) -> None:
    J, _, _, y = linear.simulate(*FIGURE_2, seed)
    limit = linear.flow_limit(J, y, alpha)
    theta, nu = slow.flow(J, y, alpha, np.exp(-8.0), [1e-4, 1e6])
    s = 2 * np.exp(-16.0) * np.sinh(4 * alpha * nu)
    close(theta[1], limit.theta, 1e-7)
    close(s[1], limit.s, 1e-6)
    assert relative_difference(s[0], limit.s) > 1e-2  # and it had to move to get there


@settings(max_examples=30, deadline=None)
@example(seed=494, log_alpha=-2.0, log_gamma=-500.0)
@given(seed=st.integers(0, 10**6), log_alpha=st.floats(-2, 6), log_gamma=st.sampled_from([-1.0, -8.0, -32.0, -500.0]))
def test_limit_satisfies_its_equations(seed: int, log_alpha: float, log_gamma: float) -> None:
    J, _, _, y = linear.simulate(12, 15, 4, 3, seed)
    alpha = np.exp(log_alpha)
    theta, s, nu = linear.flow_limit(J, y, alpha, log_gamma=log_gamma)
    # Jθ = JJᵀν is a sum of terms that cancel: its round-off is that of the terms, which grow with ν
    terms = np.abs(J) @ (np.abs(J.T) @ np.abs(nu))
    assert (np.abs(J @ theta + s - y) <= 1e-11 * np.abs(y).max() + 16 * np.finfo(float).eps * terms).all()
    close(theta, J.T @ nu, 1e-11)
    large = np.abs(s) > 1e-9
    root = np.hypot(s[large], 2 * np.exp(2 * log_gamma))
    expected = (np.log((np.abs(s[large]) + root) / 2) - 2 * log_gamma) / (4 * alpha)  # asinh(s/2γ²)/4α
    np.testing.assert_allclose(np.abs(nu[large]), expected, rtol=1e-9)


def test_limit_minimises_the_stated_penalty() -> None:
    J, _, _, y = linear.simulate(8, 10, 3, 2, 0)
    alpha, log_gamma = 3.0, -2.0
    gamma = np.exp(log_gamma)

    def penalised(theta: np.ndarray) -> float:
        s = y - J @ theta
        return 0.5 * theta @ theta + np.sum(s * np.arcsinh(s / (2 * gamma**2)) - np.hypot(s, 2 * gamma**2)) / (
            4 * alpha
        )

    theta = linear.flow_limit(J, y, alpha, log_gamma=log_gamma).theta
    generator = np.random.default_rng(0)
    for size in (1e-3, 1e-1, 1.0):
        for _ in range(20):
            assert penalised(theta) < penalised(theta + size * generator.standard_normal(10))


@pytest.mark.parametrize(("alpha", "step"), [(8.0, 0.02), (40.0, 0.02), (1700.0, 0.02), (4000.0, 0.02)])
def test_descent_ends_within_order_tau_of_the_flow(alpha: float, step: float) -> None:
    """At the size of Figure 2: within 2·step, and halving τ halves the distance, so it is all τ's doing."""
    J, _, _, y = linear.simulate(*FIGURE_2, 0)
    limit = linear.flow_limit(J, y, alpha)
    coarse, fine = (linear.descend(J, y, alpha, step=c, max_steps=30_000) for c in (step, step / 2))
    errors = [relative_difference(found.theta[0], limit.theta) for found in (coarse, fine)]
    assert errors[0] < 2 * step
    assert relative_difference(coarse.s[0], limit.s) < 2 * step
    if alpha > 1000:
        assert 1.8 < errors[0] / errors[1] < 2.2
        assert relative_difference(2 * fine.theta[0] - coarse.theta[0], limit.theta) < errors[1] / 50


@pytest.mark.slow
def test_descent_extrapolated_to_small_steps_is_the_flow() -> None:
    """Over Figure 2's range of α: within 1 % at step = 0.01; from two steps, τ → 0 within 1e-4 (θ) and 1.5e-3 (s)."""
    J, _, _, y = linear.simulate(*FIGURE_2, 0)
    alphas = np.geomspace(4, 4000, 9)
    coarse, fine = (linear.descend(J, y, alphas, step=c, max_steps=int(5_000 / c)) for c in (0.02, 0.01))
    limits = [linear.flow_limit(J, y, alpha) for alpha in alphas]
    theta, s = np.stack([limit.theta for limit in limits]), np.stack([limit.s for limit in limits])
    assert relative_difference(fine.theta, theta).max() < 1e-2
    assert relative_difference(fine.s, s).max() < 1e-2
    assert relative_difference(2 * fine.theta - coarse.theta, theta).max() < 1e-4
    assert relative_difference(2 * fine.s - coarse.s, s).max() < 1.5e-3


# --- the convex program ---


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6), rank=st.integers(1, 5), sparsity=st.integers(1, 7), log_lam=st.floats(-6, 3))
def test_convex_against_coordinate_ascent(seed: int, rank: int, sparsity: int, log_lam: float) -> None:
    J, _, _, y = linear.simulate(7, 5, rank, sparsity, seed)
    lam = np.exp(log_lam)
    found = convex.solve(J, y, lam)
    theta, s = slow.convex(J, y, lam, 300)
    expected = 0.5 * theta @ theta + lam * np.abs(s).sum()
    primal = 0.5 * found.theta @ found.theta + lam * np.abs(found.s).sum()
    assert primal <= expected * (1 + 1e-10)
    assert found.gap <= 1e-9 * primal
    assert np.abs(found.nu).max() <= lam
    close(J @ found.theta + found.s, y, 1e-11)
    distance = np.linalg.norm(theta - found.theta)
    slow_gap = max(expected - primal + found.gap, 0)
    assert distance <= np.sqrt(2 * slow_gap) * 1.01 + 1e-6 * np.linalg.norm(found.theta)  # strong convexity


def instances(count: int, seed: int) -> list[tuple[np.ndarray, np.ndarray, float]]:
    """Random programs of many sizes, ranks and λ, and degenerate ones."""
    generator = np.random.default_rng(seed)
    drawn = []
    for i in range(count):
        N = int(generator.choice([5, 20, 40, 100]))
        p = int(generator.choice([max(2, N // 2), 3 * N // 2]))
        rank, sparsity = int(generator.integers(1, min(N, p) + 1)), int(generator.integers(1, N + 1))
        J, _, s, y = linear.simulate(N, p, rank, sparsity, int(generator.integers(2**31)))
        if i % 4 == 1:
            J[N // 2 :], y[N // 2 :] = J[: N - N // 2], y[: N - N // 2]  # repeated rows and labels
        if i % 8 == 2:
            y = y - s  # no noise
        if i % 8 == 6:
            J[0], y[1] = 0.0, 0.0  # a label that the model cannot reach, and a zero label
        drawn.append((J, y, float(10 ** generator.uniform(-4, 1))))
    return drawn


def check_against_cvxpy(count: int, seed: int) -> None:
    for J, y, lam in instances(count, seed):
        ours, (theta, s) = convex.solve(J, y, lam), slow.convex_by_cvxpy(J, y, lam)
        reach = np.linalg.norm(J, 2) * lam  # θ = Jᵀν with |ν| ≤ λ
        assert np.linalg.norm(ours.theta - theta) <= 1e-6 * max(np.linalg.norm(ours.theta), 1e-3 * reach)
        assert np.linalg.norm(ours.s - s) <= 1e-6 * max(np.linalg.norm(ours.s), 1e-3 * np.linalg.norm(y))
        primal = 0.5 * ours.theta @ ours.theta + lam * np.abs(ours.s).sum()
        assert ours.gap <= 1e-8 * primal


def test_convex_against_cvxpy() -> None:
    check_against_cvxpy(24, 0)


@pytest.mark.slow
def test_convex_against_cvxpy_on_hundreds() -> None:
    check_against_cvxpy(800, 1)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    whole=st.booleans(),
    log_scale=st.floats(-6, 6),
    log_ratio=st.floats(-9, 7),  # of λ‖J‖² to max|y|
)
def test_convex_in_any_units(seed: int, whole: bool, log_scale: float, log_ratio: float) -> None:
    J, _, _, y = linear.simulate(12, 9, 1 + seed % 9, 1 + seed % 12, seed)
    if whole:
        J, y = np.round(J), np.round(y) + 1.0 * (np.arange(12) == 0)  # ties, and repeated and zero rows
    if not (J.any() and y.any()):
        return
    y = y * 10**log_scale
    lam = 10**log_ratio * np.abs(y).max() / np.linalg.norm(J, 2) ** 2
    found = convex.solve(J, y, lam)
    assert np.abs(found.nu).max() <= lam
    assert found.gap <= 1e-8 * (0.5 * found.theta @ found.theta + lam * np.abs(found.s).sum())


def test_convex_of_many_programs_is_that_of_each() -> None:
    problems = [linear.simulate(10, 15, 1 + seed % 3, 2, seed) for seed in range(6)]  # of three ranks
    J, y = np.stack([problem.J for problem in problems]), np.stack([problem.y for problem in problems])
    lam = np.geomspace(1e-3, 1, 6)
    for together in (convex.solve(J, y, lam), convex.solve(J, y, 0.1), convex.solve(J[0], y[0], lam)):
        assert together.theta.shape == (6, 15)
        assert together.gap.shape == (6,)
    together = convex.solve(J, y, lam)
    for b in range(6):
        close(together.theta[b], convex.solve(J[b], y[b], lam[b]).theta, 1e-9)


def test_convex_without_data_in_the_model() -> None:
    found = convex.solve(np.zeros((4, 3)), [1.0, -2.0, 0.0, 3.0], 0.5)
    assert not found.theta.any()
    assert list(found.s) == [1.0, -2.0, 0.0, 3.0]
    assert not convex.solve(np.eye(3), np.zeros(3), 0.5).theta.any()


def test_without_labels_or_model_nothing_moves() -> None:
    for J, y in ((np.eye(3), np.zeros(3)), (np.zeros((3, 2)), np.array([1.0, 0.0, -2.0]))):
        assert not linear.descend(J, y, 5.0, max_steps=2000).theta.any()
        assert not linear.flow_limit(J, y, 5.0).theta.any()
    np.testing.assert_allclose(linear.flow_limit(J, y, 5.0).s, y, atol=1e-12)


def test_labels_without_noise_are_recovered() -> None:
    J, theta, s, _ = linear.simulate(20, 30, 3, 1, 0)
    clean = linear.Problem(J, theta, 0 * s, J @ theta)
    assert recovery.threshold(clean) < np.inf


# --- Proposition 3.3: descent finds the convex program's solution ---


def gap_on_curve(problem: linear.Problem, lam: float, log_gamma: float) -> tuple[float, float]:
    """Relative difference, in θ and in s, of the flow's limit and (26), at α = −log γ/(2λ)."""
    limit = linear.flow_limit(problem.J, problem.y, linear.alpha_for(lam, log_gamma), log_gamma=log_gamma)
    exact = convex.solve(problem.J, problem.y, lam)
    return float(relative_difference(limit.theta, exact.theta)), float(relative_difference(limit.s, exact.s))


@pytest.mark.parametrize("seed", range(4))
def test_well_above_the_threshold_flow_and_convex_agree(seed: int) -> None:
    """γ = e⁻⁸ is small enough, to 1e-3, from 4 λ₀ on; just above λ₀ it is not."""
    problem = linear.simulate(*FIGURE_2, seed)
    least = recovery.threshold(problem)
    for lam in np.geomspace(4 * least, 100 * least, 6):
        assert max(gap_on_curve(problem, lam, -8.0)) < 1e-3
    assert max(gap_on_curve(problem, 1.05 * least, -8.0)) > 1e-2


@pytest.mark.parametrize("seed", range(4))
def test_just_above_the_threshold_the_gap_dies_with_gamma(seed: int) -> None:
    problem = linear.simulate(*FIGURE_2, seed)
    lam = 1.25 * recovery.threshold(problem)
    gaps = [max(gap_on_curve(problem, lam, log_gamma)) for log_gamma in (-8.0, -32.0, -128.0)]
    assert gaps[1] < gaps[0] / 10
    assert gaps[2] < 1e-4


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("share", [0.02, 0.3])
def test_below_the_threshold_the_gap_closes_like_1_over_log_gamma(seed: int, share: float) -> None:
    problem = linear.simulate(*FIGURE_2, seed)
    lam = share * recovery.threshold(problem)
    logs = np.array([-8.0, -16.0, -32.0, -64.0, -1024.0])
    gaps = np.array([gap_on_curve(problem, lam, log_gamma) for log_gamma in logs])  # (5, 2)
    products = gaps * -logs[:, None]
    assert (gaps[0] > 1e-3).all()
    np.testing.assert_allclose(products[2:], products[-1:].repeat(3, axis=0), rtol=0.25)


def test_off_the_curve_they_differ() -> None:
    problem = linear.simulate(*FIGURE_2, 0)
    exact = convex.solve(problem.J, problem.y, 1e-3)
    limit = linear.flow_limit(problem.J, problem.y, linear.alpha_for(0.1, -8.0))
    assert relative_difference(limit.theta, exact.theta) > 0.5


# --- Section 3.3: recovery ---


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), rank=st.integers(1, 6))
def test_coherence_and_condition(seed: int, rank: int) -> None:
    J = linear.simulate(60, 30, rank, 1, seed).J
    mu = slow.coherence(J)
    assert 1 <= mu <= 60 / rank + 1e-9
    for k in (1, 2, 3):
        rho = recovery.null_space_constant(J, k)
        assert (rho < 1) == (k**2 * rank < 60 / (4 * mu))  # Eq. (28)
        if rho < np.inf:
            assert k**2 * rank == pytest.approx(60 / mu * (rho / (1 + rho)) ** 2)  # (B.22) with equality


@pytest.mark.parametrize("seed", range(6))
def test_threshold_is_that_of_the_linear_program(seed: int) -> None:
    problem = linear.simulate(20, 30, 1 + seed % 4, 2, seed)
    assert recovery.threshold(problem) == pytest.approx(slow.threshold(problem.J, problem.theta, problem.s), rel=3e-4)


@pytest.mark.parametrize("scale", [1e-7, 1e7])
def test_threshold_scales_with_the_problem(scale: float) -> None:
    one = linear.simulate(20, 40, 3, 3, 0)
    scaled = linear.Problem(one.J, one.theta * scale, one.s * scale, one.y * scale)
    assert recovery.threshold(scaled) == pytest.approx(recovery.threshold(one) * scale, rel=3e-4)


def test_no_threshold_when_all_labels_are_wrong() -> None:
    problem = linear.simulate(20, 30, 5, 20, 0)
    assert recovery.threshold(problem) == np.inf
    assert slow.threshold(problem.J, problem.theta, problem.s) == np.inf


def test_certified_noise_is_recovered_above_half_the_printed_bound() -> None:
    """(B.25) with its 2 is twice what the proof gives, and the half suffices wherever (28) holds."""
    checked = 0
    for seed in range(40):
        problem = linear.simulate(100, 150, 1 + seed % 8, 1, seed)
        rho = recovery.null_space_constant(problem.J, 1)
        if rho < 1:
            checked += 1
            least = recovery.bound(problem.J, problem.theta, rho)
            assert 2 * least == pytest.approx(slow.printed_bound(problem.J, problem.theta, rho), rel=1e-9)
            assert recovery.recovered(problem, 1.0001 * least, 1e-7)
    assert checked >= 15


@pytest.mark.parametrize("leak", [0.0, 1e-3])
def test_the_corrected_bound_cannot_be_lowered(leak: float) -> None:
    """J = (leak, 1)ᵀ: ρ = leak on the first label, and recovery fails just below the bound."""
    J, theta, s = np.array([[leak], [1.0]]), np.array([-3.0]), np.array([1.0, 0.0])
    problem = linear.Problem(J, theta, s, J @ theta + s)
    least = recovery.bound(J, theta, leak)
    assert recovery.recovered(problem, 1.001 * least, 1e-9)
    assert not recovery.recovered(problem, 0.997 * least, 1e-3)
    assert slow.threshold(J, theta, s) == pytest.approx(least, rel=3e-3)


def test_the_step_of_the_proof_of_b6() -> None:
    """‖z‖₁ − ‖x‖₁ ≥ (1 − ρ)/(1 + ρ)‖z − x‖₁ holds; with (1 + ρ)/(1 − ρ), as the proof prints, it does not."""
    generator = np.random.default_rng(0)
    U, S = np.linalg.qr(generator.standard_normal((40, 2)))[0], slice(0, 2)
    kernel = U @ generator.standard_normal((2, 4000))  # (40, 4000): directions in ker A
    rho = (np.abs(kernel[S]).sum(0) / np.abs(kernel[2:]).sum(0)).max()
    assert rho < 1
    x = np.r_[generator.standard_normal(2), np.zeros(38)][:, None]
    growth = np.abs(x + kernel).sum(0) - np.abs(x).sum(0)
    size = np.abs(kernel).sum(0)
    assert (growth >= (1 - rho) / (1 + rho) * size - 1e-12).all()
    assert (growth < (1 + rho) / (1 - rho) * size).any()


@pytest.mark.slow
def test_no_failure_inside_the_certified_region() -> None:
    """Figure 4, λ = 0.1: every instance with (28) and λ above the bound is recovered; there are over 500 of them."""
    certified = 0
    for rank in range(1, 11):
        for k in (1, 2, 3):
            for seed in range(60):
                problem = linear.simulate(100, 150, rank, k, 1000 * rank + 100 * k + seed)
                rho = recovery.null_space_constant(problem.J, k)
                if recovery.bound(problem.J, problem.theta, rho) < 0.1:
                    certified += 1
                    assert recovery.recovered(problem, 0.1, 1e-3)
    assert certified > 500


# --- Proposition 3.2: the landscape ---


def stacked(point: Point) -> np.ndarray:
    return np.concatenate(point)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_hessian(seed: int) -> None:
    generator = np.random.default_rng(seed)
    J, y = generator.standard_normal((4, 6)), generator.standard_normal(4)
    point = Point(*(generator.standard_normal(n) for n in (6, 4, 4)))
    _, H = slow.gradient_and_hessian(J, y, stacked(point))
    np.testing.assert_allclose(linear.hessian(J, y, point), H, atol=1e-12)
    d = tuple(generator.standard_normal(n) for n in (6, 4, 4))
    r = J @ point.theta + point.u**2 - point.v**2 - y
    form = slow.quadratic_form(J, point.u, point.v, r, d)
    assert form == pytest.approx(np.concatenate(d) @ H @ np.concatenate(d), rel=1e-9, abs=1e-9)  # (B.2) is right


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), size=st.integers(5, 12))
def test_other_critical_points_are_strict_saddles(seed: int, size: int) -> None:
    J, generator = linear.simulate(12, 15, 4, 3, seed).J, np.random.default_rng(seed)
    y, rows = generator.standard_normal(12), generator.choice(12, size, replace=False)
    point = linear.critical_point(J, y, rows)
    r = J @ point.theta + point.u**2 - point.v**2 - y
    np.testing.assert_allclose(slow.gradient_and_hessian(J, y, stacked(point))[0], 0, atol=1e-9)
    assert np.abs(r).max() > 1e-6  # not a global minimiser
    lowest = np.linalg.eigvalsh(linear.hessian(J, y, point))[0]
    assert lowest <= -2 * np.abs(r).max() * (1 - 1e-9)  # the directions of the proof


def test_critical_points_are_global_when_the_model_can_fit_everything() -> None:
    J, _, _, y = linear.simulate(8, 15, 8, 3, 0)
    for rows in ([0], [0, 3, 5], range(8)):
        point = linear.critical_point(J, y, list(rows))
        np.testing.assert_allclose(J @ point.theta + point.u**2 - point.v**2, y, atol=1e-9)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_global_minimisers_have_no_descent_direction(seed: int) -> None:
    J, _, _, y = linear.simulate(10, 14, 3, 2, seed)
    theta = np.random.default_rng(seed).standard_normal(14)
    s = y - J @ theta
    point = Point(theta, np.sqrt(np.maximum(s, 0) + 0.3), np.sqrt(np.maximum(-s, 0) + 0.3))
    eigenvalues = np.linalg.eigvalsh(linear.hessian(J, y, point))
    assert eigenvalues[0] > -1e-9 * eigenvalues[-1]


# --- bad input ---


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: linear.simulate(5, 8, 6, 1, 0), "rank must be a whole number, from 1 to 5"),
        (lambda: linear.simulate(5, 8, 2, 0, 0), "sparsity must be a whole number, from 1 to 5"),
        (lambda: convex.solve(np.eye(3), np.ones(2), 1.0), "same N, got"),
        (lambda: convex.solve(np.eye(2), [1.0, np.nan], 1.0), "must be finite"),
        (lambda: convex.solve(np.eye(2), np.ones(2), [0.1, -1.0]), "lam must be finite and above 0"),
        (lambda: convex.solve(np.ones((3, 2, 2)), np.ones(2), [0.1, 1.0]), "equally many"),
        (lambda: linear.alpha_for(0.1, 2.0), r"log_gamma must be a number in \(-inf, 0\), got 2.0; the paper has -8"),
        (lambda: linear.descend(np.eye(2), np.ones(2), 1.0, step=0.5), r"step must be a number in \(0, 0.25\)"),
        (lambda: linear.descend(np.eye(2), np.ones(2), 0.0), "alpha must be"),
        (lambda: linear.flow_limit(np.eye(2), np.ones(2), [1.0, 2.0]), "alpha must be a number above 0"),
        (lambda: linear.flow_limit(np.ones((3, 2, 2)), np.ones(2), 1.0), r"J must be \(N, p\)"),
    ],
)
def test_bad_input(call: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        call()

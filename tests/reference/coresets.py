"""Slow twins of noiseproof_papers/crust/bounds.py: matrices written out, SVD, loops over examples."""

from __future__ import annotations

import numpy as np


def restricted(jacobian, basis):  # type: ignore[no-untyped-def]
    """Singular values of Jᵀ on the span of the basis' columns."""
    return np.linalg.svd(jacobian.T @ basis, compute_uv=False)


def constant_on(cluster):  # type: ignore[no-untyped-def]
    """Orthonormal vectors, one for each cluster."""
    columns = []
    for one in sorted(set(cluster)):
        vector = np.array([float(c == one) for c in cluster])
        columns.append(vector / np.linalg.norm(vector))
    return np.stack(columns, axis=1)


def replaced(jacobian, index, assignment):  # type: ignore[no-untyped-def]
    """J with each row that of its representative, 0 where it has none."""
    rows = np.zeros_like(jacobian)
    for i, place in enumerate(assignment):
        if place >= 0:
            rows[i] = jacobian[index[place]]
    return rows


def shares(wrong, cluster):  # type: ignore[no-untyped-def]
    """Of wrong labels, overall and in the worst cluster."""
    each = [np.mean([w for w, c in zip(wrong, cluster, strict=True) if c == one]) for one in set(cluster)]
    return np.mean(wrong), max(each)


def guarantee(
    jacobian: np.ndarray, weight: np.ndarray, cluster: list[int], residual: np.ndarray, noise: np.ndarray, smooth: float
) -> dict[str, float]:
    """Corollary A.1, from J_S (k, P), r, the clusters, f − y at the start, y − ỹ and the smoothness of √R J_S."""
    basis = constant_on(cluster)
    alpha = weight.min() ** 0.5 * restricted(jacobian, basis)[-1]
    beta = weight.max() ** 0.5 * np.linalg.norm(jacobian, 2)
    start = sum(r * one**2 for r, one in zip(weight, residual, strict=True)) ** 0.5
    means = []
    for c in set(cluster):
        members = [i for i, one in enumerate(cluster) if one == c]
        means.append(abs(sum(weight[i] * noise[i] for i in members)) / sum(weight[i] for i in members))
    step = min(1.0, alpha * beta / (smooth * start)) / (2 * beta**2)
    steps = np.ceil(5 / (step * alpha**2) * np.log(start / (weight.min() ** 0.5 * max(means))))
    return {
        "alpha": alpha, "beta": beta, "step": step, "distance": 4 * start / alpha, "steps": steps,
        "error": 2 * max(means),
    }  # fmt: skip

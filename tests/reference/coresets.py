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

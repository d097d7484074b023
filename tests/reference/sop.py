"""SOP, slow and obvious: Eqs. (5) to (9) of Liu et al. (2022) by loops over examples and classes."""

from __future__ import annotations

import torch
from torch import Tensor

EPS = 1e-4


def losses(p: Tensor, u: Tensor, v: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
    """L_CE (B,) and L_MSE (B,), as functions that autograd can differentiate: p (B, K), u (B, K), v (B, K)."""
    cross_entropies, squared_errors = [], []
    for i in range(len(p)):
        y = [1.0 if k == int(label[i]) else 0.0 for k in range(p.shape[1])]
        s = [u[i, k] * u[i, k] * y[k] - v[i, k] * v[i, k] * (1 - y[k]) for k in range(p.shape[1])]  # Eq. (5)
        w = [torch.clamp(p[i, k] + s[k], min=EPS) for k in range(p.shape[1])]
        phi = [one / sum(w) for one in w]  # Eq. (7)
        cross_entropies.append(-sum(y[k] * torch.log(phi[k]) for k in range(p.shape[1])))  # Eq. (8)
        largest = max(range(p.shape[1]), key=lambda k: float(p[i, k].detach()))
        h = [1.0 if k == largest else 0.0 for k in range(p.shape[1])]  # footnote 1
        squared_errors.append(sum((h[k] + s[k] - y[k]) ** 2 for k in range(p.shape[1])))  # Eq. (9)
    return torch.stack(cross_entropies), torch.stack(squared_errors)

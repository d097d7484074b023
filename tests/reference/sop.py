"""SOP and SOP+, slow and obvious: Eqs. (5) to (9) and A.3 of Liu et al. (2022) by loops over examples and classes."""

from __future__ import annotations

import torch
from torch import Tensor


def losses(p: Tensor, u: Tensor, v: Tensor, label: Tensor, variant: str = "paper") -> tuple[Tensor, Tensor]:
    """L_CE (B,) and L_MSE (B,), as functions that autograd can differentiate: p (B, K), u (B, K), v (B, K).

    The authors' code clamps u² and v² to at most 1, and φ to at least ε.
    """
    authors = variant == "authors"
    eps = 1e-4 if p.shape[1] <= 1000 else 0.1 / p.shape[1]
    cross_entropies, squared_errors = [], []
    for i in range(len(p)):
        y = [1.0 if k == int(label[i]) else 0.0 for k in range(p.shape[1])]
        s = []
        for k in range(p.shape[1]):
            positive, negative = u[i, k] * u[i, k] * y[k], v[i, k] * v[i, k] * (1 - y[k])
            if authors:
                positive, negative = torch.clamp(positive, max=1.0), torch.clamp(negative, max=1.0)
            s.append(positive - negative)  # Eq. (5)
        w = [torch.clamp(p[i, k] + s[k], min=eps) for k in range(p.shape[1])]
        total = sum(w)
        phi = [one / total for one in w]  # Eq. (7)
        if authors:
            phi = [torch.clamp(one, min=eps) for one in phi]
        cross_entropies.append(-sum(y[k] * torch.log(phi[k]) for k in range(p.shape[1])))  # Eq. (8)
        largest = max(range(p.shape[1]), key=lambda k: float(p[i, k].detach()))
        h = [1.0 if k == largest else 0.0 for k in range(p.shape[1])]  # footnote 1
        squared_errors.append(sum((h[k] + s[k] - y[k]) ** 2 for k in range(p.shape[1])))  # Eq. (9)
    return torch.stack(cross_entropies), torch.stack(squared_errors)


def automatic(
    p: Tensor, mean: list[float], y: int, visits: float, clear: float, variant: str
) -> tuple[Tensor, list[float]]:
    """The loss of one example at automatic rates, of its p (K,), and its v² after the visit, given those before."""
    mean = [old + (p[k].item() - old) / visits for k, old in enumerate(mean)]
    share = [one / sum(mean) for one in mean]
    others = [k for k in range(len(mean)) if k != y]
    best = max(others, key=lambda k: share[k])
    if share[best] <= share[y] + clear:
        return -torch.log(p[y]), mean
    s = [0.0] * len(mean)
    s[y], s[best] = 1.0, -1.0
    w = [torch.clamp(p[k] + s[k], min=1e-4) for k in range(len(mean))]
    phi = w[y] / sum(w)
    return -torch.log(torch.clamp(phi, min=1e-4) if variant == "authors" else phi), mean


def consistency(weak: Tensor, strong: Tensor) -> Tensor:
    """D_KL(softmax(weak) ‖ softmax(strong)) of each row (B,), Appendix A.3."""
    rows = []
    for i in range(len(weak)):
        p = [torch.exp(weak[i, k]) / torch.exp(weak[i]).sum() for k in range(weak.shape[1])]
        q = [torch.exp(strong[i, k]) / torch.exp(strong[i]).sum() for k in range(weak.shape[1])]
        rows.append(sum(p[k] * torch.log(p[k] / q[k]) for k in range(weak.shape[1])))
    return torch.stack(rows)


def balance(p: Tensor, prior: list[float]) -> Tensor:
    """−Σ_k prior_k log(mean of p_k): D_KL(prior ‖ mean of p) without its constant, Appendix A.3."""
    means = [sum(p[i, k] for i in range(len(p))) / len(p) for k in range(p.shape[1])]
    return -sum(prior[k] * torch.log(means[k]) for k in range(p.shape[1]))


def plus(
    weak: Tensor, strong: Tensor, u: Tensor, v: Tensor, label: Tensor, prior: list[float], lam_c: float, lam_b: float,
    variant: str,
) -> Tensor:  # fmt: skip
    """The loss of SOP+ in the network's weights, Appendix A.3: that of SOP, λ_C L_C and λ_B L_B, over a batch.

    Of the logits of both views (B, K), u and v (B, K), labels (B,). In the authors' code the first view is a fixed
    target of the second in L_C, and L_B is of φ(p + s).
    """
    p = torch.stack([torch.stack([torch.exp(x) / torch.exp(row).sum() for x in row]) for row in weak])
    own = losses(p, u, v, label, variant)[0]
    target, balanced = weak, p
    if variant == "authors":
        target, balanced = weak.detach(), corrected(p, u, v, label)
    batch = len(weak)
    return sum(own) / batch + lam_c * sum(consistency(target, strong)) / batch + lam_b * balance(balanced, prior)


def corrected(p: Tensor, u: Tensor, v: Tensor, label: Tensor) -> Tensor:
    """φ(p + s) (B, K), Eqs. (5) and (7), with the squares clamped to at most 1."""
    rows = []
    for i in range(len(p)):
        w = []
        for k in range(p.shape[1]):
            s = min(float(u[i, k]) ** 2, 1.0) if k == int(label[i]) else -min(float(v[i, k]) ** 2, 1.0)
            w.append(torch.clamp(p[i, k] + s, min=1e-4))
        rows.append(torch.stack([one / sum(w) for one in w]))
    return torch.stack(rows)

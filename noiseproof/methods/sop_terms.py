"""The terms of SOP as functions of tensors: Eqs. (5) to (9), their derivatives, and the mean prediction.

Sheng Liu, Zhihui Zhu, Qing Qu and Chong You, "Robust Training under Label Noise by Over-parameterization", ICML 2022;
in words: sop.py.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def floor(num_classes: int) -> float:
    """ε of Eq. (7): 1e-4, as in the authors' code (the paper does not give it); less for more than 1,000 classes.

    A label of p_y ≤ ε has no gradient, and a network begins with p_y near 1/K.
    """
    return min(1e-4, 0.1 / num_classes)


def noise_term(u: Tensor, v: Tensor, label: Tensor) -> Tensor:
    """s = u² ⊙ y − v² ⊙ (1 − y), Eq. (5), its squares at most 1: u (B,), v (B, K), label (B,) to (B, K)."""
    return (-v.square().clamp(max=1)).scatter(1, label[:, None], u.square().clamp(max=1)[:, None])  # Eq. (5)


def mapped(p: Tensor, s: Tensor) -> Tensor:
    """φ(p + s), Eq. (7): (B, K), (B, K) to (B, K), rows sum to 1."""
    w = (p + s).clamp_min(floor(p.shape[1]))
    return w / w.sum(dim=1, keepdim=True)  # Eq. (7)


def sop_loss(p: Tensor, s: Tensor, label: Tensor, variant: str) -> Tensor:
    """L_CE = −log φ(p + s)_y of each example, Eqs. (7) and (8): p (B, K), s (B, K), label (B,) to (B,).

    The authors' variant clamps φ a second time: a label of φ_y < ε has a constant loss.
    """
    phi = mapped(p, s).gather(1, label[:, None]).squeeze(1)  # (B,)
    return -(phi.clamp_min(floor(p.shape[1])) if variant == "authors" else phi).log()  # Eq. (8)


def gradients(p: Tensor, u: Tensor, v: Tensor, label: Tensor, variant: str) -> tuple[Tensor, Tensor]:
    """∂L_CE/∂u and ∂L_MSE/∂v of each example, in closed form; with the authors' variant, ∂(L_CE + L_MSE)/∂u.

    ∂L_CE/∂u = 2u (1/Σ max(w, ε) − 1/w_y) where w_y > ε, else 0, with w = p + s;
    ∂L_MSE/∂v_k = −4 v_k (h_k − v_k²) for k ≠ y; ∂L_MSE/∂u = 4u (h_y + u² − 1); 0 where u² or v² is clamped.

    Differs from the paper: (A.2) and (A.4) print the derivatives with respect to v with the opposite sign, as if s had
    +v²; with it the update of Algorithm 1 would shrink v where it should grow.

    Of p (B, K), u (B,), v (B, K) and label (B,): (B,) and (B, K).
    """
    authors, eps = variant == "authors", floor(p.shape[1])
    w = p + noise_term(u, v, label)  # (B, K)
    w_label = w.gather(1, label[:, None]).squeeze(1)  # (B,)
    total = w.clamp_min(eps).sum(dim=1)  # (B,)
    alive = w_label > eps
    if authors:
        alive &= w_label / total >= eps
    du = 2 * u * torch.where(alive, 1 / total - 1 / w_label.clamp_min(eps), 0.0)
    guess = p.argmax(dim=1)  # (B,)
    h = F.one_hot(guess, p.shape[1]).to(p.dtype)  # (B, K)
    square = v.square()
    dv = torch.where(square <= 1, -4 * v * (h - square), 0.0).scatter(1, label[:, None], 0.0)  # (A.4)
    if authors:
        own = u.square()
        du = torch.where(own <= 1, du + 4 * u * ((guess == label).to(p.dtype) + own - 1), 0.0)
    return du, dv


def mean_prediction(v: Tensor) -> Tensor:
    """t = v² / Σ_k v², the running mean of the predictions: (B, K), rows sum to 1; uniform where never visited."""
    square = v.square() + 1e-12
    return square / square.sum(dim=1, keepdim=True)

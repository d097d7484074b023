"""Slow, obvious twins of the losses, written from the papers alone.

Explicit loops over examples and classes, on double-precision scalars; autograd gives the gradients of the loops.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def probabilities(row: Tensor) -> list[Tensor]:
    """softmax of one row of logits."""
    exponentials = [torch.exp(logit) for logit in row.unbind()]
    total = sum(exponentials)
    return [exponential / total for exponential in exponentials]


def cross_entropy(logits: Tensor, label: Tensor) -> Tensor:
    """−log p_y."""
    return torch.stack([-torch.log(probabilities(row)[y]) for row, y in zip(logits, label.tolist(), strict=True)])


def gce(logits: Tensor, label: Tensor, q: float) -> Tensor:
    """Zhang and Sabuncu (2018): (1 − p_y^q) / q."""
    losses = []
    for row, y in zip(logits, label.tolist(), strict=True):
        losses.append((1 - probabilities(row)[y] ** q) / q)
    return torch.stack(losses)


def sce(logits: Tensor, label: Tensor, alpha: float, beta: float, A: float) -> Tensor:
    """Wang et al. (2019): α (−Σ q log p) + β (−Σ p log q), q one-hot and log 0 = A."""
    losses = []
    for row, y in zip(logits, label.tolist(), strict=True):
        p = probabilities(row)
        forward = backward = torch.zeros((), dtype=row.dtype)
        for k in range(len(p)):
            q_k = 1.0 if k == y else 0.0
            log_q_k = math.log(q_k) if q_k > 0 else A
            if q_k > 0:
                forward = forward - q_k * torch.log(p[k])
            backward = backward - p[k] * log_q_k
        losses.append(alpha * forward + beta * backward)
    return torch.stack(losses)


def forward_correction(logits: Tensor, label: Tensor, transition: Tensor) -> Tensor:
    """Patrini et al. (2017), Theorem 2: cross-entropy of Tᵀ p at the noisy label."""
    losses = []
    for row, y in zip(logits, label.tolist(), strict=True):
        noisy = torch.zeros((), dtype=row.dtype)
        for j, p_j in enumerate(probabilities(row)):
            noisy = noisy + p_j * transition[j, y].item()
        losses.append(-torch.log(noisy))
    return torch.stack(losses)


def backward_correction(logits: Tensor, label: Tensor, transition: Tensor) -> Tensor:
    """Patrini et al. (2017), Theorem 1: the row of T⁻¹ at the noisy label, times the losses of all classes."""
    size = len(transition)
    losses = []
    for row, y in zip(logits, label.tolist(), strict=True):
        unit = torch.zeros(size, dtype=row.dtype)
        unit[y] = 1
        weights = torch.linalg.solve(transition.T, unit)  # e_yᵀ T⁻¹
        loss = torch.zeros((), dtype=row.dtype)
        for j, p_j in enumerate(probabilities(row)):
            loss = loss - weights[j].item() * torch.log(p_j)
        losses.append(loss)
    return torch.stack(losses)


def elr(
    logits: Tensor, label: Tensor, index: Tensor, target: list[list[float]], beta: float, lam: float
) -> tuple[Tensor, list[list[float]]]:
    """Liu et al. (2020), Eqs. (6) and (9), with the authors' clamp; returns the losses and the new targets."""
    target = [list(row) for row in target]
    losses = []
    for row, y, i in zip(logits, label.tolist(), index.tolist(), strict=True):
        p = probabilities(row)
        clamped = [torch.full_like(p_k, 1e-4) if p_k < 1e-4 else p_k for p_k in p]
        clamped = [torch.full_like(p_k, 1 - 1e-4) if p_k > 1 - 1e-4 else p_k for p_k in clamped]
        total = sum(p_k.item() for p_k in clamped)
        inner = torch.zeros((), dtype=row.dtype)
        for k, p_k in enumerate(clamped):
            target[i][k] = beta * target[i][k] + (1 - beta) * p_k.item() / total
            inner = inner + p_k * target[i][k]
        losses.append(-torch.log(p[y]) + lam * torch.log(1 - inner))
    return torch.stack(losses), target


def elr_beliefs(target: Tensor, predicted: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
    """`judged` of the mean of t and p without the clamp's share, by elr.py; of targets, predictions and labels."""
    classes = target.shape[1]
    floor = 1e-4 / (1 - 1e-4 + (classes - 1) * 1e-4)
    said: list[list[float]] = []
    for t, p in zip(target.tolist(), predicted.tolist(), strict=True):
        mean = [t_k / sum(t) if sum(t) > 0 else 1 / classes for t_k in t]
        clamped = [min(max(p_k, 1e-4), 1 - 1e-4) for p_k in p]
        both = [(t_k + p_k / sum(clamped)) / 2 for t_k, p_k in zip(mean, clamped, strict=True)]
        above = [max(q_k - floor, 0.0) for q_k in both]
        said.append([q_k / sum(above) for q_k in above])
    return judged(said, label.tolist())


def judged(said: list[list[float]], label: list[int]) -> tuple[Tensor, Tensor]:
    """b_k ∝ q_k √(C_ky / E_ky), by _judged.py, and 1 − b_y; of what is said of each example, and labels."""
    n, classes = len(said), len(said[0])
    beliefs = []
    for i, y in enumerate(label):
        joint = []
        for k in range(classes):
            found = sum(said[j][k] for j in range(n) if label[j] == y)
            drawn = sum(said[j][k] * said[j][y] for j in range(n))
            joint.append(said[i][k] * math.sqrt(found / drawn) if said[i][k] > 0 else 0.0)
        beliefs.append([one / sum(joint) for one in joint])
    soft = torch.tensor(beliefs, dtype=torch.float64)
    return soft, torch.tensor([1 - row[y] for row, y in zip(beliefs, label, strict=True)], dtype=torch.float64)


def mixup_loss(logits: Tensor, label: Tensor, lam: float, permutation: Tensor, weight: Tensor) -> Tensor:
    """Zhang et al. (2018): cross-entropy at the mixed one-hot label; each part carries its own example's weight."""
    losses = []
    for i, row in enumerate(logits):
        p, j = probabilities(row), int(permutation[i])
        soft = [0.0] * len(p)
        soft[int(label[i])] += lam * weight[i].item()
        soft[int(label[j])] += (1 - lam) * weight[j].item()
        losses.append(-sum(s * torch.log(p_k) for s, p_k in zip(soft, p, strict=True) if s != 0))
    return torch.stack([torch.as_tensor(loss, dtype=logits.dtype) for loss in losses])


def co_teaching(logits1: Tensor, logits2: Tensor, label: Tensor, keep: int) -> tuple[Tensor, Tensor]:
    """Han et al. (2018), Algorithm 1: each network's mean loss over the other's smallest losses."""
    loss1, loss2 = cross_entropy(logits1, label), cross_entropy(logits2, label)
    order1 = sorted(range(len(label)), key=lambda i: loss1[i].item())
    order2 = sorted(range(len(label)), key=lambda i: loss2[i].item())
    return sum(loss1[i] for i in order2[:keep]) / keep, sum(loss2[i] for i in order1[:keep]) / keep

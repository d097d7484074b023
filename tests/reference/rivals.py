"""Slow, obvious twins of the equations of single-network rivals, written from the papers: loops over examples, classes.

Double-precision scalars; autograd gives the gradients of the loops.
"""

from __future__ import annotations

import math

import torch
from reference.losses import probabilities
from torch import Tensor


def self_adaptive(logits: Tensor, label: Tensor, target: Tensor, alpha: float) -> tuple[Tensor, Tensor]:
    """Huang et al. (2020), Algorithm 1: the loss of a batch, and the new t."""
    size, classes = logits.shape
    moved, weights, terms = torch.zeros(size, classes, dtype=torch.float64), [], []
    for i in range(size):
        p = probabilities(logits[i])
        for k in range(classes):
            moved[i, k] = alpha * float(target[i, k]) + (1 - alpha) * float(p[k].detach())
        weights.append(max(float(t) for t in moved[i]))
        terms.append(sum(-float(moved[i, k]) * torch.log(p[k]) for k in range(classes)))
    return sum(w * term for w, term in zip(weights, terms, strict=True)) / sum(weights), moved


def curriculum(losses: list[float], threshold: float, band: float) -> list[float]:
    """Jiang et al. (2018): the v in [0, 1] with the least v ℓ + ½ λ₂ v² − (λ₁ + λ₂) v, found on a grid."""
    grid = [i / 10_000 for i in range(10_001)]
    return [min(grid, key=lambda v: v * one + band * v * v / 2 - (threshold + band) * v) for one in losses]


def dmi(logits: Tensor, label: Tensor) -> Tensor:
    """Xu et al. (2019): −log |det U|, by the permutations; U times K, with a hundredth on the diagonal."""
    from itertools import permutations

    size, classes = logits.shape
    joint = [[torch.zeros((), dtype=torch.float64) for _ in range(classes)] for _ in range(classes)]
    for row, y in zip(logits, label.tolist(), strict=True):
        for j, p in enumerate(probabilities(row)):
            joint[j][y] = joint[j][y] + p * classes / size
    for j in range(classes):
        joint[j][j] = joint[j][j] + 0.01
    determinant = torch.zeros((), dtype=torch.float64)
    for order in permutations(range(classes)):
        swaps = sum(order[a] > order[b] for a in range(classes) for b in range(a + 1, classes))
        term = torch.ones((), dtype=torch.float64)
        for j in range(classes):
            term = term * joint[j][order[j]]
        determinant = determinant + (-1) ** swaps * term
    return -torch.log(determinant.abs())


def cores(logits: Tensor, label: Tensor, share: list[float], beta: float) -> tuple[Tensor, list[bool]]:
    """Cheng et al. (2021): the confidence-regularized loss of each example, and whether the sieve keeps it."""
    losses, kept = [], []
    for row, y in zip(logits, label.tolist(), strict=True):
        each = [-torch.log(p + 1e-8) for p in probabilities(row)]
        expected = sum(share[k] * each[k] for k in range(len(each)))
        losses.append(each[y] - beta * expected)
        # both sides of the sieve's inequality with the regularizer, as the paper has them
        regularizer = -beta * float(expected.detach())
        threshold = sum(float(one.detach()) for one in each) / len(each) + regularizer
        kept.append(float(each[y].detach()) + regularizer < threshold)
    return torch.stack(losses), kept


def joint(logits: Tensor, target: Tensor, prior: list[float], alpha: float, beta: float) -> Tensor:
    """Tanaka et al. (2018): L_c + α L_p + β L_e."""
    size, classes = logits.shape
    rows = [probabilities(row) for row in logits]
    classification = entropy = prior_term = torch.zeros((), dtype=torch.float64)
    for i, s in enumerate(rows):
        for k in range(classes):
            y = float(target[i, k])
            if y > 0:
                classification = classification + y * (math.log(y) - torch.log(s[k])) / size
            entropy = entropy - s[k] * torch.log(s[k]) / size
    for k in range(classes):
        mean = sum(s[k] for s in rows) / size
        prior_term = prior_term + prior[k] * (math.log(prior[k]) - torch.log(mean))
    return classification + alpha * prior_term + beta * entropy


def dimensionality(features: Tensor, neighbours: int) -> list[float]:
    """Ma et al. (2018): LID of each point, by its nearest neighbours in the batch."""
    found = []
    for i, x in enumerate(features):
        distances = sorted(math.dist(x.tolist(), z.tolist()) for j, z in enumerate(features) if j != i)[:neighbours]
        found.append(-1 / (sum(math.log(r / distances[-1]) for r in distances) / len(distances)))
    return found


def d2l(logits: Tensor, label: Tensor, alpha: float) -> Tensor:
    """Ma et al. (2018): cross-entropy at α y + (1 − α) ŷ."""
    losses = []
    for row, y in zip(logits, label.tolist(), strict=True):
        p = probabilities(row)
        guess = max(range(len(p)), key=[float(one.detach()) for one in p].__getitem__)
        soft = [alpha * (k == y) + (1 - alpha) * (k == guess) for k in range(len(p))]
        losses.append(-sum(soft[k] * torch.log(p[k]) for k in range(len(p))))
    return torch.stack(losses)


def reweighted(logits: Tensor, label: Tensor, transition: Tensor) -> Tensor:
    """Xia et al. (2019): g_y / (Tᵀ g)_y · (−log g_y), no gradient from the weight into g."""
    losses = []
    for row, y in zip(logits, label.tolist(), strict=True):
        g = probabilities(row)
        noisy = sum(transition[j, y] * g[j].detach() for j in range(len(g)))
        losses.append(g[y].detach() / noisy * -torch.log(g[y]))
    return torch.stack(losses)


def incv_accuracy(epsilon: float, num_classes: int) -> float:
    """Chen et al. (2019): the accuracy on symmetric noisy labels of a network trained on such."""
    return (1 - epsilon) ** 2 + epsilon**2 / (num_classes - 1)

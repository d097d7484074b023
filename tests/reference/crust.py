"""CRUST, slow and obvious: Algorithm 1 and Eqs. (6), (9), (11) of Mirzasoleiman, Cao and Leskovec (2020), by loops.

`select` is what the authors' code does instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from reference import facility_location
from torch import Tensor


def classes(p: Tensor, label: Tensor, by: str) -> list[list[int]]:
    """U_c, line 4: the examples whose largest of p (n, C) is class c; in the ablation (Table 2) those labelled c."""
    found = []
    for c in range(p.shape[1]):
        own = []
        for i in range(len(p)):
            predicted = max(range(p.shape[1]), key=lambda k: float(p[i, k]))
            if (predicted if by == "prediction" else int(label[i])) == c:
                own.append(i)
        found.append(own)
    return found


def gradient(p: Tensor, label: int) -> list[float]:
    """Of cross-entropy at the input of the softmax, which stands for the whole gradient in Eq. (9): p − y."""
    return [float(p[k]) - (1.0 if k == label else 0.0) for k in range(len(p))]


def clusters(p: Tensor, label: Tensor, share: float, by: str) -> dict[int, list[int]]:
    """Lines 2 to 8: the medoids j of all classes, and V_j, the members of j's class that are nearest to it."""
    found: dict[int, list[int]] = {}
    for members in classes(p, label, by):
        if not members:
            continue
        d = facility_location.distances(np.array([gradient(p[i], int(label[i])) for i in members]))  # line 5
        medoids = facility_location.greedy(d, max(1, round(share * len(members))), d.max() + 1)  # line 6
        for j in medoids:
            found[members[j]] = []
        for i in range(len(members)):
            nearest = i if i in medoids else min(medoids, key=lambda j: d[i, j])  # line 8
            found[members[nearest]].append(members[i])
    return found


def weights(found: Mapping[int, Sequence[int]]) -> dict[int, int]:
    """r_j = |V_j| / |R_j| with |R_j| = 1, line 11."""
    return {j: len(members) for j, members in found.items()}


def loss(
    network: Callable[[Tensor], Tensor],
    x: Tensor,
    y: Tensor,
    weight: Mapping[int, float],
    partner: Mapping[int, int],
    lam: float,
) -> Tensor:
    """Line 15: cross-entropy of the mixed points of Eq. (11), weighted; x (n, …), one-hot y (n, C).

    Each medoid j, a key of `weight`, is mixed with its R_j = {partner[j]}; with itself where it is alone.
    """
    total = torch.zeros((), dtype=x.dtype)
    for j, r in weight.items():
        i = partner[j]
        image = lam * x[i] + (1 - lam) * x[j]  # Eq. (11)
        target = lam * y[i] + (1 - lam) * y[j]  # Eq. (11)
        logits = network(image[None])[0]
        log_p = [logits[k] - torch.log(torch.exp(logits).sum()) for k in range(len(logits))]
        total = total - r * sum(target[k] * log_p[k] for k in range(len(logits)))
    return total / sum(weight.values())


def select(
    features: Tensor, weight: Tensor, bias: Tensor, label: Tensor, *, share: float, radius: float = 2.0
) -> tuple[list[int], list[int]]:
    """The rows selected in one batch of all examples, and their weights.

    The gradient of the batch's mean loss with respect to the features of example i is Wᵀ(p_i − y_i)/B. In each class of
    observed labels: the share of examples with the least sum of distances to all others, each weighing as many as lie
    nearer than the radius.
    """
    h, w, b, y = (one.detach().numpy().astype(float) for one in (features, weight, bias, label))
    gradients = []
    for i in range(len(h)):
        logits = w @ h[i] + b
        p = np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()
        p[int(y[i])] -= 1
        gradients.append(w.T @ p / len(h))
    chosen, weights = [], []
    for c in np.unique(y):
        members = [i for i in range(len(h)) if y[i] == c]
        apart = [[float(np.linalg.norm(gradients[i] - gradients[j])) for j in members] for i in members]
        order = sorted(range(len(members)), key=lambda i: sum(apart[i]))
        for i in order[: max(1, round(share * len(members)))]:
            chosen.append(members[i])
            weights.append(sum(distance < radius for distance in apart[i]))
    return chosen, weights

"""CRUST as its authors' code selects and weighs, example by example."""

from __future__ import annotations

import numpy as np
from torch import Tensor


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

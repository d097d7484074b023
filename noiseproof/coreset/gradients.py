"""Gradients of examples as rows to choose coresets from: Eq. (9) of Mirzasoleiman et al. (2020).

The gradient of −log p_y with respect to the input of the softmax is p − y; with respect to the last layer's weights it
is (p − y) hᵀ, h the input of that layer. Up to constants the distance of the former bounds the distance of the full
gradients, in K dimensions in place of millions. The authors' code takes the gradient with respect to h, Wᵀ(p − y).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from noiseproof.errors import InputError
from noiseproof.models.backbone import Backbone


def last_layer_gradients(probability: Tensor, label: Tensor, features: Tensor | None = None) -> Tensor:
    """p − y (n, K); with features (n, D), the gradients (p − y) hᵀ of the last layer's weights, flat (n, K·D).

    Args:
        probability: (n, K), rows sum to 1.
        label: (n,) int64.
        features: (n, D), what the last layer takes.
    """
    if probability.ndim != 2 or label.shape != probability.shape[:1]:
        raise InputError(f"need probabilities (n, K) and labels (n,), got {probability.shape} and {label.shape}")
    residual = probability.clone()
    residual[torch.arange(len(label)), label] -= 1  # (n, K)
    if features is None:
        return residual
    if features.shape[:1] != label.shape:
        raise InputError(f"features must have a row for each of {len(label)} examples, got {len(features)}")
    return (residual[:, :, None] * features.to(residual)[:, None, :]).flatten(1)


def feature_gradients(model: Backbone, x: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
    """The gradients of each −log p_y with respect to the features, Wᵀ(p − y) (B, F), and the logits (B, K).

    Args:
        model: in the mode it is to be asked in.
        x: (B, …), normalised.
        label: (B,) int64.
    """
    with torch.no_grad():
        features = model.features(x)
    with torch.enable_grad():
        features.requires_grad_()
        logits = model.head(features)
        (rows,) = torch.autograd.grad(F.cross_entropy(logits, label, reduction="sum"), features)
    return rows, logits.detach()

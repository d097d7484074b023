"""Gradients of examples as rows to choose coresets from, in closed form: Eq. (9) of Mirzasoleiman et al. (2020).

The gradient of −log p_y with respect to the input of the softmax is p − y; with respect to the last layer's weights it
is (p − y) hᵀ, h the input of that layer. Up to constants the distance of the former bounds the distance of the full
gradients, in K dimensions in place of millions.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from noiseproof.errors import InputError


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


def full_gradients(
    model: nn.Module, inputs: Tensor, label: Tensor, *, dimensions: int | None = None, seed: int = 0, block: int = 32
) -> Tensor:
    """The gradient of each example's cross-entropy with respect to all parameters (n, P), in eval mode.

    To check the bound of Eq. (9) on small sets: it costs a backward pass for each example, and n × P numbers.

    Args:
        model: from inputs (B, …) to logits (B, K).
        dimensions: project on so many random directions, which keeps distances up to a factor of about
            1 ± 1/√dimensions; None for the gradients themselves.
        seed: of the directions.
        block: examples at a time.
    """
    from torch.func import functional_call, grad, vmap

    from noiseproof.models.inference import eval_mode

    names = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    fixed = {name: tensor for name, tensor in model.state_dict(keep_vars=True).items() if name not in names}
    weights = {name: dict(model.named_parameters())[name].detach() for name in names}

    def loss(current: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(functional_call(model, {**fixed, **current}, (x[None],)), y[None])

    per_example = vmap(grad(loss), in_dims=(None, 0, 0))
    size = sum(weight.numel() for weight in weights.values())
    directions = None
    if dimensions is not None:
        generator = torch.Generator().manual_seed(seed)
        directions = torch.randn(size, dimensions, generator=generator).to(inputs) / dimensions**0.5
    rows = []
    with eval_mode(nn.ModuleList([model])):
        for x, y in zip(inputs.split(block), label.split(block), strict=True):
            flat = torch.cat([g.flatten(1) for g in per_example(weights, x, y).values()], dim=1)  # (block, P)
            rows.append(flat if directions is None else flat @ directions)
    return torch.cat(rows)

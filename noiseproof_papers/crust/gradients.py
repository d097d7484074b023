"""The exact gradients that Eq. (9) of Mirzasoleiman et al. (2020) bounds by those of the last layer."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from noiseproof.models.inference import eval_mode


def full_gradients(model: nn.Module, inputs: Tensor, label: Tensor, *, block: int = 32) -> Tensor:
    """The gradient of each example's cross-entropy with respect to all parameters (n, P), in eval mode.

    For small sets: it costs a backward pass for each example, and n × P numbers.

    Args:
        model: from inputs (B, …) to logits (B, K).
        block: examples at a time.
    """
    weights = {name: weight.detach() for name, weight in model.named_parameters() if weight.requires_grad}
    fixed = {name: tensor for name, tensor in model.state_dict(keep_vars=True).items() if name not in weights}

    def loss(current: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(functional_call(model, {**fixed, **current}, (x[None],)), y[None])

    per_example = vmap(grad(loss), in_dims=(None, 0, 0))
    with eval_mode(nn.ModuleList([model])):
        rows = [
            torch.cat([gradient.flatten(1) for gradient in per_example(weights, x, y).values()], dim=1)  # (block, P)
            for x, y in zip(inputs.split(block), label.split(block), strict=True)
        ]
    return torch.cat(rows)

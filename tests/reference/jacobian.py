"""The Jacobian, slow and obvious: Eq. (3.2) of Li et al. (2020), a backward pass for each example and output."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def rows(model: nn.Module, inputs: Tensor, labels: Tensor | None = None, names: list[str] | None = None) -> Tensor:
    """J (n·K, P), or (n, P) of the labels' classes, in the order of `named_parameters`; the model is in eval mode."""
    chosen = [p for name, p in model.named_parameters() if names is None or name in names]
    found = []
    for i in range(len(inputs)):
        out = model(inputs[i : i + 1])[0]  # (K,)
        for k in range(len(out)) if labels is None else [int(labels[i])]:
            gradient = torch.autograd.grad(out[k], chosen, retain_graph=True, allow_unused=True)
            parts = [torch.zeros_like(p) if g is None else g for p, g in zip(chosen, gradient, strict=True)]
            found.append(torch.cat([part.flatten() for part in parts]))
    return torch.stack(found)


def shares(left: Tensor, values: Tensor, alpha: float, vector: Tensor) -> tuple[float, float]:
    """‖Π₊ r‖² / ‖r‖² and ‖Π₋ r‖² / ‖r‖², with S₊ spanned by the left singular vectors of values of at least alpha."""
    inside = sum(float(left[:, i] @ vector) ** 2 for i in range(len(values)) if values[i] >= alpha)
    total = float(vector @ vector)
    return inside / total, (total - inside) / total

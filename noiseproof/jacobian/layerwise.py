"""Rows of a Jacobian layer by layer, from one forward pass and one backward pass for each output.

Let a_t be the input of a layer at position t of an example and g_kt = ∂f_k/∂z_t the derivative of output k with respect
to the layer's output there. Then the row of example and output k is, on the layer's own parameters,

    Linear, Conv2d:    ∂f_k/∂W = Σ_t g_kt ⊗ a_t,    ∂f_k/∂b = Σ_t g_kt      (Conv2d: a_t is the patch under the kernel)
    BatchNorm (eval):  ∂f_k/∂γ = Σ_t g_kt ⊙ x̂_t,    ∂f_k/∂β = Σ_t g_kt      (x̂: the input, normalised)

No weight requires a gradient on the way: autograd carries g only, at the price of one forward pass for each output. The
products with rows are reordered where that is cheaper: for a dense layer (one position) rows are never formed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


@dataclass
class Direct:
    """Rows as they are."""

    rows: Tensor  # (B, K, P)

    def apply(self, v: Tensor) -> Tensor:
        """Rows times v (P, b): (B, K, b)."""
        return self.rows @ v

    def adjoint(self, u: Tensor) -> Tensor:
        """Σ over examples and outputs of rows times u (B, K, b): (P, b)."""
        return self.rows.flatten(0, 1).T @ u.flatten(0, 1)


@dataclass
class Outer:
    """Rows of a weight (O, D) as sums of outer products over T positions: Σ_t g_t ⊗ a_t."""

    a: Tensor  # (B, T, D)
    g: Tensor  # (B, K, O, T)

    def direct(self) -> Direct:
        """The rows themselves."""
        rows = self.g.flatten(1, 2) @ self.a  # (B, K·O, D)
        return Direct(rows.view(*self.g.shape[:2], -1))

    def settle(self, width: int) -> Outer | Direct:
        """The cheaper form for products with `width` columns: K(T + b) against T·b products of size O·D."""
        outputs, positions = self.g.shape[1], self.g.shape[3]
        return self if positions * width < outputs * (positions + width) else self.direct()

    def apply(self, v: Tensor) -> Tensor:
        """Rows times v (O·D, b) without the rows: (B, K, b)."""
        batch, positions, depth = self.a.shape
        channels, width = self.g.shape[2], v.shape[1]
        forward = self.a.flatten(0, 1) @ v.view(channels, depth, width).transpose(0, 1).reshape(depth, -1)
        forward = forward.view(batch, positions, channels, width).transpose(1, 2)  # (B, O, T, b)
        return self.g.flatten(2) @ forward.flatten(1, 2)

    def adjoint(self, u: Tensor) -> Tensor:
        """Σ over examples and outputs of rows times u (B, K, b), without the rows: (O·D, b)."""
        batch, _, channels, positions = self.g.shape
        mixed = u.transpose(1, 2) @ self.g.flatten(2)  # (B, b, O·T)
        mixed = mixed.view(batch, -1, channels, positions).permute(1, 2, 0, 3)  # (b, O, B, T)
        return (mixed.flatten(0, 1).flatten(1) @ self.a.flatten(0, 1)).view(u.shape[2], -1).T

    def pairs_are_cheaper(self) -> bool:
        """Is the Gram matrix cheaper from inner products over pairs of positions than from rows?"""
        outputs, channels, positions = self.g.shape[1:]
        depth = self.a.shape[2]
        return positions**2 * (channels + depth / outputs**2 + 1) < channels * depth

    def gram(self, other: Outer) -> Tensor:
        """Rows times the other's rows, Σ_ts (a_t·a'_s)(g_t·g'_s): (B, K, B', K'). For T = 1: (AAᵀ) ∘ (GGᵀ)."""
        (batch, outputs, channels, positions), (others, more, _, spots) = self.g.shape, other.g.shape
        inputs = self.a.flatten(0, 1) @ other.a.flatten(0, 1).T  # (B·T, B'·T')
        left = self.g.transpose(2, 3).reshape(-1, channels)  # (B·K·T, O)
        right = other.g.transpose(2, 3).reshape(-1, channels)
        product = (left @ right.T).view(batch, outputs, positions, others, more, spots)
        product *= inputs.view(batch, 1, positions, others, 1, spots)
        return product.sum(dim=(2, 5))


Factor = Outer | Direct


@dataclass
class Call:
    """One call of a layer: its input, its output, and what the backward passes leave for its parameters."""

    module: nn.Module
    a: Tensor  # (B, …)
    z: Tensor  # (B, …)
    kept: Tensor | None = None  # (B, K, O, T): g of a Linear or Conv2d
    sums: Tensor | None = None  # (B, K, O): Σ_t g ⊙ x̂ of a BatchNorm
    bias: Tensor | None = None  # (B, K, O): Σ_t g

    def channels_first(self, value: Tensor) -> Tensor:
        """(B, …) as (B, O, T)."""
        if isinstance(self.module, nn.Linear):
            return value.reshape(len(value), -1, value.shape[-1]).transpose(1, 2)
        return value.reshape(len(value), value.shape[1], -1)

    def add(self, k: int, outputs: int, gradient: Tensor | None) -> None:
        """Take in the derivatives of output k with respect to z; None where z does not reach it."""
        g = self.channels_first(torch.zeros_like(self.z) if gradient is None else gradient)  # (B, O, T)
        shape = (len(g), outputs, g.shape[1])
        if isinstance(self.module, _NORMS):
            norm = self.module
            if self.sums is None:
                self.sums = g.new_empty(shape)
                normal = F.batch_norm(self.a, norm.running_mean, norm.running_var, None, None, False, 0.0, norm.eps)
                self.a = self.channels_first(normal)  # x̂
            torch.sum(g * self.a, dim=2, out=self.sums[:, k])
        else:
            if self.kept is None:
                self.kept = g.new_empty(*shape, g.shape[2])
            self.kept[:, k] = g
        if self.module.bias is not None:
            if self.bias is None:
                self.bias = g.new_empty(shape)
            torch.sum(g, dim=2, out=self.bias[:, k])

    def factor(self, key: str) -> Factor:
        """The rows on the layer's parameter "weight" or "bias"."""
        if key == "bias":
            assert self.bias is not None
            return Direct(self.bias)
        if self.sums is not None:
            return Direct(self.sums)
        assert self.kept is not None
        if isinstance(self.module, nn.Linear):
            return Outer(self.a.reshape(len(self.a), -1, self.a.shape[-1]), self.kept)
        conv = self.module
        assert isinstance(conv, nn.Conv2d)
        assert not isinstance(conv.padding, str)
        patches = F.unfold(self.a, conv.kernel_size, conv.dilation, conv.padding, conv.stride)  # (B, D, T)
        return Outer(patches.transpose(1, 2), self.kept)


def has_rule(module: nn.Module) -> bool:
    """Do the formulas above hold for this layer? Subclasses may compute something else, so they do not count."""
    if type(module) is nn.Conv2d:
        return module.groups == 1 and module.padding_mode == "zeros" and not isinstance(module.padding, str)
    if type(module) in _NORMS:
        return bool(module.affine and module.track_running_stats)
    return type(module) is nn.Linear


def owners(model: nn.Module, names: Collection[str]) -> dict[str, list[tuple[nn.Module, str]]]:
    """For each parameter: the layers that hold it and the name they have for it. Tied weights have several."""
    by_id: dict[int, list[tuple[nn.Module, str]]] = {}
    for module in model.modules():
        for key, parameter in module.named_parameters(recurse=False):
            by_id.setdefault(id(parameter), []).append((module, key))
    parameters = dict(model.named_parameters())
    return {name: by_id[id(parameters[name])] for name in names}


@contextmanager
def _tapped(modules: Collection[nn.Module]) -> Iterator[list[Call]]:
    """Record every call of the modules."""
    calls: list[Call] = []

    def hook(module: nn.Module, given: tuple[Tensor, ...], z: Tensor) -> Tensor:
        z = z if z.requires_grad else z.detach().requires_grad_()
        calls.append(Call(module, given[0].detach(), z))
        return z.clone()  # what follows may work in place

    handles = [module.register_forward_hook(hook) for module in modules]
    try:
        yield calls
    finally:
        for handle in handles:
            handle.remove()


def factors(
    model: nn.Module,
    state: tuple[Mapping[str, Tensor], Mapping[str, Tensor]],
    owned: Mapping[str, list[tuple[nn.Module, str]]],
    x: Tensor,
    pick: Callable[[Tensor], Tensor],
) -> Iterator[tuple[str, Factor]]:
    """The rows of a batch on each of the `owned` parameters, one parameter at a time.

    Args:
        model: in eval mode.
        state: its parameters and buffers; none should require a gradient.
        owned: parameter name -> layers that hold it, all with a rule.
        x: inputs (B, …).
        pick: model outputs -> (B, K), those to differentiate.
    """
    modules = {id(module): module for places in owned.values() for module, _ in places}
    with torch.enable_grad():
        with _tapped(modules.values()) as calls:
            out = pick(functional_call(model, dict(state[0]) | dict(state[1]), (x,)))  # (B, K)
        reached = calls if out.requires_grad else []  # without a gradient, no layer reaches the outputs
        for k in range(out.shape[1] if reached else 0):
            keep = k + 1 < out.shape[1]
            gradients = torch.autograd.grad(
                out[:, k].sum(), [call.z for call in reached], retain_graph=keep, allow_unused=True
            )
            for call, gradient in zip(reached, gradients, strict=True):
                call.add(k, out.shape[1], gradient)
    for name, places in owned.items():
        used = [(call, key) for call in reached for module, key in places if call.module is module]
        yield name, _merge([call.factor(key) for call, key in used], out.detach(), state[0][name])


def _merge(found: list[Factor], out: Tensor, parameter: Tensor) -> Factor:
    """The sum over the calls of a layer; zero for one that was never called."""
    if len(found) == 1:
        return found[0]
    total = out.new_zeros(*out.shape, parameter.numel())
    for factor in found:
        total += (factor.direct() if isinstance(factor, Outer) else factor).rows
    return Direct(total)

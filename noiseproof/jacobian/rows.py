"""The rows of a network's Jacobian for a block of examples: layer by layer, by `torch.func`, or one by one.

Layer by layer they come from one forward pass and one backward pass for each output. Let a_t be the input of a layer at
position t of an example and g_kt = ∂f_k/∂z_t the derivative of output k with respect to the layer's output there. Then
the row of example and output k is, on the layer's own parameters,

    Linear, Conv2d:    ∂f_k/∂W = Σ_t g_kt ⊗ a_t,    ∂f_k/∂b = Σ_t g_kt      (Conv2d: a_t is the patch under the kernel)
    BatchNorm (eval):  ∂f_k/∂γ = Σ_t g_kt ⊙ x̂_t,    ∂f_k/∂β = Σ_t g_kt      (x̂: the input, normalised)

No weight requires a gradient on the way: autograd carries g only, at the price of one forward pass for each output.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import ExitStack

import torch
from torch import Tensor, nn
from torch.func import jacrev, vmap
from torch.nn import functional as F

from noiseproof.jacobian.factors import Direct, Factor, Outer
from noiseproof.jacobian.outputs import Outputs, State

_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


class Rows:
    """Makes rows. Of three ways it takes the first that is right for a parameter.

    Layer by layer where all uses of it have a rule and the rows of two examples agree with the next way: a weight may
    also be used outside its layer, or a layer be called with examples folded into another dimension. By `torch.func`,
    an example at a time under vmap. By a backward pass for each row, for layers that vmap does not know.

    Attributes:
        by_layer: the parameters that go the first way, with the layers that hold them.
        one_by_one: whether `torch.func` fails on this network.
    """

    def __init__(self, f: Outputs) -> None:
        self.f = f
        self.one_by_one = False
        self.by_layer = {name: places for name, places in _owners(f).items() if all(_has_rule(m) for m, _ in places)}
        self.by_layer = {name: self.by_layer[name] for name in self._agreeing()}

    def of(self, index: Tensor) -> Iterator[tuple[str, Factor]]:
        """The rows of the examples at `index` (B,) on each parameter."""
        with self.f.evaluating():
            yield from self._layerwise(index)
            yield from self._general(index, [name for name in self.f.theta if name not in self.by_layer]).items()

    def _agreeing(self) -> list[str]:
        """The candidates whose rows layer by layer are those of the general way, on two examples."""
        two = torch.arange(min(2, len(self.f.inputs)))
        with self.f.evaluating():
            expected = self._general(two, list(self.by_layer) or list(self.f.theta)[:1])
            try:
                found = {name: factor.rows for name, factor in self._layerwise(two)}
            except (RuntimeError, IndexError):  # calls or shapes that no rule foresees
                return []
        return [name for name, rows in found.items() if _close(rows, expected[name].rows)]

    def _layerwise(self, index: Tensor) -> Iterator[tuple[str, Factor]]:
        calls: list[_Call] = []

        def tap(module: nn.Module, given: tuple[Tensor, ...], z: Tensor) -> Tensor:
            z = z if z.requires_grad else z.detach().requires_grad_()
            calls.append(_Call(module, given[0].detach(), z, self.f.each))
            return z.clone()  # what follows may work in place

        with torch.enable_grad(), ExitStack() as hooks:
            for module in {id(module): module for places in self.by_layer.values() for module, _ in places}.values():
                hooks.enter_context(module.register_forward_hook(tap))
            out = self.f({}, index)  # (B, K)
            if not out.requires_grad:  # no layer reaches the outputs
                calls = []
            layers = [call.z for call in calls]
            for k in range(self.f.each if calls else 0):
                more = k + 1 < self.f.each
                gradients = torch.autograd.grad(out[:, k].sum(), layers, retain_graph=more, materialize_grads=True)
                for call, gradient in zip(calls, gradients, strict=True):
                    call.add(k, gradient)
        for name, places in self.by_layer.items():
            used = [call.factor(key) for call in calls for module, key in places if call.module is module]
            if len(used) == 1:
                yield name, used[0]
            else:  # called several times, or never
                zero = self.f.inputs.new_zeros(*out.shape, self.f.theta[name].numel())
                yield name, Direct(sum((factor.rows for factor in used), start=zero))

    def _general(self, index: Tensor, names: Collection[str]) -> dict[str, Factor]:
        if not names:
            return {}
        part = {name: self.f.theta[name] for name in names}
        if not self.one_by_one:
            try:
                return self._by_func(index, part)
            except RuntimeError as error:
                if "randomness" in str(error):
                    raise
                self.one_by_one = True
        return self._by_grad(index, part)

    def _by_func(self, index: Tensor, part: State) -> dict[str, Factor]:
        one = index[:, None].to(self.f.inputs.device)  # (B, 1): a batch of one at a time
        rows = vmap(jacrev(self.f), (None, 0), randomness="error")(part, one)  # (B, 1, K, …)
        return {name: Direct(value.detach()[:, 0].flatten(2)) for name, value in rows.items()}

    def _by_grad(self, index: Tensor, part: State) -> dict[str, Factor]:
        leaves = {name: value.detach().requires_grad_() for name, value in part.items()}
        rows: list[tuple[Tensor, ...]] = []
        with torch.enable_grad():
            for one in index.split(1):
                rows += [
                    torch.autograd.grad(value, list(leaves.values()), retain_graph=True, materialize_grads=True)
                    for value in self.f(leaves, one)[0]
                ]
        parts = zip(leaves, zip(*rows, strict=True), strict=True)
        shape = (len(index), self.f.each, -1)
        return {name: Direct(torch.stack(values).view(shape)) for name, values in parts}


class _Call:
    """One call of a layer: its input and output, and what the backward passes leave for its parameters.

    Attributes:
        a: the input of a Linear or Conv2d; x̂ (B, O, T) of a BatchNorm.
        z: the output, as it is.
        weight: g (B, K, O, T) of a Linear or Conv2d; Σ_t g ⊙ x̂ (B, K, O) of a BatchNorm.
        bias: Σ_t g (B, K, O).
    """

    def __init__(self, module: nn.Module, a: Tensor, z: Tensor, outputs: int) -> None:
        self.module, self.a, self.z = module, a, z
        batch, channels, positions = self._channels_first(z).shape
        self.bias = z.new_empty(batch, outputs, channels, requires_grad=False)
        if isinstance(module, _NORMS):
            self.weight = torch.empty_like(self.bias)
            self.a = self._channels_first(F.batch_norm(a, module.running_mean, module.running_var, eps=module.eps))
        else:
            self.weight = z.new_empty(batch, outputs, channels, positions, requires_grad=False)

    def _channels_first(self, value: Tensor) -> Tensor:
        """(B, …) as (B, O, T)."""
        if isinstance(self.module, nn.Linear):
            return value.reshape(len(value), -1, value.shape[-1]).transpose(1, 2)
        return value.reshape(len(value), value.shape[1], -1)

    def add(self, k: int, gradient: Tensor) -> None:
        """Take in the derivatives of output k with respect to z."""
        g = self._channels_first(gradient)  # (B, O, T)
        self.bias[:, k] = g.sum(dim=2)
        self.weight[:, k] = (g * self.a).sum(dim=2) if isinstance(self.module, _NORMS) else g

    def factor(self, key: str) -> Factor:
        """The rows on the layer's parameter "weight" or "bias"."""
        if key == "bias":
            return Direct(self.bias)
        if isinstance(self.module, nn.Linear):
            return Outer(self.a.reshape(len(self.a), -1, self.a.shape[-1]), self.weight)
        if isinstance(self.module, nn.Conv2d):
            conv = self.module
            assert not isinstance(conv.padding, str)
            patches = F.unfold(self.a, conv.kernel_size, conv.dilation, conv.padding, conv.stride)  # (B, D, T)
            return Outer(patches.transpose(1, 2), self.weight)
        return Direct(self.weight)


def _has_rule(module: nn.Module) -> bool:
    """Do the formulas above hold for this layer? Subclasses may compute something else, so they do not count."""
    if type(module) is nn.Conv2d:
        return module.groups == 1 and module.padding_mode == "zeros" and not isinstance(module.padding, str)
    if type(module) in _NORMS:
        return bool(module.affine and module.track_running_stats)
    return type(module) is nn.Linear


def _owners(f: Outputs) -> dict[str, list[tuple[nn.Module, str]]]:
    """For each parameter: the layers that hold it and the name they have for it. Tied weights have several."""
    by_id: dict[int, list[tuple[nn.Module, str]]] = {}
    for module in f.model.modules():
        for key, parameter in module.named_parameters(recurse=False):
            by_id.setdefault(id(parameter), []).append((module, key))
    return {name: by_id[id(parameter)] for name, parameter in f.model.named_parameters() if name in f.theta}


def _close(found: Tensor, expected: Tensor) -> bool:
    """Equal up to what rounding may do near a kink of the activation."""
    return found.shape == expected.shape and bool((found - expected).norm() <= 0.01 * expected.norm())

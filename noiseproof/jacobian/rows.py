"""The rows of a network's Jacobian for a block of examples: layer by layer, by `torch.func`, or one by one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor
from torch.func import functional_call, jacrev, vmap

from noiseproof.jacobian.layerwise import Direct, Factor, Outer, factors, has_rule, owners
from noiseproof.jacobian.outputs import Outputs, State


class Rows:
    """Makes rows. Of three ways it takes the first that is right for a parameter.

    Layer by layer (layerwise.py) where all uses of it have a rule and the rows of two examples agree with the next way:
    a weight may also be used outside its layer, or a layer be called with examples folded into another dimension. By
    `torch.func`, an example at a time under vmap. By a backward pass for each row, for layers that vmap does not know.

    Attributes:
        by_layer: the parameters that go the first way.
        one_by_one: whether `torch.func` fails on this network.
    """

    def __init__(self, f: Outputs) -> None:
        self.f = f
        self.one_by_one = False
        candidates = owners(f.model, f.names)
        self._owned = {n: places for n, places in candidates.items() if all(has_rule(m) for m, _ in places)}
        self._owned = {name: self._owned[name] for name in self._agreeing()}

    @property
    def by_layer(self) -> set[str]:
        return set(self._owned)

    def of(self, block: Tensor, names: Sequence[str]) -> Iterator[tuple[str, Factor]]:
        """The rows of the examples at `block` (B,) on each of the named parameters."""
        with self.f.evaluating():
            yield from self._layerwise(block, [name for name in names if name in self._owned])
            yield from self._general(block, [name for name in names if name not in self._owned]).items()

    def _agreeing(self) -> list[str]:
        """The candidates whose rows layer by layer are those of the general way, on two examples."""
        two = torch.arange(min(2, len(self.f.inputs)))
        with self.f.evaluating():
            expected = self._general(two, list(self._owned) or self.f.names[:1])
            try:
                found = {name: stored(factor) for name, factor in self._layerwise(two, list(self._owned))}
            except (RuntimeError, IndexError):  # calls or shapes that no rule foresees
                return []
        return [name for name, rows in found.items() if _close(rows, stored(expected[name]))]

    def _layerwise(self, index: Tensor, names: Sequence[str]) -> Iterator[tuple[str, Factor]]:
        f, owned = self.f, {name: self._owned[name] for name in names}
        yield from factors(f.model, (f.theta, f.fixed), owned, f.inputs[index], lambda out: f.pick(out, index))

    def _general(self, index: Tensor, names: Sequence[str]) -> dict[str, Factor]:
        if not names:
            return {}
        part = {name: self.f.theta[name] for name in names}
        rest = {name: value for name, value in self.f.theta.items() if name not in part} | self.f.fixed
        if not self.one_by_one:
            try:
                return self._by_func(index, part, rest)
            except RuntimeError as error:
                if "randomness" in str(error):
                    raise
                self.one_by_one = True
        return self._by_grad(index, part, rest)

    def _by_func(self, index: Tensor, part: State, rest: State) -> dict[str, Factor]:
        def one(theta: State, x: Tensor, at: Tensor) -> Tensor:
            return self.f.pick(functional_call(self.f.model, theta | rest, (x[None],)), at)[0]

        rows = vmap(jacrev(one), (None, 0, 0), randomness="error")(
            part, self.f.inputs[index], index[:, None].to(self.f.inputs.device)
        )
        return {name: Direct(value.detach().flatten(2)) for name, value in rows.items()}

    def _by_grad(self, index: Tensor, part: State, rest: State) -> dict[str, Factor]:
        leaves = {name: value.detach().requires_grad_() for name, value in part.items()}
        rows: list[tuple[Tensor, ...]] = []
        with torch.enable_grad():
            for one in index.split(1):
                out = self.f.pick(functional_call(self.f.model, leaves | rest, (self.f.inputs[one],)), one)[0]
                rows += [
                    torch.autograd.grad(value, list(leaves.values()), retain_graph=True, materialize_grads=True)
                    for value in out
                ]
        shape = (len(index), self.f.each, -1)
        parts = zip(leaves, zip(*rows, strict=True), strict=True)
        return {name: Direct(torch.stack([one.flatten() for one in values]).view(shape)) for name, values in parts}


def stored(factor: Factor) -> Tensor:
    """Rows (B, K, p) as they are."""
    return (factor.direct() if isinstance(factor, Outer) else factor).rows


def _close(found: Tensor, expected: Tensor) -> bool:
    """Equal up to what rounding may do near a kink of the activation."""
    return found.shape == expected.shape and bool((found - expected).norm() <= 0.01 * expected.norm())

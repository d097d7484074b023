"""The Jacobian of a network's outputs with respect to its parameters, as a linear operator that is never stored.

Mingchen Li, Mahdi Soltanolkotabi and Samet Oymak, "Gradient Descent with Early Stopping is Provably Robust to Label
Noise for Overparameterized Neural Networks", AISTATS 2020 (arXiv:1903.11680), Sections 3 and 4:

    J(θ) = [∂f(θ, x_1)/∂θ … ∂f(θ, x_n)/∂θ]ᵀ                                             Eq. (3.2)

With K outputs there are K rows for each example ("all", nK × P, Figure 5a), or only the row of its label's class
("correct", n × P, Figure 5b).

There are two ways to multiply. Forward and backward mode (`torch.func`) cost about two forward passes for each example
and column. Rows cost two for each example and output, whatever the number of columns; they come layer by layer
(layerwise.py) where the layers are known, else from `torch.func`, and are dropped block by block. So a few columns go
by the first way and K or more by the second, which also gives J V and JᵀJ V from one look at the data. Layers that
`torch.func` does not know, such as recurrent ones, leave only rows, and a backward pass for each.

Differs from the paper: nothing in the definition. The paper leaves out the five largest layers to save time:
`parameters=without_largest(model, 5)`; that is not needed here.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import torch
from torch import Tensor, nn
from torch.func import jvp, vjp, vmap

from noiseproof.errors import InputError
from noiseproof.jacobian.layerwise import Direct, Factor
from noiseproof.jacobian.outputs import Chosen, Outputs
from noiseproof.jacobian.rows import Rows, stored

Progress: TypeAlias = Callable[[int, int], None]  # (examples done, of how many in this pass)


class Jacobian:
    """∂f/∂θ of `model` at `inputs`, a linear operator (N, P) with N = nK ("all") or n ("correct").

        J = Jacobian(model, inputs, memory=2 << 30)
        J @ v, J.T @ u                     # (P,) or (P, b) -> (N,) or (N, b), and back
        J.normal(V)                        # J V and JᵀJ V in one pass
        J.gram()                           # JJᵀ (N, N)

    Row i·K + k is output k of example i; columns follow `names`. The model is used in eval mode (batch norm by its
    running statistics) and left as it was; its weights and buffers are not written.

    Args:
        model: maps inputs (B, …) to outputs (B, K), each example by itself.
        inputs: (n, …) floats, normalised as the model expects them.
        outputs: "all" or "correct".
        labels: (n,) int64, for "correct".
        parameters: a name, a prefix ("layer3"), several of them, or a function (name, parameter) -> bool. Default: all.
        batch_size: examples at a time; by default what fits into `memory`.
        memory: bytes for blocks of rows and activations, beside the vectors one passes in and gets back.
        progress: called with (examples done, examples) during each pass.

    Raises:
        InputError: a mistake in the arguments, or a model whose outputs mix examples.
    """

    def __init__(
        self,
        model: nn.Module,
        inputs: Tensor,
        *,
        outputs: str = "all",
        labels: Tensor | None = None,
        parameters: Chosen = None,
        batch_size: int | None = None,
        memory: int = 1 << 30,
        progress: Progress | None = None,
    ) -> None:
        if memory < 1 or (batch_size is not None and batch_size < 1):
            raise InputError(f"memory and batch_size must be positive, got {memory} and {batch_size}")
        self.f = Outputs(model, inputs, outputs, labels, parameters)
        self.inputs, self.model, self.labels = self.f.inputs, model, self.f.labels
        self.names, self.num_classes, self.rows_each = self.f.names, self.f.num_classes, self.f.each
        self.dtype, self.device = self.f.dtype, inputs.device
        self.sizes = {name: value.numel() for name, value in self.f.theta.items()}  # columns of each parameter
        self.shape = (len(inputs) * self.rows_each, sum(self.sizes.values()))
        self.memory, self.progress = memory, progress
        self._rows = Rows(self.f)
        self._rows_only = self._rows.one_by_one  # whether a layer forbids the other ways
        self.batch_size = batch_size or self._fit(2 * self._bytes_of_rows())  # the other half is for rows that are kept

    @property
    def T(self) -> Transposed:
        return Transposed(self)

    def __matmul__(self, v: Tensor) -> Tensor:
        return self.matvec(v)

    def matvec(self, v: Tensor) -> Tensor:
        """J v: (P,) to (N,), or (P, b) to (N, b)."""
        columns = self._columns("v", v, self.shape[1])
        result = self._forward_mode(columns)
        if result is None:
            blocks = self.factors(self.names, width=columns.shape[1])
            result = torch.cat([self._apply(found, columns) for _, found in blocks])
        return result.view(self.shape[0], *v.shape[1:])

    def rmatvec(self, u: Tensor) -> Tensor:
        """Jᵀ u: (N,) to (P,), or (N, b) to (P, b)."""
        columns = self._columns("u", u, self.shape[0]).view(len(self.inputs), self.rows_each, -1)  # (n, K, b)
        if self._prefers_rows(columns.shape[2]):
            result = columns.new_zeros(self.shape[1], columns.shape[2])
            for index, found in self.factors(self.names, width=columns.shape[2]):
                self._adjoint(found, columns[index], result)
        else:
            result = self._backward_mode(columns)
        return result.view(self.shape[1], *u.shape[1:])

    def normal(self, v: Tensor, skip: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """J V (N, b) and JᵀJ V (P, b) of v (P, b); examples where `skip` (n,) is true count as zero rows."""
        columns = self._columns("v", v, self.shape[1])
        width = columns.shape[1]
        pushed = self._forward_mode(columns)
        if pushed is not None:
            product = pushed.view(len(self.inputs), -1, width)
            if skip is not None:
                product[skip] = 0
            return product.flatten(0, 1), self._backward_mode(product)
        product = columns.new_zeros(len(self.inputs), self.rows_each, width)  # (n, K, b)
        result = torch.zeros_like(columns)
        index = torch.arange(len(self.inputs)) if skip is None else (~skip).nonzero()[:, 0]
        for block, found in self.factors(self.names, index, width):
            product[block] = self._apply(found, columns)
            self._adjoint(found, product[block], result)
        return product.flatten(0, 1), result

    def rows(self, index: Tensor | None = None) -> Tensor:
        """The rows of the examples at `index` (m,), or of all: (m·K, P), stored."""
        index = torch.arange(len(self.inputs)) if index is None else index
        result = torch.empty(len(index), self.rows_each, self.shape[1], dtype=self.dtype, device=self.device)
        start = 0
        for block, found in self.factors(self.names, index):
            parts = result[start : start + len(block)].split(list(self.sizes.values()), dim=2)
            for name, part in zip(self.names, parts, strict=True):
                part.copy_(stored(found.pop(name)))
            start += len(block)
        return result.flatten(0, 1)

    def gram(self) -> Tensor:
        """JJᵀ (N, N), layer by layer: J is never there at once, only what of it fits into `memory`."""
        from noiseproof.jacobian.gram import gram

        return gram(self)

    def values(self) -> Tensor:
        """The outputs f(θ) themselves, (N,)."""
        with torch.no_grad(), self.f.evaluating():
            blocks = torch.arange(len(self.inputs)).split(self._fit(self.f.activations))
            return torch.cat([self.f.at(block)(self.f.theta) for block in blocks]).flatten()

    def pick(self, values: Tensor) -> Tensor:
        """Of values (n, K), one for each example and class, those that belong to the rows: (N,)."""
        chosen = values if self.labels is None else values.gather(1, self.labels[:, None])
        return chosen.to(self.device, self.dtype).flatten()

    # -- rows ---------------------------------------------------------------------------------------------------------

    def factors(
        self, names: Sequence[str], index: Tensor | None = None, width: int | None = None
    ) -> Iterator[tuple[Tensor, dict[str, Factor]]]:
        """Blocks of examples (at `index`, or all) with their rows on each of the named parameters.

        The rows come as they arise, or in the form that suits products with `width` columns.
        """
        index = torch.arange(len(self.inputs)) if index is None else index
        done = 0
        for block in index.split(self.batch_size):
            found = {}
            for name, part in self._rows.of(block, names):
                found[name] = part if width is None or isinstance(part, Direct) else part.settle(width)
            yield block, found
            done += len(block)
            self._report(done, len(index))

    def _apply(self, found: dict[str, Factor], v: Tensor) -> Tensor:
        parts = zip(self.names, v.split(list(self.sizes.values())), strict=True)
        return torch.stack([found[name].apply(part) for name, part in parts]).sum(0)  # (B, K, b)

    def _adjoint(self, found: dict[str, Factor], u: Tensor, total: Tensor) -> None:
        for name, part in zip(self.names, total.split(list(self.sizes.values())), strict=True):
            part += found[name].adjoint(u)

    # -- forward and backward mode ------------------------------------------------------------------------------------

    def _split(self, columns: Tensor) -> dict[str, Tensor]:
        """(P, b) as a parameter of shape (b, …) for each name."""
        parts = zip(self.f.theta.items(), columns.split(list(self.sizes.values())), strict=True)
        return {name: part.T.reshape(-1, *value.shape) for (name, value), part in parts}

    def _forward_mode(self, v: Tensor) -> Tensor | None:
        """J V by jvp: (P, b) to (N, b); None where rows are better, or the only way."""
        if self._prefers_rows(v.shape[1]):
            return None
        try:
            return self._push(v)
        except NotImplementedError:  # a layer without derivatives in forward mode
            self._rows_only = True
            return None

    def _push(self, v: Tensor) -> Tensor:
        tangents, blocks = self._split(v), []
        size, chunk = self._fit_columns(v.shape[1])
        with torch.no_grad(), self.f.evaluating(), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "`torch.jit.script", DeprecationWarning)  # torch's own, at its first jvp
            for block in torch.arange(len(self.inputs)).split(size):
                f = self.f.at(block)
                push = vmap(lambda t, f=f: jvp(f, (self.f.theta,), (t,))[1], out_dims=2, chunk_size=chunk)
                blocks.append(push(tangents))  # (B, K, b)
                self._report(int(block[-1]) + 1, len(self.inputs))
        return torch.cat(blocks).flatten(0, 1)

    def _backward_mode(self, u: Tensor) -> Tensor:
        """JᵀU by vjp: (n, K, b) to (P, b)."""
        result = u.new_zeros(u.shape[2], self.shape[1])
        size, chunk = self._fit_columns(u.shape[2])
        with self.f.evaluating():
            for block in torch.arange(len(self.inputs)).split(size):
                pull = vjp(self.f.at(block), self.f.theta)[1]
                (found,) = vmap(pull, in_dims=2, chunk_size=chunk)(u[block])
                for name, part in zip(self.names, result.split(list(self.sizes.values()), dim=1), strict=True):
                    part += found[name].detach().flatten(1)
                self._report(int(block[-1]) + 1, len(self.inputs))
        return result.T

    # -- sizes and checks ---------------------------------------------------------------------------------------------

    def _prefers_rows(self, width: int) -> bool:
        return self._rows_only or (width >= self.rows_each and self._bytes_of_rows() <= self.memory)

    def _bytes_of_rows(self) -> int:
        """Bytes that one example takes on the way by rows: its rows, and the derivatives they are made from."""
        return self.rows_each * (self.shape[1] * self.dtype.itemsize + self.f.activations) + 4 * self.f.activations

    def _fit(self, each: int) -> int:
        return max(1, min(len(self.inputs), 512, self.memory // max(1, each)))

    def _fit_columns(self, width: int) -> tuple[int, int]:
        """Examples and columns to take at once in forward or backward mode."""
        size = self._fit(16 * self.f.activations)
        columns = self.memory // (8 * size * self.f.activations + 2 * self.shape[1] * self.dtype.itemsize)
        return size, max(1, min(width, columns))

    def _report(self, done: int, total: int) -> None:
        if self.progress is not None:
            self.progress(done, total)

    def _columns(self, name: str, value: Tensor, length: int) -> Tensor:
        if value.ndim not in (1, 2) or len(value) != length:
            raise InputError(f"{name} must be ({length},) or ({length}, b) for a Jacobian of shape {self.shape}, "
                             f"got {tuple(value.shape)}")  # fmt: skip
        return value.to(self.device, self.dtype).view(length, -1)


class Transposed:
    """Jᵀ, for `J.T @ u`."""

    def __init__(self, jacobian: Jacobian) -> None:
        self.T = jacobian
        self.shape = jacobian.shape[::-1]

    def __matmul__(self, u: Tensor) -> Tensor:
        return self.T.rmatvec(u)

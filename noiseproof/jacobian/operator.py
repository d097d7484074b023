"""The Jacobian of a network's outputs with respect to its parameters, as a linear operator that is never stored.

Mingchen Li, Mahdi Soltanolkotabi and Samet Oymak, "Gradient Descent with Early Stopping is Provably Robust to Label
Noise for Overparameterized Neural Networks", AISTATS 2020 (arXiv:1903.11680), Sections 3 and 4:

    J(θ) = [∂f(θ, x_1)/∂θ … ∂f(θ, x_n)/∂θ]ᵀ                                             Eq. (3.2)

With K outputs there are K rows for each example ("all", nK × P, Figure 5a), or only the row of its label's class
("correct", n × P, Figure 5b).

There are two ways to multiply. Forward and backward mode (`torch.func`) cost about two forward passes for each example
and column. Rows cost two for each example and output, whatever the number of columns; they come layer by layer
(rows.py) where the layers are known, else from `torch.func`, and are dropped block by block. So a few columns go
by the first way and K or more by the second, which also gives J V and JᵀJ V from one look at the data. Layers that
`torch.func` does not know, such as recurrent ones, leave only rows, and a backward pass for each.

Differs from the paper: nothing in the definition. The paper leaves out the five largest layers to save time:
`parameters=without_largest(model, 5)`; that is not needed here.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeAlias

import torch
from torch import Tensor, nn
from torch.func import jvp, vjp, vmap

from noiseproof import checks
from noiseproof.errors import InputError
from noiseproof.jacobian.factors import Factor
from noiseproof.jacobian.outputs import Chosen, Outputs
from noiseproof.jacobian.rows import Rows

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
        self.memory = checks.integer("memory", memory, 1)
        self.f = Outputs(model, inputs, outputs, labels, parameters)
        self.inputs, self.model, self.labels = self.f.inputs, model, self.f.labels
        self.names, self.num_classes, self.rows_each = list(self.f.theta), self.f.num_classes, self.f.each
        self.dtype, self.device = self.f.dtype, inputs.device
        self.sizes = [value.numel() for value in self.f.theta.values()]  # columns of each parameter
        self.shape = (len(inputs) * self.rows_each, sum(self.sizes))
        self.progress = progress or (lambda done, total: None)
        self._rows = Rows(self.f)
        self._rows_only = self._rows.one_by_one  # whether a layer forbids the other ways
        fitting = self._fit(2 * self._bytes_of_rows())  # the other half is for rows that are kept
        self.batch_size = fitting if batch_size is None else checks.integer("batch_size", batch_size, 1)

    @property
    def T(self) -> Transposed:
        return Transposed(self)

    def __matmul__(self, v: Tensor) -> Tensor:
        """J v: (P,) to (N,), or (P, b) to (N, b)."""
        columns = self._columns("v", v, self.shape[1])
        result = self._forward_mode(columns)
        if result is None:
            result = torch.cat([self._apply(found, columns) for _, found in self._for_columns(columns.shape[1])])
        return result.view(self.shape[0], *v.shape[1:])

    def rmatmul(self, u: Tensor) -> Tensor:
        """Jᵀ u, also `J.T @ u`: (N,) to (P,), or (N, b) to (P, b)."""
        columns = self._columns("u", u, self.shape[0]).view(len(self.inputs), self.rows_each, -1)  # (n, K, b)
        if self._prefers_rows(columns.shape[2]):
            result = columns.new_zeros(self.shape[1], columns.shape[2])
            for index, found in self._for_columns(columns.shape[2]):
                self._add_adjoint(found, columns[index], result)
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
        for index, found in self._for_columns(width, None if skip is None else (~skip).nonzero()[:, 0]):
            product[index] = self._apply(found, columns)
            self._add_adjoint(found, product[index], result)
        return product.flatten(0, 1), result

    def rows(self, index: Tensor | None = None) -> Tensor:
        """The rows of the examples at `index` (m,), or of all: (m·K, P), stored."""
        size = len(self.inputs) if index is None else len(index)
        result = torch.empty(size, self.rows_each, self.shape[1], dtype=self.dtype, device=self.device)
        for block, (_, factors) in zip(result.split(self.batch_size), self._blocks(index), strict=True):
            parts = self._by_name(block, dim=2)
            for name, factor in factors:
                parts[name].copy_(factor.rows)
        return result.flatten(0, 1)

    def gram(self) -> Tensor:
        """JJᵀ (N, N); of J, only what fits into `memory` is there at a time.

        The rows of the first examples are kept, as many as half of the memory holds, and multiplied with all that
        follow; then those of the next, and so on.
        """
        each, start = self.rows_each, 0
        total = torch.zeros(self.shape[0], self.shape[0], dtype=self.dtype, device=self.device)
        while start < len(self.inputs):
            kept: list[tuple[slice, list[Factor]]] = []
            for index, factors in self._blocks(torch.arange(start, len(self.inputs))):
                here = slice(int(index[0]) * each, (int(index[-1]) + 1) * each)
                found = [factor.for_gram() for _, factor in factors]
                if not kept or len(kept) < self.memory // (2 * sum(factor.nbytes for factor in kept[0][1])):
                    kept.append((here, found))
                for before, earlier in kept:
                    for one, other in zip(found, earlier, strict=True):
                        total[here, before] += one.gram(other)
            start = kept[-1][0].stop // each
        return torch.tril(total) + torch.tril(total, -1).T

    def pick(self, values: Tensor) -> Tensor:
        """Of values (n, K), one for each example and class, those that belong to the rows: (N,)."""
        chosen = values if self.labels is None else values.gather(1, self.labels[:, None])
        return chosen.to(self.device, self.dtype).flatten()

    # -- rows ---------------------------------------------------------------------------------------------------------

    def _blocks(self, index: Tensor | None = None) -> Iterator[tuple[Tensor, Iterator[tuple[str, Factor]]]]:
        """Blocks of examples (at `index`, or all) with their rows on each parameter, which arise as they are read."""
        for block in self._examples(self.batch_size, index):
            yield block, self._rows.of(block)

    def _for_columns(self, width: int, index: Tensor | None = None) -> Iterator[tuple[Tensor, dict[str, Factor]]]:
        """The same, all rows of a block in the form that suits products with `width` columns."""
        for block, factors in self._blocks(index):
            yield block, {name: factor.for_columns(width) for name, factor in factors}

    def _apply(self, found: dict[str, Factor], v: Tensor) -> Tensor:
        parts = self._by_name(v)
        return torch.stack([factor.apply(parts[name]) for name, factor in found.items()]).sum(0)  # (B, K, b)

    def _add_adjoint(self, found: dict[str, Factor], u: Tensor, total: Tensor) -> None:
        for name, part in self._by_name(total).items():
            part += found[name].adjoint(u)

    def _by_name(self, value: Tensor, dim: int = 0) -> dict[str, Tensor]:
        """The parts of P rows or columns that belong to each parameter."""
        return dict(zip(self.names, value.split(self.sizes, dim), strict=True))

    # -- forward and backward mode ------------------------------------------------------------------------------------

    def _forward_mode(self, v: Tensor) -> Tensor | None:
        """J V by jvp: (P, b) to (N, b); None where rows are better, or the only way."""
        if self._prefers_rows(v.shape[1]):
            return None
        tangents = {name: part.T.reshape(-1, *self.f.theta[name].shape) for name, part in self._by_name(v).items()}
        size, chunk = self._fit_columns(v.shape[1])
        blocks = []
        with torch.no_grad(), self.f.evaluating(), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "`torch.jit.script", DeprecationWarning)  # torch's own, at its first jvp
            for block in self._examples(size):
                push = partial(jvp, partial(self.f, index=block), (self.f.theta,))
                try:
                    blocks.append(vmap(lambda t, push=push: push((t,))[1], out_dims=2, chunk_size=chunk)(tangents))
                except NotImplementedError:  # a layer without derivatives in forward mode
                    self._rows_only = True
                    return None
        return torch.cat(blocks).flatten(0, 1)  # of (B, K, b)

    def _backward_mode(self, u: Tensor) -> Tensor:
        """JᵀU by vjp: (n, K, b) to (P, b)."""
        result = u.new_zeros(u.shape[2], self.shape[1])
        size, chunk = self._fit_columns(u.shape[2])
        with self.f.evaluating():
            for block in self._examples(size):
                pull = vjp(partial(self.f, index=block), self.f.theta)[1]
                (found,) = vmap(pull, in_dims=2, chunk_size=chunk)(u[block])
                for name, part in self._by_name(result, dim=1).items():
                    part += found[name].detach().flatten(1)
        return result.T

    # -- blocks, sizes, checks ----------------------------------------------------------------------------------------

    def _examples(self, size: int, index: Tensor | None = None) -> Iterator[Tensor]:
        """A pass over the examples (at `index`, or all), `size` at a time; progress is reported as they are done."""
        index = torch.arange(len(self.inputs)) if index is None else index
        for done, block in enumerate(index.split(size)):
            yield block
            self.progress(done * size + len(block), len(index))

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
        return self.T.rmatmul(u)

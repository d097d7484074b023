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
from contextlib import contextmanager
from typing import TypeAlias

import torch
from torch import Tensor, nn
from torch.func import functional_call, jacrev, jvp, vjp, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from noiseproof.errors import InputError, unknown
from noiseproof.evaluate import eval_mode
from noiseproof.theory.layerwise import Direct, Factor, Outer, factors, has_rule, owners

Chosen: TypeAlias = str | Sequence[str] | Callable[[str, nn.Parameter], bool] | None
Progress: TypeAlias = Callable[[int, int], None]  # (examples done, of how many in this pass)

OUTPUTS = ("all", "correct")


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
        if outputs not in OUTPUTS:
            raise unknown("outputs", outputs, OUTPUTS)
        if not isinstance(inputs, Tensor) or not inputs.is_floating_point() or inputs.ndim < 2 or not len(inputs):
            raise InputError("inputs must be a float tensor (n, …) with n > 0; normalise them as the model expects")
        if not bool(inputs.isfinite().all()):
            raise InputError("inputs must be finite; impute or drop the examples that are not")
        if memory < 1 or (batch_size is not None and batch_size < 1):
            raise InputError(f"memory and batch_size must be positive, got {memory} and {batch_size}")
        self.model, self.inputs, self.memory, self.progress = model, inputs.detach(), memory, progress
        everything = {name: parameter.detach() for name, parameter in model.named_parameters()}
        self.names = _choose(model, parameters)
        self._fixed = {name: value for name, value in everything.items() if name not in self.names}
        self._fixed |= {name: buffer.detach() for name, buffer in model.named_buffers()}
        self._theta = {name: everything[name] for name in self.names}
        dtype = next(iter(self._theta.values())).dtype
        if inputs.dtype != dtype:
            raise InputError(f"inputs are {inputs.dtype}, the model's weights {dtype}; bring one to the other's type")
        self.sizes = {name: value.numel() for name, value in self._theta.items()}  # columns of each parameter
        self._sizes = list(self.sizes.values())
        self.num_classes = self._check_model()
        self.labels = None if outputs == "all" else _check_labels(labels, len(inputs), self.num_classes, inputs.device)
        self.rows_each = self.num_classes if outputs == "all" else 1  # K, rows of an example
        self.shape = (len(inputs) * self.rows_each, sum(self.sizes.values()))
        self.dtype, self.device = dtype, inputs.device
        self._rows_only = False  # whether a layer forbids the other ways
        self._owned = self._plan()
        self._activations = self._measure()  # bytes of one example's forward pass, about
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
            parts = result[start : start + len(block)].split(self._sizes, dim=2)
            for name, part in zip(self.names, parts, strict=True):
                part.copy_(_rows(found.pop(name)))
            start += len(block)
        return result.flatten(0, 1)

    def gram(self) -> Tensor:
        """JJᵀ (N, N), layer by layer: J is never there at once, only what of it fits into `memory`."""
        from noiseproof.theory.gram import gram

        return gram(self)

    def values(self) -> Tensor:
        """The outputs f(θ) themselves, (N,)."""
        with torch.no_grad(), _evaluating(self.model):
            blocks = torch.arange(len(self.inputs)).split(self._fit(self._activations))
            return torch.cat([self._f(block)(self._theta) for block in blocks]).flatten()

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
            for name, part in self._factors(block, names):
                found[name] = part if width is None or isinstance(part, Direct) else part.settle(width)
            yield block, found
            done += len(block)
            self._report(done, len(index))

    def _factors(self, block: Tensor, names: Sequence[str]) -> Iterator[tuple[str, Factor]]:
        with _evaluating(self.model):
            yield from self._layerwise(block, [name for name in names if name in self._owned])
            yield from self._by_func(block, [name for name in names if name not in self._owned]).items()

    def _layerwise(self, index: Tensor, names: Sequence[str]) -> Iterator[tuple[str, Factor]]:
        state = (self._theta, self._fixed)
        owned = {name: self._owned[name] for name in names}
        yield from factors(self.model, state, owned, self.inputs[index], lambda out: self._picked(out, index))

    def _by_func(self, index: Tensor, names: Sequence[str]) -> dict[str, Factor]:
        """Rows of any parameters, by `torch.func`, an example at a time under vmap."""
        if not names:
            return {}
        part = {name: self._theta[name] for name in names}
        rest = {name: value for name, value in self._theta.items() if name not in part} | self._fixed
        label = torch.zeros(len(index), 1, device=self.device) if self.labels is None else self.labels[index][:, None]

        def one(theta: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
            out = functional_call(self.model, theta | rest, (x[None],))  # (1, K)
            return (out if self.labels is None else out.gather(1, y[None]))[0]

        if not self._rows_only:
            try:
                rows = vmap(jacrev(one), (None, 0, 0), randomness="error")(part, self.inputs[index], label)
                return {name: Direct(value.detach().flatten(2)) for name, value in rows.items()}
            except RuntimeError as error:
                if "randomness" in str(error):
                    raise
                self._rows_only = True  # a layer that vmap does not know: recurrent ones
        return self._by_grad(index, part, rest)

    def _by_grad(self, index: Tensor, part: dict[str, Tensor], rest: dict[str, Tensor]) -> dict[str, Factor]:
        """Rows of any parameters of any layer, a backward pass for each."""
        leaves = {name: value.detach().requires_grad_() for name, value in part.items()}
        rows: list[tuple[Tensor, ...]] = []
        with torch.enable_grad():
            for one in index.split(1):
                out = self._picked(functional_call(self.model, leaves | rest, (self.inputs[one],)), one)[0]
                rows += [
                    torch.autograd.grad(value, list(leaves.values()), retain_graph=True, materialize_grads=True)
                    for value in out
                ]
        shape = (len(index), self.rows_each, -1)
        parts = zip(leaves, zip(*rows, strict=True), strict=True)
        return {name: Direct(torch.stack([one.flatten() for one in values]).view(shape)) for name, values in parts}

    def _apply(self, found: dict[str, Factor], v: Tensor) -> Tensor:
        parts = zip(self.names, v.split(self._sizes), strict=True)
        return torch.stack([found[name].apply(part) for name, part in parts]).sum(0)  # (B, K, b)

    def _adjoint(self, found: dict[str, Factor], u: Tensor, total: Tensor) -> None:
        for name, part in zip(self.names, total.split(self._sizes), strict=True):
            part += found[name].adjoint(u)

    # -- forward and backward mode ------------------------------------------------------------------------------------

    def _f(self, index: Tensor) -> Callable[[dict[str, Tensor]], Tensor]:
        x = self.inputs[index]
        return lambda theta: self._picked(functional_call(self.model, theta | self._fixed, (x,)), index)

    def _picked(self, out: Tensor, index: Tensor) -> Tensor:
        return out if self.labels is None else out.gather(1, self.labels[index][:, None])

    def _split(self, columns: Tensor) -> dict[str, Tensor]:
        """(P, b) as a parameter of shape (b, …) for each name."""
        parts = zip(self._theta.items(), columns.split(self._sizes), strict=True)
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
        with torch.no_grad(), _evaluating(self.model), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "`torch.jit.script", DeprecationWarning)  # torch's own, at its first jvp
            for block in torch.arange(len(self.inputs)).split(size):
                f = self._f(block)
                push = vmap(lambda t, f=f: jvp(f, (self._theta,), (t,))[1], out_dims=2, chunk_size=chunk)
                blocks.append(push(tangents))  # (B, K, b)
                self._report(int(block[-1]) + 1, len(self.inputs))
        return torch.cat(blocks).flatten(0, 1)

    def _backward_mode(self, u: Tensor) -> Tensor:
        """JᵀU by vjp: (n, K, b) to (P, b)."""
        result = u.new_zeros(u.shape[2], self.shape[1])
        size, chunk = self._fit_columns(u.shape[2])
        with _evaluating(self.model):
            for block in torch.arange(len(self.inputs)).split(size):
                pull = vjp(self._f(block), self._theta)[1]
                (found,) = vmap(pull, in_dims=2, chunk_size=chunk)(u[block])
                for name, part in zip(self.names, result.split(self._sizes, dim=1), strict=True):
                    part += found[name].detach().flatten(1)
                self._report(int(block[-1]) + 1, len(self.inputs))
        return result.T

    # -- sizes and checks ---------------------------------------------------------------------------------------------

    def _prefers_rows(self, width: int) -> bool:
        return self._rows_only or (width >= self.rows_each and self._bytes_of_rows() <= self.memory)

    def _bytes_of_rows(self) -> int:
        """Bytes that one example takes on the way by rows: its rows, and the derivatives they are made from."""
        return self.rows_each * (self.shape[1] * self.dtype.itemsize + self._activations) + 4 * self._activations

    def _fit(self, each: int) -> int:
        return max(1, min(len(self.inputs), 512, self.memory // max(1, each)))

    def _fit_columns(self, width: int) -> tuple[int, int]:
        """Examples and columns to take at once in forward or backward mode."""
        size = self._fit(16 * self._activations)
        columns = self.memory // (8 * size * self._activations + 2 * self.shape[1] * self.dtype.itemsize)
        return size, max(1, min(width, columns))

    def _report(self, done: int, total: int) -> None:
        if self.progress is not None:
            self.progress(done, total)

    def _columns(self, name: str, value: Tensor, length: int) -> Tensor:
        if value.ndim not in (1, 2) or len(value) != length:
            raise InputError(f"{name} must be ({length},) or ({length}, b) for a Jacobian of shape {self.shape}, "
                             f"got {tuple(value.shape)}")  # fmt: skip
        return value.to(self.device, self.dtype).view(length, -1)

    def _check_model(self) -> int:
        """The number of outputs K; two examples together must come out as each by itself."""
        two = torch.arange(min(2, len(self.inputs)))
        with torch.no_grad(), _evaluating(self.model):
            state = self._theta | self._fixed
            together = functional_call(self.model, state, (self.inputs[two],))
            alone = [functional_call(self.model, state, (self.inputs[i : i + 1],)) for i in two.tolist()]
        if together.ndim != 2 or len(together) != len(two):
            raise InputError(
                f"the model must map inputs (B, …) to (B, K), got {tuple(together.shape)} for B={len(two)}"
            )
        if not torch.allclose(together, torch.cat(alone), rtol=1e-3, atol=1e-3 * float(together.abs().max())):
            raise InputError(
                "the model's outputs depend on the other examples of a batch; give one without such layers"
            )
        return together.shape[1]

    def _plan(self) -> dict[str, list[tuple[nn.Module, str]]]:
        """The parameters whose rows may come layer by layer: those for which that agrees with `torch.func`.

        A weight may also be used outside its layer, or a layer be called with examples folded into another dimension;
        rows of two examples show it.
        """
        candidates = owners(self.model, self.names)
        self._owned = {n: places for n, places in candidates.items() if all(has_rule(m) for m, _ in places)}
        two = torch.arange(min(2, len(self.inputs)))
        with _evaluating(self.model):
            expected = self._by_func(two, list(self._owned) or self.names[:1])
            try:
                found = {name: _rows(factor) for name, factor in self._layerwise(two, list(self._owned))}
            except (RuntimeError, IndexError):  # calls or shapes that no rule foresees: torch.func will do
                return {}
        agrees = {name: _close(rows, _rows(expected[name])) for name, rows in found.items()}
        return {name: places for name, places in self._owned.items() if agrees[name]}

    def _measure(self) -> int:
        """Bytes of what the layers put out for one example, at least those of its input."""
        sizes = [self.inputs[0].numel()]
        leaves = [module for module in self.model.modules() if not any(module.children())]

        def note(module: nn.Module, given: object, out: object) -> None:
            sizes.append(out.numel() if isinstance(out, Tensor) else 0)

        hooks = [module.register_forward_hook(note) for module in leaves]
        try:
            with torch.no_grad(), _evaluating(self.model):
                functional_call(self.model, self._theta | self._fixed, (self.inputs[:1],))
        finally:
            for hook in hooks:
                hook.remove()
        return sum(sizes) * self.dtype.itemsize


class Transposed:
    """Jᵀ, for `J.T @ u`."""

    def __init__(self, jacobian: Jacobian) -> None:
        self.T = jacobian
        self.shape = jacobian.shape[::-1]

    def __matmul__(self, u: Tensor) -> Tensor:
        return self.T.rmatvec(u)


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    """In eval mode, with attention by plain operations: the fused kernels lack derivatives and batching rules."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with eval_mode(model), sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


def without_largest(model: nn.Module, count: int) -> list[str]:
    """The parameters but for the `count` largest: Section 4 leaves out "the five largest" layers of ResNet-20."""
    sizes = {name: parameter.numel() for name, parameter in model.named_parameters()}
    largest = set(sorted(sizes, key=lambda name: -sizes[name])[:count])
    return [name for name in sizes if name not in largest]


def _choose(model: nn.Module, chosen: Chosen) -> list[str]:
    """The names of the chosen parameters, in the model's order."""
    everything = dict(model.named_parameters())
    if chosen is None:
        names = list(everything)
    elif callable(chosen):
        names = [name for name, parameter in everything.items() if chosen(name, parameter)]
    else:
        wanted = [chosen] if isinstance(chosen, str) else list(chosen)
        for one in wanted:
            if not any(_belongs(name, one) for name in everything):
                raise unknown("parameter or prefix", one, everything)
        names = [name for name in everything if any(_belongs(name, one) for one in wanted)]
    if not names:
        raise InputError("no parameter was chosen; pass parameters=None for all of them")
    if len({everything[name].dtype for name in names}) > 1:
        raise InputError("the chosen parameters have several dtypes; bring the model to one, e.g. model.float()")
    return names


def _belongs(name: str, chosen: str) -> bool:
    return name == chosen or name.startswith(chosen.removesuffix(".") + ".")


def _check_labels(labels: Tensor | None, n: int, num_classes: int, device: torch.device) -> Tensor:
    if labels is None:
        raise InputError('outputs="correct" needs the labels; pass labels=(n,) class numbers')
    labels = torch.as_tensor(labels)
    if labels.shape != (n,) or labels.is_floating_point():
        raise InputError(f"labels must be ({n},) whole numbers, one for each input, got {tuple(labels.shape)}")
    if int(labels.min()) < 0 or int(labels.max()) >= num_classes:
        raise InputError(f"labels must lie in 0..{num_classes - 1}, the model's outputs; relabel or widen the model")
    return labels.to(device, torch.int64)


def _rows(factor: Factor) -> Tensor:
    return (factor.direct() if isinstance(factor, Outer) else factor).rows


def _close(found: Tensor, expected: Tensor) -> bool:
    """Equal up to what rounding may do near a kink of the activation."""
    return found.shape == expected.shape and bool((found - expected).norm() <= 0.01 * expected.norm())

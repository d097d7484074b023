"""The outputs of a network at some inputs, as a function of its parameters or a part of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeAlias

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.modules.module import register_module_forward_hook

from noiseproof import checks
from noiseproof.errors import InputError, unknown
from noiseproof.models.inference import eval_mode

Chosen: TypeAlias = str | Sequence[str] | Callable[[str, nn.Parameter], bool] | None
State: TypeAlias = dict[str, Tensor]  # parameters and buffers by name

KINDS = ("all", "correct")


class Outputs:
    """f(θ, x_i) of inputs x_1 … x_n: all K of each ("all"), or that of its label's class ("correct").

    Arguments as of `Jacobian`, which see. The model is called in eval mode and left as it was.

    Attributes:
        theta: the chosen parameters by name; `state` holds all there are, and the buffers.
        num_classes: how many outputs the model has; `each`: how many of an input count, K or 1.
        activations: bytes of what the layers put out for one example, at least those of its input.
    """

    def __init__(
        self, model: nn.Module, inputs: Tensor, kind: str = "all", labels: Tensor | None = None, chosen: Chosen = None
    ) -> None:
        checks.choice("outputs", kind, KINDS)
        if not isinstance(inputs, Tensor) or not inputs.is_floating_point() or inputs.ndim < 2 or not len(inputs):
            raise InputError("inputs must be a float tensor (n, …) with n > 0; normalise them as the model expects")
        if not bool(inputs.isfinite().all()):
            raise InputError("inputs must be finite; impute or drop the examples that are not")
        self.model, self.inputs = model, inputs.detach()
        self.state: State = {name: value.detach() for name, value in model.named_parameters()}
        self.theta: State = {name: self.state[name] for name in _choose(model, chosen)}
        self.state |= {name: buffer.detach() for name, buffer in model.named_buffers()}
        self.dtype = next(iter(self.theta.values())).dtype
        if inputs.dtype != self.dtype:
            raise InputError(
                f"inputs are {inputs.dtype}, the model's weights {self.dtype}; bring one to the other's type"
            )
        self.labels: Tensor | None = None  # the next line needs all outputs
        self.num_classes, self.activations = self._try()
        if kind == "correct":
            self.labels = _check_labels(labels, len(inputs), self.num_classes).to(inputs.device)
        self.each = self.num_classes if kind == "all" else 1

    def __call__(self, part: State, index: Tensor) -> Tensor:
        """The outputs (B, K) or (B, 1) of the inputs at `index` (B,), with `part` for the parameters of these names."""
        out = functional_call(self.model, self.state | part, (self.inputs[index],))
        return out if self.labels is None else out.gather(1, self.labels[index][:, None])

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """In eval mode, with attention by plain operations: the fused kernels lack derivatives and batching rules."""
        before = torch.backends.mha.get_fastpath_enabled()
        torch.backends.mha.set_fastpath_enabled(False)
        try:
            with eval_mode(self.model), sdpa_kernel(SDPBackend.MATH):
                yield
        finally:
            torch.backends.mha.set_fastpath_enabled(before)

    def _try(self) -> tuple[int, int]:
        """K and `activations`, from two examples; together they must come out as each by itself."""
        two = torch.arange(min(2, len(self.inputs)))
        sizes = [self.inputs[two].numel()]

        def note(module: nn.Module, given: object, out: object) -> None:
            if isinstance(out, Tensor) and not any(module.children()):
                sizes.append(out.numel())

        with torch.no_grad(), self.evaluating():
            with register_module_forward_hook(note):
                together = self({}, two)
            alone = [self({}, one) for one in two.split(1)]
        if together.ndim != 2 or len(together) != len(two):
            raise InputError(
                f"the model must map inputs (B, …) to (B, K), got {tuple(together.shape)} for B={len(two)}"
            )
        if not torch.allclose(together, torch.cat(alone), rtol=1e-3, atol=1e-3 * float(together.abs().max())):
            raise InputError(
                "the model's outputs depend on the other examples of a batch; give one without such layers"
            )
        return together.shape[1], sum(sizes) // len(two) * self.dtype.itemsize


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


def _check_labels(labels: Tensor | None, n: int, num_classes: int) -> Tensor:
    if labels is None:
        raise InputError('outputs="correct" needs the labels; pass labels=(n,) class numbers')
    labels = torch.as_tensor(labels)
    if labels.shape != (n,) or labels.is_floating_point():
        raise InputError(f"labels must be ({n},) whole numbers, one for each input, got {tuple(labels.shape)}")
    if int(labels.min()) < 0 or int(labels.max()) >= num_classes:
        raise InputError(f"labels must lie in 0..{num_classes - 1}, the model's outputs; relabel or widen the model")
    return labels.long()

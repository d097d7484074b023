"""What the operations share: the checks at the door, the draws, and the ways to touch only some rows of a batch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from noiseproof.errors import InputError

if TYPE_CHECKING:
    from noiseproof.data.augment.colour import Normalize

KERNELS = find_spec("numba") is not None  # tests turn it off to have tensor operations on the CPU too

Augmentation = Callable[[Tensor, torch.Generator], Tensor]  # (B, C, H, W) images -> (B, C, H', W') images


class Operation(ABC):
    """A random operation on a batch of images: draws one set of parameters per example, and applies them all at once.

    The generator lives on the CPU and gives small vectors, which move to the images' device: a seed means the same
    parameters on every device. The number of draws depends on the shape of the batch alone. The input is never
    changed; an operation that has nothing to do returns it.
    """

    @abstractmethod
    def __call__(self, x: Tensor, generator: torch.Generator) -> Tensor:
        """Augment images (B, C, H, W)."""

    def __repr__(self) -> str:
        options = (f"{key}={value!r}" for key, value in vars(self).items() if not key.startswith("_"))
        return f"{type(self).__name__}({', '.join(options)})"


class Pass(Operation):
    """An operation that `Compose` may hand the `Normalize` after it, to be done while it writes the images."""

    @abstractmethod
    def run(
        self, x: Tensor, generator: torch.Generator, normalize: Normalize | None = None, fresh: bool = False
    ) -> Tensor:
        """Augment images (B, C, H, W) and then normalise them; x may be overwritten if it is fresh."""

    def __call__(self, x: Tensor, generator: torch.Generator) -> Tensor:
        return self.run(x, generator)


def use_kernels(x: Tensor) -> bool:
    """Whether images take the compiled loops of kernels.py; else, tensor operations, which work on any device."""
    return KERNELS and x.device.type == "cpu" and x.dtype in (torch.uint8, torch.float32) and not x.requires_grad


def check_images(x: Tensor) -> None:
    """Raise unless x is a batch of images."""
    if x.ndim != 4:
        raise InputError(
            f"x must be a batch of images (B, C, H, W), got shape {tuple(x.shape)}; "
            "add the missing dimension with x.unsqueeze, or use no augmentation on tables"
        )
    if x.dtype != torch.uint8 and not x.is_floating_point():
        raise InputError(
            f"x must be uint8 (0..255) or floating point (0..1), got {x.dtype}; convert with x.to(torch.uint8)"
        )


def check_probability(name: str, value: float) -> float:
    """The value, if it is a probability."""
    if not 0 <= value <= 1:
        raise InputError(f"{name} must lie in [0, 1], got {value}; pass a probability")
    return float(value)


def check_positive(name: str, value: int) -> int:
    """The value, if it is a positive whole number."""
    if int(value) != value or value < 1:
        raise InputError(f"{name} must be a positive whole number of pixels, got {value}; pass at least 1")
    return int(value)


def check_range(name: str, value: Sequence[float], low: float, high: float = float("inf")) -> tuple[float, float]:
    """The value as a pair, if low <= value[0] <= value[1] <= high."""
    if len(value) != 2 or not low <= value[0] <= value[1] <= high:
        raise InputError(
            f"{name} must be a pair (a, b) with {low} <= a <= b <= {high}, got {value}; reorder or clip it"
        )
    return float(value[0]), float(value[1])


def as_pair(name: str, size: int | tuple[int, int]) -> tuple[int, int]:
    """(height, width) of a size given as one number or two."""
    height, width = (size, size) if isinstance(size, int) else size
    return check_positive(name, height), check_positive(name, width)


def to_float(x: Tensor) -> Tensor:
    """uint8 images 0..255 as float32 in [0, 1]; floating-point images as they are."""
    return x.to(torch.float32).mul_(1 / 255) if x.dtype == torch.uint8 else x


def like_input(y: Tensor, x: Tensor) -> Tensor:
    """Interpolated values back in the dtype of the images x they came from: rounded, for uint8."""
    return y.round_().clamp_(0, 255).to(torch.uint8) if x.dtype == torch.uint8 else y


def uniform(generator: torch.Generator, shape: int | tuple[int, ...], low: float = 0.0, high: float = 1.0) -> Tensor:
    """Uniform draws in [low, high), float32 on the CPU."""
    return torch.empty(shape).uniform_(low, high, generator=generator)


def whole(generator: torch.Generator, count: int, bound: int) -> Tensor:
    """Uniform whole numbers 0..bound-1, on the CPU."""
    return torch.randint(bound, (count,), generator=generator)


def column(parameter: Tensor, x: Tensor) -> Tensor:
    """A parameter per example, (B,), on x's device and shaped to broadcast over its images: (B, 1, 1, 1)."""
    return parameter.to(x.device, x.dtype if x.is_floating_point() else None).view(-1, 1, 1, 1)


BRIGHTNESS, CONTRAST, SATURATION, HUE, GRAYSCALE, BLUR = range(6)  # the kinds of steps that kernels.py knows


class Step(NamedTuple):
    """A change of float images that has a parameter for each."""

    kind: int
    do: Callable[..., Tensor]  # (x, parameter, out=x) -> the result, as tensor operations; may overwrite x
    parameter: Tensor  # (B,), on the CPU
    taps: int = 0  # of a blur


class Change(NamedTuple):
    """What to do to some rows of a batch of float images."""

    chosen: Tensor  # (B,) boolean, on the CPU
    steps: Sequence[Step]


def change_rows(x: Tensor, changes: Sequence[Change]) -> Tensor:
    """x after each change to its rows, in turn; the rows that a change does not choose come back to the bit.

    Work is spent on the chosen rows alone. A few are changed where they are; many are brought to the front, so that
    they lie side by side, and all are put back in order at the end: a copy of whole rows in a new order costs less
    than writing scattered rows.
    """
    at = torch.arange(len(x))  # where in y row i of x is
    y, moved = x, False
    for chosen, steps in changes:
        rows = chosen.nonzero().squeeze(1)
        if len(rows) == 0:
            continue
        if y is not x and 4 * len(rows) <= len(x):
            there = at[rows].to(x.device)
            y.index_copy_(0, there, _take_steps(y.index_select(0, there), steps, rows))
            continue
        order = torch.cat([rows, (~chosen).nonzero().squeeze(1)])
        y = y.index_select(0, at[order].to(x.device))
        at, moved = invert_order(order), True
        front = y[: len(rows)]
        changed = _take_steps(front, steps, rows)
        if changed is not front:
            front.copy_(changed)
    return y.index_select(0, at.to(x.device)) if moved else y


def _take_steps(x: Tensor, steps: Sequence[Step], rows: Tensor) -> Tensor:
    for step in steps:
        x = step.do(x, step.parameter[rows], out=x)
    return x


def invert_order(order: Tensor) -> Tensor:
    """The permutation that undoes one."""
    return torch.empty_like(order).scatter_(0, order, torch.arange(len(order)))


class RowOperation(Operation):
    """An operation on float images that leaves some rows alone. `Compose` does neighbouring ones in one go."""

    @abstractmethod
    def plan(self, x: Tensor, generator: torch.Generator) -> Change:
        """Check x, of which only the shape counts, and draw the parameters."""

    def __call__(self, x: Tensor, generator: torch.Generator) -> Tensor:
        return RowOperations([self])(x, generator)


class RowOperations(Pass):
    """Neighbouring row operations in one go: the same draws and the same result, with fewer passes over memory."""

    def __init__(self, operations: list[RowOperation]) -> None:
        self.operations = operations

    def run(
        self, x: Tensor, generator: torch.Generator, normalize: Normalize | None = None, fresh: bool = False
    ) -> Tensor:
        changes = [operation.plan(x, generator) for operation in self.operations]
        y = to_float(x)
        fresh = fresh or y is not x
        if not use_kernels(y):
            y = change_rows(y, changes)
            return y if normalize is None else normalize(y, out=y if fresh or y is not x else None)
        steps = [(s.kind, s.taps, s.parameter, change.chosen) for change in changes for s in change.steps]
        if normalize is None and not any(bool(change.chosen.any()) for change in changes):
            return y
        from noiseproof.data.augment import kernels

        y = y.contiguous() if fresh or not y.is_contiguous() else y.clone()
        kernels.change(y, steps, None if normalize is None else normalize.affine(y.shape, y.dtype))
        return y

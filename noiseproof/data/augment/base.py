"""What the operations share: the checks at the door, the draws, and a change of some rows of a batch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from noiseproof import checks
from noiseproof.errors import InputError

Augmentation = Callable[[Tensor, torch.Generator], Tensor]  # (B, C, H, W) images -> (B, C, H', W') images


class Operation(ABC):
    """A random operation on a batch of images: draws one set of parameters per example, and applies them all at once.

    The generator lives on the CPU and gives small vectors, which move to the images' device: a seed means the same
    parameters on every device. The number of draws depends on the shape of the batch alone. The input is never
    changed; an operation that has nothing to do may return it.
    """

    @abstractmethod
    def __call__(self, x: Tensor, generator: torch.Generator) -> Tensor:
        """Augment images (B, C, H, W)."""

    def __repr__(self) -> str:
        options = (f"{key}={value!r}" for key, value in vars(self).items() if not key.startswith("_"))
        return f"{type(self).__name__}({', '.join(options)})"


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


def check_grey_or_colour(x: Tensor) -> None:
    """Raise unless x is a batch of images of one or three channels."""
    check_images(x)
    if x.shape[1] not in (1, 3):
        raise InputError(
            f"x must have 1 (grey) or 3 (red, green, blue) channels for a colour operation, got {x.shape[1]}; "
            "use geometric operations alone on other images"
        )


def probability(name: str, value: float) -> float:
    """`value`, if it is one."""
    return checks.number(name, value, 0, 1, remedy="pass a probability")


def pixels(name: str, value: int, low: int = 1) -> int:
    """`value`, if it is a number of pixels, of at least `low`."""
    return checks.integer(name, value, low, remedy=f"pass a whole number of pixels, {low} or more")


def height_and_width(name: str, size: int | tuple[int, int]) -> tuple[int, int]:
    """Both, of a size given as one number or two."""
    height, width = size if isinstance(size, Sequence) and len(size) == 2 else (size, size)
    return pixels(name, height), pixels(name, width)


def size_of(x: Tensor) -> tuple[int, int]:
    """Height and width of images (B, C, H, W)."""
    return x.shape[2], x.shape[3]


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
    return parameter.to(x.device, x.dtype if x.is_floating_point() else None, non_blocking=True).view(-1, 1, 1, 1)


def change_rows(x: Tensor, chosen: Tensor, change: Callable[..., Tensor], *parameters: Tensor) -> Tensor:
    """x with `change(rows, *their parameters)` in place of the chosen rows; the others come back to the bit.

    Args:
        x: images (B, C, H, W).
        chosen: (B,) boolean.
        change: (images (m, C, H, W), parameters (m,) …) -> images (m, C, H, W).
        parameters: (B,) each, where `chosen` is.
    """
    rows = chosen.nonzero().squeeze(1)
    if len(rows) == 0:
        return x
    there = rows.to(x.device, non_blocking=True)
    return x.index_copy(0, there, change(x.index_select(0, there), *(parameter[rows] for parameter in parameters)))

"""Operations put together: chains, RandAugment, and the named policies of the papers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from noiseproof import checks
from noiseproof.data.augment import colour
from noiseproof.data.augment.base import (
    Augmentation,
    Operation,
    check_grey_or_colour,
    height_and_width,
    probability,
    size_of,
    to_float,
    uniform,
    whole,
)
from noiseproof.data.augment.geometry import Cutout, RandomCrop, RandomFlip, affine, affine_matrix
from noiseproof.data.augment.resize import RandomResizedCrop
from noiseproof.data.input_checks import items
from noiseproof.errors import InputError

KEEP_COLOURS = (RandomCrop, RandomFlip, RandomResizedCrop, Cutout)


class Compose(Operation):
    """One operation after the other."""

    def __init__(self, operations: Sequence[Augmentation]) -> None:
        self.operations = items("operations", operations)
        checks.require(all(map(callable, self.operations)), "operations", operations, "functions of images")

    def __call__(self, x: Tensor, generator: torch.Generator) -> Tensor:
        for operation in self.operations:
            x = operation(x, generator)
        return x

    def __repr__(self) -> str:
        return f"Compose([{', '.join(map(repr, self.operations))}])"


class Range(NamedTuple):
    """Parameters at strength 0 and at strength 1; the sign is drawn if signed."""

    weakest: float
    strongest: float
    signed: bool = False


AFFINE = ("rotate", "shear_x", "shear_y", "translate_x", "translate_y")
_PLAIN: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "identity": lambda x, _: x,
    "autocontrast": lambda x, _: colour.autocontrast(x),
    "equalize": lambda x, _: colour.equalize(x),
    "invert": lambda x, _: colour.invert(x),
    "solarize": lambda x, level: colour.solarize(x, level / 255),
    "posterize": lambda x, bits: colour.posterize(x, bits.ceil()),
    "color": colour.adjust_saturation,
    "contrast": colour.adjust_contrast,
    "brightness": colour.adjust_brightness,
    "sharpness": colour.adjust_sharpness,
}
OPERATIONS = (*_PLAIN, *AFFINE)  # the affine ones side by side: one warp does them all
STRONG = OPERATIONS[1:]  # the 14 of CLSA and of the SANE paper

_NOTHING = Range(0, 0)
_SHARED = {
    **dict.fromkeys(("identity", "autocontrast", "equalize", "invert"), _NOTHING),
    "rotate": Range(0, 30, True),  # degrees
    "shear_x": Range(0, 0.3, True),
    "shear_y": Range(0, 0.3, True),
}
_ENHANCE = ("color", "contrast", "brightness", "sharpness")
SPACES: dict[str, dict[str, Range]] = {
    # AutoAugment's and UDA's; translation is a part of the image (10 of CIFAR's 32 pixels).
    "uda": {
        **_SHARED,
        "translate_x": Range(0, 10 / 32, True),
        "translate_y": Range(0, 10 / 32, True),
        "solarize": Range(256, 0),
        "posterize": Range(4, 0),
        **dict.fromkeys(_ENHANCE, Range(0.1, 1.9)),
    },
    # CLSA's Table 1, which the SANE paper follows.
    "clsa": {
        **_SHARED,
        "translate_x": Range(0, 0.3, True),
        "translate_y": Range(0, 0.3, True),
        "solarize": Range(256, 0),
        "posterize": Range(8, 3),  # bits, rounded up: 8 to 4
        **dict.fromkeys(_ENHANCE, Range(0.95, 0.05)),
    },
}


class RandAugment(Operation):
    """Each image draws `num_ops` operations of its own, each done with probability p at a random or fixed strength.

    The defaults are those of UDA (Xie et al., 2020), the second view of SOP+: two of the operations, each with
    probability ½, at a magnitude between 1 and 9 of 10. With num_ops=5 and space="clsa" it is the strong augmentation
    of the SANE paper (Section 5), after CLSA. In each layer the batch is sorted by operation, so that each operation
    runs once, on its images, and the affine ones run as one warp.

    Differs from the authors' code: magnitudes are drawn from the continuous range, warps are bilinear, values are not
    rounded to 256 levels between operations, and UDA's list has cutout as a fifteenth operation (`policy("strong")`
    ends in a cutout anyway, as UDA does).

    Args:
        num_ops: operations per image.
        magnitude: strength in 0..10, or a range to draw from.
        p: probability that a drawn operation is done.
        operations: names to draw from, out of `OPERATIONS`.
        space: what the magnitudes mean: "uda" or "clsa".
    """

    def __init__(
        self,
        num_ops: int = 2,
        magnitude: float | tuple[float, float] = (1.0, 9.0),
        p: float = 0.5,
        operations: Sequence[str] = STRONG,
        space: Literal["uda", "clsa"] = "uda",
    ) -> None:
        pair = (magnitude, magnitude) if isinstance(magnitude, int | float) else magnitude
        self.num_ops = checks.integer("num_ops", num_ops, 0, remedy="pass 0 for none")
        self.magnitude = checks.interval("magnitude", pair, 0, 10)
        self.p = probability("p", p)
        operations = tuple(checks.choice("operation", name, OPERATIONS) for name in items("operations", operations))
        if not operations:
            raise InputError("operations must name at least one operation, got none; leave it out for all of them")
        checks.choice("space", space, SPACES)
        self.operations = operations
        self.space = space
        self._code = torch.tensor([OPERATIONS.index(name) for name in operations])
        ranges = [SPACES[space][name] for name in OPERATIONS]
        self._weakest = torch.tensor([r.weakest for r in ranges])
        self._strongest = torch.tensor([r.strongest for r in ranges])
        self._signed = torch.tensor([r.signed for r in ranges])

    def __call__(self, x: Tensor, generator: torch.Generator) -> Tensor:
        check_grey_or_colour(x)
        x = to_float(x)
        for _ in range(self.num_ops):
            code = self._code[whole(generator, len(x), len(self._code))]
            strength = uniform(generator, len(x), *self.magnitude) / 10
            minus = uniform(generator, len(x)) < 0.5
            done = uniform(generator, len(x)) < self.p
            code = code.masked_fill(~done, 0)  # identity
            value = torch.lerp(self._weakest[code], self._strongest[code], strength)
            x = apply_each(x, code, torch.where(minus & self._signed[code], -value, value))
        return x


def apply_each(x: Tensor, code: Tensor, value: Tensor) -> Tensor:
    """Do to each float image the operation OPERATIONS[code] (B,) with its parameter value (B,), both on the CPU.

    Parameters are degrees (rotate), parts of the image (translate), slopes (shear), levels 0..256 (solarize), bits
    rounded up (posterize), factors (color, contrast, brightness, sharpness), and unused by the others.
    """
    if len(x) == 0:
        return x
    code, order = code.sort(stable=True)
    value = value[order]
    x = x.index_select(0, order.to(x.device, non_blocking=True))
    ends = torch.searchsorted(code, torch.arange(len(_PLAIN)), right=True).tolist()
    done, start = [], 0
    for change, end in zip(_PLAIN.values(), ends, strict=True):
        if end > start:
            done.append(change(x[start:end], value[start:end]))
        start = end
    if start < len(x):
        done.append(_warp(x[start:], code[start:], value[start:]))
    return torch.cat(done).index_select(0, order.argsort().to(x.device, non_blocking=True))


def _warp(x: Tensor, code: Tensor, value: Tensor) -> Tensor:
    height, width = size_of(x)
    of = {name: value * (code == OPERATIONS.index(name)) for name in AFFINE}
    matrix = affine_matrix(
        size=(height, width),
        degrees=of["rotate"],
        shear_x=of["shear_x"],
        shear_y=of["shear_y"],
        dx=of["translate_x"] * width,
        dy=of["translate_y"] * height,
    )
    return affine(x, matrix)


def _none(size: tuple[int, int]) -> list[Augmentation]:
    return []


def _weak(size: tuple[int, int]) -> list[Augmentation]:
    return [RandomCrop(padding=max(1, min(size) // 8)), RandomFlip()]


def _crop(size: tuple[int, int]) -> list[Augmentation]:
    return [RandomCrop(padding=0, size=(max(1, round(size[0] * 7 / 8)), max(1, round(size[1] * 7 / 8)))), RandomFlip()]


def _strong(size: tuple[int, int]) -> list[Augmentation]:
    return [*_weak(size), RandAugment(), Cutout(max(1, min(size) // 2), fill=0.5)]


def _simclr(size: tuple[int, int]) -> list[Augmentation]:
    return [
        RandomResizedCrop(size, as_float=True),
        RandomFlip(),
        colour.ColorJitter(0.4, 0.4, 0.4, 0.1, p=0.8),
        colour.RandomGrayscale(0.2),
        colour.GaussianBlur((0.1, 2.0), p=0.5),
    ]


def _moco_cifar10(size: tuple[int, int]) -> list[Augmentation]:
    _, *colours, _ = _simclr(size)  # all but its crop and its blur
    return [RandomResizedCrop(size, scale=(0.08, 1.0), as_float=True), *colours]


def _sane_strong(size: tuple[int, int]) -> list[Augmentation]:
    return [
        RandomResizedCrop(size, as_float=True),
        RandomFlip(),
        RandAugment(num_ops=5, magnitude=(0, 10), p=0.5, space="clsa"),
    ]


POLICIES: dict[str, Callable[[tuple[int, int]], list[Augmentation]]] = {
    "none": _none,
    "weak": _weak,
    "strong": _strong,
    "crop": _crop,
    "simclr": _simclr,
    "moco-cifar10": _moco_cifar10,
    "sane-strong": _sane_strong,
}


def policy(name: str, image_size: int | tuple[int, int]) -> Compose:
    """The augmentation of that name, for images of that size. `Normalize` is not in it: it comes last, in the loop.

    - none: the images as they are.
    - weak: crop after padding by an eighth of the side (4 of 32 pixels), and flip.
    - strong: weak, then RandAugment and a grey cutout of half the side, as UDA has them: SOP+'s second view.
    - crop: a window of seven eighths of the side (224 of 256 pixels), and flip.
    - simclr: resized crop, flip, colour jitter 0.4/0.4/0.4/0.1 (p 0.8), grayscale (0.2), blur (0.5).
    - moco-cifar10: simclr with crops from 0.08 of the area on and without blur, as in MoCo's notebook for CIFAR-10.
    - sane-strong: resized crop, flip, five of CLSA's 14 strong operations, each with probability ½.

    none, weak and crop keep uint8; the others give float in [0, 1]. Resized crops are of image_size, so that several
    sizes make the SANE paper's multi-crop. One-channel images work; operations on colour leave them as they are.
    """
    checks.choice("augmentation", name, POLICIES)
    return Compose(POLICIES[name](height_and_width("image_size", image_size)))

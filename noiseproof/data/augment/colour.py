"""What pixels show: colour, contrast, histograms, blur. All give float images in [0, 1], clamped.

Each operation is a pure function of float images in [0, 1] with explicit parameters, one per example, and, where it is
used alone, a small class that draws them and that also takes uint8. On one-channel images saturation, hue and grayscale
have nothing to change: they return the images as they are.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from noiseproof import checks
from noiseproof.data.augment.base import (
    Operation,
    change_rows,
    check_grey_or_colour,
    check_images,
    column,
    probability,
    to_float,
    uniform,
)
from noiseproof.data.augment.filters import blur_taps, filter_separably
from noiseproof.errors import InputError

LUMA = (0.299, 0.587, 0.114)  # ITU-R 601, as PIL's convert("L")


def luma(x: Tensor) -> Tensor:
    """The brightness (B, 1, H, W) of images: 0.299 R + 0.587 G + 0.114 B."""
    if x.shape[1] == 1:
        return x
    red, green, blue = x.split(1, dim=1)
    return (red * LUMA[0]).add_(green, alpha=LUMA[1]).add_(blue, alpha=LUMA[2])


def adjust_brightness(x: Tensor, factor: Tensor) -> Tensor:
    """factor · x, clamped; factor (B,)."""
    return (x * column(factor, x)).clamp_(0, 1)


def adjust_contrast(x: Tensor, factor: Tensor) -> Tensor:
    """factor · x + (1 − factor) · m, clamped, with m the mean brightness of each image; factor (B,)."""
    mean = x.mean(dim=(2, 3))  # (B, C)
    if x.shape[1] == 3:
        mean = mean @ mean.new_tensor(LUMA)
    factor = column(factor, x)
    return (x * factor).add_(mean.view(-1, 1, 1, 1) * (1 - factor)).clamp_(0, 1)


def adjust_saturation(x: Tensor, factor: Tensor) -> Tensor:
    """factor · x + (1 − factor) · luma(x), clamped; factor (B,)."""
    if x.shape[1] == 1:
        return x
    return torch.lerp(luma(x), x, column(factor, x)).clamp_(0, 1)


def adjust_hue(x: Tensor, shift: Tensor) -> Tensor:
    """Turn the HSV hue by `shift` (B,) of a full circle; saturation and value stay.

    HSV without its case distinctions. Let M, m be a pixel's largest and smallest channel and c = M − m. Measure hue h
    in sixths of the circle from red. A channel whose primary lies at hue p (red 0, green 2, blue 4) holds, at circular
    distance d from p, the value m + c · clamp(2 − d, 0, 1). Conversely the distance of h from red is
    (c + G + B − R − m) / c, and h lies on green's side where G > B. For u = h + 6·shift − p in [−6, 6] the circular
    distance is 3 − ||u| − 3|, hence a channel becomes m − c + c · clamp(||u| − 3|, 1, 2).
    """
    if x.shape[1] == 1:
        return x
    red, green, blue = x.split(1, dim=1)
    low = torch.minimum(torch.minimum(red, green), blue)
    chroma = torch.maximum(torch.maximum(red, green), blue).sub_(low).clamp_(min=1e-12)  # grey has no hue: any will do
    hue = (green + blue).sub_(red).sub_(low).add_(chroma).div_(chroma).copysign_(green - blue)
    turn = column(shift, x) - torch.arange(3, device=x.device, dtype=x.dtype).div_(3).view(1, 3, 1, 1)
    turn = (turn - turn.round()) * 6  # (B, 3, 1, 1) in [-3, 3]
    u = (hue + turn).abs_().sub_(3).abs_().clamp_(1, 2)  # (B, 3, H, W)
    return torch.addcmul(low.sub_(chroma), u, chroma)


def grayscale(x: Tensor) -> Tensor:
    """The brightness in all three channels."""
    return luma(x).expand_as(x)


def invert(x: Tensor) -> Tensor:
    """1 − x."""
    return 1 - x


def solarize(x: Tensor, threshold: Tensor) -> Tensor:
    """Invert the values at or above threshold (B,), in [0, 1]."""
    return torch.where(x < column(threshold, x), x, 1 - x)


def posterize(x: Tensor, bits: Tensor) -> Tensor:
    """Keep the first `bits` (B,), 0..8, of each value's eight."""
    step = column(torch.exp2(8 - bits.to(torch.float32)), x)
    return (x * 255).round_().div_(step).floor_().mul_(step / 255)


def autocontrast(x: Tensor) -> Tensor:
    """Stretch each channel of each image to [0, 1]; a constant channel stays."""
    low, high = x.amin(dim=(2, 3), keepdim=True), x.amax(dim=(2, 3), keepdim=True)
    flat = high <= low
    low, width = low.masked_fill(flat, 0), (high - low).masked_fill(flat, 1)
    return (x - low).div_(width)


def equalize(x: Tensor) -> Tensor:
    """Equalise the histogram of the 256 levels in each channel of each image, as `PIL.ImageOps.equalize`."""
    batch, channels, height, width = x.shape
    level = (x * 255).round_().long().reshape(batch * channels, height * width)
    cell = level + 256 * torch.arange(batch * channels, device=x.device)[:, None]
    count = torch.zeros(256 * batch * channels, dtype=torch.int64, device=x.device)
    count = count.index_add_(0, cell.view(-1), torch.ones_like(cell.view(-1))).view(-1, 256)  # bincount would wait
    last = count.gather(1, level.amax(dim=1, keepdim=True))  # pixels on the highest level in use
    step = (height * width - last) // 255  # (B·C, 1)
    below = count.cumsum(dim=1) - count
    table = ((step // 2 + below) // step.clamp(min=1)).clamp_(max=255)
    table = torch.where(step == 0, torch.arange(256, device=x.device), table).to(x.dtype).mul_(1 / 255)
    return table.view(-1).index_select(0, cell.view(-1)).view(x.shape)


def adjust_sharpness(x: Tensor, factor: Tensor) -> Tensor:
    """Blend by factor (B,) with a 3×3 smoothing (5 amid 1s, edges kept), as `PIL.ImageEnhance.Sharpness`."""
    if min(x.shape[2:]) < 3:
        return x
    kernel = x.new_ones(1, 1, 3, 3)
    kernel[0, 0, 1, 1] = 5
    smooth = x.clone()
    inner = F.conv2d(x.reshape(-1, 1, *x.shape[2:]), kernel / 13)
    smooth[:, :, 1:-1, 1:-1] = inner.view(*x.shape[:2], *inner.shape[2:])
    return torch.lerp(smooth, x, column(factor, x)).clamp_(0, 1)


def gaussian_blur(x: Tensor, sigma: Tensor, kernel_size: int) -> Tensor:
    """Blur by a Gaussian of standard deviation sigma (B,), cut to kernel_size (odd) taps, edges reflected."""
    down, across = (blur_taps(sigma, kernel_size, side) for side in x.shape[2:])
    return filter_separably(x, down, across)


class ToFloat(Operation):
    """uint8 images as float32 in [0, 1]. Put it before an interpolation to spare it a rounding."""

    def __call__(self, x: Tensor, generator: torch.Generator) -> Tensor:
        check_images(x)
        return to_float(x)


class ColorJitter(Operation):
    """Brightness, contrast, saturation and hue by random amounts, on each image with probability p.

    torchvision's: factors uniform in [max(0, 1 − b), 1 + b], hue shift uniform in [−h, h] of the circle, each of the
    four clamped to [0, 1] before the next.

    Differs from torchvision: the random order of the four is one per batch, not one per image.
    """

    def __init__(
        self, brightness: float = 0.0, contrast: float = 0.0, saturation: float = 0.0, hue: float = 0.0, p: float = 1.0
    ) -> None:
        self.brightness = checks.number("brightness", brightness, 0, remedy="pass 0 for none")
        self.contrast = checks.number("contrast", contrast, 0, remedy="pass 0 for none")
        self.saturation = checks.number("saturation", saturation, 0, remedy="pass 0 for none")
        self.hue = checks.number("hue", hue, 0, 0.5, remedy="divide degrees by 360")
        self.p = probability("p", p)

    def __call__(self, x: Tensor, generator: torch.Generator) -> Tensor:
        check_grey_or_colour(x)
        changes: list[tuple[Callable[[Tensor, Tensor], Tensor], Tensor]] = [
            (adjust, uniform(generator, len(x), max(0.0, 1 - amount), 1 + amount))
            for adjust, amount in (
                (adjust_brightness, self.brightness),
                (adjust_contrast, self.contrast),
                (adjust_saturation, self.saturation),
            )
            if amount > 0
        ]
        if self.hue > 0:
            changes.append((adjust_hue, uniform(generator, len(x), -self.hue, self.hue)))
        chosen = uniform(generator, len(x)) < self.p
        order = torch.randperm(len(changes), generator=generator).tolist()

        def jitter(rows: Tensor, *drawn: Tensor) -> Tensor:
            for k in order:
                rows = changes[k][0](rows, drawn[k])
            return rows

        return change_rows(to_float(x), chosen, jitter, *(drawn for _, drawn in changes))


class RandomGrayscale(Operation):
    """Take the colour out of each image with probability p."""

    def __init__(self, p: float = 0.1) -> None:
        self.p = probability("p", p)

    def __call__(self, x: Tensor, generator: torch.Generator) -> Tensor:
        check_grey_or_colour(x)
        return change_rows(to_float(x), uniform(generator, len(x)) < self.p, grayscale)


class GaussianBlur(Operation):
    """Blur each image with probability p, by a Gaussian whose sigma is uniform in a range.

    Args:
        sigma: the range, in pixels.
        p: probability for each image.
        kernel_size: odd number of taps; None takes a tenth of the image's shorter side, as SimCLR, at least 3.
    """

    def __init__(self, sigma: tuple[float, float] = (0.1, 2.0), p: float = 0.5, kernel_size: int | None = None) -> None:
        self.sigma = checks.interval("sigma", sigma, 1e-3)
        self.p = probability("p", p)
        if kernel_size is not None and checks.integer("kernel_size", kernel_size, 1) % 2 != 1:
            raise InputError(f"kernel_size must be odd, got {kernel_size}; pass {kernel_size | 1}")
        self.kernel_size = kernel_size

    def __call__(self, x: Tensor, generator: torch.Generator) -> Tensor:
        check_images(x)
        short = min(x.shape[2:])
        kernel_size = max(3, short // 10 | 1) if self.kernel_size is None else self.kernel_size
        if kernel_size // 2 >= short:
            raise InputError(
                f"kernel_size must be less than twice the image's {x.shape[2]}×{x.shape[3]} pixels, got {kernel_size}; "
                "lower it"
            )
        sigma = uniform(generator, len(x), *self.sigma)
        chosen = uniform(generator, len(x)) < self.p
        return change_rows(to_float(x), chosen, lambda rows, s: gaussian_blur(rows, s, kernel_size), sigma)

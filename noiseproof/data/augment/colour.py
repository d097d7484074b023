"""What pixels show: colour, contrast, histograms, blur, normalisation. All give float images in [0, 1], clamped.

Each operation is a pure function of float images in [0, 1] with explicit parameters, one per example, and, where it is
used alone, a small class that draws them and that also takes uint8. On one-channel images saturation, hue and grayscale
have nothing to change: they return the images as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from noiseproof.data.augment.base import (
    BLUR,
    BRIGHTNESS,
    CONTRAST,
    GRAYSCALE,
    HUE,
    SATURATION,
    Change,
    Operation,
    RowOperation,
    Step,
    check_images,
    check_probability,
    check_range,
    column,
    to_float,
    uniform,
    use_kernels,
)
from noiseproof.data.augment.filters import Taps, filter_separably, reflect
from noiseproof.errors import InputError

LUMA = (0.299, 0.587, 0.114)  # ITU-R 601, as PIL's convert("L")


def _check_colour(x: Tensor) -> None:
    check_images(x)
    if x.shape[1] not in (1, 3):
        raise InputError(
            f"x must have 1 (grey) or 3 (red, green, blue) channels for a colour operation, got {x.shape[1]}; "
            "use geometric operations alone on other images"
        )


def _kernel(x: Tensor, kind: int, parameter: Tensor, out: Tensor | None, taps: int = 0) -> Tensor | None:
    """The images after one step by kernels.py, written to `out` if given; None if they cannot go there."""
    if not use_kernels(x) or x.dtype != torch.float32 or x.shape[1] not in (1, 3):
        return None
    if out is None:
        out = x.clone(memory_format=torch.contiguous_format)
    elif not out.is_contiguous():
        return None
    elif out is not x:
        out.copy_(x)
    from noiseproof.data.augment import kernels

    kernels.change(out, [(kind, taps, parameter, None)])
    return out


def luma(x: Tensor) -> Tensor:
    """The brightness (B, 1, H, W) of images: 0.299 R + 0.587 G + 0.114 B."""
    if x.shape[1] == 1:
        return x
    red, green, blue = x.split(1, dim=1)
    return (red * LUMA[0]).add_(green, alpha=LUMA[1]).add_(blue, alpha=LUMA[2])


def adjust_brightness(x: Tensor, factor: Tensor, *, out: Tensor | None = None) -> Tensor:
    """factor · x, clamped; factor (B,). `out`, here and below, is where to write: x itself to change it in place."""
    if (done := _kernel(x, BRIGHTNESS, factor, out)) is not None:
        return done
    return torch.mul(x, column(factor, x), out=out).clamp_(0, 1)


def adjust_contrast(x: Tensor, factor: Tensor, *, out: Tensor | None = None) -> Tensor:
    """factor · x + (1 − factor) · m, clamped, with m the mean brightness of each image; factor (B,)."""
    if (done := _kernel(x, CONTRAST, factor, out)) is not None:
        return done
    mean = x.mean(dim=(2, 3))  # (B, C)
    if x.shape[1] == 3:
        mean = mean @ mean.new_tensor(LUMA)
    factor = column(factor, x)
    return torch.mul(x, factor, out=out).add_(mean.view(-1, 1, 1, 1) * (1 - factor)).clamp_(0, 1)


def adjust_saturation(x: Tensor, factor: Tensor, *, out: Tensor | None = None) -> Tensor:
    """factor · x + (1 − factor) · luma(x), clamped; factor (B,)."""
    if x.shape[1] == 1:
        return x
    if (done := _kernel(x, SATURATION, factor, out)) is not None:
        return done
    return torch.lerp(luma(x), x, column(factor, x), out=out).clamp_(0, 1)


def adjust_hue(x: Tensor, shift: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Turn the HSV hue by `shift` (B,) of a full circle; saturation and value stay.

    HSV without its case distinctions. Let M, m be a pixel's largest and smallest channel and c = M − m. Measure hue h
    in sixths of the circle from red. A channel whose primary lies at hue p (red 0, green 2, blue 4) holds, at circular
    distance d from p, the value m + c · clamp(2 − d, 0, 1). Conversely the distance of h from red is
    (c + G + B − R − m) / c, and h lies on green's side where G > B. For u = h + 6·shift − p in [−6, 6] the circular
    distance is 3 − ||u| − 3|, hence a channel becomes m − c + c · clamp(||u| − 3|, 1, 2).
    """
    if x.shape[1] == 1:
        return x
    if (done := _kernel(x, HUE, shift, out)) is not None:
        return done
    red, green, blue = x.split(1, dim=1)
    low = torch.minimum(torch.minimum(red, green), blue)
    chroma = torch.maximum(torch.maximum(red, green), blue).sub_(low).clamp_(min=1e-12)  # grey has no hue: any will do
    hue = (green + blue).sub_(red).sub_(low).add_(chroma).div_(chroma).copysign_(green - blue)
    turn = column(shift, x) - torch.tensor([0, 1 / 3, 2 / 3], device=x.device, dtype=x.dtype).view(1, 3, 1, 1)
    turn = (turn - turn.round()) * 6  # (B, 3, 1, 1) in [-3, 3]
    u = torch.add(hue, turn, out=out).abs_().sub_(3).abs_().clamp_(1, 2)  # (B, 3, H, W)
    return torch.addcmul(low.sub_(chroma), u, chroma, out=u)


def grayscale(x: Tensor) -> Tensor:
    """The brightness in all three channels."""
    if x.shape[1] == 1:
        return x
    if (done := _kernel(x, GRAYSCALE, torch.zeros(len(x)), None)) is not None:
        return done
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
    count = torch.bincount(cell.view(-1), minlength=256 * batch * channels).view(-1, 256)
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


def gaussian_blur(x: Tensor, sigma: Tensor, kernel_size: int, *, out: Tensor | None = None) -> Tensor:
    """Blur by a Gaussian of standard deviation sigma (B,), cut to kernel_size (odd) taps, edges reflected."""
    if (done := _kernel(x, BLUR, sigma, out, kernel_size)) is not None:
        return done
    tap = torch.arange(kernel_size) - kernel_size // 2
    weight = torch.exp(-0.5 * (tap / sigma.float().cpu()[:, None]) ** 2)
    weight = weight / weight.sum(dim=1, keepdim=True)  # (B, k)
    if kernel_size == 3:
        return _blur_three(x, column(weight[:, 1], x), column(weight[:, 0], x), out)
    down, across = (Taps(reflect(torch.arange(n) + tap[:, None], n)[None], weight[:, :, None]) for n in x.shape[2:])
    return filter_separably(x, down, across, out=out)


def _blur_three(x: Tensor, middle: Tensor, side: Tensor, out: Tensor | None) -> Tensor:
    """middle · x + side · (the sum of both neighbours), down and then across: sums of the images and shifted images."""
    x = x.contiguous()
    both = torch.empty_like(x)
    torch.add(x[:, :, 2:], x[:, :, :-2], out=both[:, :, 1:-1])
    torch.mul(x[:, :, 1], 2, out=both[:, :, 0])
    torch.mul(x[:, :, -2], 2, out=both[:, :, -1])
    x = torch.mul(x, middle, out=out).add_(both.mul_(side))
    # Shifted by one in memory, where the ends of neighbouring rows meet, which the two columns then repair.
    torch.add(x.view(-1)[2:], x.view(-1)[:-2], out=both.view(-1)[1:-1])
    torch.mul(x[..., 1], 2, out=both[..., 0])
    torch.mul(x[..., -2], 2, out=both[..., -1])
    return x.mul_(middle).add_(both.mul_(side))


class ToFloat(Operation):
    """uint8 images as float32 in [0, 1]. Put it before an interpolation to spare it a rounding."""

    def __call__(self, x: Tensor, generator: torch.Generator) -> Tensor:
        check_images(x)
        return to_float(x)


class ColorJitter(RowOperation):
    """Brightness, contrast, saturation and hue by random amounts, on each image with probability p.

    torchvision's: factors uniform in [max(0, 1 − b), 1 + b], hue shift uniform in [−h, h] of the circle, each of the
    four clamped to [0, 1] before the next.

    Differs from torchvision: the random order of the four is one per batch, not one per image.
    """

    def __init__(
        self,
        brightness: float = 0.0,
        contrast: float = 0.0,
        saturation: float = 0.0,
        hue: float = 0.0,
        p: float = 1.0,
    ) -> None:
        for name, value in (("brightness", brightness), ("contrast", contrast), ("saturation", saturation)):
            if not 0 <= value < float("inf"):
                raise InputError(f"{name} must be at least 0, got {value}; pass 0 for none")
        if not 0 <= hue <= 0.5:
            raise InputError(f"hue must lie in [0, 0.5], got {hue}; divide degrees by 360")
        self.brightness, self.contrast, self.saturation, self.hue = brightness, contrast, saturation, hue
        self.p = check_probability("p", p)

    def plan(self, x: Tensor, generator: torch.Generator) -> Change:
        _check_colour(x)
        steps: list[Step] = []
        for kind, adjust, amount in (
            (BRIGHTNESS, adjust_brightness, self.brightness),
            (CONTRAST, adjust_contrast, self.contrast),
            (SATURATION, adjust_saturation, self.saturation),
        ):
            if amount > 0:
                steps.append(Step(kind, adjust, uniform(generator, len(x), max(0.0, 1 - amount), 1 + amount)))
        if self.hue > 0:
            steps.append(Step(HUE, adjust_hue, uniform(generator, len(x), -self.hue, self.hue)))
        chosen = uniform(generator, len(x)) < (self.p if steps else 0)
        order = torch.randperm(len(steps), generator=generator).tolist()
        return Change(chosen, [steps[k] for k in order])


class RandomGrayscale(RowOperation):
    """Take the colour out of each image with probability p."""

    def __init__(self, p: float = 0.1) -> None:
        self.p = check_probability("p", p)

    def plan(self, x: Tensor, generator: torch.Generator) -> Change:
        _check_colour(x)
        step = Step(GRAYSCALE, lambda y, _, out: grayscale(y), torch.zeros(len(x)))
        return Change(uniform(generator, len(x)) < self.p, [step])


class GaussianBlur(RowOperation):
    """Blur each image with probability p, by a Gaussian whose sigma is uniform in a range.

    Args:
        sigma: the range, in pixels.
        p: probability for each image.
        kernel_size: odd number of taps; None takes a tenth of the image's shorter side, as SimCLR, at least 3.
    """

    def __init__(self, sigma: tuple[float, float] = (0.1, 2.0), p: float = 0.5, kernel_size: int | None = None) -> None:
        self.sigma = check_range("sigma", sigma, 1e-3)
        self.p = check_probability("p", p)
        if kernel_size is not None and (kernel_size < 1 or kernel_size % 2 != 1):
            raise InputError(f"kernel_size must be odd and positive, got {kernel_size}; pass {abs(kernel_size) | 1}")
        self.kernel_size = kernel_size

    def plan(self, x: Tensor, generator: torch.Generator) -> Change:
        check_images(x)
        short = min(x.shape[2:])
        taps = max(3, short // 10 | 1) if self.kernel_size is None else self.kernel_size
        if taps // 2 >= short:
            raise InputError(
                f"kernel_size must be less than twice the image's {x.shape[2]}×{x.shape[3]} pixels, got {taps}; "
                "lower it"
            )
        sigma = uniform(generator, len(x), *self.sigma)
        chosen = uniform(generator, len(x)) < self.p
        return Change(chosen, [Step(BLUR, lambda y, s, out: gaussian_blur(y, s, taps, out=out), sigma, taps)])


_BLOCK = 2**20  # input values held as floats at once


class Normalize(nn.Module):
    """(x − mean) / std for each channel or feature, with uint8 images scaled to [0, 1] first: one multiply-add.

    Args:
        mean, std: (C,) for images (B, C, H, W), in units of [0, 1]; (d,) for tables (B, d).
    """

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Tensor | Sequence[float], std: Tensor | Sequence[float]) -> None:
        super().__init__()
        mean, std = torch.as_tensor(mean, dtype=torch.float32), torch.as_tensor(std, dtype=torch.float32)
        if mean.ndim != 1 or mean.shape != std.shape:
            raise InputError(
                f"mean and std must be vectors of one length, got shapes {tuple(mean.shape)} and {tuple(std.shape)}; "
                "pass one number per channel or feature"
            )
        if not bool((std > 0).all()):
            raise InputError(f"std must be positive, got {float(std.min())}; pass 1 for a constant channel")
        self.register_buffer("mean", mean)
        self.register_buffer("std", std)

    def forward(self, x: Tensor, generator: torch.Generator | None = None, *, out: Tensor | None = None) -> Tensor:
        """Normalise images (B, C, H, W) or a table (B, d).

        The generator is there for `Compose` and unused; pass out=x to overwrite floats that nobody needs any more.
        """
        # Spread over an image: a broadcast along the batch alone keeps the multiply-add in vector registers.
        scale, shift = (v.view(-1, *[1] * (x.ndim - 2)).expand(x.shape[1:]) for v in self.affine(x.shape, x.dtype))
        if not x.is_floating_point():
            x = x.to(torch.float32)
            out = x
        return torch.addcmul(shift.to(x.dtype).contiguous(), x, scale.to(x.dtype).contiguous(), out=out)

    def affine(self, shape: Sequence[int], dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Scale and shift (C,) or (d,) of the multiply-add that normalises inputs of that shape and dtype."""
        if len(shape) < 2 or shape[1] != len(self.mean):
            raise InputError(
                f"x must be (B, {len(self.mean)}, ...) for a mean of length {len(self.mean)}, got {tuple(shape)}; "
                "compute mean and std on the same data with Normalize.of"
            )
        scale = self.std.reciprocal()
        shift = -self.mean * scale
        return scale / 255 if dtype == torch.uint8 and len(shape) == 4 else scale, shift

    def extra_repr(self) -> str:
        return f"mean={self.mean.tolist()}, std={self.std.tolist()}" if len(self.mean) <= 4 else f"d={len(self.mean)}"

    @classmethod
    def of(cls, take: Callable[[Tensor], Tensor], n: int, image: bool, limit: int = 50_000) -> Normalize:
        """The normalisation of a data set, read in small blocks; a constant feature gets std 1.

        Args:
            take: positions (m,) -> inputs (m, C, H, W) or (m, d).
            n: number of examples.
            image: whether the inputs are images.
            limit: the most examples to read, evenly spaced: more would move the mean by less than it matters.
        """
        if n < 1:
            raise InputError(f"n must be at least 1, got {n}; pass a data set that holds examples")
        count, mean, spread = 0, torch.zeros(()), torch.zeros(())
        rows = torch.arange(n) if n <= limit else torch.linspace(0, n - 1, limit, dtype=torch.float64).long()
        block = max(_BLOCK // take(rows[:1]).numel(), 1)
        for index in rows.split(block):
            x = take(index)
            if image:
                check_images(x)
            part = x.to(torch.float64)
            part = part.div_(255) if image and x.dtype == torch.uint8 else part
            dims = [d for d in range(x.ndim) if d != 1]
            size = part.numel() // part.shape[1]
            part_mean = part.mean(dim=dims).cpu()
            part_spread = part.var(dim=dims, correction=0).cpu() * size
            # Chan, Golub & LeVeque (1979): sums of squares about the mean add up without cancellation.
            gap = part_mean - mean
            mean = mean + gap * (size / (count + size))
            spread = spread + part_spread + gap**2 * (count * size / (count + size))
            count += size
        std = (spread / count).sqrt()
        return cls(mean, std.masked_fill(std <= 1e-7 * mean.abs().clamp(min=1e-30), 1.0))

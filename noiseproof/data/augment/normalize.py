"""The last step before a network: mean zero and variance one, with the figures of the training set."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from noiseproof import checks, distributed
from noiseproof.data.augment.base import check_images
from noiseproof.data.sources import InputSource
from noiseproof.errors import InputError, reason

SAMPLE = 4096  # images whose mean and spread stand for those of all: a hundredth of the spread between images is lost
_BLOCK = 2**20  # input values held as floats at once
_DECODED = 32  # images of a sample held at once


class Normalize(nn.Module):
    """(x − mean) / std for each channel or feature, with uint8 images scaled to [0, 1] first: one multiply-add.

    Args:
        mean, std: (C,) for images (B, C, H, W), in units of [0, 1]; (d,) for tables (B, d).
    """

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Tensor | Sequence[float], std: Tensor | Sequence[float]) -> None:
        super().__init__()
        try:
            mean, std = (torch.as_tensor(one, dtype=torch.float32) for one in (mean, std))
        except (TypeError, ValueError, RuntimeError, OverflowError) as error:
            raise InputError(f"mean and std must be numbers ({reason(error)}); pass one per channel") from error
        if mean.ndim != 1 or mean.shape != std.shape:
            raise InputError(
                f"mean and std must be vectors of one length, got shapes {tuple(mean.shape)} and {tuple(std.shape)}; "
                "pass one number per channel or feature"
            )
        if not bool((std > 0).all()):
            raise InputError(f"std must be positive, got {float(std.min())}; pass 1 for a constant channel")
        self.register_buffer("mean", mean)
        self.register_buffer("std", std)

    def forward(self, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Normalise images (B, C, H, W) or a table (B, d); the generator is there for `Compose`, and unused."""
        if x.ndim < 2 or x.shape[1] != len(self.mean):
            raise InputError(
                f"x must be (B, {len(self.mean)}, ...) for a mean of length {len(self.mean)}, got {tuple(x.shape)}; "
                "compute mean and std on the same data with Normalize.of"
            )
        scale = self.std.reciprocal()
        shift = -self.mean * scale
        if x.dtype == torch.uint8 and x.ndim == 4:
            scale = scale / 255
        out = None
        if not x.is_floating_point():
            x = out = x.to(torch.float32)
        # Spread over an image: a broadcast along the batch alone keeps the multiply-add in vector registers.
        scale, shift = (v.to(x).view(-1, *[1] * (x.ndim - 2)).expand(x.shape[1:]).contiguous() for v in (scale, shift))
        return torch.addcmul(shift, x, scale, out=out)

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
        checks.integer("n", n, 1, remedy="pass a data set that holds examples")
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
        return cls(mean, _not_zero((spread / count).sqrt(), mean))

    @classmethod
    def of_sample(cls, images: InputSource) -> Normalize:
        """The normalisation of images (n, C, H, W) that are decoded when they are taken, by some of them.

        One is drawn in each of `SAMPLE` stretches of equal length, so that every shard is asked. Under torchrun each
        process decodes a part of them, and all have the same figures, those of one process.
        """
        ends = torch.linspace(0, len(images), SAMPLE + 1, dtype=torch.float64)
        place = torch.rand(SAMPLE, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        rows = (ends[:-1] + place * ends.diff()).long()
        sizes, found = distributed.sizes_of(SAMPLE), []
        for x in images.stream(rows[distributed.own_part(sizes)].split(_DECODED)):
            check_images(x)
            part = x.to(torch.float64).div_(255 if x.dtype == torch.uint8 else 1)
            found.append(torch.stack([part.mean((2, 3)), part.var((2, 3), correction=0)], 1))
        means, variances = distributed.gather(torch.cat(found), sizes).unbind(1)  # (SAMPLE, C) each
        mean, std = means.mean(0), (variances.mean(0) + means.var(0, correction=0)).sqrt()
        return cls(mean, _not_zero(std, mean))


def _not_zero(std: Tensor, mean: Tensor) -> Tensor:
    """A spread to divide by: 1 of what is constant."""
    return std.masked_fill(std <= 1e-7 * mean.abs().clamp(min=1e-30), 1.0)

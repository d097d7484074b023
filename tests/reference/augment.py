"""Slow, obvious twins of noiseproof.data.augment: one image at a time, by PIL where PIL defines the operation."""

from __future__ import annotations

import colorsys
import math
import random

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image, ImageEnhance, ImageOps
from torch import Tensor


def to_pil(x: Tensor) -> Image.Image:
    """A PIL image of one uint8 image (C, H, W)."""
    array = x.numpy()
    return Image.fromarray(array[0] if len(array) == 1 else array.transpose(1, 2, 0).copy())


def from_pil(image: Image.Image) -> Tensor:
    """A float image (C, H, W) in [0, 1]."""
    array = np.asarray(image, dtype=np.float32)
    array = array[None] if array.ndim == 2 else array.transpose(2, 0, 1)
    return torch.from_numpy(array / 255)


def by_pil(x: Tensor, name: str, parameter: float) -> Tensor:
    """One operation of RandAugment, by name, on one uint8 image."""
    image = to_pil(x)
    enhance = {
        "color": ImageEnhance.Color,
        "contrast": ImageEnhance.Contrast,
        "brightness": ImageEnhance.Brightness,
        "sharpness": ImageEnhance.Sharpness,
    }
    if name in enhance:
        return from_pil(enhance[name](image).enhance(parameter))
    if name == "solarize":
        return from_pil(ImageOps.solarize(image, parameter))
    if name == "posterize":
        return from_pil(ImageOps.posterize(image, int(parameter)))
    plain = {"autocontrast": ImageOps.autocontrast, "equalize": ImageOps.equalize, "invert": ImageOps.invert}
    return from_pil(plain[name](image))


def hue(x: Tensor, shift: float) -> Tensor:
    """Turn the hue of one float image, pixel by pixel."""
    out = x.clone()
    for i in range(x.shape[1]):
        for j in range(x.shape[2]):
            h, s, v = colorsys.rgb_to_hsv(*x[:, i, j].tolist())
            out[:, i, j] = torch.tensor(colorsys.hsv_to_rgb((h + shift) % 1.0, s, v))
    return out


def luma(x: Tensor) -> Tensor:
    """(H, W) brightness of one float image."""
    return 0.299 * x[0] + 0.587 * x[1] + 0.114 * x[2] if len(x) == 3 else x[0]


def blend(other: Tensor, x: Tensor, factor: float) -> Tensor:
    """factor · x + (1 − factor) · other, clamped: what brightness, contrast and saturation are."""
    return (factor * x + (1 - factor) * other).clamp(0, 1)


def crop(x: Tensor, top: int, left: int, size: tuple[int, int], padding: int, mode: str) -> Tensor:
    """Pad and cut one image."""
    mode = {"zeros": "constant", "reflect": "reflect"}[mode]
    padded = F.pad(x[None].double(), (padding,) * 4, mode=mode)[0].to(x.dtype)
    return padded[:, top : top + size[0], left : left + size[1]]


def resized_crop(x: Tensor, top: int, left: int, height: int, width: int, size: tuple[int, int]) -> Tensor:
    """Cut and resize one image by torch's own bilinear filter."""
    box = x[None, :, top : top + height, left : left + width]
    return F.interpolate(box, size=size, mode="bilinear", antialias=True)[0]


def affine(x: Tensor, matrix: list[list[float]]) -> Tensor:
    """Output pixel p shows the input at matrix (p, 1), bilinear, black outside; one float image."""
    out = torch.zeros_like(x)
    _, height, width = x.shape
    for i in range(height):
        for j in range(width):
            u, v = ((row[0] * (j + 0.5) + row[1] * (i + 0.5) + row[2]) - 0.5 for row in matrix)
            for m in (math.floor(v), math.floor(v) + 1):
                for n in (math.floor(u), math.floor(u) + 1):
                    if 0 <= m < height and 0 <= n < width:
                        out[:, i, j] += (1 - abs(v - m)) * (1 - abs(u - n)) * x[:, m, n]
    return out


def gaussian_blur(x: Tensor, sigma: float, kernel_size: int) -> Tensor:
    """A two-dimensional convolution of one float image, edges reflected."""
    half = kernel_size // 2
    line = torch.tensor([math.exp(-0.5 * (k / sigma) ** 2) for k in range(-half, half + 1)], dtype=torch.float64)
    kernel = torch.outer(line, line)
    kernel = (kernel / kernel.sum())[None, None]
    padded = F.pad(x[:, None].double(), (half,) * 4, mode="reflect")
    return F.conv2d(padded, kernel)[:, 0].to(x.dtype)


def cutout(x: Tensor, top: int, left: int, size: int, fill: float) -> Tensor:
    """Fill a square of one image, pixel by pixel."""
    out = x.clone()
    for i in range(max(0, top), min(x.shape[1], top + size)):
        for j in range(max(0, left), min(x.shape[2], left + size)):
            out[:, i, j] = fill
    return out


def resized_crop_box(
    rng: random.Random, height: int, width: int, scale: tuple[float, float], ratio: tuple[float, float]
) -> tuple[int, int]:
    """Height and width of one random box: draw until it fits, ten times at most, else the whole of a square image."""
    for _ in range(10):
        area = height * width * rng.uniform(*scale)
        shape = math.exp(rng.uniform(math.log(ratio[0]), math.log(ratio[1])))
        w, h = round(math.sqrt(area * shape)), round(math.sqrt(area / shape))
        if 0 < w <= width and 0 < h <= height:
            return h, w
    return height, width

"""A network made to train on all of CIFAR-10 without a GPU: wide where images are small, no filter to learn first."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from noiseproof import checks
from noiseproof.models.backbone import Backbone
from noiseproof.models.resnet import conv

PATCH = 2  # pixels


def cosines(size: int) -> Tensor:
    """The discrete cosine transform DCT-II as an orthonormal matrix (size, size), a frequency in each row."""
    frequency, place = torch.arange(size)[:, None], torch.arange(size)[None, :]
    rows = torch.cos(math.pi * (place + 0.5) * frequency / size)
    return rows / rows.norm(dim=1, keepdim=True)


class Whiten(nn.Module):
    """Patches of 2×2 pixels, whitened: ReLU(±z), z their cosine transform over colours and places, of variance 1.

    The first layer of the fastest trainings on CIFAR-10 is fixed: it projects patches onto the eigenvectors of their
    covariance and divides by the roots of its eigenvalues. Those eigenvectors are, for photos, close to a cosine
    transform (the pixels of CIFAR-10's patches correlate by 0.83 on average, their transforms by 0.04, at most 0.33),
    and the variance along each is what a batch norm measures. So nothing need be known of the data beforehand.
    """

    basis: Tensor  # (4C, C, 2, 2)

    def __init__(self, channels: int) -> None:
        super().__init__()
        colours, places = cosines(channels), cosines(PATCH)
        basis = torch.einsum("ic,jy,kx->ijkcyx", colours, places, places).reshape(-1, channels, PATCH, PATCH)
        self.register_buffer("basis", basis, persistent=False)
        self.norm = nn.BatchNorm2d(len(basis), affine=False)
        self.outputs = 2 * len(basis)

    def forward(self, x: Tensor) -> Tensor:
        z = self.norm(F.conv2d(x, self.basis))  # (B, 4C, H − 1, W − 1)
        return F.relu(torch.cat([z, -z], dim=1))


class QuickNet(Backbone):
    """Whitened patches, then three groups of two 3×3 convolutions, the first of each pooled by 2; the largest of all.

    A convolution costs height · width · 9 · inputs · outputs, so that maps are many only after pooling, and pooling
    comes before batch norm and ReLU, which then have a quarter to do. Ours, after the fastest public trainings.

    Args:
        input_shape: (C, H, W), at least 9 × 9.
        num_classes: K.
        widths: maps of each group.
    """

    def __init__(self, input_shape: tuple[int, ...], num_classes: int, *, widths: Sequence[int] = (24, 96, 96)) -> None:
        super().__init__()
        self.stem = Whiten(input_shape[0])
        self.body = nn.Sequential()
        inputs = self.stem.outputs
        for width in widths:
            checks.integer("widths", width, 1)
            self.body.extend([conv(inputs, width, 3), nn.MaxPool2d(2), nn.BatchNorm2d(width), nn.ReLU()])
            self.body.extend([conv(width, width, 3), nn.BatchNorm2d(width), nn.ReLU()])
            inputs = width
        self.num_features = inputs
        self.head = nn.Linear(inputs, num_classes)

    def features(self, x: Tensor) -> Tensor:
        return self.body(self.stem(x)).amax(dim=(2, 3))  # (B, widths[-1])

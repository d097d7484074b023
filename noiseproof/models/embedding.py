"""Features of images by a frozen network that has seen ImageNet: a minute's training on them replaces hours on pixels.

Computed once for a data set and kept in a folder, `$NOISEPROOF_CACHE` or ~/.cache/noiseproof, under a checksum of the
images.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from noiseproof import files
from noiseproof.data import LabeledData, Normalize
from noiseproof.data.images import Progress
from noiseproof.errors import InputError
from noiseproof.models.efficientnet import NORMALIZATION, EfficientNetLite0
from noiseproof.models.inference import block_size

_SIZE = 96  # pixels


def imagenet_features(data: LabeledData, *, size: int = _SIZE, progress: Progress | None = None) -> np.ndarray:
    """Features (n, 1280) float16 of images by EfficientNet-Lite0; grey ones count as colours.

    Args:
        size: what the images are resized to, in pixels.
        progress: called with (done, total).

    Raises:
        InputError: the data is no images, or the network's weights are not installed.
    """
    if not data.is_image or data.input_shape[0] not in (1, 3):
        raise InputError(f"features of ImageNet are for images in grey or colour, the inputs are {data.input_shape}")
    path = files.cache_folder() / f"{checksum(data)}-efficientnet_lite0-{size}.npy"
    if path.is_file():
        return np.load(path, allow_pickle=False)
    network = EfficientNetLite0((3, size, size), 2, pretrained=True).eval()
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    mean, std = ([value] * 3 for value in NORMALIZATION)
    normalize, found = Normalize(mean, std), np.empty((len(data), network.num_features), np.float16)
    for rows in torch.arange(len(data)).split(block_size((3, size, size))):
        images = _resized(data.take(rows), size)
        with torch.inference_mode():
            found[rows.numpy()] = network.features(normalize(images)).numpy()
        if progress is not None:
            progress(int(rows[-1]) + 1, len(data))
    files.write_atomically(path, lambda temporary: _save(temporary, found))
    return found


def checksum(data: LabeledData) -> str:
    """A name for the images of a data set, by all of their values."""
    total = hashlib.blake2b(repr((len(data), data.input_shape, str(data.inputs.dtype))).encode(), digest_size=12)
    for rows in torch.arange(len(data)).split(block_size(data.input_shape)):
        total.update(data.take(rows).contiguous().numpy().tobytes())
    return total.hexdigest()


def _resized(images: Tensor, size: int) -> Tensor:
    """Images (B, 1 or 3, H, W) as colours in 0..1, (B, 3, size, size), in channels_last."""
    images = images.float() / 255 if images.dtype == torch.uint8 else images
    if images.shape[2:] != (size, size):
        images = F.interpolate(images, (size, size), mode="bilinear", antialias=True)
    return images.expand(-1, 3, -1, -1).contiguous(memory_format=torch.channels_last)


def _save(path: Path, array: np.ndarray) -> None:
    with open(path, "wb") as file:
        np.save(file, array)

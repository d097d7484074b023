"""Batched augmentation: each operation works on a whole (B, C, H, W) batch, with its own parameters for each example.

    augment = policy("simclr", image_size=32)
    view = augment(images, generator)          # uint8 or float images -> float images
    inputs = normalize(view)                   # Normalize(mean, std)

Any device, and the same seed gives the same parameters on all of them: tensor operations without a loop over examples.
Files: geometry.py and resize.py (where pixels come from), colour.py (what they show), normalize.py, policy.py (chains,
RandAugment, named policies); base.py and filters.py hold what they share.
"""

from noiseproof.data.augment.base import Augmentation, Operation, to_float
from noiseproof.data.augment.colour import (
    ColorJitter,
    GaussianBlur,
    RandomGrayscale,
    ToFloat,
    adjust_brightness,
    adjust_contrast,
    adjust_hue,
    adjust_saturation,
    adjust_sharpness,
    autocontrast,
    equalize,
    gaussian_blur,
    grayscale,
    invert,
    luma,
    posterize,
    solarize,
)
from noiseproof.data.augment.geometry import (
    Cutout,
    RandomCrop,
    RandomFlip,
    affine,
    affine_matrix,
    crop,
    cutout,
    flip,
    rotate,
    shear,
    translate,
)
from noiseproof.data.augment.normalize import Normalize
from noiseproof.data.augment.policy import (
    KEEP_COLOURS,
    OPERATIONS,
    POLICIES,
    STRONG,
    Compose,
    RandAugment,
    apply_each,
    policy,
)
from noiseproof.data.augment.resize import RandomResizedCrop, resized_crop

__all__ = [
    "KEEP_COLOURS",
    "OPERATIONS",
    "POLICIES",
    "STRONG",
    "Augmentation",
    "ColorJitter",
    "Compose",
    "Cutout",
    "GaussianBlur",
    "Normalize",
    "Operation",
    "RandAugment",
    "RandomCrop",
    "RandomFlip",
    "RandomGrayscale",
    "RandomResizedCrop",
    "ToFloat",
    "adjust_brightness",
    "adjust_contrast",
    "adjust_hue",
    "adjust_saturation",
    "adjust_sharpness",
    "affine",
    "affine_matrix",
    "apply_each",
    "autocontrast",
    "crop",
    "cutout",
    "equalize",
    "flip",
    "gaussian_blur",
    "grayscale",
    "invert",
    "luma",
    "policy",
    "posterize",
    "resized_crop",
    "rotate",
    "shear",
    "solarize",
    "to_float",
    "translate",
]

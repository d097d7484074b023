"""Batched augmentation: each operation works on a whole (B, C, H, W) batch, with its own parameters for each example.

    augment = policy("simclr", image_size=32)
    view = augment(images, generator)          # uint8 or float images -> float images
    inputs = normalize(view)                   # Normalize(mean, std)

Any device, and the same seed gives the same parameters on all of them. Files: geometry.py (where pixels come from),
colour.py (what they show), policy.py (chains, RandAugment, named policies); base.py and filters.py hold what they
share. All are tensor operations without a loop over examples; on the CPU, kernels.py has compiled loops for crops,
flips, colour jitter, grayscale, blur and the normalisation after them, with the same draws and results.
"""

from noiseproof.data.augment.base import Augmentation, Operation, to_float
from noiseproof.data.augment.colour import (
    ColorJitter,
    GaussianBlur,
    Normalize,
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
    RandomResizedCrop,
    affine,
    affine_matrix,
    crop,
    cutout,
    flip,
    resized_crop,
    rotate,
    shear,
    translate,
)
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

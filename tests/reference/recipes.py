"""The settings that the papers print, read off them line by line, in the order of their tables.

Nothing here is taken from noiseproof/recipes.py. What a recipe must say and its paper does not stands behind a `|`.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class Printed(NamedTuple):
    """A row of a paper."""

    network: str
    epochs: int
    batch: int
    rate: float
    drops: tuple[int, ...] | str  # epochs at which the rate falls to a tenth, or what it does instead
    decay: float  # of the weights
    held_out: float | None  # share of the examples kept from training
    views: tuple[str, ...]
    method: dict[str, Any]


FLIPS = ("weak",)  # random crop and horizontal flip
CROPS = ("crop",)  # the same of large images, to seven eighths of their size

# Liu et al. (2022), Table A.1, column by column; λ_C and λ_B are 0 where there is no SOP+. 45,000 of CIFAR's 50,000 are
# training examples for SOP, all for SOP+. The decays of CIFAR-100 are those of Section 2.2, "at the 80th and 120th
# epochs": the table has those of CIFAR-10 in both columns.
SOP_CIFAR10 = ("resnet34", 120, 128, 0.02, (40, 80), 5e-4, 0.1, FLIPS)
SOP_CIFAR100 = ("resnet34", 150, 128, 0.02, (80, 120), 5e-4, 0.1, FLIPS)
# PreActResNet18 and the end of its cosine are the code's; so is the rate of u with asymmetric noise on CIFAR-100, 0.1
# in its README where the table has 1.
SOP_PLUS = ("preact_resnet18(variant='sop')", 300, 128, 0.02, "cosine to a hundredth", 5e-4, None, ("weak", "strong"))


def sop(alpha_u: float, alpha_v: float) -> dict[str, Any]:
    return {"name": "sop", "lr_u": alpha_u, "lr_v": alpha_v, "std": 1e-8} | {"variant": "authors"}


def sop_plus(alpha_u: float, alpha_v: float) -> dict[str, Any]:
    return {**sop(alpha_u, alpha_v), "name": "sop_plus", "consistency": 0.9, "balance": 0.1} | {"prior": "uniform"}


# Mirzasoleiman et al. (2020), Section 5: "coresets of size 50%"; Algorithm 1: classes by predictions, medoids, weights.
CRUST = {
    "name": "crust", "fraction": 0.5, "selection": "medoids", "by": "prediction", "weighted": True, "every": 1,
} | {"mixup": 1.0, "warmup": 5}  # fmt: skip

CRUST_AUTHORS = {"name": "crust", "fraction": 0.5} | {"variant": "authors"}

# Wei et al. (2023), Appendix B: VGG19, flipping probability 0.1, 400,000 iterations of CIFAR-100's 50,000 examples,
# 0.01 and from iteration 40,000 on 0.001; "otherwise, the learning rate is a constant 0.001".
LABEL_NOISE = {"name": "label_noise", "rate": 0.1, "anneal": "constant"}

FITS: dict[str, Printed] = {
    "sop-cifar10-sym": Printed(*SOP_CIFAR10, sop(10, 10)),
    "sop-cifar10-asym": Printed(*SOP_CIFAR10, sop(10, 100)),
    "sop-cifar100-sym": Printed(*SOP_CIFAR100, sop(1, 10)),
    "sop-cifar100-asym": Printed(*SOP_CIFAR100, sop(0.1, 100)),
    "sop-plus-cifar10-sym": Printed(*SOP_PLUS, sop_plus(10, 10)),
    "sop-plus-cifar10-asym": Printed(*SOP_PLUS, sop_plus(10, 100)),
    "sop-plus-cifar100-sym": Printed(*SOP_PLUS, sop_plus(1, 10)),
    "sop-plus-cifar100-asym": Printed(*SOP_PLUS, sop_plus(0.1, 100)),
    "sop-clothing1m": Printed("resnet50", 10, 64, 0.002, (5,), 1e-3, None, CROPS, sop(0.1, 1)),
    "sop-webvision": Printed("inception_resnet_v2", 100, 32, 0.02, (50,), 5e-4, None, CROPS, sop(0.1, 1)),
    "crust-cifar": Printed("resnet32", 120, 128, 0.1, (80, 100), 5e-4, None, FLIPS, CRUST),
    "crust-cifar-authors": Printed("resnet32", 120, 128, 0.1, (80, 100), 5e-4, None, FLIPS, CRUST_AUTHORS),
    "crust-webvision": Printed("inception_resnet_v2", 90, 128, 0.1, (30, 60), 5e-4, None, CROPS, CRUST),
    "lnsgd-ls": Printed("vgg19(batch_norm=False)", 256, 32, 0.01, "a tenth", 0.0, None, FLIPS, LABEL_NOISE),
    "lnsgd-s": Printed("vgg19(batch_norm=False)", 256, 32, 0.001, "constant", 0.0, None, FLIPS, LABEL_NOISE),
    "fbgd-ls": Printed("vgg19(batch_norm=False)", 2048, 256, 0.01, "a tenth", 0.0, None, FLIPS, {"name": "ce"}),
}

# Zhou et al. (2021), Section 4 and Appendix B.2: SGD with 0.03, momentum 0.9, decay 1e-4, cosine, batches of 256;
# τ = 0.2; on CIFAR-10 2,000 epochs, 4,096 keys, τ′ = 0.8, κ = 2, m₁ = 0, m₂ = 1, on ImageNet 200 epochs (Table 2),
# 65,536 keys, τ′ = 1, κ = 0.1, m₁ = 0.5, m₂ = 10; λ = 0.5 is the best of Table 5. Crops of ImageNet: 96, or 224 to 96.
ON_CIFAR10 = {"temperature": 0.2, "dictionary_size": 4096} | {"ema": 0.99}
ON_IMAGENET = {"temperature": 0.2, "dictionary_size": 65536} | {"ema": 0.999}
SANE_CIFAR10 = {**ON_CIFAR10, "name": "sane", "lam": 0.5, "sharpness": 0.8, "kappa": 2, "m1": 0, "m2": 1}
SANE_IMAGENET = {**ON_IMAGENET, "name": "sane", "lam": 0.5, "sharpness": 1, "kappa": 0.1, "m1": 0.5, "m2": 10}
FIVE = (224, 192, 160, 128, 96)


class Pretrained(NamedTuple):
    """A row of pre-training."""

    epochs: int
    images: int | None  # side of the images
    crops: tuple[int, ...] | None  # sizes of the views that are mixed, where there are such
    strong: bool  # those views
    method: dict[str, Any]


PRETRAINS: dict[str, Pretrained] = {
    "moco-cifar10": Pretrained(2000, None, None, False, {**ON_CIFAR10, "name": "moco"}),
    "sane-cifar10": Pretrained(2000, None, None, False, {**SANE_CIFAR10, "crops": 0}),
    "sane-cifar10-strong": Pretrained(2000, None, None, True, {**SANE_CIFAR10, "crops": 1}),
    "moco-imagenet": Pretrained(200, 224, None, False, {**ON_IMAGENET, "name": "moco"}),
    "sane-single-imagenet": Pretrained(200, 224, (96,), False, {**SANE_IMAGENET, "crops": 1}),
    "sane-single-imagenet-strong": Pretrained(200, 224, (96,), True, {**SANE_IMAGENET, "crops": 1}),
    "sane-multi-imagenet": Pretrained(200, 224, FIVE, False, {**SANE_IMAGENET, "crops": 5}),
    "sane-multi-imagenet-strong": Pretrained(200, 224, FIVE, True, {**SANE_IMAGENET, "crops": 5}),
}

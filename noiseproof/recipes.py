"""The papers' training recipes by name: what `fit` or `pretrain` is called with, ready to be changed in part.

    noiseproof fit cifar-10-batches-py --noise symmetric:0.4 --recipe sop-cifar10-sym
    noiseproof pretrain cifar-10-batches-py --recipe sane-cifar10
    nf.fit(data=data, **nf.recipe("sop-cifar10-sym"))
    pretrain(data=data, **nf.recipe("sane-cifar10", "pretrain"))

What the command line is given beside `--recipe` wins over the recipe: `--recipe sop-cifar10-sym --method ce` is the
cross-entropy of the same table.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from typing import Any

from noiseproof import checks
from noiseproof.errors import InputError, unknown


@dataclass(frozen=True)
class Recipe:
    """Arguments of `fit` or `pretrain`, by the names of their parameters."""

    about: str
    paper: str
    options: dict[str, Any]
    method: str
    verb: str = "fit"
    image_size: int | None = None  # what to read the images at


# Table A.1 of Liu et al. (2022). Its rates of u and v are those of the authors' code, divided by the batch size, not
# multiplied by the learning rate as in Algorithm 1. For CIFAR-100 the table prints decays at epochs 40 and 80, the text
# 80 and 120: with 150 epochs the text's. For Clothing1M the table prints a learning rate of 0.002, the text 0.001: the
# table's. With asymmetric noise on CIFAR-100 the table has a rate of 1 for u, the README of the code, which was changed
# after the paper, 0.1: the README's. PreActResNet18 is that of the code, and so is the cosine's end, a hundredth of the
# rate; its weight decay for CIFAR-100 is 10⁻³, here the table's. Symmetric noise is drawn from all classes
# (--noise symmetric-any:0.4). Clothing1M is read at 256 pixels and cropped to 224; WebVision is cropped to 227, of a
# size that is not given: seven eighths of 259.
_SOP = "Liu et al. 2022, Table A.1"
_SHARED = {"batch_size": 128, "lr": 0.02, "momentum": 0.9, "weight_decay": 5e-4, "optimizer": "sgd"}
_CIFAR10 = {
    **_SHARED, "model": "resnet34", "epochs": 120, "schedule": "multi_step([40, 80])", "augment": "weak", "val": 0.1,
}  # fmt: skip
_CIFAR100 = {**_CIFAR10, "epochs": 150, "schedule": "multi_step([80, 120])"}
_PLUS = {
    **_SHARED, "model": "preact_resnet18(variant='sop')", "epochs": 300, "schedule": "cosine(final=0.01)",
    "augment": ("weak", "strong"), "val": None,
}  # fmt: skip
# Section 5 of Mirzasoleiman et al. (2020). It gives neither α of mixup (1 here) nor a warm-up (5 epochs here); for
# WebVision neither batch size nor weight decay nor the factor of annealing: those of CIFAR; nor a size of the images,
# here that of SOP's WebVision. "authors" is the method as their code for CIFAR has it, which differs from the paper.
_MIRZASOLEIMAN = "Mirzasoleiman et al. 2020, Section 5"
_CRUST = {
    "model": "resnet32", "epochs": 120, "batch_size": 128, "lr": 0.1, "momentum": 0.9, "weight_decay": 5e-4,
    "optimizer": "sgd", "schedule": "multi_step([80, 100])", "augment": "weak", "val": None,
}  # fmt: skip
_CRUST_WEBVISION = {
    **_CRUST, "model": "inception_resnet_v2", "epochs": 90, "schedule": "multi_step([30, 60])", "augment": "crop",
}  # fmt: skip
_CRUST_METHOD = "crust(ce, fraction=0.5, selection='medoids', by='prediction', weighted=True, mixup=1.0)"
_CRUST_AUTHORS = "crust(ce, fraction=0.5, variant='authors')"


def _sop(name: str, lr_u: float, lr_v: float) -> str:
    more = ", prior='uniform'" if name == "sop_plus" else ""  # the authors'
    return f"{name}(lr_u={lr_u}, lr_v={lr_v}, variant='authors'{more})"


# Appendix B of Wei et al. (2023), for CIFAR-100: batches of 32 with label noise, of 256 without ("full batch"); a rate
# of 0.01, and of 0.001 from iteration 40,000 of 400,000: 256 epochs of the one, 2,048 of the other. The rest, which it
# does not say, is as in the code of HaoChen et al. (2021), whose set-up it adapts: momentum, augmentation, no
# weight decay, no batch norm.
_WEI = "Wei et al. 2023, Appendix B"
_LARGE_BATCH = {
    "model": "vgg19(batch_norm=False)", "epochs": 2048, "batch_size": 256, "lr": 0.01, "momentum": 0.9,
    "weight_decay": 0.0, "optimizer": "sgd", "schedule": "anneal_at(0.1, factor=0.1)", "augment": "weak", "val": None,
}  # fmt: skip
_LABEL_NOISE = {**_LARGE_BATCH, "epochs": 256, "batch_size": 32}

# Section 4 and Appendix B of Zhou et al. (2021). Not given there: ι (1 − ι is that of MoCo's authors: 0.99 in their
# CIFAR-10 notebook, 0.999 on ImageNet), d (128, as MoCo), the width of the head's hidden layers (that of the features),
# λ of Tables 1 and 2 (0.5, the best of Table 5), the strength of the augmentations (ImageNet: simclr, that of MoCo v2;
# CIFAR-10, for which it links to MoCo's notebook: moco-cifar10, and the notebook's eight parts of the batch norm).
# MoCo has SANE's 2,000 epochs of CIFAR-10 here, 4,000 there. Of ImageNet Table 2 also has 800 epochs.
_ZHOU = "Zhou et al. 2021, Appendix B"
_CONTRAST = {
    "model": "resnet50", "batch_size": 256, "lr": 0.03, "momentum": 0.9, "weight_decay": 1e-4, "optimizer": "sgd",
    "schedule": "cosine", "augment": "simclr",
}  # fmt: skip
_CONTRAST_CIFAR10 = {**_CONTRAST, "epochs": 2000, "augment": "moco-cifar10"}
_CONTRAST_IMAGENET = {**_CONTRAST, "epochs": 200}
_STRONG = {"mix_augment": "sane-strong"}
_SINGLE = {**_CONTRAST_IMAGENET, "crop_sizes": (96,)}
_MULTI = {**_CONTRAST_IMAGENET, "crop_sizes": (224, 192, 160, 128, 96)}


def _pretrain(about: str, options: dict[str, Any], method: str, image_size: int | None = None) -> Recipe:
    return Recipe(about, _ZHOU, options, method, "pretrain", image_size)


def _sane_cifar10(crops: int) -> str:
    refinery = "lam=0.5, temperature=0.2, sharpness=0.8, m1=0.0, m2=1.0, kappa=2.0"
    return f"sane({refinery}, crops={crops}, dictionary_size=4096, ema=0.99, groups=8)"


def _sane_imagenet(crops: int) -> str:
    refinery = "lam=0.5, temperature=0.2, sharpness=1.0, m1=0.5, m2=10.0, kappa=0.1"
    return f"sane({refinery}, crops={crops}, dictionary_size=65536, ema=0.999)"


RECIPES: dict[str, Recipe] = {
    "lnsgd-ls": Recipe("label-noise SGD, large then small rate", _WEI, _LABEL_NOISE, "label_noise(ce, rate=0.1)"),
    "lnsgd-s": Recipe(
        "label-noise SGD, small rate", _WEI, {**_LABEL_NOISE, "lr": 0.001, "schedule": "constant"},
        "label_noise(ce, rate=0.1)",
    ),
    "fbgd-ls": Recipe("gradient descent in large batches, large then small rate", _WEI, _LARGE_BATCH, "ce"),
    "sop-cifar10-sym": Recipe("SOP on CIFAR-10, symmetric noise", _SOP, _CIFAR10, _sop("sop", 10, 10)),
    "sop-cifar10-asym": Recipe("SOP on CIFAR-10, asymmetric noise", _SOP, _CIFAR10, _sop("sop", 10, 100)),
    "sop-cifar100-sym": Recipe("SOP on CIFAR-100, symmetric noise", _SOP, _CIFAR100, _sop("sop", 1, 10)),
    "sop-cifar100-asym": Recipe("SOP on CIFAR-100, asymmetric noise", _SOP, _CIFAR100, _sop("sop", 0.1, 100)),
    "sop-plus-cifar10-sym": Recipe("SOP+ on CIFAR-10, symmetric noise", _SOP, _PLUS, _sop("sop_plus", 10, 10)),
    "sop-plus-cifar10-asym": Recipe("SOP+ on CIFAR-10, asymmetric noise", _SOP, _PLUS, _sop("sop_plus", 10, 100)),
    "sop-plus-cifar100-sym": Recipe("SOP+ on CIFAR-100, symmetric noise", _SOP, _PLUS, _sop("sop_plus", 1, 10)),
    "sop-plus-cifar100-asym": Recipe("SOP+ on CIFAR-100, asymmetric noise", _SOP, _PLUS, _sop("sop_plus", 0.1, 100)),
    "sop-clothing1m": Recipe(
        "SOP on Clothing1M; the paper starts from a pre-trained network", _SOP,
        {
            **_SHARED, "model": "resnet50", "batch_size": 64, "lr": 0.002, "weight_decay": 1e-3, "epochs": 10,
            "schedule": "multi_step([5])", "augment": "crop", "val": None,
        },
        _sop("sop", 0.1, 1), image_size=256,
    ),
    "sop-webvision": Recipe(
        "SOP on mini-WebVision", _SOP,
        {
            **_SHARED, "model": "inception_resnet_v2", "batch_size": 32, "epochs": 100,
            "schedule": "multi_step([50])", "augment": "crop", "val": None,
        },
        _sop("sop", 0.1, 1), image_size=259,
    ),
    "crust-cifar": Recipe("CRUST on CIFAR, medoids as in the paper", _MIRZASOLEIMAN, _CRUST, _CRUST_METHOD),
    "crust-cifar-authors": Recipe("CRUST on CIFAR, as its authors ran it", _MIRZASOLEIMAN, _CRUST, _CRUST_AUTHORS),
    "crust-webvision": Recipe(
        "CRUST on mini-WebVision, medoids as in the paper", _MIRZASOLEIMAN, _CRUST_WEBVISION, _CRUST_METHOD,
        image_size=259,
    ),
    "moco-cifar10": _pretrain(
        "MoCo v2 on CIFAR-10, for as long as SANE; ema is not in the paper", _CONTRAST_CIFAR10,
        "moco(temperature=0.2, dictionary_size=4096, ema=0.99, groups=8)",
    ),
    "sane-cifar10": _pretrain(
        "SANE on CIFAR-10, weak views; ema is not in the paper", _CONTRAST_CIFAR10, _sane_cifar10(crops=0)
    ),
    "sane-cifar10-strong": _pretrain(
        "SANE on CIFAR-10, strong views; ema is not in the paper", {**_CONTRAST_CIFAR10, **_STRONG},
        _sane_cifar10(crops=1),
    ),
    "moco-imagenet": _pretrain(
        "MoCo v2 on ImageNet, with SANE's head of three layers; ema is not in the paper", _CONTRAST_IMAGENET,
        "moco(temperature=0.2, dictionary_size=65536, ema=0.999)", 224,
    ),
    "sane-single-imagenet": _pretrain(
        "SANE-Single on ImageNet, weak views; lam and ema are not in the paper", _SINGLE, _sane_imagenet(crops=1), 224
    ),
    "sane-single-imagenet-strong": _pretrain(
        "SANE-Single on ImageNet, strong views; lam and ema are not in the paper", {**_SINGLE, **_STRONG},
        _sane_imagenet(crops=1), 224,
    ),
    "sane-multi-imagenet": _pretrain(
        "SANE-Multi on ImageNet, five weak crops; lam and ema are not in the paper", _MULTI, _sane_imagenet(crops=5),
        224,
    ),
    "sane-multi-imagenet-strong": _pretrain(
        "SANE-Multi on ImageNet, five strong crops; lam and ema are not in the paper", {**_MULTI, **_STRONG},
        _sane_imagenet(crops=5), 224,
    ),
}  # fmt: skip


def find(name: str, verb: str) -> Recipe:
    """The recipe of that name for `fit` or `pretrain`.

    Raises:
        InputError: there is none, or it is for the other verb.
    """
    checks.require(isinstance(name, str), "recipe", name, "the name of one; see noiseproof recipes")
    checks.choice("verb", verb, ("fit", "pretrain"))
    own = [key for key, one in RECIPES.items() if one.verb == verb]
    if name in own:
        return RECIPES[name]
    if name in RECIPES:
        other = RECIPES[name].verb
        raise InputError(f"recipe {name!r} is for {other}, not for {verb}; choose from {', '.join(sorted(own))}")
    raise unknown("recipe", name, own)


def recipe(name: str, verb: str = "fit") -> dict[str, Any]:
    """The arguments of `fit`, or of `pretrain`, that a recipe stands for.

    Raises:
        InputError: there is no such recipe, or it is for the other verb.
    """
    found = find(name, verb)
    return {**found.options, "method": found.method}


def fill(options: dict[str, Any], given: Container[str], verb: str) -> dict[str, Any]:
    """The options of a command line; where it gives none, those of the recipe it names under "recipe", if any."""
    if options["recipe"] is None:
        return options
    found = find(options["recipe"], verb)
    size = {} if found.image_size is None else {"image_size": found.image_size}
    asked = {**found.options, **size, "method": found.method}
    if verb == "pretrain" and "method" in given:
        from noiseproof.pretraining import build

        if build(options["method"]).num_views == 2:  # without the extra views that these are of
            asked = {key: value for key, value in asked.items() if key not in ("mix_augment", "crop_sizes")}
    return options | {key: _text(value) for key, value in asked.items() if key not in given}


def _text(value: Any) -> Any:
    """Several values as the command line writes them: weak,strong."""
    return ",".join(map(str, value)) if isinstance(value, tuple) else value

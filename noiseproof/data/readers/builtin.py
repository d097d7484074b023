"""Data sets known by name."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np

from noiseproof.data.labeled import LabeledData
from noiseproof.data.readers.base import Options, Splits
from noiseproof.errors import InputError

_FASHION_NAMES = "t-shirt/top,trouser,pullover,dress,coat,sandal,shirt,sneaker,bag,ankle boot"


def digits(options: Options) -> LabeledData:
    """The 1,797 8×8 digits inside scikit-learn; its grey levels 0..16 become round(255·level/16), uint8."""
    from sklearn.datasets import load_digits

    options.refuse("digits", "label_column", "image_column", "feature_columns", "kinds", "image_size")
    images, labels = load_digits(return_X_y=True)
    pixels = np.rint(images * (255 / 16)).astype(np.uint8).reshape(-1, 1, 8, 8)
    return options.build("digits", pixels, labels, class_names=[str(k) for k in range(10)])


def _idx(name: str, remedy: str, *fixed: str, class_names: tuple[str, ...] | None = None) -> Splits:
    """The IDX files of a named data set, in a fixed place, $NOISEPROOF_DATA/name, $NOISEPROOF_DATA or ./name."""
    from noiseproof.data.readers import idx

    root = os.environ.get("NOISEPROOF_DATA")
    places = [Path(root) / name, Path(root)] if root else []
    places += [Path(place) for place in (*fixed, name)]
    for place in places:
        splits = idx.find(place, class_names) if place.is_dir() else None
        if splits is not None:
            return splits
    raise InputError(f"{name} was not found in {', '.join(str(p) for p in places)}; {remedy}")


BUILTIN: dict[str, Callable[[], Splits]] = {
    "digits": lambda: {"train": digits},
    "mnist": lambda: _idx(
        "mnist", "set NOISEPROOF_DATA to a folder that holds its four IDX files, or pass their folder"
    ),
    "fashion-mnist": lambda: _idx(
        "fashion-mnist",
        "run `apt-get install dataset-fashion-mnist`, or set NOISEPROOF_DATA to a folder that holds its four IDX files",
        "/usr/share/datasets/fashion-mnist",
        class_names=tuple(_FASHION_NAMES.split(",")),
    ),
}

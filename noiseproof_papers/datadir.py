"""The data sets experiments use: where they lie, read once in a process.

`cifar10-features` is CIFAR-10 as a frozen network that has seen ImageNet sees it (models/embedding.py).
"""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

from noiseproof.data import LabeledData, load, load_pair
from noiseproof.data.noise import CIFAR10_CLASSES, CIFAR100_CLASSES
from noiseproof.errors import InputError
from noiseproof.models.embedding import imagenet_features

VARIABLE = "NOISEPROOF_DATA"
PLACES = {  # name: what may lie in the data folder, the first that is there is read
    "cifar10": ("cifar10-train.parquet", "cifar10", "cifar-10-batches-py", "cifar-10-python.tar.gz"),
    "cifar100": ("cifar100-train.parquet", "cifar100", "cifar-100-python", "cifar-100-python.tar.gz"),
    "mnist": ("mnist", "MNIST/raw"),
    "cifar10n": ("cifar10n-labels.csv", "CIFAR-10_human.pt"),
}
FEATURES = "cifar10-features"
CLASSES = {"cifar10": CIFAR10_CLASSES, "cifar100": CIFAR100_CLASSES}  # in the order of their numbers


class DataDir:
    """A folder of data sets; by default the one `$NOISEPROOF_DATA` names."""

    def __init__(self, root: Path | None = None) -> None:
        self.root = root or (Path(os.environ[VARIABLE]) if os.environ.get(VARIABLE) else None)

    def pair(
        self, name: str, *, labels: str | None = None, image_size: int | None = None
    ) -> tuple[LabeledData, LabeledData]:
        """Training and test set of "digits", "fashion-mnist", "cifar10", …; `labels` is a column of CIFAR-10N.

        Raises:
            InputError: it is not there, with the places it was looked for.
        """
        file = None if labels is None else f"{self.find('cifar10n')}:{labels}"
        if name == FEATURES:
            return _features(str(self.find("cifar10")), file)
        return _pair(name, str(self.find(name)) if name in PLACES else name, file, image_size)

    def find(self, name: str) -> Path:
        """Where a data set lies."""
        if self.root is None:
            raise InputError(f"{name} is needed; say where your data sets lie with --data FOLDER or ${VARIABLE}")
        for place in PLACES[name]:
            if (self.root / place).exists():
                return self.root / place
        raise InputError(f"{name} is not in {self.root}; put one of these there: {', '.join(PLACES[name])}")


@lru_cache(maxsize=4)
def _pair(name: str, source: str, labels: str | None, image_size: int | None) -> tuple[LabeledData, LabeledData]:
    options = {} if image_size is None else {"image_size": image_size}
    train, test = (
        (load(source), None)
        if source == "digits"
        else load_pair(source, labels=labels, true_labels="own" if labels else None, **options)
    )
    if test is None:
        train, test = train.split(0.2, seed=0)
    if name in CLASSES and all(one.isdigit() for one in train.class_names):  # noise goes by the names of the classes
        train, test = train.with_class_names(CLASSES[name]), test.with_class_names(CLASSES[name])
    return train, test


@lru_cache(maxsize=2)
def _features(source: str, labels: str | None) -> tuple[LabeledData, LabeledData]:
    """Training and test set of CIFAR-10, its images as features (n, 1280)."""
    train, test = (
        LabeledData(
            imagenet_features(part).astype("float32"),
            part.labels,
            true_labels=part.true_labels,
            class_names=part.class_names,
        )
        for part in _pair("cifar10", source, labels, None)
    )
    return train, test

"""The data of comparisons: what a cell of `bench` or `compare` trains on and is tested with."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from noiseproof.cli.options import NoisySource, Options, anchored, values
from noiseproof.training.settings import Fitting, settings_of

if TYPE_CHECKING:
    from noiseproof.data import LabeledData

OWN = ("method", "seed", "noise", "labels", "true_labels", "decisions", "limit")  # what the comparison itself decides
# settings of `fit` that a cell does not have, and a comparison does not offer
NOT_OF_A_CELL = (
    "checkpoint_seconds", "checkpoint_steps", "score_test", "track", "state", "sync_batch_norm", "audit_features",
)  # fmt: skip
LABELS = "labels:"


def source_of(data: str, options: Options) -> dict[str, Any]:
    """How to read a data set, as a cell has it: what is left out is None."""
    known = {name: options[name] for name in settings_of(NoisySource) if name not in OWN}
    found = {"data": anchored(data), **known, **{name: options[name] for name in ("features", "class_names")}}
    found["test"] = anchored(found["test"])
    return {name: value for name, value in found.items() if value is not None}


def settings_of_fit(options: Options) -> dict[str, Any]:
    """The arguments of `fit` that determine a run, as a cell has them."""
    known = {name for name, one in settings_of(Fitting).items() if one.determines} - set(OWN)
    return {name: value for name, value in values(Fitting, options, known).items() if value is not None}


def noises_of(text: str | None) -> list[str | None]:
    """`none,symmetric:0.4,labels:FILE:COLUMN` as a list, checked; paths that hold from any folder."""
    from noiseproof.data import noise

    if text is None:
        return [None]
    found: list[str | None] = []
    for one in (part.strip() for part in split_outside(text)):
        if one.startswith(LABELS):
            one = f"{LABELS}{anchored(one.removeprefix(LABELS))}"
        elif one != "none":
            noise.parse(one)
        found.append(one)
    return found


def split_outside(text: str) -> list[str]:
    """Text at its commas, but not at those inside brackets: `ce,early_stop(elr(lam=1), patience=3)`."""
    parts, depth = [""], 0
    for character in text:
        depth += (character in "([") - (character in ")]")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts if part.strip()]


def sets(cell: dict[str, Any]) -> tuple[LabeledData, LabeledData | None]:
    """The training set of a cell, corrupted as it asks, and the test set; None where no labels are known to be right.

    Of a source without a test set a fifth is held out, if its labels are taken for right: some noise was asked for.
    """
    from noiseproof.data import noise
    from noiseproof.data.readers import relabel

    spec, seed = cell["noise"], cell["seed"]
    train, test = _whole(json.dumps(cell["source"], sort_keys=True))
    labels = spec.removeprefix(LABELS) if spec is not None and spec.startswith(LABELS) else None
    if labels is not None:
        train = relabel(train, labels=labels, true_labels="own")
    if test is None and spec is not None:
        train, test = train.split(0.2, seed=seed)
    if cell["limit"] is not None:
        train = train.limit(cell["limit"], seed=seed)
    if spec is not None and spec != "none" and labels is None:
        train = noise.apply(train, spec, seed=seed)
    if test is not None and cell["tested"] is not None:
        test = test.limit(cell["tested"], seed=0)
    return train, test


@lru_cache(maxsize=1)
def _whole(source: str) -> tuple[LabeledData, LabeledData | None]:
    """A source as it is, its images as features if asked for; read once for many cells."""
    from noiseproof.cli.reading import read

    options = dict.fromkeys(settings_of(NoisySource)) | {"seed": 0} | json.loads(source)
    train, test = read(options, quiet=True, whole=True)
    names, features = options.get("class_names"), options.get("features")
    found = [_prepared(one, names, features) for one in (train, test) if one is not None]
    return found[0], found[1] if len(found) > 1 else None


def _prepared(data: LabeledData, names: str | None, features: str | None) -> LabeledData:
    import torch

    from noiseproof.data import LabeledData
    from noiseproof.models.embedding import imagenet_features

    if names is not None:
        data = data.with_class_names(split_outside(names))
    if features is None:
        return data
    rows = torch.from_numpy(imagenet_features(data)).float()  # (n, 1280)
    return LabeledData(rows, data.labels, true_labels=data.true_labels, class_names=data.class_names, ids=data.ids)


def check(cells: Sequence[dict[str, Any]], device: str, quiet: bool) -> None:
    """Find the device, and read the data of every setting once: a mistake is said before the work."""
    from noiseproof.device import pick_device
    from noiseproof.training.progress import counting

    pick_device(device)
    first: dict[str, dict[str, Any]] = {}
    for cell in cells:
        first.setdefault(json.dumps([cell["source"], cell["noise"]]), cell)
    with counting("reading", show=not quiet) as progress:
        for done, cell in enumerate(first.values(), 1):
            sets(cell)
            progress(done, len(first))

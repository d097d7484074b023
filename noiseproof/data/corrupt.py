"""Write a noisy copy of a data file: what one tries an audit or a method on before trusting it with real noise."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from noiseproof.data import noise
from noiseproof.data.label_checks import check_distinct, check_whole
from noiseproof.data.label_copies import Labels, check_paths, is_known, opened
from noiseproof.data.labeled import is_table
from noiseproof.data.readers import load
from noiseproof.data.readers.arrays import TRUE_KEYS
from noiseproof.errors import InputError, naming
from noiseproof.files import replacing

TRUE_COLUMN = "true_label"


@dataclass(frozen=True)
class Corruption:
    """What `corrupt_table` did."""

    path: Path
    n: int
    changed: int
    class_names: tuple[str, ...]
    transition: Tensor  # (K, K): row i, the fraction of class i now labelled j

    @property
    def rate(self) -> float:
        """The fraction of labels that changed."""
        return self.changed / self.n


def corrupt_table(
    source_path: str | os.PathLike[str],
    out_path: str | os.PathLike[str],
    *,
    label_column: str | None = None,
    spec: str | noise.Spec,
    seed: int = 0,
) -> Corruption:
    """Write a copy of a CSV, Parquet or npz file with noisy labels, the old ones kept as `true_label`.

    Every other column is copied as it is; text labels stay text; the classes are the distinct labels in sorted order.
    The copy is written to a temporary file in the same folder and then moved into place: a reader sees all of it or
    none. The source is never written to.

    Args:
        source_path: the file to copy.
        out_path: where the copy goes, in the format of the source.
        label_column: the column (npz: array) of labels; default the one with a usual name.
        spec: what noise, e.g. "symmetric:0.4" (see `noise.parse`); "instance:…" reads the features too.
        seed: the seed of the noise.
    """
    source, out = Path(source_path), Path(out_path)
    spec = spec if isinstance(spec, noise.Spec) else noise.parse(spec)
    check_paths(source, out)
    if not is_known(source):
        raise InputError(f"{source} is of another form; pass a CSV, Parquet or npz file")
    labels = opened(source, label_column)
    _check_true(source, labels)
    with naming(source):
        values = labels.values
        if values.dtype.kind not in "US":
            check_whole("labels", values)
        check_distinct("labels", values)
        classes, old = np.unique(values, return_inverse=True)
        if len(classes) < 2:
            raise InputError(f"the labels hold only one class ({classes[0]!s}); there is nothing to confuse it with")
    names, inputs = _look(source, label_column, spec.kind, tuple(str(c) for c in classes.tolist()))
    noisy = noise.corrupt(old, spec, num_classes=len(names), class_names=names, inputs=inputs, seed=seed)
    new = noisy.labels.numpy()
    with replacing(out) as temporary:
        labels.write(temporary, classes[new], np.ones(len(new), bool), None if labels.true_name else TRUE_COLUMN)
    return Corruption(out, len(new), int((old != new).sum()), names, noisy.transition)


def _look(source: Path, label: str | None, kind: str, names: tuple[str, ...]) -> tuple[tuple[str, ...], Any]:
    """The class names, as the file may have better ones than its labels, and the inputs: what this noise looks at."""
    needs = noise.KINDS[kind][1]
    if needs == "neither":
        return names, None
    if needs == "values":
        return names, load(source, label_column=label).inputs
    try:
        example = load(source, label_column=label, limit=1)
    except InputError:  # inputs that cannot be read: their labels can be corrupted all the same
        return names, None
    if is_table(example.inputs):
        return names, None
    return (example.class_names if len(example.class_names) == len(names) else names), example.inputs


def _check_true(source: Path, labels: Labels) -> None:
    """Raise an InputError where a file has true labels that differ from its labels: it is noisy already."""
    has_true = labels.name if labels.name.lower() in TRUE_KEYS else labels.true_name
    if has_true is not None and (labels.true_values is None or not np.array_equal(labels.true_values, labels.values)):
        raise InputError(
            f"{source} has noisy labels already ({has_true!r} differs from the labels); corrupt a clean file"
        )

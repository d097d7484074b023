"""evidence.npz in a run's folder: what the networks said of each label, so that it can be judged again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from noiseproof import files
from noiseproof.auditing.posterior import NoiseModel
from noiseproof.data import LabeledData
from noiseproof.errors import InputError, damage
from noiseproof.runs.label_report import Basis, LabelReport, assemble

EVIDENCE = "evidence.npz"
_ARRAYS = {
    "labels": "i",
    "predicted": "f",
    "transition": "f",
    "fitted": "f",
    "interval": "f",
    "split": "U",
}


def save_evidence(path: Path, report: LabelReport) -> None:
    """Write the predictions (float16), the fitted noise model and the splits of a run's report, atomically."""
    assert report.basis is not None
    model, evidence = report.basis
    arrays = {
        "labels": report.labels,
        "predicted": np.stack([one.astype(np.float16) for one in evidence]),
        "transition": model.transition,
        "fitted": np.append(model.exponents, model.sharpness),
        "interval": np.array(report.interval),
        "split": np.asarray(report.split).astype(str),
    }

    def write(temporary: Path) -> None:
        with open(temporary, "wb") as file:
            np.savez(file, allow_pickle=False, **arrays)

    files.write_atomically(path, write)


def read_evidence(run: Path, data: LabeledData) -> LabelReport:
    """The report of a run's folder, of the data it was trained on.

    Raises:
        InputError: there is none, it is damaged, or of other data.
    """
    path = run / EVIDENCE
    if not path.is_file():
        raise InputError(f"there is no {path}; pass the folder of a finished run of fit")
    with damage(f"{path} is damaged", "run fit again"), open(path, "rb") as file:
        stored = np.load(file, allow_pickle=False)
        arrays = {name: stored[name] for name in _ARRAYS}
    labels, fitted = arrays["labels"], arrays["fitted"]
    shapes = _shapes(len(data), data.num_classes, fitted.size - 1)
    sound = all(arrays[name].dtype.kind == kind for name, kind in _ARRAYS.items())
    if not sound or any(arrays[name].shape != shape for name, shape in shapes.items()):
        raise InputError(
            f"{path} is not of this data: {len(data):,} labels of {data.num_classes} classes; run fit again"
        )
    if not np.array_equal(labels, data.labels.numpy()):
        raise InputError(f"the labels of the data are not those the run in {run} was begun with; run fit again")
    model = NoiseModel(fitted[:-1].astype(np.float32), arrays["transition"], float(fitted[-1]))
    basis = Basis(model, list(arrays["predicted"].astype(np.float32)))
    low, high = arrays["interval"].tolist()
    truth = None if data.true_labels is None else data.true_labels.numpy()
    return assemble(
        labels, data.class_names, basis, (low, high),
        ids=data.ids, split=arrays["split"].astype(object), true_labels=truth, data=data,
    )  # fmt: skip


def _shapes(n: int, K: int, models: int) -> dict[str, Sequence[int]]:
    return {
        "labels": (n,), "predicted": (models, n, K), "transition": (K, K), "fitted": (models + 1,), "interval": (2,),
        "split": (n,),
    }  # fmt: skip

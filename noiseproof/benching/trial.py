"""One cell of a comparison: a call of `fit`, what is worth knowing of it, and what it said of the examples held out.

source   how to read the data: `data`, a name or a path, and the options of its reader
noise    "none", "symmetric:0.4", …, or "labels:FILE:COLUMN": other labels of the same examples, e.g. people's;
         None: the labels as they are, of which nothing is known
limit    how many training examples; None for all
tested   how many test examples; None for all
seed     of the subset, the noise and the run: methods are compared on the same examples, noise and order
method   as it was asked for; `options` is it in full, with every default: other defaults are another cell
fit      the arguments of `fit`
budget   "epochs": all methods get as many; "time": as many as fit into the processor time of ce
"""

from __future__ import annotations

import hashlib
import resource
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from noiseproof import files
from noiseproof.benching.cells import Cell, key
from noiseproof.data import LabeledData
from noiseproof.errors import InputError
from noiseproof.runs.result import FitResult
from noiseproof.training.fit import fit

Sets = Callable[[Cell], tuple[LabeledData, LabeledData | None]]  # a cell's training set, corrupted, and its test set
HELD_OUT = "held-out"


def trial(sets: Sets, folder: Path, device: str, cell: Cell) -> dict[str, Any]:
    """Train a cell; its figures, and in `folder` what the model says of the examples held out.

    A method that fails, e.g. one that diverges, is a result too: `failed`, with the sentence it failed with.
    """
    train, test = sets(cell)
    _warm_up()
    _forget_peak()
    began = time.process_time()
    try:
        result = fit(data=train, test=test, method=cell["options"], seed=cell["seed"], device=device, **cell["fit"])
    except InputError as error:
        return {"failed": str(error)}
    figures = {"processor": time.process_time() - began, "peak_mb": _peak() / 2**20} | of_fit(result)
    figures |= {"f1": None, "estimated": result.report.noise_rate}
    if result.report.true_labels is not None:
        figures["f1"] = result.report.summary()["known"]["f1"]
    if result.run.val is not None:
        save_held_out(folder, cell, result)
    return figures


def of_fit(result: FitResult) -> dict[str, Any]:
    """The figures of a run.

    Returns:
        last, best, kept: test accuracy at the last epoch, at the best by held-out noisy labels, of the model kept;
        fitted, memorised: of the noisy labels, at the last epoch; selected: the share of the examples it visited;
        agreed, agreed_loss: with the held-out noisy labels, of the model kept; auroc, auprc: of the suspicion for
        finding the wrong training labels, None where all are right; noise: their share; seconds: spent in steps.
    """
    summary = result.summary()
    last, final, best = summary["last"], summary["final"], summary.get("best", {})
    figures = {
        "last": last.get("test_accuracy"), "best": best.get("test_accuracy"), "kept": final.get("test_accuracy"),
        "fitted": last.get("train_accuracy"), "memorised": last.get("train_memorised"),
        "selected": last["examples"] / len(result.run.data), "seconds": last["seconds"],
        "agreed": final.get("val_accuracy"), "agreed_loss": final.get("val_loss"),
    }  # fmt: skip
    trained = result.split == "train"
    data = result.data
    wrong = np.zeros(len(data), bool) if data.wrong is None else data.wrong.numpy()
    return figures | find_wrong(wrong[trained], result.beliefs.suspicion.numpy()[trained])


def find_wrong(wrong: np.ndarray, suspicion: np.ndarray) -> dict[str, float | None]:
    """How well the suspicion (n,) finds the labels that are wrong (n,): areas under ROC and precision-recall curves."""
    from sklearn.metrics import average_precision_score, roc_auc_score

    if not wrong.any():
        return {"auroc": None, "auprc": None, "noise": 0.0}
    return {
        "auroc": float(roc_auc_score(wrong, suspicion)),
        "auprc": float(average_precision_score(wrong, suspicion)),
        "noise": float(wrong.mean()),
    }


def save_held_out(folder: Path, cell: Cell, result: FitResult) -> None:
    """Keep what the model says of the examples held out, and their labels."""
    assert result.run.val is not None
    said = result.run.predict(result.run.val).numpy().astype(np.float16)  # (m, K)
    labels = result.run.val.labels.numpy()

    def write(path: Path) -> None:
        with open(path, "wb") as file:
            np.savez_compressed(file, probability=said, labels=labels)

    files.write_atomically(_held_out_of(folder, cell), write)


def held_out(folder: Path, cell: Cell) -> tuple[np.ndarray, np.ndarray] | None:
    """Predictions (m, K) and labels (m,) of the examples a cell held out; None where there are none."""
    path = _held_out_of(folder, cell)
    if not path.is_file():
        return None
    with np.load(path, allow_pickle=False) as kept:
        return kept["probability"].astype(np.float32), kept["labels"]


def _held_out_of(folder: Path, cell: Cell) -> Path:
    return folder / HELD_OUT / f"{hashlib.blake2b(work_of(cell).encode(), digest_size=12).hexdigest()}.npz"


def work_of(cell: Cell) -> str:
    """What a cell does, whatever budget it is counted to: equal for equal runs."""
    return key({name: value for name, value in cell.items() if name != "budget"})


@cache
def _warm_up() -> None:
    """A run of no consequence: what a process does once, imports and compiling, is not the cost of its first cell."""
    data = LabeledData(np.arange(400, dtype=np.float32).reshape(100, 4), np.arange(100) % 2)
    fit(model="mlp(widths=[4])", data=data, method="ce", test=data, val=0.5, epochs=1, lr=1e-3)


def _forget_peak() -> None:
    """Let the peak of this process's memory begin anew, where the system can (Linux)."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def _peak() -> int:
    """The largest memory of this process, in bytes: since `_forget_peak` on Linux, else since it began."""
    try:
        status = Path("/proc/self/status").read_text()
        return 1024 * int(status.partition("VmHWM:")[2].split()[0])
    except (OSError, IndexError):
        unit = 1 if sys.platform == "darwin" else 1024
        return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

"""What `fit` returns: the model, its history, and what it came to believe of the labels."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import nn

from noiseproof import files
from noiseproof.data import LabeledData
from noiseproof.method import Beliefs, Method, Run
from noiseproof.runs.evidence import EVIDENCE, save_evidence
from noiseproof.runs.folder import RunFolder
from noiseproof.runs.label_report import LabelReport
from noiseproof.runs.trained import Predictor

if TYPE_CHECKING:
    from noiseproof.runs.export import Exported


def write_figures(folder: Path, history: list[dict[str, Any]], summary: dict[str, Any]) -> None:
    """Write history.jsonl and summary.json, each atomically."""
    RunFolder(folder).write_history(history)
    files.write_text(folder / "summary.json", json.dumps(summary, indent=2) + "\n")


@dataclass(repr=False)
class FitResult:
    """The outcome of a run.

    `history` has a record for each epoch; `summary()` the three figures worth reporting: the last epoch, the best epoch
    by (noisy) validation accuracy, and the model that was kept. Under torchrun, what it says of single examples
    (`beliefs`, `split`, `losses`, `report`) is in the main process alone; in the others it is None.
    """

    run: Run
    method: Method
    predictor: Predictor
    data: LabeledData  # as given to `fit`, with the examples that were held out
    beliefs: Beliefs  # of `data`, in its order: soft_label (n, K), suspicion (n,)
    split: np.ndarray  # (n,) "train" or "val": where each example of `data` went
    losses: np.ndarray  # (m,) −log p of the label, of each example trained on, by the model as returned
    final: dict[str, float]  # figures of the model as returned, and the epoch it is of
    report: LabelReport  # which labels of `data` are wrong
    test: LabeledData | None
    test_report: LabelReport | None  # of `test`
    kept: int | None = None  # the epoch whose weights the method went back to, if it did

    def __repr__(self) -> str:
        figures = {key: round(value, 4) for key, value in self.final.items() if key.endswith("accuracy")}
        return f"FitResult({self.method.title()}, {self.run.epoch} epochs, {figures})"

    @property
    def model(self) -> nn.Module:
        """The trained model (the first, where the method trains two). It takes normalised inputs."""
        return self.run.model

    @property
    def history(self) -> list[dict[str, Any]]:
        """One record for each epoch."""
        return self.run.history

    def predict_proba(self, inputs: Any) -> np.ndarray:
        """Class probabilities (n, K) of raw inputs, of the kind the training set had: see `Predictor`."""
        return self.predictor.predict_proba(inputs)

    def predict(self, inputs: Any) -> np.ndarray:
        """The likeliest class (n,) of raw inputs."""
        return self.predictor.predict(inputs)

    def export(self, path: str | Path, **options: Any) -> Exported:
        """Write the model as .onnx, .pt2 or .safetensors, with its normalisation; options as of `nf.export`."""
        return self.predictor.export(path, **options)

    def summary(self) -> dict[str, dict[str, Any]]:
        """The `last` epoch, the `best` by validation accuracy (absent without a validation set), the `final` model."""
        chosen: dict[str, dict[str, Any]] = {"last": self.history[-1], "final": self.final}
        if "val_accuracy" in self.history[-1]:
            chosen["best"] = max(self.history, key=lambda record: record["val_accuracy"])
        return chosen

    def save(self, out: str | Path, *, score_test: bool = False) -> None:
        """Write history, summary, weights, labels, curves and report to the folder `out`, each file atomically.

        `score_test`: list the test set's labels, too.
        """
        from noiseproof.runs.plots import plot_run
        from noiseproof.runs.report import write_report

        folder = Path(out)
        write_figures(folder, self.history, self.summary())
        self.predictor.save(folder / Predictor.file)
        others = [self.test_report] if score_test and self.test_report is not None else []
        self.report.to_parquet(folder / "labels.parquet", *others)
        save_evidence(folder / EVIDENCE, self.report)
        curves = folder / "curves.png"
        wrong = None if self.run.data.wrong is None else self.run.data.wrong.numpy()
        look = partial(plot_run, self.history, self.losses, wrong, title=self.method.title(), kept=self.kept)
        files.write_atomically(curves, look)
        write_report(folder / "report.html", self, picture=curves)

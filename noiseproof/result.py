"""What `fit` returns: the model, its history, and what it came to believe of the labels."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from noiseproof import checkpoint, files
from noiseproof.data import LabeledData
from noiseproof.errors import InputError
from noiseproof.evaluate import eval_mode, measure, predict_all
from noiseproof.method import Beliefs, Method, Run


@dataclass
class FitResult:
    """The outcome of a run.

    `history` has a record for each epoch; `summary()` the three figures worth reporting: the last epoch, the best epoch
    by (noisy) validation accuracy, and the model that was kept.
    """

    run: Run
    method: Method
    beliefs: Beliefs  # of the training set: soft_label (n, K), suspicion (n,)
    final: dict[str, float]  # figures of the model as returned
    val: LabeledData | None
    held_out: Beliefs | None  # of the validation set

    @classmethod
    def of(cls, run: Run, method: Method, val: LabeledData | None, test: LabeledData | None) -> FitResult:
        """The result of a finished run."""
        final: dict[str, float] = {}
        for name, data in (("val", val), ("test", test)):
            if data is not None:
                final.update({f"{name}_{key}": value for key, value in measure(method, run, data).items()})
        beliefs = method.beliefs(run) or _from_predictions(method, run, run.data)
        return cls(run, method, beliefs, final, val, None if val is None else _from_predictions(method, run, val))

    @property
    def model(self) -> nn.Module:
        """The trained model (the first, where the method trains two). It takes normalised inputs."""
        return self.run.model

    @property
    def history(self) -> list[dict[str, Any]]:
        """One record for each epoch."""
        return self.run.history

    @torch.inference_mode()
    def predict_proba(self, inputs: Tensor | np.ndarray) -> np.ndarray:
        """Class probabilities (n, K) of raw inputs, of the kind the training set had."""
        given = torch.as_tensor(inputs)
        if tuple(given.shape[1:]) != self.run.data.input_shape:
            raise InputError(
                f"inputs must be (n, {', '.join(map(str, self.run.data.input_shape))}), got {tuple(given.shape)}; "
                "give them as the training set had them"
            )
        if not given.is_floating_point() and given.dtype != torch.uint8:
            given = given.float()
        with eval_mode(self.run.models):
            blocks = [
                self.method.predict(self.run, self.run.normalize(block.to(self.run.device))).float().cpu()
                for block in given.split(1024)
            ]
        return torch.cat(blocks).numpy() if blocks else np.zeros((0, self.run.num_classes), dtype=np.float32)

    def predict(self, inputs: Tensor | np.ndarray) -> np.ndarray:
        """The likeliest class (n,) of raw inputs."""
        return self.predict_proba(inputs).argmax(axis=1)

    def summary(self) -> dict[str, dict[str, Any]]:
        """The `last` epoch, the `best` by validation accuracy (absent without a validation set), the `final` model."""
        chosen: dict[str, dict[str, Any]] = {"last": self.history[-1], "final": self.final}
        if "val_accuracy" in self.history[-1]:
            chosen["best"] = max(self.history, key=lambda record: record["val_accuracy"])
        return chosen

    def save(self, out: str | Path) -> None:
        """Write history, summary, weights, labels, curves and report to the folder `out`, each file atomically."""
        from noiseproof.plots import plot_history
        from noiseproof.report import write_report

        folder = Path(out)
        lines = "".join(json.dumps(record) + "\n" for record in self.history)
        files.write_text(folder / "history.jsonl", lines)
        files.write_text(folder / "summary.json", json.dumps(self.summary(), indent=2) + "\n")
        checkpoint.save(
            folder / "model.safetensors",
            {
                "models": self.run.models.state_dict(),
                "normalize": self.run.normalize.state_dict(),
                "class_names": list(self.run.data.class_names),
            },
        )
        files.write_atomically(folder / "labels.parquet", self._write_labels)
        curves = folder / "curves.png"
        files.write_atomically(curves, lambda path: plot_history({self.method.title(): self.history}, path))
        write_report(folder / "report.html", self, picture=curves)

    def _write_labels(self, path: Path) -> None:
        """One row for each training (and held-out) example: its label, how suspicious it is, and what it may be."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        parts = [_label_rows(self.run.data, self.beliefs, "train")]
        if self.val is not None and self.held_out is not None:
            parts.append(_label_rows(self.val, self.held_out, "val"))
        table = pa.concat_tables([pa.table(part) for part in parts])
        pq.write_table(table.sort_by([("suspicion", "descending")]), path)


def _from_predictions(method: Method, run: Run, data: LabeledData) -> Beliefs:
    """Beliefs of a method that keeps none: a label is as suspicious as the model finds it unlikely."""
    probability = predict_all(method, run, data)  # (n, K)
    return Beliefs(probability, 1 - probability.gather(1, data.labels[:, None]).squeeze(1))


def _label_rows(data: LabeledData, beliefs: Beliefs, split: str) -> dict[str, Any]:
    names = np.asarray(data.class_names, dtype=object)
    confidence, suggested = beliefs.soft_label.float().cpu().max(dim=1)
    rows = {
        "id": [str(i) for i in (range(len(data)) if data.ids is None else data.ids)],
        "split": [split] * len(data),
        "label": names[data.labels.numpy()],
        "suggested": names[suggested.numpy()],
        "confidence": confidence.numpy(),
        "suspicion": beliefs.suspicion.float().cpu().numpy(),
    }
    if data.true_labels is not None:
        rows["true_label"] = names[data.true_labels.numpy()]
    return rows

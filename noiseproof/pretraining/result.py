"""What `pretrain` returns: a backbone, its history, and pictures of what it finds alike."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from noiseproof.data import LabeledData
from noiseproof.method import Method, Run
from noiseproof.models import Backbone
from noiseproof.runs.result import write_figures
from noiseproof.runs.trained import Features


@dataclass(repr=False)
class PretrainResult:
    """The outcome of pre-training.

    `features(data)` gives features (n, F); `history` has a record for each epoch, some with the probes' figures,
    `knn_accuracy` and `linear_accuracy`.
    """

    run: Run
    method: Method
    features: Features
    bank: LabeledData  # of the probes, under its true labels
    queries: LabeledData
    at_random: dict[str, float]  # figures of the probes before the first step; none if they were off

    def __repr__(self) -> str:
        last = self.history[-1].get("knn_accuracy")
        knn = "" if last is None else f", k-NN {100 * last:.1f} %"
        return f"PretrainResult({self.method.title()}, {self.run.epoch} epochs{knn})"

    @property
    def backbone(self) -> Backbone:
        """The trained network, with its projection head. It takes normalised inputs."""
        return self.features.backbone

    @property
    def history(self) -> list[dict[str, Any]]:
        """One record for each epoch."""
        return self.run.history

    def summary(self) -> dict[str, Any]:
        """The last epoch's figures, the probes' among them, and the probes' at random weights."""
        return {"last": self.history[-1], "random": self.at_random}

    def save(self, out: str | Path) -> None:
        """Write history, summary, backbone, pictures and report to the folder `out`, each file atomically."""
        from noiseproof.pretraining.report import write_report

        folder = Path(out)
        write_figures(folder, self.history, self.summary())
        self.features.save(folder / Features.file)
        write_report(folder, self)

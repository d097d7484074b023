"""What is measured after each epoch, and of the finished models: accuracies, losses, memorised noise."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from noiseproof import distributed
from noiseproof.auditing.scales import on_scale_of
from noiseproof.data import LabeledData
from noiseproof.data.input_form import InputForm
from noiseproof.method import Beliefs, Method, Predictions, Run
from noiseproof.models.inference import block_size, losses
from noiseproof.runs.result import FitResult
from noiseproof.runs.trained import Predictor
from noiseproof.training.run_audit import audit_run, others_say


class Tally:
    """Adds up predictions over blocks of a data set.

    Figures: accuracy and mean −log p against the observed labels, and, where the true ones are known, accuracy against
    them and `memorised`, the share of the wrongly labelled examples on which the prediction repeats the wrong label.
    """

    def __init__(self, data: LabeledData) -> None:
        self.data = data
        self.count = self.loss = self.right = self.truly = self.wrong = self.repeated = 0.0

    def add(self, rows: Tensor, probability: Tensor) -> None:
        """Count the examples `rows` (B,), predicted with `probability` (B, K)."""
        label, guess = self.data.labels[rows], probability.argmax(dim=1)  # (B,)
        self.count += len(rows)
        self.loss += losses(probability, label).sum().item()
        self.right += (guess == label).sum().item()
        if self.data.true_labels is not None:
            true_label = self.data.true_labels[rows]
            self.truly += (guess == true_label).sum().item()
            self.wrong += (label != true_label).sum().item()
            self.repeated += ((label != true_label) & (guess == label)).sum().item()

    def of(self, rows: Tensor, probability: Tensor) -> Tally:
        """Count the examples `rows` (m,) block by block, as they are predicted."""
        size = block_size(self.data.input_shape)
        for block, said in zip(rows.split(size), probability.split(size), strict=True):
            self.add(block, said)
        return self

    def figures(self, name: str) -> dict[str, float]:
        """What the counts come to, by `name` of the set and figure."""
        figures = {"loss": self.loss / self.count, "accuracy": self.right / self.count}
        if self.data.true_labels is not None:
            figures["true_accuracy"] = self.truly / self.count
            if self.wrong:
                figures["memorised"] = self.repeated / self.wrong
        return {f"{name}_{key}": value for key, value in figures.items()}


class Evaluation:
    """What is measured after each epoch: the training set, or its rows `index`, and the sets that are given."""

    def __init__(self, index: Tensor | None, **others: LabeledData | None) -> None:
        self.index = index
        self.others = {name: data for name, data in others.items() if data is not None}

    def begin(self, run: Run) -> None:
        """Make room for what the models will say of the training examples looked at, and of those held out."""
        looked_at = len(run.data) if self.index is None else len(self.index)
        sizes = {"train": looked_at} | ({"val": len(self.others["val"])} if "val" in self.others else {})
        run.told = {name: torch.zeros(size, run.num_classes) for name, size in sizes.items()}

    def __call__(self, run: Run) -> dict[str, float]:
        """The figures, by set and name, e.g. `val_accuracy`; leaves predictions in `run.predicted`, `run.held_out`."""
        figures = {}
        index = torch.arange(len(run.data)) if self.index is None else self.index
        if len(index):
            probability = run.predict(index=index)
            run.predicted = Predictions(index, probability)
            run.told["train"] += probability
            figures = Tally(run.data).of(index, probability).figures("train")
        for name, data in self.others.items():
            probability = run.predict(data)
            if name == "val":
                run.held_out = probability
            if name in run.told:
                run.told[name] += probability
            figures |= Tally(data).of(torch.arange(len(data)), probability).figures(name)
        return figures

    def parts(self, run: Run, rows: tuple[Tensor, Tensor | None], predicted: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Evidence (positions in the whole data, predictions) of examples held out, looked at, and of the others.

        What was looked at in every epoch has the mean of what the models said: early on, they had not learned its label
        by heart. Of the others there is the last word alone, `predicted` (n, K).
        """
        trained, held_out = rows
        index = torch.arange(len(trained)) if self.index is None else self.index
        rest = torch.ones(len(trained), dtype=torch.bool)
        rest[index] = False
        found = [] if held_out is None else [(held_out, run.told["val"] / run.epoch)]
        found += [(trained[index], run.told["train"] / run.epoch), (trained[rest], predicted[rest])]
        return [part for part in found if len(part[0])]


def conclude(
    run: Run,
    method: Method,
    evaluate: Evaluation,
    data: LabeledData,
    rows: tuple[Tensor, Tensor | None],
    test: LabeledData | None,
    architecture: str | None,
    kept: int | None,
    features: str = "auto",
) -> FitResult:
    """The result of a finished run on `data`, whose `rows` were trained on and held out.

    Predictions are made by all processes and kept by the main one, which alone audits the labels.
    `kept`: of which epoch; `features`: what its audit goes by beside the networks, as of `others_say`.
    """
    run.autocast = None  # the models are judged as they will be asked from now on
    sets = {name: one for name, one in (("train", run.data), ("val", run.val), ("test", test)) if one is not None}
    said = {name: run.predict(one, everywhere=False) for name, one in sets.items()}  # (m, K)

    def measured() -> dict[str, float]:
        figures: dict[str, float] = {"epoch": kept or run.epoch}
        for name, one in sets.items():
            tally = Tally(one.clean() if name == "test" else one)
            tally.add(torch.arange(len(one)), said[name])
            figures |= tally.figures(name)
        return figures

    final = distributed.from_main(measured)
    predictor = Predictor(run.models, run.normalize, data.class_names, InputForm.of(run.data), architecture)
    if not distributed.is_main():
        elsewhere: Any = None
        return FitResult(
            run, method, predictor, data, elsewhere, elsewhere, elsewhere, final, elsewhere, test, None, kept
        )
    predicted = said["train"]
    trained = method.beliefs(run, predicted) or Beliefs.of(predicted, run.data.labels)
    beliefs, split = trained, np.full(len(data), "train", dtype=object)
    if rows[1] is not None and run.val is not None:
        beliefs = _interleave(rows[0], trained, rows[1], _untrained(said["val"], run.val.labels, trained))
        split[rows[1].numpy()] = "val"
    report = audit_run(data, evaluate.parts(run, rows, predicted), split, others_say(data, features))
    tested = None if test is None else audit_run(test, [(torch.arange(len(test)), said["test"])], "test")
    return FitResult(
        run, method, predictor, data, beliefs, split, losses(predicted, run.data.labels).numpy(), final,
        report, test, tested, kept,
    )  # fmt: skip


def _untrained(probability: Tensor, labels: Tensor, trained: Beliefs) -> Beliefs:
    """Beliefs of examples that were not trained on: by predictions, on the scale of those that were.

    A network is as sure of its mistakes as of anything: by itself, 1 − p_y of these would stand above all else.
    """
    given = probability.gather(1, labels[:, None]).squeeze(1)  # (m,)
    suspicion = on_scale_of(trained.suspicion.float().cpu().numpy(), -given.numpy())
    return Beliefs(probability, torch.from_numpy(suspicion).float())


def _interleave(rows: Tensor, beliefs: Beliefs, other_rows: Tensor, others: Beliefs) -> Beliefs:
    """Beliefs of two parts of a data set, each row in its place."""
    soft_label = torch.empty(len(rows) + len(other_rows), beliefs.soft_label.shape[1])  # (n, K)
    suspicion = torch.empty(len(soft_label))  # (n,)
    for index, part in ((rows, beliefs), (other_rows, others)):
        soft_label[index] = part.soft_label.float().cpu()
        suspicion[index] = part.suspicion.float().cpu()
    return Beliefs(soft_label, suspicion)

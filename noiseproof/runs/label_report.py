"""The answer of an audit: which labels are wrong, what they should be, and how noisy the set is.

`LabelReport` holds it for every example, on one scale; labels.parquet, pages and the run's own report come from it.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from noiseproof import checks, files
from noiseproof.auditing import decision, judging, posterior
from noiseproof.auditing.blocks import blocks
from noiseproof.auditing.calibration import Reliability, reliability
from noiseproof.data.input_checks import check_rows
from noiseproof.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

    from noiseproof.data import LabeledData

CANDIDATES = 5
CLEAR = 0.2  # how far the likeliest class must lie before the next for advice
SUMMARY = "audit.json"


class Basis(NamedTuple):
    """What labels were judged by: a noise model, and predictions of them."""

    model: posterior.NoiseModel
    evidence: Sequence[np.ndarray]  # each (n, K)


@dataclass(frozen=True)
class Pair:
    """Two classes that are taken for each other."""

    given: str
    right: str
    count: float  # how many labels, by expectation


@dataclass(eq=False, repr=False)
class LabelReport:
    """What is known of each label.

    Attributes:
        labels: (n,) the given ones, as positions among `class_names`.
        class_names: K names.
        scores: (n,) float32, the probability that the label is wrong.
        issues: (n,) bool, those to call wrong.
        suggested: (n,) the likeliest right class, as a position; `confidence` (n,) float32 its probability.
        joint: (K, K) how many examples of each class (rows) carry each label (columns), by expectation.
        interval: of the noise rate.
        ids, split, true_labels: of the examples, where known.
        group: (n,) number of the group of near-duplicates with different labels, −1 for none.
        off_topic: (n,) bool, far from everything else.
    """

    labels: np.ndarray
    class_names: tuple[str, ...]
    scores: np.ndarray
    issues: np.ndarray
    suggested: np.ndarray
    confidence: np.ndarray
    joint: np.ndarray
    interval: tuple[float, float]
    basis: Basis | None = None
    ids: Sequence[Any] | None = None
    split: np.ndarray | None = None
    true_labels: np.ndarray | None = None
    group: np.ndarray | None = None
    off_topic: np.ndarray | None = None
    known: np.ndarray | None = None
    notes: dict[str, Any] = field(default_factory=dict)  # how it was made, for the page and audit.json
    data: LabeledData | None = None  # the examples, for pictures

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        low, high = self.interval
        return (
            f"LabelReport({len(self):,} labels, {self.issues.sum():,} look wrong, "
            f"noise {100 * self.noise_rate:.1f} % ({100 * low:.1f}–{100 * high:.1f} %))"
        )

    @property
    def noise_rate(self) -> float:
        """The share of wrong labels, by expectation."""
        return float(self.scores.mean(dtype=np.float64))

    @property
    def class_noise(self) -> np.ndarray:
        """(K,) the share of wrong labels among those given each class."""
        return 1 - np.diag(self.inverse)

    @property
    def transition(self) -> np.ndarray:
        """(K, K) p(given | right), rows sum to 1."""
        return self.joint / np.maximum(self.joint.sum(axis=1, keepdims=True), 1e-12)

    @property
    def inverse(self) -> np.ndarray:
        """(K, K) p(right | given), rows (given) sum to 1."""
        return (self.joint / np.maximum(self.joint.sum(axis=0, keepdims=True), 1e-12)).T

    @property
    def pairs(self) -> list[Pair]:
        """Classes taken for others, the most frequent confusion first; those of half a label or more."""
        right, given = np.nonzero((self.joint >= 0.5) & ~np.eye(len(self.joint), dtype=bool))
        count = self.joint[right, given]
        names = self.class_names
        order = np.argsort(-count, kind="stable")
        return [Pair(names[given[i]], names[right[i]], float(count[i])) for i in order]

    @property
    def advice(self) -> np.ndarray:
        """(n,) "relabel", "keep", or "cannot tell" where no class lies clearly before the next."""
        _, likely = self.candidates
        clear = likely[:, 0] - likely[:, 1] >= CLEAR
        chosen = np.where(clear & (self.suggested != self.labels), "relabel", "cannot tell")
        return np.where(self.issues, chosen, "keep").astype(object)

    @property
    def kind(self) -> np.ndarray:
        """(n,) "label", "off-topic", "duplicate", or "" where nothing is found."""
        kind = np.where(self.issues, "label", "").astype(object)
        if self.group is not None:
            kind[(self.group >= 0) & (kind == "")] = "duplicate"
        if self.off_topic is not None:
            kind[self.off_topic] = "off-topic"
        return kind

    @cached_property
    def candidates(self) -> tuple[np.ndarray, np.ndarray]:
        """The up to five likeliest right classes (n, 5) and their probabilities, the likeliest first."""
        k = min(CANDIDATES, len(self.class_names))
        classes, likely = np.empty((len(self), k), np.int32), np.empty((len(self), k), np.float32)
        for rows in blocks(len(self), len(self.class_names)):
            soft = self.soft_labels(np.arange(rows.start, rows.stop))
            classes[rows] = at = np.argsort(-soft, axis=1, kind="stable")[:, :k]
            likely[rows] = np.take_along_axis(soft, at, axis=1)
        return classes, likely

    def soft_labels(self, rows: Any = None) -> np.ndarray:
        """The probability (m, K) of each class to be the right one, of some examples, by default of all."""
        rows = np.arange(len(self)) if rows is None else check_rows("rows", rows, len(self))
        if self.basis is None:
            soft = np.zeros((len(rows), len(self.class_names)), np.float32)
        else:
            model, evidence = self.basis
            soft = model.posterior([np.asarray(one[rows], np.float32) for one in evidence], self.labels[rows])
        if self.known is not None:
            seen = self.known[rows] >= 0
            soft[seen] = np.eye(len(self.class_names), dtype=np.float32)[self.known[rows][seen]]
        return soft

    def decide(self, **how: Any) -> LabelReport:
        """The report with issues chosen anew: by the best expected F1, or precision=, recall=, top= or threshold=."""
        report = copy.copy(self)
        report.issues = decision.decided(self.scores, **how)
        return report

    def reliability(self) -> Reliability | None:
        """How well the scores are calibrated, where the true labels are known."""
        return None if self.true_labels is None else reliability(self.scores, self.labels != self.true_labels)

    def summary(self) -> dict[str, Any]:
        """The answer in figures, as JSON can hold them."""
        low, high = self.interval
        found: dict[str, Any] = {
            "labels": len(self),
            "issues": int(self.issues.sum()),
            "expected_precision": float(self.scores[self.issues].mean()) if self.issues.any() else None,
            "noise_rate": self.noise_rate,
            "noise_rate_interval": [low, high],
            "class_noise": {name: float(rate) for name, rate in zip(self.class_names, self.class_noise, strict=True)},
            "pairs": [astuple(pair) for pair in self.pairs[:20]],
            "off_topic": 0 if self.off_topic is None else int(self.off_topic.sum()),
            "duplicates": 0 if self.group is None else int((self.group >= 0).sum()),
        }
        if self.true_labels is not None:
            wrong = self.labels != self.true_labels
            hits = int((wrong & self.issues).sum())
            calibration = self.reliability()
            assert calibration is not None
            found["known"] = {
                "noise_rate": float(wrong.mean()),
                "precision": hits / max(1, int(self.issues.sum())),
                "recall": hits / max(1, int(wrong.sum())),
                "f1": 2 * hits / max(1, int(self.issues.sum() + wrong.sum())),
                "calibration_error": calibration.error,
            }
        return found | self.notes

    def columns(self) -> dict[str, Any]:
        """The columns of labels.parquet by name, in the order of the examples."""
        names = np.asarray(self.class_names, dtype=object)
        n = len(self)
        classes, likely = self.candidates
        found = {
            "id": [str(i) for i in (range(n) if self.ids is None else self.ids)],
            "split": np.full(n, "train", dtype=object) if self.split is None else self.split,
            "label": names[self.labels],
            "probability_wrong": self.scores,
            "issue": self.issues,
            "kind": self.kind,
            "suggested": names[self.suggested],
            "confidence": self.confidence,
            "advice": self.advice,
            "candidates": list(names[classes]),
            "candidate_probabilities": list(likely),
            "group": np.full(n, -1, np.int32) if self.group is None else self.group,
        }
        if self.true_labels is not None:
            found["true_label"] = names[self.true_labels]
        return found

    def to_frame(self) -> pd.DataFrame:
        """A pandas DataFrame with a row for each label, the likeliest wrong first."""
        try:
            import pandas as pd
        except ImportError as error:
            raise InputError("to_frame needs pandas; pip install pandas, or use to_parquet") from error
        return pd.DataFrame(self.columns()).sort_values("probability_wrong", ascending=False, kind="stable")

    def to_parquet(self, path: str | Path, *others: LabelReport) -> None:
        """Write a row for each label, the likeliest wrong first, atomically; with the rows of other reports.

        Ids stay those of the data. Where another report's are among them, as of a test set that counts from 0 too, its
        own are led by their split: test:17.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        tables: list[Mapping[str, Any]] = []
        for report in (self, *others):
            rows = report.columns()
            if any(not set(rows["id"]).isdisjoint(other["id"]) for other in tables):
                rows["id"] = [f"{split}:{name}" for split, name in zip(rows["split"], rows["id"], strict=True)]
            tables.append(rows)
        table = pa.concat_tables([pa.table(dict(rows)) for rows in tables], promote_options="default")
        table = table.sort_by([("probability_wrong", "descending")])
        files.write_atomically(checks.path("path", path), lambda temporary: pq.write_table(table, temporary))

    def to_html(self, path: str | Path) -> None:
        """Write the answer as one self-contained page, atomically."""
        from noiseproof.runs.audit_page import write_audit_page

        write_audit_page(checks.path("path", path), self)

    def save(self, folder: str | Path, command: dict[str, Any] | None = None) -> None:
        """Write labels.parquet, audit.json and report.html to a folder."""
        folder = checks.path("folder", folder)
        self.to_parquet(folder / "labels.parquet")
        text = json.dumps({"command": command, **self.summary()}, indent=2)
        files.write_text(folder / SUMMARY, text + "\n")
        self.to_html(folder / "report.html")

    def apply(self, data: LabeledData, *, confidence: float = 0.0) -> LabeledData:
        """The data under corrected labels: the suggestion where the advice is to relabel, with that confidence or more.

        Raises:
            InputError: it is other data than was audited.
        """
        checks.require(hasattr(data, "with_labels"), "data", data, "the LabeledData that was audited")
        if len(data) != len(self) or not np.array_equal(data.labels.numpy(), self.labels):
            raise InputError(
                f"the report is of {len(self):,} labels, and not those of this data ({len(data):,}); audit it again"
            )
        checks.number("confidence", confidence, 0, 1)
        change = (self.advice == "relabel") & (self.confidence >= confidence)
        return data.with_labels(np.where(change, self.suggested, self.labels))


def assemble(
    labels: np.ndarray,
    class_names: Sequence[str],
    basis: Basis,
    interval: tuple[float, float],
    *,
    known: np.ndarray | None = None,
    how: Mapping[str, Any] | None = None,
    **about: Any,
) -> LabelReport:
    """The report of labels (n,) judged by predictions of them.

    Args:
        known: (n,) the right class of examples that were looked at, −1 elsewhere.
        how: to decide, as of `decision.decided`.
        about: further fields of the report.
    """
    found = judging.judge(basis.model, labels, basis.evidence)
    scores, suggested, confidence = found.wrong, found.suggested, found.confidence
    if known is not None:
        seen = known >= 0
        scores[seen], suggested[seen], confidence[seen] = known[seen] != labels[seen], known[seen], 1.0
    issues = decision.decided(scores, **(how or {}))
    return LabelReport(
        labels, tuple(class_names), scores, issues, suggested, confidence, found.joint, interval, basis,
        known=known, **about,
    )  # fmt: skip

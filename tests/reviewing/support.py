"""Audits to review: a labels.parquet of the form that `fit` and `audit` leave, beside data of every form."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from noiseproof.data import load


def write_labels(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """A labels.parquet of rows that say id, label, suggested and p; all else has a default."""
    full = []
    for row in rows:
        other = row["suggested"] != row["label"]
        one = {
            "split": "train", "issue": row["p"] >= 0.5, "kind": "label" if other else "", "confidence": row["p"],
            "advice": "relabel" if other else "keep",
            "candidates": list(dict.fromkeys([row["suggested"], row["label"]])),
            "group": -1, **row, "probability_wrong": row["p"],
        }  # fmt: skip
        one.setdefault("candidate_probabilities", [one["confidence"], 1 - one["confidence"]][: len(one["candidates"])])
        full.append(one)
    full.sort(key=lambda row: -row["p"])
    text, number = pa.string(), pa.float32()
    kinds = {
        "id": text, "split": text, "label": text, "probability_wrong": number, "issue": pa.bool_(), "kind": text,
        "suggested": text, "confidence": number, "advice": text, "candidates": pa.list_(text),
        "candidate_probabilities": pa.list_(number), "group": pa.int32(),
    }  # fmt: skip
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({name: pa.array([row[name] for row in full], kind) for name, kind in kinds.items()}), path)


def write_audit(folder: Path, rows: Sequence[dict[str, Any]], data: str | Path, **command: Any) -> Path:
    """An audit's folder, of data at a path."""
    write_labels(folder / "labels.parquet", rows)
    (folder / "audit.json").write_text(json.dumps({"command": {"data": str(data), **command}}))
    return folder


def digit_rows(n: int = 300, *, wrong: float = 0.2, seed: int = 0) -> tuple[Any, list[dict[str, Any]]]:
    """Some digits, and what an audit that is often right says of them; a part of the labels is wrong."""
    data, rng = load("digits", limit=n), np.random.default_rng(seed)
    truth = data.labels.numpy()
    false = rng.random(len(truth)) < wrong
    label = np.where(false, (truth + rng.integers(1, 10, len(truth))) % 10, truth)
    p = np.where(false, rng.beta(6, 1.2, len(truth)), rng.beta(0.6, 8, len(truth)))
    suggested = np.where(p > 0.3, np.where(false, truth, (truth + 1) % 10), label)
    names = data.class_names
    rows = []
    for i in range(len(truth)):
        rest = [name for name in names if name not in (names[suggested[i]], names[label[i]])][:3]
        few = list(dict.fromkeys([names[suggested[i]], names[label[i]], *rest]))
        best = float(np.clip(p[i] if suggested[i] != label[i] else 1 - p[i], 0.05, 0.999))
        weights = np.array([0.7, 0.2, 0.07, 0.03])[: len(few) - 1]
        shares = [best, *((1 - best) * weights / weights.sum())]
        rows.append({"id": str(i), "label": names[label[i]], "suggested": names[suggested[i]], "p": float(p[i]),
                     "confidence": best, "candidates": few, "candidate_probabilities": shares,
                     "truth": names[truth[i]]})  # fmt: skip
    return data, rows


def digit_folder(root: Path, n: int = 300, **options: Any) -> tuple[Path, list[dict[str, Any]]]:
    """The same as a folder of PNG files, sorted by their partly wrong labels."""
    data, rows = digit_rows(n, **options)
    for i, row in enumerate(rows):
        row["id"] = f"{row['label']}/{i:04d}.png"
        (root / row["label"]).mkdir(parents=True, exist_ok=True)
        Image.fromarray(data.inputs[i, 0].numpy()).save(root / row["id"])
    return root, rows

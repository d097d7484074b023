"""labels.parquet: what is believed of each example's label."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from noiseproof import files
from noiseproof.data import LabeledData
from noiseproof.method import Beliefs


class Part(NamedTuple):
    """Examples and what is believed of their labels."""

    data: LabeledData
    beliefs: Beliefs
    split: str | np.ndarray  # "train", "val", "test": of all, or of each (n,)


def write(path: Path, *parts: Part) -> None:
    """Write a row for each example, the most suspicious first: its label, how suspicious it is, what it may be.

    Ids stay those of the data. Where a part's are those of another, as of a test set that counts from 0 too, the later
    part's are led by its split: test:17.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    tables: list[dict[str, Any]] = []
    for part in parts:
        rows = columns(*part)
        if any(not set(rows["id"]).isdisjoint(other["id"]) for other in tables):
            rows["id"] = [f"{split}:{name}" for split, name in zip(rows["split"], rows["id"], strict=True)]
        tables.append(rows)
    table = pa.concat_tables([pa.table(rows) for rows in tables], promote_options="default")
    table = table.sort_by([("suspicion", "descending")])
    files.write_atomically(path, lambda temporary: pq.write_table(table, temporary))


def columns(data: LabeledData, beliefs: Beliefs, split: str | np.ndarray) -> dict[str, Any]:
    """The table's columns by name, in the order of the data; the true label where it is known."""
    names = np.asarray(data.class_names, dtype=object)
    confidence, suggested = beliefs.soft_label.float().cpu().max(dim=1)
    rows = {
        "id": [str(i) for i in (range(len(data)) if data.ids is None else data.ids)],
        "split": np.full(len(data), split, dtype=object) if isinstance(split, str) else split,
        "label": names[data.labels.numpy()],
        "suggested": names[suggested.numpy()],
        "confidence": confidence.numpy(),
        "suspicion": beliefs.suspicion.float().cpu().numpy(),
    }
    if data.true_labels is not None:
        rows["true_label"] = names[data.true_labels.numpy()]
    return rows

"""Judge labels again in the light of what was decided: decided ones are known, and the noise is estimated with them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from noiseproof import files
from noiseproof.auditing import posterior
from noiseproof.data import LabeledData
from noiseproof.data.decisions import Decisions, ids_of, known_labels
from noiseproof.runs.label_report import Basis, LabelReport, assemble


def known_of(data: LabeledData, decisions: Decisions) -> np.ndarray:
    """The classes (n,) decided on, −1 where none was, or the example was dropped."""
    found = np.full(len(data), -1)
    left, known = known_labels(data, decisions)
    places = {id: row for row, id in enumerate(ids_of(data))}
    found[[places[id] for id in ids_of(left)]] = known
    return found


def judged_again(report: LabelReport, known: np.ndarray) -> LabelReport:
    """A run's report with right classes known (n,), −1 elsewhere.

    What its networks said stays, and so does how sharply they said it; which class is taken for which is counted anew,
    with the known labels as anchors.
    """
    assert report.basis is not None
    model, evidence = report.basis
    confused = posterior.transition(
        model.right(evidence), report.labels, known, posterior.SURE, posterior.LEAST, posterior.HALF, model.transition
    )
    basis = Basis(replace(model, transition=confused), evidence)
    return assemble(
        report.labels, report.class_names, basis, report.interval, known=known, ids=report.ids, split=report.split,
        true_labels=report.true_labels, data=report.data,
    )  # fmt: skip


def replace_rows(path: Path, report: LabelReport) -> None:
    """Write a labels.parquet anew, atomically; rows that the report does not have stay as they were."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    from noiseproof.data.readers.table_files import read_table

    old = read_table(path)
    new = pa.table(report.columns())
    rest = old.filter(pc.invert(pc.is_in(old.column("id"), value_set=new.column("id").combine_chunks())))
    both = pa.concat_tables([new, rest.select([name for name in new.column_names if name in rest.column_names])],
                            promote_options="permissive").sort_by([("probability_wrong", "descending")])  # fmt: skip
    files.write_atomically(path, lambda temporary: pq.write_table(both, temporary))

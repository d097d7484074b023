"""Predictions and features of files: every form gives the same numbers, in the order of the examples and classes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from noiseproof.data.readers.matrices import read_matrix
from noiseproof.errors import InputError

IDS, NAMES = ["a", "b", "c"], ["cat", "dog"]
P = np.array([[0.9, 0.1], [0.2, 0.8], [0.5, 0.5]], np.float32)


def columns(p: np.ndarray, **more: list[str]) -> pa.Table:
    return pa.table({**more, "dog": p[:, 1], "cat": p[:, 0]})  # in an order of their own


def test_each_form_is_read(tmp_path: Path) -> None:
    turned = [2, 0, 1]
    np.save(tmp_path / "a.npy", P)
    np.savez(tmp_path / "b.npz", p=P.astype(np.float16))
    np.savez(tmp_path / "c.npz", p=P[turned], id=np.array(IDS)[turned])
    pa.csv.write_csv(columns(P), tmp_path / "d.csv")
    pq.write_table(columns(P), tmp_path / "e.parquet")
    pq.write_table(columns(P[turned], id=[IDS[i] for i in turned]), tmp_path / "f.parquet")
    pq.write_table(pa.table({"0": P[:, 0], "1": P[:, 1]}), tmp_path / "g.parquet")  # positions, not names
    for path in sorted(tmp_path.iterdir()):
        np.testing.assert_allclose(read_matrix(path, IDS, NAMES), P, atol=1e-3, err_msg=path.name)


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (pa.table({"c0": P[:, 0], "c1": P[:, 1]}), r"named after each of the 2 classes \(cat, dog\), not 'c0'"),
        (pa.table({"cat": P[:, 0]}), "got 1 columns"),
        (pa.table({"cat": P[:, 0], "dog": ["x", "y", "z"]}), "'dog' is not of numbers"),
        (columns(P, id=["a", "b", "x"]), "no row for the example with id 'c'"),
        (columns(P, id=["a", "b", "b"]), "has the id 'b' twice"),
        (columns(P[:2]), "2 rows, the data 3 examples"),
    ],
)
def test_bad_tables_are_one_sentence(tmp_path: Path, table: pa.Table, words: str) -> None:
    path = tmp_path / "p.parquet"
    pq.write_table(table, path)
    with pytest.raises(InputError, match=words):
        read_matrix(path, IDS, NAMES)

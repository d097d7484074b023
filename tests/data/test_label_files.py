"""Labels from another file: joined by id where the file has ids, else by position."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from noiseproof.data import LabeledData, load, load_pair
from noiseproof.data.readers import relabel
from noiseproof.errors import InputError

NAMES = ("cat", "dog", "owl")


def write(path: Path, *lines: str) -> str:
    path.write_text("\n".join(lines) + "\n")
    return str(path)


@pytest.fixture
def table(tmp_path: Path) -> str:
    """Thirty rows with ids a0 … a29, labels by threes."""
    rows = [f"a{i},{i / 7:.3f},{NAMES[i % 3]}" for i in range(30)]
    return write(tmp_path / "table.csv", "id,size,label", *rows)


def shuffled(count: int, seed: int = 0) -> list[int]:
    return np.random.default_rng(seed).permutation(count).tolist()


def test_labels_go_by_id_whatever_their_order(tmp_path: Path, table: str) -> None:
    file = write(tmp_path / "new.csv", "id,better", *(f"a{i},{NAMES[(i + 1) % 3]}" for i in shuffled(30)))
    data = load(table, labels=f"{file}:better")
    assert data.labels.tolist() == [(i + 1) % 3 for i in range(30)]
    assert data.true_labels is None
    data = load(table, labels=f"{file}:better", true_labels="own")
    assert data.true_labels.tolist() == [i % 3 for i in range(30)]
    data = load(table, true_labels=f"{file}:better")
    assert (data.labels.tolist(), data.noise_rate) == ([i % 3 for i in range(30)], 1.0)


def test_without_ids_labels_go_by_position(tmp_path: Path, table: str) -> None:
    file = write(tmp_path / "new.csv", "better", *(NAMES[(i + 2) % 3] for i in range(30)))
    assert load(table, labels=file + ":better").labels.tolist() == [(i + 2) % 3 for i in range(30)]


def test_examples_without_ids_go_by_their_positions(tmp_path: Path) -> None:
    file = write(tmp_path / "new.csv", "id,label", *(f"{i},{(i + 1) % 10}" for i in shuffled(1797)))
    data = load("digits", labels=f"{file}:label")
    assert data.labels.tolist() == [(i + 1) % 10 for i in range(1797)]
    thinned = load("digits", labels=f"{file}:label", limit=10)
    assert thinned.labels.tolist() == [(i * 1797 // 10 + 1) % 10 for i in range(10)]


def test_ids_of_an_npz_file(tmp_path: Path, table: str) -> None:
    order = shuffled(30)
    labels = np.array([NAMES[i % 2] for i in order])
    np.savez(tmp_path / "new.npz", labels=labels, ids=np.array([f"a{i}" for i in order]))
    assert load(table, labels=str(tmp_path / "new.npz")).labels.tolist() == [i % 2 for i in range(30)]


def rows(ids: list[str]) -> list[str]:
    return [f"{name},cat" for name in ids]


ALL = [f"a{i}" for i in range(30)]


@pytest.mark.parametrize(
    ("ids", "problem"),
    [
        (ALL[:-2], "has no label for 2 of 30 examples, as the one with id 'a28'"),
        ([*ALL, "b1"], "1 examples that the data does not have, as id 'b1'"),
        ([*ALL[:-1], "a3"], "has the id 'a3' twice .rows 3 and 29."),
        ([*ALL[:-1], ""], "has no label for 1 of 30|does not have, as id ''"),
    ],
)
def test_ids_must_be_those_of_the_data(tmp_path: Path, table: str, ids: list[str], problem: str) -> None:
    file = write(tmp_path / "new.csv", "id,better", *rows(ids))
    for name in ("labels", "true_labels"):
        with pytest.raises(InputError, match=problem):
            load(table, **{name: f"{file}:better"})


def test_a_part_that_the_file_leaves_out_keeps_its_labels(tmp_path: Path) -> None:
    """labels.parquet of a run has no labels for the test set that the run split off."""
    data = LabeledData(torch.randn(20, 3), [i % 2 for i in range(20)], ids=ALL[:20])
    file = write(tmp_path / "new.csv", "id,better", *(f"{name},1" for name in ALL[5:20]))
    left_out, rest = torch.arange(5), torch.arange(5, 20)
    assert relabel(data, f"{file}:better", rows=left_out).labels.tolist() == [0, 1, 0, 1, 0]
    assert relabel(data, f"{file}:better", rows=rest).labels.tolist() == [1] * 15
    with pytest.raises(InputError, match=r"no label for 1 of 15 .* repeat the run's --seed"):
        relabel(data, f"{file}:better", rows=torch.arange(4, 19))


def test_the_test_set_of_a_source_keeps_its_labels(tmp_path: Path, table: str) -> None:
    write(tmp_path / "table-test.csv", "id,size,label", *(f"t{i},1.0,{NAMES[i % 3]}" for i in range(6)))
    Path(table).rename(tmp_path / "table-train.csv")
    file = write(tmp_path / "new.csv", "id,better", *rows(ALL))
    train, test = load_pair(tmp_path / "table-train.csv", labels=f"{file}:better")
    assert test is not None
    assert (train.labels.tolist(), test.labels.tolist()) == ([0] * 30, [0, 1, 2] * 2)

"""nf.indexed: positions beside the items of any map-style dataset."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, TensorDataset

import noiseproof as nf
from noiseproof.errors import InputError


class Dicts(Dataset[Any]):
    classes = ("even", "odd")

    def __len__(self) -> int:
        return 6

    def __getitem__(self, i: int) -> dict[str, Any]:
        return {"image": torch.full((2,), i), "label": i % 2}


class HuggingFace(Dicts):
    """As a Dataset of Hugging Face's: whole batches at once."""

    def __getitems__(self, rows: list[int]) -> list[dict[str, Any]]:
        return [super(HuggingFace, self).__getitem__(i) for i in rows]

    def __getitem__(self, i: int) -> dict[str, Any]:
        raise AssertionError("batches are asked for whole")


class Pair(NamedTuple):
    x: int
    y: int


@pytest.mark.parametrize(
    ("dataset", "expected"),
    [
        ([(10, 0), (11, 1)], [(10, 0, 0), (11, 1, 1)]),
        ([Pair(10, 0), Pair(11, 1)], [(10, 0, 0), (11, 1, 1)]),
        ([[10, 0], [11, 1]], [(10, 0, 0), (11, 1, 1)]),
        (torch.utils.data.StackDataset([10, 11], [0, 1]), [(10, 0, 0), (11, 1, 1)]),
        (torch.utils.data.StackDataset([10, 11]), [(10, 0), (11, 1)]),
    ],
)
def test_tuples(dataset: Any, expected: list[Any]) -> None:
    found = nf.indexed(dataset)
    assert [found[i] for i in range(len(found))] == expected
    assert list(found) == expected  # a plain loop ends
    assert found[-1] == expected[-1]
    assert nf.indexed(found) is found


@pytest.mark.parametrize("kind", [Dicts, HuggingFace])
def test_dicts_in_a_loader(kind: Callable[[], Dataset[Any]]) -> None:
    found = nf.indexed(kind())
    seen = []
    for batch in DataLoader(found, batch_size=4, shuffle=True):
        assert torch.equal(batch["image"][:, 0], batch["index"])
        assert torch.equal(batch["label"], batch["index"] % 2)
        seen += batch["index"].tolist()
    assert sorted(seen) == list(range(6))
    assert found.classes == ("even", "odd")


def test_subsets_workers_and_pickle() -> None:
    data = TensorDataset(torch.arange(8) * 10, torch.arange(8) % 2)
    of_all = Subset(nf.indexed(data), [5, 2])
    assert [int(i) for _, _, i in of_all] == [5, 2]  # positions in what was wrapped
    in_part = nf.indexed(Subset(data, [5, 2]))
    assert [(int(x), i) for x, _, i in in_part] == [(50, 0), (20, 1)]
    again = pickle.loads(pickle.dumps(in_part))
    assert [(int(x), i) for x, _, i in again] == [(50, 0), (20, 1)]
    [(x, _, index)] = list(DataLoader(nf.indexed(data), batch_size=8, num_workers=1))
    assert torch.equal(x, index * 10)


def test_own_collate_functions() -> None:
    def stack(items: list[tuple[int, int]]) -> tuple[torch.Tensor, ...]:
        xs, ys = zip(*items, strict=True)  # which three would break
        return torch.tensor(xs), torch.tensor(ys)

    found = nf.indexed([(10, 0), (11, 1), (12, 0)])
    [batch] = list(DataLoader(found, batch_size=3, collate_fn=found.collate(stack)))
    assert [one.tolist() for one in batch] == [[10, 11, 12], [0, 1, 0], [0, 1, 2]]

    def only(items: list[dict[str, Any]]) -> dict[str, Any]:
        assert all("index" not in item for item in items)
        return {"n": len(items)}

    items = nf.indexed(Dicts())
    assert items.collate(only)([items[4], items[1]])["index"].tolist() == [4, 1]


class Stream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(3))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (Stream(), "indexed takes a map-style dataset, got .*; pass one with __len__ and __getitem__"),
        (DataLoader([1, 2]), r"indexed takes a map-style dataset, got .*; pass its \.dataset"),
        (5, "indexed takes a map-style dataset, got 5"),
        (torch.zeros(3), "indexed takes a map-style dataset, got tensor"),
    ],
)
def test_what_is_no_dataset(given: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        nf.indexed(given)


def test_a_key_that_is_taken() -> None:
    with pytest.raises(InputError, match="item 1 of the dataset has a key 'index' already; rename it"):
        nf.indexed([{"x": 1}, {"x": 1, "index": 7}])[1]


def test_fit_takes_it_as_it_takes_the_dataset() -> None:
    data = TensorDataset(torch.randn(20, 3), torch.arange(20) % 2)
    plain, wrapped = (
        nf.fit("mlp", one, "ce", epochs=1).predict_proba(torch.zeros(1, 3)) for one in (data, nf.indexed(data))
    )
    assert (plain == wrapped).all()

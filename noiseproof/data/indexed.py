"""Any map-style dataset, with each item's position in it: what losses that remember each example must be told."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils.data import Dataset, IterableDataset

from noiseproof.data.datasets import is_dataset
from noiseproof.errors import InputError, shown

KEY = "index"


class Indexed(Dataset[Any]):
    """The items of a dataset, each with its position: (x, y) becomes (x, y, i), a dict has one more key, `index`.

    What else the dataset has (`classes`, `targets`, …) is there, too.
    """

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, i: int) -> Any:
        n = len(self.dataset)
        if not -n <= i < n:
            raise IndexError(f"position {i} of {n} items")  # which also ends a plain `for` over the items
        return _with_position(self.dataset[i], i % n)

    def __getitems__(self, rows: Sequence[int]) -> list[Any]:
        """A whole batch, which the DataLoader asks for at once; a dataset of Hugging Face's reads it faster so."""
        many = getattr(self.dataset, "__getitems__", None)
        items = [self.dataset[i] for i in rows] if many is None else many(rows)
        return [_with_position(item, i % len(self)) for item, i in zip(items, rows, strict=True)]

    def __getattr__(self, name: str) -> Any:
        if name == "dataset" or name.startswith("__"):  # not there yet, as while it is unpickled
            raise AttributeError(name)
        return getattr(self.dataset, name)

    @staticmethod
    def collate(own: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
        """Your own collate_fn around items without positions; these come to what it returns."""
        return Collate(own)


class Collate:
    """A collate_fn for indexed items, around one that knows nothing of positions."""

    def __init__(self, own: Callable[[list[Any]], Any]) -> None:
        self.own = own

    def __call__(self, items: list[Any]) -> Any:
        pairs = [_without_position(item) for item in items]
        index = torch.tensor([i for _, i in pairs])  # (B,)
        batch = self.own([item for item, _ in pairs])
        if hasattr(batch, "keys"):  # a dict, or a BatchEncoding of transformers
            batch[KEY] = index
            return batch
        return [*batch, index] if isinstance(batch, tuple | list) else [batch, index]


def indexed(dataset: Any) -> Indexed:
    """A map-style dataset whose items carry their position: for losses that need it, in any loop.

        loader = DataLoader(nf.indexed(train), batch_size=128, shuffle=True)
        for x, y, index in loader: ...

    Args:
        dataset: of PyTorch's kind, torchvision's, Hugging Face's: a length, and items by position. Of a `Subset`,
            positions count in the subset.

    Raises:
        InputError: it is no map-style dataset.
    """
    if isinstance(dataset, Indexed):
        return dataset
    if isinstance(dataset, IterableDataset) or not (is_dataset(dataset) or isinstance(dataset, list | tuple)):
        hint = "pass its .dataset" if hasattr(dataset, "batch_sampler") else "pass one with __len__ and __getitem__"
        raise InputError(f"indexed takes a map-style dataset, got {shown(dataset)}; {hint}")
    return Indexed(dataset)


def _with_position(item: Any, i: int) -> Any:
    if isinstance(item, Mapping):
        if KEY in item:
            raise InputError(f"item {i} of the dataset has a key {KEY!r} already; rename it, the position goes there")
        return {**item, KEY: i}
    return (*item, i) if isinstance(item, tuple | list) else (item, i)


def _without_position(item: Any) -> tuple[Any, int]:
    if isinstance(item, Mapping):
        return {key: value for key, value in item.items() if key != KEY}, item[KEY]
    return item[:-1], item[-1]

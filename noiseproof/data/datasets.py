"""Map-style datasets of anybody's: what `dataset[i]` gives, read into memory, or streamed where that is too small.

An item is (input, label, …) or a dict. Which items, and in which order, is decided by the loop; workers, the processes
of a `torch.utils.data.DataLoader`, only load them: a run that is killed and resumed ends with the same bits.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset

from noiseproof.data.images import pixels
from noiseproof.data.input_checks import as_array, channels_first, parse_inputs, readable
from noiseproof.data.packing import Packed
from noiseproof.data.sources import InputSource, stand_back
from noiseproof.errors import InputError, reason, shown

LABEL_KEYS = ("label", "labels", "target", "targets", "class", "y")
INPUT_KEYS = ("image", "img", "pixel_values", "input", "inputs", "x", "features", "text", "sentence")
READ_AHEAD = 4  # batches of each worker
PROBES = 8  # items that are read twice, to see whether they stay the same


def is_dataset(value: Any) -> bool:
    """Whether this is a map-style dataset: a length, and items by position."""
    known = isinstance(value, Tensor | np.ndarray | str | bytes | Sequence | Mapping | IterableDataset)
    return hasattr(value, "__len__") and hasattr(type(value), "__getitem__") and not known


@dataclass
class Items:
    """The items of a dataset, as inputs and labels; every mistake in them is named by the item's number."""

    dataset: Any
    label_key: str | None = None

    def __post_init__(self) -> None:
        self.count = len(self.dataset)
        if self.count == 0:
            raise InputError("the dataset is empty; pass one that holds examples")

    def __getitem__(self, i: int) -> tuple[Any, Any]:
        """(input, label) of item i; the label is None where the item is no pair."""
        try:
            item = self.dataset[i]
        except Exception as error:  # whatever a stranger's __getitem__ may raise
            raise InputError(
                f"item {i} of the dataset cannot be read ({type(error).__name__}: {reason(error)}); mend or remove it"
            ) from error
        if isinstance(item, Mapping):
            return self._of_dict(i, item)
        if isinstance(item, tuple | list) and len(item) >= 2:
            return item[0], item[1]
        raise InputError(f"item {i} of the dataset must be (input, label) or a dict, got {shown(item)}; return a pair")

    def _of_dict(self, i: int, item: Mapping[str, Any]) -> tuple[Any, Any]:
        keys = [self.label_key] if self.label_key is not None else [key for key in LABEL_KEYS if key in item]
        if not keys or keys[0] not in item:
            raise InputError(
                f"item {i} of the dataset is a dict without a label (its keys are {', '.join(map(str, item))}); name "
                "the key of the label with label_column: nf.load(dataset, label_column=…)"
            )
        rest = {key: value for key, value in item.items() if key != keys[0]}
        usual = [key for key in INPUT_KEYS if key in rest]
        if len(rest) == 1 or (usual and "input_ids" not in rest):
            return rest[usual[0]] if usual else next(iter(rest.values())), item[keys[0]]
        tensors = {
            key: value for key, value in rest.items() if isinstance(value, Tensor | np.ndarray | list | int | float)
        }
        if not tensors:
            raise InputError(f"item {i} of the dataset holds no input beside its label {keys[0]!r}; add one")
        return tensors, item[keys[0]]

    def check_length(self) -> None:
        if len(self.dataset) != self.count:
            raise InputError(
                f"the dataset held {self.count} items when it was read and now holds {len(self.dataset)}; keep it so"
            )


def as_tensor(i: int, value: Any) -> Tensor:
    """The input of item i as an image (C, H, W), uint8 or float32, or as features (d,) float32."""
    from PIL.Image import Image

    if isinstance(value, Tensor):
        tensor = value.detach().cpu()
    elif isinstance(value, Image):
        tensor = torch.from_numpy(np.array(pixels(value, f"item {i} of the dataset")))
    else:
        array = as_array(f"item {i} of the dataset", value)
        if array.dtype.kind not in "iufb":
            raise InputError(f"item {i} of the dataset must be numbers or an image, got {shown(value)}; convert it")
        tensor = torch.from_numpy(np.ascontiguousarray(channels_first(array[None])[0]))
    tensor = tensor[None] if tensor.ndim == 2 else tensor
    if tensor.ndim not in (1, 3):
        raise InputError(
            f"item {i} of the dataset must be an image (C, H, W) or features (d,), got {tuple(tensor.shape)}"
        )
    return tensor if tensor.dtype == torch.uint8 and tensor.ndim == 3 else tensor.float()


class DatasetInputs(InputSource):
    """The inputs of a dataset, loaded when they are taken; streams of batches by `workers` processes."""

    decodes = True

    def __init__(self, items: Items, like: Tensor, workers: int) -> None:
        self.items, self.like, self.workers = items, like, workers

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.items.count, *self.like.shape)

    @property
    def dtype(self) -> torch.dtype:
        return self.like.dtype

    def take(self, index: Tensor) -> Tensor:
        return _raised(self.load(index.tolist()))

    def load(self, rows: list[int]) -> Tensor | str:
        """The inputs of some items; or what is wrong, as text, which comes whole out of another process."""
        batch = torch.empty(len(rows), *self.like.shape, dtype=self.like.dtype)
        try:
            self.items.check_length()
            for place, i in enumerate(rows):
                batch[place] = self.checked(i, self.items[i][0])
        except InputError as error:
            return str(error)
        return batch

    def checked(self, i: int, value: Any) -> Tensor:
        """The input of item i, which must be as that of item 0 is."""
        one = as_tensor(i, value)
        if one.shape != self.like.shape or one.dtype != self.like.dtype:
            raise InputError(
                f"item {i} of the dataset is {tuple(one.shape)} {one.dtype}, item 0 {tuple(self.like.shape)} "
                f"{self.like.dtype}; bring all to one size and type"
            )
        if one.is_floating_point() and not bool(one.isfinite().all()):
            raise InputError(f"item {i} of the dataset holds NaN or infinity; mend or remove it")
        return one

    def read(self) -> tuple[Tensor, list[Any]]:
        """All inputs and labels, each item read once."""
        held, labels = torch.empty(self.shape, dtype=self.dtype), []
        for i in range(self.items.count):
            value, label = self.items[i]
            held[i] = self.checked(i, value)
            labels.append(label)
        self.items.check_length()
        return held, labels

    def stream(self, batches: Sequence[Tensor]) -> Iterator[Tensor]:
        if self.workers == 0:
            yield from super().stream(batches)
            return
        loader: Any = DataLoader(
            _Batches(self, [rows.tolist() for rows in batches]), batch_size=None, shuffle=False,
            num_workers=self.workers, prefetch_factor=READ_AHEAD, worker_init_fn=stand_back,
            generator=torch.Generator().manual_seed(0),  # else it would draw from the run's random state
        )  # fmt: skip
        try:
            yield from map(_raised, loader)
        except RuntimeError as error:  # killed, or out of (shared) memory
            raise InputError(
                f"a process that loads the dataset ended ({reason(error)}); see whether memory is short, and pass "
                "workers=0 to load without processes"
            ) from error


@dataclass
class _Batches(Dataset[Any]):
    """Batch after batch, as a dataset of batches."""

    inputs: DatasetInputs
    rows: list[list[int]]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, at: int) -> Tensor | str:
        return self.inputs.load(self.rows[at])


def _raised(batch: Tensor | str) -> Tensor:
    if isinstance(batch, str):
        raise InputError(batch)
    return batch


def read_dataset(dataset: Any, label_key: str | None, memory_limit: int, workers: int | None) -> dict[str, Any]:
    """What `LabeledData` is made of, from a map-style dataset."""
    items = Items(dataset, label_key)
    example, labels = _probed(items, _known_labels(dataset))
    parts: dict[str, Any] = {"class_names": _class_names(dataset), "ids": _ids(dataset), "allow_empty": True}
    if isinstance(example, str | Mapping) or _is_sequence(example):
        inputs, labels = _read_all(items)
        return parts | {"inputs": inputs, "labels": labels}
    like = as_tensor(0, example)
    source = DatasetInputs(items, like, min(os.cpu_count() or 1, 4) if workers is None else workers)
    kept: Any = source
    if items.count * like.nbytes <= memory_limit:
        held, labels = source.read()
        kept = parse_inputs(held, quantities=True)
    elif labels is None:
        labels = [items[i][1] for i in range(items.count)]
    return parts | {"inputs": kept, "labels": _plain(labels)}


def _probed(items: Items, labels: Sequence[Any] | None) -> tuple[Any, Sequence[Any] | None]:
    """The input of item 0; and `labels`, which the dataset knows, unless some of its items have others.

    Raises:
        InputError: an item is not the same when it is read again.
    """
    example = None
    for i in np.unique(np.linspace(0, items.count - 1, PROBES).astype(int)).tolist():
        (value, label), (again, _) = items[i], items[i]
        example = value if i == 0 else example
        if not _same(value, again):
            raise InputError(
                f"item {i} of the dataset is another one each time; take random transforms out, and pass them as "
                "augment="
            )
        if labels is not None and not _same(labels[i], label):
            labels = None
    return example, labels


def _read_all(items: Items) -> tuple[Any, list[Any]]:
    """Texts, tokens and dicts of tensors, which are read into memory whole, and the labels."""
    pairs = [items[i] for i in range(items.count)]
    values, labels = [value for value, _ in pairs], _plain([label for _, label in pairs])
    if isinstance(values[0], str):
        return values, labels
    if not isinstance(values[0], Mapping):
        return Packed.of({"": values}), labels
    for i, value in enumerate(values):
        if not isinstance(value, Mapping) or value.keys() != values[0].keys():
            raise InputError(f"item {i} of the dataset has other keys than item 0; give all the same")
    return Packed.of({key: [value[key] for value in values] for key in values[0]}), labels


def _is_sequence(value: Any) -> bool:
    """Whether this is a sequence of whole numbers: tokens."""
    if isinstance(value, list):
        return bool(value) and all(isinstance(one, int) and not isinstance(one, bool) for one in value)
    if isinstance(value, Tensor):
        return value.ndim == 1 and not value.is_floating_point() and value.dtype != torch.bool
    return isinstance(value, np.ndarray) and value.ndim == 1 and value.dtype.kind in "iu"


def _known_labels(dataset: Any) -> Any:
    """The labels that a dataset knows without reading its items, as those of torchvision do, or None."""
    inner, rows = getattr(dataset, "dataset", None), getattr(dataset, "indices", None)
    if inner is not None and rows is not None:  # a Subset
        labels = _known_labels(inner)
        return None if labels is None else [labels[i] for i in rows]
    if getattr(dataset, "target_transform", None) is not None:
        return None
    for name in ("targets", "labels"):
        known = getattr(dataset, name, None)
        if isinstance(known, list | tuple | np.ndarray | Tensor) and len(known) == len(dataset):
            return known.tolist() if isinstance(known, Tensor | np.ndarray) else list(known)
    return None


def _plain(labels: Sequence[Any]) -> list[Any]:
    """Labels as numbers or texts, also where each is a tensor."""
    return [one.item() if isinstance(one, Tensor | np.generic) and one.ndim == 0 else one for one in labels]


def _class_names(dataset: Any) -> list[str] | None:
    while not hasattr(dataset, "classes") and hasattr(dataset, "dataset"):  # a Subset, and what else wraps
        dataset = dataset.dataset
    names = getattr(dataset, "classes", None)
    return [str(name) for name in names] if isinstance(names, list | tuple) and len(names) > 1 else None


def _ids(dataset: Any) -> list[str] | None:
    """The paths of an ImageFolder's images."""
    samples = getattr(dataset, "samples", None)
    if not isinstance(samples, list) or len(samples) != len(dataset):
        return None
    paths = [str(sample[0]) for sample in samples if isinstance(sample, tuple)]
    root = str(getattr(dataset, "root", os.curdir))
    return [readable(os.path.relpath(path, root)) for path in paths] if len(set(paths)) == len(dataset) else None


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, Mapping):
        return isinstance(other, Mapping) and all(_same(one[key], other.get(key)) for key in one)
    if isinstance(one, str):
        return bool(one == other)
    a, b = as_array("an item of the dataset", one), as_array("an item of the dataset", other)
    return a.dtype.kind not in "iufb" or np.array_equal(a, b, equal_nan=a.dtype.kind == "f")

"""What a caller may ask of any reader."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from noiseproof.data.checks import as_array
from noiseproof.data.label_checks import check_distinct, is_whole
from noiseproof.data.labeled import LabeledData
from noiseproof.errors import InputError, naming

MEMORY_LIMIT = 4 << 30  # bytes of decoded inputs; beyond it they stay encoded, or on disk
Progress: TypeAlias = Callable[[int, int], None]


class Unlabeled(InputError):
    """A test set without labels: an error where it is asked for by name, none where it merely lies beside."""


@dataclass(frozen=True)
class Options:
    """The options of `load`, after the door."""

    label_column: str | None = None
    image_column: str | None = None
    feature_columns: tuple[str, ...] | None = None
    image_size: tuple[int, int] | None = None  # (H, W)
    memory_limit: int = MEMORY_LIMIT
    limit: int | None = None
    labeled: bool = True  # whether labels must be there
    class_names: tuple[str, ...] | None = None  # those of another set, which the labels must be among
    progress: Progress | None = None

    def refuse(self, source: Path | str, *names: str) -> None:
        """Raise an InputError if an option was given that this source has no use for."""
        for name in names:
            if getattr(self, name) is not None:
                raise InputError(f"{source} has no use for {name}={getattr(self, name)!r}; leave it out")

    def build(
        self,
        path: Path | str,
        inputs: Any,
        labels: Any,
        *,
        true_labels: Any = None,
        class_names: Sequence[str] | None = None,
        allow_empty: bool = False,
        **names: Any,
    ) -> LabeledData:
        """LabeledData among the classes asked for, with names of what is in it; its errors name the file."""
        if self.class_names is not None and labels is not None:
            labels, true_labels = _texts(labels, class_names), _texts(true_labels, class_names)
            class_names, allow_empty = self.class_names, True
        with naming(path):
            return LabeledData(
                inputs, labels, true_labels=true_labels, class_names=class_names, allow_empty=allow_empty, **names
            )


def _texts(labels: Any, names: Sequence[str] | None) -> Any:
    """Labels as the names of their classes; whole numbers are names too."""
    if labels is None:
        return None
    array = as_array("labels", labels)
    if not is_whole(array):
        return labels
    array = array.astype(np.int64)
    if names is None:
        return array.astype(str)
    inside = array.size == 0 or (array.min() >= 0 and array.max() < len(names))
    return np.array(names)[array] if inside else labels


Split: TypeAlias = Callable[[Options], LabeledData]  # reads one split of a source
Splits: TypeAlias = dict[str, Split]  # "train" and, where there is one, "test"


def first_bytes(path: Path, count: int) -> bytes:
    with open(path, "rb") as file:
        return file.read(count)


def even_rows(n: int, limit: int | None) -> Tensor | None:
    """`limit` positions spread evenly over n rows (sorted files keep all their classes); None: all of them."""
    if limit is None or limit >= n:
        return None
    return torch.arange(limit) * n // limit


def classes(
    path: Path, name: str, known: np.ndarray, labels: np.ndarray, true_labels: np.ndarray | None
) -> tuple[list[str] | None, tuple[np.ndarray, np.ndarray | None]]:
    """The class names that labels have together with the `known` ones of the train set, and the labels as positions.

    Numbers are names too: a source may count its classes from 1, call them -1 and 1, or skip some. Beside text they
    are text. Labels that hold fractions are left for `LabeledData` to refuse.
    """
    columns = [known, labels] if true_labels is None else [known, labels, true_labels]
    if any(column.dtype.kind == "U" for column in columns):
        columns = [column.astype(str) if column.dtype.kind in "iu" else column for column in columns]
    text = all(column.dtype.kind == "U" for column in columns)
    if not (text or all(is_whole(column) for column in columns)):
        return None, (labels, true_labels)
    values = np.unique(np.concatenate(columns))
    with naming(path):
        check_distinct(name, known)
    positions = [np.searchsorted(values, column) for column in columns[1:]]
    names = values.tolist() if text else [str(int(value)) for value in values]
    return names, (positions[0], None if true_labels is None else positions[1])


def image_size(value: Any) -> tuple[int, int] | None:
    """An image size as (H, W); a single number means a square."""
    if value is None:
        return None
    pair = tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else (value, value)
    if len(pair) != 2 or not all(isinstance(v, int) and not isinstance(v, bool) and 0 < v <= 65536 for v in pair):
        raise InputError(f"image_size must be a positive whole number or (height, width), got {value!r}; write e.g. 64")
    return pair

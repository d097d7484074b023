"""What every reader builds on: the options of a caller, the opening of files, and data from what a source holds.

A reader is a module with a function `find(path) -> Splits | None`, which says by what lies at the path, a file or a
folder, whether it can read it, and a row in `readers.READERS`.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TypeAlias

import numpy as np
import torch

from noiseproof.checks import boolean, integer, optional, require
from noiseproof.data.images import Progress, read_images
from noiseproof.data.input_checks import as_array, texts
from noiseproof.data.label_checks import check_class_names, check_distinct, is_whole
from noiseproof.data.labeled import LabeledData
from noiseproof.data.sources import InputSource
from noiseproof.errors import InputError, damage, naming, shown

MEMORY_LIMIT = 4 << 30  # bytes of decoded inputs; beyond it they stay encoded, or on disk
INFLATION = 1100  # deflate, of gzip and zip, cannot expand further than about 1,032 times
TEST_NAMES = ("test", "val", "valid", "validation")  # of a file or folder; the first that is there is the test set


class Unlabeled(InputError):
    """A test set without labels: an error where it is asked for by name, none where it merely lies beside."""


@dataclass
class Options:
    """The options of `load`, checked."""

    label_column: str | None = None
    image_column: str | None = None
    feature_columns: Sequence[str] | None = None
    image_size: Any = None  # (H, W) after the check
    memory_limit: int = MEMORY_LIMIT
    limit: int | None = None
    labeled: bool = True  # whether labels must be there
    class_names: Sequence[str] | None = None  # those of another set, which the labels must be among
    decode: bool = True  # whether images are decoded at once
    progress: Progress | None = None
    kinds: Mapping[str, str] | None = None  # of some columns
    workers: int | None = None  # processes that load the items of a dataset
    texts: Sequence[str] = ()  # columns of CSV files that are text, whatever they look like

    def __post_init__(self) -> None:
        for name in ("label_column", "image_column"):
            column = getattr(self, name)
            require(column is None or isinstance(column, str), name, column, "the name of a column, or None")
        columns = self.feature_columns
        if columns is not None:
            self.feature_columns = (columns,) if isinstance(columns, str) else texts("feature_columns", columns)
            if self.image_column is not None:
                raise InputError(f"pass image_column={self.image_column!r} or feature_columns, not both")
        require(self.progress is None or callable(self.progress), "progress", self.progress, "a function, or None")
        require(self.kinds is None or isinstance(self.kinds, Mapping), "kinds", self.kinds, "a dict, or None")
        self.texts = texts("texts", self.texts)
        boolean("labeled", self.labeled)
        optional(integer, low=0)("workers", self.workers)
        boolean("decode", self.decode)
        for name in ("limit", "memory_limit"):
            optional(integer, low=1, remedy="leave it out for the default")(name, getattr(self, name))
        self.image_size = _height_and_width(self.image_size)
        self.class_names = check_class_names(self.class_names)

    def refuse(self, source: Path | str, *names: str) -> None:
        """Raise an InputError if an option was given that this source has no use for."""
        for name in names:
            if getattr(self, name) is not None:
                raise InputError(f"{source} has no use for {name}={getattr(self, name)!r}; leave it out")

    def build(
        self, path: Path | str, inputs: Any, labels: Any, *, image_names: str | list[str] = "", **parts: Any
    ) -> LabeledData:
        """LabeledData of what a reader found, thinned to the limit, among the classes asked for.

        Args:
            path: what errors begin with.
            inputs: an array, a source, or encoded images, which are decoded here.
            image_names: what errors call the images.
            parts: what else LabeledData takes.
        """
        rows = even_rows(len(inputs), self.limit)
        if rows is not None:
            inputs, labels, image_names = (_at(one, rows) for one in (inputs, labels, image_names))
            parts |= {name: _at(parts.get(name), rows) for name in ("true_labels", "ids")} | {"allow_empty": True}
        if isinstance(inputs, Sequence):
            memory = self.memory_limit if self.decode else 0
            inputs = read_images(inputs, image_names, self.image_size, memory, self.progress)
        if self.class_names is not None and labels is not None:
            own = parts.get("class_names")
            labels, parts["true_labels"] = _texts(labels, own), _texts(parts.get("true_labels"), own)
            parts |= {"class_names": self.class_names, "allow_empty": True}
        with naming(path):
            return LabeledData(inputs, labels, **parts)


Split: TypeAlias = Callable[[Options], LabeledData]  # reads one split of a source
Splits: TypeAlias = dict[str, Split]  # "train" and, where there is one, "test"


def splits(train: Split, test: Split | None = None) -> Splits:
    return {"train": train} if test is None else {"train": train, "test": test}


def even_rows(n: int, limit: int | None) -> np.ndarray | None:
    """`limit` positions spread evenly over n rows (sorted files keep all their classes); None: all of them."""
    return None if limit is None or limit >= n else np.arange(limit) * n // limit


def _at(values: Any, rows: np.ndarray) -> Any:
    """The values, if any, at some rows."""
    if isinstance(values, InputSource):
        return values.select(torch.from_numpy(rows))
    if isinstance(values, np.ndarray):
        return values[rows]
    if hasattr(values, "at"):
        return values.at(rows)
    return [values[i] for i in rows] if isinstance(values, list) else values


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


def _height_and_width(size: Any) -> tuple[int, int] | None:
    """An image size as (H, W); a single number means a square."""
    if size is None:
        return None
    pair = tuple(size) if isinstance(size, Sequence) and not isinstance(size, str) else (size, size)
    if len(pair) != 2 or not all(isinstance(v, int) and not isinstance(v, bool) and 0 < v <= 65536 for v in pair):
        raise InputError(
            f"image_size must be a positive whole number or (height, width), got {shown(size)}; write e.g. 64"
        )
    return pair


def first_bytes(path: Path, count: int, *, unzip: bool = False) -> bytes:
    """What a file begins with; what is inside it, if it is gzipped and `unzip` says so."""
    with unzipped(path) if unzip else open(path, "rb") as file:
        return file.read(count)


def is_gzip(path: Path) -> bool:
    return first_bytes(path, 2) == b"\x1f\x8b"


@contextmanager
def unzipped(path: Path) -> Iterator[IO[bytes]]:
    """A file open for reading, through gzip if it is gzipped."""
    opener: Any = gzip.open if is_gzip(path) else open
    with opener(path, "rb") as file, damage(f"{path} is a damaged gzip file"):
        yield file


def classes(
    path: Path, name: str, known: np.ndarray, labels: np.ndarray, true_labels: np.ndarray | None
) -> tuple[list[str] | None, np.ndarray, np.ndarray | None]:
    """The class names that labels have together with the `known` ones of the train set, and the labels as positions.

    Numbers are names too: a source may count its classes from 1, call them -1 and 1, or skip some. Beside text they
    are text. Labels that hold fractions are left for `LabeledData` to refuse.
    """
    columns = [known, labels] if true_labels is None else [known, labels, true_labels]
    if any(column.dtype.kind == "U" for column in columns):
        columns = [column.astype(str) if column.dtype.kind in "iu" else column for column in columns]
    text = all(column.dtype.kind == "U" for column in columns)
    if not (text or all(is_whole(column) for column in columns)):
        return None, labels, true_labels
    values = np.unique(np.concatenate(columns))
    with naming(path):
        check_distinct(name, known)
    positions = [np.searchsorted(values, column) for column in columns[1:]]
    names = values.tolist() if text else [str(int(value)) for value in values]
    return names, positions[0], None if true_labels is None else positions[1]

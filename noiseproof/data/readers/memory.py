"""What is in memory already: pairs of arrays, tables with a label column, datasets of PyTorch and Hugging Face."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from torch import Tensor
from torch.utils.data import IterableDataset

from noiseproof.data.columns import to_arrow
from noiseproof.data.datasets import LABEL_KEYS, is_dataset, read_dataset
from noiseproof.data.indexed import Indexed
from noiseproof.data.input_checks import are_stacked, columns_of
from noiseproof.data.labeled import LabeledData
from noiseproof.data.packing import Packed
from noiseproof.data.readers.base import Options, Splits, even_rows, splits
from noiseproof.data.readers.tables import of_table
from noiseproof.errors import InputError

_WHAT = "a LabeledData, a pair (X, y), a DataFrame with a label column, a dict of columns, or a map-style dataset"


def find(source: Any) -> Splits:
    """The splits of something in memory: of a dict of datasets, those called train and test."""
    if (
        isinstance(source, Mapping)
        and "train" in source
        and (is_dataset(source["train"]) or _is_arrow(source["train"]))
    ):
        test = next((source[name] for name in ("test", "validation") if name in source), None)
        return splits(partial(_read, source["train"]), None if test is None else partial(_read, test))
    return splits(partial(_read, source))


def as_data(name: str, given: Any) -> LabeledData:
    """An argument `name` that is a data set, or whatever `load` makes one of.

    Raises:
        InputError: it is none.
    """
    if isinstance(given, LabeledData):
        return given
    if isinstance(given, str | os.PathLike):
        raise InputError(f"{name} must be a data set, got a {type(given).__name__}; read it: nf.load(…)")
    return _read(given, Options(), name)


def _read(source: Any, options: Options, name: str = "source") -> LabeledData:
    """What is in memory as it is asked for: among some classes, thinned."""
    data = _as_it_is(source, options, name)
    rows = even_rows(len(data), options.limit)
    data = data if rows is None else data.subset(rows)
    return data if options.class_names is None else data.recast(tuple(options.class_names))


def _as_it_is(source: Any, options: Options, name: str) -> LabeledData:
    if isinstance(source, LabeledData):
        options.refuse("a LabeledData", "label_column", "image_column", "feature_columns", "kinds", "image_size")
        return source
    if isinstance(source, tuple | list) and len(source) == 2:
        options.refuse("a pair (X, y)", "label_column", "image_column", "image_size")
        return LabeledData(*source, feature_names=options.feature_columns, kinds=options.kinds)
    if _is_arrow(source):
        return of_table(Path(type(source).__name__), source.with_format("arrow")[:], options)
    if are_stacked(source):
        return _of_tensors(source, options)
    if isinstance(source, Mapping) or _is_frame(source):
        columns = {key: to_arrow(key, values) for key, values in (columns_of(source) or {}).items()}
        if len({len(column) for column in columns.values()}) != 1:
            raise InputError(f"the columns of {name} differ in length, or there are none; make them alike")
        return of_table(Path(type(source).__name__), pa.table(columns), options)
    if is_dataset(source) or _are_items(source):
        options.refuse("a dataset", "image_column", "feature_columns", "kinds", "image_size")
        plain = source.dataset if isinstance(source, Indexed) else source
        parts = read_dataset(plain, options.label_column, options.memory_limit, options.workers)
        return LabeledData(parts.pop("inputs"), parts.pop("labels"), **parts)
    hint = "wrap arrays as LabeledData(inputs, labels)"
    if hasattr(source, "dataset"):
        hint = "pass its dataset: the order of the examples is drawn here"
    elif isinstance(source, Iterator | IterableDataset):
        hint = "its items have no positions: give it __len__ and __getitem__, or pass list(…) of (input, label)"
    elif hasattr(type(source), "__getitem__") and not hasattr(source, "__len__"):
        hint = "give it __len__"
    raise InputError(f"{name} must be {_WHAT}, got {type(source).__name__}; {hint}")


def _of_tensors(source: Mapping[str, Any], options: Options) -> LabeledData:
    """A dict of tensors (n, …), one of them the labels: one input, or several that a model takes by name."""
    given = options.label_column
    label = next((key for key in source if key == given or (given is None and key in LABEL_KEYS)), None)
    if label is None:
        raise InputError(
            f"the dict holds no labels (its keys are {', '.join(map(str, source))}); name them: label_column"
        )
    rest = {str(key): values for key, values in source.items() if key != label}
    if len(rest) == 1 and "input_ids" not in rest:
        return LabeledData(next(iter(rest.values())), source[label])
    return LabeledData(Packed.of(rest), source[label])


def _are_items(given: Any) -> bool:
    """Whether this is a list of items as a dataset gives them: (input, label), or dicts."""
    return isinstance(given, list) and len(given) > 2 and isinstance(given[0], tuple | Mapping)


def _is_frame(given: Any) -> bool:
    return not isinstance(given, np.ndarray | Tensor) and columns_of(given) is not None


def _is_arrow(given: Any) -> bool:
    """Whether this is a dataset of Hugging Face's, which lies in Arrow's memory."""
    return hasattr(given, "with_format") and hasattr(given, "column_names")

"""CSV and Parquet tables: a label column, and feature columns or one image column.

Columns with a meaning of their own: `true_label` (or true_labels) becomes `true_labels`, `id` (or ids) becomes `ids`;
a saved pandas index and the `label_before` of a corrected copy are left out. The class names that Hugging Face stores
in a Parquet file's metadata are used.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch

from noiseproof.data.images import Encoded
from noiseproof.data.labeled import LabeledData
from noiseproof.data.readers import folder
from noiseproof.data.readers.base import TEST_NAMES, Options, Splits, Unlabeled, classes, even_rows, splits
from noiseproof.data.readers.table_files import column_names, is_csv, is_parquet, read_table, read_tables
from noiseproof.data.table import Table
from noiseproof.errors import InputError, naming

LABEL_NAMES = ("label", "labels", "target", "targets", "class", "y")
TRUE_NAMES = ("true_label", "true_labels")
ID_NAMES = ("id", "ids")
PATH_NAMES = ("image", "img", "image_path", "path", "file", "filename", "file_name", "filepath")
_INDEX_NAMES = ("__index_level_0__", "unnamed: 0", "")
_NO_FEATURES = (*TRUE_NAMES, *ID_NAMES, "label_before", *_INDEX_NAMES)


def find(path: Path) -> Splits | None:
    """The splits of a table: a file (and its test sibling), or a folder of train*/test* tables; None if none."""
    if path.is_file():
        return _find_beside(path) if is_parquet(path) or is_csv(path) else None
    if folder.num_classes(path) > 1:  # a table beside one folder of images describes them
        return None
    for place in (path, path / "data"):
        tables = [f for kind in ("parquet", "csv") for f in sorted(place.glob(f"*.{kind}")) if f.name[0] != "."]
        train, *tests = ([f for f in tables if _word(name).search(f.stem)] for name in ("train", *TEST_NAMES))
        if train:
            test = next((partial(_read, files, train) for files in tests if files), None)
            return splits(partial(_read, train, train), test)
        if len(tables) == 1:
            return _find_beside(tables[0])
        if tables:
            names = ", ".join(f.name for f in tables[:4])
            raise InputError(f"{place} holds several tables ({names}); pass one, or name them train* and test*")
    return None


def _find_beside(path: Path) -> Splits:
    """The splits of one file: beside `x-train.csv` (`train.csv`) `x-test.csv` (`test.csv`) is its test set."""
    train = _sibling(path, ("train",))
    if train is not None:
        return {"train": partial(_read, [path], [train])}
    test = _sibling(path, TEST_NAMES)
    return splits(partial(_read, [path], [path]), None if test is None else partial(_read, [test], [path]))


def _sibling(path: Path, words: Sequence[str]) -> Path | None:
    """The file beside `path` whose name has another word for the split, the first of `words` for which there is one."""
    for word in words:
        for other in ("train", *TEST_NAMES):
            name = _word(other).sub(word, path.stem) + path.suffix
            if other != word and name != path.name and path.with_name(name).is_file():
                return path.with_name(name)
    return None


def _word(word: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![a-zA-Z]){word}(?![a-zA-Z])")


def _read(paths: list[Path], reference: list[Path], options: Options) -> LabeledData:
    """Some tables as one; the labels of the `reference` tables, the train set, say which classes there are."""
    if paths == reference:
        return of_table(paths[0], read_tables(paths, texts=options.texts), options)
    return of_table(paths[0], read_tables(paths, texts=[*options.texts, *_texts(reference)]), options, reference)


def _texts(reference: list[Path]) -> list[str]:
    """The columns of text of a train set in CSV: they are so in its test set, whatever they look like there."""
    if is_parquet(reference[0]):
        return []
    return [field.name for field in read_tables(reference).schema if _is_text(field.type)]


def of_table(path: Path, table: pa.Table, options: Options, reference: list[Path] | None = None) -> LabeledData:
    """A table in memory, called `path` in errors; its own labels say which classes there are, or a `reference`'s."""
    origin = path if reference is None else reference[0]
    columns = table.column_names if reference is None else column_names(origin)
    label, labels, true_labels, class_names = None, None, None, None
    if options.labeled or options.label_column is not None or named(columns, LABEL_NAMES):
        label = label_column(origin, columns, options.label_column)
        if label not in table.column_names:
            raise Unlabeled(f"{path} has no label column {label!r} as {origin.name} has; add it")
        labels = column_values(path, table, label)
        true = named(table.column_names, TRUE_NAMES, but=label)
        true_labels = column_values(path, table, true[0]) if true else None
        class_names = stored_names(table, label)
        if class_names is None:
            known = labels if reference is None else _known(reference, label)
            class_names, labels, true_labels = classes(path, label, known, labels, true_labels)
    rows = np.arange(table.num_rows)
    thinned = even_rows(table.num_rows, options.limit)
    if thinned is not None:
        rows = thinned
        labels, true_labels = (None if one is None else one[rows] for one in (labels, true_labels))
    features = [name for name in columns if name != label and name.lower() not in _NO_FEATURES]
    inputs, feature_names = _inputs(path, table, features, label, rows, options)
    ids = example_ids(table if thinned is None else table.take(rows), label)
    del table  # before the images are decoded: they should be in memory once
    pa.default_memory_pool().release_unused()
    return options.build(
        path,
        inputs,
        labels,
        true_labels=true_labels,
        class_names=class_names,
        ids=ids,
        feature_names=feature_names,
        image_names=str(path) if thinned is None else [f"{path}, row {row}" for row in rows],
        allow_empty=thinned is not None or reference is not None,
    )


def label_column(path: Path, names: list[str], given: str | None) -> str:
    """The label column: the one asked for, else the only one with a usual name."""
    if given is not None:
        if given in names:
            return given
        raise InputError(f"{path} has no column {given!r}; its columns are {_listed(names)}")
    usual = named(names, LABEL_NAMES)
    if len(usual) == 1:
        return usual[0]
    problem = f"several label columns ({_listed(usual)})" if usual else "no column with a usual label name"
    raise InputError(f"{path} has {problem}; pass label_column, one of {_listed(names)}")


def named(names: list[str], usual: Sequence[str], but: str | None = None) -> list[str]:
    """The columns with one of the usual names, in any case, other than `but`."""
    return [name for name in names if name.lower() in usual and name != but]


def column_values(path: Path, table: pa.Table, name: str) -> np.ndarray:
    """A column of labels as an array of numbers or of text; a missing value is an error that names its row."""
    column = table.column(name)
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if column.null_count:
        raise _missing(path, f"column {name!r}", _first_null(column))
    if _is_number(column.type):
        return column.to_numpy()
    if not _is_text(column.type):
        raise InputError(f"{path}: column {name!r} is of type {column.type}; labels are whole numbers or text")
    values = np.array(column.to_pylist())
    if (values == "").any():
        raise _missing(path, f"column {name!r}", (values == "").argmax())
    return values


def _first_null(column: pa.ChunkedArray) -> int:
    return pc.index(column.is_null(), True).as_py()


def _missing(path: Path, what: str, row: int) -> InputError:
    return InputError(f"{path}: {what} has a missing value at row {row}; fill it in or drop the row")


def stored_names(table: pa.Table, label: str) -> list[str] | None:
    """The class names Hugging Face's `datasets` writes into a table's metadata."""
    try:
        features = json.loads(table.schema.metadata[b"huggingface"])["info"]["features"]
        return [str(name) for name in features[label]["names"]]
    except (TypeError, KeyError, ValueError):
        return None


def _known(paths: list[Path], label: str) -> np.ndarray:
    """The labels of tables, and the true ones they have."""
    table = read_tables(paths, [label, *named(column_names(paths[0]), TRUE_NAMES, but=label)[:1]])
    return np.concatenate([column_values(paths[0], table, name) for name in table.column_names])


def example_ids(table: pa.Table, label: str | None) -> list[Any] | None:
    """The ids of the examples; a column of that name with repeated values names something else."""
    for column in named(table.column_names, ID_NAMES, but=label)[:1]:
        ids = table.column(column).to_pylist()
        if not any(isinstance(one, list | dict) for one in ids) and len(set(ids)) == len(ids):
            return ids
    return None


def cells(path: Path, label: str | None) -> tuple[pa.Table, list[str]]:
    """What a table says of its examples beside their labels and images: text, numbers, paths; and their ids."""
    names = column_names(path)
    label = label_column(path, names, label)
    schema = pq.read_schema(path) if is_parquet(path) else None
    plain = [name for name in names if schema is None or not _holds_bytes(schema.field(name).type)]
    table = read_tables([path], plain)
    ids = example_ids(table, label)
    shown = [name for name in plain if name != label and name.lower() not in _NO_FEATURES]
    return table.select(shown), [str(one) for one in (range(table.num_rows) if ids is None else ids)]


def images(path: Path) -> tuple[list[Any] | None, list[Encoded]]:
    """The ids, if there are any, and the images of a table, still encoded; labels or not.

    Raises:
        InputError: it has no column of images.
    """
    table = read_table(path)
    names = [name for name in table.column_names if name.lower() not in (*_NO_FEATURES, *LABEL_NAMES)]
    image = _image_column(path, table.schema, names)
    if image is None:
        raise InputError(f"{path} has no column of images (its columns are {_listed(names)}); name one image")
    return example_ids(table, None), _encoded(path, table.column(image), image, np.arange(table.num_rows))


def _inputs(
    path: Path, table: pa.Table, columns: list[str], label: str | None, rows: np.ndarray, options: Options
) -> tuple[Any, list[str] | None]:
    """The images of the image column, still encoded, or the feature columns and, if they are numbers, their names.

    Without a word from the options they are found among `columns`; of the file's rows only some, `rows`, are meant.
    """
    given, image = options.feature_columns, options.image_column
    for name in (*(given or ()), *(() if image is None else (image,))):
        if name not in table.column_names:
            raise InputError(f"{path} has no column {name!r}; its columns are {_listed(table.column_names)}")
    if image is None and given is None:
        image = _image_column(path, table.schema, [name for name in columns if name in table.column_names])
    if image is not None:
        options.refuse(path, "kinds")
        return _encoded(path, table.column(image).take(rows), image, rows), None
    options.refuse(path, "image_size")
    features = columns if given is None else list(given)
    if not features:
        beside = "" if label is None else f" beside {label!r}"
        raise InputError(f"{path} has no feature columns{beside}; add some, or an image column")
    for name in features:
        if name not in table.column_names:
            raise InputError(f"{path} has no column {name!r} as the train set has; add it")
    if options.kinds is not None or not all(_is_whole(table.column(name)) for name in features):
        with naming(path):
            whole = Table.read({name: table.column(name) for name in features}, kinds=options.kinds)
        return whole.select(torch.from_numpy(rows)), None
    if 4 * len(features) * table.num_rows > options.memory_limit:
        raise InputError(
            f"{path}: {table.num_rows:,} rows × {len(features)} features exceed memory_limit={options.memory_limit:,}; "
            "raise it, name fewer feature_columns, or save the features as .npy, which is read from disk"
        )
    matrix = np.empty((len(rows), len(features)), dtype=np.float32)
    for j, name in enumerate(features):
        with np.errstate(over="ignore"):  # LabeledData refuses what became infinite
            matrix[:, j] = table.column(name).to_numpy()[rows]
    return matrix, features


def _is_whole(column: pa.ChunkedArray) -> bool:
    """Whether all values are numbers, and finite."""
    if column.null_count or not _is_number(column.type):
        return False
    return not pa.types.is_floating(column.type) or bool(np.isfinite(column.to_numpy()).all())


def _image_column(path: Path, schema: pa.Schema, names: list[str]) -> str | None:
    """The column that holds images: bytes, a struct with bytes, or paths where nothing else could be a feature."""
    kinds = {name: schema.field(name).type for name in names}
    images = [name for name, kind in kinds.items() if _holds_bytes(kind)]
    if len(images) > 1:
        raise InputError(f"{path} has several image columns ({_listed(images)}); pass image_column")
    if images:
        return images[0]
    paths = [name for name in names if name.lower() in PATH_NAMES and _is_text(kinds[name])]
    return paths[0] if len(paths) == 1 and all(map(_is_text, kinds.values())) else None


def _encoded(path: Path, column: pa.ChunkedArray, name: str, rows: np.ndarray) -> list[Encoded]:
    """Each cell of an image column as bytes or as a path relative to the table's folder."""
    if not (_holds_bytes(column.type) or _is_text(column.type)):
        raise InputError(f"{path}: image column {name!r} is of type {column.type}; it must hold bytes, paths, or both")
    encoded: list[Encoded] = []
    for row, cell in zip(rows, column.to_pylist(), strict=True):
        value = cell
        if isinstance(cell, dict):
            value = cell["bytes"] if cell["bytes"] is not None else cell.get("path")
        if not value:
            raise _missing(path, f"image column {name!r}", row)
        encoded.append(value if isinstance(value, bytes) else path.parent / value)
    return encoded


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def _is_number(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)


def _holds_bytes(kind: pa.DataType) -> bool:
    """Whether cells are bytes, or structs with bytes."""
    if pa.types.is_struct(kind):
        return any(field.name == "bytes" for field in kind)
    return pa.types.is_binary(kind) or pa.types.is_large_binary(kind)


def _listed(names: Sequence[str], most: int = 20) -> str:
    shown = ", ".join(repr(name) for name in names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"

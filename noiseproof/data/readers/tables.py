"""CSV and Parquet tables: a label column, and numeric feature columns or one image column.

Columns with a meaning of their own: `true_label` (or true_labels) becomes `true_labels`, `id` (or ids) becomes `ids`;
a saved pandas index is left out. The class names that Hugging Face stores in a Parquet file's metadata are used.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from noiseproof.data.images import Encoded, read_images
from noiseproof.data.labeled import LabeledData
from noiseproof.data.readers.options import Options, Split, Splits, Unlabeled, classes, even_rows, first_bytes
from noiseproof.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

LABEL_NAMES = ("label", "labels", "target", "targets", "class", "y")
TRUE_NAMES = ("true_label", "true_labels")
ID_NAMES = ("id", "ids")
PATH_NAMES = ("image", "img", "image_path", "path", "file", "filename", "file_name", "filepath")
_INDEX_NAMES = ("__index_level_0__", "unnamed: 0", "")
_NO_FEATURES = (*TRUE_NAMES, *ID_NAMES, *_INDEX_NAMES)
_TEST_NAMES = ("test", "val", "valid", "validation")


def find(path: Path) -> Splits | None:
    """The splits of a table: a file (and its test sibling), or a folder of train*/test* tables; None if none."""
    if path.is_file():
        train = sibling(path, ("train",)) or path
        splits: Splits = {"train": _split([path], [train])}
        test = sibling(path, _TEST_NAMES)
        if test is not None and train == path:
            splits["test"] = _split([test], [path])
        return splits
    for folder in (path, path / "data"):
        files = [f for ext in ("*.parquet", "*.csv") for f in sorted(folder.glob(ext))] if folder.is_dir() else []
        tables = [f for f in files if not f.name.startswith(".")]
        by_split = {name: [f for f in tables if _word(name).search(f.stem)] for name in ("train", *_TEST_NAMES)}
        if by_split["train"]:
            splits = {"train": _split(by_split["train"], by_split["train"])}
            test_files = next((by_split[name] for name in _TEST_NAMES if by_split[name]), None)
            return splits if test_files is None else {**splits, "test": _split(test_files, by_split["train"])}
        if len(tables) == 1:
            return find(tables[0])
        if tables:
            names = ", ".join(f.name for f in tables[:4])
            raise InputError(f"{folder} holds several tables ({names}); pass one, or name them train* and test*")
    return None


def sibling(path: Path, words: Sequence[str]) -> Path | None:
    """The file beside `x-train.csv` (`train.csv`) that is named `x-test.csv` (`test.csv`), for the first such word."""
    for word in words:
        for other in ("train", *_TEST_NAMES):
            name = _word(other).sub(word, path.stem) + path.suffix
            if other != word and name != path.name and path.with_name(name).is_file():
                return path.with_name(name)
    return None


def _word(word: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![a-zA-Z]){word}(?![a-zA-Z])")


def _split(paths: list[Path], reference: list[Path]) -> Split:
    """Reads some tables as one; the labels of the `reference` tables, the train set, say which classes there are."""

    def read(options: Options) -> LabeledData:
        table = read_tables(paths)
        label, labels, true, true_labels, class_names = None, None, None, None, None
        names = column_names(reference[0])
        if options.labeled or options.label_column is not None or _usual_labels(names):
            label = label_column(reference[0], names, options.label_column)
            if label not in table.column_names:
                raise Unlabeled(f"{paths[0]} has no label column {label!r} as {reference[0].name} has; add it")
            labels = column_values(paths[0], table, label)
            true = _named(table.column_names, TRUE_NAMES, but=label)
            true_labels = column_values(paths[0], table, true) if true else None
            class_names = _stored_names(table, label)
            if class_names is None:
                known = labels if paths == reference else _known(reference, label)
                class_names, (labels, true_labels) = classes(paths[0], label, known, labels, true_labels)
        rows = even_rows(table.num_rows, options.limit)
        if rows is not None:
            table = table.take(rows.numpy())
            labels, true_labels = (None if one is None else one[rows.numpy()] for one in (labels, true_labels))
        row_numbers = None if rows is None else rows.tolist()
        id_column = _named(table.column_names, ID_NAMES, but=label)
        ids = table.column(id_column).to_pylist() if id_column else None
        if ids is not None and (any(isinstance(one, list | dict) for one in ids) or len(set(ids)) < len(ids)):
            ids = None  # it names something else than the examples
        features = [name for name in names if name != label and name.lower() not in _NO_FEATURES]
        inputs, feature_names = _inputs(paths[0], table, features, label, row_numbers, options)
        del table  # before the images are decoded: they should be in memory once
        if isinstance(inputs, list):
            release_memory()
            sources = str(paths[0]) if row_numbers is None else [f"{paths[0]}, row {row}" for row in row_numbers]
            inputs = read_images(inputs, sources, options.image_size, options.memory_limit, options.progress)
        return options.build(
            paths[0],
            inputs,
            labels,
            true_labels=true_labels,
            class_names=class_names,
            ids=ids,
            feature_names=feature_names,
            allow_empty=rows is not None or paths != reference,
        )

    return read


def read_tables(paths: Sequence[Path], columns: list[str] | None = None) -> pa.Table:
    """Tables of one schema, read and stacked."""
    import pyarrow as pa

    tables = [read_table(path, columns) for path in paths]
    names = tables[0].column_names
    for path, table in zip(paths, tables, strict=True):
        if set(table.column_names) != set(names):
            odd = min(set(table.column_names) ^ set(names))
            raise InputError(f"{paths[0].name} and {path.name} differ in the column {odd!r}; make them alike")
    try:
        return pa.concat_tables([table.select(names) for table in tables], promote_options="permissive")
    except pa.ArrowException as error:  # numbers are brought to one type, text and numbers are not
        files = ", ".join(p.name for p in paths)
        raise InputError(
            f"{paths[0].parent}: a column of {files} holds text in one and numbers in another; make them alike"
        ) from error


def read_table(path: Path, columns: list[str] | None = None) -> pa.Table:
    """One CSV or Parquet file, by what it begins with."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not path.is_file():
        raise InputError(f"{path} does not exist; check the path")
    head = first_bytes(path, 4)
    if not head:
        raise InputError(f"{path} is empty; write or fetch it again")
    if head != b"PAR1":
        table = _read_csv(path, columns)
    else:
        try:
            with pq.ParquetFile(path) as file:  # group by group: half the peak memory of one read
                groups = [file.read_row_group(i, columns, use_threads=False) for i in range(file.num_row_groups)]
                table = pa.concat_tables(groups) if groups else file.read(columns)
        except (pa.ArrowException, OSError, EOFError) as error:
            raise InputError(f"{path} is a damaged or truncated Parquet file; write or fetch it again") from error
    for name in table.column_names:
        if table.column_names.count(name) > 1:
            raise InputError(f"{path} has two columns named {name!r}; rename one")
    if table.num_columns and table.num_rows == 0:
        raise InputError(f"{path} has columns but no rows; add examples")
    return table


def release_memory() -> None:
    """Give back to the system what pyarrow keeps for its next table."""
    import pyarrow as pa

    pa.default_memory_pool().release_unused()


def column_names(path: Path) -> list[str]:
    """The columns of a table; of a Parquet file, without reading its rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if path.is_file() and first_bytes(path, 4) == b"PAR1":
        try:
            return pq.read_schema(path).names
        except (pa.ArrowException, OSError, EOFError):
            pass  # read_table says what is wrong with it
    return read_table(path).column_names


def delimiter(header: str) -> str:
    """The separator of a CSV file: the one of comma, tab and semicolon its first line has most of, outside quotes."""
    return max(",\t;", key=re.sub('"[^"]*"', "", header).count)


def _read_csv(path: Path, columns: list[str] | None) -> pa.Table:
    import pyarrow as pa
    from pyarrow import csv

    try:
        with pa.input_stream(path, compression="detect") as stream:
            content = stream.read()
        header = content.split(b"\n", 1)[0].decode("utf-8-sig")
        parse = csv.ParseOptions(delimiter=delimiter(header), newlines_in_values=True)
        convert = csv.ConvertOptions(include_columns=columns or [])
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text; save it as UTF-8") from error
    except (pa.ArrowException, OSError, EOFError) as error:
        raise InputError(f"{path} is damaged ({' '.join(str(error).split())}); write or fetch it again") from error
    try:
        table = csv.read_csv(pa.py_buffer(content), parse_options=parse, convert_options=convert)
    except pa.ArrowException as error:
        _explain_csv(path, content, parse, error)
    for name, kind in zip(table.column_names, table.schema.types, strict=True):
        if pa.types.is_binary(kind):
            raise InputError(f"{path}: column {name!r} is not UTF-8 text; save the file as UTF-8")
    return table


def _explain_csv(path: Path, content: bytes, parse: Any, error: Exception) -> NoReturn:
    """Turn pyarrow's complaint about a CSV file into a sentence that names the line."""
    import pyarrow as pa
    from pyarrow import csv

    bad: list[Any] = []

    def skip(row: Any) -> str:
        bad.append(row)
        return "skip"

    parse.invalid_row_handler = skip
    try:
        csv.read_csv(io.BytesIO(content), read_options=csv.ReadOptions(use_threads=False), parse_options=parse)
    except pa.ArrowException as second:
        error = second
    if bad:
        raise InputError(
            f"{path}, line {bad[0].number}: {bad[0].actual_columns} values where the header has "
            f"{bad[0].expected_columns} columns; fix the line"
        ) from error
    raise InputError(f"{path} is not a readable CSV file ({' '.join(str(error).split())}); fix the file") from error


def label_column(path: Path, names: list[str], given: str | None) -> str:
    """The label column: the one asked for, else the only one with a usual name."""
    if given is not None:
        if given in names:
            return given
        raise InputError(f"{path} has no column {given!r}; its columns are {_listed(names)}")
    usual = _usual_labels(names)
    if len(usual) == 1:
        return usual[0]
    problem = f"several label columns ({_listed(usual)})" if usual else "no column with a usual label name"
    raise InputError(f"{path} has {problem}; pass label_column, one of {_listed(names)}")


def _usual_labels(names: list[str]) -> list[str]:
    """Columns that are named as labels are."""
    return [name for name in names if name.lower() in LABEL_NAMES]


def column_values(path: Path, table: pa.Table, name: str) -> np.ndarray:
    """A column of labels as an array of numbers or of text; a missing value is an error that names its row."""
    import pyarrow as pa

    column = table.column(name)
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if column.null_count:
        row = column.is_null().to_pylist().index(True)
        raise InputError(f"{path}: column {name!r} has a missing value at row {row}; fill it in or drop the row")
    kinds = pa.types
    text = kinds.is_string(column.type) or kinds.is_large_string(column.type)
    if not (text or kinds.is_integer(column.type) or kinds.is_floating(column.type) or kinds.is_boolean(column.type)):
        raise InputError(f"{path}: column {name!r} is of type {column.type}; labels are whole numbers or text")
    if not text:
        return column.to_numpy()
    values = np.array(column.to_pylist())
    empty = np.flatnonzero(values == "")
    if len(empty):
        raise InputError(f"{path}: column {name!r} has a missing value at row {empty[0]}; fill it in or drop the row")
    return values


def _named(names: list[str], usual: Sequence[str], but: str | None) -> str | None:
    """The first column with one of the usual names, in any case, other than `but`."""
    return next((name for name in names if name.lower() in usual and name != but), None)


def _stored_names(table: pa.Table, label: str) -> list[str] | None:
    """The class names Hugging Face's `datasets` writes into a table's metadata."""
    try:
        features = json.loads(table.schema.metadata[b"huggingface"])["info"]["features"]
        names = features[label]["names"]
    except (TypeError, KeyError, ValueError):
        return None
    return [str(name) for name in names]


def _known(paths: list[Path], label: str) -> np.ndarray:
    """The labels of tables, and the true ones they have."""
    true = _named(column_names(paths[0]), TRUE_NAMES, but=label)
    table = read_tables(paths, [label] if true is None else [label, true])
    return np.concatenate([column_values(paths[0], table, name) for name in table.column_names])


def _inputs(
    path: Path, table: pa.Table, columns: list[str], label: str | None, rows: list[int] | None, options: Options
) -> tuple[Any, list[str] | None]:
    """The images of the image column, still encoded, or the feature columns as float32 (n, d) and their names.

    Without a word from the options they are found among `columns`.
    """
    import pyarrow as pa

    given = options.feature_columns
    image = options.image_column
    for name in [*(given or ()), *([image] if image else [])]:
        if name not in table.column_names:
            raise InputError(f"{path} has no column {name!r}; its columns are {_listed(table.column_names)}")
    if image is None and given is None:
        image = _image_column(path, table.schema, [name for name in columns if name in table.column_names])
    if image is not None:
        return _encoded(path, table.column(image), image, rows), None
    options.refuse(path, "image_size")
    features = list(given) if given is not None else columns
    if not features:
        beside = "" if label is None else f" beside {label!r}"
        raise InputError(f"{path} has no feature columns{beside}; add some, or an image column")
    for name in features:
        if name not in table.column_names:
            raise InputError(f"{path} has no column {name!r} as the train set has; add it")
        kind = table.schema.field(name).type
        if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
            example = _first_text(table.column(name), rows)
            raise InputError(
                f"{path}: feature column {name!r} is of type {kind}, not numeric{example}; "
                "encode it as numbers, or name the columns to use with feature_columns (--feature-columns)"
            )
    if 4 * len(features) * table.num_rows > options.memory_limit:
        raise InputError(
            f"{path}: {table.num_rows:,} rows × {len(features)} features exceed memory_limit={options.memory_limit:,}; "
            "raise it, name fewer feature_columns, or save the features as .npy, which is read from disk"
        )
    return _matrix(path, table, features, rows), features


def _first_text(column: pa.ChunkedArray, rows: list[int] | None) -> str:
    """Where a column of text first holds something that is no number."""
    import pyarrow as pa

    if pa.types.is_string(column.type):
        for i, value in enumerate(column.to_pylist()):
            try:
                float(value)
            except (TypeError, ValueError):
                return f" ({value!r:.60} at row {i if rows is None else rows[i]})"
    return ""


def _matrix(path: Path, table: pa.Table, features: list[str], rows: list[int] | None) -> np.ndarray:
    """Feature columns as float32 (n, d), checked for missing values by name."""
    matrix = np.empty((table.num_rows, len(features)), dtype=np.float32)
    for j, name in enumerate(features):
        column = table.column(name)
        if column.null_count:
            at = column.is_null().to_pylist().index(True)
            row = at if rows is None else rows[at]
            raise InputError(f"{path}: column {name!r} has a missing value at row {row}; impute it or drop the row")
        values = column.to_numpy()
        bad = np.flatnonzero(~np.isfinite(values)) if values.dtype.kind == "f" else np.empty(0, np.int64)
        if len(bad):
            row = int(bad[0]) if rows is None else rows[int(bad[0])]
            raise InputError(
                f"{path}: column {name!r} must be finite, got {values[bad[0]]} at row {row} "
                f"({len(bad)} such in the column); impute it or drop the row"
            )
        with np.errstate(over="ignore"):  # LabeledData refuses what became infinite
            matrix[:, j] = values
    return matrix


def _image_column(path: Path, schema: pa.Schema, names: list[str]) -> str | None:
    """The column that holds images: bytes, a struct with bytes, or paths where nothing else could be a feature."""
    import pyarrow as pa

    kinds = {name: schema.field(name).type for name in names}
    images = [name for name, kind in kinds.items() if _is_bytes(kind) or _has_bytes(kind)]
    if len(images) > 1:
        raise InputError(f"{path} has several image columns ({_listed(images)}); pass image_column")
    if images:
        return images[0]
    text = [name for name, kind in kinds.items() if pa.types.is_string(kind) or pa.types.is_large_string(kind)]
    paths = [name for name in text if name.lower() in PATH_NAMES]
    return paths[0] if len(paths) == 1 and text == names else None


def _is_bytes(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return pa.types.is_binary(kind) or pa.types.is_large_binary(kind)


def _has_bytes(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return pa.types.is_struct(kind) and any(field.name == "bytes" for field in kind)


def _encoded(path: Path, column: pa.ChunkedArray, name: str, rows: list[int] | None) -> list[Encoded]:
    """Each cell of an image column as bytes or as a path relative to the table's folder."""
    import pyarrow as pa

    kind = column.type
    if not (_is_bytes(kind) or _has_bytes(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        raise InputError(f"{path}: image column {name!r} is of type {kind}; it must hold bytes, paths, or both")
    encoded: list[Encoded] = []
    for i, cell in enumerate(column.to_pylist()):
        value = cell
        if isinstance(cell, dict):
            value = cell["bytes"] if cell["bytes"] is not None else cell.get("path")
        if not value:
            row = i if rows is None else rows[i]
            raise InputError(
                f"{path}: image column {name!r} has a missing value at row {row}; fill it in or drop the row"
            )
        encoded.append(value if isinstance(value, bytes) else path.parent / value)
    return encoded


def _listed(names: Sequence[str], most: int = 20) -> str:
    shown = ", ".join(repr(name) for name in names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"

"""CSV and Parquet files as pyarrow tables; what is wrong with a file is an InputError that names it."""

from __future__ import annotations

import csv as writing
import io
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv

from noiseproof.data.columns import read_column
from noiseproof.data.readers.base import first_bytes
from noiseproof.errors import InputError, damage

_REMEDY = "write or fetch it again"
_CHUNK = 1 << 24


def is_parquet(path: Path) -> bool:
    return first_bytes(path, 4) == b"PAR1"


def is_csv(path: Path) -> bool:
    """Whether a file begins as a table in text does: no control characters, and a separator or a table's name."""
    head = first_bytes(path, 1024, unzip=True)
    if b"\0" in head or head.lstrip()[:1] in (b"{", b"[", b"<"):
        return False
    named = any(suffix in (".csv", ".tsv", ".txt") for suffix in path.suffixes)
    printable = all(byte >= 32 or byte in b"\t\r\n" for byte in head)
    return named or (printable and any(separator in head.split(b"\n", 1)[0] for separator in b",;\t"))


def read_tables(paths: Sequence[Path], columns: list[str] | None = None, texts: Sequence[str] = ()) -> pa.Table:
    """Tables of one schema, read and stacked."""
    tables = [read_table(path, columns, texts) for path in paths]
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


def read_table(path: Path, columns: list[str] | None = None, texts: Sequence[str] = ()) -> pa.Table:
    """One CSV or Parquet file, by what it begins with; in CSV, the columns `texts` are text whatever they look like."""
    if not path.is_file():
        raise InputError(f"{path} does not exist; check the path")
    if not first_bytes(path, 1):
        raise InputError(f"{path} is empty; write or fetch it again")
    table = _read_parquet(path, columns) if is_parquet(path) else _read_csv(path, columns, texts)
    for name in table.column_names:
        if table.column_names.count(name) > 1:
            raise InputError(f"{path} has two columns named {name!r}; rename one")
    if table.num_columns and table.num_rows == 0:
        raise InputError(f"{path} has columns but no rows; add examples")
    return table


def column_names(path: Path) -> list[str]:
    """The columns of a table; of a Parquet file, without reading its rows."""
    if path.is_file() and is_parquet(path):
        try:
            return pq.read_schema(path).names
        except (pa.ArrowException, OSError):
            pass  # read_table says what is wrong with it
    return read_table(path).column_names


def text_columns(levels: Mapping[str, Sequence[str]]) -> list[str]:
    """Which columns of a training set, by the texts they held, must be read as text from other files, too.

    What a column of a CSV file looks like depends on all of its rows: beside X77, 01234 and NA are texts; in a file
    without it they would be a number and a gap.
    """
    return [name for name, texts in levels.items() if not texts or _must_be_text(texts)]


def _must_be_text(texts: Sequence[str]) -> bool:
    """Whether different texts, alone in a column, are text, or would not come back as they were."""
    lines = io.StringIO()
    writing.writer(lines).writerows([["text"], *([text] for text in texts)])
    column = parse_csv(Path("texts"), read_all(io.BytesIO(lines.getvalue().encode()))).column(0)
    return pa.types.is_string(column.type) or read_column("text", column, "category").levels != tuple(texts)


def delimiter(header: str) -> str:
    """The separator of a CSV file: the one of comma, tab and semicolon its first line has most of, outside quotes."""
    return max(",\t;", key=re.sub('"[^"]*"', "", header).count)


def _read_parquet(path: Path, columns: list[str] | None) -> pa.Table:
    with damage(f"{path} is a damaged or truncated Parquet file", _REMEDY), pq.ParquetFile(path) as file:
        groups = [file.read_row_group(i, columns, use_threads=False) for i in range(file.num_row_groups)]
        # by groups: half the peak memory of one read
        table = pa.concat_tables(groups) if groups else file.read(columns)
        table.validate(full=True)  # text is UTF-8, among other things
        return table


def _read_csv(path: Path, columns: list[str] | None, texts: Sequence[str]) -> pa.Table:
    with damage(f"{path} is damaged", _REMEDY), pa.input_stream(path, compression="detect") as stream:
        content = read_all(stream)
    return parse_csv(path, content, columns, texts)


def parse_csv(path: Path, content: pa.Buffer, columns: list[str] | None = None, texts: Sequence[str] = ()) -> pa.Table:
    """The content of a CSV file, which `path` is in errors."""
    try:
        header = bytes(re.match(rb"[^\n]*", content)[0]).decode("utf-8-sig")  # type: ignore[index]
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text; save it as UTF-8") from error
    parse = csv.ParseOptions(delimiter=delimiter(header), newlines_in_values=True)
    convert = csv.ConvertOptions(include_columns=columns or [], column_types=dict.fromkeys(texts, pa.string()))
    try:
        table = csv.read_csv(content, parse_options=parse, convert_options=convert)
    except pa.ArrowException as error:
        raise _unreadable(path, content, parse) from error
    for name, kind in zip(table.column_names, table.schema.types, strict=True):
        if pa.types.is_binary(kind):
            raise InputError(f"{path}: column {name!r} is not UTF-8 text; save the file as UTF-8")
    return table


def read_all(stream: pa.NativeFile | IO[bytes]) -> pa.Buffer:
    """The rest of a stream, in memory that is Arrow's own.

    Its threads may let go of what `read_csv` was given after that has returned. To let go of memory of Python's they
    take its lock, and where the interpreter is ending by then, that ends them, and the process with an abort.
    """
    sink = pa.BufferOutputStream()
    while chunk := stream.read(_CHUNK):
        sink.write(chunk)
    return sink.getvalue()


def _unreadable(path: Path, content: pa.Buffer, parse: csv.ParseOptions) -> InputError:
    """What is wrong with a CSV file: of pyarrow's readers only that with one thread knows the line."""
    reason = "it is read by one thread alone"
    try:
        csv.read_csv(content, read_options=csv.ReadOptions(use_threads=False), parse_options=parse)
    except pa.ArrowException as error:
        reason = " ".join(str(error).split())
    ragged = re.search(r"Row #(\d+): Expected (\d+) columns, got (\d+)", reason)
    if ragged is None:
        return InputError(f"{path} is not a readable CSV file ({reason}); fix the file")
    line, due, got = ragged.groups()
    return InputError(f"{path}, line {line}: {got} values where the header has {due} columns; fix the line")

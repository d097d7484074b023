"""The door for the columns of a table: whatever a caller has, through Arrow, to one of four kinds of clean values.

    number    float64, NaN where missing         int, float, decimal; also true and false in a column of numbers
    category  codes of texts, -1 where missing   text, true and false, dictionaries; numbers if asked
    date      days since 1970, NaN where missing dates and times; text that is written as one
    text      texts, "" where missing            sentences: most of them distinct, of three words or more on average

Every function raises `InputError` with one sentence that names the column, the row and the remedy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from torch import Tensor

from noiseproof.errors import InputError, reason, shown, unknown

KINDS = ("number", "category", "date", "text")
_DAY = 86_400e6  # in microseconds
_FEW = 20  # distinct texts that are a category whatever they look like, as 0, 1, 2, 3+
_SOME = 1000  # distinct texts to tell a kind by
_WORDS = 3.0  # on average, from which distinct texts are sentences


@dataclass(frozen=True, eq=False)
class Column:
    """Clean values of one column (n,), and the texts that the codes of a category stand for."""

    kind: str
    values: np.ndarray
    levels: tuple[str, ...] = ()

    def take(self, rows: Any) -> Column:
        return Column(self.kind, self.values[rows], self.levels)

    def arrow(self) -> pa.Array:
        """As it was given, but for its type: to be read as another kind."""
        if self.kind != "category":
            return pa.array(self.values, from_pandas=True)
        return pa.DictionaryArray.from_arrays(pa.array(self.values, mask=self.values < 0), pa.array(self.levels, "str"))


def read_column(name: str, values: Any, kind: str | None = None) -> Column:
    """A column of any make as clean values, of the kind asked for or that it looks like."""
    array = to_arrow(name, values)
    kind = kind or _kind_of(name, array)
    if kind == "number":
        return Column(kind, _numbers(name, array))
    if kind == "date":
        return Column(kind, _days(name, array))
    plain = array.type.value_type if pa.types.is_dictionary(array.type) else array.type
    if kind == "text" and not pa.types.is_string(plain):
        raise InputError(f"column {name!r} must be text, got {array.type}; choose another kind for it")
    found = _as_text(array)
    if kind == "text":
        return Column(kind, np.array(found.fill_null("").to_pylist(), dtype=object))
    coded = pc.dictionary_encode(found)
    codes = coded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int32)
    return Column(kind, codes, tuple(coded.dictionary.to_pylist()))


def check_kinds(kinds: Any, names: tuple[str, ...]) -> dict[str, str]:
    """The kinds that a caller gives to some columns, by name."""
    if kinds is None:
        return {}
    if not isinstance(kinds, Mapping):
        raise InputError(f"kinds must be a dict from columns to kinds, got {shown(kinds)}; as {{'zip': 'category'}}")
    for name, kind in kinds.items():
        if name not in names:
            raise unknown("column in kinds:", name, names)
        if kind not in KINDS:
            raise unknown(f"kind of column {name!r}:", kind, KINDS)
    return dict(kinds)


def to_arrow(name: str, values: Any) -> pa.Array:
    """A column as one Arrow array; texts as `string`, dictionaries kept, NaN of numbers as null."""
    given = values.detach().cpu().numpy() if isinstance(values, Tensor) else values
    given = given.to_arrow() if hasattr(given, "to_arrow") else given  # polars
    try:
        array = given if isinstance(given, pa.Array | pa.ChunkedArray) else pa.array(given, from_pandas=True)
        array = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
        if isinstance(array, pa.ChunkedArray):  # of no chunk, or of texts beyond 2 GB
            array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
        kind = array.type
        if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
            array = array.cast(pa.string())
    except Exception as error:  # whatever a stranger's column may raise
        raise InputError(
            f"column {name!r} cannot be read ({reason(error)}); make its values of one kind, text or numbers"
        ) from error
    return array


def _kind_of(name: str, array: pa.Array) -> str:
    """What a column looks like."""
    kind = array.type
    if _is_number(kind) or pa.types.is_null(kind):
        return "number"
    if pa.types.is_dictionary(kind) or pa.types.is_boolean(kind):
        return "category"
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return "date"
    if not pa.types.is_string(kind):
        raise InputError(f"column {name!r} is of type {kind}; give it as numbers, text or dates, or leave it out")
    return _kind_of_text(name, array)


def _kind_of_text(name: str, array: pa.Array) -> str:
    """Dates if most look so, sentences, or a category; a few texts among numbers are a mistake of the file's."""
    distinct = pc.value_counts(_as_text(array).drop_null())
    if len(distinct) == 0:
        return "category"
    some = distinct.take(np.arange(0, len(distinct), -(-len(distinct) // _SOME)))
    values, counts = some.field("values").to_pylist(), some.field("counts").to_numpy()
    if np.mean([_looks_like_a_date(one) for one in values]) > 0.5:
        return "date"
    numeric = np.array([_is_float(one) for one in values])
    mostly = numeric.mean() > 0.5 if len(distinct) > _FEW else (numeric * counts).sum() > 0.99 * counts.sum()
    if mostly and (odd := _first(array, lambda one: one != "" and not _is_float(one))) is not None:
        raise InputError(
            f"column {name!r} has the text {array[odd].as_py()!r:.60} at row {odd} among numbers; mend it, leave it "
            f"empty if it is missing, or pass kinds={{{name!r}: 'category'}} (--kinds {name}:category)"
        )
    words = np.mean([len(one.split()) for one in values])
    return "text" if len(distinct) > len(array) / 2 and words >= _WORDS else "category"


def _as_text(array: pa.Array) -> pa.Array:
    """Values as texts, "" as null; whole numbers are written without a point, whatever their type."""
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_floating(array.type):
        array = pc.if_else(pc.is_nan(array), None, array)
        whole = pc.all(pc.equal(array, pc.round(array))).as_py() is not False
        array = array.cast(pa.int64()) if whole and (pc.max(pc.abs(array)).as_py() or 0) < 2**53 else array
    texts = array if pa.types.is_string(array.type) else array.cast(pa.string())
    return pc.if_else(pc.equal(texts, ""), None, texts)


def _numbers(name: str, array: pa.Array) -> np.ndarray:
    """A column as float64, NaN where missing; what is beyond single precision is refused."""
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    texts = pa.types.is_string(array.type)
    if not (texts or _is_number(array.type) or pa.types.is_boolean(array.type) or pa.types.is_null(array.type)):
        raise InputError(f"column {name!r} must be numbers, got {array.type}; convert it")
    if texts and (odd := _first(array, lambda one: one != "" and not _is_float(one))) is not None:
        raise InputError(
            f"column {name!r} must be numbers, got the text {array[odd].as_py()!r:.60} at row {odd}; mend it, or leave "
            "it empty if it is missing"
        )
    array = _as_text(array) if texts else array
    array = array.cast(pa.int8()) if pa.types.is_boolean(array.type) else array
    values = np.asarray(array.cast(pa.float64(), safe=False).fill_null(np.nan), dtype=np.float64)
    bad = np.flatnonzero(np.abs(values) > np.finfo(np.float32).max)
    if len(bad):
        raise InputError(
            f"column {name!r} must be finite, got {values[bad[0]]} at row {bad[0]} ({len(bad)} such in the column); "
            "correct it, or leave it empty if it is missing"
        )
    return values


def _days(name: str, array: pa.Array) -> np.ndarray:
    """A column of dates or times as days since 1970 in UTC, NaN where missing."""
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    array = _as_text(array) if pa.types.is_string(array.type) else array
    try:
        zoned = getattr(array.type, "tz", None) is not None
        stamps = array.cast(pa.timestamp("us", tz="UTC" if zoned else None), safe=False)
    except pa.ArrowException as error:
        odd = _first(array, lambda one: not _is_date(one)) if pa.types.is_string(array.type) else None
        found = str(array.type) if odd is None else f"{array[odd].as_py()!r:.60} at row {odd}"
        raise InputError(
            f"column {name!r} must be dates, got {found}; write them as 2024-12-31 or 2024-12-31 23:59:59, or leave "
            "it empty if it is missing"
        ) from error
    return np.asarray(stamps.cast(pa.int64()).cast(pa.float64(), safe=False).fill_null(np.nan)) / _DAY


def _first(array: pa.Array, odd: Any) -> int | None:
    """The first row whose text is odd."""
    return next((row for row, one in enumerate(array.to_pylist()) if one is not None and odd(one)), None)


def _is_float(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _looks_like_a_date(text: str) -> bool:
    return text[:4].isdigit() and text[4:5] == "-" and text[5:7].isdigit() and text[7:8] == "-"


def _is_date(text: str) -> bool:
    try:
        pa.scalar(text).cast(pa.timestamp("us"))
    except pa.ArrowException:
        return False
    return True


def _is_number(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)

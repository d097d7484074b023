"""Columns of a table as numbers that a network takes: each kind of column is one small class.

An encoder is fitted on the training rows and remembers what it needs by plain numbers and texts (`state`), so that it
is saved without pickle and does the same in every version. scikit-learn's ColumnTransformer of SimpleImputer,
StandardScaler and OneHotEncoder gives the same matrix (a test says so), but it knows the columns of pandas and polars
alone, neither of which is needed here, and its fitted state is private to a version.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from noiseproof.data.columns import Column

MOST_VALUES = 64  # of a category that have a feature of their own; the others share "none of them"
LEAST_COUNT = 2  # rows of a value with a feature of its own
_LENGTH = 5.0  # of a row of tf-idf
MOST_TERMS = 4096  # of each kind, of a text column
_TERMS: dict[str, dict[str, Any]] = {  # what makes a term, as scikit-learn has it
    "token": {"analyzer": "word", "ngram_range": (1, 2), "token_pattern": r"\w+|[^\w\s]+|\n\s*"},
    "word": {"analyzer": "word", "ngram_range": (1, 2)},  # of models that were saved before marks and lines were terms
    "char_wb": {"analyzer": "char_wb", "ngram_range": (2, 4)},  # and of those before pieces kept their case
    "piece": {"analyzer": "char_wb", "ngram_range": (2, 4), "lowercase": False},
}
_PERIODS = {"year": 365.2425, "week": 7.0, "day": 1.0}  # of dates, in days


@dataclass(frozen=True)
class Encoder:
    """What is the same of all: the column's name."""

    kind: ClassVar[str]
    name: str

    def state(self) -> dict[str, Any]:
        """For a file; `from_state` reads it."""
        return {"kind": self.kind, **asdict(self)}


@dataclass(frozen=True)
class Number(Encoder):
    """(x − mean) / scale, the median where x is missing, and whether it is, if any of the training rows is.

    A column of one value, or of none, has nothing to tell: no feature.
    """

    kind = "number"
    median: float
    mean: float
    scale: float  # 0 where all are the same
    missing: bool

    @classmethod
    def fit(cls, name: str, column: Column) -> Number:
        known = column.values[~np.isnan(column.values)]
        median = float(np.median(known)) if len(known) else 0.0
        filled = np.nan_to_num(column.values, nan=median)
        scale = float(filled.std())
        flat = scale <= 1e-9 * abs(median)  # what rounding leaves of a constant
        return cls(name, median, float(filled.mean()), 0.0 if flat else scale, 0 < len(known) < len(filled))

    @property
    def width(self) -> int:
        return (self.scale > 0) + self.missing

    def encode(self, column: Column) -> np.ndarray:
        missing = np.isnan(column.values)
        features = []
        if self.scale > 0:
            features.append((np.where(missing, self.median, column.values) - self.mean) / self.scale)
        if self.missing:
            features.append(missing)
        return _stacked(features, len(missing))


@dataclass(frozen=True)
class Category(Encoder):
    """One feature for each of the frequent values, and one for missing ones; other values have none."""

    kind = "category"
    values: tuple[str, ...]
    missing: bool
    others: bool  # whether the training rows had values without a feature

    @classmethod
    def fit(cls, name: str, column: Column) -> Category:
        counts = np.bincount(column.values[column.values >= 0], minlength=len(column.levels))
        present = sorted((-count, level) for count, level in zip(counts.tolist(), column.levels, strict=True) if count)
        kept = [level for count, level in present[:MOST_VALUES] if -count >= LEAST_COUNT]
        return cls(name, tuple(sorted(kept)), bool((column.values < 0).any()), len(kept) < len(present))

    @property
    def width(self) -> int:
        return len(self.values) + self.missing

    def encode(self, column: Column) -> np.ndarray:
        place = {value: i for i, value in enumerate(self.values)}
        where = np.array([*(place.get(level, -1) for level in column.levels), -1])  # the last: of code -1, missing
        where[-1] = len(self.values) if self.missing else -1
        return (where[column.values][:, None] == np.arange(self.width)).astype(np.float32)

    def unseen(self, column: Column) -> dict[str, int]:
        """Values that none of the training rows had, and in how many rows; what was rare there stands for them."""
        if self.others:
            return {}
        counts = np.bincount(column.values[column.values >= 0], minlength=len(column.levels))
        known = set(self.values)
        return {level: int(n) for level, n in zip(column.levels, counts, strict=True) if n and level not in known}


@dataclass(frozen=True)
class Date(Encoder):
    """The days since 1970 as a number, and where in the year, the week and the day it is, as points on circles."""

    kind = "date"
    days: Number
    periods: tuple[str, ...]  # those of which the training rows see more than one point

    @classmethod
    def fit(cls, name: str, column: Column) -> Date:
        known = column.values[~np.isnan(column.values)]
        seen = [period for period, length in _PERIODS.items() if len(np.unique(known % length)) > 1]
        return cls(name, Number.fit(name, column), tuple(seen))

    @property
    def width(self) -> int:
        return self.days.width + 2 * len(self.periods)

    def encode(self, column: Column) -> np.ndarray:
        features = [*self.days.encode(column).T]
        for period in self.periods:
            angle = 2 * np.pi * column.values / _PERIODS[period]
            features += [np.nan_to_num(np.sin(angle)), np.nan_to_num(np.cos(angle))]
        return _stacked(features, len(column.values))


@dataclass(frozen=True)
class Terms:
    """tf-idf of the most frequent terms of one kind (scikit-learn's TfidfVectorizer), in rows of length 5.

    That is the length of a row of 25 scaled numbers: one learning rate suits both.
    """

    analyzer: str  # "token": words, marks, line breaks and pairs of these; "piece": two to four characters inside of
    # words, in their case
    terms: tuple[str, ...]
    idf: tuple[float, ...]

    @classmethod
    def fit(cls, analyzer: str, texts: np.ndarray) -> Terms:
        vectorizer = _vectorizer(analyzer, max_features=MOST_TERMS, min_df=2)
        try:
            vectorizer.fit(texts)
        except ValueError:  # no term comes twice
            return cls(analyzer, (), ())
        return cls(analyzer, tuple(vectorizer.get_feature_names_out().tolist()), tuple(vectorizer.idf_.tolist()))

    @cached_property
    def _vectorizer(self) -> Any:
        vectorizer = _vectorizer(self.analyzer, vocabulary=self.terms)
        vectorizer.idf_ = np.array(self.idf)
        return vectorizer

    def encode(self, texts: np.ndarray) -> np.ndarray:
        if not self.terms:
            return np.zeros((len(texts), 0), np.float32)
        return (_LENGTH * self._vectorizer.transform(texts).toarray()).astype(np.float32)


@dataclass(frozen=True)
class Text(Encoder):
    """The words, marks and line breaks of a text; and pieces of its words in their case, which tell its voice and
    forgive its spelling."""

    kind = "text"
    words: Terms
    pieces: Terms

    @classmethod
    def fit(cls, name: str, column: Column) -> Text:
        return cls(name, Terms.fit("token", column.values), Terms.fit("piece", column.values))

    @property
    def width(self) -> int:
        return len(self.words.terms) + len(self.pieces.terms)

    def encode(self, column: Column) -> np.ndarray:
        return np.concatenate([self.words.encode(column.values), self.pieces.encode(column.values)], axis=1)


ENCODERS: dict[str, Any] = {one.kind: one for one in (Number, Category, Date, Text)}


def from_state(state: dict[str, Any]) -> Any:
    """The encoder that `state` is of.

    Raises:
        KeyError, TypeError, ValueError: it is of none.
    """
    parts: dict[str, Any] = _with_tuples(state)
    kind = parts.pop("kind")
    if kind == "date":
        parts["days"] = Number(**parts["days"])
    if kind == "text":
        for name in ("words", "pieces"):
            parts[name] = Terms(**_with_tuples(parts[name]))
            if len(set(parts[name].terms)) != len(parts[name].idf) or parts[name].analyzer not in _TERMS:
                raise ValueError(f"{len(parts[name].terms)} terms, {len(parts[name].idf)} weights")
    return ENCODERS[kind](**parts)


def _with_tuples(state: dict[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in state.items()}


def _vectorizer(analyzer: str, **options: Any) -> Any:
    from sklearn.feature_extraction.text import TfidfVectorizer

    return TfidfVectorizer(sublinear_tf=True, strip_accents="unicode", **_TERMS[analyzer], **options)


def _stacked(features: list[np.ndarray], n: int) -> np.ndarray:
    with np.errstate(over="ignore"):  # what does not fit becomes infinite, and the network has no answer to it
        return np.stack(features, axis=1).astype(np.float32) if features else np.zeros((n, 0), np.float32)

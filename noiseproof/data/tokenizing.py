"""Texts as the tokens of a model of Hugging Face's transformers; nothing is downloaded."""

from __future__ import annotations

import os
from functools import lru_cache
from typing import Any

from noiseproof.data.columns import read_column
from noiseproof.data.labeled import LabeledData, is_table
from noiseproof.data.packing import Packed
from noiseproof.errors import InputError, reason

_LONGEST = 512  # tokens of a text, where the tokeniser does not say


def local(load: Any, path: str, **options: Any) -> Any:
    """What `load`, a from_pretrained of transformers, makes of a folder, or of what was downloaded under a name before.

    Raises:
        InputError: transformers is not installed, or there is no such model here.
    """
    try:
        return load(os.path.expanduser(path), local_files_only=True, **options)
    except (OSError, ValueError, KeyError, RuntimeError, ImportError) as error:
        raise InputError(
            f"there is no model of transformers at {path!r} ({reason(error)}); pass the folder of one that was saved, "
            "or the name of one that was downloaded before: nothing is fetched from here"
        ) from error


def transformers() -> Any:
    """The library, if it is there."""
    try:
        import transformers as library
    except ImportError as error:
        raise InputError("a model hf:PATH needs transformers; pip install 'noiseproof[hf]'") from error
    return library


@lru_cache(maxsize=4)
def _tokenizer(path: str) -> Any:
    return local(transformers().AutoTokenizer.from_pretrained, path)


def tokenize(texts: list[str], path: str) -> dict[str, list[list[int]]]:
    """Each text as the numbers that the model at `path` takes, by the names it gives them."""
    tokenizer = _tokenizer(path)
    longest = min(tokenizer.model_max_length, _LONGEST)
    return dict(tokenizer(texts, truncation=True, max_length=longest))


def tokenized(name: str, data: LabeledData, path: str) -> LabeledData:
    """Data whose one column is text, as tokens.

    Raises:
        InputError: it has other columns.
    """
    if isinstance(data.inputs, Packed):
        return data
    columns = data.inputs.columns if is_table(data.inputs) else {}
    if len(columns) != 1 or next(iter(columns.values())).kind not in ("text", "category"):
        held = ", ".join(columns) or f"inputs of shape {data.input_shape}"
        raise InputError(
            f"{name}: a model hf:PATH takes one column of texts, got {held}; choose it with feature_columns "
            "(--feature-columns), and say that it is text (--kinds COLUMN:text)"
        )
    [(column, values)] = columns.items()
    texts = read_column(column, values.arrow(), "text").values.tolist()
    empty = next((row for row, text in enumerate(texts) if not text), None)
    if empty is not None:
        raise InputError(f"{name}: column {column!r} holds a text of length zero at row {empty}; drop the row")
    return data.with_inputs(Packed.of(tokenize(texts, path), tokenizer=path))

"""Patterns of structure: what they take, and what they say of what they do not."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from noiseproof.runs.structure import Some, mismatch

VECTOR = torch.zeros(3)
FITTING = [
    (3, 4), (3.0, float), (3, float), (None, int | None), ("a", "b"), (False, bool), (7, range(8)), ([], [int, ...]),
    ([1, 2], [int, ...]), ({"a": 1}, {...: int}), ({}, {...: int}), (torch.ones(3), VECTOR), (VECTOR, Tensor),
    ({0: 1}, Some({0: 1, 1: 2})), ({"a": [VECTOR]}, {"a": [VECTOR]}), (None, (None, [str, ...])), ("anything", object),
    (True, object),
]  # fmt: skip
ODD = [
    (3.5, int, "it is float, not int"), (True, int, "it is bool, not int"), (True, float, "not float"),
    (8, range(8), r"it is int, not range\(0, 8\)"), ("a", None, "it is str, not NoneType"),
    ([1, "a"], [int, ...], "/1 is str, not int"), ([1], [1, 2], "holds 1 entries, not 2"),
    ({"a": 1}, {"b": 1}, "/a is unknown|/b is missing"), ({}, {"b": 1}, "/b is missing"),
    ({1: 1}, {...: int}, "no text"),
    ({2: 1}, Some({0: 1}), "/2 is unknown"), ([], {}, "it is list, not dict"), ("a", (None, [str, ...]), "not list"),
    ({"a": {"b": torch.zeros(2)}}, {"a": {"b": VECTOR}}, r"/a/b is a float32 tensor \(2,\), not .* \(3,\)"),
    (VECTOR.long(), VECTOR, "int64"),
]  # fmt: skip


@pytest.mark.parametrize(("value", "like"), FITTING)
def test_what_fits(value, like):
    assert mismatch(value, like) is None


@pytest.mark.parametrize(("value", "like", "words"), ODD)
def test_what_does_not_fit_is_told_with_its_place(value, like, words):
    with pytest.raises(AssertionError, match=words):
        raise AssertionError(mismatch(value, like))

"""The door of the audit, at the ends of what it takes; and rows in blocks."""

from __future__ import annotations

import os
import threading
import time
import warnings
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_info

import noiseproof as nf
from noiseproof.auditing import arrays, blocks
from noiseproof.errors import InputError

LABELS = np.arange(40) % 2


def predicted(n: int = 40, kind: type = np.float32) -> np.ndarray:
    """Rows of (¾, ¼), and the other way round where the label is 1, but for the first."""
    p = np.where(np.eye(2, dtype=bool)[np.arange(n) % 2], 0.75, 0.25)
    p[0] = p[0, ::-1]
    return p.astype(kind)


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "_BLOCK", 8)


def test_blocks_hold_half_a_mebibyte_of_float32() -> None:
    assert list(blocks.blocks(5, 2**16)) == [slice(0, 2), slice(2, 4), slice(4, 5)]
    assert list(blocks.blocks(131_073, 1)) == [slice(0, 131_072), slice(131_072, 131_073)]
    assert list(blocks.blocks(2, 2**20)) == [slice(0, 1), slice(1, 2)]  # a row at least
    assert list(blocks.blocks(0, 3)) == []


def test_one_block_is_worked_on_here_and_more_in_threads_without_those_of_blas(
    small_blocks: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    seen: list[tuple[slice, bool, int]] = []

    def work(rows: slice) -> None:
        most = max((one["num_threads"] for one in threadpool_info()), default=1)
        seen.append((rows, threading.current_thread() is threading.main_thread(), most))

    blocks.in_threads(work, 4, 2)
    assert [(rows, here) for rows, here, _ in seen] == [(slice(0, 4), True)]
    seen.clear()
    both = threading.Barrier(2, timeout=60)
    blocks.in_threads(lambda rows: (both.wait(), work(rows))[1], 8, 2)
    assert sorted(rows.start for rows, *_ in seen) == [0, 4]
    assert sorted((here, most) for _, here, most in seen) == [(False, 1), (True, 1)]
    seen.clear()
    blocks.in_threads(work, 41, 2)
    assert sorted(rows.start for rows, *_ in seen) == list(range(0, 41, 4))
    seen.clear()
    monkeypatch.setattr(os, "cpu_count", lambda: None)  # nobody knows
    blocks.in_threads(work, 9, 2)
    assert [(rows.start, here) for rows, here, _ in seen] == [(0, True), (4, True), (8, True)]
    blocks.in_threads(work, 0, 2)
    assert len(seen) == 3


def test_work_in_threads_is_not_spread_over_further_ones(small_blocks: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    seen: dict[int, list[threading.Thread]] = {}
    both = threading.Barrier(2, timeout=60)

    def work(rows: slice) -> None:
        both.wait()
        at = seen.setdefault(rows.start, [threading.current_thread()])
        blocks.in_threads(lambda _: at.append(threading.current_thread()), 9, 2)

    for _ in range(2):  # and afterwards threads are to be had again
        seen.clear()
        blocks.in_threads(work, 8, 2)
        assert sorted(seen) == [0, 4]
        assert all(len(at) == 4 and len(set(at)) == 1 for at in seen.values())
    assert seen[0][0] is not seen[4][0]


def test_of_several_mistakes_the_first_block_is_named(small_blocks: None) -> None:
    def work(rows: slice) -> None:
        if rows.start:
            raise InputError(f"row {rows.start}")

    for _ in range(20):
        with pytest.raises(InputError, match="row 4"):
            blocks.in_threads(work, 40, 2)


def test_an_interruption_ends_the_work(small_blocks: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    seen: list[int] = []

    def work(rows: slice) -> None:
        seen.append(rows.start)
        time.sleep(0.001)
        if threading.current_thread() is threading.main_thread():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        blocks.in_threads(work, 4000, 2)
    assert len(seen) < 500


def test_true_and_false_are_names() -> None:
    codes, names = arrays.parse_labels([True, False, True], None)
    assert (codes.tolist(), names) == ([1, 0, 1], ("False", "True"))
    assert arrays.parse_labels([2, 0, 1], None)[0].tolist() == [2, 0, 1]


def test_columns_go_by_their_names() -> None:
    pd = pytest.importorskip("pandas")

    class Table:  # as some have it: a method, not the names
        def columns(self) -> list[str]:
            return ["a"]

    p = np.array([[0.1, 0.9], [0.8, 0.2]])
    assert arrays.names_of_columns(p) is arrays.names_of_columns(Table()) is None
    assert arrays.names_of_columns(pd.DataFrame(p, columns=[1, "b"])) == ["1", "b"]
    np.testing.assert_array_equal(arrays.in_order(pd.DataFrame(p, columns=["b", "a"]), ["a", "b"]), p[:, ::-1])
    assert arrays.in_order(p, ["a", "b"]) is p


def test_predictions_stay_as_they_are_but_whole_numbers_become_floats() -> None:
    for kind in (np.float16, np.float32, np.float64):
        p = predicted(kind=kind)
        assert arrays.parse_predictions(p, LABELS) is p
    for kind in (np.int64, np.uint8, bool):
        found = arrays.parse_predictions(np.eye(2)[1 - LABELS].astype(kind), LABELS)
        assert found.dtype == np.float32
        np.testing.assert_array_equal(found, np.eye(2)[1 - LABELS])


@pytest.mark.parametrize(
    ("p", "words"),
    [
        (predicted()[:, 0], r"probabilities \(n, K\), got float32 of shape \(40,\)"),
        (predicted()[None], r"got float32 of shape \(1, 40, 2\)"),
        (predicted().astype(complex), "got complex128 of shape"),
        (predicted()[:39], "39 rows for 40 labels"),
        (predicted()[:, :1] * 0 + 1, "1 columns, but the largest label is 1"),
        (np.eye(3, dtype=np.float32)[LABELS], "class 2 is given to no label, .*; leave out its column"),
        (np.eye(4, dtype=np.float32)[LABELS], "class 2 is given .*; leave out the columns of all 2 such classes"),
    ],
)
def test_what_are_no_predictions_of_these_labels(p: np.ndarray, words: str) -> None:
    with pytest.raises(InputError, match=words):
        arrays.parse_predictions(p, LABELS)


def test_as_many_columns_as_the_largest_label_are_one_too_few() -> None:
    with pytest.raises(InputError, match="2 columns, but the largest label is 2"):
        arrays.parse_predictions(predicted(), np.where(np.arange(40) < 3, 2, LABELS))


@pytest.mark.parametrize(
    ("kind", "column", "taken", "refused"),
    [
        (np.float32, 1, 8e-4, 1.5e-3), (np.float32, 1, -8e-4, -1.5e-3), (np.float64, 1, 8e-4, 1.5e-3),
        (np.float16, 1, 0.016, 0.03), (np.float32, 0, -8e-7, -1.5e-6),
    ],
)  # fmt: skip
@pytest.mark.parametrize("in_blocks", [False, True])
def test_sums_and_signs_have_a_tolerance(
    kind: type, column: int, taken: float, refused: float, in_blocks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1e-3 of a sum, 0.02 in half precision; a millionth below 0. The first row beyond it is named, by its number."""
    monkeypatch.setattr(blocks, "_BLOCK", 8 if in_blocks else 2**17)
    p = predicted(kind=kind)
    p[30] = (taken, 1 - taken) if column == 0 else (0.25, 0.75 + taken)
    assert arrays.parse_predictions(p, LABELS) is p
    for row in (33, 35):
        p[row] = (refused, 1 - refused) if column == 0 else (0.25, 0.75 + refused)
    total, least = (1.0, refused) if column == 0 else (p[33].astype(np.float32).sum(), 0.25)
    with pytest.raises(InputError, match=rf"row 33 has a sum of {total:.4g}, entries from {least:.4g}; pass logits"):
        arrays.parse_predictions(p, LABELS)


def test_a_row_that_is_no_number_is_named(small_blocks: None) -> None:
    p = predicted()
    p[[17, 38], 1] = np.nan
    with pytest.raises(InputError, match="row 17 has a NaN"):
        arrays.parse_predictions(p, LABELS)


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize(("value", "words"), [(np.nan, "a NaN"), (-0.5, "a sum of"), (2.0, "a sum of")])
def test_a_mistake_is_found_however_predictions_lie_in_memory(kind: type, value: float, words: str) -> None:
    p = predicted(kind=kind)
    p[23, 1] = value
    wide = np.repeat(p, 2, axis=1)
    for laid in (p, np.asfortranarray(p), wide[:, ::2], p[:, ::-1]):
        with pytest.raises(InputError, match=f"row 23 has {words}"):
            arrays.parse_predictions(laid, LABELS)


@pytest.mark.parametrize(
    ("n", "other", "warned"), [(41, None, True), (40, None, False), (41, 0, False), (41, 40, False)]
)
def test_to_agree_with_all_of_many_labels_is_suspicious(
    n: int, other: int | None, warned: bool, small_blocks: None
) -> None:
    labels = np.arange(n) % 2
    p = np.eye(2, dtype=np.float32)[labels]
    if other is not None:
        p[other] = p[other, ::-1]
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        arrays.parse_predictions(p, labels)
    assert len(seen) == warned


def test_a_warning_points_at_the_line_of_the_caller() -> None:
    labels = np.arange(60) % 2
    with pytest.warns(UserWarning, match="trained on") as seen:
        nf.audit(labels, 0.98 * np.eye(2)[labels] + 0.01)
    assert seen[0].filename == __file__
    with pytest.warns(UserWarning, match="next to nothing") as seen:
        nf.audit(labels, np.full((60, 2), 0.5))
    assert seen[0].filename == __file__


@pytest.mark.parametrize(
    ("features", "n", "words"),
    [
        (np.zeros(12), 12, r"numbers \(n, F\) for n = 12 labels, got float64 of shape \(12,\)"),
        (np.zeros((12, 1, 1)), 12, "got float64"),
        (np.zeros((12, 0)), 12, "got float64"),
        (np.full((12, 1), "a"), 12, "got <U1"),
        (np.zeros((12, 2)), 13, "for n = 13 labels"),
        (np.where(np.arange(24).reshape(12, 2) == 15, np.inf, 0), 12, "finite, and below 1e\\+18, row 7 is not"),
        (np.zeros((9, 2)), 9, "10 examples or more, got 9"),
    ],
)
def test_what_are_no_features(features: Any, n: int, words: str, small_blocks: None) -> None:
    with pytest.raises(InputError, match=words):
        arrays.parse_features(features, n)


def test_features_of_ten_examples_are_enough() -> None:
    for kind, found in ((np.float64, np.float64), (np.float32, np.float32), (np.int8, np.float32), (bool, np.float32)):
        assert arrays.parse_features(np.ones((10, 1), kind), 10).dtype == found

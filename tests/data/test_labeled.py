"""LabeledData: what it keeps, how it splits, and that large inputs are never copied."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from noiseproof.data import LabeledData, load, noise
from noiseproof.data.sources import Mapped, Rows
from noiseproof.errors import InputError
from noiseproof.training.fit import fit


def features(labels: list[int], **options: object) -> LabeledData:
    return LabeledData(np.arange(2.0 * len(labels)).reshape(-1, 2), labels, allow_empty=True, **options)


def test_attributes_of_features() -> None:
    data = LabeledData([[1.0, 2], [3, 4], [5, 6]], [0, 1, 1], true_labels=[0, 0, 1], ids=["a", "b", "c"])
    assert len(data) == 3
    assert data.inputs.dtype == torch.float32
    assert data.labels.dtype == torch.int64
    assert data.num_classes == 2
    assert data.class_names == ("0", "1")
    assert data.input_shape == (2,)
    assert not data.is_image
    assert data.wrong.tolist() == [False, True, False]
    assert data.noise_rate == pytest.approx(1 / 3)
    assert data.take(torch.tensor([2, 0])).tolist() == [[5, 6], [1, 2]]
    assert repr(data) == "LabeledData(3 features 2 float32, 2 classes, 33.3 % of the labels wrong)"


def test_text_labels_become_sorted_class_names() -> None:
    data = LabeledData(np.eye(3), ["cat", "ant", "cat"], true_labels=["cat", "ant", "bee"])
    assert data.class_names == ("ant", "bee", "cat")
    assert data.labels.tolist() == [2, 0, 2]
    assert data.true_labels.tolist() == [2, 0, 1]


def test_text_labels_follow_given_class_names() -> None:
    data = LabeledData(np.eye(2), np.array(["dog", "cat"], dtype=object), class_names=["dog", "cat"])
    assert data.labels.tolist() == [0, 1]


@pytest.mark.parametrize("labels", [[0.0, 1.0], np.array([0, 1], dtype=np.uint8), torch.tensor([0, 1]), [False, True]])
def test_label_kinds(labels: object) -> None:
    assert LabeledData(np.eye(2), labels).labels.tolist() == [0, 1]


def test_uint8_images_are_not_copied() -> None:
    pixels = np.zeros((4, 3, 5, 5), dtype=np.uint8)
    data = LabeledData(pixels, [0, 1, 0, 1])
    assert data.is_image
    assert data.inputs.data_ptr() == pixels.ctypes.data
    assert data.take(torch.tensor([1])).dtype == torch.uint8


@pytest.mark.parametrize("kind", [np.int64, np.uint16])
def test_integer_images_become_uint8(kind: type) -> None:
    assert LabeledData(np.full((2, 1, 4, 4), 255, dtype=kind), [0, 1]).inputs.dtype == torch.uint8


def test_arrays_torch_cannot_share() -> None:
    base = np.arange(6.0).reshape(3, 2)
    locked = base.copy()
    locked.flags.writeable = False
    for array in (base[::-1], locked, base.astype(">f8"), base.astype(np.float16)):
        data = LabeledData(array, [0, 1, 0])
        assert np.array_equal(data.inputs.numpy(), array.astype(np.float32))


def test_other_labels_say_nothing_of_the_true_ones() -> None:
    data = features([0, 1, 2])
    assert data.with_labels([0, 2, 2]).true_labels is None
    noisy = data.with_labels([0, 2, 2], true_labels=data.labels)
    assert noisy.true_labels.tolist() == [0, 1, 2]
    assert noisy.with_labels([1, 1, 1]).true_labels.tolist() == [0, 1, 2]
    assert data.true_labels is None
    with pytest.raises(InputError, match="true_labels holds 2 values"):
        data.with_labels([0, 1, 2], true_labels=[0, 1])
    with pytest.raises(InputError, match=r"0\.\.2"):
        data.with_labels([0, 1, 3])


def test_subset_by_index_and_mask() -> None:
    data = features([0, 1, 2, 1], ids=list("abcd"), true_labels=[0, 0, 2, 1])
    for part in (data.subset([3, 0]), data.subset(torch.tensor([3, 0]))):
        assert part.labels.tolist() == [1, 0]
        assert part.ids == ["d", "a"]
        assert part.true_labels.tolist() == [1, 0]
        assert part.num_classes == 3
        assert part.take(torch.tensor([0])).tolist() == [[6, 7]]
    assert data.subset(np.array([True, False, False, True])).ids == ["a", "d"]
    for bad, phrase in (([4], r"0\.\.3"), ([], "empty"), ([-1], "-1"), ([[0]], "whole numbers"), ([True], "mask")):
        with pytest.raises(InputError, match=phrase):
            data.subset(bad)


def test_subset_of_large_inputs_copies_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("noiseproof.data.sources.COPY_LIMIT", 10)
    data = features([0, 1, 2, 1, 0])
    part = data.subset([4, 3, 1]).subset([2, 0])
    assert isinstance(part.inputs, Rows)
    assert part.inputs.base is data.inputs
    assert part.inputs.rows.tolist() == [1, 4]
    assert torch.equal(part.take(torch.tensor([1, 0])), data.take(torch.tensor([4, 1])))
    assert part.input_shape == (2,)
    assert "Rows" in repr(part)


def test_mapped_rows_are_cast_and_laid_out() -> None:
    array = np.arange(24, dtype=np.uint8).reshape(2, 2, 2, 3)
    for stored in (array, array.astype(np.int64), array.astype(">u2")):
        images = Mapped(stored.transpose(0, 3, 1, 2))
        assert images.shape == (2, 3, 2, 2)
        assert images.dtype == torch.uint8
        assert np.array_equal(images.take(torch.tensor([1])), array[1:].transpose(0, 3, 1, 2))
    assert Mapped(array[:, 0, :, 0].astype(np.float64)).take(torch.tensor([0])).dtype == torch.float32


@given(
    counts=st.lists(st.integers(0, 12), min_size=2, max_size=6).filter(lambda c: max(c) >= 2),
    fraction=st.floats(0.01, 0.99),
    seed=st.integers(0, 5),
)
def test_split_is_a_stratified_partition(counts: list[int], fraction: float, seed: int) -> None:
    labels = [c for c, count in enumerate(counts) for _ in range(count)]
    data = features(labels, class_names=[str(c) for c in range(len(counts))])
    rest, part = data.split(fraction, seed=seed)
    rows = torch.cat([rest.inputs, part.inputs])[:, 0] / 2
    assert sorted(rows.tolist()) == list(range(len(labels)))
    for c, count in enumerate(counts):
        in_part = int((part.labels == c).sum())
        assert int((rest.labels == c).sum()) == count - in_part
        assert abs(in_part - fraction * count) <= 1
        if count >= 2:
            assert 0 < in_part < count
    again = data.split(fraction, seed=seed)[1]
    assert torch.equal(again.inputs, part.inputs)


def test_classes_may_be_called_otherwise() -> None:
    data = LabeledData(torch.zeros(4, 2), [0, 1, 1, 0])
    named = data.with_class_names(["cat", "dog"])
    assert named.class_names == ("cat", "dog")
    assert torch.equal(named.labels, data.labels)
    for names in (["cat"], ["cat", "cat"], ["cat", "dog", "cow"]):
        with pytest.raises(InputError, match="must be 2 different names"):
            data.with_class_names(names)


def test_split_total_and_seed() -> None:
    data = load("digits")
    rest, part = data.split(0.2)
    assert len(part) == round(0.2 * len(data))
    assert len(rest) + len(part) == len(data)
    assert not torch.equal(part.labels, data.split(0.2, seed=1)[1].labels)


def test_import_is_light() -> None:
    import subprocess
    import sys

    code = "import sys, noiseproof.data; print([m for m in ('sklearn', 'pyarrow', 'PIL', 'scipy') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_without_labels() -> None:
    data = LabeledData(torch.zeros(4, 3), None)
    assert (data.labeled, data.num_classes, data.labels.tolist()) == (False, 1, [0, 0, 0, 0])
    assert "no labels" in repr(data)
    assert [len(part) for part in data.split(0.5)] == [2, 2]
    with pytest.raises(InputError, match="no use without labels"):
        LabeledData(torch.zeros(4, 3), None, class_names=["a", "b"])
    with pytest.raises(InputError, match="no labels to corrupt"):
        noise.apply(data, "symmetric:0.5")
    with pytest.raises(InputError, match="no labels to learn"):
        fit("mlp", data, "ce", epochs=1)


@pytest.mark.parametrize("count", [3, 77, 158, 160, 1000])
def test_limit_is_exact_and_stratified(count: int) -> None:
    data = LabeledData(np.arange(160.0)[:, None], np.arange(160) % 10)
    part = data.limit(count, seed=1)
    assert len(part) == min(count, 160)
    counts = part.labels.bincount(minlength=10)
    assert int(counts.max() - counts.min()) <= 1
    assert torch.equal(part.inputs, part.inputs.sort(dim=0).values)
    assert part.class_names == data.class_names


def test_limit_loses_no_class_that_it_can_keep() -> None:
    data = LabeledData(np.zeros((2000, 1)), [0] * 1000 + [1] * 994 + [2] * 6)
    assert data.limit(100).labels.bincount().tolist() == [49, 50, 1]
    assert len(data.limit(2)) == 2


def test_features_by_name() -> None:
    data = LabeledData(np.eye(3), [0, 1, 1], feature_names=["a", "b", "c"])
    assert data.subset([2]).with_features(("c", "a")).inputs.tolist() == [[1, 0]]
    for names in (["a", "b"], ["a", "b", "b"]):
        with pytest.raises(InputError, match="feature_names must be distinct, one for each"):
            LabeledData(np.eye(3), [0, 1, 1], feature_names=names)


def test_whole_numbers_without_names_are_no_features() -> None:
    """Token ids would be normalised like measurements, and trained on without a word."""
    tokens = np.arange(12).reshape(4, 3)
    for inputs in (tokens, tokens.astype(np.uint8), torch.from_numpy(tokens), tokens.tolist()):
        with pytest.raises(InputError, match=r"may be codes or tokens.*inputs\.astype\('float32'\) or feature_names"):
            LabeledData(inputs, [0, 1, 0, 1])
    assert LabeledData(tokens.astype("float32"), [0, 1, 0, 1]).inputs.dtype == torch.float32
    assert LabeledData(tokens, [0, 1, 0, 1], feature_names=["a", "b", "c"]).inputs[3, 2] == 11
    assert LabeledData(tokens.reshape(4, 3, 1, 1), [0, 1, 0, 1]).is_image


class Frame:
    """As a DataFrame of pandas or polars: `columns`, and a column by its name."""

    def __init__(self, **columns: list[float]) -> None:
        self.columns, self.parts = np.array(list(columns)), columns

    def __getitem__(self, name: str) -> list[float]:
        return self.parts[name]


def test_a_table_in_memory_brings_its_names() -> None:
    table = {"a": [1, 2, 3], "b": [0.5, 1.5, 2.5]}
    for inputs in (table, Frame(**table), pa.table(table)):
        data = LabeledData(inputs, [0, 1, 0])
        assert data.feature_names == ("a", "b")
        assert data.inputs.tolist() == [[1, 0.5], [2, 1.5], [3, 2.5]]
        assert LabeledData(inputs, [0, 1, 0], feature_names=["b"]).inputs.shape == (3, 1)
        with pytest.raises(InputError, match="feature 'c' is missing; the columns are a, b"):
            LabeledData(inputs, [0, 1, 0], feature_names=["c"])
    with pytest.raises(InputError, match="differ in length"):
        LabeledData({"a": [1, 2], "b": [1]}, [0, 1])

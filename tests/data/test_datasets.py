"""Data as people have it in memory: pairs, frames, dicts, datasets, tokens; streamed where it is too large."""

from __future__ import annotations

import os
import sys
import time
import types
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset

import noiseproof as nf
from noiseproof.data import LabeledData, Tokens
from noiseproof.data.datasets import DatasetInputs, as_tensor
from noiseproof.data.packing import Packed
from noiseproof.data.sources import AHEAD, Ahead, Mapped, Rows
from noiseproof.errors import InputError

RNG = np.random.default_rng(0)
IMAGES = RNG.integers(256, size=(60, 3, 16, 16), dtype=np.uint8)
LABELS = np.arange(60) % 3
SEQUENCES = [RNG.integers(1, 50, RNG.integers(2, 9)).tolist() for _ in range(60)]


class Pictures(Dataset):
    """Images as a user's dataset gives them: (H, W, C) arrays, in dicts or pairs."""

    def __init__(self, item: Any = None, count: int = 60) -> None:
        self.item, self.count = item or (lambda x, y: (x, y)), count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, i: int) -> Any:
        return self.item(IMAGES[i].transpose(1, 2, 0), int(LABELS[i]))


def as_dict(x: Any, y: Any) -> dict[str, Any]:
    return {"image": x, "label": y, "name": "x"}


def as_tensors(x: Any, y: Any) -> tuple[Tensor, Tensor]:
    return torch.from_numpy(x.transpose(2, 0, 1).copy()), torch.tensor(y)


def as_pillow(x: Any, y: Any) -> tuple[Any, int]:
    from PIL import Image

    return Image.fromarray(x), y


@pytest.mark.parametrize("item", [None, as_dict, as_tensors, as_pillow])
@pytest.mark.parametrize("memory_limit", [1, 1 << 30])
def test_items_of_any_make(item: Any, memory_limit: int) -> None:
    data = nf.load(Pictures(item), memory_limit=memory_limit)
    assert isinstance(data.inputs, DatasetInputs if memory_limit == 1 else Tensor)
    assert data.take(torch.arange(60)).equal(torch.from_numpy(IMAGES))
    assert data.labels.tolist() == LABELS.tolist()


def test_the_channels_of_arrays_may_be_last_and_of_any_number() -> None:
    with_alpha = Pictures(lambda x, y: (np.concatenate([x, x[:, :, :1]], axis=2), y))
    expected = torch.from_numpy(np.concatenate([IMAGES, IMAGES[:, :1]], axis=1))  # (60, 4, 16, 16)
    assert nf.load(with_alpha).take(torch.arange(60)).equal(expected)
    assert as_tensor(0, expected[0].numpy()).equal(expected[0])  # which are first already


@pytest.mark.parametrize(("mode", "channels"), [("RGBA", 3), ("P", 3), ("CMYK", 3), ("L", 1), ("LA", 1), ("1", 1)])
def test_images_of_pillow_in_any_mode(mode: str, channels: int) -> None:
    from PIL import Image

    def item(x: Any, y: Any) -> tuple[Any, int]:
        return Image.fromarray(x).convert(mode), y

    data = nf.load(Pictures(item))
    assert data.inputs.shape == (60, channels, 16, 16)
    alike = np.asarray(item(IMAGES[7].transpose(1, 2, 0), 0)[0].convert("RGB" if channels == 3 else "L"))
    alike = alike.transpose(2, 0, 1) if channels == 3 else alike[None]
    assert data.take(torch.tensor([7]))[0].equal(torch.from_numpy(alike.copy()))


@pytest.mark.parametrize("memory_limit", [1, 1 << 30])
def test_labels_of_the_items_count_where_the_dataset_has_others(memory_limit: int) -> None:
    dataset = Pictures(lambda x, y: (x, 2 - y))
    dataset.targets = LABELS.tolist()  # type: ignore[attr-defined]
    data = nf.load(dataset, memory_limit=memory_limit)
    assert data.labels.tolist() == (2 - LABELS).tolist()


@pytest.mark.skipif(sys.platform != "linux", reason="threads have no priority of their own elsewhere")
@pytest.mark.parametrize("workers", [0, 2])
def test_who_reads_ahead_leaves_the_core_to_the_loop(workers: int) -> None:
    own = os.nice(0)
    dataset = Pictures(lambda x, y: (np.float32([os.nice(0)]), y))
    dataset.targets = LABELS.tolist()  # type: ignore[attr-defined]
    data = nf.load(dataset, memory_limit=1, workers=workers)
    for batch in data.inputs.stream([torch.arange(8), torch.arange(8, 16)]):
        assert (batch == min(own + 5, 19)).all()
    assert os.nice(0) == own


def test_pairs_and_frames() -> None:
    X = IMAGES.reshape(60, -1)[:, :4].astype("float32")
    frame = pd.DataFrame(X, columns=list("abcd")).assign(id=np.arange(60) + 100)
    named = frame.assign(label=np.array(["x", "y", "z"])[LABELS])
    for source in (named, pl.from_pandas(named), pa.Table.from_pandas(named), named.to_dict("list")):
        data = nf.load(source)
        assert data.class_names == ("x", "y", "z")
        assert data.feature_names == ("a", "b", "c", "d")
        assert data.ids == list(range(100, 160))
    for source in ((X, LABELS), [X, LABELS.tolist()], TensorDataset(torch.tensor(X), torch.tensor(LABELS))):
        data = nf.load(source)
        assert data.take(torch.arange(60)).equal(torch.tensor(X))
        assert data.labels.tolist() == LABELS.tolist()
    assert (
        nf.load(frame.assign(species=LABELS), label_column="species", limit=6, kinds={"a": "category"}).num_classes == 3
    )
    assert nf.load((X, LABELS), class_names=["0", "1", "2", "3"]).num_classes == 4


def test_fit_takes_them_as_they_are() -> None:
    frame = pd.DataFrame({"a": LABELS + 0.1, "b": np.where(LABELS == 0, "u", "v"), "label": LABELS})
    result = nf.fit("mlp", frame, "ce", epochs=15, val=0.2, test=frame)
    assert result.final["test_accuracy"] > 0.9
    assert result.predict(frame[["b", "a"]].head()).shape == (5,)
    assert nf.fit("mlp", Pictures(), "ce", epochs=1, test=Pictures(as_dict)).history[-1]["test_accuracy"] >= 0


class Folder(Pictures):
    """As torchvision's ImageFolder."""

    root = "photos"
    classes: tuple[str, ...] = ("cat", "dog", "owl")

    def __init__(self) -> None:
        super().__init__()
        self.targets = LABELS.tolist()
        self.samples = [(f"photos/{self.classes[y]}/{i}.jpg", y) for i, y in enumerate(self.targets)]
        self.read = 0

    def __getitem__(self, i: int) -> Any:
        self.read += 1
        return super().__getitem__(i)


def test_an_image_folder_brings_names_and_paths() -> None:
    dataset = Folder()
    data = nf.load(dataset, memory_limit=1)
    assert dataset.read == 16  # the labels are known without reading: some items alone, twice, to see that they stay
    assert data.class_names == ("cat", "dog", "owl")
    assert data.ids is not None
    assert data.ids[4] == "dog/4.jpg"
    assert nf.load(Subset(Subset(dataset, range(9)), range(6)), memory_limit=1).class_names == ("cat", "dog", "owl")
    part = nf.load(Subset(dataset, [5, 4]), memory_limit=1)
    assert part.labels.tolist() == [2, 1]
    assert part.class_names == ("cat", "dog", "owl")


class HuggingFace:
    """As Hugging Face's Dataset: columns in Arrow's memory, class names in its metadata."""

    def __init__(self, table: pa.Table) -> None:
        self.table, self.column_names = table, table.column_names

    def with_format(self, kind: str) -> Any:
        assert kind == "arrow"
        return types.SimpleNamespace(__getitem__=None) if kind != "arrow" else _Sliced(self.table)

    def __len__(self) -> int:
        return len(self.table)

    def __getitem__(self, name: str) -> Any:
        return self.table[name].to_pylist()


class _Sliced:
    def __init__(self, table: pa.Table) -> None:
        self.table = table

    def __getitem__(self, rows: slice) -> pa.Table:
        return self.table


def test_a_dataset_of_hugging_face() -> None:
    import json

    table = pa.table({"a": [1.0, 2.0, None, 4.0], "label": [0, 1, 0, 1]})
    names = {"info": {"features": {"label": {"names": ["no", "yes"]}}}}
    dataset = HuggingFace(table.replace_schema_metadata({"huggingface": json.dumps(names)}))
    data = nf.load(dataset)
    assert data.class_names == ("no", "yes")
    train, test = nf.load_pair({"train": dataset, "test": dataset})
    assert test is not None
    assert len(train) == len(test) == 4


def failing(at: int, how: Any) -> Any:
    class Failing(Pictures):
        def __getitem__(self, i: int) -> Any:
            return how() if i == at else super().__getitem__(i)

    return Failing()


def broken() -> Any:
    raise OSError("disk on fire")


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (
            lambda: failing(47, broken),
            r"item 47 of the dataset cannot be read \(OSError: disk on fire\); mend or remove",
        ),
        (lambda: failing(47, lambda: 5), r"item 47 of the dataset must be \(input, label\) or a dict, got 5"),
        (lambda: failing(47, lambda: (np.zeros((9, 9, 3), "uint8"), 1)), r"item 47 of the dataset is \(3, 9, 9\)"),
        (
            lambda: Pictures(lambda x, y: {"image": x}),
            "item 0 of the dataset is a dict without a label .its keys are image",
        ),
        (lambda: Pictures(lambda x, y: {"label": y}), "item 0 of the dataset holds no input beside its label"),
        (lambda: Pictures(lambda x, y: (object(), y)), "item 0 of the dataset must be numbers or an image"),
        (lambda: Pictures(lambda x, y: (x[None, None], y)), r"must be an image \(C, H, W\) or features"),
        (
            lambda: Pictures(lambda x, y: (x + RNG.integers(9, size=x.shape), y)),
            "is another one each time; take random",
        ),
        (lambda: Pictures(lambda x, y: (torch.full((3,), torch.nan), y)), "each time|NaN or infinity"),
        (lambda: Pictures(count=0), "the dataset is empty"),
        (lambda: Pictures(lambda x, y: ("", y)), "inputs holds a text of length zero at row 0"),
        (lambda: DataLoader(Pictures()), "got DataLoader; pass its dataset: the order of the examples is drawn here"),
        (lambda: {"a": [1, 2]}, "no column with a usual label name; pass label_column, one of 'a'"),
        (lambda: {"x": torch.zeros(4, 3)}, "the dict holds no labels"),
        (lambda: {"x": [1, 2], "label": [1]}, "differ in length"),
        (lambda: (torch.zeros(4, 3), [0, 1]), "labels holds 2 values"),
        (lambda: 5, "source must be a LabeledData, a pair .*, got int"),
    ],
)
def test_bad_sources_in_one_sentence(source: Any, words: str) -> None:
    for limit in (1, 1 << 30):
        with pytest.raises(InputError, match=words) as error:
            _ = (data := nf.load(source(), memory_limit=limit)).take(torch.arange(len(data)))
        assert "\n" not in str(error.value)


@pytest.mark.parametrize("workers", [0, 2])
def test_errors_come_whole_out_of_workers(workers: int) -> None:
    dataset = failing(47, broken)
    dataset.targets = LABELS.tolist()
    data = nf.load(dataset, memory_limit=1, workers=workers)
    with pytest.raises(
        InputError, match=r"^item 47 of the dataset cannot be read \(OSError: disk on fire\); mend or remove it$"
    ):
        nf.fit("cnn3", data, "ce", epochs=1, batch_size=16, augment="weak")


def test_a_length_that_changes_is_told() -> None:
    dataset = Pictures()
    data = nf.load(dataset, memory_limit=1)
    dataset.count = 59
    with pytest.raises(InputError, match="the dataset held 60 items when it was read and now holds 59"):
        data.take(torch.tensor([3]))


@pytest.mark.parametrize("workers", [0, 2])
def test_what_is_read_ahead_is_what_is_taken(workers: int) -> None:
    inputs = nf.load(Pictures(), memory_limit=1, workers=workers).subset(range(5, 60)).inputs
    assert isinstance(inputs, Rows)
    batches, ahead = torch.randperm(55).split(8), Ahead(inputs)
    ahead.announce(batches)
    for at in (2, 3, 4):  # as a resumed run, from the middle on
        assert ahead.take(batches[at]).equal(inputs.take(batches[at]))
    other = torch.tensor([1, 2])
    assert ahead.take(other).equal(inputs.take(other))  # what was not announced does not disturb
    assert ahead.take(batches[5]).equal(inputs.take(batches[5]))


@pytest.mark.parametrize("workers", [0, 2])
def test_reading_on_changes_nothing_of_what_is_taken(workers: int) -> None:
    inputs = nf.load(Pictures(), memory_limit=1, workers=workers).inputs
    batches, ahead = torch.randperm(60).split(8), Ahead(inputs)
    ahead.read_on()  # nothing was announced
    for order in (range(2, 8), range(8)):
        ahead.announce(batches)
        for at in order:
            assert ahead.take(batches[at]).equal(inputs.take(batches[at]))
            ahead.read_on()
            ahead.read_on()  # the next is held already
            other = torch.tensor([1, 2])
            assert ahead.take(other).equal(inputs.take(other))


def test_another_batch_is_begun_with_only_when_one_was_made_use_of() -> None:
    class Noted(Mapped):
        def take(self, index: Tensor) -> Tensor:
            begun.append(int(index[0]))
            return super().take(index)

    begun: list[int] = []
    batches, ahead = torch.arange(80).split(10), Ahead(Noted(np.zeros((80, 3), np.float32)))
    ahead.announce(batches)
    ahead.take(batches[0])
    for at in range(1, 4):
        ahead.read_on()  # gets the next, and has another one read
        while len(begun) < at + AHEAD + 1:
            time.sleep(0.001)
        ahead.take(batches[at])
        time.sleep(0.02)
        assert begun == list(range(0, 10 * (at + AHEAD + 1), 10))


class Stop:
    """Progress that ends the run at a step, as a kill would."""

    def __init__(self, step: int) -> None:
        self.at = step

    def start(self, run: Any, title: str) -> None: ...
    def epoch(self, run: Any) -> None: ...
    def close(self) -> None: ...
    def step(self, run: Any, epoch: float) -> None:
        if run.step == self.at:
            raise RuntimeError("killed")


def test_streamed_with_workers_killed_and_resumed_to_the_same_bits(tmp_path: Path) -> None:
    """The unbroken run has its data in memory; the other streams it with two workers, and is killed within an epoch."""
    settings: Any = {"epochs": 2, "batch_size": 16, "augment": "weak", "checkpoint_steps": 1, "val": 0.2}
    whole = nf.fit("cnn3", nf.load(Pictures()), "elr", out=tmp_path / "whole", **settings)
    streamed = nf.load(Pictures(), memory_limit=1, workers=2)
    with pytest.raises(RuntimeError, match="killed"):
        nf.fit("cnn3", streamed, "elr", out=tmp_path / "a", progress=Stop(5), **settings)
    resumed = nf.fit("cnn3", streamed, "elr", out=tmp_path / "a", resume=True, **settings)
    for a, b in zip(whole.model.state_dict().values(), resumed.model.state_dict().values(), strict=True):
        assert a.equal(b)
    assert whole.beliefs.suspicion.equal(resumed.beliefs.suspicion)


class Bag(nn.Module):
    """Inputs by name, logits inside of an object: as a model of transformers."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(50, 16), nn.Linear(16, 3)

    def forward(self, input_ids: Tensor, attention_mask: Tensor, age: Tensor | None = None) -> Any:
        assert input_ids.dtype == torch.int64
        assert input_ids.shape == attention_mask.shape
        mask = attention_mask[..., None]
        return types.SimpleNamespace(logits=self.head((self.embedding(input_ids) * mask).sum(1) / mask.sum(1)))


def test_dicts_of_tensors_and_logits_inside_an_object(tmp_path: Path) -> None:
    labels = [s[0] % 3 for s in SEQUENCES]
    data = LabeledData({"input_ids": SEQUENCES, "age": torch.rand(60)}, labels)
    train, test = data.split(0.25)
    result = nf.fit(Bag(), train, "elr", epochs=3, val=0.2, test=test, out=tmp_path / "run")
    asked = {"input_ids": SEQUENCES[:5], "age": torch.rand(5)}
    model = nf.load_model(tmp_path / "run", model=Bag)
    np.testing.assert_array_equal(model.predict_proba(asked), result.predict_proba(asked))
    np.testing.assert_allclose(model.predict_proba(test)[:1], model.predict_proba(test.subset([0])), atol=1e-6)
    with pytest.raises(InputError, match="the tensor 'age' is missing; there are input_ids"):
        model.predict({"input_ids": SEQUENCES[:5]})
    with pytest.raises(InputError, match="no network here takes tokens"):
        nf.fit("mlp", train, "ce")
    with pytest.raises(InputError, match="tokens were mixed or scaled"):
        nf.fit(Bag(), train, "mixup", epochs=1)
    with pytest.raises(InputError, match=r"does not match the training set: its inputs are .*, no tokens"):
        nf.fit(Bag(), train, "ce", test=LabeledData(torch.zeros(4, 3), [0, 1, 2, 0]))


def test_padding_and_mask() -> None:
    packed = Packed.of({"input_ids": [[5, 9, 2], [7, 1]]})
    found = packed.packing.unpack(packed.take(torch.arange(2)))
    assert isinstance(found, dict)
    assert found["input_ids"].tolist() == [[5, 9, 2], [7, 1, 0]]
    assert found["attention_mask"].tolist() == [[1, 1, 1], [1, 1, 0]]
    short = packed.packing.unpack(packed.take(torch.tensor([1])))
    assert isinstance(short, dict)
    assert short["input_ids"].tolist() == [[7, 1]]  # as long as the longest of the batch
    alone = Packed.of({"input_ids": [[7, 1]]}, packed.packing)
    assert alone.rows.equal(packed.take(torch.tensor([1])))  # what is padded is masked, also where all are alike
    longer = Packed.of({"input_ids": [[1, 2, 3, 4, 5]]}, packed.packing)
    assert longer.packing.unpack(longer.rows)["input_ids"].tolist() == [[1, 2, 3]]  # type: ignore[call-overload,index]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ([[1, 2], []], "tokens has a sequence of length zero at row 1"),
        ([["a"], ["b"]], "tokens must be numbers"),
        (np.array([[1, 2**24]]), "tokens must lie below 16,777,216"),
        (np.zeros((3, 2)), "tokens must be whole numbers"),
        (5, "tokens must be numbers"),
    ],
)
def test_bad_tokens(given: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        Tokens(given)


def test_tokens_alone() -> None:
    class Mean(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bag = nn.EmbeddingBag(50, 3)

        def forward(self, x: Tensor) -> dict[str, Tensor]:
            return {"logits": self.bag(x)}

    data = LabeledData(Tokens(SEQUENCES), LABELS)
    assert data.take(torch.arange(60)).max() < 50  # nothing is normalised
    result = nf.fit(Mean(), data, "ce", epochs=1)
    assert result.predict_proba(SEQUENCES[:4]).shape == (4, 3)

    class Words(Pictures):
        def __getitem__(self, i: int) -> Any:
            return SEQUENCES[i], int(LABELS[i])

    assert isinstance(nf.load(Words()).inputs, Packed)

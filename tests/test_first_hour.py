"""A new user's first hour: each attempt works, or is answered in one sentence that says what to do."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

import noiseproof as nf
from noiseproof.errors import InputError

N = 40
NAMES = ["x", "y"] * (N // 2)


def frame(**columns: Any) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    usual = {"hours": rng.normal(38, 8, N), "education": ["school", "college"] * (N // 2)}
    return pd.DataFrame(usual | columns | {"label": NAMES})


class Items(Dataset[Any]):
    """What `item` makes of a position."""

    def __init__(self, item: Any, count: int = N) -> None:
        self.item, self.count = item, count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, i: int) -> Any:
        return self.item(i)


def pair(i: int) -> Any:
    return torch.full((3, 8, 8), i % 256, dtype=torch.uint8), i % 2


def breaks(i: int) -> Any:
    if i == 4711:
        raise OSError("unreadable sector")
    return pair(i)


SENTENCES = [f"the {word} would not start this morning" for word in ("car", "rain", "bus", "sun")] * (N // 4)

WORKS = {
    "a Dataset": Items(pair),
    "dicts": Items(lambda i: {"image": pair(i)[0], "label": NAMES[i]}),
    "a list of pairs": [pair(i) for i in range(N)],
    "a list of dicts": [{"image": pair(i)[0], "label": NAMES[i]} for i in range(N)],
    "tensors": TensorDataset(torch.randn(N, 3), torch.arange(N) % 2),
    "positions beside": nf.indexed(Items(pair)),
    "an image, positions beside": nf.indexed([{"img": pair(i)[0], "label": NAMES[i]} for i in range(N)]),
    "strings": frame(),
    "gaps": frame(hours=[None, *range(N - 1)]),
    "dates": frame(day=pd.date_range("2024-01-01", periods=N)),
    "texts": (SENTENCES, NAMES),
    "texts in a table": frame(body=SENTENCES),
    "a text that is missing, beside others": frame(body=[*SENTENCES[:-1], None]),
}


@pytest.mark.parametrize("name", WORKS)
def test_works(name: str) -> None:
    result = nf.fit("auto", WORKS[name], "elr", epochs=1)
    assert len(result.data) == N


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return map(pair, range(N))


class Counted(Stream):
    def __len__(self) -> int:
        return N


class Endless(Dataset[Any]):
    def __getitem__(self, i: int) -> Any:
        return pair(i)


def flipped(i: int, chance: Any = np.random.default_rng(0)) -> Any:  # noqa: B008  # one generator for all calls
    image = torch.arange(192, dtype=torch.uint8).view(3, 8, 8)
    return image.flip(2) if chance.random() < 0.5 else image, i % 2


SAID = {
    "a DataLoader": (
        DataLoader(Items(pair)),
        "got DataLoader; pass its dataset: the order of the examples is drawn here",
    ),
    "a stream": (Stream(), "got Stream; its items have no positions: give it __len__ and __getitem__"),
    "a stream of a length": (Counted(), "got Counted; its items have no positions"),
    "a dataset without a length": (Endless(), "got Endless; give it __len__"),
    "a random transform": (Items(flipped), r"item \d+ of the dataset is another one each time; take random transforms"),
    "a first item that is NaN": (
        Items(lambda i: (torch.full((3,), torch.nan if i == 0 else 1.0), i % 2)),
        "item 0 of the dataset holds NaN or infinity; mend or remove it",
    ),
    "a generator": (map(pair, range(N)), "got map; its items have no positions"),
    "a dict without labels": (
        Items(lambda i: {"image": pair(i)[0]}),
        r"item 0 of the dataset is a dict without a label \(its keys are image\); name the key",
    ),
    "one dict without a label": (
        Items(lambda i: {"image": pair(i)[0]} | ({} if i == 5 else {"label": 1 - i % 2})),
        "item 5 of the dataset is a dict without a label",
    ),
    "a text of length zero": ((["", *SENTENCES[1:]], NAMES), "a text of length zero at row 0; drop the row"),
    "an empty cell of the one column of texts": (
        pd.DataFrame({"body": [*(f"this is text number {i}" for i in range(N - 1)), None], "label": NAMES}),
        "column 'body' holds a text of length zero at row 39; drop the row",
    ),
    "a date that does not parse": (
        frame(day=[*pd.date_range("2024-01-01", periods=N - 1).astype(str), "tomorrow"]),
        "column 'day' must be dates, got 'tomorrow' at row 39; write them as 2024-12-31",
    ),
    "an item that raises": (
        Items(breaks, 4800),
        r"item 4711 of the dataset cannot be read \(OSError: unreadable sector\); mend or remove it",
    ),
    "inputs without labels": (Items(lambda i: pair(i)[0]), r"item 0 of the dataset must be \(input, label\) or a dict"),
    "a missing label": (Items(lambda i: (pair(i)[0], None if i == 5 else i % 2)), "missing value at row 5; fill it in"),
}


@pytest.mark.parametrize("name", SAID)
def test_is_answered_in_one_sentence(name: str) -> None:
    given, words = SAID[name]
    with pytest.raises(InputError, match=words) as error:
        nf.fit("auto", given, "elr", epochs=1)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_dataset_whose_length_changes(workers: int) -> None:
    dataset = Items(pair)
    data = nf.load(dataset, memory_limit=1, workers=workers)
    dataset.count = N - 1
    with pytest.raises(InputError, match=r"^the dataset held 40 items when it was read and now holds 39; keep it so$"):
        nf.fit("mlp", data, "elr", epochs=1)


def test_a_worker_that_dies() -> None:
    def item(i: int) -> Any:
        if i == 11 and torch.utils.data.get_worker_info() is not None:
            os._exit(3)  # as if it were killed
        return pair(i)

    data = nf.load(Items(item), memory_limit=1, workers=2)
    with pytest.raises(InputError, match=r"a process that loads the dataset ended \(.*workers=0 to load without"):
        nf.fit("mlp", data, "elr", epochs=1)


def test_tokens_with_positions_beside() -> None:
    tokens = Items(lambda i: {"input_ids": [1, 2 + i % 3], "attention_mask": [1, 1], "labels": i % 2})
    packing = nf.load(nf.indexed(tokens)).inputs.packing
    assert [part.name for part in packing.parts] == ["input_ids", "attention_mask"]


def test_asking_about_a_text_of_length_zero() -> None:
    model = nf.fit("auto", (SENTENCES, NAMES), "elr", epochs=1).predictor
    for given in (["a car", " "], pd.DataFrame({"text": ["a car", None]})):
        with pytest.raises(InputError, match="text of length zero at row 1; drop the row"):
            model.predict(given)


def test_asking_a_model(tmp_path: Path) -> None:
    pixels = np.stack([pair(i)[0].numpy() for i in range(N)])
    model = nf.fit("mlp", (pixels, NAMES), "elr", epochs=1).predictor
    for i in (0, 7):
        Image.fromarray(pixels[i].transpose(1, 2, 0)).save(tmp_path / f"{i}.png")
    expected = model.predict(pixels[[0, 7]])
    paths = sorted(tmp_path.glob("*.png"))
    for given in (
        paths,
        [str(path) for path in paths],
        [Image.open(path) for path in paths],
        pixels[[0, 7]],
        torch.from_numpy(pixels[[0, 7]]),
        list(pixels[[0, 7]]),
        nf.load(Items(lambda i: pair(7 * i), 2), class_names=["0", "1"]),
    ):
        np.testing.assert_array_equal(model.predict(given), expected)
    assert model.predict(paths[0]).shape == (1,)
    for wrong, words in (
        (tmp_path, "is a folder; pass the images in it"),
        (Items(pair), r"got Items; pass nf\.load\(dataset\)"),
        (DataLoader(Items(pair)), r"got DataLoader; pass nf\.load\(dataset\)"),
        (tmp_path / "no.png", r"no\.png names an image file that does not exist"),
        (pixels[0], r"inputs must be \(n, 3, 8, 8\), got \(3, 8, 8\)"),
        (frame(), "got a table"),
    ):
        with pytest.raises(InputError, match=words):
            model.predict(wrong)


def test_asking_a_model_of_a_table() -> None:
    data = frame(day=pd.date_range("2024-01-01", periods=N))
    model = nf.fit("mlp", data, "elr", epochs=1).predictor
    with pytest.warns(
        UserWarning, match="column 'education' has 'PhD', in 2 rows, which the training set did not have"
    ):
        model.predict(data.head(2).assign(education="PhD"))
    with pytest.raises(InputError, match=r"column 'day' must be dates, got '31\.12\.2024' at row 0"):
        model.predict(data.head(2).assign(day="31.12.2024"))
    with pytest.raises(InputError, match="the feature 'hours' is missing"):
        model.predict(data[["education", "day"]])


def test_on_the_command_line(tmp_path: Path, command: Any) -> None:
    table = frame(day=[*pd.date_range("2024-01-01", periods=N).astype(str)])
    table.to_csv(tmp_path / "people.csv", index=False)
    run = tmp_path / "run"
    code, _, error = command("fit", str(tmp_path / "people.csv"), "--epochs", "1", "--out", str(run), "-q")
    assert code == 0, error
    table.loc[3, "day"] = "soon"
    table.to_csv(tmp_path / "later.csv", index=False)
    code, _, error = command("predict", str(run), str(tmp_path / "later.csv"), "--out", str(tmp_path / "p.csv"))
    assert (code, error.count("\n")) == (2, 1)
    assert "column 'day' must be dates, got 'soon' at row 3" in error
    code, _, error = command("fit", str(tmp_path / "later.csv"), "--epochs", "1", "--out", str(tmp_path / "b"), "-q")
    assert code == 2
    assert "column 'day' must be dates, got 'soon' at row 3" in error

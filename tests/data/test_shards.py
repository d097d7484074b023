"""Tar shards as WebDataset writes them."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from noiseproof.data import LazyImages, load, load_pair
from noiseproof.errors import InputError

PIXELS = np.random.default_rng(0).integers(256, size=(12, 8, 8, 3), dtype=np.uint8)


def png(i: int) -> bytes:
    file = io.BytesIO()
    Image.fromarray(PIXELS[i]).save(file, "png")
    return file.getvalue()


def shard(path: Path, files: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w") as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return path


def examples(start: int, stop: int, label: Any = lambda i: (".cls", str(i % 3))) -> dict[str, bytes]:
    files = {}
    for i in range(start, stop):
        kind, text = label(i)
        files |= {f"d/{i:04d}.png": png(i), f"d/{i:04d}{kind}": text.encode()}
    return files


@pytest.mark.parametrize("memory_limit", [1, 1 << 30])
def test_shards_of_a_folder(tmp_path: Path, memory_limit: int) -> None:
    shard(tmp_path / "set-train-0.tar", examples(0, 6))
    shard(tmp_path / "set-train-1.tar", examples(6, 9))
    shard(tmp_path / "set-val-0.tar", examples(9, 12))
    train, test = load_pair(tmp_path, memory_limit=memory_limit)
    assert test is not None
    assert isinstance(train.inputs, LazyImages) == (memory_limit == 1)
    assert train.take(torch.arange(9)).equal(torch.from_numpy(PIXELS[:9].transpose(0, 3, 1, 2).copy()))
    assert train.labels.tolist() == [0, 1, 2] * 3
    assert train.ids is not None
    assert train.ids[7] == "set-train-1/d/0007"
    assert len(test) == 3
    assert load(tmp_path / "set-train-0.tar", limit=3, memory_limit=memory_limit).labels.tolist() == [0, 2, 1]


def test_labels_as_names_and_in_json(tmp_path: Path) -> None:
    named = shard(tmp_path / "a.tar", examples(0, 6, lambda i: (".txt", "cat" if i % 2 else "dog")))
    assert load(named).class_names == ("cat", "dog")
    coded = shard(tmp_path / "b.tar", examples(0, 6, lambda i: (".json", json.dumps({"species": i % 2}))))
    assert load(coded, label_column="species").labels.tolist() == [0, 1] * 3
    assert not load(shard(tmp_path / "c.tar", {"1.png": png(1), "2.png": png(2)}), labeled=False).labeled


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"1.png": png(1), "2.cls": b"0"}, "x/1 has no label beside its image"),
        ({"1.cls": b"1"}, "x/1 has no image"),
        ({"1.png": png(1), "1.cls": b""}, "x/1.cls must hold a class"),
        ({"1.png": png(1), "1.json": b"{}"}, r"x/1.json has no 'label' \(it holds nothing\); pass label_column"),
        ({"1.png": png(1)[:30], "1.cls": b"1", "2.png": png(2), "2.cls": b"0"}, "x/1 cannot be decoded"),
        ({"README": b"x"}, "holds no files such as 0001.jpg"),
    ],
)
def test_bad_shards(tmp_path: Path, files: dict[str, bytes], words: str) -> None:
    with pytest.raises(InputError, match=words):
        load(shard(tmp_path / "x.tar", files))


def test_a_test_set_may_lack_classes(tmp_path: Path) -> None:
    shard(tmp_path / "train.tar", examples(0, 6))
    shard(tmp_path / "test.tar", {name: one for name, one in examples(6, 12).items() if name[5] not in "69"})
    train, test = load_pair(tmp_path)
    assert test is not None
    assert test.class_names == train.class_names == ("0", "1", "2")
    shard(tmp_path / "test.tar", examples(6, 12, lambda i: (".cls", ("7", "2")[i % 2])))
    with pytest.raises(InputError, match="the test set has 2 classes but the train set 3; relabel '7'"):
        load_pair(tmp_path)


def test_a_key_that_is_not_in_the_json(tmp_path: Path) -> None:
    path = shard(tmp_path / "a.tar", examples(0, 3, lambda i: (".json", json.dumps({"species": i}))))
    with pytest.raises(InputError, match=r"0000.json has no 'label' \(it holds species\); pass label_column"):
        load(path)
    assert load(path, label_column="species").num_classes == 3

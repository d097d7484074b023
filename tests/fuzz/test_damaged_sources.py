"""Every reader on mutated files: each is read, or refused in one sentence that names it. See docs/testing.md."""

from __future__ import annotations

import io
import random
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from data.conftest import Make
from fuzz.mutations import mutate
from PIL import Image

from noiseproof.data import load_pair, read_label_file
from noiseproof.errors import InputError

pytestmark = pytest.mark.filterwarnings("ignore")  # as users have them, a library's warnings are no errors
SHORT, LONG = 16, 640  # mutants of each kind of source; docs/testing.md counts them


class Source(NamedTuple):
    """A good source: what is read, how, and which of its files are mutated."""

    path: Path
    read: Callable[[], Any]
    files: list[Path]


def pair(path: Path, *names: str, **options: Any) -> Source:
    """A source that `load_pair` reads, its files of these names mutated, or all of them."""
    inside = [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())
    return Source(path, lambda: load_pair(path, **options), [f for f in inside if not names or f.name in names])


def labels(path: Path, column: str | None = None) -> Source:
    return Source(path, lambda: read_label_file(path, column), [path])


def npy(make: Make) -> Path:
    folder = make.root / "arrays"
    folder.mkdir()
    np.save(folder / "x.npy", make.rng.normal(size=(6, 4)).astype(np.float32))
    np.save(folder / "y.npy", np.arange(6) % 3)
    return folder


def saved(make: Make, value: Any, **options: Any) -> Path:
    torch.save(value, make.root / "labels.pt", **options)
    return make.root / "labels.pt"


def images(make: Make, kind: str, **options: Any) -> Source:
    """A folder of two classes; the decoder goes by the content, whatever the name."""
    for place, name in enumerate("aabb"):
        out = io.BytesIO()
        Image.fromarray(make.rng.integers(256, size=(12, 8, 3), dtype=np.uint8)).save(out, kind, **options)
        make.bytes(f"photos/{name}/{place}.png", out.getvalue())
    return pair(make.root / "photos", "0.png", "3.png", image_size=8)


def webvision(make: Make) -> Source:
    for place in range(4):
        make.bytes(f"web/google/{place}.jpg", make.image(kind="JPEG"))
    make.bytes("web/info/train_filelist_google.txt", b"".join(b"google/%d.jpg %d\n" % (i, i % 2) for i in range(4)))
    make.bytes("web/info/synsets.txt", b"n1 tench, Tinca\nn2 goldfish\n")
    return pair(make.root / "web", "train_filelist_google.txt", "synsets.txt", "0.jpg")


def clothing(make: Make) -> Source:
    keys = [f"images/{place}.jpg" for place in range(4)]
    for key in keys:
        make.bytes(f"clothes/{key}", make.image(kind="JPEG"))
    for kind in ("noisy_train", "clean_test"):
        make.text(f"clothes/{kind}_key_list.txt", *keys)
        make.text(f"clothes/{kind.split('_')[0]}_label_kv.txt", *(f"{key} {i % 2}" for i, key in enumerate(keys)))
    make.text("clothes/category_names_eng.txt", "shirt", "coat")
    return pair(make.root / "clothes")


TABLE = {"x": [0.5, 1.0, -2.0, 3.5], "id": ["a", "b", "c", "d"], "label": ["cat", "dog", "cat", "dog"]}
CSV = ("x,z,label", *(f"{i},{i / 3:.3f},{['cat', 'dog'][i % 2]}" for i in range(8)))
NAMED = {"clean": np.arange(9) % 3, "noisy": np.arange(9) % 3}
X, Y = np.arange(24.0).reshape(6, 4), np.arange(6) % 2

SOURCES: dict[str, Callable[[Make], Source]] = {
    "csv": lambda make: pair(make.text("t.csv", *CSV)),
    "csv, gzipped": lambda make: pair(make.bytes("t.csv.gz", zlib.compress("\n".join(CSV).encode(), wbits=31))),
    "parquet": lambda make: pair(make.parquet("t.parquet", TABLE)),
    "parquet of images": lambda make: pair(
        make.parquet("t.parquet", {"image": [make.image(kind="JPEG")] * 4, "label": [0, 1, 0, 1]})
    ),
    "idx": lambda make: pair(make.mnist(gz=False)),
    "idx, gzipped": lambda make: pair(make.mnist()),
    "cifar-10": lambda make: pair(make.cifar10(n=3), "data_batch_1", "test_batch", "batches.meta"),
    "cifar-100": lambda make: pair(make.cifar100(n=3)),
    "tar": lambda make: pair(make.tar(make.cifar10(n=2))),
    "npz": lambda make: pair(make.npz("a.npz", x=X, y=Y)),
    "npz, compressed": lambda make: pair(make.npz("a.npz", True, x=X, y=Y, class_names=np.array(["a", "b"]))),
    "npy": lambda make: pair(npy(make)),
    "webvision": webvision,
    "clothing1m": clothing,
    **{
        f"images, {kind}": lambda make, kind=kind: images(make, kind)
        for kind in ("JPEG", "PNG", "BMP", "GIF", "WEBP", "AVIF", "TIFF", "PPM", "DDS", "JPEG2000")
    },
    "labels, csv": lambda make: labels(make.text("l.csv", *CSV), "label"),
    "labels, parquet": lambda make: labels(make.parquet("l.parquet", TABLE), "label"),
    "labels, npz": lambda make: labels(make.npz("l.npz", y=Y)),
    "labels, npy": lambda make: labels(npy(make) / "y.npy"),
    "labels, pt of arrays": lambda make: labels(saved(make, NAMED), "noisy"),
    "labels, pt of tensors": lambda make: labels(saved(make, {k: torch.tensor(v) for k, v in NAMED.items()}), "noisy"),
    "labels, old pt": lambda make: labels(saved(make, NAMED, _use_new_zipfile_serialization=False), "noisy"),
    "labels, old pt of tensors": lambda make: labels(
        saved(make, {"noisy": torch.arange(9)}, _use_new_zipfile_serialization=False), "noisy"
    ),
}


def fuzz(tmp_path: Path, kind: str, count: int) -> None:
    """Read `count` mutants of a source, one file of it changed at a time."""
    source = SOURCES[kind](Make(tmp_path))
    source.read()  # the source itself is good
    contents = {file: file.read_bytes() for file in source.files}
    rng = random.Random(zlib.crc32(kind.encode()))
    for number in range(count):
        file = rng.choice(source.files)
        file.write_bytes(mutate(contents[file], rng))
        try:
            source.read()
        except InputError as error:
            message = str(error)
            assert "\n" not in message, message
            assert len(message) < 1000, message
            named = (file.name, source.path.name, "names an image file that does not exist")
            assert any(words in message for words in named), message
        except Exception as error:
            raise AssertionError(f"mutant {number} of {file.name}: {type(error).__name__}: {error}") from error
        file.write_bytes(contents[file])


@pytest.mark.parametrize("kind", SOURCES)
def test_mutants_are_read_or_refused_in_one_sentence(tmp_path, kind):
    fuzz(tmp_path, kind, SHORT)


@pytest.mark.slow
@pytest.mark.parametrize("kind", SOURCES)
def test_many_mutants_are_read_or_refused_in_one_sentence(tmp_path, kind):
    assert LONG * len(SOURCES) >= 20_000
    fuzz(tmp_path, kind, LONG)

"""Readers on small files of every format, and that a pickle cannot run anything."""

from __future__ import annotations

import gzip
import io
import json
import os
import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.csv
import pytest
import torch
from PIL import Image

from noiseproof.data import LabeledData, LazyImages, load, load_labels, load_pair, read_label_file
from noiseproof.data.images import _jpeg_frame, decode_image
from noiseproof.data.readers.label_files import split_spec
from noiseproof.data.readers.unpickle import unpickle
from noiseproof.data.sources import Mapped, Rows
from noiseproof.errors import InputError
from noiseproof.training.setup import match


def test_digits() -> None:
    data = load("digits")
    assert repr(data) == "LabeledData(1,797 images 1×8×8 uint8, 10 classes)"
    assert (int(data.inputs.min()), int(data.inputs.max())) == (0, 255)
    assert len(load("digits", limit=100)) == 100
    assert load_pair("digits")[1] is None
    with pytest.raises(InputError, match=r"no test set.*split"):
        load("digits", split="test")


def test_mnist_and_fashion_mnist_by_name(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    make.mnist("mnist")
    make.mnist("fashion-mnist")
    monkeypatch.setenv("NOISEPROOF_DATA", str(make.root))
    assert len(load("mnist")) == 20
    assert load("fashion-mnist").class_names[9] == "ankle boot"
    monkeypatch.setenv("NOISEPROOF_DATA", str(make.root / "mnist"))
    assert len(load("mnist", split="test")) == 10


@pytest.mark.parametrize("gz", [True, False])
def test_idx_folder(make: Any, gz: bool) -> None:
    folder = make.mnist(gz=gz, n_test=5)
    train, test = load_pair(folder)
    assert train.inputs.shape == (20, 1, 6, 5)
    assert train.labels.tolist() == [i % 10 for i in range(20)]
    assert len(test) == 5
    assert test.class_names == train.class_names  # though the test set lacks five classes
    pixels = np.random.default_rng(0).integers(256, size=(20, 6, 5), dtype=np.uint8)
    assert np.array_equal(train.inputs[:, 0].numpy(), pixels)
    name = "train-images-idx3-ubyte" + ".gz" * gz
    assert torch.equal(load(folder / name).inputs, train.inputs)
    assert load(folder, limit=4).labels.tolist() == [0, 5, 0, 5]


def test_idx_beyond_the_memory_limit_stays_on_disk(make: Any) -> None:
    whole = load(make.mnist(gz=False))
    mapped = load(make.root / "mnist", memory_limit=100)
    assert isinstance(mapped.inputs, Mapped)
    index = torch.tensor([3, 19, 0])
    assert torch.equal(mapped.take(index), whole.take(index))
    limited = load(make.root / "mnist", memory_limit=100, limit=10)
    assert torch.equal(limited.take(torch.arange(10)), whole.take(torch.arange(0, 20, 2)))


@pytest.mark.parametrize(("protocol", "as_bytes"), [(0, False), (2, True), (2, False), (4, False), (5, False)])
def test_cifar10_folder_and_archive(make: Any, protocol: int, as_bytes: bool) -> None:
    folder = make.cifar10(protocol=protocol, as_bytes=as_bytes)
    train, test = load_pair(folder)
    assert train.inputs.shape == (50, 3, 32, 32)
    assert train.inputs.dtype == torch.uint8
    assert train.labels.tolist() == [i % 10 for i in range(10)] * 5
    assert train.class_names[3] == "cat"
    assert len(test) == 10
    first = np.random.default_rng(0).integers(256, size=(10, 3072), dtype=np.uint8)
    assert np.array_equal(train.inputs[:10].flatten(1).numpy(), first)
    archive = load(make.tar(folder))
    assert torch.equal(archive.inputs, train.inputs)
    assert torch.equal(load(folder.parent).labels, train.labels)  # the folder that holds the folder


def test_cifar10_pickled_by_python_2_and_numpy_1(make: Any) -> None:
    """The original files name numpy.core.multiarray and hold byte strings of protocol 2."""
    folder = make.cifar10(protocol=2)
    for file in folder.iterdir():
        file.write_bytes(file.read_bytes().replace(b"numpy._core.multiarray", b"numpy.core.multiarray"))
    assert b"numpy.core.multiarray" in (folder / "data_batch_1").read_bytes()
    assert len(load(folder)) == 50


def test_cifar100_fine_and_coarse(make: Any) -> None:
    folder = make.cifar100()
    fine, test = load_pair(folder)
    assert (fine.num_classes, len(test)) == (100, 200)
    assert fine.class_names[7] == "fine07"
    coarse = load(folder, label_column="coarse")
    assert coarse.num_classes == 20
    assert coarse.labels.tolist() == (fine.labels // 5).tolist()


class Attack:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.path}",)


@pytest.mark.parametrize("protocol", [0, 2, 5])
def test_malicious_pickle_is_refused_and_not_run(make: Any, protocol: int) -> None:
    folder = make.cifar10()
    victim = make.root / "victim"
    content = pickle.dumps({"data": Attack(victim), "labels": []}, protocol=protocol)
    (folder / "data_batch_3").write_bytes(content)
    with pytest.raises(InputError, match=r"data_batch_3 .*asks for posix\.system"):
        load(folder)
    with pytest.raises(InputError, match=r"asks for posix\.system"):
        load(make.tar(folder))
    labels = make.bytes("labels.pt", content)
    with pytest.raises(InputError, match=r"asks for posix\.system"):
        read_label_file(labels, "labels")
    assert not victim.exists()


@pytest.mark.parametrize(
    "ask", [b"cbuiltins\neval\n.", b"cnumpy\nload\n.", b"cnumpy.core.multiarray\nfrombuffer\n.", b"cos\nsystem\n."]
)
def test_pickle_names_that_are_refused(make: Any, ask: bytes) -> None:
    folder = make.cifar10()
    (folder / "batches.meta").write_bytes(ask)
    with pytest.raises(InputError, match="do not trust"):
        load(folder)


def test_pickle_refuses_arrays_of_objects(make: Any) -> None:
    folder = make.cifar10()
    (folder / "batches.meta").write_bytes(pickle.dumps({"label_names": np.array([{}], dtype=object)}))
    with pytest.raises(InputError, match="dtype object"):
        load(folder)


class Call:
    """Pickles as a call of a function, and the state of what it returns."""

    def __init__(self, *call: Any) -> None:
        self.call = call

    def __reduce__(self) -> tuple[Any, ...]:
        return self.call


OBJECT_FLAGS = (3, "|", None, None, None, -1, -1, 63)  # the state of np.dtype("O"), for a dtype of numbers
REBUILD = (np._core.multiarray._reconstruct, (np.ndarray, (0,), b"b"))


@pytest.mark.parametrize(
    "attack",
    [
        Call(np.ndarray, ((4,), "O", bytearray(b"A" * 32))),
        Call(*REBUILD, (1, (4,), np.dtype("O"), False, [1, 2, 3, 4])),
        Call(*REBUILD, (1, (4000,), np.dtype("i8"), False, b"A" * 32)),
    ],
)
def test_a_pickle_cannot_look_at_bytes_as_objects(make: Any, attack: Call) -> None:
    folder = make.cifar10()
    (folder / "data_batch_1").write_bytes(pickle.dumps({"data": attack, "labels": [0] * 10}, protocol=2))
    with pytest.raises(InputError, match="cannot be unpickled"):
        load(folder)


@pytest.mark.parametrize("protocol", [0, 2, 5])
def test_a_pickled_dtype_stays_one_of_numbers(protocol: int) -> None:
    dtype = Call(np.dtype, ("i8", False, True), OBJECT_FLAGS)
    array = unpickle(pickle.dumps(Call(*REBUILD, (1, (2,), dtype, False, b"A" * 16)), protocol=protocol), "x")
    assert array.dtype == np.int64
    for stored in (
        np.arange(6).reshape(2, 3),
        np.asfortranarray(np.eye(3)[:2]),
        np.arange(3, dtype=">i4"),
        np.float32(3),
    ):
        assert np.array_equal(unpickle(pickle.dumps([stored], protocol=protocol), "x")[0], stored)


@pytest.mark.parametrize("kind", ["zip", "legacy", "numpy1", "tensors"])
def test_cifar_n_label_file(make: Any, kind: str) -> None:
    labels = {"clean_label": np.arange(50) % 10, "aggre_label": (np.arange(50) + 1) % 10}
    path = make.root / "CIFAR-10_human.pt"
    if kind == "tensors":
        torch.save({k: torch.from_numpy(v) for k, v in labels.items()}, path)
    else:
        torch.save(labels, path, _use_new_zipfile_serialization=kind == "zip")
    if kind == "numpy1":
        path.write_bytes(path.read_bytes().replace(b"numpy._core.multiarray", b"numpy.core.multiarray"))
    assert read_label_file(path, "aggre_label").tolist() == labels["aggre_label"].tolist()
    assert load_labels(path, "clean_label", 50).dtype == torch.int64
    with pytest.raises(InputError, match="choose from aggre_label, clean_label"):
        read_label_file(path, "worse_label")
    with pytest.raises(InputError, match=r"50 labels .* 60 examples"):
        load_labels(path, "clean_label", 60)
    folder = make.cifar10()
    assert load(folder, labels=f"{path}:aggre_label").true_labels is None
    options = {"labels": f"{path}:aggre_label", "true_labels": "own"}
    assert load(folder, **options).noise_rate == 1.0
    assert torch.equal(load(folder, **options, limit=7).wrong, torch.ones(7, dtype=torch.bool))


def test_label_column_of_tables_and_arrays(make: Any) -> None:
    csv = make.text("labels.csv", "row,aggre_label", "0,3", "1,4")
    assert read_label_file(csv, "aggre_label").tolist() == [3, 4]
    parquet = make.parquet("labels.parquet", {"label": ["b", "a"]})
    assert load_labels(parquet, None, 2).tolist() == [1, 0]
    assert read_label_file(make.npz("l.npz", y=[1, 2])).tolist() == [1, 2]
    np.save(make.root / "l.npy", np.array([5, 6]))
    assert read_label_file(make.root / "l.npy").tolist() == [5, 6]
    assert split_spec(f"{csv}:aggre_label") == (str(csv), "aggre_label")
    assert split_spec(str(csv)) == (str(csv), None)


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((6, 5), (6, 5)),
        ((6, 8, 7), (6, 1, 8, 7)),
        ((6, 8, 7, 3), (6, 3, 8, 7)),
        ((6, 3, 8, 7), (6, 3, 8, 7)),
        ((6, 1, 8, 3), (6, 1, 8, 3)),
        ((6, 64, 64, 13), (6, 13, 64, 64)),
        ((6, 13, 64, 64), (6, 13, 64, 64)),
    ],
)
def test_npz_layouts(make: Any, shape: tuple[int, ...], expected: tuple[int, ...]) -> None:
    x = make.rng.integers(256, size=shape, dtype=np.uint8)
    x = x.astype(np.float64) if x.ndim == 2 else x  # whole numbers are images
    path = make.npz("a.npz", X=x, labels=np.arange(6) % 2)
    data = load(path)
    assert tuple(data.inputs.shape) == expected
    mapped = load(path, memory_limit=10)
    assert isinstance(mapped.inputs, Mapped)
    index = torch.tensor([5, 0, 2])
    assert torch.equal(mapped.take(index), data.take(index))
    assert mapped.take(index).dtype == data.inputs.dtype
    with pytest.raises(InputError, match=r"memory_limit.*savez"):
        load(make.npz("c.npz", compressed=True, x=x, y=np.arange(6) % 2), memory_limit=10)


def test_npz_train_and_test(make: Any) -> None:
    path = make.npz("a.npz", x_train=np.eye(4), y_train=[0, 1, 2, 3], x_test=np.eye(4)[:2], y_test=[0, 1])
    train, test = load_pair(path)
    assert (len(train), len(test), test.num_classes) == (4, 2, 4)
    text = make.npz("t.npz", x_train=np.eye(3), y_train=["b", "a", "c"], x_test=np.eye(3)[:1], y_test=["c"])
    assert load(text, split="test").labels.tolist() == [2]


def test_npz_true_labels_and_class_names(make: Any) -> None:
    path = make.npz("a.npz", x=np.eye(3), y=[0, 0, 1], true_label=[0, 1, 1], class_names=["cat", "dog"])
    data = load(path)
    assert data.class_names == ("cat", "dog")
    assert data.noise_rate == pytest.approx(1 / 3)
    more = make.npz("b.npz", x=np.eye(4), y=[0, 1, 0, 1], true_labels=[0, 1, 2, 1])
    assert load(more, limit=2).class_names == load(more).class_names == ("0", "1", "2")


def test_npy_folder_is_mapped_beyond_the_limit(make: Any) -> None:
    x = make.rng.normal(size=(6, 4))
    np.save(make.root / "x.npy", x)
    np.save(make.root / "y.npy", np.arange(6) % 2)
    assert np.allclose(load(make.root).inputs.numpy(), x)
    mapped = load(make.root, memory_limit=10, limit=3)
    assert isinstance(mapped.inputs, Rows)
    assert np.allclose(mapped.take(torch.arange(3)).numpy(), x[::2])


def test_csv_features(make: Any) -> None:
    path = make.text(
        "a.csv", "id,a,flag,Label,true_label", "x,1.5,true,cat,cat", "y,2,false,dog,cat", "z,-3,true,dog,ant"
    )
    data = load(path)
    assert data.class_names == ("ant", "cat", "dog")
    assert data.ids == ["x", "y", "z"]
    assert data.inputs.tolist() == [[1.5, 1], [2, 0], [-3, 1]]
    assert data.true_labels.tolist() == [1, 1, 0]
    assert load(path, feature_columns=["a"]).input_shape == (1,)
    assert load(path, label_column="true_label", feature_columns=["a"]).class_names == ("ant", "cat")


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_csv_separators_gzip_and_bom(make: Any, separator: str) -> None:
    lines = "\n".join(separator.join(row) for row in (["x", "y"], ["1", "0"], ["2", "1"]))
    plain = make.bytes("a.csv", b"\xef\xbb\xbf" + lines.encode())
    assert load(plain).inputs.tolist() == [[1], [2]]
    assert load(make.bytes("b.csv.gz", gzip.compress(lines.encode()))).labels.tolist() == [0, 1]
    assert len(load(make.bytes("table", lines.encode()))) == 2  # no extension: by what is there


def test_pandas_index_is_no_feature(make: Any) -> None:
    assert load(make.text("a.csv", ",x,label", "0,1,0", "1,2,1")).input_shape == (1,)


def test_test_sibling(make: Any) -> None:
    make.text("my-train.csv", "x,label", "1,c", "2,a", "3,b")
    make.text("my-test.csv", "x,label", "1,b")
    train, test = load_pair(make.root / "my-train.csv")
    assert test.class_names == train.class_names == ("a", "b", "c")
    assert test.labels.tolist() == [1]
    assert load(make.root / "my-test.csv").labels.tolist() == [1]  # the classes of the train file beside it
    make.text("my-test.csv", "x", "1")
    assert load_pair(make.root / "my-train.csv")[1] is None  # a test file without labels is no test set
    with pytest.raises(InputError, match="no label column 'label'"):
        load(make.root / "my-train.csv", split="test")


def test_table_beyond_the_classes_of_train(make: Any) -> None:
    make.text("train.csv", "x,label", "1,a", "2,b")
    make.text("test.csv", "x,label", "1,zebra")
    with pytest.raises(InputError, match=r"3 classes .* 2; relabel 'zebra'"):
        load_pair(make.root / "train.csv")


@pytest.mark.parametrize("column", ["struct", "bytes", "paths", "struct paths"])
def test_parquet_images(make: Any, column: str) -> None:
    encoded = [make.image(seed=i) for i in range(6)]
    names = [
        make.bytes(f"images/{i}.png", content).relative_to(make.root).as_posix() for i, content in enumerate(encoded)
    ]
    cells = {
        "struct": [{"bytes": b, "path": "x"} for b in encoded],
        "bytes": encoded,
        "paths": names,
        "struct paths": [{"bytes": None, "path": p} for p in names],
    }[column]
    import pyarrow as pa

    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())]) if "struct" in column else None
    metadata = {b"huggingface": json.dumps({"info": {"features": {"label": {"names": ["cat", "dog"]}}}}).encode()}
    path = make.parquet("a.parquet", {"image": cells, "label": [0, 1] * 3}, metadata, image=kind)
    seen: list[tuple[int, int]] = []
    data = load(path, progress=lambda done, total: seen.append((done, total)))
    assert data.class_names == ("cat", "dog")
    assert data.inputs.shape == (6, 3, 8, 8)
    assert seen[-1] == (6, 6)
    pixels = np.random.default_rng(5).integers(256, size=(8, 8, 3), dtype=np.uint8)
    assert np.array_equal(data.inputs[5].permute(1, 2, 0).numpy(), pixels)
    lazy = load(path, memory_limit=100)
    assert isinstance(lazy.inputs, LazyImages)
    index = torch.tensor([4, 4, 1])
    assert torch.equal(lazy.take(index), data.take(index))
    assert load(path, image_size=(4, 6)).input_shape == (3, 4, 6)


def test_parquet_shards_in_a_folder(make: Any) -> None:
    (make.root / "data").mkdir()
    for name, labels in (
        ("train-00000-of-00002", [0, 1]),
        ("train-00001-of-00002", [2, 0]),
        ("test-00000-of-00001", [1]),
    ):
        make.parquet(f"data/{name}.parquet", {"x": [1.0] * len(labels), "label": labels})
    train, test = load_pair(make.root)
    assert train.labels.tolist() == [0, 1, 2, 0]
    assert (test.labels.tolist(), test.num_classes) == ([1], 3)


def test_parquet_dictionary_labels(make: Any) -> None:
    import pyarrow as pa

    kind = pa.dictionary(pa.int8(), pa.string())
    path = make.parquet("a.parquet", {"x": [1, 2], "label": ["b", "a"]}, label=kind)
    assert load(path).labels.tolist() == [1, 0]


def test_image_folder(make: Any) -> None:
    root = make.folder("pets", {"dog": 3, "cat": 2})
    (root / ".hidden").mkdir()
    (root / "dog" / "notes.txt").write_text("not an image")
    data = load(root)
    assert data.class_names == ("cat", "dog")
    assert data.ids == ["cat/0.png", "cat/1.png", "dog/0.png", "dog/1.png", "dog/2.png"]
    assert data.labels.tolist() == [0, 0, 1, 1, 1]
    assert data.inputs.shape == (5, 3, 8, 8)
    part = data.subset([3, 0])
    assert part.ids == ["dog/1.png", "cat/0.png"]
    assert load(root, limit=2).labels.tolist() == [0, 1]


def test_names_that_are_no_text(make: Any) -> None:
    root = make.folder("pets", {"dog": 2, "cat": 2})
    try:
        (root / "cat" / "0.png").rename(root / "cat" / os.fsdecode(b"caf\xe9.png"))
    except OSError:
        pytest.skip("this disk has no such names")
    assert load(root).ids[1] == r"cat/caf\udce9.png"
    (root / "dog").rename(root / os.fsdecode(b"d\xf6g"))
    with pytest.raises(InputError, match=r"class_names holds 'd\\udcf6g' at row 1, which is no Unicode; rename it"):
        load(root)
    with pytest.raises(InputError, match=r"ids holds .* at row 1, which is no Unicode"):
        LabeledData(np.eye(2), [0, 1], ids=["a", "\ud800"])


def test_image_folder_with_splits(make: Any) -> None:
    make.folder("pets/train", {"dog": 2, "cat": 2})
    make.folder("pets/val", {"dog": 1})
    train, test = load_pair(make.root / "pets")
    assert (len(train), len(test)) == (4, 1)
    assert test.labels.tolist() == [1]


def test_grey_folder_has_one_channel_and_mixed_has_three(make: Any) -> None:
    root = make.folder("grey", {"a": 70, "b": 70}, mode="L")
    grey = load(root)
    assert grey.input_shape == (1, 8, 8)
    assert load(root, memory_limit=10).input_shape == (1, 8, 8)
    (root / "b" / "zz.png").write_bytes(make.image(mode="RGBA"))
    mixed = load(root)
    assert mixed.input_shape == (3, 8, 8)
    assert torch.equal(mixed.inputs[0, 0], grey.inputs[0, 0])
    assert load(root, memory_limit=10).input_shape == (3, 8, 8)
    assert load(root, image_size=4).input_shape == (3, 4, 4)


def test_sixteen_bit_grey_is_scaled(make: Any) -> None:
    root = make.folder("deep", {"a": 1, "b": 1}, mode="I;16")
    pixels = np.random.default_rng(0).integers(65536, size=(8, 8), dtype=np.uint16)
    assert np.array_equal(load(root).inputs[0, 0].numpy(), pixels >> 8)


def test_resize_covers_and_crops_the_centre(make: Any) -> None:
    wide = np.zeros((4, 12, 3), dtype=np.uint8)
    wide[:, 4:8] = 200
    for name in ("a", "b"):
        (make.root / "wide" / name).mkdir(parents=True)
        Image.fromarray(wide).save(make.root / "wide" / name / "0.png")
    data = load(make.root / "wide", image_size=4)
    assert (data.inputs == 200).all()
    lazy = load(make.root / "wide", image_size=4, memory_limit=1)
    assert torch.equal(lazy.take(torch.tensor([0, 1])), data.inputs)


def test_every_size_can_be_brought_to_another() -> None:
    """A box computed by hand began at -1e-15 for one size in thirty, which Pillow refuses."""
    content = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(256, size=(52, 31, 3), dtype=np.uint8)).save(content, "PNG")
    for height in range(1, 60):
        assert decode_image(content.getvalue(), "a", "RGB", (height, 15)).shape == (3, height, 15)


def test_large_jpegs_of_different_sizes(make: Any) -> None:
    for i, size in enumerate([(400, 300), (90, 200), (64, 64), (30, 20)]):
        make.bytes(f"photos/c{i % 2}/{i}.jpg", make.image(size=size, kind="JPEG", seed=i))
    assert load(make.root / "photos", image_size=(32, 48)).inputs.shape == (4, 3, 32, 48)
    with pytest.raises(InputError, match=r"0\.jpg is 400×300 pixels but .*2\.jpg is 64×64"):
        load(make.root / "photos")
    with pytest.raises(InputError, match="image_size"):
        load(make.root / "photos", memory_limit=10)


def test_table_beside_one_folder_of_images(make: Any) -> None:
    for i in range(4):
        make.bytes(f"set/images/{i}.png", make.image(seed=i))
    make.text("set/labels.csv", "file_name,label", *(f"images/{i}.png,{'ab'[i % 2]}" for i in range(4)))
    assert load(make.root / "set").class_names == ("a", "b")


def test_a_file_gone_after_loading_lazily(make: Any) -> None:
    root = make.folder("pets", {"dog": 2, "cat": 2})
    data = load(root, memory_limit=1)
    shutil.rmtree(root / "dog")
    with pytest.raises(InputError, match=r"dog/0\.png.* does not exist"):
        data.take(torch.arange(4))


def test_webvision_layout(make: Any) -> None:
    for i in range(6):
        make.bytes(f"w/google/q{i}/{i}.jpg", make.image(size=(20 + i, 16), kind="JPEG", seed=i))
    make.bytes("w/val_images_256/v.jpg", make.image(kind="JPEG"))
    (make.root / "w/info").mkdir()
    labels = [0, 1, 49, 50, 51, 1]
    make.text("w/info/train_filelist_google.txt", *(f"google/q{i}/{i}.jpg {k}" for i, k in enumerate(labels)))
    make.text("w/info/val_filelist.txt", "v.jpg 1")
    make.text("w/info/synsets.txt", *(f"n{k:08} {'crane' if k in (0, 1) else f'thing{k}, other'}" for k in range(52)))
    train = load(make.root / "w", image_size=16, limit=5)
    assert train.class_names[:3] == ("n00000000 crane", "n00000001 crane", "thing2")
    assert train.labels.tolist() == [0, 1, 49, 50, 51]
    mini = load(make.root / "w", split="test", label_column="mini", image_size=16)
    assert (mini.num_classes, mini.labels.tolist(), mini.ids) == (50, [1], ["v.jpg"])


def test_clothing1m_layout(make: Any) -> None:
    keys = [f"images/0/{i}.jpg" for i in range(4)]
    for i, key in enumerate(keys):
        make.bytes(f"c/{key}", make.image(kind="JPEG", seed=i))
    make.text("c/noisy_train_key_list.txt", *keys[:3])
    make.text("c/clean_test_key_list.txt", keys[3])
    make.text("c/noisy_label_kv.txt", *(f"{key} {i % 2}" for i, key in enumerate(keys)))
    make.text("c/clean_label_kv.txt", f"{keys[3]} 0")
    make.text("c/category_names_eng.txt", "T-Shirt", "Shirt")
    train, test = load_pair(make.root / "c")
    assert train.labels.tolist() == [0, 1, 0]
    assert train.class_names == ("T-Shirt", "Shirt")
    assert (test.labels.tolist(), test.ids) == ([0], [keys[3]])
    make.text("c/noisy_label_kv.txt", f"{keys[0]} 1", "broken")
    with pytest.raises(InputError, match=r"noisy_label_kv.txt, line 2"):
        load(make.root / "c")


@pytest.mark.parametrize("mode", ["L", "RGB"])
@pytest.mark.parametrize(
    "options", [{}, {"progressive": True}, {"quality": 30, "subsampling": 2}, {"comment": b"x" * 300}]
)
def test_short_way_to_jpeg_pixels_is_pillows(make: Any, mode: str, options: dict[str, Any]) -> None:
    out = io.BytesIO()
    Image.open(io.BytesIO(make.image((17, 9), mode))).save(out, "JPEG", **options)
    content = out.getvalue()
    assert _jpeg_frame(content) == ((9, 17), mode)
    pixels = np.atleast_3d(np.asarray(Image.open(io.BytesIO(content)))).transpose(2, 0, 1)
    assert np.array_equal(decode_image(content, "a", mode, (9, 17)), pixels)
    for size in range(0, len(content) - 2, 41):
        with pytest.raises(InputError, match=r"^a cannot be decoded"):
            decode_image(content[:size], "a", mode, (9, 17))


@pytest.mark.parametrize(("labels", "names"), [((1, 2, 3), "1 2 3"), ((-1, 1, 1), "-1 1"), ((10, 2, 7), "2 7 10")])
def test_numbers_are_names_too(make: Any, labels: tuple[int, ...], names: str) -> None:
    """Classes counted from 1, called -1 and 1, or with gaps."""
    make.text("train.csv", "x,label", *(f"{i},{label}" for i, label in enumerate(labels)))
    make.text("test.csv", "x,label", f"0,{labels[1]}")
    train, test = load_pair(make.root / "train.csv")
    assert train.class_names == tuple(names.split())
    assert [train.class_names[k] for k in train.labels] == [str(label) for label in labels]
    assert test is not None
    assert test.class_names == train.class_names
    assert test.class_names[int(test.labels[0])] == str(labels[1])


def test_npz_label_array_of_the_train_set_finds_its_test_twin(make: Any) -> None:
    x, y = np.zeros((4, 2)), np.array([0, 1, 0, 1])
    np.savez(make.root / "a.npz", x_train=x, y_noisy_train=y, x_test=x, y_test=1 - y)
    train, test = load_pair(make.root / "a.npz", label_column="y_noisy_train")
    assert test is not None
    assert train.labels.tolist() == [0, 1, 0, 1]
    assert test.labels.tolist() == [1, 0, 1, 0]
    np.savez(make.root / "b.npz", x_train=x, y_noisy_train=y, x_test=x, y_noisy_test=1 - y)
    assert load_pair(make.root / "b.npz", label_column="y_noisy_train")[1].labels.tolist() == [1, 0, 1, 0]  # type: ignore[union-attr]


def test_train_folder_without_class_folders(make: Any) -> None:
    for name in ("train", "test"):
        (make.root / "d" / name).mkdir(parents=True)
        Image.fromarray(np.zeros((4, 4), np.uint8)).save(make.root / "d" / name / "1.png")
    with pytest.raises(InputError, match="no folder per class"):
        load(make.root / "d")
    assert not load_pair(make.root / "d", labeled=False)[0].labeled


def test_labels_may_be_missing_where_none_are_asked_for(make: Any) -> None:
    one = load(make.folder("one", {"a": 3}), labeled=False)
    assert (one.labeled, len(one), one.ids[0][:2]) == (False, 3, "a/")  # type: ignore[index]
    two = load(make.folder("two", {"a": 3, "b": 2}), labeled=False)
    assert (two.labeled, two.num_classes) == (True, 2)
    table = make.text("a.csv", "u,v", "1,2", "3,4", "5,6")
    assert load(table, labeled=False, limit=2).inputs.tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert load(make.text("b.csv", "u,label", "1,a", "3,b"), labeled=False).labeled
    np.savez(make.root / "x.npz", x=np.zeros((4, 8, 8), np.uint8))
    assert not load(make.root / "x.npz", labeled=False, limit=3).labeled
    for source in (table, make.root / "x.npz"):
        with pytest.raises(InputError, match="label"):
            load(source)


def test_columns_of_the_test_table_go_by_name(make: Any) -> None:
    make.text("q-train.csv", "a,b,label,note", *[f"{i},{-i},{i % 3},1" for i in range(12)])
    make.text("q-test.csv", "b,extra,label,note,a", *[f"{-i},x,{i % 2},1,{i}" for i in range(6)])
    train, test = load_pair(make.root / "q-train.csv")
    assert train.feature_names == test.feature_names == ("a", "b", "note")
    assert torch.equal(test.inputs, train.inputs[:6])
    make.text("q-test.csv", "b,label,note", *[f"{-i},{i % 2},1" for i in range(6)])
    with pytest.raises(InputError, match=r"q-test.csv has no column 'a' as the train set has"):
        load_pair(make.root / "q-train.csv")


def test_a_set_read_by_itself_is_matched_by_name(make: Any) -> None:
    train = load(make.text("one.csv", "a,b,label", *[f"{i},{-i},{i % 3}" for i in range(12)]))
    other = load(make.text("two.csv", "b,label,a", *[f"{-i},1,{i}" for i in range(6)]), class_names=train.class_names)
    matched = match("test", other, train)
    assert torch.equal(matched.inputs, train.inputs[:6])
    assert matched.labels.tolist() == [1] * 6
    wrong = load(make.text("three.csv", "b,label,z", "1,0,2", "2,1,3"))
    with pytest.raises(InputError, match="test does not match the training set: the feature 'a' is missing"):
        match("test", wrong, train)
    grey = load(make.folder("grey", {"x": 1, "y": 1}, mode="L"))
    with pytest.raises(InputError, match="grey or to colour"):
        match("test", grey, load(make.folder("colour", {"x": 1, "y": 1})))


def test_class_names_of_another_set(make: Any) -> None:
    names = ("0", "1", "2")
    assert load(make.npz("one.npz", x=np.eye(3), y=np.array([2, 2, 2])), class_names=names).labels.tolist() == [2] * 3
    assert load(make.folder("f", {"b": 1, "c": 1}), class_names=["a", "b", "c"]).labels.tolist() == [1, 2]
    with pytest.raises(InputError, match="'7' at row 1, which is not among"):
        load(make.npz("two.npz", x=np.eye(3), y=np.array([2, 7, 2])), class_names=names)


def test_numbers_that_name_classes_in_a_label_file(make: Any) -> None:
    table = make.text("d.csv", "a,label", *[f"{i},{i % 3 + 1}" for i in range(12)])
    same = make.text("same.csv", "label", *[str(i % 3 + 1) for i in range(12)])
    assert load(table, labels=str(same), true_labels="own").noise_rate == 0
    positions = make.text("positions.csv", "label", *[str(i % 3) for i in range(12)])
    assert load(table, labels=str(positions), true_labels="own").noise_rate == 0
    folder = make.folder("f", {str(k): 1 for k in range(1, 12)})  # sorted as text: 1, 10, 11, 2, …
    named = make.text("named.csv", "label", "1", "10", "11", *map(str, range(2, 10)))
    assert load(folder, labels=str(named), true_labels="own").noise_rate == 0


def test_shards_are_joined_by_name(make: Any) -> None:
    make.text("train-0.csv", "a,b,label", "1,2,0", "2,3,1")
    make.text("train-1.csv", "b,a,label", "1.5,2,0", "2,3,1")
    make.text("._train-2.csv", "litter")
    assert load(make.root).inputs.tolist() == [[1, 2], [2, 3], [2, 1.5], [3, 2]]
    make.text("train-1.csv", "b,c,label", "1.5,2,0", "2,3,1")
    with pytest.raises(InputError, match=r"train-0.csv and train-1.csv differ in the column 'a'"):
        load(make.root)
    make.text("train-1.csv", "b,a,label", "x,2,0", "y,3,1")
    with pytest.raises(InputError, match="holds text in one and numbers in another"):
        load(make.root)


def test_the_test_labels_are_of_the_kind_of_the_train_labels(make: Any) -> None:
    make.text("u-train.csv", "a,label", "1,0", "2,1", "3,unknown")
    make.text("u-test.csv", "a,label", "1,0", "2,1")
    assert [data.class_names for data in load_pair(make.root / "u-train.csv")] == [("0", "1", "unknown")] * 2
    make.text("v-train.csv", "a,label,true_label", "1,0,0", "2,1,2", "3,1,1")
    make.text("v-test.csv", "a,label", "1,0", "2,1")
    assert [data.class_names for data in load_pair(make.root / "v-train.csv")] == [("0", "1", "2")] * 2


def test_separators_inside_quotes_do_not_count(make: Any) -> None:
    path = make.text("sc.csv", '"a, x, y";"b, c";label', "1;2;0", "2;3;1")
    assert load(path).feature_names == ("a, x, y", "b, c")


def test_arrays_on_disk_pass_the_same_door(make: Any) -> None:
    images = np.random.default_rng(0).integers(256, size=(6, 3, 4, 4))
    y = np.arange(6) % 2
    for stored in (images, images.astype(">u2")):
        mapped = load(make.npz("i.npz", x=stored, y=y), memory_limit=1)
        assert isinstance(mapped.inputs, Mapped)
        assert torch.equal(mapped.take(torch.arange(6)), load(make.root / "i.npz").inputs)
    for bad, phrase in ((images * 9, "0..255"), (images > 9, "booleans"), (images.astype(str), "dtype")):
        with pytest.raises(InputError, match=phrase):
            load(make.npz("bad.npz", x=bad, y=y), memory_limit=1)
    with pytest.raises(InputError, match="beyond single precision"):
        load(make.npz("bad.npz", x=np.full((6, 2), 1e300), y=y), memory_limit=1)


def test_image_folders_with_litter_links_and_trains(make: Any) -> None:
    root = make.folder("f", {"a": 2, "b": 2})
    make.bytes("f/a/.ipynb_checkpoints/0.png", make.image())
    make.bytes("f/a/__MACOSX/0.png", make.image())
    (root / "b" / "1.png").rename(root / "b" / "1.jfif")
    make.bytes("elsewhere/2.png", make.image())
    (root / "b" / "more").symlink_to(make.root / "elsewhere")
    (root / "b" / "loop").symlink_to(root / "b")
    assert load(root).labels.tolist() == [0, 0, 1, 1, 1]
    (root / "b" / "again").symlink_to(root / "b" / "more")
    (root / "b" / "up").symlink_to(root)
    assert load(root).labels.tolist() == [0, 0, 1, 1, 1]
    cities = make.folder("cities", {"train/2019": 1, "train/2020": 1, "bus/2019": 1})
    with pytest.raises(InputError, match="holds train/ and bus/: a part of the data or a class"):
        load(cities)
    assert load(cities / "train").class_names == ("2019", "2020")
    (cities / "bus").rename(cities / "dev")
    assert [data.class_names for data in load_pair(cities)] == [("2019", "2020")] * 2


@pytest.mark.parametrize("name", ["table.csv", "table.csv.gz"])
def test_arrow_reads_csv_from_memory_of_its_own(tmp_path, monkeypatch, name):
    """Its threads may outlive the reading, and must not wait for Python's lock when the interpreter ends."""
    rows = "x,label\n" + "".join(f"{i},{i % 2}\n" for i in range(200_000))
    (tmp_path / name).write_bytes(gzip.compress(rows.encode()) if name.endswith("gz") else rows.encode())
    read_csv, held = pyarrow.csv.read_csv, []

    def read(content, **options):
        held.append(pyarrow.total_allocated_bytes() - before)
        return read_csv(content, **options)

    monkeypatch.setattr("pyarrow.csv.read_csv", read)
    before = pyarrow.total_allocated_bytes()
    assert len(load(tmp_path / name)) == 200_000
    assert held[0] >= len(rows)

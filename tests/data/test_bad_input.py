"""Everything a user can get wrong, one line each: an InputError of one line that says what, where and what to do."""

from __future__ import annotations

import gzip
import io
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from noiseproof.data import LabeledData, corrupt_table, load, load_labels, load_pair, noise, read_label_file
from noiseproof.errors import InputError

X = np.eye(3, dtype=np.float32)
Y = [0, 1, 0]
NAN = np.array([[0, 1], [np.nan, 2], [np.inf, 3]])


class Sparse:
    """Something numpy can only wrap as an object."""


LABELED: dict[str, tuple[Callable[[], object], str]] = {
    "lengths differ": (lambda: LabeledData(X, [0, 1]), "labels holds 2 values but inputs holds 3 rows"),
    "label out of range": (
        lambda: LabeledData(X, [0, 1, 2], class_names=["a", "b"]),
        "0..1 (2 classes), got 2 at row 2",
    ),
    "negative label": (lambda: LabeledData(X, [0, -1, 1]), "got -1 at row 1"),
    "fractional label": (lambda: LabeledData(X, [0, 0.5, 1]), "whole numbers, got 0.5 at row 1"),
    "nan label": (lambda: LabeledData(X, [0, np.nan, 1]), "got nan at row 1"),
    "missing text label": (lambda: LabeledData(X, np.array(["a", None, "b"], object)), "missing value at row 1"),
    "NaN among texts": (lambda: LabeledData(X, ["a", float("nan"), "b"]), "missing value at row 1"),
    "number among texts": (lambda: LabeledData(X, ["a", 1, "b"]), "mixes text (row 0) and numbers (row 1)"),
    "empty text label": (lambda: LabeledData(X, ["a", "", "b"]), "missing value at row 1"),
    "mixed labels": (lambda: LabeledData(X, np.array(["a", 1, "b"], object)), "mixes text (row 0) and numbers (row 1)"),
    "unknown text label": (lambda: LabeledData(X, ["cat", "dgo", "dog"], class_names=["cat", "dog"]), "mean 'dog'"),
    "object labels": (lambda: LabeledData(X, [{}, {}, {}]), "labels holds dict {} at row 0"),
    "one-hot labels": (lambda: LabeledData(X, np.eye(3)), "argmax"),
    "complex labels": (lambda: LabeledData(X, np.array([1j, 0, 1])), "dtype complex128"),
    "an id as label": (lambda: LabeledData(X, [0, 1, 10**12]), "got 1000000000000 at row 2"),
    "nan feature": (lambda: LabeledData(NAN, Y), "got nan at row 1, column 0 (2 such values in all)"),
    "infinite image": (lambda: LabeledData(np.full((3, 1, 2, 2), np.inf), Y), "got inf at row 0, position (0, 0, 0)"),
    "empty inputs": (lambda: LabeledData(np.empty((0, 2)), []), "inputs is empty"),
    "empty labels": (lambda: noise.symmetric([], 0.1), "labels is empty"),
    "axis of size zero": (lambda: LabeledData(np.empty((3, 0)), Y), "axis of size 0"),
    "one class": (lambda: LabeledData(X, [0, 0, 0]), "only one class ('0')"),
    "one class of two": (lambda: LabeledData(X, [1, 1, 1], class_names=["a", "b"]), "only one class ('b') of 2"),
    "a class without examples": (lambda: LabeledData(X, [0, 2, 0]), "class '1' has no example"),
    "a name without examples": (lambda: LabeledData(X, Y, class_names=["a", "b", "c"]), "class 'c' has no example"),
    "one dimension": (lambda: LabeledData(np.zeros(3), Y), "reshape"),
    "three dimensions": (lambda: LabeledData(np.zeros((3, 4, 4)), Y), "inputs[:, None]"),
    "channels last": (lambda: LabeledData(np.zeros((3, 8, 8, 3), np.uint8), Y), "transpose(0, 3, 1, 2)"),
    "boolean inputs": (lambda: LabeledData(X.astype(bool), Y), "got booleans"),
    "object inputs": (lambda: LabeledData([Sparse(), Sparse(), Sparse()], Y), "dtype object"),
    "text inputs": (lambda: LabeledData([["a"], ["b"], ["c"]], Y), "must be numbers, got dtype <U1"),
    "ragged inputs": (lambda: LabeledData([[1, 2], [3], [4]], Y), "differ in length"),
    "integer images beyond a byte": (lambda: LabeledData(np.full((3, 1, 2, 2), 256), Y), "0..255, got 256..256"),
    "duplicate ids": (lambda: LabeledData(X, Y, ids=["a", "b", "a"]), "'a' at rows 0 and 2"),
    "too few ids": (lambda: LabeledData(X, Y, ids=["a"]), "ids holds 1 values but inputs holds 3 rows"),
    "duplicate class names": (lambda: LabeledData(X, Y, class_names=["a", "a"]), "'a' twice (positions 0 and 1)"),
    "class names as a text": (lambda: LabeledData(X, Y, class_names="ab"), "list of names"),
    "true labels too short": (lambda: LabeledData(X, Y, true_labels=[0]), "true_labels holds 1 values"),
    "true labels out of range": (
        lambda: LabeledData(X, Y, class_names=["a", "b"], true_labels=[0, 1, 2]),
        "true_labels must lie in 0..1",
    ),
    "true labels of another kind": (
        lambda: LabeledData(X, Y, true_labels=["a", "b", "a"]),
        "text but labels are numbers",
    ),
    "labels of another kind": (lambda: LabeledData(X, ["a", "b", "a"], true_labels=Y), "true_labels are numbers"),
    "split of everything": (lambda: LabeledData(X, Y).split(1.0), "strictly between 0 and 1, got 1.0"),
    "split of nothing": (lambda: LabeledData(np.eye(2), [0, 1]).split(0.5), "nothing on one side"),
    "rate above one": (lambda: noise.symmetric(Y, 40), "between 0 and 1, got 40"),
    "rate nan": (lambda: noise.pair_flip(Y, float("nan")), "got nan"),
    "rate as a word": (lambda: noise.parse("symmetric:half"), "got 'half'"),
    "unknown noise": (lambda: noise.parse("asymetric:0.4"), "did you mean 'asymmetric'?"),
    "noise without a rate": (lambda: noise.parse("instance"), "instance:0.4"),
    "label beyond num_classes": (lambda: noise.symmetric([0, 3], 0.5, num_classes=3), "got 3 at row 1"),
    "noise on one class": (lambda: noise.symmetric([0, 0], 0.5), "at least 2"),
    "noise on text": (lambda: noise.symmetric(["a", "b"], 0.5), "got text"),
    "mapping out of range": (lambda: noise.asymmetric(Y, 0.5, mapping={0: 2}), "0..1 (2 classes), got 0 -> 2"),
    "transition not square": (lambda: noise.from_transition(Y, np.ones((2, 3))), "square (K, K), got shape (2, 3)"),
    "transition of text": (lambda: noise.from_transition(Y, [["a", "b"], ["b", "a"]]), "probabilities, got dtype <U1"),
    "transition negative": (lambda: noise.from_transition(Y, [[1.5, -0.5], [0, 1]]), "-0.5 at row 0, column 1"),
    "transition rows": (lambda: noise.from_transition(Y, [[1, 0], [0.5, 0.4]]), "row 1 must sum to 1, got 0.9"),
    "instance noise of other inputs": (lambda: noise.instance_dependent(Y, 0.5, torch.eye(2)), "inputs holds 2 rows"),
    "instance noise of nan": (lambda: noise.instance_dependent(Y, 0.5, NAN), "got nan at row 1"),
    "negative seed": (lambda: noise.symmetric(Y, 0.5, seed=-1), "seed must be a whole number from 0, got -1"),
    "no seed": (lambda: LabeledData(X, Y).split(0.5, seed=None), "got None"),
    "arrays as a source": (lambda: load(X), "LabeledData(inputs, labels)"),
    "beyond float32": (
        lambda: LabeledData(np.array([[1e300], [0], [1]]), Y),
        "got 1e+300 (beyond single precision) at row 0, column 0",
    ),
    "derangement of one": (lambda: noise.derangement(1), "at least 2"),
    "unknown split": (lambda: load("digits", split="tset"), "did you mean 'test'?"),
    "split of a pair": (lambda: load_pair("digits", split="test"), "leave out split"),
    "builtin misspelt": (lambda: load("digit"), "did you mean 'digits'?"),
    "no such path": (lambda: load("/nowhere/at/all.csv"), "does not exist"),
    "limit of zero": (lambda: load("digits", limit=0), "limit must be a whole number, 1 or more, got 0"),
    "image size as a word": (lambda: load("digits", image_size="big"), "got 'big'"),
    "images and features": (lambda: load("digits", image_column="a", feature_columns=["b"]), "not both"),
}


def says(call: Callable[[], object], phrase: str) -> None:
    with pytest.raises(InputError) as caught:
        call()
    message = str(caught.value)
    assert phrase in message
    assert "\n" not in message
    assert len(message) < 500


@pytest.mark.parametrize("name", LABELED)
def test_arguments(name: str) -> None:
    says(*LABELED[name])


GOOD = {"x": [1.0, 2.0], "label": [0, 1]}
PNG_HEAD = b"\x89PNG\r\n\x1a\n"


def cut(make: Any, path: Any, keep: float = 0.6) -> Any:
    """Truncate a file."""
    content = path.read_bytes()
    path.write_bytes(content[: int(keep * len(content))])
    return path


def mnist_with(make: Any, file: str, content: bytes, gz: bool = False) -> Any:
    folder = make.mnist(gz=gz)
    (folder / file).write_bytes(content)
    return folder


def npy_head(shape: tuple[int, ...], kind: str = "<i8") -> bytes:
    """The head of an .npy file."""
    out = io.BytesIO()
    np.lib.format.write_array_header_1_0(out, {"descr": kind, "fortran_order": False, "shape": shape})
    return out.getvalue()


IMAGES, LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"
FILES: dict[str, tuple[Callable[[Any], Any], str]] = {
    # IDX
    "IDX truncated": (
        lambda m: mnist_with(m, IMAGES, b"\0\0\x08\x03" + b"\0\0\0\x14" * 3 + b"xx"),
        "is truncated: 8,000",
    ),
    "IDX header truncated": (lambda m: mnist_with(m, IMAGES, b"\0\0\x08\x03\0\0"), "truncated inside its header"),
    "IDX wrong magic": (lambda m: mnist_with(m, IMAGES, b"GIF89a"), "not an IDX file (it begins with 47494638)"),
    "IDX of floats": (lambda m: mnist_with(m, IMAGES, b"\0\0\x0d\x03" + b"\0\0\0\x01" * 4), "type 0x0d"),
    "IDX empty": (lambda m: mnist_with(m, LABELS, b""), "begins with nothing"),
    "IDX labels for images": (
        lambda m: mnist_with(m, IMAGES, m.idx_bytes(np.zeros(20, np.uint8))),
        "should hold images",
    ),
    "IDX counts differ": (
        lambda m: mnist_with(m, LABELS, m.idx_bytes(np.zeros(19, np.uint8))),
        "20 images but train-labels-idx1-ubyte holds 19 labels",
    ),
    "IDX gzip truncated": (lambda m: cut(m, m.mnist() / f"{IMAGES}.gz").parent, "damaged gzip file"),
    "IDX gzip that lies": (
        lambda m: mnist_with(m, f"{IMAGES}.gz", gzip.compress(b"\0\0\x08\x03" + b"\xff" * 12), gz=True),
        "is truncated",
    ),
    "IDX without labels": (lambda m: [d := m.mnist(gz=False), (d / LABELS).unlink()][0], "no labels file beside it"),
    # CIFAR
    "CIFAR truncated": (lambda m: cut(m, m.cifar10() / "data_batch_2").parent, "data_batch_2 cannot be unpickled"),
    "CIFAR file missing": (
        lambda m: [d := m.cifar10(), (d / "data_batch_4").unlink()][0],
        "lacks the file data_batch_4",
    ),
    "CIFAR archive truncated": (lambda m: cut(m, m.tar(m.cifar10())), "Compressed file ended"),
    "CIFAR without data": (
        lambda m: [d := m.cifar10(), (d / "data_batch_1").write_bytes(pickle.dumps({"labels": [1]}))][0],
        "lacks 'data'",
    ),
    "CIFAR that remembers much": (  # a place of the unpickler's memory far out, which is not made up to there
        lambda m: [d := m.cifar10(), (d / "data_batch_1").write_bytes(b"\x80\x02]r\xff\xff\xff\x7f.")][0],
        "lacks 'data'",
    ),
    "CIFAR of many bytes": (
        lambda m: [d := m.cifar10(), (d / "data_batch_1").write_bytes(b"\x80\x05\x96" + b"\xff" * 5 + bytes(3) + b".")][
            0
        ],
        "data_batch_1",
    ),
    "CIFAR counts differ": (
        lambda m: [
            d := m.cifar10(),
            (d / "data_batch_1").write_bytes(pickle.dumps({"labels": [1], "data": np.zeros((2, 3072), np.uint8)})),
        ][0],
        "holds 2 images and 1 labels where 2 are due",
    ),
    "one CIFAR batch": (lambda m: m.cifar10(protocol=2) / "data_batch_1", "pass its folder"),
    "a pickle": (lambda m: m.bytes("x.pkl", pickle.dumps(GOOD)), "can run code"),
    # arrays
    "npz truncated": (lambda m: cut(m, m.npz("a.npz", x=X, y=Y)), "damaged .npz"),
    "npz member damaged": (
        lambda m: m.bytes(
            "b.npz",
            m.npz("a.npz", True, x=np.arange(900.0).reshape(3, 300), y=Y)
            .read_bytes()
            .replace(b"\x05\x06", b"\x50\x60", 0)[:80]
            + b"?" * 40
            + (m.root / "a.npz").read_bytes()[120:],
        ),
        "is damaged",
    ),
    "npz directory damaged": (
        lambda m: m.bytes("b.npz", m.npz("a.npz", x=X, y=Y).read_bytes().replace(b"PK\x01\x02", b"PK\x01?")),
        "damaged .npz",
    ),
    "npy header damaged": (
        lambda m: [
            np.save(m.root / "x.npy", X),
            np.save(m.root / "y.npy", Y),
            m.bytes("x.npy", (m.root / "x.npy").read_bytes().replace(b"}", b"(")).parent,
        ][2],
        "array x.npy is damaged",
    ),
    "npy that announces terabytes": (
        lambda m: [
            np.save(m.root / "y.npy", Y),
            m.bytes("x.npy", npy_head((10**12, 3)) + bytes(36)).parent,
        ][1],
        "array x.npy is damaged (24,000,000,000,000 bytes announced, 36 found)",
    ),
    "npz that announces terabytes": (
        lambda m: m.zip("a.npz", {"x.npy": npy_head((10**12, 3)) + bytes(36), "y.npy": npy_head((3,)) + bytes(24)}),
        "array x is damaged (24,000,000,000,000 bytes announced, 36 found)",
    ),
    "npz of nothing, often": (
        lambda m: m.zip("a.npz", {"x.npy": npy_head((10**12, 3), "<U0"), "y.npy": npy_head((3,)) + bytes(24)}),
        "array x is damaged",
    ),
    "npz without labels": (lambda m: m.npz("a.npz", x=X), "no array for the labels (one of y, labels"),
    "npz without inputs": (lambda m: m.npz("a.npz", foo=X, y=Y), "no array for the inputs"),
    "npz of objects": (lambda m: m.npz("a.npz", x=np.array([{}, {}]), y=[0, 1]), "Python objects"),
    "npz lengths differ": (lambda m: m.npz("a.npz", x=X, y=[0, 1]), "x holds 3 rows but y holds 2 labels"),
    "npz with nan": (lambda m: m.npz("a.npz", x=NAN, y=Y), "got nan at row 1, column 0"),
    "a single npy": (lambda m: [np.save(m.root / "x.npy", X), m.root / "x.npy"][1], "no labels"),
    # tables
    "Parquet truncated": (lambda m: cut(m, m.parquet("a.parquet", GOOD)), "truncated Parquet"),
    "Parquet without rows": (lambda m: m.parquet("a.parquet", {"x": [], "label": []}), "no rows"),
    "no label column": (lambda m: m.parquet("a.parquet", {"x": [1], "z": [1]}), "one of 'x', 'z'"),
    "two label columns": (
        lambda m: m.text("a.csv", "x,label,y", "1,0,0", "2,1,1"),
        "several label columns ('label', 'y')",
    ),
    "missing label": (lambda m: m.parquet("a.parquet", {"x": [1, 2], "label": [0, None]}), "missing value at row 1"),
    "missing text label in CSV": (lambda m: m.text("a.csv", "x,label", "1,a", "2,", "3,b"), "missing value at row 1"),
    "infinite feature": (lambda m: m.text("a.csv", "x,label", "1,0", "inf,1"), "got inf at row 1"),
    "text among many numbers": (
        lambda m: m.text("a.csv", "x,label", *(f"{i}.5,{i % 2}" for i in range(40)), "n.a,1"),
        "column 'x' has the text 'n.a' at row 40 among numbers",
    ),
    "a date that does not parse": (
        lambda m: m.text("a.csv", "day,label", *(f"2024-01-{i:02d},{i % 2}" for i in range(1, 30)), "2024-13-45,1"),
        "column 'day' must be dates, got '2024-13-45' at row 29; write them as 2024-12-31",
    ),
    "date label": (lambda m: m.text("a.csv", "x,label", "1,2020-01-01", "2,2020-01-02"), "of type date32"),
    "no features": (lambda m: m.text("a.csv", "id,label", "1,0", "2,1"), "no feature columns"),
    "ragged CSV": (
        lambda m: m.text("a.csv", "x,label", "1,0", "2,1,7", "3,0"),
        "line 3: 3 values where the header has 2",
    ),
    "CSV without rows": (lambda m: m.text("a.csv", "x,label"), "no rows"),
    "CSV of late text": (
        lambda m: m.text("a.csv", "x,label", *["1,0", "2,1"] * 200_000, "abc,1"),
        "column 'x' has the text 'abc' at row 400000 among numbers",
    ),
    "CSV columns twice": (lambda m: m.text("a.csv", "x,x,label", "1,2,0", "3,4,1"), "two columns named 'x'"),
    "CSV in Latin-1": (lambda m: m.bytes("a.csv", "x,label\n1,é\n2,ü\n".encode("latin1")), "UTF-8"),
    "CSV of numbers, not classes": (
        lambda m: m.text("a.csv", "x,label", *(f"{i},{i}" for i in range(30))),
        "30 distinct values in 30 rows",
    ),
    "image missing": (
        lambda m: m.parquet("a.parquet", {"image": [b"x", None], "label": [0, 1]}),
        "missing value at row 1",
    ),
    "image damaged": (
        lambda m: m.parquet("a.parquet", {"image": [m.image(), b"x"], "label": [0, 1]}),
        "row 1 cannot be decoded",
    ),
    "image path missing": (
        lambda m: m.text("a.csv", "image,label", "no.png,a", "na.png,b"),
        "row 0 names an image file",
    ),
    # folders
    "empty folder": (lambda m: m.root, "a folder without images or data files; noiseproof reads IDX"),
    "images without classes": (lambda m: m.bytes("f/0.png", m.image()).parent, "no folder per class"),
    "one class folder": (lambda m: m.folder("f", {"a": 2}), "only one class ('a')"),
    "empty class folder": (lambda m: m.folder("f", {"a": 2, "b": 0}), "f/b holds no image"),
    "images of two sizes": (
        lambda m: [m.folder("f", {"a": 2, "b": 1}), m.bytes("f/b/1.png", m.image((9, 8)))][0],
        "f/b/1.png is 9×8; pass image_size",
    ),
    "unreadable image": (
        lambda m: [m.folder("f", {"a": 2, "b": 1}), m.bytes("f/b/1.png", b"no")][0],
        "f/b/1.png cannot be",
    ),
    "truncated image": (
        lambda m: [m.folder("f", {"a": 2, "b": 1}), cut(m, m.root / "f/b/0.png")][0],
        "f/b/0.png cannot be decoded",
    ),
    "image header only": (
        lambda m: [m.folder("f", {"a": 2, "b": 1}), m.bytes("f/b/1.png", PNG_HEAD)][0],
        "1.png cannot be",
    ),
    # neither
    "empty file": (lambda m: m.bytes("a.csv", b""), "is empty"),
    "JSON": (lambda m: m.text("a.json", '{"a": 1}'), "unknown format; noiseproof reads IDX"),
    "one image": (lambda m: m.bytes("a.png", m.image()), "unknown format"),
    "a zip of something": (lambda m: cut(m, m.bytes("a.zip", b"PK\x03\x04" + b"\0" * 100)), "damaged .npz"),
    "damaged gzip": (lambda m: m.bytes("a.gz", b"\x1f\x8b\x08" + b"?" * 50), "damaged gzip"),
    "near miss": (lambda m: [m.text("train.csv", "x"), m.root / "trian.csv"][1], "train.csv?"),
}


@pytest.mark.parametrize("name", FILES)
def test_files(make: Any, name: str) -> None:
    prepare, phrase = FILES[name]
    path = prepare(make)
    says(lambda: load(path), phrase)


def test_columns_that_are_not_there(make: Any) -> None:
    path = make.parquet("a.parquet", GOOD)
    says(lambda: load(path, label_column="lable"), "no column 'lable'; its columns are 'x', 'label'")
    says(lambda: load(path, feature_columns=["z"]), "no column 'z'")
    says(lambda: load(path, image_column="x"), "must hold bytes, paths")
    says(lambda: load(path, memory_limit=1), "exceed memory_limit=1")
    says(lambda: load(make.cifar100(), label_column="medium"), "choose fine or coarse")


def test_test_folder_with_a_class_of_its_own(make: Any) -> None:
    make.folder("f/train", {"a": 1, "b": 1})
    make.folder("f/test", {"c": 1})
    says(lambda: load_pair(make.root / "f"), "does not have; rename")


def test_label_files(make: Any) -> None:
    says(lambda: read_label_file(make.root / "no.pt", "a"), "does not exist")
    path = make.text("l.csv", "a,b", "1,2")
    says(lambda: read_label_file(path, "c"), "no column 'c'")
    says(lambda: load_labels(path, "a", 3), "holds 1 labels under 'a' but the data holds 3 examples")
    says(lambda: load("digits", labels=f"{path}:a"), "holds 1 labels but the data holds 1797 examples")
    torch.save({"model": torch.nn.Linear(1, 1)}, make.root / "model.pt")
    says(lambda: read_label_file(make.root / "model.pt", "model"), "was not run")
    says(lambda: load(make.root / "model.pt"), "a torch file")
    damaged = make.bytes("bad.pt", (make.root / "model.pt").read_bytes().replace(b"PK\x01\x02", b"PK\x01?"))
    says(lambda: read_label_file(damaged, "model"), "a damaged .npz or .pt file")
    says(lambda: read_label_file(make.npz("x.npz", x=X)), "no array for the labels (one of y, labels")


def test_corrupting(make: Any) -> None:
    path, out = make.parquet("a.parquet", GOOD), make.root / "b.parquet"
    says(lambda: corrupt_table(make.root / "no.csv", out, spec="pair:1"), "does not exist")
    says(lambda: corrupt_table(make.root, out, spec="pair:1"), "is a folder; pass a table file (CSV, Parquet or npz)")
    says(lambda: corrupt_table(path, make.root / "no" / "b.csv", spec="pair:1"), "make it first")
    says(lambda: corrupt_table(path, make.root, spec="pair:1"), "is a folder")
    says(lambda: corrupt_table(path, out, label_column="z", spec="pair:1"), "no column 'z'")
    says(lambda: corrupt_table(make.text("c.csv", "x,y", "1,0"), make.root / "e.csv", spec="pair:1"), "only one class")
    says(
        lambda: corrupt_table(make.bytes("d.csv.gz", gzip.compress(b"x")), make.root / "e.gz", spec="pair:1"), "gunzip"
    )
    says(lambda: corrupt_table(path, make.root / "b.csv", spec="pair:1"), "end its name in '.parquet'")
    arrays = make.npz("a.npz", x=np.arange(999.0).reshape(3, 333), y=Y)
    make.bytes("a.npz", arrays.read_bytes().replace(np.float64(400).tobytes(), b"damaged!"))
    says(lambda: corrupt_table(arrays, make.root / "b.npz", spec="pair:1"), "x.npy is not as saved")
    assert not out.exists()

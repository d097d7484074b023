"""Arrays: an .npz file, or a folder of .npy files, with inputs and labels under well-known names.

The names (any case): inputs under x, inputs, images or data; labels under y, labels, label, targets or target; each
also with _train or _test behind it (x_train, y_train, x_test, y_test); true labels under true_label or true_labels;
class names under class_names.

The layout: two dimensions are features (n, d). Three are grey images (n, H, W). Four are images: the channels are the
axis of size 1 or 3 among the second and the last; where both or neither qualify, the smaller of the two; where
they are equal, the second.
"""

from __future__ import annotations

import math
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np

from noiseproof.data.input_checks import channels_first, check_numbers, check_values
from noiseproof.data.label_checks import MAX_UNNAMED_CLASSES, label_vector
from noiseproof.data.labeled import LabeledData
from noiseproof.data.readers.base import INFLATION, Options, Splits, even_rows, first_bytes, splits
from noiseproof.data.sources import Mapped
from noiseproof.errors import InputError, damage, naming

INPUT_KEYS = ("x", "inputs", "images", "data")
LABEL_KEYS = ("y", "labels", "label", "targets", "target")
TRUE_KEYS = ("true_label", "true_labels")
ID_KEYS = ("id", "ids")


def find(path: Path) -> Splits | None:
    """The splits of an .npz file or of a folder of .npy files; None where there are no arrays."""
    if path.is_file() and not _is_npz(path):
        return None
    arrays = arrays_in(path)
    if path.is_dir() and not any(find_key(arrays, (*INPUT_KEYS, *LABEL_KEYS), suffix) for suffix in ("", "_train")):
        return None
    suffix = "_train" if find_key(arrays, INPUT_KEYS, "_train") else ""
    test = partial(_read, path, arrays, "_test", suffix) if find_key(arrays, INPUT_KEYS, "_test") else None
    return splits(partial(_read, path, arrays, suffix, suffix), test)


def _is_npz(path: Path) -> bool:
    """Whether a file is an .npz file; another one that numpy or torch writes is refused with a remedy."""
    head = first_bytes(path, 6)
    if head == b"\x93NUMPY":
        raise InputError(
            f"{path} holds one array and no labels; pass its folder (x.npy, y.npy) or an .npz with x and y"
        )
    if head[:2] != b"PK":
        return False
    if arrays_in(path):
        return True
    with opened_zip(path) as archive:
        if any(name.endswith("data.pkl") for name in archive.namelist()):
            raise InputError(f"{path} is a torch file; as a label file pass it with labels='{path}:COLUMN'")
    return False


class Stored(NamedTuple):
    """An array in a file, read when it is asked for."""

    path: Path
    name: str
    member: zipfile.ZipInfo | None = None  # of an .npz file

    def read(self, *, mapped: bool = False) -> np.ndarray:
        """The array; `mapped`, as a memory map if the file allows it."""
        array = f"{self.path}: array {self.name}"
        with damage(f"{array} is damaged", "save or fetch it again"):
            with self._opened() as file:
                shape, _, dtype = _header(file)
                room = self._size() - file.tell()
            if dtype.hasobject:
                raise InputError(f"{array} holds Python objects, which are not read; save numbers or text instead")
            size = math.prod(shape) * max(dtype.itemsize, 1)
            if size > room:  # before memory is asked for
                raise ValueError(f"{size:,} bytes announced, {room:,} found")
            if mapped and self.member is None:
                return np.load(self.path, mmap_mode="c", allow_pickle=False)
            if mapped and self.member is not None and self.member.compress_type == zipfile.ZIP_STORED:
                return _mapped(self.path, self.member)
            with self._opened() as file:
                return np.lib.format.read_array(file, allow_pickle=False)

    def shape(self) -> tuple[int, ...]:
        """That of the array, from its head alone."""
        with damage(f"{self.path}: array {self.name} is damaged", "save or fetch it again"), self._opened() as file:
            return _header(file)[0]

    @contextmanager
    def _opened(self) -> Iterator[IO[bytes]]:
        """The array as an .npy file has it."""
        if self.member is None:
            with open(self.path, "rb") as file:
                yield file
        else:
            with zipfile.ZipFile(self.path) as archive, archive.open(self.member) as member:
                yield member

    def _size(self) -> int:
        """The bytes of that; of a member of a zip file no more than what it is packed into can expand to."""
        if self.member is None:
            return self.path.stat().st_size
        packed = min(self.member.compress_size, self.path.stat().st_size)
        return min(
            self.member.file_size, packed * (1 if self.member.compress_type == zipfile.ZIP_STORED else INFLATION)
        )


Arrays = Mapping[str, Stored]


@contextmanager
def opened_zip(path: Path) -> Iterator[zipfile.ZipFile]:
    """A zip file, as .npz and .pt are."""
    with damage(f"{path} is a damaged .npz or .pt file", "save or fetch it again"), zipfile.ZipFile(path) as archive:
        yield archive


def arrays_in(path: Path) -> Arrays:
    """The arrays in a folder of .npy files, in one .npy file or in an .npz file, by name."""
    if path.is_dir():
        return {file.stem: Stored(file, file.name) for file in sorted(path.glob("*.npy"))}
    if first_bytes(path, 6) == b"\x93NUMPY":
        return {path.stem: Stored(path, path.name)}
    with opened_zip(path) as archive:
        members = {m.filename.removesuffix(".npy"): m for m in archive.infolist() if m.filename.endswith(".npy")}
    return {name: Stored(path, name, member) for name, member in members.items()}


def find_key(arrays: Arrays, keys: tuple[str, ...], suffix: str) -> str | None:
    """The name of the array that is called as one of the keys with a suffix, in any case."""
    lower = {name.lower(): name for name in arrays}
    return next((lower[key + suffix] for key in keys if key + suffix in lower), None)


def need(path: Path, arrays: Arrays, keys: tuple[str, ...], suffixes: tuple[str, ...], given: str | None) -> str:
    """The name of the array asked for, else of that which is called as one of the keys with the first suffix possible.

    Raises:
        InputError: there is none.
    """
    what = "inputs" if keys == INPUT_KEYS else "labels"
    holds = f"it holds {', '.join(sorted(arrays)) or 'none'}"
    if given is not None:
        if given in arrays:
            return given
        raise InputError(f"{path} has no array {given!r} for the {what}; {holds}")
    for suffix in suffixes:
        if key := find_key(arrays, keys, suffix):
            return key
    expected = ", ".join(key + min(suffixes) for key in keys)
    raise InputError(f"{path} has no array for the {what} (one of {expected}); {holds}")


def _read(path: Path, arrays: Arrays, suffix: str, reference: str, options: Options) -> LabeledData:
    """x and y with a suffix; the labels with the `reference` suffix say how many classes there are."""
    options.refuse(path, "feature_columns", "kinds", "image_size")
    x_key = need(path, arrays, INPUT_KEYS, (suffix,), options.image_column)
    label = options.label_column
    if not options.labeled and label is None and find_key(arrays, LABEL_KEYS, suffix) is None:
        return options.build(path, _inputs(path, arrays[x_key], options), None)
    if label is not None and suffix != reference:  # what is asked for is the train set's array
        label = label.removesuffix(reference) + suffix
        label = label if label in arrays else None
    y_key = need(path, arrays, LABEL_KEYS, (suffix,), label)
    labels = _labels(path, arrays, y_key)
    true_key = find_key(arrays, TRUE_KEYS, suffix)
    true_labels = _labels(path, arrays, true_key) if true_key else None
    if true_labels is not None and len(true_labels) != len(labels):
        raise InputError(f"{path}: {y_key} holds {len(labels)} labels but {true_key} {len(true_labels)}; save as many")
    class_names = arrays["class_names"].read().tolist() if "class_names" in arrays else None
    if class_names is None and suffix != reference:
        train_key = need(path, arrays, LABEL_KEYS, (reference,), options.label_column)
        class_names = _names([arrays[train_key].read()], labels)
    elif class_names is None and even_rows(len(labels), options.limit) is not None:
        class_names = _names([labels] if true_labels is None else [labels, true_labels], labels)
    inputs = _inputs(path, arrays[x_key], options)
    if inputs.shape[0] != len(labels):
        raise InputError(
            f"{path}: {x_key} holds {inputs.shape[0]} rows but {y_key} holds {len(labels)} labels; "
            "save one label per row"
        )
    return options.build(
        path, inputs, labels, true_labels=true_labels, class_names=class_names, allow_empty=suffix != reference
    )


def _labels(path: Path, arrays: Arrays, key: str) -> np.ndarray:
    values = arrays[key].read()
    with naming(path):
        return label_vector(key, values)


def _names(known: list[np.ndarray], labels: np.ndarray) -> list[str] | None:
    """The class names that the labels of the train set imply, for data that may lack some classes."""
    if all(one.dtype.kind in "US" for one in known):
        texts = [np.char.decode(one, "utf-8", "replace") if one.dtype.kind == "S" else one for one in known]
        return np.unique(np.concatenate(texts)).tolist()
    if not all(one.dtype.kind in "iub" and one.size for one in (*known, labels)):
        return None
    largest = max(int(one.max()) for one in (*known, labels))
    return [str(k) for k in range(largest + 1)] if largest < MAX_UNNAMED_CLASSES else None


def _inputs(path: Path, stored: Stored, options: Options) -> np.ndarray | Mapped:
    """The inputs as (n, d) or (n, C, H, W): in memory, or mapped from disk beyond the memory limit."""
    array = channels_first(stored.read(mapped=True))  # costs nothing until its values are looked at
    image = array.ndim == 4
    if array.size * (1 if image and array.dtype == np.uint8 else 4) <= options.memory_limit:
        if isinstance(array, np.memmap):
            array = channels_first(stored.read())  # which checks the sum of an .npz file too
        return np.ascontiguousarray(array)
    if not isinstance(array, np.memmap):
        raise InputError(
            f"{path} takes {array.nbytes:,} bytes, beyond memory_limit={options.memory_limit:,}; "
            "save it uncompressed (np.savez: it is then read from disk) or raise memory_limit"
        )
    with naming(path):
        check_numbers(array.dtype)
        check_values(array, image=image)
    return Mapped(array)


def _mapped(path: Path, member: zipfile.ZipInfo) -> np.ndarray:
    """An uncompressed member of a zip file as a memory map of that stretch of the file."""
    with open(path, "rb") as file:
        file.seek(member.header_offset)
        local = file.read(30)  # the local header, whose name and extra field may differ from the directory's
        file.seek(int.from_bytes(local[26:28], "little") + int.from_bytes(local[28:30], "little"), 1)
        shape, fortran, dtype = _header(file)
        if 0 in shape:
            return np.empty(shape, dtype)
        return np.memmap(path, dtype, mode="c", offset=file.tell(), shape=shape, order="F" if fortran else "C")


def _header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype]:
    """Shape, whether columns come first, and type, from the head of an .npy file."""
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    return read(file)

"""Arrays: an .npz file, or a folder of .npy files, with inputs and labels under well-known names.

The names (any case): inputs under x, inputs, images or data; labels under y, labels, label, targets or target; each
also with _train or _test behind it (x_train, y_train, x_test, y_test); true labels under true_label or true_labels;
class names under class_names.

The layout: two dimensions are features (n, d). Three are grey images (n, H, W). Four are images: the channels are the
axis of size 1 or 3 among the second and the last; where both or neither qualify, the smaller of the two; where
they are equal, the second.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from noiseproof.data.checks import check_numbers, check_values
from noiseproof.data.label_checks import label_vector
from noiseproof.data.labeled import LabeledData
from noiseproof.data.readers.options import Options, Split, Splits, even_rows
from noiseproof.data.sources import InputSource, Mapped, Rows
from noiseproof.errors import InputError, naming

INPUT_KEYS = ("x", "inputs", "images", "data")
LABEL_KEYS = ("y", "labels", "label", "targets", "target")
TRUE_KEYS = ("true_label", "true_labels")

_Read = Callable[[bool], np.ndarray]  # reads one array; True: as a memory map if the file allows it
_Arrays = dict[str, _Read]


def find(path: Path) -> Splits | None:
    """The splits of an .npz file or of a folder of .npy files; None for a folder without such files."""
    arrays = _npz(path) if path.is_file() else _folder(path)
    if path.is_dir() and not any(_key(arrays, keys, s) for keys in (INPUT_KEYS, LABEL_KEYS) for s in ("", "_train")):
        return None
    suffix = "_train" if _key(arrays, INPUT_KEYS, "_train") else ""
    train = _split(path, arrays, suffix, suffix)
    test = {"test": _split(path, arrays, "_test", suffix)} if _key(arrays, INPUT_KEYS, "_test") else {}
    return {"train": train, **test}


def read_array(path: Path, key: str | None) -> np.ndarray:
    """One array of an .npz file by name, or the one an .npy file holds."""
    if path.suffix == ".npy":
        return _npy(path)(False)
    arrays = _npz(path)
    if key is None or key not in arrays:
        raise InputError(f"{path} has no array {key!r}; choose from {', '.join(sorted(arrays))}")
    return arrays[key](False)


def find_key(path: Path, keys: tuple[str, ...], suffix: str = "") -> str | None:
    """The name under which an .npz file holds labels or inputs."""
    return _key(_npz(path), keys, suffix)


def layout(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The axes of an array in the order (n, d) or (n, C, H, W), -1 for a new axis; see the rule above."""
    if len(shape) == 3:
        return (0, -1, 1, 2)
    if len(shape) != 4:
        return tuple(range(len(shape)))
    first, last = shape[1] in (1, 3), shape[3] in (1, 3)
    channels_last = last if first != last else shape[3] < shape[1]
    return (0, 3, 1, 2) if channels_last else (0, 1, 2, 3)


def _split(path: Path, arrays: _Arrays, suffix: str, reference: str) -> Split:
    """Reads x and y with a suffix; the labels with the `reference` suffix say how many classes there are."""

    def read(options: Options) -> LabeledData:
        options.refuse(path, "feature_columns", "image_size")
        x_key = _need(path, arrays, INPUT_KEYS, suffix, options.image_column, "inputs")
        label = options.label_column
        if not options.labeled and label is None and _key(arrays, LABEL_KEYS, suffix) is None:
            unlabeled = _inputs(path, arrays[x_key], options)
            chosen = even_rows(unlabeled.shape[0], options.limit)
            return options.build(path, unlabeled if chosen is None else _at(unlabeled, chosen), None)
        if label is not None and suffix != reference:  # what is asked for is the train set's array
            label = label.removesuffix(reference) + suffix
            label = label if label in arrays else None
        y_key = _need(path, arrays, LABEL_KEYS, suffix, label, "labels")
        true_key = _key(arrays, TRUE_KEYS, suffix)
        labels, true_labels = (_labels(path, arrays, key) if key else None for key in (y_key, true_key))
        assert labels is not None
        if true_labels is not None and len(true_labels) != len(labels):
            raise InputError(
                f"{path}: {y_key} holds {len(labels)} labels but {true_key} {len(true_labels)}; save as many"
            )
        class_names = arrays["class_names"](False).tolist() if "class_names" in arrays else None
        if class_names is None and suffix != reference:
            known = arrays[_need(path, arrays, LABEL_KEYS, reference, options.label_column, "labels")](False)
            class_names = _names(known, labels)
        inputs = _inputs(path, arrays[x_key], options)
        if inputs.shape[0] != len(labels):
            raise InputError(
                f"{path}: {x_key} holds {inputs.shape[0]} rows but {y_key} holds {len(labels)} labels; "
                "save one label per row"
            )
        rows = even_rows(len(labels), options.limit)
        if rows is not None:
            if class_names is None:
                class_names = _names(labels, labels)
            labels = labels[rows.numpy()]
            true_labels = None if true_labels is None else true_labels[rows.numpy()]
            inputs = _at(inputs, rows)
        allow_empty = rows is not None or suffix != reference
        return options.build(
            path, inputs, labels, true_labels=true_labels, class_names=class_names, allow_empty=allow_empty
        )

    return read


def _labels(path: Path, arrays: _Arrays, key: str) -> np.ndarray:
    values = arrays[key](False)
    with naming(path):
        return label_vector(key, values)


def _at(inputs: np.ndarray | InputSource, rows: torch.Tensor) -> np.ndarray | InputSource:
    return Rows(inputs, rows) if isinstance(inputs, InputSource) else inputs[rows.numpy()]


def _names(known: np.ndarray, labels: np.ndarray) -> list[str] | None:
    """The class names that the labels of the train set imply, for data that may lack some classes."""
    if known.dtype.kind in "US":
        return np.unique(np.char.decode(known, "utf-8", "replace") if known.dtype.kind == "S" else known).tolist()
    if known.dtype.kind not in "iub" or labels.dtype.kind not in "iub" or not known.size or not labels.size:
        return None
    return [str(k) for k in range(int(max(known.max(), labels.max())) + 1)]


def _inputs(path: Path, read: _Read, options: Options) -> np.ndarray | InputSource:
    """The inputs as (n, d) or (n, C, H, W): in memory, or mapped from disk beyond the memory limit."""
    array = read(True)  # costs nothing until its values are looked at
    axes = layout(array.shape)
    floats = len(axes) != 4 or array.dtype != np.uint8
    if array.size * (4 if floats else 1) > options.memory_limit:
        if not isinstance(array, np.memmap):
            raise InputError(
                f"{path} takes {array.nbytes:,} bytes, beyond memory_limit={options.memory_limit:,}; "
                "save it uncompressed (np.savez: it is then read from disk) or raise memory_limit"
            )
        with naming(path):
            check_numbers(array.dtype)
            check_values(array, image=len(axes) == 4)
        return Mapped(array, axes)
    array = read(False)
    return array[:, None] if len(array.shape) == 3 else np.ascontiguousarray(array.transpose(axes))


def _key(arrays: _Arrays, keys: tuple[str, ...], suffix: str) -> str | None:
    lower = {name.lower(): name for name in arrays}
    return next((lower[key + suffix] for key in keys if key + suffix in lower), None)


def _need(path: Path, arrays: _Arrays, keys: tuple[str, ...], suffix: str, given: str | None, what: str) -> str:
    if given is not None:
        if given in arrays:
            return given
        raise InputError(
            f"{path} has no array {given!r} for the {what}; it holds {', '.join(sorted(arrays)) or 'none'}"
        )
    key = _key(arrays, keys, suffix)
    if key is None:
        expected = ", ".join(k + suffix for k in keys)
        raise InputError(
            f"{path} has no array for the {what} (one of {expected}); it holds {', '.join(sorted(arrays)) or 'none'}"
        )
    return key


def _folder(path: Path) -> _Arrays:
    return {file.stem: _npy(file) for file in sorted(path.glob("*.npy"))}


def _npy(path: Path) -> _Read:
    def read(mapped: bool) -> np.ndarray:
        try:
            return np.load(path, mmap_mode="c" if mapped else None, allow_pickle=False)
        except (ValueError, OSError, EOFError) as error:
            raise _damaged(path, path.name, error) from error

    return read


def _npz(path: Path) -> _Arrays:
    try:
        with zipfile.ZipFile(path) as archive:
            members = [member for member in archive.infolist() if member.filename.endswith(".npy")]
    except (zipfile.BadZipFile, OSError, EOFError) as error:
        raise InputError(f"{path} is a damaged .npz file ({error}); save or fetch it again") from error
    return {member.filename.removesuffix(".npy"): _member(path, member) for member in members}


def _member(path: Path, member: zipfile.ZipInfo) -> _Read:
    name = member.filename.removesuffix(".npy")

    def read(mapped: bool) -> np.ndarray:
        try:
            if mapped and member.compress_type == zipfile.ZIP_STORED:
                return _mapped_member(path, member)
            with np.load(path, allow_pickle=False) as arrays:
                return arrays[name]
        except (ValueError, OSError, EOFError, zipfile.BadZipFile, zlib.error) as error:
            raise _damaged(path, name, error) from error

    return read


def _mapped_member(path: Path, member: zipfile.ZipInfo) -> np.ndarray:
    """An uncompressed member of a zip file as a memory map of that stretch of the file."""
    with open(path, "rb") as file:
        file.seek(member.header_offset)
        local = file.read(30)  # the local header, whose name and extra field may differ from the directory's
        file.seek(int.from_bytes(local[26:28], "little") + int.from_bytes(local[28:30], "little"), 1)
        version = np.lib.format.read_magic(file)
        read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = read_header(file)
        if dtype.hasobject:
            raise ValueError("Object arrays cannot be loaded when allow_pickle=False")
        if 0 in shape:
            return np.empty(shape, dtype)
        return np.memmap(path, dtype, mode="c", offset=file.tell(), shape=shape, order="F" if fortran else "C")


def _damaged(path: Path, name: str, error: Exception) -> InputError:
    if "allow_pickle" in str(error):
        return InputError(
            f"{path}: array {name} holds Python objects, which are not read; save numbers or text instead"
        )
    return InputError(f"{path}: array {name} is damaged ({' '.join(str(error).split())}); save or fetch it again")

"""Unpickle files of numbers without running anything they ask for.

A pickle is a program: it can name any importable function and call it. This one may name only what arrays of numbers
are rebuilt from, and what those names stand for here are our own few lines, not numpy's functions.
"""

from __future__ import annotations

import io
import pickle
import struct
from typing import IO, Any, ClassVar

import numpy as np

from noiseproof.errors import InputError, damage

_NDARRAY = "numpy.ndarray"  # stands for the type, which a pickle could call to look at any bytes as objects


class _Dtype:
    """A dtype of plain numbers; of the state that a pickle gives it, only the byte order counts."""

    def __init__(self, code: Any, *rest: Any) -> None:
        self.dtype = np.dtype(code.decode() if isinstance(code, bytes) else code)
        if self.dtype.kind not in "biuf":
            raise pickle.UnpicklingError(f"an array of dtype {self.dtype}")

    def __setstate__(self, state: Any) -> None:
        order = state[1].decode() if isinstance(state[1], bytes) else state[1]
        if order == ">":
            self.dtype = self.dtype.newbyteorder(">")


class _Array(np.ndarray):
    """An array of plain numbers, whose content follows in `__setstate__`."""

    def __setstate__(self, state: Any) -> None:
        version, shape, dtype, columns_first, content = state
        super().__setstate__((version, shape, dtype.dtype, columns_first, content))


def _reconstruct(kind: Any, shape: Any, code: Any) -> np.ndarray:
    """An empty array."""
    if kind != _NDARRAY:
        raise pickle.UnpicklingError(f"an array of type {kind!r}")
    return np.ndarray.__new__(_Array, (0,), "b")


def _frombuffer(buffer: Any, dtype: _Dtype, shape: tuple[int, ...], order: str = "C") -> np.ndarray:
    """An array over the bytes of the pickle (protocol 5)."""
    content = buffer.encode("latin1") if isinstance(buffer, str) else buffer
    return np.frombuffer(bytearray(content), dtype=dtype.dtype).reshape(shape, order="F" if order == "F" else "C")


def _scalar(dtype: _Dtype, content: Any) -> Any:
    return _frombuffer(content, dtype, ())[()]


def _encode(text: str, encoding: str = "latin1") -> bytes:
    """How protocol 2 writes bytes in Python 3."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"the encoding {encoding!r}")
    return text.encode("latin1")


_ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): _NDARRAY,
    ("numpy", "dtype"): _Dtype,
    ("_codecs", "encode"): _encode,
    ("collections", "OrderedDict"): dict,
}
for _package in ("numpy.core", "numpy._core"):  # numpy 1 and numpy 2
    _ALLOWED[f"{_package}.multiarray", "_reconstruct"] = _reconstruct
    _ALLOWED[f"{_package}.multiarray", "scalar"] = _scalar
    _ALLOWED[f"{_package}.numeric", "_frombuffer"] = _frombuffer
for _builtins in ("builtins", "__builtin__"):  # Python 3 and Python 2
    for _kind in (list, dict, tuple, set, frozenset, bytearray):
        _ALLOWED[_builtins, _kind.__name__] = _kind


class _Restricted(pickle._Unpickler):
    """In Python, whose memory of objects is a dict: the one in C makes room for any number that a file may name."""

    dispatch: ClassVar[dict[int, Any]] = dict(pickle._Unpickler.dispatch)

    def __init__(self, file: IO[bytes], name: str) -> None:
        super().__init__(file, encoding="bytes")
        self.name = name

    def load_bytearray8(self) -> None:
        """As many bytes as there are, and not room for as many as are announced."""
        (size,) = struct.unpack("<Q", self.read(8))  # type: ignore[attr-defined]
        self.append(bytearray(self.read(size)))  # type: ignore[attr-defined]

    dispatch[pickle.BYTEARRAY8[0]] = load_bytearray8

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise InputError(
                f"{self.name} is a pickle that asks for {module}.{name}, which arrays of numbers do not need; "
                "it was not run: do not trust this file"
            )
        return _ALLOWED[module, name]

    def persistent_load(self, pid: Any) -> Any:
        raise InputError(f"{self.name} mixes torch tensors into its pickle; save numpy arrays, or tensors alone")


def unpickle(content: bytes | IO[bytes], name: str) -> Any:
    """The numbers, texts, containers and arrays a pickle holds; anything else in it is an InputError."""
    file = io.BytesIO(content) if isinstance(content, bytes) else content
    with damage(f"{name} cannot be unpickled", "fetch the file again"):
        return _Restricted(file, name).load()

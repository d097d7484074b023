"""Save and load a run's state, atomically and without pickle.

A checkpoint is one safetensors file: tensors in its body, everything else as JSON in its header, with a checksum of
both. One file, replaced in one system call, is either the old state or the new one, whenever the process is killed.
"""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from noiseproof.errors import InputError
from noiseproof.files import parse_json, write_atomically
from noiseproof.runs.structure import Damaged

_KEY = "noiseproof"
_FORMAT = 1


def save(path: Path, state: dict[str, Any], *, keep: Path | None = None) -> None:
    """Save a nested state of dicts, lists, tensors, numbers, strings and None; what stood at `path` moves to `keep`.

    Raises:
        InputError: the file cannot be written.
        TypeError: the state holds something else.
    """
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    tensors: dict[str, Tensor] = {}
    tree = _pack(state, "", tensors)
    header = {_KEY: json.dumps({"format": _FORMAT, "tree": tree, "crc": _checksum(tree, tensors)})}

    def write(temporary: Path) -> None:
        try:
            save_file(tensors, temporary, metadata=header)
        except SafetensorError as error:
            raise OSError(str(error)) from error

    write_atomically(path, write, keep=keep)


def load(path: Path, *, plain: str | None = None) -> dict[str, Any]:
    """Load what `save` saved; tensors arrive on the CPU.

    Args:
        plain: take safetensors files that are not of our making too; the key under which to give their tensors.

    Raises:
        InputError: there is no such file, or it is not a checkpoint of ours.
    """
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise InputError(f"there is no checkpoint at {path}; start the run afresh")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata()
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise Damaged(path, error) from error
    if metadata is None or _KEY not in metadata:
        if plain is not None:
            return {plain: tensors}
        raise Damaged(path, "it is safetensors, but not a noiseproof checkpoint")
    try:
        header = parse_json(metadata[_KEY])
        written = header["format"]
        state = _unpack(header["tree"], tensors) if written == _FORMAT else {}
        if not isinstance(state, dict):
            raise TypeError
    except (ValueError, TypeError, KeyError, AttributeError):  # what JSON of another structure leads to
        raise Damaged(path, "its header is not as it was written") from None
    if written != _FORMAT:
        raise Damaged(path, f"its format is {written!r:.20}, this version reads {_FORMAT}")
    if "crc" in header and header["crc"] != _checksum(header["tree"], tensors):  # earlier versions wrote none
        raise Damaged(path, "its checksum is another")
    return state


def _checksum(tree: Any, tensors: dict[str, Tensor]) -> int:
    """A checksum of all that is saved, and of nothing that the file's layout decides."""
    shapes = [[name, str(tensor.dtype), list(tensor.shape)] for name, tensor in sorted(tensors.items())]
    crc = zlib.crc32(json.dumps([tree, shapes]).encode())
    for _, tensor in sorted(tensors.items()):
        crc = zlib.crc32(tensor.reshape(-1).view(torch.uint8).numpy().data, crc)
    return crc


def _pack(value: Any, name: str, tensors: dict[str, Tensor]) -> Any:
    """JSON for `value`, its tensors moved to `tensors` under their paths."""
    if isinstance(value, Tensor):
        # safetensors wants plain memory of its own: tied weights would share it, channels-last would not be plain
        tensors[name] = value.detach().to("cpu", memory_format=torch.contiguous_format, copy=True)
        return {"tensor": name}
    if isinstance(value, dict):  # as pairs: optimizer states have integer keys
        return {"dict": [[key, _pack(item, f"{name}/{key}", tensors)] for key, item in value.items()]}
    if isinstance(value, list | tuple):
        return {"list": [_pack(item, f"{name}/{i}", tensors) for i, item in enumerate(value)]}
    if value is None or isinstance(value, bool | int | float | str):
        return {"value": value}
    raise TypeError(f"state {name!r} is a {type(value).__name__}; a checkpoint holds tensors, numbers, text and None")


def _unpack(tree: Any, tensors: dict[str, Tensor]) -> Any:
    """What `_pack` made JSON of; any of several errors where this is not that."""
    [(kind, content)] = tree.items()
    if kind == "tensor":
        return tensors[content]
    if kind == "dict":
        return {key: _unpack(item, tensors) for key, item in content}
    if kind == "list":
        return [_unpack(item, tensors) for item in content]
    if kind == "value" and not isinstance(content, dict | list):
        return content
    raise ValueError(kind)

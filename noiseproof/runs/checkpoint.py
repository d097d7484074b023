"""Save and load a run's state, atomically and without pickle.

A checkpoint is one safetensors file: tensors in its body, everything else as JSON in its header. One file, replaced in
one system call, is either the old state or the new one, whenever the process is killed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from noiseproof.errors import InputError
from noiseproof.files import write_atomically

_KEY = "noiseproof"
_FORMAT = 1


def save(path: Path, state: dict[str, Any]) -> None:
    """Save a nested state of dicts, lists, tensors, numbers, strings and None.

    Raises:
        InputError: the file cannot be written.
        TypeError: the state holds something else.
    """
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    tensors: dict[str, Tensor] = {}
    tree = _pack(state, "", tensors)
    header = {_KEY: json.dumps({"format": _FORMAT, "tree": tree})}

    def write(temporary: Path) -> None:
        try:
            save_file(tensors, temporary, metadata=header)
        except SafetensorError as error:
            raise OSError(str(error)) from error

    write_atomically(path, write)


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
        raise InputError(f"{path} is damaged or no checkpoint ({error}); fetch it again, or begin anew") from error
    if metadata is None or _KEY not in metadata:
        if plain is not None:
            return {plain: tensors}
        raise InputError(f"{path} is a safetensors file but not a noiseproof checkpoint; choose another file or folder")
    header = json.loads(metadata[_KEY])
    if header["format"] != _FORMAT:
        raise InputError(f"{path} has checkpoint format {header['format']}, this version reads {_FORMAT}; start afresh")
    return _unpack(header["tree"], tensors)


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
    [(kind, content)] = tree.items()
    if kind == "tensor":
        return tensors[content]
    if kind == "dict":
        return {key: _unpack(item, tensors) for key, item in content}
    if kind == "list":
        return [_unpack(item, tensors) for item in content]
    return content

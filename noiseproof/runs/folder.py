"""A run's folder: config.json, history.jsonl, checkpoint.safetensors, and what the result adds."""

from __future__ import annotations

import json
import re
import zlib
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from noiseproof import files
from noiseproof.data import LabeledData
from noiseproof.data.sources import Rows
from noiseproof.errors import InputError
from noiseproof.runs import checkpoint

CHECKPOINT = "checkpoint.safetensors"
INITIAL = "initial.safetensors"
CONFIG = "config.json"
HISTORY = "history.jsonl"
RESULTS = (
    "summary.json", "model.safetensors", "labels.parquet", "curves.png", "report.html",
    "backbone.safetensors", "embedding.png", "neighbours.png",
)  # fmt: skip


def describe(value: Any) -> Any:
    """A value as JSON that is the same in every process: no memory addresses."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, LabeledData):
        return {
            "examples": len(value),
            "input_shape": list(value.input_shape),
            "classes": value.num_classes,
            "names_crc": zlib.crc32(repr(value.class_names).encode()),
            "labels_crc": zlib.crc32(value.labels.numpy().tobytes()),
            "inputs_crc": _inputs_crc(value),
        }
    if isinstance(value, list | tuple):
        return [describe(one) for one in value]
    return getattr(value, "__qualname__", None) or re.sub(r" at 0x[0-9a-f]+", "", repr(value))


def _inputs_crc(data: LabeledData) -> int:
    """A checksum of the inputs: of all that are in memory, of 64 where each would have to be decoded."""
    base = data.inputs.base if isinstance(data.inputs, Rows) else data.inputs
    n = len(data)
    rows = torch.arange(n) if isinstance(base, Tensor) else torch.linspace(0, n - 1, min(n, 64)).long()
    crc = 0
    for block in rows.split(4096):
        crc = zlib.crc32(data.take(block).contiguous().numpy().tobytes(), crc)
    return crc


class RunFolder:
    """The folder of a run.

    Args:
        path: where it is, or will be.
        command: the options of the command that begins the run, as JSON: config.json keeps them.
        hint: how to go on with the run after an interruption; by default as from Python.
    """

    def __init__(self, path: str | Path, *, command: dict[str, Any] | None = None, hint: str | None = None) -> None:
        self.path, self.command = Path(path), command
        self.hint = hint or "go on by the same call with resume=True"
        self.writes = True  # of several processes only the main one does

    def ensure_free(self) -> None:
        """Raise an InputError if there is a run here already."""
        if not self.writes:
            return
        if self.path.exists() and not self.path.is_dir():
            raise InputError(f"{self.path} is a file; choose a folder for the run")
        if (self.path / CHECKPOINT).exists():
            raise InputError(f"{self.path} already holds a run; resume it, or choose another folder")
        taken = [name for name in (CONFIG, HISTORY, *RESULTS) if (self.path / name).exists()]
        if taken and not self._is_unborn(taken):
            raise InputError(f"{self.path} has a {taken[0]} of its own already; choose another folder")

    def _is_unborn(self, taken: list[str]) -> bool:
        """Whether what is here was left by a run killed before its first checkpoint."""
        if not set(taken) <= {CONFIG, HISTORY} or ((path := self.path / HISTORY).exists() and path.stat().st_size):
            return False
        try:
            self.config()
        except InputError:
            return False
        return True

    def create(self, call: dict[str, Any], notes: dict[str, Any] | None = None) -> None:
        """Begin a new run here, by the call that describes it."""
        from noiseproof import __version__

        self.ensure_free()
        if not self.writes:
            return
        versions = {"noiseproof": __version__, "torch": torch.__version__}
        config = versions | {"command": self.command, "call": call, "notes": notes or {}}
        files.write_text(self.path / CONFIG, json.dumps(config, indent=2) + "\n")
        files.write_text(self.path / HISTORY, "")

    def resume(self, call: dict[str, Any]) -> dict[str, Any]:
        """The saved state of the run here, which must have been begun by the same `call`."""
        saved = self.config()["call"]
        state = checkpoint.load(self.path / CHECKPOINT)
        if "position" not in state:
            raise InputError(f"{self.path / CHECKPOINT} is not the checkpoint of a run; start afresh in another folder")
        for key in call:
            if saved.get(key) != call[key]:
                raise InputError(
                    f"{self.path} was begun with {key}={saved.get(key)!r}, this call has {call[key]!r}; "
                    f"resume with the same {key} or choose another folder"
                )
        if self.writes:
            for leftover in self.path.glob(".*.tmp"):  # of a save that was killed
                leftover.unlink()
            self.write_history(state["history"])  # epochs after the checkpoint will be run again
        return state

    def config(self) -> dict[str, Any]:
        """What the run was begun with: its `call`, the `command` if one began it, and `notes`.

        Raises:
            InputError: there is no run here, or its config.json is damaged.
        """
        path = self.path / CONFIG
        if not path.is_file():
            raise InputError(f"there is no run in {self.path}; start it afresh, or name the folder of one")
        try:
            config = json.loads(path.read_text(encoding="utf-8"))
            command = config.get("command")
            return {
                "call": dict(config["call"]),
                "command": None if command is None else dict(command),
                "notes": dict(config["notes"]),
            }
        except (ValueError, KeyError, TypeError, AttributeError):
            raise InputError(f"{path} is damaged; start afresh in another folder") from None

    def save(self, state: dict[str, Any]) -> None:
        """Replace the checkpoint."""
        if self.writes:
            checkpoint.save(self.path / CHECKPOINT, state)

    def write_history(self, history: list[dict[str, Any]]) -> None:
        """Write the history anew."""
        files.write_text(self.path / HISTORY, "".join(json.dumps(record) + "\n" for record in history))

    def log(self, record: dict[str, Any]) -> None:
        """Add a line to the history."""
        if not self.writes:
            return
        try:
            with open(self.path / HISTORY, "a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")
        except OSError as error:
            raise InputError(
                f"cannot write {self.path / HISTORY}: {error.strerror}; free space, then resume the run"
            ) from error

    def save_initial(self, parameters: list[Tensor], buffers: dict[str, Tensor]) -> None:
        """Keep the weights a run began with: distances are measured from them, also after a resume."""
        if self.writes:
            checkpoint.save(self.path / INITIAL, {"parameters": parameters, "buffers": buffers})

    def load_initial(self, like: list[Tensor]) -> list[Tensor]:
        """The weights the run began with, laid out like the given ones."""
        saved = checkpoint.load(self.path / INITIAL)["parameters"]
        return [torch.empty_like(p).copy_(value) for p, value in zip(like, saved, strict=True)]

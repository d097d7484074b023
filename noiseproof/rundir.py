"""A run's folder: config.json, history.jsonl, checkpoint.safetensors, and what the result adds."""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from noiseproof import checkpoint, files
from noiseproof.data import LabeledData
from noiseproof.errors import InputError
from noiseproof.method import Method

CHECKPOINT = "checkpoint.safetensors"
INITIAL = "initial.safetensors"
CONFIG = "config.json"
HISTORY = "history.jsonl"


def describe_call(
    model: str | nn.Module | Callable[[], nn.Module], method: Method, data: LabeledData, **settings: Any
) -> dict[str, Any]:
    """What determines a run, as JSON: two runs of equal descriptions are the same run."""
    name = model if isinstance(model, str) else type(model).__name__ if isinstance(model, nn.Module) else repr(model)
    rows = torch.linspace(0, len(data) - 1, min(len(data), 64)).long()
    return {
        "model": name,
        "method": method.describe(),
        "data": {
            "examples": len(data),
            "input_shape": list(data.input_shape),
            "classes": data.num_classes,
            "labels_crc": zlib.crc32(data.labels.numpy().tobytes()),
            "inputs_crc": zlib.crc32(data.take(rows).contiguous().numpy().tobytes()),
        },
        **{key: value if _is_plain(value) else repr(value) for key, value in settings.items()},
    }


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, bool | int | float | str)


class RunDir:
    """The folder of a run, and when it is due a checkpoint."""

    def __init__(self, path: Path, seconds: float = 60.0, steps: int | None = None) -> None:
        if seconds <= 0 or (steps is not None and steps < 1):
            raise InputError(f"checkpoints need seconds above 0 and steps of 1 or more, got {seconds} and {steps}")
        self.path, self.seconds, self.steps = path, seconds, steps
        self._saved = time.monotonic()

    def ensure_free(self) -> None:
        """Raise an InputError if there is a run here already."""
        if (self.path / CHECKPOINT).exists():
            raise InputError(f"{self.path} already holds a run; pass --resume to continue it or choose another --out")

    def create(self, call: dict[str, Any]) -> None:
        """Begin a new run here."""
        from noiseproof import __version__

        self.ensure_free()
        config = {"noiseproof": __version__, "torch": torch.__version__, "call": call}
        files.write_text(self.path / CONFIG, json.dumps(config, indent=2) + "\n")
        files.write_text(self.path / HISTORY, "")

    def resume(self, call: dict[str, Any]) -> dict[str, Any]:
        """The saved state of the run here, which must have been begun by the same `call`."""
        state = checkpoint.load(self.path / CHECKPOINT)
        saved = json.loads((self.path / CONFIG).read_text(encoding="utf-8"))["call"]
        for key in call:
            if saved.get(key) != call[key]:
                raise InputError(
                    f"{self.path} was begun with {key}={saved.get(key)!r}, this call has {call[key]!r}; "
                    f"resume with the same {key} or choose another --out"
                )
        lines = "".join(json.dumps(record) + "\n" for record in state["history"])
        files.write_text(self.path / HISTORY, lines)  # epochs after the checkpoint will be run again
        self._saved = time.monotonic()
        return state

    def is_due(self, step: int) -> bool:
        """Is it time for a checkpoint?"""
        return (self.steps is not None and step % self.steps == 0) or time.monotonic() - self._saved >= self.seconds

    def save(self, state: dict[str, Any]) -> None:
        """Replace the checkpoint."""
        checkpoint.save(self.path / CHECKPOINT, state)
        self._saved = time.monotonic()

    def log(self, record: dict[str, Any]) -> None:
        """Add a line to the history."""
        try:
            with open(self.path / HISTORY, "a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")
        except OSError as error:
            raise InputError(
                f"cannot write {self.path / HISTORY}: {error.strerror}; free space, then --resume"
            ) from error

    def save_initial(self, parameters: list[Tensor]) -> None:
        """Keep the weights a run began with: distances are measured from them, also after a resume."""
        checkpoint.save(self.path / INITIAL, {"parameters": parameters})

    def load_initial(self, like: list[Tensor]) -> list[Tensor]:
        """The weights the run began with, laid out like the given ones."""
        saved = checkpoint.load(self.path / INITIAL)["parameters"]
        return [torch.empty_like(p).copy_(value) for p, value in zip(like, saved, strict=True)]

    def how_to_resume(self) -> str:
        """For the message of an interrupted run."""
        return f"saved; go on with: noiseproof fit --out {self.path} --resume"

"""A run's folder: config.json, history.jsonl, checkpoint.safetensors, and what the result adds."""

from __future__ import annotations

import json
import re
import shlex
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from noiseproof import files
from noiseproof.data import LabeledData
from noiseproof.data.sources import Rows
from noiseproof.errors import InputError
from noiseproof.method import Method, Run
from noiseproof.runs import checkpoint
from noiseproof.training import distributed

CHECKPOINT = "checkpoint.safetensors"
INITIAL = "initial.safetensors"
CONFIG = "config.json"
HISTORY = "history.jsonl"
RESULTS = (
    "summary.json", "model.safetensors", "labels.parquet", "curves.png", "report.html",
    "backbone.safetensors", "embedding.png", "neighbours.png",
)  # fmt: skip


def describe_call(
    model: str | nn.Module | Callable[[], nn.Module], run: Run, method: Method, **settings: Any
) -> dict[str, Any]:
    """What determines a run, as JSON: two runs of equal descriptions are the same run."""
    shapes = [(name, tuple(parameter.shape)) for name, parameter in run.models.named_parameters()]
    return {
        "model": type(model).__name__ if isinstance(model, nn.Module) else describe(model),
        "weights": sum(parameter.numel() for parameter in run.models.parameters()),
        "shapes_crc": zlib.crc32(repr(shapes).encode()),
        "method": method.describe(),
        "data": describe(run.data),
        **{key: describe(value) for key, value in settings.items()},
    }


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


class RunDir:
    """The folder of a run, and when it is due a checkpoint. Of several processes only the main one writes."""

    def __init__(self, path: Path, seconds: float = 60.0, steps: int | None = None, *, verb: str = "fit") -> None:
        if seconds <= 0 or (steps is not None and steps < 1):
            raise InputError(f"checkpoints need seconds above 0 and steps of 1 or more, got {seconds} and {steps}")
        self.path, self.seconds, self.steps, self.verb = path, seconds, steps, verb
        self._saved = time.monotonic()
        self._commanded = False  # whether a command line began the run
        self.writes = distributed.is_main()

    @classmethod
    def at(
        cls, out: str | Path | None, resume: bool, seconds: float, steps: int | None, *, verb: str = "fit"
    ) -> RunDir | None:
        """The folder `out`; None where nothing is to be written.

        Raises:
            InputError: there is no folder to resume from, or the times are out of range.
        """
        if out is not None:
            return cls(Path(out), seconds, steps, verb=verb)
        if resume:
            raise InputError("resume needs the run directory to continue; pass out=... (--out)")
        return None

    def ensure_free(self) -> None:
        """Raise an InputError if there is a run here already."""
        if not self.writes:
            return
        if self.path.exists() and not self.path.is_dir():
            raise InputError(f"{self.path} is a file; choose a folder for --out")
        if (self.path / CHECKPOINT).exists():
            raise InputError(f"{self.path} already holds a run; pass --resume to continue it or choose another --out")
        taken = [name for name in (CONFIG, HISTORY, *RESULTS) if (self.path / name).exists()]
        if taken and not self._is_unborn(taken):
            raise InputError(f"{self.path} has a {taken[0]} of its own already; choose another --out")

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
        """Begin a new run here."""
        from noiseproof import __version__

        self.ensure_free()
        self._commanded = "command" in (notes or {})
        if not self.writes:
            return
        config = {"noiseproof": __version__, "torch": torch.__version__, "call": call, "notes": notes or {}}
        files.write_text(self.path / CONFIG, json.dumps(config, indent=2) + "\n")
        files.write_text(self.path / HISTORY, "")

    def resume(self, call: dict[str, Any]) -> dict[str, Any]:
        """The saved state of the run here, which must have been begun by the same `call`."""
        config = self.config()
        saved, self._commanded = config["call"], "command" in config["notes"]
        state = checkpoint.load(self.path / CHECKPOINT)
        if "batches_done" not in state:
            raise InputError(
                f"{self.path / CHECKPOINT} is not the checkpoint of a run; start afresh with another --out"
            )
        for key in call:
            if saved.get(key) != call[key]:
                raise InputError(
                    f"{self.path} was begun with {key}={saved.get(key)!r}, this call has {call[key]!r}; "
                    f"resume with the same {key} or choose another --out"
                )
        if self.writes:
            for leftover in self.path.glob(".*.tmp"):  # of a save that was killed
                leftover.unlink()
            lines = "".join(json.dumps(record) + "\n" for record in state["history"])
            files.write_text(self.path / HISTORY, lines)  # epochs after the checkpoint will be run again
        self._saved = time.monotonic()
        return state

    def config(self) -> dict[str, Any]:
        """What the run was begun with.

        Raises:
            InputError: there is no run here, or its config.json is damaged.
        """
        path = self.path / CONFIG
        if not path.is_file():
            raise InputError(f"there is no run in {self.path}; start it without --resume")
        try:
            config = json.loads(path.read_text(encoding="utf-8"))
            return {"call": dict(config["call"]), "notes": dict(config["notes"])}
        except (ValueError, KeyError, TypeError):
            raise InputError(f"{path} is damaged; start afresh with another --out") from None

    def is_due(self, step: int) -> bool:
        """Is it time for a checkpoint?"""
        return (self.steps is not None and step % self.steps == 0) or time.monotonic() - self._saved >= self.seconds

    def save(self, state: dict[str, Any]) -> None:
        """Replace the checkpoint."""
        if self.writes:
            checkpoint.save(self.path / CHECKPOINT, state)
        distributed.wait()
        self._saved = time.monotonic()

    def log(self, record: dict[str, Any]) -> None:
        """Add a line to the history."""
        if not self.writes:
            return
        try:
            with open(self.path / HISTORY, "a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")
        except OSError as error:
            raise InputError(
                f"cannot write {self.path / HISTORY}: {error.strerror}; free space, then --resume"
            ) from error

    def save_initial(self, parameters: list[Tensor], buffers: dict[str, Tensor]) -> None:
        """Keep the weights a run began with: distances are measured from them, also after a resume."""
        if self.writes:
            checkpoint.save(self.path / INITIAL, {"parameters": parameters, "buffers": buffers})

    def load_initial(self, like: list[Tensor]) -> list[Tensor]:
        """The weights the run began with, laid out like the given ones."""
        saved = checkpoint.load(self.path / INITIAL)["parameters"]
        return [torch.empty_like(p).copy_(value) for p, value in zip(like, saved, strict=True)]

    def how_to_resume(self) -> str:
        """For the message of an interrupted run."""
        if not self._commanded:
            return "saved; go on by the same call with resume=True"
        world = distributed.world()
        start = "noiseproof" if world == 1 else f"torchrun --nproc-per-node {world} -m noiseproof"
        return f"saved; go on with: {start} {self.verb} --out {shlex.quote(str(self.path))} --resume"

"""A run's folder: config.json, history.jsonl, the last two checkpoints, and what the result adds.

While a run writes to it, the folder is locked; the lock is the operating system's and ends with the process.
"""

from __future__ import annotations

import json
import re
import warnings
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from noiseproof import distributed, files
from noiseproof.data import LabeledData
from noiseproof.data.labeled import is_table
from noiseproof.data.sources import Rows
from noiseproof.errors import InputError
from noiseproof.runs import checkpoint, structure
from noiseproof.runs.structure import Damaged

if TYPE_CHECKING:
    from filelock import BaseFileLock

CHECKPOINT = "checkpoint.safetensors"
PREVIOUS = "checkpoint-previous.safetensors"  # the one before it, while the run goes on
INITIAL = "initial.safetensors"
CONFIG = "config.json"
HISTORY = "history.jsonl"
LOCK = ".lock"
RESULTS = (
    "summary.json", "model.safetensors", "labels.parquet", "evidence.npz", "curves.png", "report.html",
    "backbone.safetensors", "embedding.png", "neighbours.png",
)  # fmt: skip
Restore = Callable[[Path, dict[str, Any], Sequence[dict[str, Tensor]]], None]
_SCALAR = str | int | float | bool | None
_CONFIG = {"call": {...: object}, "command": (None, {...: _SCALAR}), "notes": {...: object}}


def describe(value: Any) -> Any:
    """A value as JSON that is the same in every process: no memory addresses."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, LabeledData):
        told = {
            "examples": len(value),
            "input_shape": list(value.input_shape),
            "classes": value.num_classes,
            "names_crc": zlib.crc32(repr(value.class_names).encode()),
            "labels_crc": zlib.crc32(value.labels.numpy().tobytes()),
            "inputs_crc": _inputs_crc(value),
        }
        if value.weights is not None:
            told["weights_crc"] = zlib.crc32(value.weights.numpy().tobytes())
        return told
    if isinstance(value, list | tuple):
        return [describe(one) for one in value]
    return getattr(value, "__qualname__", None) or re.sub(r" at 0x[0-9a-f]+", "", repr(value))


def _inputs_crc(data: LabeledData) -> int:
    """A checksum of the inputs: of all that are in memory, of 64 where each would have to be decoded."""
    base = data.inputs.base if isinstance(data.inputs, Rows) else data.inputs
    n = len(data)
    rows = (
        torch.arange(n) if isinstance(base, Tensor) or is_table(base) else torch.linspace(0, n - 1, min(n, 64)).long()
    )
    crc = 0
    for block in rows.split(4096):
        crc = zlib.crc32(data.take(block).contiguous().numpy().tobytes(), crc)
    return crc


class Parts(Sequence[dict[str, Tensor]]):
    """What processes have written beside a checkpoint, each its part; read when it is asked for."""

    def __init__(self, paths: list[Path]) -> None:
        self.paths = paths

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, i: Any) -> Any:
        return checkpoint.load(self.paths[i])


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
        self._lock: BaseFileLock | None = None
        self.lengthened = False  # whether it was resumed with more epochs
        self._spoilt = False  # whether the newest checkpoint is damaged
        self._steps: list[int] = []  # of the last two checkpoints

    def __enter__(self) -> RunFolder:
        """While entered, what `create` or `resume` locks stays so; after a whole run one checkpoint is left."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and self.writes and (self.path / CHECKPOINT).exists():
            (self.path / PREVIOUS).unlink(missing_ok=True)
        self.unlock()

    def lock(self) -> None:
        """Let no other process write here, until `unlock` or the end of this process, however it comes.

        Raises:
            InputError: another one is writing.
        """
        from filelock import FileLock, Timeout

        if not self.writes:
            return
        lock = FileLock(self.path / LOCK)
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock.acquire(timeout=0)
        except Timeout:
            raise InputError(
                f"{self.path} is in use by a run that has not ended; wait for it, stop it, or choose another folder"
            ) from None
        except OSError:  # no locks on this file system; or no writing, of which the first file will tell
            return
        self._lock = lock

    def unlock(self) -> None:
        """Let others write here."""
        if self._lock is not None:
            with suppress(OSError):  # Windows removes no open file
                (self.path / LOCK).unlink()
            self._lock.release()
            self._lock = None

    def ensure_free(self) -> None:
        """Raise an InputError if there is a run here already."""
        if not self.writes:
            return
        if self.path.exists() and not self.path.is_dir():
            raise InputError(f"{self.path} is a file; choose a folder for the run")
        if self.holds_run():
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

        if not self.writes:
            return
        self.lock()
        self.ensure_free()
        versions = {"noiseproof": __version__, "torch": torch.__version__}
        config = versions | {"command": self.command, "call": call, "notes": notes or {}}
        self._write_config(config)
        files.write_text(self.path / HISTORY, "")

    def _write_config(self, config: dict[str, Any]) -> None:
        files.write_text(self.path / CONFIG, json.dumps(config, indent=2) + "\n")

    def holds_run(self) -> bool:
        """Whether there is a run here to go on with."""
        return any((self.path / name).exists() for name in (CHECKPOINT, PREVIOUS))

    def resume(self, call: dict[str, Any], restore: Restore, *, planned: str | None = None) -> None:
        """Take up the run here, which must have been begun by the same `call`, but for more epochs.

        Args:
            planned: what goes by the number of epochs, so that there can be no more of them; None: nothing.
            restore: puts the state that a file holds, with the parts beside it, in place, or raises an InputError.
                Should the newest checkpoint be damaged, it is called with the one before.
        """
        self.lock()
        saved = self.config()["call"]
        self.lengthened = longer = type(epochs := saved.get("epochs")) is int and epochs < call.get("epochs", 0)
        for key in call:
            if saved.get(key) != call[key] and not (longer and key == "epochs"):
                raise InputError(
                    f"{self.path} was begun with {key}={saved.get(key)!r}, this call has {call[key]!r}; "
                    f"resume with the same {key} or choose another folder"
                )
        if longer and planned is not None:
            raise InputError(
                f"{self.path} was planned for {epochs} epochs, and {planned} goes by that number; "
                f"begin anew in another folder for {call['epochs']}"
            )
        newest, previous = self.path / CHECKPOINT, self.path / PREVIOUS
        if not newest.exists() and previous.exists():  # killed while the newest was put in its place
            newest = previous
        try:
            state = self._restored(newest, restore)
        except Damaged as damage:
            if newest == previous or not previous.exists():
                raise
            state, self._spoilt = self._restored(previous, restore), True
            warnings.warn(f"{damage.found}; going on from the one before it, after step {state['step']}", stacklevel=2)
        if self.writes:
            for leftover in self.path.glob(".*.tmp"):  # of a save that was killed
                leftover.unlink()
            self.write_history(state["history"])  # epochs after the checkpoint will be run again
            if longer:
                config = files.parse_json((self.path / CONFIG).read_bytes())
                command = config["command"] and config["command"] | {"epochs": call["epochs"]}
                self._write_config(config | {"command": command, "call": call})

    def _restored(self, path: Path, restore: Restore) -> dict[str, Any]:
        state = checkpoint.load(path)
        first = {key: state[key] for key in ("parts", "step") if key in state}
        structure.check(path, first, {"parts": range(2**16), "step": range(2**53)})
        count, step = state["parts"], state["step"]
        restore(path, state, Parts([self._part(step, one, count) for one in range(count)]))
        self._steps = [step]
        return state

    def _part(self, step: int, one: int, count: int) -> Path:
        """Where a process keeps its part of what is remembered after a step."""
        return self.path / f"rows-{step}-{one}-of-{count}.safetensors"

    def config(self) -> dict[str, Any]:
        """What the run was begun with: its `call`, the `command` if one began it, and `notes`.

        Raises:
            InputError: there is no run here, or its config.json is damaged.
        """
        path = self.path / CONFIG
        if not path.is_file():
            raise InputError(f"there is no run in {self.path}; start it afresh, or name the folder of one")
        try:
            config = files.parse_json(path.read_bytes())
            parts = {key: config[key] for key in _CONFIG}
        except (ValueError, KeyError, TypeError):
            parts = {}
        if structure.mismatch(parts, _CONFIG) is not None:
            raise InputError(f"{path} is damaged; start afresh in another folder")
        return parts

    def save(self, state: dict[str, Any], part: dict[str, Tensor]) -> None:
        """Replace the checkpoint, and keep it as the one before; each process that has a part of it writes that first.

        A checkpoint is there once all of its parts are: it is the last file to be written, and names them by its step.
        """
        if part:
            checkpoint.save(self._part(state["step"], distributed.rank(), distributed.world()), part)
            distributed.wait()
        if not self.writes:
            return
        newest = self.path / CHECKPOINT
        if self._spoilt:  # it must not take the place of a good one
            newest.unlink()
            self._spoilt = False
        checkpoint.save(newest, state, keep=self.path / PREVIOUS)
        self._steps = [*self._steps, state["step"]][-2:]
        for old in self.path.glob("rows-*.safetensors"):
            if int(old.name.split("-")[1]) not in self._steps:
                old.unlink()

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

    def save_initial(self, parameters: list[Tensor], models: nn.Module, normalize: nn.Module) -> None:
        """Keep what a run began with: distances are measured from its weights, also after a resume."""
        if self.writes:
            buffers, figures = (dict(one.named_buffers()) for one in (models, normalize))
            checkpoint.save(self.path / INITIAL, {"parameters": parameters, "buffers": buffers, "normalize": figures})

    def load_normalization(self, channels: int) -> tuple[Tensor, Tensor] | None:
        """The mean and spread (C,) of the inputs that the run began with; None: they are not there."""
        path = self.path / INITIAL
        figures = checkpoint.load(path).get("normalize") if path.is_file() else None
        each = torch.empty(channels)
        if figures is None or structure.mismatch(figures, {"mean": each, "std": each}) is not None:
            return None
        return figures["mean"], figures["std"]

    def load_initial(self, like: list[Tensor]) -> list[Tensor]:
        """The weights the run began with, laid out like the given ones."""
        path = self.path / INITIAL
        state = checkpoint.load(path)
        structure.check(path, state.get("parameters"), like)
        return [torch.empty_like(p).copy_(value) for p, value in zip(like, state["parameters"], strict=True)]

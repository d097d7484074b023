"""Functions that are told of each epoch: the caller's own, and the one that writes for TensorBoard.

def log(record):  # a dict, as a line of history.jsonl
    print(record["epoch"], record["val_accuracy"])
    return record["val_accuracy"] > 0.95  # True ends the run after this epoch
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from noiseproof.errors import InputError, reason

Callback: TypeAlias = Callable[[dict[str, Any]], Any]

TENSORBOARD = "tensorboard"  # the name of the tracker, and of its folder within the run's
_SETS = ("train", "val", "test")


class Callbacks:
    """The caller's functions, and the tracker if one is asked for, which writes below the run's `folder`.

    Raises:
        InputError: it is not installed, or there is no folder.
    """

    def __init__(self, functions: Callback | Sequence[Callback], track: str | None, folder: Path | None) -> None:
        self.functions = [functions] if callable(functions) else list(functions)
        if track is not None:
            if folder is None:
                raise InputError(f"track={track!r} writes to the run's folder; pass out=... to name one")
            self.functions.insert(0, TensorBoard(folder / TENSORBOARD))

    def tell(self, record: dict[str, Any], hint: str) -> bool:
        """Call each with a copy of the epoch's record; does one of them ask to end the run?

        Raises:
            InputError: one fails; `hint` says how to go on.
        """
        asked = False
        for one in self.functions:
            try:
                answer = one(dict(record))
                asked |= isinstance(answer, bool | np.bool_) and bool(answer)
            except Exception as error:  # whatever a stranger's function may raise
                name = getattr(one, "__name__", type(one).__name__)
                told = f"{type(error).__name__}: {reason(error)}"
                raise InputError(
                    f"the callback {name} failed after epoch {record['epoch']} ({told}); mend it, then {hint}"
                ) from error
        return asked

    def close(self) -> None:
        """After the last epoch, or an interruption."""
        for one in self.functions:
            if isinstance(one, TensorBoard):
                one.close()


class TensorBoard:
    """A callback that writes the figures of each epoch to a folder that TensorBoard shows.

    What an earlier start of the run wrote of the same epochs is replaced.

    Raises:
        InputError: tensorboard is not installed.
    """

    def __init__(self, folder: str | Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise InputError("tensorboard is not installed; pip install 'noiseproof[track]'") from error
        self.folder, self._make = Path(folder), SummaryWriter
        self._writer: Any = None

    def __call__(self, record: dict[str, Any]) -> None:
        if self._writer is None:
            self._writer = self._make(str(self.folder), purge_step=record["epoch"])
        for name, value in record.items():
            about, _, what = name.partition("_")  # train_loss, val_loss and test_loss share a plot
            tag = f"{what}/{about}" if about in _SETS and what else name
            if name != "epoch" and value is not None:
                self._writer.add_scalar(tag, value, record["epoch"])
        self._writer.flush()

    def close(self) -> None:
        """After the last epoch, or an interruption."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

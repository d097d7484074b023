"""What a loop that is not ours must do for a loss: tell it positions and epochs, and step it."""

from __future__ import annotations

import inspect
import sys
from typing import Any

from torch import Tensor, nn

from noiseproof.errors import InputError, reason, shown

_REMEDY = "wrap the training set: nf.indexed(dataset)"


class Carrier:
    """A loss of ours (or with its signature), called with what it asks for by name: `index`, `epoch`."""

    def __init__(self, criterion: nn.Module) -> None:
        if not isinstance(criterion, nn.Module):
            raise InputError(f"criterion must be a loss, e.g. nf.SOPLoss(len(train), 10), got {shown(criterion)}")
        self.criterion = criterion
        self.asks = set(inspect.signature(criterion.forward).parameters)
        self.called = False  # since the last step
        if hasattr(criterion, "accumulate"):
            criterion.accumulate = sys.maxsize  # type: ignore[assignment]  # step() is called when the optimizer's is

    def loss(self, logits: Tensor, label: Tensor, index: Tensor | None, epoch: float) -> Tensor:
        """The loss of a training batch."""
        if "index" in self.asks and index is None:
            raise InputError(f"the batch carries no positions, which {self._name} needs; {_REMEDY}")
        self.called = True
        known = {"index": index, "epoch": epoch}
        return self.criterion(logits, label, **{key: value for key, value in known.items() if key in self.asks})

    def step(self, lr: float) -> None:
        """After the optimizer's step, which was of rate `lr`."""
        if self.called and hasattr(self.criterion, "step"):
            self.criterion.step(lr)  # type: ignore[operator]
        self.called = False

    def load(self, state: dict[str, Any], source: str) -> None:
        """The state of the loss, from a checkpoint."""
        try:
            self.criterion.load_state_dict(state)
        except RuntimeError as error:
            raise InputError(
                f"{source} does not fit {self._name} ({reason(error)}); build the loss as it was, for as many examples"
            ) from error

    def refuse_processes(self, count: int) -> None:
        if count > 1 and "index" in self.asks:
            raise InputError(
                f"{self._name} remembers each example in one process, got {count}; train in one, or use a loss without "
                "an index, e.g. nf.GCELoss()"
            )

    @property
    def _name(self) -> str:
        return type(self.criterion).__name__

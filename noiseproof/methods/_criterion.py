"""What a criterion of `early_stop` is, and two ways to pick an epoch by a score; the criteria are in stopping.py."""

from __future__ import annotations

import inspect
import math
from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from torch import Tensor, nn

from noiseproof.errors import InputError
from noiseproof.method import Run


class Criterion(nn.Module, ABC):
    """A rule for when to stop. Its options are the arguments of `__init__`; what it remembers is in buffers."""

    name: ClassVar[str]
    lag: int = 0  # after epoch t it judges epoch t − lag
    reads_predictions: ClassVar[bool] = False  # on training examples
    seen: float = math.nan  # the last score, of a criterion that has one

    def __init__(self) -> None:
        super().__init__()

    def memory(self, run: Run) -> dict[str, Tensor]:
        """What is remembered, by the name of its buffer, as it is before the first epoch."""
        return {}

    def start(self, run: Run) -> None:
        """Allocate what is remembered.

        Raises:
            InputError: the run does not measure what the criterion needs.
        """
        if self.reads_predictions and not run.predicts:
            raise InputError(
                f"early_stop by {self.name} reads predictions on training examples, and eval_examples=0 makes none; "
                "pass eval_examples=1000 (--eval-examples 1000) or criterion='val_loss'"
            )
        for name, initial in self.memory(run).items():
            self.register_buffer(name, initial)

    @abstractmethod
    def observe(self, run: Run) -> tuple[bool, bool]:
        """After an epoch and its evaluation: is the epoch judged the one to return to so far, and will no later be?"""

    def judge(self, run: Run, best: int, patience: int) -> tuple[int, bool]:
        """The epoch to return to, given the best so far (0: none), and whether to stop."""
        better, over = self.observe(run)
        judged = run.epoch - self.lag
        best = judged if better else best
        return best, over or judged - max(best, 1) >= patience  # the first epoch may have no score yet

    def figures(self) -> dict[str, float]:
        """What it adds to the record of the epoch it has just seen."""
        return {} if math.isnan(self.seen) else {"stop_score": self.seen}

    def describe(self) -> str:
        """The criterion as text that `build` reads back, e.g. `distance(radius=0.8, relative=True)`."""
        options = [f"{key}={getattr(self, key)!r}" for key in inspect.signature(type(self)).parameters]
        return f"{self.name}({', '.join(options)})" if options else self.name


class Peak(Criterion):
    """The epoch of the highest score, the first of equals."""

    best: Tensor

    def memory(self, run: Run) -> dict[str, Tensor]:
        return {"best": torch.tensor(math.nan)}

    def observe(self, run: Run) -> tuple[bool, bool]:
        self.seen = self.score(run)
        value = self.best.new_tensor(self.seen)
        better = bool(value > self.best) or bool(self.best.isnan() & ~value.isnan())
        if better:
            self.best.copy_(value)
        return better, False

    @abstractmethod
    def score(self, run: Run) -> float:
        """Higher is better; NaN where it cannot be told."""


class Smoothed(Peak):
    """The highest mean of three epochs' values, judged when the epoch after is known."""

    lag = 1
    recent: Tensor

    def memory(self, run: Run) -> dict[str, Tensor]:
        recent = torch.full((3,), math.nan, dtype=torch.float64)  # double, so that ties stay ties
        return super().memory(run) | {"recent": recent}

    def score(self, run: Run) -> float:
        self.recent.copy_(torch.cat([self.recent[1:], self.recent.new_tensor([self.value(run)])]))
        return self.recent.nanmean().item() if run.epoch > self.lag else math.nan

    @abstractmethod
    def value(self, run: Run) -> float:
        """Of this epoch alone."""

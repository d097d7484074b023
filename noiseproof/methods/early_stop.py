"""Early stopping on a validation split that is as noisy as the training set: stop before the wrong labels are fitted.

Mingchen Li, Mahdi Soltanolkotabi and Samet Oymak, "Gradient Descent with Early Stopping is Provably Robust to Label
Noise for Overparameterized Neural Networks", AISTATS 2020, say why it works; a held-out split says when.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from noiseproof.errors import InputError, unknown
from noiseproof.method import Method, Run, Wrapper
from noiseproof.methods import _check


class Snapshot(nn.Module):
    """A copy of another module's parameters and buffers, itself held in buffers so that a checkpoint has it."""

    def allocate(self, source: nn.Module) -> None:
        """Make room, with the present values; what an earlier source left goes."""
        self._buffers.clear()
        for key, value in _tensors(source).items():
            self.register_buffer(_buffer_name(key), value.clone())

    def keep(self, source: nn.Module) -> None:
        """Copy from `source`."""
        for key, value in _tensors(source).items():
            self.get_buffer(_buffer_name(key)).copy_(value)

    def restore(self, source: nn.Module) -> None:
        """Copy back into `source`."""
        for key, value in _tensors(source).items():
            value.copy_(self.get_buffer(_buffer_name(key)))


def _tensors(source: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers by key, detached and sharing memory with `source`."""
    return {key: value for key, value in source.state_dict().items() if isinstance(value, Tensor)}


def _buffer_name(key: str) -> str:
    """A state_dict key as a path: a buffer's name must not have dots. Distinct keys stay distinct."""
    return "/" + key.replace("/", "//").replace(".", "/")


class EarlyStop(Wrapper):
    """Stop when the validation split no longer improves, and go back to the weights that were best on it.

    Best is the epoch of highest `metric` (lowest, if it is a loss); the first of equals. The models and the inner
    method's own state return to it together, so predictions and beliefs speak of the same moment.

    Differs from the paper: it stops after a number of iterations that its theory gives; this measures instead.

    Args:
        inner: the method to stop.
        patience: epochs without improvement before stopping, at least 1.
        metric: a key of the history, e.g. "val_accuracy" or "val_loss".

    Raises:
        InputError: an argument outside its range; after the first epoch, if the history has no such metric.
    """

    name = "early_stop"
    paper = "Li et al. 2020"
    needs = "validation split"

    best_epoch: Tensor
    best_value: Tensor

    def __init__(self, inner: Method, *, patience: int = 10, metric: str = "val_accuracy") -> None:
        if not isinstance(inner, Method):
            raise InputError(f"early_stop wraps a method, got {inner!r}; write e.g. early_stop(elr)")
        super().__init__(inner)
        self.patience = _check.integer("patience", patience, 1)
        if not isinstance(metric, str) or not metric or metric.startswith("test"):
            raise InputError(f"metric must name a figure of the history, and not of the test set, got {metric!r}")
        self.metric = metric
        self.best_models = Snapshot()
        self.best_inner = Snapshot()

    def start(self, run: Run) -> None:
        if self.metric.startswith("val") and run.val is None:
            raise InputError("early_stop needs a validation split: pass val=... or --val 0.1")
        super().start(run)
        self.best_models.allocate(run.models)
        self.best_inner.allocate(self.inner)
        self.register_buffer("best_epoch", torch.zeros((), dtype=torch.int64))  # 0: none yet
        self.register_buffer("best_value", torch.tensor(float("nan")))

    def stop(self, run: Run) -> bool:
        inner_stops = self.inner.stop(run)
        value = self.best_value.new_tensor(self._value(run))
        better = value < self.best_value if self.metric.endswith("loss") else value > self.best_value
        if not value.isnan() and (better or self.best_value.isnan()):
            self.best_epoch.fill_(run.epoch)
            self.best_value.copy_(value)
            self.best_models.keep(run.models)
            self.best_inner.keep(self.inner)
        return inner_stops or run.epoch - int(self.best_epoch) >= self.patience

    def finish(self, run: Run) -> None:
        if self.best_epoch > 0:
            self.best_models.restore(run.models)
            self.best_inner.restore(self.inner)
        super().finish(run)  # last: the inner method finishes as if the run had ended at the chosen epoch

    def _value(self, run: Run) -> float:
        record = run.history[-1]
        if record.get(self.metric) is not None:
            return float(record[self.metric])
        raise unknown("metric", self.metric, record)

"""Early stopping without clean labels: stop before the wrong labels are fitted.

Mingchen Li, Mahdi Soltanolkotabi and Samet Oymak, "Gradient Descent with Early Stopping is Provably Robust to Label
Noise for Overparameterized Neural Networks", AISTATS 2020, say why it works; a criterion (stopping.py) says when.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from noiseproof import checks
from noiseproof.method import Method, Run, Wrapper
from noiseproof.methods import stopping
from noiseproof.methods._snapshot import Snapshots, tensors_of


class EarlyStop(Wrapper):
    """Stop when a criterion says so, and go back to the weights of the epoch it chose.

    The models and the inner method's own state go back together, so predictions and beliefs speak of the same moment.

    Differs from the paper: it stops after a number of iterations that its theory gives (`criterion="theory"`); the
    other criteria measure instead.

    Args:
        inner: the method to stop.
        criterion: "agreement", "val_accuracy", "val_loss", "changes", "mixture", "distance(0.8)", "knee" or "theory";
            see docs/methods/early_stop.md.
        patience: epochs without a better one before stopping, at least 1. `distance`, `knee` and `theory` do not wait.

    Raises:
        InputError: an argument outside its range; from `start`, a run that does not measure what the criterion needs;
            after the first epoch, a radius that is left already.
    """

    name = "early_stop"
    paper = "Li et al. 2020"

    best_epoch: Tensor

    def __init__(self, inner: Method, *, criterion: str | stopping.Criterion = "agreement", patience: int = 5) -> None:
        super().__init__(inner)
        self.rule = stopping.build(criterion)
        self.criterion = self.rule.describe()
        self.patience = checks.integer("patience", patience, 1)

    def start(self, run: Run) -> None:
        super().start(run)
        self.rule.start(run)
        self.snapshots = Snapshots(self._tensors(run), self.rule.lag + 1)
        self.register_buffer("best_epoch", torch.zeros((), dtype=torch.int64))  # 0: none yet

    def stop(self, run: Run) -> bool:
        inner_stops = self.inner.stop(run)
        best, over = self.rule.judge(run, int(self.best_epoch), self.patience)
        self.best_epoch.fill_(best)
        wanted = {best, *range(run.epoch - self.rule.lag + 1, run.epoch + 1)} - {0}  # and those yet to be judged
        if run.epoch in wanted:
            self.snapshots.keep(run.epoch, self._tensors(run), wanted)
        return inner_stops or over

    def figures(self, run: Run) -> dict[str, float]:
        return super().figures(run) | self.rule.figures()

    def finish(self, run: Run) -> int | None:
        best = int(self.best_epoch) or None
        if best is not None:
            self.snapshots.restore(best, self._tensors(run))
        inner = super().finish(run)  # last: the inner method finishes as if the run had ended at the chosen epoch
        return inner or best

    def _tensors(self, run: Run) -> dict[str, Tensor]:
        """What goes back together."""
        return tensors_of(nn.ModuleDict({"models": run.models, "inner": self.inner}))

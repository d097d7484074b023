"""T-revision: weigh examples by a transition matrix, and learn what to add to it.

Xiaobo Xia, Tongliang Liu, Nannan Wang, Bo Han, Chen Gong, Gang Niu and Masashi Sugiyama, "Are Anchor Points Really
Indispensable in Label-Noise Learning?", NeurIPS 2019. With the network's probabilities g and a transition T̂ estimated
from the examples that look most like anchors, the risk is reweighted by importance,

    R(T) = 1/n Σ_i g_y(x_i) / (Tᵀ g)_y(x_i) · (−log g_y(x_i)),   y the noisy label of x_i

minimised first with T = T̂, and then with T = T̂ + ΔT, over the slack ΔT, too. Each of the three trainings ends
with its best epoch by held-out noisy labels, and the next one goes on from there.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from noiseproof import checks
from noiseproof.method import Run, Selection
from noiseproof.methods import _warmup
from noiseproof.methods._snapshot import Snapshot, tensors_of
from noiseproof.methods.correction import Correction

_REVISION = 0.5  # of the epochs after the warm-up, before ΔT is learned: the authors' 200 and 200
_FLOOR = 1e-6  # smallest entry of a revised matrix


def importance(logits: Tensor, label: Tensor, transition: Tensor) -> Tensor:
    """g_y / (Tᵀ g)_y of each example: logits (B, K), label (B,), T (K, K) to (B,)."""
    g = logits.softmax(dim=1)  # (B, K)
    noisy = g @ transition.to(g.dtype)  # (B, K) Tᵀ g
    return (g / noisy.clamp_min(1e-30)).gather(1, label[:, None]).squeeze(1)


def reweighted(logits: Tensor, label: Tensor, transition: Tensor) -> Tensor:
    """Importance times cross-entropy of each example: (B, K), (B,), (K, K) to (B,).

    The gradient in the logits is that of the cross-entropy, in T that of the importance.
    """
    return importance(logits.detach(), label, transition) * F.cross_entropy(logits, label, reduction="none")


def revised(transition: Tensor, slack: Tensor) -> Tensor:
    """T̂ + ΔT (K, K) as a transition: entries of at least 1e-6, rows that sum to 1."""
    matrix = (transition + slack).clamp_min(_FLOOR)
    return matrix / matrix.sum(dim=1, keepdim=True)


class TRevision(Correction):
    """Weigh each example by how likely its label is right under a transition matrix that is itself revised in training.

    The reweighted risk of Xia et al. (2019) with T̂ by Patrini et al.'s anchors, then with T̂ + ΔT.

    Differs from the paper: one run in place of three, with one schedule of the learning rate; without held-out examples
    each stage goes on from the last epoch of the one before. T̂ + ΔT is kept a transition matrix: freely, every entry
    would grow, as that lowers all weights. The weights have no gradient in the network: with it, at an ordinary
    learning rate, the network learns to give no label any weight (docs/methods/t_revision.md). ΔT has an SGD of its
    own.
    Differs from the authors' code: there the weights have a gradient in the network while ΔT is learned, by Adam at
    5e-7 for both, but not before.

    Args:
        transition: (K, K) T̂, rows sum to 1; None: estimate it.
        warmup: epochs of cross-entropy before the estimate, at least 1; None: a twentieth of all, at least 5, or fewer
            in a run below 50.
        quantile: in (0, 1]; see `ForwardCorrection`.
        lr: learning rate of ΔT, 0 or above.

    Raises:
        InputError: an argument outside its range, or not a transition matrix.
    """

    name = "t_revision"
    paper = "Xia et al. 2019"
    needs = "nothing; better, held-out examples"

    best_epoch: Tensor
    best_accuracy: Tensor

    def __init__(
        self,
        *,
        transition: Any = None,
        warmup: int | None = None,
        quantile: float | None = None,
        lr: float = 0.01,
    ) -> None:
        super().__init__(transition=transition, warmup=warmup, quantile=quantile)
        self.lr = checks.number("lr", lr, 0)
        self.plans = True  # the slack is learned in the second half of them

    def start(self, run: Run) -> None:
        super().start(run)
        self.slack = nn.Parameter(torch.zeros(run.num_classes, run.num_classes))  # (K, K) ΔT
        first = 0 if self.transition is not None else _warmup.length(self.warmup, run)
        self._revise = math.ceil(first + _REVISION * (run.epochs - first))
        self._stages = {first, self._revise} - {0}  # epochs before which a stage ends
        self.register_buffer("best_epoch", torch.zeros((), dtype=torch.int64))  # of the stage; 0: none yet
        self.register_buffer("best_accuracy", torch.zeros(()))
        self.best = Snapshot(self._tensors(run))

    def _tensors(self, run: Run) -> dict[str, Tensor]:
        """What goes back together."""
        return tensors_of(run.models) | {"slack": self.slack.data}

    def stop(self, run: Run) -> bool:
        if run.val is not None:
            accuracy = float(run.history[-1]["val_accuracy"])
            if not self.best_epoch or accuracy > self.best_accuracy:
                self.best_epoch.fill_(run.epoch)
                self.best_accuracy.fill_(accuracy)
                self.best.keep(self._tensors(run))
        return super().stop(run)

    def before_epoch(self, run: Run) -> Selection | None:
        if run.epoch in self._stages:
            self._go_back(run)
        return super().before_epoch(run)  # the estimate, by the network gone back to

    def finish(self, run: Run) -> int | None:
        return self._go_back(run)

    def _go_back(self, run: Run) -> int | None:
        """Return to the best epoch of the stage, if one is known, and begin to look for that of the next."""
        best = int(self.best_epoch)
        if not best:
            return None
        self.best.restore(self._tensors(run))
        self.best_epoch.zero_()
        return best

    def optimizers(self) -> list[torch.optim.Optimizer]:
        return [torch.optim.SGD([self.slack], lr=self.lr)]

    def corrected(self, run: Run, logits: Tensor, label: Tensor) -> Tensor:
        slack = self.slack if run.epoch >= self._revise else self.slack.detach()
        return reweighted(logits, label, revised(self.matrix, slack))

    def figures(self, run: Run) -> dict[str, float]:
        """The mean probability that a label is right, by the transition."""
        with torch.no_grad():
            return {"kept_share": float(revised(self.matrix, self.slack).diagonal().mean())}

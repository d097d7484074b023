"""Joint optimisation: the labels are learned with the network, as means of its own recent predictions.

Daiki Tanaka, Daiki Ikami, Toshihiko Yamasaki and Kiyoharu Aizawa, "Joint Optimization Framework for Learning with Noisy
Labels", CVPR 2018. With the predictions s_i of a batch, its mean s̄, soft labels y_i and the prior π of the classes

    L   = L_c + α L_p + β L_e
    L_c = 1/n Σ_i KL(y_i ‖ s_i)                classification
    L_p = Σ_k π_k log(π_k / s̄_k)               keeps all labels from becoming one
    L_e = −1/n Σ_i Σ_k s_ik log s_ik           asks for sure predictions, where labels are soft
    y_i ← mean of s_i over the last epochs     once an epoch

and at the end a network trained from the start on the labels found, with L_c alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor

from noiseproof import checks
from noiseproof.method import Batch, Beliefs, Run, Selection
from noiseproof.methods import _warmup
from noiseproof.methods._snapshot import Snapshot, tensors_of
from noiseproof.methods.elr import soft_labels
from noiseproof.methods.semi import prior_loss

_FINAL = 0.375  # of a run for the last training: the authors' 120 of 320 epochs
_FEWEST = 5  # epochs that it is worth


def divergence(logits: Tensor, target: Tensor) -> Tensor:
    """KL(y ‖ s) of each example: logits (B, K), soft labels y (B, K) to (B,)."""
    return F.kl_div(logits.log_softmax(dim=1), target, reduction="none").sum(dim=1)


def entropy(logits: Tensor) -> Tensor:
    """−Σ_k s_k log s_k of each example: (B, K) to (B,)."""
    return -(logits.softmax(dim=1) * logits.log_softmax(dim=1)).sum(dim=1)


@dataclass(kw_only=True, eq=False, repr=False)
class Joint(_warmup.WarmsUp):
    """Replace the labels by means of the network's recent predictions; then train anew on what they became.

    L_c + α L_p + β L_e of Tanaka et al. (2018), and their second training.

    Differs from the paper: labels begin to move after a twentieth of the run, at least 5 epochs, or a tenth of fewer
    than 50, where they do in epoch 70 of 200, before which a high learning rate kept the network from fitting them. The
    second training is the last three eighths of the run (120 of 320 epochs), where that is 5 epochs or more, from the
    initial weights, at the rate that the schedule then has.
    Differs from the authors' code: the prior is the distribution of the labels given, there uniform; L_c and L_p there
    lack the terms that have no gradient.

    Args:
        alpha: of L_p, 0 or above. The paper: 1.2 at 70 % symmetric noise, 0.8 and less at less.
        beta: of L_e, 0 or above. The paper: 0.8 and 0.4.
        memory: epochs whose predictions make a label, at least 1. The paper: 10.
        warmup: epochs before labels move, at least 1; None: a twentieth of all, at least 5, or fewer in a run below 50.

    Raises:
        InputError: an argument outside its range.
    """

    name = "joint"
    paper = "Tanaka et al. 2018"
    plans = True  # the second training is a share of them
    rows = ("past",)

    alpha: float = checks.option(0.8, checks.number, low=0)
    beta: float = checks.option(0.4, checks.number, low=0)
    memory: int = checks.option(10, checks.integer, low=1)
    warmup: int | None = checks.option(None, _warmup.option)
    past: Tensor = field(init=False)
    prior: Tensor = field(init=False)

    def start(self, run: Run) -> None:
        super().start(run)
        self.register_buffer("past", torch.zeros(len(run.data), self.memory, run.num_classes))  # (n, M, K) predictions
        labels = run.data.labels.cpu()
        self.register_buffer("prior", torch.bincount(labels, minlength=run.num_classes) / len(labels))  # (K,) π
        self.initial = Snapshot(tensors_of(run.models))

    def before_epoch(self, run: Run) -> Selection | None:
        if run.epoch == self._last(run):
            self.initial.restore(tensors_of(run.models))
        return None

    def _last(self, run: Run) -> int:
        """The epoch in which the second training begins; none in a short run, or where the labels have not moved."""
        final = int(_FINAL * run.epochs)
        moved = run.epochs - final > self.warm_epochs(run)
        return run.epochs - final if moved and final >= _FEWEST else run.epochs

    def loss(self, run: Run, batch: Batch) -> Tensor:
        logits = checks.single(run.model(batch.views[0]))  # (B, K)
        given = F.one_hot(batch.label, logits.shape[1]).to(logits.dtype)
        target = given
        if run.epoch >= self.warm_epochs(run):
            mean = self.past[batch.row].mean(dim=1).to(logits.dtype)  # (B, K), of completed epochs
            seen = mean.sum(dim=1, keepdim=True)  # (B, 1); 0 where never
            target = torch.where(seen > 0, mean / seen.clamp_min(1e-30), given)
        loss = batch.mean(divergence(logits, target))
        if run.epoch >= self._last(run):
            return loss
        self.past[batch.row, run.epoch % self.memory] = logits.detach().softmax(dim=1).to(self.past.dtype)
        balance = prior_loss(batch.gather(logits), self.prior)
        return loss + self.alpha * balance + self.beta * batch.mean(entropy(logits))

    def beliefs(self, run: Run, predicted: Tensor) -> Beliefs:
        return Beliefs.of(soft_labels(self.past.mean(dim=1)).cpu(), run.data.labels.cpu())

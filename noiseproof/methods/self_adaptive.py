"""Self-adaptive training: labels that move towards the network's own predictions, and weigh as they are sure.

Lang Huang, Chao Zhang and Hongyang Zhang, "Self-Adaptive Training: beyond Empirical Risk Minimization", NeurIPS 2020,
Algorithm 1. From epoch E_s on, with t_i = y_i before:

    t_i ← α t_i + (1 − α) p_i
    w_i = max_j t_ij
    L   = −1/Σ_i w_i · Σ_i w_i Σ_j t_ij log p_ij
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor

from noiseproof import checks
from noiseproof.method import Batch, Beliefs, Run
from noiseproof.methods import _warmup
from noiseproof.methods.elr import soft_labels

_ALPHA, _EPOCHS = 0.9, 200  # the paper's α and run
_LEAST = 0.5  # with less, and six epochs of 240 digits, t confirmed what the network happened to say


def update_target(target: Tensor, label: Tensor, p: Tensor, alpha: float) -> Tensor:
    """t ← α t + (1 − α) p of the touched rows, (B, K), without gradient; a row of zeros is the label's (B,) still."""
    given = F.one_hot(label, p.shape[1]).to(target.dtype)  # (B, K)
    target = torch.where(target.sum(dim=1, keepdim=True) > 0, target, given)
    return alpha * target + (1 - alpha) * p.detach().to(target.dtype)


def memory(epochs: int) -> float:
    """α by which t forgets as much in a run of so many epochs as by the paper's α in the paper's; from ½ to that α."""
    return max(_ALPHA ** max(_EPOCHS / epochs, 1.0), _LEAST)


def self_adaptive_loss(logits: Tensor, target: Tensor) -> Tensor:
    """B · w_i/Σ_j w_j · CE(t_i, p_i) of each example, w_i = max_k t_ik: (B, K), (B, K) to (B,), of mean L."""
    target = target.to(logits.dtype)
    weight = target.amax(dim=1)  # (B,)
    each = -(target * logits.log_softmax(dim=1)).sum(dim=1)  # (B,)
    return each * weight * (len(weight) / weight.sum())


@dataclass(kw_only=True, eq=False, repr=False)
class SelfAdaptive(_warmup.WarmsUp):
    """Cross-entropy at running means of the label and the predictions, weighted by how sure these means are.

    Algorithm 1 of Huang et al. (2020).

    Differs from the paper: E_s is a twentieth of the run, but 5 epochs or a tenth of a run shorter than 50, where it
    has 60 of some 200. Its rate stays high for so long and keeps the network from memorising; in a shorter run the
    labels would be fitted by then. In a run shorter than the paper's 200 epochs t forgets sooner, α = 0.9^(200/epochs)
    down to ½: as much of the label is left at the end.
    Differs from the authors' code: nothing more; a label enters t when its example is first seen after E_s.

    Args:
        alpha: α in [0, 1), the memory of t from one epoch to the next; None: 0.9, the paper's, in 200 epochs or more,
            0.9^(200/epochs), at least 0.5, in fewer.
        warmup: E_s, epochs of cross-entropy, at least 1; None: a twentieth of all, at least 5, or fewer in a run below
            50.

    Raises:
        InputError: an argument outside its range.
    """

    name = "self_adaptive"
    paper = "Huang et al. 2020"
    rows = ("target",)

    alpha: float | None = checks.option(None, checks.optional(checks.number, low=0, high=1, ends="[)"))
    warmup: int | None = checks.option(None, _warmup.option)
    target: Tensor = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.plans = self.plans or self.alpha is None

    def start(self, run: Run) -> None:
        super().start(run)
        self.register_buffer("target", torch.zeros(len(run.data), run.num_classes))  # (n, K); 0: the label still

    def loss(self, run: Run, batch: Batch) -> Tensor:
        logits = checks.single(run.model(batch.views[0]))  # (B, K)
        if run.epoch < self.warm_epochs(run):
            return batch.mean(F.cross_entropy(logits, batch.label, reduction="none"))
        alpha = memory(run.epochs) if self.alpha is None else self.alpha
        target = update_target(self.target[batch.row], batch.label, logits.softmax(dim=1), alpha)  # (B, K)
        self.target[batch.row] = target
        return batch.gathered().mean(self_adaptive_loss(batch.gather(logits), batch.gather(target)))

    def beliefs(self, run: Run, predicted: Tensor) -> Beliefs:
        return Beliefs.of(soft_labels(self.target).cpu(), run.data.labels.cpu())

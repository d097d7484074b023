"""Generalized cross-entropy: between cross-entropy (q → 0) and mean absolute error (q = 1).

Zhilu Zhang and Mert Sabuncu, "Generalized Cross Entropy Loss for Training Deep Neural Networks with Noisy Labels",
NeurIPS 2018.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from noiseproof import checks
from noiseproof.method import Batch, Method, Run


def gce(logits: Tensor, label: Tensor, q: float) -> Tensor:
    """(1 − p_y^q) / q of each example, Eq. (6), for q in (0, 1]: (B, K), (B,) to (B,)."""
    log_p = -F.cross_entropy(logits, label, reduction="none")  # (B,)
    return -torch.expm1(q * log_p) / q  # Eq. (6); expm1 keeps the digits for small q, where it tends to −log p


class GCELoss(nn.Module):
    """Generalized cross-entropy for anybody's loop: (1 − p_y^q) / q.

    Eq. (6) of Zhang and Sabuncu (2018).

    Differs from the paper: the truncated variant is left out; it prunes the examples with p_y ≤ k, which from a random
    start are all of them, so it needs a pretrained network.

    Args:
        q: in (0, 1]; small is close to cross-entropy, 1 is mean absolute error up to a factor 2. The paper takes 0.7.
        reduction: "mean", "sum" or "none".

    Raises:
        InputError: an argument outside its range.
    """

    def __init__(self, *, q: float = 0.7, reduction: str = "mean") -> None:
        super().__init__()
        self.q = checks.number("q", q, 0, 1, ends="(]")
        self.reduction = checks.reduction(reduction)

    def forward(self, logits: Tensor, label: Tensor) -> Tensor:
        """The loss of logits (B, K) at labels (B,), int64 in 0..K-1."""
        logits = checks.logits_and_label(logits, label)
        return checks.reduce(gce(logits, label, self.q), self.reduction)


@dataclass(kw_only=True, eq=False, repr=False)
class GCE(Method):
    """Minimise (1 − p_y^q) / q, which weighs an example by p_y^q: doubtful labels pull less.

    Eq. (6) of Zhang and Sabuncu (2018).

    Differs from the paper: the truncated variant is left out (see `GCELoss`).

    Args:
        q: in (0, 1]; the paper takes 0.7 throughout.

    Raises:
        InputError: q outside its range.
    """

    name = "gce"
    paper = "Zhang & Sabuncu 2018"

    q: float = checks.option(0.7, checks.number, low=0, high=1, ends="(]")

    def loss(self, run: Run, batch: Batch) -> Tensor:
        return batch.mean(gce(checks.single(run.model(batch.views[0])), batch.label, self.q))

"""SOP+: sparse over-parameterization with two regularisers.

Sheng Liu, Zhihui Zhu, Qing Qu and Chong You, "Robust Training under Label Noise by Over-parameterization", ICML 2022,
Appendix A.3. To the loss of sop.py it adds, with a second, strongly augmented view x′ and class shares π:

    λ_C · mean over i of D_KL(f(x_i) ‖ f(x′_i))                consistency
    λ_B · −Σ_k π_k log mean over the batch of f(x_i)_k         class balance
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from noiseproof import checks
from noiseproof.errors import InputError, shown, unknown
from noiseproof.method import Batch, Run
from noiseproof.methods.sop import SparseOverParameterization
from noiseproof.methods.sop_terms import floor

PRIORS = ("labels", "uniform")


def consistency_loss(weak: Tensor, strong: Tensor, *, both: bool) -> Tensor:
    """D_KL(softmax(weak) ‖ softmax(strong)) of each example (A.3): logits (B, K), (B, K) to (B,).

    Args:
        both: let the gradient flow through both views, as the formula says; else only through the strong one.
    """
    target = weak.log_softmax(dim=1) if both else weak.detach().log_softmax(dim=1)
    return F.kl_div(strong.log_softmax(dim=1), target, reduction="none", log_target=True).sum(dim=1)


def balance_loss(p: Tensor, prior: Tensor) -> Tensor:
    """−Σ_k π_k log mean_i p_ik (A.3): p (B, K), π (K,) to (). The constant Σ π log π of the divergence is left out."""
    return -(prior * p.mean(dim=0).clamp_min(floor(p.shape[1])).log()).sum()


@dataclass(kw_only=True, eq=False, repr=False)
class SOPPlus(SparseOverParameterization):
    """SOP with two regularisers: predictions agree over two augmentations, and keep to the shares of the classes.

    Appendix A.3 of Liu et al. (2022). The first view trains as in `SOP`; give the second a strong augmentation:
    `fit(…, augment=("weak", "strong"))`, on the command line `--augment weak,strong`.

    Differs from the paper: with variant="authors", as in the authors' code, the class balance is taken of φ(p + s), not
    of p, and the first view is a fixed target of the second.

    Args:
        consistency: λ_C, at least 0. The paper: 0.9.
        balance: λ_B, at least 0. The paper: 0.1.
        prior: shares of the classes: "labels" as in the (noisy) training labels, "uniform", or K numbers.
        lr_u, lr_v, variant, visits, std, full_u: as of `SOP`.

    Raises:
        InputError: an argument outside its range.
    """

    name = "sop_plus"
    needs = "two views"
    cost = "2×"
    num_views = 2

    consistency: float = checks.option(0.9, checks.number, low=0)
    balance: float = checks.option(0.1, checks.number, low=0)
    prior: str | Sequence[float] = "labels"

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.prior, str):
            if self.prior not in PRIORS:
                raise unknown("prior", self.prior, PRIORS)
            return
        shares = self.prior if isinstance(self.prior, list | tuple) else ()
        if not shares or not all(checks.number("a share of the prior", share, 0) > 0 for share in shares):
            raise InputError(
                f"prior must be 'labels', 'uniform' or a positive share for each class, got {shown(self.prior)}"
            )
        self.prior = list(shares)

    def start(self, run: Run) -> None:
        super().start(run)
        if self.prior == "uniform":
            share = torch.ones(run.num_classes)
        elif self.prior == "labels":
            share = torch.bincount(run.data.labels.cpu(), minlength=run.num_classes).float()
        else:
            share = torch.tensor(self.prior)
            if len(share) != run.num_classes:
                raise InputError(f"prior has {len(share)} shares for {run.num_classes} classes; give one for each")
        self.register_buffer("target", share / share.sum())  # (K,)

    def loss(self, run: Run, batch: Batch) -> Tensor:
        weak, strong = checks.single(run.model(torch.cat(batch.views))).chunk(2)  # (B, K) each
        p = weak.softmax(dim=1)
        paper = self.variant == "paper"
        corrected = p if paper else self.noise.corrected(p, batch.label, batch.row)
        balance = balance_loss(batch.gather(corrected), self.get_buffer("target"))
        each = self.noise(weak, batch.label, batch.row, batch.weight, batch)  # (B,)
        each = each + self.consistency * consistency_loss(weak, strong, both=paper)
        return batch.mean(each + self.balance * balance)

"""i-Mix: contrast mixtures of images, each of which is partly one image and partly another.

Kibok Lee, Yian Zhu, Kihyuk Sohn, Chun-Liang Li, Jinwoo Shin and Honglak Lee, "i-Mix: A Domain-Agnostic Strategy for
Contrastive Representation Learning", ICLR 2021. Every image is a class of its own, with a virtual label v_i, one-hot
over the keys. Notation of moco.py: queries x_i and keys x̃_i of s images, key set B̄ (s + b, d):

    x′_i = λ_i x_i + (1 − λ_i) x_π(i),   v′_i = λ_i v_i + (1 − λ_i) v_π(i),   λ_i ~ Beta(α, α)
    L = −(1/s) Σ_i Σ_k v′_ik log softmax_k(⟨f(x′_i), b̄_k⟩ / τ)
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from noiseproof import checks
from noiseproof.method import Run
from noiseproof.methods.mixup import sample_lam
from noiseproof.pretraining.moco import MomentumContrast, embed, log_sigma


def virtual_loss(logits: Tensor, share: Tensor, permutation: Tensor) -> Tensor:
    """L of logits (s, s + b) at the mixed queries, their shares λ (s,) and partners π (s,)."""
    own = F.cross_entropy(logits, torch.arange(len(logits), device=logits.device), reduction="none")  # (s,)
    return (share * own + (1 - share) * F.cross_entropy(logits, permutation, reduction="none")).mean()


@dataclass(kw_only=True, eq=False, repr=False)
class IMix(MomentumContrast):
    """MoCo on mixtures of queries: a mixture must pick out the keys of both its images, each by its share.

    The MoCo form of Lee et al. (2021), with this batch's other keys as negatives too: what the authors' code calls
    "mocon". Its N-pair and BYOL forms are not here.

    Differs from the paper: nothing in the loss. Shares λ are drawn for each image, and the larger of λ and 1 − λ is its
    own, as in the authors' code. Keys are not mixed.

    Args:
        alpha: α, above 0. The paper: 1 on CIFAR-10, 0.2 on ImageNet, 2 on tables.
        temperature, dictionary_size, ema, groups, symmetric: as of `MomentumContrast`. The paper: 0.2 and 4,096; the
            authors' memory 0.999.

    Raises:
        InputError: an argument outside its range.
    """

    name = "imix"
    paper = "Lee et al. 2021"

    alpha: float = checks.option(1.0, checks.number, low=0, ends="(]")

    def objective(self, run: Run, query: Tensor, key: Tensor, others: list[Tensor], bank: Tensor) -> Tensor:
        drawn = torch.tensor([sample_lam(self.alpha, run.generator) for _ in range(len(query))])  # (s,)
        share = torch.maximum(drawn, 1 - drawn).to(query)
        permutation = torch.randperm(len(query), generator=run.generator).to(query.device)
        wide = share.view(-1, *[1] * (query.ndim - 1))
        logits = log_sigma(embed(run.model, torch.lerp(query[permutation], query, wide)), bank, self.temperature)
        return virtual_loss(logits, share, permutation)

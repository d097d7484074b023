"""SimCLR: tell an image's other view from all views of the other images of the batch.

Ting Chen, Simon Kornblith, Mohammad Norouzi and Geoffrey Hinton, "A Simple Framework for Contrastive Learning of Visual
Representations", ICML 2020. From s images come 2s views with unit vectors z_i; j(i) is the other view of i's image:

    ℓ_i = −log( exp(⟨z_i, z_j(i)⟩ / τ) / Σ_{k ≠ i} exp(⟨z_i, z_k⟩ / τ) ),   L = (1/2s) Σ_i ℓ_i      Eq. (1), NT-Xent

There is one network; the gradient flows through both views and through all negatives.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from noiseproof import checks, distributed
from noiseproof.method import Batch, Method, Run
from noiseproof.pretraining.moco import embed, log_sigma


def nt_xent(views: Tensor, everyone: Tensor, temperature: float) -> Tensor:
    """L of unit vectors (2s, d), the second view of each image s rows after its first, Eq. (1).

    Args:
        views: (2s, d).
        everyone: (m, d) what they are told from: `views` first, then those of the other processes.
        temperature: τ.
    """
    logits = log_sigma(views, everyone, temperature).fill_diagonal_(-math.inf)  # (2s, m), without k = i
    own = torch.arange(len(views), device=views.device)
    return F.cross_entropy(logits, own.roll(len(views) // 2))  # Eq. (1)


@dataclass(kw_only=True, eq=False, repr=False)
class SimCLR(Method):
    """A simple framework for contrastive learning: no dictionary, no second network, but large batches.

    Eq. (1) of Chen et al. (2020).

    Differs from the paper: the projection head has three layers, as that of all methods here, not two; batch norm is
    that of a process's own images. It is trained by whatever optimizer the run has, where the paper has LARS.

    Args:
        temperature: τ, above 0. The paper: 0.5 on CIFAR-10, 0.1 on ImageNet.

    Raises:
        InputError: an argument outside its range.
    """

    name = "simclr"
    paper = "Chen et al. 2020"
    needs = "two views"
    cost = "2×"
    num_views = 2

    temperature: float = checks.option(0.5, checks.number, low=0, ends="(]")

    def loss(self, run: Run, batch: Batch) -> Tensor:
        views = embed(run.model, torch.cat(batch.views))  # (2s, d)
        everyone = distributed.gather_with_gradients(views, [len(views)] * distributed.world())
        return nt_xent(views, distributed.own_first(everyone), self.temperature)

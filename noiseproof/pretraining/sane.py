"""SANE: contrastive pre-training whose labels are refined by the network itself.

Pan Zhou, Caiming Xiong, Xiao-Tong Yuan and Steven Hoi, "A Theory-Driven Self-Labeling Refinement Method for Contrastive
Representation Learning", NeurIPS 2021. Notation of moco.py: queries x_i and keys x̃_i of s images, key set B̄ (s + b, d),
similarity σ. The one-hot labels y_i of MoCo call every other key a negative, also those of the same kind of thing. SANE
asks the key itself what it resembles:

    p_ik = σ^(1/τ′)(x̃_i, b̄_k) / Σ_l σ^(1/τ′)(x̃_i, b̄_l)                                             (s, s + b)
    q_ik = the same over the keys l ≠ i, with q_ii = 0                                                (s, s + b)
    ỹ_i  = (1 − α_i − β_i) y_i + α_i p_i + β_i q_i                                                    Eq. (5)
           α_i = μ max_k p_ik / z_i,  β_i = μ max_k q_ik / z_i,  z_i = 1 + μ max_k p_ik + μ max_k q_ik
    μ    = m₂ − (m₂ − m₁)(cos(πt/T) + 1)/2 at step t of T

and mixes queries with keys (momentum mixup), with a random π and θ ~ Beta(κ, κ):

    x′_i = θ x_i + (1 − θ) x̃_π(i),   y′_i = θ ỹ_i + (1 − θ) ỹ_π(i)                                      Eq. (8)
    L    = (1 − λ) L_c({x_i, y_i}) + λ L_c({x′_i, y′_i})                                              Eq. (9)

No gradient flows into the labels: p and q are made of the momentum network's keys.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from noiseproof import checks
from noiseproof.method import Run
from noiseproof.methods.mixup import sample_lam
from noiseproof.methods.refine import confidence
from noiseproof.pretraining.moco import MomentumContrast, embed, instance_loss, log_sigma

MIXUPS = ("momentum", "vanilla", "none")
SIDES = ("query", "key")


def similarity_labels(bank: Tensor, s: int, temperature: float, sharpness: float) -> tuple[Tensor, Tensor]:
    """p and q (s, s + b): how the first s rows of the key set (s + b, d) resemble all of it, and all but themselves."""
    scores = log_sigma(bank[:s], bank, temperature * sharpness)  # log σ^(1/τ′), (s, s + b)
    p = scores.softmax(dim=1)
    q = scores.fill_diagonal_(-math.inf).softmax(dim=1)
    return p, q


def refine(p: Tensor | None, q: Tensor | None, mu: float) -> Tensor:
    """ỹ (s, s + b), Eq. (5); a label that is None is left out, from the sum and from z."""
    labels = [label for label in (p, q) if label is not None]
    trust = [mu * label.amax(dim=1, keepdim=True) for label in labels]  # (s, 1) each
    z = 1 + torch.stack(trust).sum(dim=0)  # (s, 1)
    refined = torch.stack([weight / z * label for weight, label in zip(trust, labels, strict=True)]).sum(dim=0)
    refined.diagonal().add_(1 / z[:, 0])  # 1 − α − β = 1/z
    return refined


def blend(theta: float, first: Tensor, second: Tensor, permutation: Tensor) -> Tensor:
    """θ first_i + (1 − θ) second_π(i), Eq. (8), of inputs or of labels (s, …)."""
    return torch.lerp(second[permutation], first, theta)


def fit_size(images: Tensor, like: Tensor) -> Tensor:
    """Images (s, C, H, W) in the size of others; what is of that size already, or no image, as it is."""
    if images.shape == like.shape:
        return images
    return F.interpolate(images, size=like.shape[-2:], mode="bilinear", antialias=True, align_corners=False)


@dataclass(kw_only=True, eq=False, repr=False)
class SANE(MomentumContrast):
    """MoCo whose one-hot labels are refined by the keys' own similarities, on mixtures of queries and keys.

    Eqs. (4), (5), (8), (9) and Algorithm 1 of Zhou et al. (2021). With lam=0 it is `MoCo`, to the bit. The views beyond
    the first two, `crops` of them, take part in the mixup only: one strong view as on CIFAR-10, or crops of five sizes
    as on ImageNet, whose losses are averaged. `pretrain(…, mix_augment=…, crop_sizes=…)` makes them.

    Differs from the paper: the sign of σ (moco.py). α and β, called constants there, are one for each example, as their
    formulas are. One θ and one permutation for a batch. Algorithm 1 as printed lets the strong view replace x̃ in (8):
    then what is mixed in is not the key that its label names, which Section 3.2 gives as the point of momentum mixup;
    here it replaces x, and side="key" does as printed. Views of different sizes are mixed at the extra view's size.

    Args:
        lam: λ in [0, 1], the weight of the mixup loss. The paper: 0.5 is best of five.
        sharpness: τ′ in (0, 1]. The paper: 0.8 on CIFAR-10, 1 on ImageNet.
        m1, m2: the confidence μ at the start and at the end, at least 0. The paper: 0 and 1 on CIFAR-10, 0.5 and 10 on
            ImageNet. Both 0: one-hot labels.
        kappa: κ, above 0. The paper: 2 on CIFAR-10, 0.1 on ImageNet.
        p, q: whether to use these labels.
        mixup: "momentum" mixes queries with keys, "vanilla" with other queries, "none" not at all: then the second
            loss of (9) is that of the query, or of the extra views, with refined labels.
        crops: how many extra views the mixup takes, 64 at most; 0: the query itself.
        side: what an extra view stands for in (8): the "query" or the "key".
        temperature, dictionary_size, ema, groups, symmetric: as of `MomentumContrast`.

    Raises:
        InputError: an argument outside its range.
    """

    name = "sane"
    plans = True  # confidence grows over them
    paper = "Zhou et al. 2021"
    needs = "two views, or more"
    cost = "7/3×"

    lam: float = checks.option(0.5, checks.number, low=0, high=1)
    sharpness: float = checks.option(0.8, checks.number, low=0, high=1, ends="(]")
    m1: float = checks.option(0.0, checks.number, low=0)
    m2: float = checks.option(1.0, checks.number, low=0)
    kappa: float = checks.option(2.0, checks.number, low=0, ends="(]")
    p: bool = checks.option(True, checks.boolean)
    q: bool = checks.option(True, checks.boolean)
    mixup: str = checks.option("momentum", checks.choice, allowed=MIXUPS)
    crops: int = checks.option(0, checks.integer, low=0, high=64)
    side: str = checks.option("query", checks.choice, allowed=SIDES)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.num_views = 2 + self.crops

    def objective(self, run: Run, query: Tensor, key: Tensor, others: list[Tensor], bank: Tensor) -> Tensor:
        alone = self.mixup == "none" and not others  # both losses are of the same queries
        logits = None
        plain = torch.zeros((), device=bank.device)
        if self.lam < 1 or alone:
            logits = log_sigma(embed(run.model, query), bank, self.temperature)  # (s, s + b)
            plain = instance_loss(logits)
        if self.lam == 0:
            return plain
        target = self.labels(run, bank, len(query))  # (s, s + b)
        if logits is not None and alone:
            refined = F.cross_entropy(logits, target)  # L_c with soft labels, Eq. (4)
        else:
            losses = [self.mixed_loss(run, query, key, other, bank, target) for other in others or [query]]
            refined = torch.stack(losses).mean()
        return (1 - self.lam) * plain + self.lam * refined  # Eq. (9)

    def labels(self, run: Run, bank: Tensor, s: int) -> Tensor:
        """ỹ (s, s + b) of this moment."""
        mu = confidence(run.step, run.total_steps, self.m1, self.m2)
        if mu == 0 or not (self.p or self.q):
            return torch.eye(s, len(bank), device=bank.device, dtype=bank.dtype)
        p, q = similarity_labels(bank, s, self.temperature, self.sharpness)
        return refine(p if self.p else None, q if self.q else None, mu)  # Eq. (5)

    def mixed_loss(self, run: Run, query: Tensor, key: Tensor, other: Tensor, bank: Tensor, target: Tensor) -> Tensor:
        """L_c of the virtual queries x′ with their labels y′, Eq. (8); `other` is the query or an extra view."""
        if self.mixup == "none":
            x, y = other, target
        else:
            theta = sample_lam(self.kappa, run.generator)
            permutation = torch.randperm(len(target), generator=run.generator).to(target.device)
            if self.mixup == "vanilla":
                first = second = other
            elif self.side == "query" or other is query:
                first, second = other, fit_size(key, other)
            else:
                first, second = fit_size(query, other), other
            x, y = blend(theta, first, second, permutation), blend(theta, target, target, permutation)  # Eq. (8)
        return F.cross_entropy(log_sigma(embed(run.model, x), bank, self.temperature), y)  # Eq. (4)

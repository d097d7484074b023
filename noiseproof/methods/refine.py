"""The self-labelling refinery of SANE on a labelled set: soft labels between the given label and the network's guess.

Pan Zhou, Caiming Xiong, Xiao-Tong Yuan and Steven Hoi, "A Theory-Driven Self-Labeling Refinement Method for Contrastive
Representation Learning", NeurIPS 2021, Sec. 3.1, as Theorem 2 applies it to classes. With the network's probabilities
f(x̃_i) (B, K), x̃_i the example itself or a second view of it:

    p_ik = f(x̃_i)_k^(1/τ′) / Σ_l f(x̃_i)_l^(1/τ′)
    ỹ_i  = (1 − α_i) y_i + α_i p_i,   α_i = μ max_k p_ik / (1 + μ max_k p_ik)               Eq. (5) with β = 0
    μ    = m₂ − (m₂ − m₁)(cos(πt/T) + 1)/2 at epoch t of the first T, then m₂               Sec. 4.1
    ℓ_i  = −Σ_k ỹ_ik log f(x_i)_k

No gradient flows through p, α and hence ỹ. The gradient of ℓ_i at the logits is

    f(x_i) − ỹ_i = (1 − α_i)(f(x_i) − y_i) + α_i (f(x_i) − p_i)

so with x̃_i = x_i and τ′ = 1 the second term is zero, and the refinery only gives examples weights 1 − α_i: it slows
the memorising of wrong labels and does not prevent it (noiseproof_papers/sane/contrast.py). τ′ < 1, or a second view,
keeps it: for α_i > ½ a network that is sure of another class than the given one is left in peace.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from noiseproof import checks
from noiseproof.errors import InputError
from noiseproof.method import Batch, Method, Run


def confidence(epoch: float, ramp: float, m1: float, m2: float) -> float:
    """μ after so many epochs (or steps): half a cosine from m₁ to m₂ over the first `ramp` of them, then m₂."""
    share = 1.0 if epoch >= ramp else epoch / ramp
    return m2 - (m2 - m1) * (math.cos(math.pi * share) + 1) / 2


def refined_label(logits: Tensor, label: Tensor, mu: float, sharpness: float) -> Tensor:
    """ỹ (B, K), Eq. (5) with β = 0, of logits (B, K) at x̃, label (B,), μ ≥ 0 and τ′ in (0, 1].

    No gradient flows into it.
    """
    p = (logits.detach() / sharpness).softmax(dim=1)  # (B, K)
    trust = mu * p.amax(dim=1, keepdim=True)  # (B, 1) μ max_k p_ik
    refined = trust * p
    refined.scatter_add_(1, label[:, None], torch.ones_like(trust))
    return refined / (1 + trust)  # Eq. (5)


def refine_loss(logits: Tensor, refined: Tensor) -> Tensor:
    """−Σ_k ỹ_k log f(x)_k of each example: (B, K), (B, K) to (B,)."""
    return -(refined * logits.log_softmax(dim=1)).sum(dim=1)


@dataclass(kw_only=True, eq=False, repr=False)
class Refining:
    """The options of `RefineLoss` and `Refine`.

    Args:
        m1, m2: μ at the start and at the end of its rise, at least 0. α is at most μ/(1 + μ): below ½ for μ < 1. The
            paper: 0 and 1 for CIFAR-10, 0.5 and 10 for ImageNet, without labels.
        sharpness: τ′, in (0, 1]. The paper: 0.8 for CIFAR-10, 1 for ImageNet.
        ramp: the epochs over which μ rises, at least 0: enough to learn something, too few to memorise. Guesses trusted
            before there is anything to them end in one class for all.
    """

    m1: float = checks.option(0.0, checks.number, low=0)
    m2: float = checks.option(10.0, checks.number, low=0)
    sharpness: float = checks.option(0.5, checks.number, low=0, high=1, ends="(]")
    ramp: float = checks.option(20.0, checks.number, low=0)


@dataclass(kw_only=True, eq=False, repr=False)
class RefineLoss(Refining, nn.Module):
    """Cross-entropy at refined labels for anybody's loop: ỹ = (1 − α) y + α p, p the network's sharpened guess.

    Eq. (5) of Zhou et al. (2021) with β = 0. It keeps no state.

    Differs from the paper: see `Refine`.

    Args:
        m1, m2, sharpness, ramp: as of `Refining`.
        reduction: "mean", "sum" or "none".

    Raises:
        InputError: an argument outside its range.
    """

    reduction: str = "mean"

    def __post_init__(self) -> None:
        nn.Module.__init__(self)
        checks.options(self)
        self.reduction = checks.reduction(self.reduction)

    def forward(self, logits: Tensor, label: Tensor, epoch: float, other: Tensor | None = None) -> Tensor:
        """The loss of a batch.

        Args:
            logits: (B, K).
            label: (B,) int64 in 0..K-1.
            epoch: how many are completed, with or without the fraction of the current one.
            other: (B, K) logits of a second view, for p; None for the same.

        Raises:
            InputError: a malformed batch, or an epoch below 0.
        """
        logits = checks.logits_and_label(logits, label)
        if other is not None and not (checks.is_dense(other) and other.shape == logits.shape):
            raise InputError(f"other must be logits, too, {checks.describe(logits)}, got {checks.describe(other)}")
        mu = confidence(checks.number("epoch", epoch, 0), self.ramp, self.m1, self.m2)
        guess = logits if other is None else checks.single(other)
        return checks.reduce(refine_loss(logits, refined_label(guess, label, mu, self.sharpness)), self.reduction)


@dataclass(kw_only=True, eq=False, repr=False)
class Refine(Refining, Method):
    """Train on labels refined by the network's own sharpened guesses, which weigh more the surer they are.

    Eq. (5) of Zhou et al. (2021), for classes as in its Theorem 2.

    Differs from the paper: q, the guess with the given label's entry removed, is left out (β = 0), as in Theorem 2. In
    SANE an entry is an image, and the query resembles its own key most; here it is a class, and q is wrong by
    construction wherever the label is right. τ′ = 0.5 in place of 0.8, and μ rises over the first epochs (`ramp`) in
    place of all of them: by the time it had risen, the wrong labels would be memorised.

    Args:
        m1, m2, sharpness, ramp: as of `Refining`.
        views: 1, or 2 for guesses from a second view of each example (the paper's positive); give them an augmentation.

    Raises:
        InputError: an argument outside its range.
    """

    name = "refine"
    paper = "Zhou et al. 2021"

    views: int = checks.option(1, checks.integer, low=1, high=2)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.num_views = self.views

    def loss(self, run: Run, batch: Batch) -> Tensor:
        logits = checks.single(run.model(batch.views[0]))  # (B, K)
        guess = logits
        if self.views == 2:
            with torch.no_grad():
                guess = checks.single(run.model(batch.views[1]))
        mu = confidence(run.epoch, self.ramp, self.m1, self.m2)
        return batch.mean(refine_loss(logits, refined_label(guess, batch.label, mu, self.sharpness)))

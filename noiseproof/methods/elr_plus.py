"""ELR+: early-learning regularization with two networks, averaged weights and mixup.

Sheng Liu, Jonathan Niles-Weed, Narges Razavian and Carlos Fernandez-Granda, "Early-Learning Regularization Prevents
Memorization of Noisy Labels", NeurIPS 2020, which adds three known improvements to ELR (elr.py). Each network k learns
from mixtures, λ′ = max(λ, 1 − λ), λ ~ Beta(α, α), with a random π, and from targets by the other's averaged weights:

    t_i  ← β t_i + (1 − β) p̄_i,  p̄_i the probabilities of the average of the other network at x_i        Eq. (9)
    x̃_i = λ′ x_i + (1 − λ′) x_π(i),  ỹ_i and t̃_i alike
    ℓ_i  = −Σ_k ỹ_ik log p_k(x̃_i) + λ_ELR log(1 − ⟨p(x̃_i), t̃_i⟩)                                      Eq. (6)
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from noiseproof import checks
from noiseproof.method import Batch, Beliefs, Method, Run
from noiseproof.methods import ema as averages
from noiseproof.methods.elr import believed, clamped_softmax, update_target
from noiseproof.methods.mixup import mixup, mixup_loss, sample_lam


def elr_plus(
    logits: Tensor, label: Tensor, target: Tensor, mix: float, permutation: Tensor, lam: float, weight: Tensor | None
) -> Tensor:
    """CE at ỹ plus λ log(1 − ⟨p, t̃⟩) of each mixed example, Eq. (6) on mixtures; no gradient flows through t.

    Of logits (B, K) at the mixed inputs; label (B,), target (B, K) and weight (B,) before mixing, λ′ in [0, 1] and π
    (B,): (B,). Each share carries the weight of the example it came from.
    """
    mixed = mixup(target.to(logits.dtype), mix, permutation)  # (B, K) t̃
    agreement = (clamped_softmax(logits) * mixed).sum(dim=1)  # (B,)
    regulariser = torch.log1p(-agreement)
    if weight is not None:
        regulariser = mixup(weight, mix, permutation) * regulariser
    return mixup_loss(logits, label, mix, permutation, weight) + lam * regulariser  # Eq. (6)


@dataclass(kw_only=True, eq=False, repr=False)
class ELRPlus(Method):
    """ELR whose targets come from the averaged weights of a second network, on mixtures of examples.

    Eqs. (6) and (9) of Liu et al. (2020), on mixtures. Two networks are trained, each by the other's targets.

    Differs from the paper: p is clamped and normalised as of `ELR`. Averages warm up as in the authors' code, over a
    share of the run in the place of a number of steps.
    Differs from the authors' code: both networks see a batch before either moves, where theirs are trained by turns,
    an epoch each. For CIFAR-100 it multiplies the labels by the targets, which is not here. A weight of a Selection
    mixes as the labels do.

    Args:
        beta: memory of the targets, in [0, 1). The paper: 0.7 for CIFAR-10, 0.9 for CIFAR-100.
        lam: strength of the regulariser, at least 0. The paper: 3 for CIFAR-10, 7 for CIFAR-100.
        alpha: of the Beta distribution of mixup, above 0. The paper: 1.
        ema: memory of the averaged weights, in [0, 1). The paper: 0.997.
        ramp: the share of the run over which that memory rises from next to nothing, in [0, 1]. The authors' code:
            40,000 steps of 78,200.

    Raises:
        InputError: an argument outside its range.
    """

    name = "elr_plus"
    paper = "Liu et al. 2020"
    cost = "8/3×"
    num_models = 2
    plans = True  # the averages warm up over a share of them
    rows = ("target",)

    beta: float = checks.option(0.7, checks.number, low=0, high=1, ends="[)")
    lam: float = checks.option(3.0, checks.number, low=0)
    alpha: float = checks.option(1.0, checks.number, low=0, ends="(]")
    ema: float = checks.option(0.997, checks.number, low=0, high=1, ends="[)")
    ramp: float = checks.option(0.5, checks.number, low=0, high=1)
    target: Tensor = field(init=False)

    def start(self, run: Run) -> None:
        self.register_buffer("target", torch.zeros(len(run.data), 2, run.num_classes))  # (n, 2, K): of each network
        self.averages = averages.follower(run.models)

    def loss(self, run: Run, batch: Batch) -> Tensor:
        x, losses, whole = batch.views[0], [], batch.gathered()
        everyone = batch.gather(x)  # (size, …)
        target = self.target[batch.row]  # (B, 2, K)
        for k, network in enumerate(run.models):
            with torch.no_grad():
                p = clamped_softmax(checks.single(self.averages[1 - k](x)))  # (B, K), of the other's average
            target[:, k] = update_target(target[:, k], p, self.beta)  # Eq. (9)
            mix = sample_lam(self.alpha, run.generator)
            mix = max(mix, 1 - mix)
            permutation = torch.randperm(batch.size, generator=run.generator).to(x.device, non_blocking=True)
            logits = checks.single(network(mixup(everyone, mix, permutation)[batch.own]))  # (B, K)
            logits, targets = batch.gather(logits), batch.gather(target[:, k].clone())  # (size, K) each
            each = elr_plus(logits, whole.label, targets, mix, permutation, self.lam, whole.weight)
            losses.append(each.mean())
        self.target[batch.row] = target
        return losses[0] + losses[1]

    def after_step(self, run: Run, batch: Batch) -> None:
        steps = self.ramp * run.total_steps
        memory = self.ema * averages.ramp((run.step + 1) / steps if steps else 1.0)
        for average, network in zip(self.averages, run.models, strict=True):
            averages.follow(average, network, memory)

    def beliefs(self, run: Run, predicted: Tensor) -> Beliefs:
        """As of `ELR`, by the mean of the two targets."""
        return believed(self.target.mean(dim=1), predicted, run.data.labels)

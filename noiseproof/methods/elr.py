"""Early-learning regularization: hold on to what the network believed before it began to memorise.

Sheng Liu, Jonathan Niles-Weed, Narges Razavian and Carlos Fernandez-Granda, "Early-Learning Regularization Prevents
Memorization of Noisy Labels", NeurIPS 2020.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from noiseproof import checks
from noiseproof.method import Batch, Beliefs, Method, Run
from noiseproof.methods.index_guard import IndexGuard
from noiseproof.methods.sop_terms import margins
from noiseproof.methods.waking import AUTO, Waking

_AUTO_LAM, _CLEARLY = 1.0, 0.3  # λ "auto" where the target prefers another class to the label by more than this
_EPS = 1e-4  # the authors' clamp: keeps log(1 − ⟨p, t⟩) finite


def clamped_softmax(logits: Tensor) -> Tensor:
    """p (B, K) of logits (B, K), clamped to [1e-4, 1 − 1e-4]; its rows sum to 1 only nearly."""
    return logits.softmax(dim=1).clamp(_EPS, 1 - _EPS)


def update_target(target: Tensor, p: Tensor, beta: float) -> Tensor:
    """t ← β t + (1 − β) p / Σ p, Eq. (9), of the touched rows: (B, K), (B, K) to (B, K), without gradient.

    A row whose p is not finite stays as it is: a mean would never forget it.
    """
    p = p.detach().to(target.dtype)
    total = p.sum(dim=1, keepdim=True)  # (B, 1)
    return torch.where(total.isfinite(), beta * target + (1 - beta) * p / total, target)  # Eq. (9)


def elr(
    logits: Tensor, label: Tensor, p: Tensor, target: Tensor, lam: float | Tensor, weight: float | Tensor = 1.0
) -> Tensor:
    """CE + λ log(1 − ⟨p, t⟩) of each example, Eq. (6); the gradient flows through p and not through t.

    Of logits (B, K), label (B,), p = `clamped_softmax(logits)` (B, K), target (B, K), λ and a weight of the
    cross-entropy, each a number or (B,): (B,).
    """
    agreement = (p * target.to(p.dtype)).sum(dim=1)  # (B,)
    return weight * F.cross_entropy(logits, label, reduction="none") + lam * torch.log1p(-agreement)  # Eq. (6)


def soft_labels(target: Tensor) -> Tensor:
    """The targets (n, K) as distributions; uniform where an example was never visited."""
    total = target.sum(dim=1, keepdim=True)  # (n, 1); 0 where never visited
    return torch.where(total > 0, target / total.clamp_min(1e-30), torch.full_like(target, 1 / target.shape[1]))


def _lam(lam: Any) -> float | str:
    """λ, checked."""
    return AUTO if isinstance(lam, str) and lam == AUTO else checks.number("lam", lam, 0, remedy="or pass 'auto'")


class Targets(nn.Module):
    """The targets of a training set, and the loss they take part in: what `ELRLoss` and the method share.

    With λ = "auto", all is cross-entropy until the network memorises (waking.py). From then on an example whose target
    clearly contradicts its label is held to the target, with λ = 1, in place of the label; the others are left to
    cross-entropy, for a target that wavers is no better than the label.
    """

    target: Tensor  # (n, K)

    def __init__(
        self,
        num_examples: int,
        num_classes: int,
        generator: torch.Generator,
        *,
        beta: float,
        lam: float | str,
        val: int = 0,
    ) -> None:
        super().__init__()
        self.beta, self.lam = beta, lam
        self.waking = Waking(num_examples, generator, val=val, automatic=isinstance(lam, str))
        self.register_buffer("target", torch.zeros(num_examples, num_classes))

    def forward(self, logits: Tensor, label: Tensor, index: Tensor) -> Tensor:
        """The loss of each example (B,); in train mode it moves their targets first."""
        p = clamped_softmax(logits)  # (B, K)
        target, shown = self.target[index], torch.ones(())  # (B, K)
        if self.training:
            shown = self.waking.see(p, label, index)  # (B,)
            target = self.target[index] = update_target(target, p, self.beta)
        if not isinstance(self.lam, str):
            return elr(logits, label, p, target, self.lam)
        held = (margins(soft_labels(target), label)[0] > _CLEARLY) & self.waking.awake  # (B,)
        return elr(logits, label, p, target, _AUTO_LAM * held, shown * ~held)


class ELRLoss(nn.Module):
    """Early-learning regularization for anybody's loop: CE + λ log(1 − ⟨p_i, t_i⟩), t_i a running mean of p_i.

    Eqs. (6) and (9) of Liu et al. (2020). In train mode a call moves the targets of its examples, so call once per
    step; in eval mode it leaves them alone.

    Differs from the paper: by default λ is automatic, see `Targets`. p is clamped to [1e-4, 1 − 1e-4] and normalised
    before it enters t, as in the authors' code.
    Differs from the authors' code: targets are in the state_dict, and follow the module to its device.

    Args:
        num_examples: n, the size of the full training set.
        num_classes: K.
        beta: memory of the targets, in [0, 1). The paper: 0.7 for CIFAR-10, 0.9 for CIFAR-100; the authors' code 0.9
            for CIFAR-10 with asymmetric noise.
        lam: strength λ, at least 0, the same from the first step on; or "auto". The paper: 3 for CIFAR-10, 7 for
            CIFAR-100; the authors' code 1 for CIFAR-10 with asymmetric noise.
        reduction: "mean", "sum" or "none"; seed: of the choice of the examples that stand watch.

    Raises:
        InputError: an argument outside its range.
    """

    def __init__(
        self,
        num_examples: int,
        num_classes: int,
        *,
        beta: float = 0.7,
        lam: float | str = AUTO,
        reduction: str = "mean",
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.num_classes = checks.integer("num_classes", num_classes, 2)
        self.beta = checks.number("beta", beta, 0, 1, ends="[)")
        self.lam = _lam(lam)
        self.reduction = checks.reduction(reduction)
        self.guard = IndexGuard(num_examples)
        generator = torch.Generator().manual_seed(checks.integer("seed", seed, 0))
        self.targets = Targets(num_examples, self.num_classes, generator, beta=self.beta, lam=self.lam)

    def forward(self, logits: Tensor, label: Tensor, index: Tensor) -> Tensor:
        """The loss of a batch.

        Args:
            logits: (B, K).
            label: (B,) int64 in 0..K-1.
            index: (B,) int64, positions in the full training set, without repeats.

        Raises:
            InputError: a malformed batch, or an index that comes back with another label.
        """
        logits = checks.logits_and_label(logits, label, self.num_classes)
        self.guard(index, label)
        return checks.reduce(self.targets(logits, label, index), self.reduction)

    def soft_labels(self) -> Tensor:
        """What the network came to believe of each example: (n, K), rows sum to 1."""
        return soft_labels(self.targets.target)


class ELR(Method):
    """Cross-entropy plus λ log(1 − ⟨p_i, t_i⟩), which rewards agreeing with one's own earlier predictions t_i.

    Eqs. (6) and (9) of Liu et al. (2020).

    Differs from the paper and from the authors' code: see `ELRLoss`.

    Args:
        beta: in [0, 1). The paper: 0.7 for CIFAR-10, 0.9 for CIFAR-100.
        lam: at least 0, or "auto": see `Targets`. The paper: 3 for CIFAR-10, 7 for CIFAR-100.

    Raises:
        InputError: an argument outside its range.
    """

    name = "elr"
    paper = "Liu et al. 2020"

    def __init__(self, *, beta: float = 0.7, lam: float | str = AUTO) -> None:
        super().__init__()
        self.beta = checks.number("beta", beta, 0, 1, ends="[)")
        self.lam = _lam(lam)

    def start(self, run: Run) -> None:
        val = len(run.val or ())
        self.targets = Targets(len(run.data), run.num_classes, run.generator, beta=self.beta, lam=self.lam, val=val)

    def before_epoch(self, run: Run) -> None:
        self.targets.waking.before_epoch(run)

    def loss(self, run: Run, batch: Batch) -> Tensor:
        logits = checks.single(run.model(batch.views[0]))  # (B, K)
        return batch.mean(self.targets(logits, batch.label, batch.index))

    def figures(self, run: Run) -> dict[str, float]:
        return self.targets.waking.figures()

    def beliefs(self, run: Run, predicted: Tensor) -> Beliefs:
        soft_label = soft_labels(self.targets.target).cpu()  # (n, K)
        given = soft_label.gather(1, run.data.labels.cpu()[:, None])[:, 0]  # (n,)
        return Beliefs(soft_label, (1 - given).clamp(0, 1))

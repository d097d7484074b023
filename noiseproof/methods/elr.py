"""Early-learning regularization: hold on to what the network believed before it began to memorise.

Sheng Liu, Jonathan Niles-Weed, Narges Razavian and Carlos Fernandez-Granda, "Early-Learning Regularization Prevents
Memorization of Noisy Labels", NeurIPS 2020.

With p = softmax(logits), y the one-hot label and t a running mean of p at the visits of the example:

    L = −log p_y + λ log(1 − ⟨p, t⟩)         Eq. (6)
    t ← β t + (1 − β) p                      Eq. (9)

From the first step on the second term rewards certainty, also in what a network that has hardly learned believes. With
λ = "auto" it is 0 until the network has begun to memorise (waking.py), and from then on

    L = log(1 − ⟨p, t⟩) where t, as a distribution, clearly contradicts y, else −log p_y:

what the network believed takes the place of the label where the two differ, and is not needed where they agree.

After the run the finished network is asked once more, and with p what it says, the method believes and suspects what
_judged.py has of q, the mean of t and p as distributions, without what the clamp lends to every class.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from noiseproof import checks
from noiseproof.method import Batch, Beliefs, Method, Run
from noiseproof.methods._judged import judged
from noiseproof.methods.index_guard import IndexGuard
from noiseproof.methods.waking import AUTO, Waking, number_or_auto

_EPS = 1e-4  # the authors' clamp: keeps log(1 − ⟨p, t⟩) finite
_BETA, _STEADY = (
    0.7,
    0.9,
)  # the paper's β for CIFAR-10, and that of an automatic λ: what overrules a label must be steady


def memory(lam: float | str) -> float:
    """β where none is given."""
    return _STEADY if lam == AUTO else _BETA


def clamped(p: Tensor) -> Tensor:
    """Probabilities (B, K), clamped to [1e-4, 1 − 1e-4]; their rows sum to 1 only nearly."""
    return p.clamp(_EPS, 1 - _EPS)


def clamped_softmax(logits: Tensor) -> Tensor:
    """p (B, K) of logits (B, K), clamped."""
    return clamped(logits.softmax(dim=1))


def update_target(target: Tensor, p: Tensor, beta: float) -> Tensor:
    """t ← β t + (1 − β) p / Σ p, Eq. (9), of the touched rows: (B, K), (B, K) to (B, K), without gradient.

    A row whose p is not finite stays as it is: a mean would never forget it.
    """
    p = p.detach().to(target.dtype)
    total = p.sum(dim=1, keepdim=True)  # (B, 1)
    return torch.where(total.isfinite(), beta * target + (1 - beta) * p / total, target)  # Eq. (9)


def elr(logits: Tensor, label: Tensor, p: Tensor, target: Tensor, lam: float) -> Tensor:
    """CE + λ log(1 − ⟨p, t⟩) of each example, Eq. (6); the gradient flows through p and not through t.

    Of logits (B, K), label (B,), p = `clamped_softmax(logits)` (B, K) and target (B, K): (B,).
    """
    agreement = (p * target.to(p.dtype)).sum(dim=1)  # (B,)
    return F.cross_entropy(logits, label, reduction="none") + lam * torch.log1p(-agreement)  # Eq. (6)


def automatic_elr(logits: Tensor, label: Tensor, p: Tensor, target: Tensor, held: Tensor) -> Tensor:
    """Eq. (6) with λ = "auto": its second term alone where an example is held to its target, else its first.

    Of logits (B, K), label (B,), p = `clamped_softmax(logits)` (B, K), target (B, K) and held (B,): (B,).
    """
    agreement = (p * target.to(p.dtype)).sum(dim=1)  # (B,)
    return torch.where(held, torch.log1p(-agreement), F.cross_entropy(logits, label, reduction="none"))


def regularized(logits: Tensor, label: Tensor, p: Tensor, target: Tensor, lam: float | str, waking: Waking) -> Tensor:
    """Eq. (6) of each example (B,), with λ a number or "auto"."""
    if isinstance(lam, str):
        return automatic_elr(logits, label, p, target, waking.contradicts(soft_labels(target), label)[0])
    return elr(logits, label, p, target, lam)


def soft_labels(target: Tensor) -> Tensor:
    """The targets (n, K) as distributions; uniform where an example was never visited."""
    total = target.sum(dim=1, keepdim=True)  # (n, 1); 0 where never visited
    return torch.where(total > 0, target / total.clamp_min(1e-30), torch.full_like(target, 1 / target.shape[1]))


def unclamped(soft_label: Tensor) -> Tensor:
    """Soft labels (n, K) without the share that every class has from the clamp of p, as distributions."""
    floor = _EPS / (1 + (soft_label.shape[1] - 2) * _EPS)  # where all but one class are clamped
    above = (soft_label - floor).clamp_min(0)
    return above / above.sum(dim=1, keepdim=True)


def believed(target: Tensor, predicted: Tensor, label: Tensor) -> Beliefs:
    """Of targets (n, K), the finished network's probabilities (n, K) and labels (n,)."""
    target, label = target.cpu(), label.cpu()
    p = clamped(predicted.to(target))  # (n, K), as at a visit: else it would decide alone where t is at the clamp
    return judged(unclamped((soft_labels(target) + soft_labels(p)) / 2), label)


class ELRLoss(nn.Module):
    """Early-learning regularization for anybody's loop: CE + λ log(1 − ⟨p_i, t_i⟩), t_i a running mean of p_i.

    Eqs. (6) and (9) of Liu et al. (2020). In train mode a call moves the targets of its examples, so call once per
    step; in eval mode it leaves them alone.

    Differs from the paper: p is clamped to [1e-4, 1 − 1e-4] and normalised before it enters t, as in the authors' code.
    With λ = "auto", the loss of the examples that stand watch is 0 until the network memorises (waking.py).
    Differs from the authors' code: targets are in the state_dict, and follow the module to its device.

    Args:
        num_examples: n, the size of the full training set.
        num_classes: K.
        beta: memory of the targets, in [0, 1); None: 0.9 with an automatic λ, else 0.7. The paper: 0.7 for CIFAR-10,
            0.9 for CIFAR-100; the authors' code 0.9 for CIFAR-10 with asymmetric noise.
        lam: strength λ, at least 0, or "auto". The paper: 3 for CIFAR-10, 7 for CIFAR-100; the authors' code 1 for
            CIFAR-10 with asymmetric noise.
        reduction: "mean", "sum" or "none"; seed: of the choice of the examples that stand watch.

    Raises:
        InputError: an argument outside its range.
    """

    target: Tensor

    def __init__(
        self,
        num_examples: int,
        num_classes: int,
        *,
        beta: float | None = None,
        lam: float | str = AUTO,
        reduction: str = "mean",
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.num_classes = checks.integer("num_classes", num_classes, 2)
        self.lam = number_or_auto("lam", lam, 0)
        self.beta = checks.number("beta", memory(self.lam) if beta is None else beta, 0, 1, ends="[)")
        self.reduction = checks.reduction(reduction)
        self.guard = IndexGuard(num_examples)
        generator = torch.Generator().manual_seed(checks.integer("seed", seed, 0))
        self.waking = Waking(num_examples, generator, automatic=self.lam == AUTO)
        self.register_buffer("target", torch.zeros(num_examples, num_classes))  # (n, K)

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
        p = clamped_softmax(logits)  # (B, K)
        target, shown = self.target[index], torch.ones_like(p[:, 0])  # (B, K), (B,)
        if self.training:
            target = update_target(target, p, self.beta)
            self.target[index] = target
            shown = self.waking.see(p, soft_labels(target), label, index)
        return checks.reduce(shown * regularized(logits, label, p, target, self.lam, self.waking), self.reduction)

    def soft_labels(self) -> Tensor:
        """What the network came to believe of each example: (n, K), rows sum to 1."""
        return soft_labels(self.target)


@dataclass(kw_only=True, eq=False, repr=False)
class ELR(Method):
    """Cross-entropy plus λ log(1 − ⟨p_i, t_i⟩), which rewards agreeing with one's own earlier predictions t_i.

    Eqs. (6) and (9) of Liu et al. (2020).

    Differs from the paper and from the authors' code: see `ELRLoss`.

    Args:
        beta: in [0, 1); None: 0.9 with an automatic λ, else 0.7. The paper: 0.7 for CIFAR-10, 0.9 for CIFAR-100.
        lam: at least 0, or "auto", see above. The paper: 3 for CIFAR-10, 7 for CIFAR-100.

    Raises:
        InputError: an argument outside its range.
    """

    name = "elr"
    paper = "Liu et al. 2020"
    rows = ("target",)

    beta: float | None = checks.option(None, checks.optional(checks.number, low=0, high=1, ends="[)"))
    lam: float | str = checks.option(AUTO, number_or_auto, low=0)
    target: Tensor = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.beta = memory(self.lam) if self.beta is None else self.beta

    def start(self, run: Run) -> None:
        self.register_buffer("target", torch.zeros(len(run.data), run.num_classes))  # (n, K)
        val = len(run.val or ())
        self.waking = Waking(len(run.data), run.generator, val=val, automatic=self.lam == AUTO)

    def before_epoch(self, run: Run) -> None:
        self.waking.before_epoch(run)

    def loss(self, run: Run, batch: Batch) -> Tensor:
        logits = checks.single(run.model(batch.views[0]))  # (B, K)
        p = clamped_softmax(logits)
        assert self.beta is not None
        target = update_target(self.target[batch.row], p, self.beta)  # (B, K)
        self.target[batch.row] = target
        shown = self.waking.see(p, soft_labels(target), batch.label, batch.index, batch.gather)  # (B,)
        return batch.mean(shown * regularized(logits, batch.label, p, target, self.lam, self.waking))

    def figures(self, run: Run) -> dict[str, float]:
        return self.waking.figures()

    def beliefs(self, run: Run, predicted: Tensor) -> Beliefs:
        return believed(self.target, predicted, run.data.labels)

"""Sparse over-parameterization: give every example room for its own label noise, and learn that noise away.

Sheng Liu, Zhihui Zhu, Qing Qu and Chong You, "Robust Training under Label Noise by Over-parameterization", ICML 2022.

With p = softmax(logits), y the one-hot label, h the one-hot vector of p's largest entry, and small u, v per example:

    s = u² ⊙ y − v² ⊙ (1 − y)                                   Eq. (5)
    φ(w) = max(w, ε) / ‖max(w, ε)‖₁                             Eq. (7)
    L_CE = −log φ(p + s)_y           trains the network and u    Eq. (8)
    L_MSE = ‖h + s − y‖²             trains v                    Eq. (9) and its footnote

Of u only the entry of the label enters, of v all the others. Both start near zero and grow by a factor at each visit of
their example for as long as the network contradicts its label; once s has taken over, the label pulls no more.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from noiseproof.errors import InputError, unknown
from noiseproof.method import Batch, Beliefs, Method, Run
from noiseproof.methods import _check
from noiseproof.methods._index import IndexGuard

VARIANTS = ("paper", "authors")
_EPS = 1e-4  # ε of Eq. (7), as in the authors' code: the paper does not give it


class Gradients(NamedTuple):
    """Derivatives of an example's losses with respect to its own u (B,) and v (B, K)."""

    u: Tensor
    v: Tensor


def noise_term(u: Tensor, v: Tensor, label: Tensor) -> Tensor:
    """s = u² ⊙ y − v² ⊙ (1 − y), Eq. (5): u (B,), v (B, K), label (B,) to (B, K)."""
    return (-v.square()).scatter(1, label[:, None], u.square()[:, None])  # Eq. (5)


def sop_loss(p: Tensor, s: Tensor, label: Tensor) -> Tensor:
    """L_CE = −log φ(p + s)_y of each example, Eqs. (7) and (8): p (B, K), s (B, K), label (B,) to (B,)."""
    w = (p + s).clamp_min(_EPS)  # (B, K)
    return w.sum(dim=1).log() - w.gather(1, label[:, None]).squeeze(1).log()  # Eqs. (7), (8)


def gradients(p: Tensor, u: Tensor, v: Tensor, label: Tensor, variant: str) -> Gradients:
    """∂L_CE/∂u and ∂L_MSE/∂v of each example, in closed form; with the authors' variant, ∂(L_CE + L_MSE)/∂u.

    ∂L_CE/∂u = 2u (1/Σ max(w, ε) − 1/w_y) where w_y > ε, else 0, with w = p + s;
    ∂L_MSE/∂v_k = −4 v_k (h_k − v_k²) for k ≠ y; ∂L_MSE/∂u = 4u (h_y + u² − 1).

    Differs from the paper: (A.2) and (A.4) print the derivatives with respect to v with the opposite sign, as if s had
    +v²; with it the update of Algorithm 1 would shrink v where it should grow.

    Args:
        p: (B, K), u: (B,), v: (B, K), label: (B,).
    """
    w = p + noise_term(u, v, label)  # (B, K)
    w_label = w.gather(1, label[:, None]).squeeze(1)  # (B,)
    total = w.clamp_min(_EPS).sum(dim=1)  # (B,)
    du = torch.where(w_label > _EPS, 2 * u * (1 / total - 1 / w_label.clamp_min(_EPS)), torch.zeros_like(u))
    guess = p.argmax(dim=1)  # (B,)
    h = F.one_hot(guess, p.shape[1]).to(p.dtype)  # (B, K)
    dv = (-4 * v * (h - v.square())).scatter(1, label[:, None], 0.0)  # (A.4)
    if variant == "authors":
        du = du + 4 * u * ((guess == label).to(p.dtype) + u.square() - 1)
    return Gradients(du, dv)


def auto_rate(visits: float, std: float) -> float:
    """The rate at which a label that the network always contradicts is explained away after so many visits.

    While v is small, a visit multiplies it by 1 + 4·rate (L_MSE); from `std` it must reach about 1.
    """
    return math.expm1(-math.log(std) / visits) / 4


class _State(nn.Module):
    """u (n,) and v (n, K) of all examples, and the step that moves the touched rows."""

    u: Tensor
    v: Tensor

    def __init__(self, num_examples: int, num_classes: int, std: float, generator: torch.Generator) -> None:
        super().__init__()
        self.register_buffer("u", torch.randn(num_examples, generator=generator) * std)
        self.register_buffer("v", torch.randn(num_examples, num_classes, generator=generator) * std)

    def move(self, index: Tensor, gradient: Gradients, rate_u: float, rate_v: float) -> None:
        """u ← P(u − rate ∂u), v ← P(v − rate ∂v) on the rows `index`, Algorithm 1; repeated rows add up."""
        self.u.index_add_(0, index, gradient.u.to(self.u.dtype), alpha=-rate_u)
        self.v.index_add_(0, index, gradient.v.to(self.v.dtype), alpha=-rate_v)
        self.u[index] = self.u[index].clamp(-1, 1)
        self.v[index] = self.v[index].clamp(-1, 1)


class SOPLoss(nn.Module):
    """SOP for anybody's loop: −log φ(p + s)_y, with the label noise s of each example learned beside the network.

        criterion = SOPLoss(num_examples=50_000, num_classes=10)
        loss = criterion(logits, label, index)
        loss.backward(); optimizer.step(); criterion.step()
        criterion.noise()                                        # (n,): how much of each label is noise

    Eqs. (5)–(9) and Algorithm 1 of Liu et al. (2022). Rates are those of the authors' code: a step moves u by
    lr_u / B times the derivative of its example's loss, as SGD on the mean over a batch of B would.

    Differs from the paper: Algorithm 1 moves u and v at the end of an epoch, this at each visit, as the authors' code.
    Differs from the authors' code: variant="paper" trains u by the cross-entropy alone and projects u and v to
    [−1, 1]; variant="authors" trains u by the squared error too. A dense optimizer over n × K entries is replaced by
    an update of the touched rows, and the state is in the state_dict.

    Args:
        num_examples: n, the size of the full training set.
        num_classes: K.
        lr_u, lr_v: rates, at least 0. The paper: 10 and 10 for CIFAR-10 with symmetric noise at batch 128.
        variant: "paper" or "authors".
        std: of the initial u and v; the paper: 1e-8.
        reduction: "mean", "sum" or "none".
        seed: of the initial u and v.

    Raises:
        InputError: an argument outside its range.
    """

    def __init__(
        self,
        num_examples: int,
        num_classes: int,
        *,
        lr_u: float = 10.0,
        lr_v: float = 10.0,
        variant: str = "authors",
        std: float = 1e-8,
        reduction: str = "mean",
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.guard = IndexGuard(num_examples, repeats=True)
        self.num_classes = _check.integer("num_classes", num_classes, 2)
        self.lr_u, self.lr_v = _check.number("lr_u", lr_u, 0), _check.number("lr_v", lr_v, 0)
        self.variant = _variant(variant)
        self.reduction = _check.reduction(reduction)
        std = _check.number("std", std, 0, 1, ends="()")
        self.state = _State(num_examples, num_classes, std, torch.Generator().manual_seed(seed))
        self._pending: tuple[Tensor, Gradients] | None = None

    def forward(self, logits: Tensor, label: Tensor, index: Tensor) -> Tensor:
        """The loss of a batch; `step()` afterwards moves the u and v of its examples.

        Args:
            logits: (B, K).
            label: (B,) int64 in 0..K-1.
            index: (B,) int64, positions in the full training set.

        Raises:
            InputError: a malformed batch, or an index that comes back with another label.
        """
        logits = _check.logits_and_label(logits, label, self.num_classes)
        self.guard(index, label)
        p = logits.softmax(dim=1)  # (B, K)
        u, v = self.state.u[index].to(p.dtype), self.state.v[index].to(p.dtype)
        if self.training:
            self._pending = index, gradients(p.detach(), u, v, label, self.variant)
        return _check.reduce(sop_loss(p, noise_term(u, v, label), label), self.reduction)

    def step(self) -> None:
        """Move u and v of the examples of the last batch."""
        if self._pending is None:
            raise InputError("step() needs a batch first; call the loss in train mode, then step() once")
        index, gradient = self._pending
        self.state.move(index, gradient, self.lr_u / len(index), self.lr_v / len(index))
        self._pending = None

    def noise(self) -> Tensor:
        """How much of each example's label the noise has taken over: u² (n,), in [0, 1]."""
        return self.state.u.square()


class SOP(Method):
    """Learn the label noise s of each example beside the network, so that the network need not.

    Eqs. (5)–(9) and Algorithm 1 of Liu et al. (2022). A visit moves u and v by rate times the derivative of its
    example's loss; the rate is "auto" or a number, lr_u and lr_v divided by the batch size as in the authors' code.

    Differs from the paper and from the authors' code: see `SOPLoss`.

    Args:
        lr_u, lr_v: at least 0, or "auto": so that a label the network always contradicts is explained away after
            `visits` epochs (or half of a shorter run), whatever the batch size.
        variant: "authors" (u is trained by cross-entropy and squared error) or "paper" (by cross-entropy alone).
        visits: at least 1; for "auto". Fewer explain away right labels that are merely hard, more let wrong ones be
            memorised first.
        std: of the initial u and v, in (0, 1).

    Raises:
        InputError: an argument outside its range.
    """

    name = "sop"
    paper = "Liu et al. 2022"

    def __init__(
        self,
        *,
        lr_u: float | str = "auto",
        lr_v: float | str = "auto",
        variant: str = "authors",
        visits: float = 15,
        std: float = 1e-8,
    ) -> None:
        super().__init__()
        self.lr_u = lr_u if lr_u == "auto" else _check.number("lr_u", lr_u, 0)
        self.lr_v = lr_v if lr_v == "auto" else _check.number("lr_v", lr_v, 0)
        self.variant = _variant(variant)
        self.visits = _check.number("visits", visits, 1)
        self.std = _check.number("std", std, 0, 1, ends="()")
        self._pending: Gradients | None = None

    def start(self, run: Run) -> None:
        self.state = _State(len(run.data), run.num_classes, self.std, run.generator)
        rate = auto_rate(max(1.0, min(self.visits, run.epochs / 2)), self.std)
        self.rate_u, self.rate_v = (
            rate if lr == "auto" else float(lr) / run.batch_size for lr in (self.lr_u, self.lr_v)
        )

    def loss(self, run: Run, batch: Batch) -> Tensor:
        p = _check.single(run.model(batch.views[0])).softmax(dim=1)  # (B, K)
        u, v = self.state.u[batch.index], self.state.v[batch.index]
        self._pending = gradients(p.detach(), u, v, batch.label, self.variant)
        return batch.mean(sop_loss(p, noise_term(u, v, batch.label), batch.label))

    def after_step(self, run: Run, batch: Batch) -> None:
        assert self._pending is not None
        self.state.move(batch.index, self._pending, self.rate_u, self.rate_v)
        self._pending = None

    def beliefs(self, run: Run) -> Beliefs:
        """Suspicion u²: the share of the label that the noise explains; the rest of the belief follows v."""
        label = run.data.labels.to(self.state.u.device)
        noise = self.state.u.square()  # (n,)
        other = self.state.v.square().scatter(1, label[:, None], 0.0) + 1e-12  # (n, K)
        other = other / other.sum(dim=1, keepdim=True)
        one_hot = F.one_hot(label, run.num_classes).to(other.dtype)
        soft_label = (1 - noise)[:, None] * one_hot + noise[:, None] * other
        return Beliefs(soft_label.cpu(), noise.clamp(0, 1).cpu())


def _variant(variant: str) -> str:
    if variant not in VARIANTS:
        raise unknown("variant", str(variant), VARIANTS)
    return variant

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
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from noiseproof import checks
from noiseproof.errors import InputError, unknown
from noiseproof.method import Batch, Beliefs, Method, Run
from noiseproof.methods._sop_state import DTYPES, Gradients, State, fused, kernels, smallest
from noiseproof.methods.index_guard import IndexGuard

VARIANTS = ("paper", "authors")
_FEWEST_VISITS = 8.0  # in a run too short for more; fewer explain away right labels as well


def floor(num_classes: int) -> float:
    """ε of Eq. (7): 1e-4, as in the authors' code (the paper does not give it); less for more than 1,000 classes.

    A label of p_y ≤ ε has no gradient, and a network begins with p_y near 1/K.
    """
    return min(1e-4, 0.1 / num_classes)


def noise_term(u: Tensor, v: Tensor, label: Tensor) -> Tensor:
    """s = u² ⊙ y − v² ⊙ (1 − y), Eq. (5), its squares at most 1: u (B,), v (B, K), label (B,) to (B, K)."""
    return (-v.square().clamp(max=1)).scatter(1, label[:, None], u.square().clamp(max=1)[:, None])  # Eq. (5)


def mapped(p: Tensor, s: Tensor) -> Tensor:
    """φ(p + s), Eq. (7): (B, K), (B, K) to (B, K), rows sum to 1."""
    w = (p + s).clamp_min(floor(p.shape[1]))
    return w / w.sum(dim=1, keepdim=True)  # Eq. (7)


def sop_loss(p: Tensor, s: Tensor, label: Tensor, variant: str) -> Tensor:
    """L_CE = −log φ(p + s)_y of each example, Eqs. (7) and (8): p (B, K), s (B, K), label (B,) to (B,).

    The authors' variant clamps φ a second time: a label of φ_y < ε has a constant loss.
    """
    eps = floor(p.shape[1])
    w = (p + s).clamp_min(eps)  # (B, K)
    loss = w.sum(dim=1).log() - w.gather(1, label[:, None]).squeeze(1).log()  # Eqs. (7), (8)
    return loss.clamp(max=-math.log(eps)) if variant == "authors" else loss


def gradients(p: Tensor, u: Tensor, v: Tensor, label: Tensor, variant: str) -> Gradients:
    """∂L_CE/∂u and ∂L_MSE/∂v of each example, in closed form; with the authors' variant, ∂(L_CE + L_MSE)/∂u.

    ∂L_CE/∂u = 2u (1/Σ max(w, ε) − 1/w_y) where w_y > ε, else 0, with w = p + s;
    ∂L_MSE/∂v_k = −4 v_k (h_k − v_k²) for k ≠ y; ∂L_MSE/∂u = 4u (h_y + u² − 1); 0 where u² or v² is clamped.

    Differs from the paper: (A.2) and (A.4) print the derivatives with respect to v with the opposite sign, as if s had
    +v²; with it the update of Algorithm 1 would shrink v where it should grow.

    Args:
        p: (B, K), u: (B,), v: (B, K), label: (B,).
    """
    authors, eps = variant == "authors", floor(p.shape[1])
    w = p + noise_term(u, v, label)  # (B, K)
    w_label = w.gather(1, label[:, None]).squeeze(1)  # (B,)
    total = w.clamp_min(eps).sum(dim=1)  # (B,)
    alive = w_label > eps
    if authors:
        alive &= w_label / total >= eps
    du = 2 * u * torch.where(alive, 1 / total - 1 / w_label.clamp_min(eps), 0.0)
    guess = p.argmax(dim=1)  # (B,)
    h = F.one_hot(guess, p.shape[1]).to(p.dtype)  # (B, K)
    square = v.square()
    dv = torch.where(square <= 1, -4 * v * (h - square), 0.0).scatter(1, label[:, None], 0.0)  # (A.4)
    if authors:
        own = u.square()
        du = torch.where(own <= 1, du + 4 * u * ((guess == label).to(p.dtype) + own - 1), 0.0)
    return Gradients(du, dv)


class _Attached(torch.autograd.Function):
    """A number that depends on logits (B, K), with its derivative, which is known already."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, value: float, by_logits: Tensor) -> Tensor:
        ctx.by_logits = by_logits
        return logits.new_tensor(value)

    @staticmethod
    def backward(ctx: Any, by_value: Tensor) -> tuple[Tensor, None, None]:
        if torch.is_grad_enabled():
            raise InputError("this loss can be differentiated once; for more, pass logits in float64")
        return ctx.by_logits * by_value, None, None


def fused_loss(
    logits: Tensor, weight: Tensor, u: Tensor, v: Tensor, place: Tensor, index: Tensor, label: Tensor, variant: str
) -> tuple[Tensor, Gradients]:
    """Σ weight · `sop_loss` of the logits' softmax, and `gradients`; the other arguments as of `_sop_kernels.loss`."""
    p = logits.detach().softmax(dim=1)
    eps = floor(p.shape[1])
    value, by_logits, *own = kernels().loss(p, weight, u, v, place, index, label, eps, variant == "authors")
    return _Attached.apply(logits, value, by_logits), Gradients(*own)


def auto_rate(visits: float, std: float) -> float:
    """The rate at which a label that the network always contradicts is explained away after so many visits.

    While v is small, a visit multiplies it by 1 + 4·rate (L_MSE); from `std` it must reach about 1.
    """
    return math.expm1(-math.log(std) / visits) / 4


class NoiseModel(nn.Module):
    """u and v of a training set, the loss they take part in, and their steps: what `SOPLoss` and the methods share."""

    def __init__(
        self,
        num_examples: int,
        num_classes: int,
        generator: torch.Generator,
        *,
        lr_u: float | str,
        lr_v: float | str,
        variant: str,
        visits: float,
        std: float,
        full_u: bool,
        state_dtype: str,
        state_file: str | None,
    ) -> None:
        super().__init__()
        self.variant = variant
        self.lr_u, self.lr_v = lr_u, lr_v
        self.auto = auto_rate(visits, std)
        self.state = State(num_examples, num_classes, std, generator, full_u=full_u, dtype=state_dtype, file=state_file)
        self._pending: list[tuple[Tensor, Tensor, Gradients]] = []  # batches since the last step

    def forward(self, logits: Tensor, label: Tensor, index: Tensor, weight: Tensor | None = None) -> Tensor:
        """The mean of (weight times) L_CE over a batch; in train mode, `step` then moves its u and v.

        An example's weight is that of its losses, and so of the derivatives by its u and v; but no visit counts for
        more than one, which the rates are made for.

        Args:
            logits: (B, K), label: (B,), index: (B,), weight: (B,) or None.
        """
        state = self.state
        if not fused(logits):
            return Batch((), label, index, weight).mean(self.each(logits, label, index, weight))
        share = logits.new_full((len(label),), 1 / len(label)) if weight is None else weight.float() / len(label)
        if fused(state.v):
            u, v, place, rows = state.u.view(-1), state.v, state.place(index, label), index
        else:
            u, v = state.rows(index, label, logits)
            place = rows = torch.arange(len(label))
        loss, gradient = fused_loss(logits, share, u, v, place, rows, label, self.variant)
        self._keep(index, label, gradient, weight)
        return loss

    def each(self, logits: Tensor, label: Tensor, index: Tensor, weight: Tensor | None = None) -> Tensor:
        """L_CE of each example (B,), without its weight, by tensor operations; otherwise as `forward`."""
        p = logits.softmax(dim=1)
        u, v = self.state.rows(index, label, p)
        self._keep(index, label, gradients(p.detach(), u, v, label, self.variant), weight)
        return sop_loss(p, noise_term(u, v, label), label, self.variant)

    def corrected(self, p: Tensor, label: Tensor, index: Tensor) -> Tensor:
        """φ(p + s) (B, K): the predictions with the noise added."""
        return mapped(p, noise_term(*self.state.rows(index, label, p), label))

    def step(self, lr: float | None) -> None:
        """Move u and v of the batches since the last step; `lr` is the network's learning rate τ, for paper rates."""
        if not self._pending:
            raise InputError("step() needs a batch first; call the loss in train mode, then step() once")
        for index, label, gradient in self._pending:
            rates = [self._rate(rate, lr, len(index)) for rate in (self.lr_u, self.lr_v)]
            self.state.move(index, label, gradient, *rates, project=self.variant == "paper")
        self._pending.clear()

    def _keep(self, index: Tensor, label: Tensor, gradient: Gradients, weight: Tensor | None) -> None:
        """Remember a batch for the next step, if it is one to train on."""
        if not (self.training and torch.is_grad_enabled()):
            return
        if weight is not None:
            visit = weight.to(gradient.u).clamp(max=1)  # (B,)
            gradient = Gradients(gradient.u * visit, gradient.v * visit[:, None])
        self._pending.append((index, label, gradient))

    def _rate(self, rate: float | str, lr: float | None, batch: int) -> float:
        """How far one visit moves u or v along its example's gradient."""
        if isinstance(rate, str):
            return self.auto
        if self.variant == "authors":
            return rate / batch
        if lr is None:
            raise InputError(
                "the paper's rates are multiples of the network's learning rate; pass it: "
                "step(lr=optimizer.param_groups[0]['lr'])"
            )
        return rate * lr

    def beliefs(self, p: Tensor, label: Tensor) -> Beliefs:
        """What s and the network's predictions p (n, K) say of each example and its label (n,).

        p + s is fitted to y, so y − s is an estimate of what p estimates: 1 − u² at the label, v² elsewhere. But u² ≈ 0
        says only that nothing was explained away: the label is right, or its example was not visited often enough. So
        the share 1 − u² goes to p, and with q the v² of the other classes, as shares of their sum,

            soft label = ((1 − u²) p + u² q + p) / 2,   suspicion = (u² + 1 − p_y) / 2

        where p has its half for two reasons: u may be awake before v is, and u², which ends near 0 or 1, does not rank
        the labels in between.
        """
        noise = self.state.noise(label).float().cpu()  # (n,)
        label, p = label.cpu()[:, None], p.float().cpu()
        other = (self.state.other().float().cpu() + 1e-12).scatter(1, label, 0.0)  # (n, K)
        share = noise[:, None] / 2
        soft_label = (1 - share) * p + share * other / other.sum(dim=1, keepdim=True)  # (n, K)
        given = p.gather(1, label).squeeze(1)  # (n,)
        return Beliefs(soft_label, ((1 - given + noise) / 2).clamp(0, 1))


class SOPLoss(nn.Module):
    """SOP for anybody's loop: −log φ(p + s)_y, with the label noise s of each example learned beside the network.

        criterion = SOPLoss(num_examples=50_000, num_classes=10)
        loss = criterion(logits, label, index)
        loss.backward(); optimizer.step(); criterion.step()
        criterion.noise()                                        # (n,): how much of each label is noise

    Eqs. (5)–(9) and Algorithm 1 of Liu et al. (2022). Whatever the reduction, a step moves the u and v of each example
    of the batch by a rate times the derivative of that example's own losses. It can be differentiated once.

    Differs from the paper: Algorithm 1 moves u and v at the end of an epoch, this at each visit, as the authors' code.
    ε of Eq. (7), which it does not give, is theirs, 1e-4, but 0.1/K for more than 1,000 classes.
    Differs from the authors' code: a dense optimizer over n × K entries is replaced by an update of the touched rows,
    and the state is in the state_dict.

    Args:
        num_examples: n, the size of the full training set.
        num_classes: K.
        lr_u, lr_v: "auto", whatever the batch size: a label that the network always contradicts is explained away
            after `visits`. Or a number, at least 0: with variant="authors" the rate is lr / B; with "paper" it is
            lr · τ, and `step` must be told the network's learning rate τ. The paper's numbers: `recipes`.
        variant: "authors": u is trained by cross-entropy and squared error, u² and v² are clamped to at most 1;
            "paper": u is trained by cross-entropy alone, u and v are projected to [−1, 1].
        visits: at least 1; for "auto".
        std: of the initial u and v, in (0, 1); the paper: 1e-8. For state_dtype="float16", at least 1.9e-9.
        full_u: K entries of u for each example in place of one; they matter only where an example changes its label.
        state_dtype: what u and v are kept in: "float32", "float16", "bfloat16" or "float64".
        state_file: keep u and v in this file, memory-mapped.
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
        lr_u: float | str = "auto",
        lr_v: float | str = "auto",
        variant: str = "authors",
        visits: float = 15,
        std: float = 1e-8,
        full_u: bool = False,
        state_dtype: str = "float32",
        state_file: str | None = None,
        reduction: str = "mean",
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.guard = IndexGuard(num_examples, repeats=True, relabel=full_u)
        self.num_classes = checks.integer("num_classes", num_classes, 2)
        self.reduction = checks.reduction(reduction)
        self.model = NoiseModel(
            num_examples,
            num_classes,
            torch.Generator().manual_seed(seed),
            lr_u=_rate("lr_u", lr_u),
            lr_v=_rate("lr_v", lr_v),
            variant=one_of("variant", variant, VARIANTS),
            visits=checks.number("visits", visits, 1),
            std=_std(std, state_dtype),
            full_u=checks.boolean("full_u", full_u),
            state_dtype=state_dtype,
            state_file=_path("state_file", state_file),
        )

    def forward(self, logits: Tensor, label: Tensor, index: Tensor) -> Tensor:
        """The loss of a batch; `step()` afterwards moves the u and v of its examples.

        Args:
            logits: (B, K).
            label: (B,) int64 in 0..K-1.
            index: (B,) int64, positions in the full training set; repeats are allowed.

        Raises:
            InputError: a malformed batch, or an index that comes with another label than before.
        """
        logits = checks.logits_and_label(logits, label, self.num_classes)
        self.guard(index, label)
        if self.reduction == "none":
            return self.model.each(logits, label, index)
        mean = self.model(logits, label, index)
        return mean if self.reduction == "mean" else mean * len(label)

    def step(self, lr: float | None = None) -> None:
        """Move u and v of the examples of the last batch; `lr`: the network's learning rate, for the paper's rates."""
        self.model.step(lr)

    def noise(self) -> Tensor:
        """How much of each example's label, as last seen, the noise has taken over: u² (n,), in [0, 1]."""
        return self.model.state.noise(self.guard.label.clamp_min(0))


class SparseOverParameterization(Method):
    """What SOP and SOP+ share: their options, and the noise model's place in the loop."""

    paper = "Liu et al. 2022"

    def __init__(
        self,
        *,
        lr_u: float | str,
        lr_v: float | str,
        variant: str,
        visits: float,
        std: float,
        full_u: bool,
        state_dtype: str,
        state_file: str | None,
    ) -> None:
        super().__init__()
        self.lr_u, self.lr_v = _rate("lr_u", lr_u), _rate("lr_v", lr_v)
        self.variant = one_of("variant", variant, VARIANTS)
        self.visits = checks.number("visits", visits, 1)
        self.std = _std(std, state_dtype)
        self.full_u = checks.boolean("full_u", full_u)
        self.state_dtype = state_dtype
        self.state_file = _path("state_file", state_file)

    def start(self, run: Run) -> None:
        self.noise = NoiseModel(
            len(run.data),
            run.num_classes,
            run.generator,
            lr_u=self.lr_u,
            lr_v=self.lr_v,
            variant=self.variant,
            visits=min(self.visits, max(_FEWEST_VISITS, run.epochs / 2)),
            std=self.std,
            full_u=self.full_u or self.labels_change,
            state_dtype=self.state_dtype,
            state_file=self.state_file,
        )

    def after_step(self, run: Run, batch: Batch) -> None:
        self.noise.step(run.lr)

    def beliefs(self, run: Run, predicted: Tensor) -> Beliefs:
        return self.noise.beliefs(predicted, run.data.labels)


class SOP(SparseOverParameterization):
    """Learn the label noise s of each example beside the network, so that the network need not.

    Eqs. (5)–(9) and Algorithm 1 of Liu et al. (2022).

    Differs from the paper and from the authors' code: see `SOPLoss`.

    Args:
        lr_u, lr_v: "auto": a label that the network always contradicts is explained away after `visits` epochs (or half
            of a shorter run, but at least 8), whatever the batch size. Or a number, at least 0: divided by the batch
            size with variant="authors", times the learning rate with "paper".
        variant: "authors" (u is trained by cross-entropy and squared error, u² and v² are clamped) or "paper" (by
            cross-entropy alone, u and v are projected).
        visits: at least 1; for "auto". Fewer explain away right labels that are merely hard, more let wrong ones be
            memorised first.
        std: of the initial u and v, in (0, 1).
        full_u: K entries of u for each example in place of one; for labels that change during the run. Within
            `label_noise`, where they do, it is on by itself.
        state_dtype: what u and v are kept in: "float32", "float16", "bfloat16" or "float64".
        state_file: keep u and v in this file, memory-mapped, for n · K beyond memory.

    Raises:
        InputError: an argument outside its range.
    """

    name = "sop"

    def __init__(
        self,
        *,
        lr_u: float | str = "auto",
        lr_v: float | str = "auto",
        variant: str = "authors",
        visits: float = 15,
        std: float = 1e-8,
        full_u: bool = False,
        state_dtype: str = "float32",
        state_file: str | None = None,
    ) -> None:
        super().__init__(
            lr_u=lr_u, lr_v=lr_v, variant=variant, visits=visits, std=std, full_u=full_u, state_dtype=state_dtype,
            state_file=state_file,
        )  # fmt: skip

    def loss(self, run: Run, batch: Batch) -> Tensor:
        logits = checks.single(run.model(batch.views[0]))  # (B, K)
        return self.noise(logits, batch.label, batch.index, batch.weight)


def _path(name: str, value: Any) -> str | None:
    if value is not None and not isinstance(value, str):
        raise InputError(f"{name} must be the path of a file, or None, got {value!r}")
    return value


def _std(std: float, state_dtype: str) -> float:
    """The standard deviation of the initial u and v, if their type can hold such numbers."""
    least = smallest(one_of("state_dtype", state_dtype, DTYPES))
    std = checks.number("std", std, 0, 1, ends="()")
    if std < least:
        raise InputError(
            f"std must be at least {least:.2g} with state_dtype={state_dtype!r}, which holds no smaller u and v in "
            f"full, got {std:g}; raise it, or choose state_dtype='float32'"
        )
    return std


def _rate(name: str, rate: float | str) -> float | str:
    return rate if rate == "auto" else checks.number(name, rate, 0)


def one_of(name: str, value: Any, known: Sequence[str] | dict[str, Any]) -> str:
    if not isinstance(value, str) or value not in known:
        raise unknown(name, str(value), known)
    return str(value)

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
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, fields
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from noiseproof import checks
from noiseproof.errors import InputError
from noiseproof.method import Batch, Beliefs, Method, Run
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
    phi = mapped(p, s).gather(1, label[:, None]).squeeze(1)  # (B,)
    return -(phi.clamp_min(floor(p.shape[1])) if variant == "authors" else phi).log()  # Eq. (8)


def gradients(p: Tensor, u: Tensor, v: Tensor, label: Tensor, variant: str) -> tuple[Tensor, Tensor]:
    """∂L_CE/∂u and ∂L_MSE/∂v of each example, in closed form; with the authors' variant, ∂(L_CE + L_MSE)/∂u.

    ∂L_CE/∂u = 2u (1/Σ max(w, ε) − 1/w_y) where w_y > ε, else 0, with w = p + s;
    ∂L_MSE/∂v_k = −4 v_k (h_k − v_k²) for k ≠ y; ∂L_MSE/∂u = 4u (h_y + u² − 1); 0 where u² or v² is clamped.

    Differs from the paper: (A.2) and (A.4) print the derivatives with respect to v with the opposite sign, as if s had
    +v²; with it the update of Algorithm 1 would shrink v where it should grow.

    Of p (B, K), u (B,), v (B, K) and label (B,): (B,) and (B, K).
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
    return du, dv


def auto_rate(visits: float, std: float) -> float:
    """The rate at which a label that the network always contradicts is explained away after so many visits.

    While v is small, a visit multiplies it by 1 + 4·rate (L_MSE); from `std` it must reach about 1.
    """
    return math.expm1(-math.log(std) / visits) / 4


@dataclass(kw_only=True, eq=False, repr=False)
class NoiseOptions:
    """How u and v begin and move: the options of `SOPLoss`, `SOP` and `SOPPlus`, defined and checked in this one place.

    A class that inherits them has them as keyword arguments and as attributes, beside fields of its own.

    Args:
        lr_u, lr_v: "auto", whatever the batch size: a label that the network always contradicts is explained away
            after `visits`. Or a number, at least 0: with variant="authors" the rate is lr / B; with "paper" it is
            lr · τ, where τ is the network's learning rate. The paper's numbers: `recipes`.
        variant: "authors": u is trained by cross-entropy and squared error, u² and v² are clamped to at most 1;
            "paper": u is trained by cross-entropy alone, u and v are projected to [−1, 1].
        visits: at least 1; for "auto". Fewer explain away right labels that are merely hard, more let wrong ones be
            memorised first.
        std: of the initial u and v, in (0, 1), and no less than single precision holds in full; the paper: 1e-8.
        full_u: K entries of u for each example in place of one; they matter only where an example changes its label.
    """

    lr_u: float | str = "auto"
    lr_v: float | str = "auto"
    variant: str = "authors"
    visits: float = 15
    std: float = 1e-8
    full_u: bool = False

    def __post_init__(self) -> None:
        super().__init__()  # that of nn.Module, which those that inherit the options are
        for name in ("lr_u", "lr_v"):
            if not (isinstance(getattr(self, name), str) and getattr(self, name) == "auto"):
                setattr(self, name, checks.number(name, getattr(self, name), 0))
        checks.choice("variant", self.variant, VARIANTS)
        self.visits = checks.number("visits", self.visits, 1)
        self.std = checks.number("std", self.std, torch.finfo(torch.float32).tiny, 1, ends="[)")
        self.full_u = checks.boolean("full_u", self.full_u)

    def noise_options(self, **changes: Any) -> NoiseOptions:
        """These options without the fields of a class that inherits them, and with some changes."""
        return NoiseOptions(**{option.name: getattr(self, option.name) for option in fields(NoiseOptions)} | changes)

    def rates(self, lr: float | None, batch: int) -> list[float]:
        """How far a visit moves u and v along the gradients of its example, in a batch of this size."""
        unit = 1 / batch if self.variant == "authors" else lr
        if unit is None and not self.lr_u == self.lr_v == "auto":
            raise InputError(
                "the paper's rates are multiples of the network's learning rate; pass it: "
                "step(lr=optimizer.param_groups[0]['lr'])"
            )
        auto = auto_rate(self.visits, self.std)
        return [auto if isinstance(rate, str) or unit is None else rate * unit for rate in (self.lr_u, self.lr_v)]


class NoiseModel(nn.Module):
    """u and v of a training set, the loss they take part in, and their steps: what `SOPLoss` and the methods share."""

    u: Tensor  # (n,), or (n, K) with `full_u`: one for each label an example might carry
    v: Tensor  # (n, K)

    def __init__(self, num_examples: int, num_classes: int, options: NoiseOptions, generator: torch.Generator) -> None:
        super().__init__()
        self.options = options
        own = (num_examples, num_classes) if options.full_u else (num_examples,)
        for name, shape in (("u", own), ("v", (num_examples, num_classes))):
            self.register_buffer(name, torch.randn(shape, generator=generator).mul_(options.std))
        self.pending: list[tuple[Tensor, ...]] = []  # index, label, ∂u, ∂v of the batches since the last step

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        # to another device, but in single precision: half of it takes 1e-8 for 0
        return super()._apply(lambda t: t.to(fn(t.new_empty(0)).device), recurse)

    def forward(self, logits: Tensor, label: Tensor, index: Tensor, weight: Tensor | None = None) -> Tensor:
        """L_CE of each example (B,), without its weight; in train mode, `step` then moves its u and v.

        An example's weight is that of its losses, and so of the derivatives by its u and v; but no visit counts for
        more than one, which the rates are made for. Of logits (B, K), label (B,), index (B,), weight (B,) or None.
        """
        p = logits.softmax(dim=1)
        u, v = self.rows(index, label, p)
        if self.training and torch.is_grad_enabled():
            du, dv = gradients(p.detach(), u, v, label, self.options.variant)  # (B,), (B, K)
            if weight is not None:
                visit = weight.to(u).clamp(max=1)  # (B,)
                du, dv = du * visit, dv * visit[:, None]
            self.pending.append((index, label, du, dv))
        return sop_loss(p, noise_term(u, v, label), label, self.options.variant)

    def corrected(self, p: Tensor, label: Tensor, index: Tensor) -> Tensor:
        """φ(p + s) (B, K): the predictions with the noise added."""
        return mapped(p, noise_term(*self.rows(index, label, p), label))

    def step(self, lr: float | None, size: int | None = None) -> None:
        """Move u and v of the batches since the last step.

        `lr` is the network's learning rate τ, for paper rates; `size` that of a batch of which only a part was seen.
        """
        if not self.pending:
            raise InputError("step() needs a batch first; call the loss in train mode, then step() once")
        count = sum(len(index) for index, *_ in self.pending) if size is None else size * len(self.pending)
        rate_u, rate_v = self.options.rates(lr, count)
        for index, label, du, dv in self.pending:
            self.move(index, label, -rate_u * du, -rate_v * dv)
        self.pending.clear()

    def rows(self, index: Tensor, label: Tensor, like: Tensor) -> tuple[Tensor, Tensor]:
        """u (B,) and v (B, K) of some examples, in the precision of `like`."""
        u = self.u.view(-1).index_select(0, self._place(index, label))
        return u.to(like), self.v.index_select(0, index).to(like)

    def move(self, index: Tensor, label: Tensor, by_u: Tensor, by_v: Tensor) -> None:
        """Add (B,) to u and (B, K) to v of the rows `index`, repeated rows again; the paper's stay in [−1, 1]."""
        for tensor, at, by in ((self.u.view(-1), self._place(index, label), by_u), (self.v, index, by_v)):
            tensor.index_add_(0, at, by.to(tensor))
            if self.options.variant == "paper":
                tensor[at] = tensor[at].clamp(-1, 1)

    def noise(self, label: Tensor) -> Tensor:
        """u² of each example (n,) for its label (n,), at most 1."""
        place = self._place(torch.arange(len(self.u), device=self.u.device), label.to(self.u.device))
        return self.u.view(-1)[place].square().clamp(max=1)

    def _place(self, index: Tensor, label: Tensor) -> Tensor:
        """Where u of each example lies in u laid flat: (B,)."""
        return index if self.u.ndim == 1 else index * self.u.shape[1] + label

    def beliefs(self, p: Tensor, label: Tensor) -> Beliefs:
        """What s and the network's predictions p (n, K) say of each example and its label (n,).

        p + s is fitted to y, so y − s is an estimate of what p estimates: 1 − u² at the label, v² elsewhere. But u² ≈ 0
        says only that nothing was explained away: the label is right, or its example was not visited often enough. So
        the share 1 − u² goes to p, and with q the v² of the other classes, as shares of their sum,

            soft label = ((1 − u²) p + u² q + p) / 2,   suspicion = (u² + 1 − p_y) / 2

        where p has its half for two reasons: u may be awake before v is, and u², which ends near 0 or 1, does not rank
        the labels in between.
        """
        noise = self.noise(label).cpu()  # (n,)
        label, p = label.cpu()[:, None], p.float().cpu()
        other = (self.v.cpu().square().clamp(max=1) + 1e-12).scatter(1, label, 0.0)  # (n, K)
        share = noise[:, None] / 2
        soft_label = (1 - share) * p + share * other / other.sum(dim=1, keepdim=True)  # (n, K)
        given = p.gather(1, label).squeeze(1)  # (n,)
        return Beliefs(soft_label, ((1 - given + noise) / 2).clamp(0, 1))


@dataclass(eq=False, repr=False)
class SOPLoss(NoiseOptions, nn.Module):
    """SOP for anybody's loop: −log φ(p + s)_y, with the label noise s of each example learned beside the network.

        criterion = SOPLoss(num_examples=50_000, num_classes=10)
        loss = criterion(logits, label, index)
        loss.backward(); optimizer.step(); criterion.step()      # the last moves u and v; without it there is no SOP
        criterion.noise()                                        # (n,): how much of each label is noise

    Eqs. (5)–(9) and Algorithm 1 of Liu et al. (2022). Whatever the reduction, a step moves the u and v of each example
    of the batch by a rate times the derivative of that example's own losses.

    Differs from the paper: Algorithm 1 moves u and v at the end of an epoch, this at each visit, as the authors' code.
    ε of Eq. (7), which it does not give, is theirs, 1e-4, but 0.1/K for more than 1,000 classes.
    Differs from the authors' code: a dense optimizer over n × K entries is replaced by an update of the touched rows,
    and the state is in the state_dict.

    Args:
        num_examples, num_classes: n, the size of the full training set, and K.
        lr_u, lr_v, variant, visits, std, full_u: see `NoiseOptions`. With numbers for lr_u or lr_v and variant="paper",
            `step` must be told the network's learning rate.
        reduction: "mean", "sum" or "none"; seed: of the initial u and v.
        accumulate: batches between two calls of `step`, where gradients are accumulated; they move u and v as one.

    Raises:
        InputError: an argument outside its range.
    """

    num_examples: int
    num_classes: int
    _: KW_ONLY
    reduction: str = "mean"
    seed: int = 0
    accumulate: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        self.guard = IndexGuard(self.num_examples, repeats=True, relabel=self.full_u)
        self.num_classes = checks.integer("num_classes", self.num_classes, 2)
        self.reduction = checks.reduction(self.reduction)
        self.accumulate = checks.integer("accumulate", self.accumulate, 1)
        generator = torch.Generator().manual_seed(checks.integer("seed", self.seed, 0))
        self.model = NoiseModel(self.num_examples, self.num_classes, self.noise_options(), generator)

    def forward(self, logits: Tensor, label: Tensor, index: Tensor) -> Tensor:
        """The loss of a batch; `step()` afterwards moves the u and v of its examples.

        Args:
            logits: (B, K); label: (B,) int64 in 0..K-1.
            index: (B,) int64, positions in the full training set; repeats are allowed.

        Raises:
            InputError: a malformed batch, an index with another label than before, no `step()` in time.
        """
        logits = checks.logits_and_label(logits, label, self.num_classes)
        self.guard(index, label)
        if len(self.model.pending) >= self.accumulate and self.training and torch.is_grad_enabled():
            raise InputError(
                "a training batch came without a step, so u and v stand still and this is plain cross-entropy; add "
                "criterion.step() after loss.backward() (accumulate=k: every k), criterion.eval() where you only look"
            )
        return checks.reduce(self.model(logits, label, index), self.reduction)

    def step(self, lr: float | None = None) -> None:
        """Move u and v of the last examples; `lr`: the network's learning rate, for the paper's rates."""
        self.model.step(lr)

    def noise(self) -> Tensor:
        """How much of each example's label, as last seen, the noise has taken over: u² (n,), in [0, 1]."""
        return self.model.noise(self.guard.label.clamp_min(0))


class SparseOverParameterization(NoiseOptions, Method):
    """What SOP and SOP+ share: the noise model's place in the loop."""

    paper = "Liu et al. 2022"
    rows = ("noise.u", "noise.v")
    plans = True  # u and v have moved by half of them

    def start(self, run: Run) -> None:
        visits = min(self.visits, max(_FEWEST_VISITS, run.epochs / 2))
        options = self.noise_options(visits=visits, full_u=self.full_u or self.labels_change)
        self.noise = NoiseModel(len(run.data), run.num_classes, options, run.generator)

    def after_step(self, run: Run, batch: Batch) -> None:
        self.noise.step(run.lr, batch.size)

    def beliefs(self, run: Run, predicted: Tensor) -> Beliefs:
        return self.noise.beliefs(predicted, run.data.labels)


class SOP(SparseOverParameterization):
    """Learn the label noise s of each example beside the network, so that the network need not.

    Eqs. (5)–(9) and Algorithm 1 of Liu et al. (2022).

    Differs from the paper and from the authors' code: see `SOPLoss`.

    Args:
        lr_u, lr_v, variant, visits, std, full_u: see `NoiseOptions`. `visits` are epochs, at most half of the run but
            no fewer than 8; `full_u` is on by itself within `label_noise`, where labels change during the run.

    Raises:
        InputError: an argument outside its range.
    """

    name = "sop"

    def loss(self, run: Run, batch: Batch) -> Tensor:
        logits = checks.single(run.model(batch.views[0]))  # (B, K)
        return batch.mean(self.noise(logits, batch.label, batch.row, batch.weight))

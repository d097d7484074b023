"""u and v of SOP: how they begin, what they add to the predictions, how they move. In words: sop.py."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from noiseproof import checks
from noiseproof.errors import InputError, shown
from noiseproof.method import Batch, Beliefs
from noiseproof.methods._judged import judged
from noiseproof.methods.sop_terms import gradients, mapped, mean_prediction, noise_term, sop_loss
from noiseproof.methods.waking import Waking

VARIANTS = ("paper", "authors")
FOLLOW = "follow"
_STD = 1e-8  # the paper's
VISITS = 15.0  # after which automatic rates have explained a label away
_MEMORY = 10.0  # visits over which the predictions are averaged, where u and v follow them


def auto_rate(visits: float, std: float) -> float:
    """The rate at which a label that the network always contradicts is explained away after so many visits.

    While v is small, a visit multiplies it by 1 + 4·rate (L_MSE); from `std` it must reach about 1.
    """
    return math.expm1(-math.log(std) / visits) / 4


def _rate(name: str, value: Any) -> float | str:
    """The check of a rate: a number, "auto" or "follow"."""
    return value if isinstance(value, str) and value in ("auto", FOLLOW) else checks.number(name, value, 0)


@dataclass(kw_only=True, eq=False, repr=False)
class NoiseOptions:
    """How u and v begin and move: the options of `SOPLoss`, `SOP` and `SOPPlus`, defined and checked in this one place.

    A class that inherits them has them as keyword arguments and as attributes, beside fields of its own.

    Args:
        lr_u, lr_v: "follow", both: no rates; u and v follow the mean prediction, once the network memorises (sop.py).
            Or a number, at least 0: with variant="authors" the rate is lr / B; with "paper" it is lr · τ, where τ is
            the network's learning rate. The paper's numbers: `recipes`. Or "auto": a rate by which, whatever the batch
            size, a label that the network always contradicts is explained away after `visits`.
        variant: "authors": u is trained by cross-entropy and squared error, u² and v² are clamped to at most 1;
            "paper": u is trained by cross-entropy alone, u and v are projected to [−1, 1].
        visits: at least 1; of "auto" alone, None: 15. Fewer explain away right labels that are merely hard, more let
            wrong ones be memorised first.
        std: of the initial u and v, in (0, 1), and no less than single precision holds in full; the paper: 1e-8. Where
            they follow, they begin at 0.
        full_u: K entries of u for each example in place of one; they matter only where an example changes its label.
    """

    lr_u: float | str = checks.option(FOLLOW, _rate)
    lr_v: float | str = checks.option(FOLLOW, _rate)
    variant: str = checks.option("authors", checks.choice, allowed=VARIANTS)
    visits: float | None = checks.option(None, checks.optional(checks.number, low=1))
    std: float = checks.option(_STD, checks.number, low=torch.finfo(torch.float32).tiny, high=1, ends="[)")
    full_u: bool = checks.option(False, checks.boolean)

    def __post_init__(self) -> None:
        super().__init__()  # that of nn.Module, which those that inherit the options are
        checks.options(self)
        self.follows = self.lr_u == self.lr_v == FOLLOW
        if not self.follows and FOLLOW in (self.lr_u, self.lr_v):
            raise InputError(f"lr_u is {shown(self.lr_u)} and lr_v {shown(self.lr_v)}; let both follow, or neither")
        for name, value, default in (("visits", self.visits, None), ("std", self.std, _STD)):
            if self.follows and value != default:
                raise InputError(f"{name}={value:g} is for u and v with rates; pass lr_u='auto', lr_v='auto' with it")

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
        auto = auto_rate(VISITS if self.visits is None else self.visits, self.std)
        return [auto if isinstance(rate, str) or unit is None else rate * unit for rate in (self.lr_u, self.lr_v)]


class NoiseModel(nn.Module):
    """u and v of a training set, the loss they take part in, and their steps: what `SOPLoss` and the methods share."""

    u: Tensor  # (n,), or (n, K) with `full_u`: one for each label an example might carry
    v: Tensor  # (n, K)

    def __init__(
        self, num_examples: int, num_classes: int, options: NoiseOptions, generator: torch.Generator, *, val: int = 0
    ) -> None:
        super().__init__()
        self.options = options
        own = (num_examples, num_classes) if options.full_u else (num_examples,)
        for name, shape in (("u", own), ("v", (num_examples, num_classes))):
            start = torch.zeros(shape) if options.follows else torch.randn(shape, generator=generator) * options.std
            self.register_buffer(name, start)
        self.waking = Waking(num_examples, generator, val=val, automatic=options.follows)
        self.pending: list[tuple[Tensor, ...]] = []  # of the batches since the last step: index, label, ∂u, ∂v or new v

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        # to another device, but in single precision: half of it takes 1e-8 for 0
        return super()._apply(lambda t: t.to(fn(t.new_empty(0)).device), recurse)

    def forward(
        self, logits: Tensor, label: Tensor, index: Tensor, weight: Tensor | None = None, batch: Batch | None = None
    ) -> Tensor:
        """L_CE of each example (B,), without its weight; in train mode, `step` then moves its u and v.

        An example's weight is that of its losses, and so of the derivatives by its u and v; but no visit counts for
        more than one, which the rates are made for. Of logits (B, K), label (B,), index (B,), weight (B,) or None.
        """
        p = logits.softmax(dim=1)
        u, v = self.rows(index, label, p)
        shown = torch.ones_like(u)  # (B,)
        if self.training and torch.is_grad_enabled():
            visit = shown if weight is None else weight.to(u).clamp(max=1)  # (B,)
            if self.options.follows:
                said = torch.where(p.detach().isfinite().all(dim=1, keepdim=True), p.detach(), v.square())  # (B, K)
                v = torch.lerp(v.square(), said, visit[:, None] / _MEMORY).sqrt()  # a mean never forgets a NaN
                at, gather = (index, None) if batch is None else (batch.index, batch.gather)
                shown = self.waking.see(p, mean_prediction(v), label, at, gather)
                self.pending.append((index, label, v))
            else:
                du, dv = gradients(p.detach(), u, v, label, self.options.variant)  # (B,), (B, K)
                self.pending.append((index, label, du * visit, dv * visit[:, None]))
        s = self.term(u, v, label)
        loss = sop_loss(p, s, label, self.options.variant)
        if self.options.follows:  # without s it is cross-entropy, but for the clamp of Eq. (7)
            loss = shown * torch.where(s.any(dim=1), loss, F.cross_entropy(logits, label, reduction="none"))
        return loss

    def term(self, u: Tensor, v: Tensor, label: Tensor) -> Tensor:
        """s (B, K), Eq. (5); where u and v follow y − e_c where the mean prediction contradicts y by c, else 0."""
        if not self.options.follows:
            return noise_term(u, v, label)
        found, guess = self.waking.contradicts(mean_prediction(v), label)  # (B,), (B,)
        size = found.to(v)[:, None]  # (B, 1)
        return torch.zeros_like(v).scatter(1, guess[:, None], -size).scatter(1, label[:, None], size)

    def corrected(self, p: Tensor, label: Tensor, index: Tensor) -> Tensor:
        """φ(p + s) (B, K): the predictions with the noise added."""
        return mapped(p, self.term(*self.rows(index, label, p), label))

    def step(self, lr: float | None, size: int | None = None) -> None:
        """Move u and v of the batches since the last step.

        `lr` is the network's learning rate τ, for paper rates; `size` that of a batch of which only a part was seen.
        """
        if not self.pending:
            raise InputError("step() needs a batch first; call the loss in train mode, then step() once")
        count = sum(len(index) for index, *_ in self.pending) if size is None else size * len(self.pending)
        rates = () if self.options.follows else self.options.rates(lr, count)
        for index, label, *moves in self.pending:
            if self.options.follows:
                self.follow(index, label, *moves)
            else:
                self.move(index, label, *(-rate * by for rate, by in zip(rates, moves, strict=True)))
        self.pending.clear()

    def follow(self, index: Tensor, label: Tensor, v: Tensor) -> None:
        """Set v² of the rows `index` to those of v (B, K), of repeated rows to their mean, and u² = 1 − t_y."""
        same = (index[:, None] == index).to(self.v)  # (B, B)
        self.v[index] = (same @ v.square().to(self.v) / same.sum(dim=1, keepdim=True)).sqrt()
        given = mean_prediction(self.v[index]).gather(1, label[:, None]).squeeze(1)  # (B,)
        self.u.view(-1)[self._place(index, label)] = (1 - given).clamp_min(0).sqrt()

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

    def explained(self, label: Tensor) -> Tensor:
        """Whether the noise has taken over the label (n,) of each example: (n,)."""
        if self.options.follows:
            return self.waking.contradicts(mean_prediction(self.v), label.to(self.v.device))[0]
        return self.noise(label) > 0.5

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
        the labels in between. Where u and v follow, so that 1 − u² and v² are the mean prediction t as they stand, it
        is what _judged.py has of q = (t + p) / 2.
        """
        if self.options.follows:
            return judged((mean_prediction(self.v.cpu()) + p.float().cpu()) / 2, label.cpu())
        noise = self.noise(label).cpu()  # (n,)
        label, p = label.cpu()[:, None], p.float().cpu()
        other = (self.v.cpu().square().clamp(max=1) + 1e-12).scatter(1, label, 0.0)  # (n, K)
        share = noise[:, None] / 2
        soft_label = (1 - share) * p + share * other / other.sum(dim=1, keepdim=True)  # (n, K)
        given = p.gather(1, label).squeeze(1)  # (n,)
        return Beliefs(soft_label, ((1 - given + noise) / 2).clamp(0, 1))

"""INCV: find the right labels by cross-validation on the noisy ones, then train on these.

Pengfei Chen, Ben Ben Liao, Guangyong Chen and Shengyu Zhang, "Understanding and Utilizing Deep Neural Networks Trained
with Noisy Labels", ICML 2019, Algorithm 2. With selected examples S, at first none, and candidates C, at first all, in
each round:

    split C at random into halves C₁, C₂
    train from the start on S ∪ C₁; of C₂ select those whose label is predicted, S₂ = {i ∈ C₂: argmax p_i = y_i},
        and remove the r |S₂| of the largest loss; likewise with C₁ and C₂ exchanged
    S ← S ∪ S₁ ∪ S₂;   C ← C without these and those removed

r = ε/(1 − ε), at most 2, by the noise rate ε that the accuracy a on the first half gives, for symmetric noise

    a = (1 − ε)² + ε²/(K − 1)
"""

from __future__ import annotations

import dataclasses
import math

import torch
import torch.nn.functional as F
from torch import Tensor

from noiseproof import checks
from noiseproof.errors import InputError
from noiseproof.method import Batch, Beliefs, Method, Run, Selection, Wrapper
from noiseproof.methods._selected import share_right
from noiseproof.methods._snapshot import Snapshot, tensors_of
from noiseproof.models.inference import losses

CANDIDATE, SELECTED, REMOVED = 0, 1, 2
_MOST = 2.0  # removed for each selected


def noise_rate(accuracy: float, num_classes: int) -> float:
    """ε of a = (1 − ε)² + ε²/(K − 1), the smaller solution; (K − 1)/K where a is below what any ε gives."""
    k = num_classes
    # (K/(K−1)) ε² − 2 ε + (1 − a) = 0
    return (k - 1) / k * (1 - math.sqrt(max(0.0, 1 - k / (k - 1) * (1 - accuracy))))


def judge(loss: Tensor, right: Tensor, removed: float) -> tuple[Tensor, Tensor]:
    """Of a held-out half's losses (m,) and whether labels are predicted (m,): masks (m,) of those selected, removed.

    `removed` is r: that many for each selected, of the largest loss.
    """
    count = min(len(loss), int(removed * int(right.sum())))
    worst = torch.zeros_like(right)
    worst[loss.argsort(descending=True, stable=True)[:count]] = True
    return right, worst & ~right


class INCV(Wrapper):
    """Select by cross-validation the examples whose labels others predict, then train the inner method on them alone.

    Algorithm 2 of Chen et al. (2019).

    Differs from the paper: rounds and the last training are one run, of which the rounds take `share`; each starts from
    the same initial weights and has the rate that the schedule has at that time, and the optimizer's momentum lives on.
    The paper has 4 rounds of 50 + 50 epochs and then 200 epochs of its own co-teaching, on S and later C: that is
    nearly `incv(co_teaching)`, on S alone.
    Differs from the authors' code: of the epochs of a half the one that predicts most labels of the other counts, there
    so in the first rounds.

    Args:
        inner: the method to train with on what was selected; it must not select examples of its own.
        rounds: at least 1; fewer where the run is too short for two epochs of each.
        share: of the run's epochs for the rounds, in (0, 1).
        remove: whether to remove examples of the largest loss from the candidates: yes for symmetric noise, the paper
            says, no for asymmetric.

    Raises:
        InputError: an argument outside its range, or an inner method that selects examples.
    """

    name = "incv"
    paper = "Chen et al. 2019"

    part: Tensor
    side: Tensor
    loss_held: Tensor
    right_held: Tensor
    best: Tensor
    rate: Tensor

    def __init__(self, inner: Method, *, rounds: int = 2, share: float = 0.4, remove: bool = True) -> None:
        super().__init__(inner)
        self.rounds = checks.integer("rounds", rounds, 1)
        self.share = checks.number("share", share, 0, 1, ends="()")
        self.remove = checks.boolean("remove", remove)
        self.plans = True  # the rounds are a share of them

    def start(self, run: Run) -> None:
        super().start(run)
        n = len(run.data)
        self.register_buffer("part", torch.full((n,), CANDIDATE, dtype=torch.int8))
        self.register_buffer("side", torch.zeros(n, dtype=torch.int8))  # of each candidate in this round: 0 or 1
        self.register_buffer("loss_held", torch.zeros(n))  # of examples held out, at the best epoch of the half trained
        self.register_buffer("right_held", torch.zeros(n, dtype=torch.bool))  # and whether their label was predicted
        self.register_buffer("best", torch.tensor(-1.0))  # accuracy on the labels held out, of that epoch; −1: none
        self.register_buffer("rate", torch.tensor(-1.0))  # ε; −1: not known yet
        self.initial = Snapshot(tensors_of(run.models))

    def _plan(self, run: Run) -> tuple[int, int]:
        """The number of halves to train, and the epochs for each."""
        budget = min(max(2, int(self.share * run.epochs)), run.epochs - 1)
        halves = 2 * min(self.rounds, max(1, budget // 4))
        return halves, max(1, budget // halves)

    def _own(self, run: Run) -> Run | None:
        """The run as the inner method sees it, from the end of the rounds on; None before."""
        halves, length = self._plan(run)
        over = run.epoch - halves * length
        return None if over < 0 else dataclasses.replace(run, epoch=over, epochs=run.epochs - halves * length)

    def before_epoch(self, run: Run) -> Selection | None:
        halves, length = self._plan(run)
        number, within = divmod(run.epoch, length)
        if 0 < run.epoch <= halves * length:
            self._look(run, trained=(run.epoch - 1) // length % 2)
        if within == 0 and number <= halves:
            if number % 2 == 0:
                if number > 0:
                    self._decide()
                self.side.copy_(torch.randint(2, (len(self.side),), generator=run.generator))
            self.best.fill_(-1)
            self.initial.restore(tensors_of(run.models))
        own = self._own(run)
        if own is None:
            return Selection(self._rows(number % 2).nonzero().squeeze(1).cpu())
        if self.inner.before_epoch(own) is not None:
            raise InputError(f"incv cannot wrap {self.inner.name}: it selects examples itself; take one of the two")
        chosen = self.part == SELECTED
        return Selection(chosen.nonzero().squeeze(1).cpu()) if chosen.any() else None

    def _rows(self, half: int) -> Tensor:
        """Mask (n,) of what a half is trained on: the selected and its candidates; all, should there be none."""
        rows = (self.part == SELECTED) | ((self.part == CANDIDATE) & (self.side == half))
        return rows if rows.any() else torch.ones_like(rows)

    def _held(self, half: int) -> Tensor:
        """Mask (n,) of the candidates of a half."""
        return (self.part == CANDIDATE) & (self.side == half)

    def _look(self, run: Run, trained: int) -> None:
        """After an epoch of a half: keep what the network says of the other, if it agrees with more of its labels."""
        label, probability = run.data.labels.cpu(), run.predict()
        right = (probability.argmax(dim=1) == label).to(self.best.device)
        held = self._held(1 - trained)
        accuracy = right[held].float().mean() if held.any() else torch.zeros(())
        if accuracy > self.best:
            self.best.copy_(accuracy)
            self.right_held[held] = right[held]
            self.loss_held[held] = losses(probability, label).to(held.device)[held]
            if run.epoch <= self._plan(run)[1]:
                self.rate.fill_(noise_rate(float(accuracy), run.num_classes))

    def _decide(self) -> None:
        """At the end of a round: select and remove among the candidates, in each half by what the other says of it."""
        epsilon = float(self.rate)
        removed = min(_MOST, epsilon / max(1 - epsilon, 1e-6)) if self.remove else 0.0
        for index in [self._held(half).nonzero().squeeze(1) for half in (0, 1)]:
            selected, worst = judge(self.loss_held[index], self.right_held[index], removed)
            self.part[index[selected]] = SELECTED
            self.part[index[worst]] = REMOVED

    def loss(self, run: Run, batch: Batch) -> Tensor:
        own = self._own(run)
        if own is not None:
            return self.inner.loss(own, batch)
        logits = [checks.single(model(batch.views[0])) for model in run.models]
        return sum(
            (batch.mean(F.cross_entropy(one, batch.label, reduction="none")) for one in logits), logits[0].sum() * 0
        )

    def after_step(self, run: Run, batch: Batch) -> None:
        own = self._own(run)
        if own is not None:
            self.inner.after_step(own, batch)

    def stop(self, run: Run) -> bool:
        own = self._own(run)
        return own is not None and own.epoch > 0 and self.inner.stop(own)

    def figures(self, run: Run) -> dict[str, float]:
        own = self._own(run)
        figures = {} if own is None or own.epoch == 0 else self.inner.figures(own)
        return figures | share_right(run, self.part == SELECTED) | {"noise": max(0.0, float(self.rate))}

    def finish(self, run: Run) -> int | None:
        own = self._own(run)
        kept = None if own is None else self.inner.finish(own)
        return None if kept is None else kept + run.epoch - own.epoch  # type: ignore[union-attr]

    def beliefs(self, run: Run, predicted: Tensor) -> Beliefs | None:
        own = self._own(run)
        return None if own is None else self.inner.beliefs(own, predicted)

"""MentorNet, in its predefined form: a curriculum that leaves out examples of a loss above a running percentile.

Lu Jiang, Zhengyuan Zhou, Thomas Leung, Li-Jia Li and Li Fei-Fei, "MentorNet: Learning Data-Driven Curriculum for Very
Deep Neural Networks on Corrupted Labels", ICML 2018. Examples have weights v_i, for which the self-paced problem
min_v Σ_i v_i ℓ_i + Σ_i (½ λ₂ v_i² − (λ₁ + λ₂) v_i), v in [0, 1], has the closed form

    v_i = 1 if ℓ_i ≤ λ₁, 0 if ℓ_i ≥ λ₁ + λ₂, else 1 − (ℓ_i − λ₁)/λ₂         (λ₂ = 0: 1 or 0)

λ₁ is a running mean of the p-th percentile of the losses of a batch. The paper's MentorNet is a network that learns
weights from examples of known correctness ("data-driven"), or imitates these ("predefined"): here they are computed.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor

from noiseproof import checks
from noiseproof.method import Batch, Run
from noiseproof.methods import _warmup

_LINEAR = 0.9  # of the run, after which weights fall linearly, as in the authors' code


def curriculum(loss: Tensor, threshold: Tensor, band: float) -> Tensor:
    """v (B,) of losses (B,): the closed form, λ₁ the threshold and λ₂ the band, 0 or above. Without gradient."""
    above = loss.detach() - threshold  # (B,)
    return (above <= 0).to(loss.dtype) if band == 0 else (1 - above / band).clamp(0, 1)


@dataclass(kw_only=True, eq=False, repr=False)
class MentorNet(_warmup.WarmsUp):
    """Leave out examples whose loss is above a running percentile: the predefined curriculum, without a mentor network.

    The closed form of the paper's self-paced weights, with its burn-in, running percentile and dropout of examples.

    Differs from the paper: the weights are computed by their formula, where it trains a network to imitate them; its
    data-driven MentorNet, which needs examples known to be right or wrong, is not here. The burn-in is a twentieth of
    the run, at least 5 epochs, or a tenth of fewer than 50, in place of a fifth, which is enough to memorise. λ₁ starts
    at the first percentile.
    Differs from the authors' code: there λ₁ starts at 0, and 5 % of the examples are dropped after the burn-in and all
    of them in the last twentieth of the run, which therefore trains nothing; here examples are dropped in the burn-in
    only. As there, λ₂ is 0 until nine tenths of the run are over.

    Args:
        percentile: p in (0, 1), about the share of right labels. The authors' code: 0.7.
        decay: memory of λ₁, in [0, 1). The authors' code: 0.9 as a function, 0.5 by its command line.
        band: λ₂ of the last tenth of the run, 0 or above. The authors' code: 1.
        warmup: epochs of burn-in, in which every example has the weight 1, at least 1; None: a twentieth of all, at
            least 5, or fewer in a run below 50.
        dropout: share of the examples of a batch left out at random in the burn-in, in [0, 1). The authors' code: 0.5.

    Raises:
        InputError: an argument outside its range.
    """

    name = "mentornet"
    paper = "Jiang et al. 2018"
    plans = True  # its last tenth has other weights
    needs = "noise rate"

    percentile: float = checks.option(0.7, checks.number, low=0, high=1, ends="()")
    decay: float = checks.option(0.9, checks.number, low=0, high=1, ends="[)")
    band: float = checks.option(1.0, checks.number, low=0)
    warmup: int | None = checks.option(None, _warmup.option)
    dropout: float = checks.option(0.5, checks.number, low=0, high=1, ends="[)")
    threshold: Tensor = field(init=False)

    def start(self, run: Run) -> None:
        super().start(run)
        self.register_buffer("threshold", torch.tensor(-1.0))  # λ₁; below 0: none yet

    def loss(self, run: Run, batch: Batch) -> Tensor:
        logits = checks.single(run.model(batch.views[0]))  # (B, K)
        loss = F.cross_entropy(logits, batch.label, reduction="none")  # (B,)
        self._move(batch.gather(loss.detach()))
        if run.epoch < self.warm_epochs(run):
            return batch.mean(loss * self._kept(run, batch.gathered().index)[batch.own].to(loss))
        band = self.band if run.epoch >= _LINEAR * run.epochs else 0.0
        return batch.mean(curriculum(loss, self.threshold, band) * loss)

    def _move(self, loss: Tensor) -> None:
        """λ₁ ← decay λ₁ + (1 − decay) · the percentile of the losses (B,)."""
        now = loss.float().quantile(self.percentile)
        moved = torch.where(self.threshold < 0, now, self.decay * self.threshold + (1 - self.decay) * now)
        self.threshold.copy_(torch.where(moved.isfinite(), moved, self.threshold))

    def _kept(self, run: Run, index: Tensor) -> Tensor:
        """Whether each example (B,) of these is not dropped; the order they stand in has no say."""
        drawn = torch.randperm(len(index), generator=run.generator).to(index.device, non_blocking=True)
        rank = drawn[index.argsort().argsort()]  # (B,)
        return rank >= int(len(index) * self.dropout)

    def figures(self, run: Run) -> dict[str, float]:
        return {"threshold": float(self.threshold)}

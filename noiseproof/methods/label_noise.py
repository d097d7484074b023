"""Label-noise SGD: at every step, some labels of the batch are flipped afresh.

Stanley Wei, Tongzheng Ren and Simon S. Du, "On the Synergy Between Label Noise and Learning Rate Annealing in Neural
Network Training", OPT 2023, Sec. 3.1 and Appendices B and D.1. With flips of probability δ, drawn anew at each visit of
an example, its loss is in expectation the smoothed loss

    ℓ̄(y) = (1 − δ) ℓ(y) + δ/(K − 1) · Σ_{k ≠ y} ℓ(k)                      App. D.1; K = 2: (1 − δ) ℓ(z) + δ ℓ(−z)

and what the flips add to it is noise of mean zero that depends on the weights: the regulariser that the paper is about.
"""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from noiseproof import checks
from noiseproof import schedules as schedule
from noiseproof.errors import InputError
from noiseproof.method import Batch, Method, Run, Wrapper


def flip_labels(label: Tensor, num_classes: int, rate: float, generator: torch.Generator) -> Tensor:
    """The labels, each replaced with probability `rate`, δ, by another class, any of the others alike: (B,) to (B,).

    The generator, on the CPU, gives 2 B draws, whatever comes out.
    """
    flipped = torch.rand(label.shape, generator=generator) < rate  # (B,)
    shift = torch.randint(1, num_classes, label.shape, generator=generator)  # (B,) in 1..K-1
    return (label + (flipped * shift).to(label.device)) % num_classes


class LabelNoise(Wrapper):
    """Flip some labels of each batch, afresh at each step: label-noise SGD around any method.

    σ_t y_t for y_t with P(σ_t = −1) = δ, Sec. 3.1 of Wei et al. (2023); with K classes another one at random, as in its
    App. B. Only what the inner method sees of a batch changes: the stored labels, and what beliefs, validation and
    reports compare with, stay as they are.

    Differs from the paper: nothing. There is no additive noise, which is for regression: labels here are classes.

    Args:
        inner: the method to train with. A method keyed by the index of an example sees it with changing labels, and
            is told so by `labels_change`: `sop` then keeps K entries of u. Not `crust` with mixup, which mixes with
            examples from outside the batch: write `crust(label_noise(ce), …)`.
        rate: δ, in [0, 1).
        anneal: how δ changes over the epochs: a schedule, e.g. "cosine" or "anneal_at(0.5, factor=0)". The paper keeps
            it constant, also after the learning rate is annealed.

    Raises:
        InputError: an argument outside its range, or an inner method that would see labels without flips.
    """

    name = "label_noise"
    paper = "Wei et al. 2023"

    def __init__(self, inner: Method, *, rate: float = 0.1, anneal: str = "constant") -> None:
        super().__init__(inner)
        self.rate = checks.number("rate", rate, 0, 1, ends="[)")
        for part in (part for part in inner.modules() if isinstance(part, Method)):
            part.labels_change = True
            if self.rate > 0 and part.looks_up_labels:
                raise InputError(
                    f"label_noise cannot wrap {part.title()} as it is: the labels it mixes in are not of the batch and "
                    f"would not be flipped; turn the two round, as in {part.name}(label_noise(ce), …)"
                )
        checks.require(isinstance(anneal, str), "anneal", anneal, "the text of a schedule, as 'cosine'")
        self.anneal = anneal
        self._factor = schedule.parse(anneal)
        if self._factor.loss is not None:
            raise InputError(f"anneal goes by the epoch, not by the loss, got {anneal!r}; write e.g. 'anneal_at(0.5)'")
        self.plans = inner.plans or self._factor.plans
        self._seen: Batch | None = None  # what the inner method saw in the current step

    def loss(self, run: Run, batch: Batch) -> Tensor:
        rate = self.rate * self._factor(schedule.Clock(run.epoch, run.epochs))
        if rate > 0:
            flips = flip_labels(torch.zeros(batch.size, dtype=torch.int64), run.num_classes, rate, run.generator)
            flips = flips[batch.own].to(batch.label.device, non_blocking=True)
            batch = dataclasses.replace(batch, label=(batch.label + flips) % run.num_classes)
        self._seen = batch
        return self.inner.loss(run, batch)

    def after_step(self, run: Run, batch: Batch) -> None:
        assert self._seen is not None
        self.inner.after_step(run, self._seen)
        self._seen = None

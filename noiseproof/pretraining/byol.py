"""BYOL: predict how a slowly moving copy of the network sees the other view. No negatives.

Jean-Bastien Grill et al., "Bootstrap Your Own Latent: A New Approach to Self-Supervised Learning", NeurIPS 2020. With
the online network's z = f_θ(x), a predictor q, and the target network's z′ = f_ξ(x̃) of the other view:

    L_θ,ξ(x, x̃) = ‖ q(z)/‖q(z)‖ − z′/‖z′‖ ‖² = 2 − 2 ⟨q(z), z′⟩ / (‖q(z)‖ ‖z′‖)                        Eq. (2)
    L = L_θ,ξ(x, x̃) + L_θ,ξ(x̃, x),  minimised over θ and the predictor alone
    after the step:  ξ ← τ ξ + (1 − τ) θ,   τ = 1 − (1 − τ_base)(cos(πt/T) + 1)/2 at step t of T          Eq. (1)
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from noiseproof import checks
from noiseproof.method import Batch, Method, Run
from noiseproof.methods import ema as averages
from noiseproof.methods.refine import confidence
from noiseproof.pretraining.moco import embed, output_size

_MOMENTUM, _DECAY = 0.9, 1e-4  # of the predictor's steps: the defaults of `pretrain`


def prediction_loss(prediction: Tensor, target: Tensor) -> Tensor:
    """The mean of 2 − 2 cos, Eq. (2): predictions (s, d) of any length and targets (s, d) of length 1 to ()."""
    return 2 - 2 * (F.normalize(prediction, dim=1) * target).sum(dim=1).mean()


@dataclass(kw_only=True, eq=False, repr=False)
class BYOL(Method):
    """Bootstrap your own latent: a predictor and a moving target keep it from one answer for all, without negatives.

    Eqs. (1) and (2) of Grill et al. (2020), symmetric.

    Differs from the paper: the projection head has three layers, as that of all methods here, not two. The predictor is
    trained by SGD (momentum 0.9, decay 1e-4) at the run's rate whatever the optimizer of the network, where the paper
    has LARS for both; batch norm is that of a process's own images.

    Args:
        ema: τ_base, the target's memory at the start, in [0, 1]; it rises to 1. The paper: 0.996 over 1,000 epochs of
            ImageNet, 0.99 over 300.
        hidden: the predictor's hidden width, at least 1. The paper: 4,096 for 256 outputs.
        rate: the predictor's learning rate, relative to that of the run; above 0.

    Raises:
        InputError: an argument outside its range.
    """

    name = "byol"
    paper = "Grill et al. 2020"
    needs = "two views"
    cost = "8/3×"
    num_views = 2
    plans = True  # the target's memory rises over them

    ema: float = checks.option(0.99, checks.number, low=0, high=1)
    hidden: int = checks.option(512, checks.integer, low=1, high=10**6)
    rate: float = checks.option(1.0, checks.number, low=0, ends="(]")

    def start(self, run: Run) -> None:
        self.target = averages.follower(run.model)
        self.predictor = make_predictor(output_size(run), self.hidden, run.generator)

    def optimizers(self) -> list[torch.optim.Optimizer]:
        self.steps = torch.optim.SGD(self.predictor.parameters(), lr=1.0, momentum=_MOMENTUM, weight_decay=_DECAY)
        return [self.steps]

    def loss(self, run: Run, batch: Batch) -> Tensor:
        for group in self.steps.param_groups:
            group["lr"] = self.rate * run.lr
        first, second = batch.views
        losses = []
        for query, key in ((first, second), (second, first)):
            with torch.no_grad():
                target = embed(self.target, key)  # (s, d)
            losses.append(prediction_loss(self.predictor(checks.single(run.model(query))), target))
        return losses[0] + losses[1]

    def after_step(self, run: Run, batch: Batch) -> None:
        averages.follow(self.target, run.model, confidence(run.step, run.total_steps, self.ema, 1.0))  # Eq. (1)


def make_predictor(dim: int, hidden: int, generator: torch.Generator) -> nn.Sequential:
    """Two layers from d to d with batch norm and ReLU between, their weights drawn from the generator alone."""
    first, last = (nn.utils.skip_init(nn.Linear, *sizes) for sizes in ((dim, hidden), (hidden, dim)))
    for layer in (first, last):
        nn.init.kaiming_uniform_(layer.weight, math.sqrt(5), generator=generator)
        nn.init.zeros_(layer.bias)
    return nn.Sequential(first, nn.BatchNorm1d(hidden), nn.ReLU(), last)

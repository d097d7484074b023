"""Train on what each label should be, by what the other examples say of it: in closed form, before the first step.

With X (n, F) the inputs, centred, U Σ Vᵀ = X, y the labels, and Y (n, K) at first the same as ones and zeros:

    s_i = what a ridge regression of Y on U Σ^1.5, fitted to all rows but i, says of i                              (1)
    t_i = P(right | s_i, y_i)                                                                                       (2)
    L = −Σ_k t_ik log p_ik                                                                                          (3)

(1) is Eq. (3) of auditing/left_out.py, (2) is Eq. (4) of auditing/posterior.py. Then t takes the place of Y, and both
are done again: a regression of labels that are nearly right needs a smaller penalty, which it chooses by what it says
of the examples left out, and hears more of what they tell. Y_i has no share in s_i: an example is not judged by its own
label, nor by what that was taken for in the round before.

On U Σ^1.5 in place of U Σ, which is X but for a rotation, the weights w of X are penalised by wᵀ(XᵀX)^-½ w: directions
in which inputs differ much, as in words that come together, are believed before others. Noise knows no directions.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from noiseproof import checks
from noiseproof.auditing import left_out, posterior
from noiseproof.data.packing import Packed
from noiseproof.errors import InputError
from noiseproof.method import Batch, Beliefs, Method, Run

ROUNDS = 3
DECAYS = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)  # penalties to choose from, as multiples of the mean variance
MOST_VALUES = 2**29  # of inputs that are read into memory: 2 GiB


def targets(x: np.ndarray, labels: np.ndarray, num_classes: int, rounds: int = ROUNDS, seed: int = 0) -> np.ndarray:
    """t (n, K) float32, rows sum to 1, of inputs x (n, F) and labels (n,)."""
    x, value = left_out.leading(x, seed)
    x, value = x * value**0.25, value**1.5  # U Σ^1.5, up to a factor, and its variances
    target = np.eye(num_classes, dtype=np.float32)[labels]
    for _ in range(rounds):
        score = left_out.as_probability(left_out.regressed(x, value, target, DECAYS))  # Eq. (1)
        target = posterior.fit(labels, [score]).posterior([score], labels).astype(np.float32)  # Eq. (2)
    return target


def soft_cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    """−Σ_k t_k log p_k of each example, Eq. (3), of logits (B, K) and t (B, K): (B,)."""
    return -(target.to(logits.dtype) * logits.log_softmax(dim=1)).sum(dim=1)


@dataclass(kw_only=True, eq=False, repr=False)
class LeftOut(Method):
    """Cross-entropy at what each label should be by what the other examples say: a regression that leaves it out.

    Eqs. (1) to (3) of methods/left_out.py, of the inputs as the network sees them. For inputs in which classes differ
    by many small signs, as texts do by their words, and for linear networks.

    Args:
        rounds: how often (1) and (2) are done, at least 1.

    Raises:
        InputError: an argument outside its range; in `start`, inputs that are no features, or too many.
    """

    name = "left_out"
    paper = "left-out residuals: Allen 1974"
    needs = "inputs that are features"
    looks_up_labels = True

    rounds: int = checks.option(ROUNDS, checks.integer, low=1)
    target: Tensor = field(init=False)

    def start(self, run: Run) -> None:
        labels = run.data.labels.numpy()
        found = targets(_features(run), labels, run.num_classes, self.rounds)
        self.register_buffer("target", torch.from_numpy(found))  # (n, K)

    def loss(self, run: Run, batch: Batch) -> Tensor:
        logits = checks.single(run.model(batch.views[0]))  # (B, K)
        return batch.mean(soft_cross_entropy(logits, self.target[batch.index]))

    def beliefs(self, run: Run, predicted: Tensor) -> Beliefs:
        return Beliefs.of(self.target.cpu(), run.data.labels.cpu())


def _features(run: Run) -> np.ndarray:
    """The inputs (n, F) as the network sees them.

    Raises:
        InputError: they are too many, or no numbers.
    """
    width = int(np.prod(run.data.input_shape))
    if isinstance(run.data.inputs, Packed) or len(run.data) * width > MOST_VALUES:
        raise InputError(f"left_out goes by inputs that are features and fit into memory, got {width:,} of each of "
                         f"{len(run.data):,}; choose another method, e.g. elr")  # fmt: skip
    inputs = run.normalize(run.data.take(torch.arange(len(run.data))).to(run.device))
    return inputs.flatten(1).float().cpu().numpy()

"""A pull towards the initial weights: what lies far from them fits the wrong labels.

Wei Hu, Zhiyuan Li and Dingli Yu, "Simple and Effective Regularization Methods for Training on Noisily Labeled Data with
Generalization Guarantee", ICLR 2020 ("RDI"), with the distance of Li et al. (2020), who show that gradient
descent must stray far from θ₀ to fit wrong labels:

    L(θ) + strength/2 · ‖θ − θ₀‖²
"""

from __future__ import annotations

import torch
from torch import Tensor

from noiseproof import checks
from noiseproof.method import Batch, Method, Run, Wrapper
from noiseproof.methods._snapshot import Snapshot


class Pull(Wrapper):
    """Add strength/2 · ‖θ − θ₀‖² to the inner method's loss: to fit wrong labels the weights must go far.

    As in Hu et al. (2020). Over all trainable parameters of all models, as they are when the run starts.

    Differs from the paper: it has squared loss summed over the examples, so its λ² is strength times n here.

    Args:
        inner: the method whose loss to add to.
        strength: 0 or above.

    Raises:
        InputError: an argument outside its range.
    """

    name = "pull"
    paper = "Hu et al. 2020"

    def __init__(self, inner: Method, *, strength: float = 0.03) -> None:
        super().__init__(inner)
        self.strength = checks.number("strength", strength, 0)

    def start(self, run: Run) -> None:
        super().start(run)
        self.initial = Snapshot(_trainable(run))

    def loss(self, run: Run, batch: Batch) -> Tensor:
        squares = [(p - self.initial[key]).square().sum() for key, p in _trainable(run).items()]
        return self.inner.loss(run, batch) + self.strength / 2 * torch.stack(squares).sum()


def _trainable(run: Run) -> dict[str, Tensor]:
    """The parameters by their position: a wrapper may call the models by other names."""
    return {str(i): p for i, p in enumerate(run.models.parameters()) if p.requires_grad}

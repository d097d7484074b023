"""The one-hidden-layer network of the papers' theory: only the hidden weights are trained."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from noiseproof import checks
from noiseproof.errors import unknown
from noiseproof.models.backbone import Backbone

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "softplus": F.softplus,
    "erf": torch.erf,
    "tanh": torch.tanh,
}
SLOPES: dict[str, Callable[[Tensor], Tensor]] = {  # φ'
    "relu": lambda z: (z > 0).to(z.dtype),
    "softplus": torch.sigmoid,
    "erf": lambda z: 2 / math.sqrt(math.pi) * torch.exp(-z * z),
    "tanh": lambda z: 1 - torch.tanh(z) ** 2,
}


class FixedReadout(nn.Module):
    """A linear map by a fixed matrix: a buffer, so that the parameters of the network are W and nothing else."""

    weight: Tensor

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.register_buffer("weight", weight)  # (K, k)

    def forward(self, hidden: Tensor) -> Tensor:
        return F.linear(hidden, self.weight)  # (B, K)


class ShallowNet(Backbone):
    """f(W, x) = vᵀ φ(W x): one hidden layer without bias, fixed output weights v = ±scale.

    Li et al. 2019 (arXiv:1903.11680), Eq. (1.2), and Zhou et al. 2021 (SANE), Eq. (6): half of v is +1/√k and half
    −1/√k, one entry is zero if k is odd, W starts from N(0, 1) and inputs have unit norm. Wei et al.
    ("On the Synergy Between Label Noise and Learning Rate Annealing") draw each sign at random and start
    W with a small variance τ₀²: `signs="random"`, `init_std=τ₀`.

    Differs from the papers: with more than one output, which they do not treat, each row of the output matrix is
    balanced (or random) in its own random order, so that the classes read nearly orthogonal directions.

    Args:
        in_features: d, or the shape of an input; inputs of more dimensions are flattened.
        num_outputs: 1 for the papers' scalar output, K for logits.
        width: k, the number of hidden units.
        activation: φ: relu, softplus, erf or tanh. The theory of Li et al. needs a smooth one; Wei et al. use relu.
        scale: magnitude of the output weights; None is 1/√k.
        signs: "balanced" (half and half) or "random" (independent fair signs).
        init_std: standard deviation of the initial hidden weights.

    Shape: inputs (B, ...) of d values each -> outputs (B, num_outputs).
    """

    head: FixedReadout

    def __init__(
        self,
        in_features: int | tuple[int, ...],
        num_outputs: int = 1,
        *,
        width: int = 1000,
        activation: str = "relu",
        scale: float | None = None,
        signs: str = "balanced",
        init_std: float = 1.0,
    ) -> None:
        super().__init__()
        size = math.prod(in_features) if isinstance(in_features, tuple) else in_features
        for argument, value in (("in_features", size), ("num_outputs", num_outputs), ("width", width)):
            checks.integer(argument, value, 1)
        checks.choice("activation", activation, ACTIVATIONS)
        if signs not in ("balanced", "random"):
            raise unknown("signs", signs, ("balanced", "random"))
        checks.number("init_std", init_std, 0)
        self.activation = activation
        self.num_features = width
        self.hidden = nn.Linear(size, width, bias=False)
        nn.init.normal_(self.hidden.weight, std=init_std)
        draw = _balanced_signs if signs == "balanced" else _random_signs
        self.head = FixedReadout(draw(num_outputs, width) * (width**-0.5 if scale is None else scale))

    def features(self, x: Tensor) -> Tensor:
        return ACTIVATIONS[self.activation](self.hidden(x.flatten(1)))  # (B, k)


def jacobian_gram(x: Tensor, hidden: Tensor, readout: Tensor, activation: str) -> Tensor:
    """JJᵀ (n, n) of the Jacobian of f(W, x_i) = vᵀφ(Wx_i) in W: XXᵀ ⊙ φ'(WXᵀ)ᵀ diag(v²) φ'(WXᵀ).

    Li et al. 2019, Definition 6.6.

    Args:
        x: (n, d), hidden: W (k, d), readout: v (k,).
    """
    slope = readout[:, None] * SLOPES[activation](hidden @ x.T)  # (k, n)
    return (x @ x.T) * (slope.T @ slope)


@torch.no_grad()
def learning_time(net: ShallowNet, centers: Tensor, sizes: Tensor, classes: Tensor, precision: float) -> float:
    """ητ₀ = 5/α² log(‖Π₊r₀‖/precision), α half the least singular value of J(W₀) over clusters; inf where that is 0.

    Theorem 3.2 of Li et al. (2020).

    Args:
        centers: (K', d), of the clusters, sizes: (K',), classes: (K',), the label of each.
    """
    hidden, readout = net.hidden.weight.double(), net.head.weight[0].double()
    gram = jacobian_gram(centers.double(), hidden, readout, net.activation)  # (K', K')
    root = sizes.double().sqrt()
    least = float(torch.linalg.eigvalsh(root[:, None] * gram * root)[0])
    outputs = net(centers)  # (K', K)
    wanted = torch.eye(outputs.shape[1], device=centers.device)[classes]
    residual = float((root[:, None] * (outputs - wanted)).norm())
    return 5 / (least / 4) * math.log(max(residual / precision, 1.0)) if least > 0 else math.inf


def _balanced_signs(rows: int, width: int) -> Tensor:
    """(rows, width): as many +1 as −1 in each row, a 0 if the width is odd; a single row keeps the order + 0 −."""
    half = width // 2
    row = torch.cat([torch.ones(half), torch.zeros(width - 2 * half), -torch.ones(half)])
    if rows == 1:
        return row[None]
    return torch.stack([row[torch.randperm(width)] for _ in range(rows)])


def _random_signs(rows: int, width: int) -> Tensor:
    """(rows, width) independent fair signs."""
    return torch.randint(2, (rows, width)) * 2.0 - 1.0

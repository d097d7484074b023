"""The theory's network against its formula, v'φ(Wx), written out."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from noiseproof.models import ShallowNet
from noiseproof.models.shallow import jacobian_gram

FORMULAS = {
    "relu": lambda z: max(z, 0.0),
    "softplus": lambda z: math.log1p(math.exp(z)),
    "erf": math.erf,
    "tanh": math.tanh,
}


@pytest.mark.parametrize("activation", list(FORMULAS))
def test_scalar_output_is_the_papers_formula(activation: str) -> None:
    torch.manual_seed(0)
    net = ShallowNet(3, width=6, activation=activation).double()
    x = torch.randn(2, 3, dtype=torch.float64)
    W: Tensor = net.hidden.weight.detach()
    v = [1 / math.sqrt(6)] * 3 + [-1 / math.sqrt(6)] * 3
    expected = [
        sum(v[i] * FORMULAS[activation](float(W[i] @ row)) for i in range(6))  # Eq. (1.2)
        for row in x
    ]
    assert net(x).shape == (2, 1)
    torch.testing.assert_close(net(x)[:, 0], torch.tensor(expected, dtype=torch.float64), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("activation", list(FORMULAS))
def test_the_gram_matrix_is_that_of_the_jacobian(activation: str) -> None:
    torch.manual_seed(0)
    net = ShallowNet(3, width=7, activation=activation).double()
    x, W, v = torch.randn(4, 3, dtype=torch.float64), net.hidden.weight, net.head.weight[0]
    rows = torch.stack([torch.autograd.grad(net(one[None])[0, 0], W)[0].flatten() for one in x])  # J (n, k·d)
    torch.testing.assert_close(jacobian_gram(x, W.detach(), v, activation), rows @ rows.T)


def test_only_the_hidden_weights_are_parameters() -> None:
    net = ShallowNet(3, 4, width=10)
    assert [key for key, _ in net.named_parameters()] == ["hidden.weight"]
    assert set(net.state_dict()) == {"hidden.weight", "head.weight"}  # yet a checkpoint keeps v


def test_balanced_output_weights_have_unit_norm_and_zero_sum() -> None:
    v = ShallowNet(3, width=1000).head.weight
    assert v.sum().item() == pytest.approx(0, abs=1e-5)
    assert v.norm().item() == pytest.approx(1, abs=1e-5)


def test_odd_width_has_one_zero() -> None:
    v = ShallowNet(3, 2, width=7, scale=0.5).head.weight
    for row in v:
        assert sorted(row.tolist()) == [-0.5] * 3 + [0.0] + [0.5] * 3


def test_random_signs_and_small_start() -> None:
    torch.manual_seed(0)
    net = ShallowNet(20, width=2000, signs="random", init_std=0.01)
    v = net.head.weight * math.sqrt(2000)
    torch.testing.assert_close(v.abs(), torch.ones(1, 2000))
    assert abs(v.mean().item()) < 0.1  # 4.5 standard deviations
    assert net.hidden.weight.std().item() == pytest.approx(0.01, rel=0.05)

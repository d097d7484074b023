"""Pull: the penalty, its gradient, and what it remembers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from noiseproof.data import LabeledData
from noiseproof.errors import InputError
from noiseproof.method import Batch, Run
from noiseproof.methods import build
from noiseproof.methods.cross_entropy import CrossEntropy
from noiseproof.methods.pull import Pull
from noiseproof.training.fit import fit

Train = Callable[..., list[float]]


def everyone(run: Run) -> Batch:
    index = torch.arange(len(run.data))
    return Batch((run.data.take(index),), run.data.labels, index)


@pytest.mark.parametrize("strength", [0.0, 0.3])
def test_adds_the_penalty_and_its_gradient(strength: float, make_run: Callable[..., Run], train: Train) -> None:
    run, method = make_run(num_models=2), Pull(CrossEntropy(), strength=strength)
    initial = [p.detach().clone() for p in run.models.parameters()]
    run.models[0][0].bias.requires_grad_(False)
    method.start(run)
    train(CrossEntropy(), run, 3)
    plain = CrossEntropy().loss(run, everyone(run))
    pulled = method.loss(run, everyone(run))
    pairs = [(p, p0) for p, p0 in zip(run.models.parameters(), initial, strict=True) if p.requires_grad]
    distance = sum(((p.detach() - p0).double() ** 2).sum() for p, p0 in pairs) ** 0.5
    assert float(distance) > 0
    assert float((pulled - plain).detach()) == pytest.approx(strength / 2 * float(distance) ** 2, rel=1e-5, abs=1e-7)
    weights = [p for p, _ in pairs]
    without = torch.autograd.grad(plain, weights, allow_unused=True)
    with_it = torch.autograd.grad(pulled, weights)
    for (p, p0), a, b in zip(pairs, without, with_it, strict=True):
        a = torch.zeros_like(p) if a is None else a
        torch.testing.assert_close(b, a + strength * (p.detach() - p0), atol=1e-6, rtol=1e-5)


def test_a_resumed_run_is_pulled_to_the_same_place(make_run: Callable[..., Run], train: Train) -> None:
    run, method = make_run(), Pull(CrossEntropy())
    method.start(run)
    train(method, run, 3)
    again = Pull(CrossEntropy())
    again.start(run)  # from where the run stands now
    assert float(again.loss(run, everyone(run)).detach()) != float(method.loss(run, everyone(run)).detach())
    again.load_state_dict(method.state_dict())
    assert float(again.loss(run, everyone(run)).detach()) == float(method.loss(run, everyone(run)).detach())


def test_stays_nearer_the_start(digits: tuple[LabeledData, LabeledData]) -> None:
    ends = []
    for method in ("pull(ce, strength=0)", "pull(ce, strength=0.03)"):
        result = fit("mlp", digits[0], method, epochs=15, batch_size=32, lr=0.05, device="cpu", weight_decay=0.0)
        ends.append(result.history[-1])
    assert ends[1]["distance"] < 0.8 * ends[0]["distance"]
    assert ends[1]["train_memorised"] < ends[0]["train_memorised"]


def test_stacks(digits: tuple[LabeledData, LabeledData]) -> None:
    for text in (
        "pull(crust(ce, selection='central', mixup=1.0))",
        "crust(pull(ce), selection='central', mixup=1.0)",
        "early_stop(pull(co_teaching))",
    ):
        fit("mlp", digits[0], build(text), epochs=8, batch_size=64, device="cpu")


def test_bad_options() -> None:
    with pytest.raises(InputError, match="pull wraps a method, got 3"):
        build("pull(3)")
    with pytest.raises(InputError, match=r"strength must be a number, 0 or more, got -1"):
        build("pull(ce, strength=-1)")

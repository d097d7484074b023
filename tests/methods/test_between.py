"""Whether what lies between two examples of a class is of this class."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from noiseproof.data import LabeledData
from noiseproof.data.packing import Tokens
from noiseproof.method import Run
from noiseproof.methods._between import pairs, share_between

MakeRun = Callable[..., Run]


class By(nn.Module):
    """A network that knows a rule: which of two classes a point (B, 2) is of."""

    def __init__(self, rule: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.rule = rule

    def forward(self, x: Tensor) -> Tensor:
        assert not self.training
        return 9 * nn.functional.one_hot(self.rule(x).long(), 2).float()


def test_pairs_are_of_one_guess() -> None:
    first, second, guess = pairs(torch.tensor([2, 0, 2, 1, 2, 0]))
    assert list(zip(first.tolist(), second.tolist(), guess.tolist(), strict=True)) == [(1, 5, 0), (0, 2, 2), (2, 4, 2)]
    assert not len(pairs(torch.arange(3))[0])


def test_half_way_between_examples_of_a_class(make_run: MakeRun) -> None:
    """A line parts classes that are convex; of a ring around a disc what lies between is often in the disc."""
    run = make_run(n=2000, num_classes=2)
    run.models = nn.ModuleList([By(lambda x: x[:, 0] > 0.3)])
    run.models.train()
    assert share_between(run) == 1
    assert all(module.training for module in run.models.modules())
    run.models = nn.ModuleList([By(lambda x: x.norm(dim=1) > 1)])
    assert run.val is not None
    found = share_between(run)
    x = run.val.inputs  # the share, over all pairs
    outside = x.norm(dim=1) > 1
    ring, disc = x[outside], x[~outside]
    kept = ((ring[:, None] + ring) / 2).norm(dim=2) > 1
    expected = (float(kept.float().mean()) * len(ring) + len(disc)) / len(x)
    assert abs(found - expected) < 0.04
    assert 0.6 < found < 0.8
    run.val = None
    assert abs(share_between(run) - expected) < 0.06  # of the training set


def test_nothing_lies_between_tokens_or_examples_of_different_classes(make_run: MakeRun) -> None:
    run = make_run(n=12)
    run.val = LabeledData(Tokens([[1, 2, 3]] * 12), run.data.labels)
    run.ask = lambda rows, data, models: nn.functional.one_hot(torch.zeros(len(rows), dtype=torch.int64), 3)  # type: ignore[method-assign]
    assert share_between(run) == 0
    run.val = make_run(n=2, num_classes=3).data
    run.ask = lambda rows, data, models: torch.eye(3)[:2]  # type: ignore[method-assign]
    assert share_between(run) == 0

"""Whether what lies between two examples is of the class of one of them."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from noiseproof.data import LabeledData
from noiseproof.data.packing import Tokens
from noiseproof.data.table import Table
from noiseproof.method import Run
from noiseproof.methods import _between
from noiseproof.methods._between import can_be_mixed, share_between

MakeRun = Callable[..., Run]


class By(nn.Module):
    """A network that knows a rule: which of K classes a point (B, 2) is of."""

    def __init__(self, rule: Callable[[Tensor], Tensor], num_classes: int = 3) -> None:
        super().__init__()
        self.rule, self.num_classes = rule, num_classes

    def forward(self, x: Tensor) -> Tensor:
        assert not self.training
        return 9 * nn.functional.one_hot(self.rule(x).long(), self.num_classes).float()


def rings(x: Tensor) -> Tensor:
    """A disc, a ring around it and the rest: classes (B,) of points (B, 2)."""
    return (x.norm(dim=1) > 0.8).long() + (x.norm(dim=1) > 1.6)


def slow_share(run: Run, data: LabeledData) -> float:
    """Point by point, of at most 1,000 in a fixed order."""

    def guess(x: Tensor) -> int:
        said = [sum(model(x[None])[0].softmax(dim=0)[k] for model in run.models) for k in range(run.num_classes)]
        return said.index(max(said))

    rows = np.random.default_rng(0).permutation(len(data))[:1000]
    x = run.normalize(data.inputs)  # type: ignore[arg-type]
    guesses = {int(i): guess(x[i]) for i in rows}
    hits = [guess((x[i] + x[j]) / 2) in (guesses[i], guesses[j]) for i, j in pairwise(rows)]
    return sum(hits) / len(hits)


@pytest.mark.parametrize(
    ("network", "n", "val"), [("tiny", 60, True), ("rings", 60, True), ("rings", 60, False), ("rings", 1100, True)]
)
def test_half_way_between_any_two(
    make_run: MakeRun, monkeypatch: pytest.MonkeyPatch, network: str, n: int, val: bool
) -> None:
    """Of neighbours in a fixed order, of one class or of two, held out or else trained on."""
    run = make_run(num_models=2, n=50 if val else n, val=None)
    data = run.data
    if val:
        run.val = data = make_run(n=n).data
        data.inputs = data.inputs.flip(0)
    if network == "rings":
        run.models = nn.ModuleList([By(rings)])
    for parameter in run.models.parameters():
        parameter.data *= 4
    run.normalize = lambda x: x + 0.3 * x.square()  # type: ignore[assignment]
    monkeypatch.setattr(_between, "block_size", lambda shape: 7)
    run.models.train()
    found = share_between(run)
    assert all(module.training for module in run.models.modules())
    run.models.eval()
    assert found == pytest.approx(slow_share(run, data), abs=1e-6)
    assert 0.3 < found < 1


def test_two_examples_may_be_of_two_classes(make_run: MakeRun) -> None:
    """Half-way is the class of either, or of neither."""
    run = make_run(n=2)
    assert run.val is not None
    run.models = nn.ModuleList([By(rings)])
    for one, other, share in ((0, 1, 1), (1, 0, 1), (0, 4, 1), (4, 0, 1), (0, 3, 0), (2, -2, 0), (2, 3, 1), (1, -1, 0)):
        run.val.inputs = torch.tensor([[float(one), 0.0], [float(other), 0.0]])
        assert share_between(run) == share
    run.val = make_run(n=1).data
    assert share_between(run) == 0  # there is nothing to go by


TOKENS = Tokens([[1, 2, 3]] * 12)
COLUMNS: dict[str, dict[str, list[Any]]] = {
    "number": {"a": [float(i) for i in range(12)], "b": [float(i * i) for i in range(12)]},
    "category": {"a": [float(i) for i in range(12)], "b": ["one", "two", "three"] * 4},
    "text": {"a": [float(i) for i in range(12)], "b": [f"words of the row {i}, which are its own" for i in range(12)]},
}


@pytest.mark.parametrize(
    ("inputs", "classes", "mixed"),
    [("points", 3, 1), ("points", 2, 0), ("tokens", 3, 0), ("number", 3, 1), ("category", 3, 0), ("text", 3, 0)],
)
def test_some_have_nothing_between_them_and_of_two_classes_there_is_nothing_to_tell(
    make_run: MakeRun, inputs: str, classes: int, mixed: int
) -> None:
    run = make_run(n=12, num_classes=classes)
    if inputs == "tokens":
        run.data = LabeledData(TOKENS, run.data.labels)
    elif inputs != "points":
        kinds = {"b": inputs}
        run.data = LabeledData(Table.read(COLUMNS[inputs], kinds=kinds), run.data.labels).subset(torch.arange(12))
    run.val = run.data
    run.models = nn.ModuleList([By(lambda x: torch.zeros(len(x)), classes)])
    assert can_be_mixed(run) is (mixed == 1)
    assert share_between(run) == mixed

"""A step waits for no number from the device: on the meta device, which has none to give, every method takes one."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from test_contract import PLAIN, WRAPPED
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from noiseproof import methods
from noiseproof.data import load
from noiseproof.data.augment import Normalize
from noiseproof.method import Batch, Run
from noiseproof.models import from_text

META = torch.device("meta")
STACKS = [
    "sop(lr_u='follow', lr_v='follow')",
    "elr(lam='auto')",
    "label_noise(sop)",
    "crust(ce, mixup=1.0, selection='medoids')",
    "crust(ce, variant='authors')",
]
WAIT = {  # what they ask of the device in a step, and why it is left so
    "co_teaching_plus": "the number of examples about which the networks disagree",
}


class Copies(TorchDispatchMode):
    """Counts copies to the device that the host waits for."""

    def __init__(self) -> None:
        super().__init__()
        self.waited: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.ops.aten._to_copy.default and args[0].device.type == "cpu":
            to = kwargs.get("device")
            if to is not None and torch.device(to).type == "meta" and not kwargs.get("non_blocking"):
                self.waited.append(str(tuple(args[0].shape)))
        return func(*args, **kwargs)


def step_on_the_device(name: str, epoch: int) -> list[str]:
    """The first step of an epoch on the CPU, a second on the meta device: the copies that this one waits for."""
    data, method = load("digits").subset(torch.arange(64)), methods.build(name)
    models = nn.ModuleList(from_text("mlp(widths=[8])", (1, 8, 8), 10, None) for _ in range(method.num_models))
    normalize = Normalize.of(data.take, len(data), image=True)
    run = Run(
        models, data, 10, 40, 16, torch.device("cpu"), torch.Generator().manual_seed(0), normalize, epoch=epoch, lr=0.1
    )
    run.inputs = lambda rows: tuple(
        normalize(data.take(rows)).to(run.device, non_blocking=True) for _ in range(method.num_views)
    )
    method.start(run)
    for run.epoch in range(epoch + 1):
        method.before_epoch(run)
    rows = torch.arange(16)
    models.train()
    for run.device in (torch.device("cpu"), META):
        models.to(run.device)
        method.to(run.device)
        views = tuple(view.to(run.device) for view in run.inputs(rows))
        label, weight, index = (one.to(run.device) for one in (data.labels[rows], torch.ones(16), rows))
        with Copies() as copies:
            method.loss(run, Batch(views, label, index, weight, on_host=rows)).backward()
            method.after_step(run, Batch(views, label, index, weight, on_host=rows))
    return copies.waited


@pytest.fixture(autouse=True)
def _meta_is_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("noiseproof.checks.is_dense", lambda value: isinstance(value, torch.Tensor))


@pytest.mark.parametrize("name", sorted({*PLAIN, *WRAPPED, *STACKS} - WAIT.keys()))
def test_a_step_waits_for_nothing(name: str) -> None:
    for epoch in (0, 25):
        assert step_on_the_device(name, epoch) == []


@pytest.mark.parametrize("name", WAIT)
def test_those_that_do_wait_are_known(name: str) -> None:
    with pytest.raises(RuntimeError):
        step_on_the_device(name, 25)

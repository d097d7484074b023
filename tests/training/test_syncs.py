"""A step waits for no number from the device: on the meta device, which has none to give, every method takes one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
import torch.distributed as dist
from test_contract import PLAIN, STACKS, WRAPPED
from torch import Tensor, nn
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode

from noiseproof import methods
from noiseproof.data import LabeledData, load
from noiseproof.data.augment import Normalize
from noiseproof.data.sources import Mapped
from noiseproof.method import Batch, Method, Run
from noiseproof.models import from_text
from noiseproof.training import optimizers, setup
from noiseproof.training.batches import Batches, Piece
from noiseproof.training.gradients import Gradients
from noiseproof.training.interrupt import Signals
from noiseproof.training.progress import Silent
from noiseproof.training.rows import Rows
from noiseproof.training.settings import Fitting

META = torch.device("meta")
MORE = [
    "sop(lr_u='auto', lr_v='auto')",
    "elr(lam=3)",
    "crust(ce, mixup=1.0, selection='medoids')",
    "crust(ce, variant='authors')",
    "co_teaching_plus(agree=0)",
    "cores(consistency=1.0)",
]
WORLD = (6, 5, 5)  # examples of a step in each process


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
        if func is torch.ops.aten.copy_.default and (args[0].device, args[1].device.type) == (META, "cpu"):
            blocking = not (args[2] if len(args) > 2 else kwargs.get("non_blocking"))
            if blocking and args[1].ndim:
                self.waited.append(str(tuple(args[1].shape)))
        return func(*args, **kwargs)


@contextmanager
def processes(sizes: tuple[int, ...]) -> Iterator[None]:
    """As if this were the second of some processes; what the others send is never there."""
    if len(sizes) == 1:
        yield
        return
    dist.init_process_group("fake", store=FakeStore(), rank=1, world_size=len(sizes))
    try:
        yield
    finally:
        dist.destroy_process_group()


def step_on_the_device(name: str, epoch: int, sizes: tuple[int, ...] = (16,), *, sharded: bool = False) -> list[str]:
    """The first step of an epoch on the CPU, a second on the meta device: the copies that this one waits for."""
    data, method = load("digits").subset(torch.arange(64)), methods.build(name)
    models = nn.ModuleList(from_text("mlp(widths=[8])", (1, 8, 8), 10, None) for _ in range(method.num_models))
    normalize = Normalize.of(data.take, len(data), image=True)
    run = Run(
        models, data, 10, 40, 16, torch.device("cpu"), torch.Generator().manual_seed(0), normalize,
        val=data if "val_" in str(name) else None, epoch=epoch, lr=0.1,
    )  # fmt: skip
    run.inputs = lambda rows: tuple(
        normalize(data.take(rows)).to(run.device, non_blocking=True) for _ in range(method.num_views)
    )
    method.start(run)
    for run.epoch in range(epoch + 1):
        method.before_epoch(run)
    models.train()
    whole = torch.arange(sum(sizes))
    first = Batch(run.inputs(whole), data.labels[whole], whole, torch.ones(len(whole)), on_host=whole)
    method.loss(run, first).backward()
    method.after_step(run, first)
    with processes(sizes), Copies() as copies:
        held, piece = Rows(method, len(data), sharded=sharded), Piece(whole, None)
        run.device = META
        models.to(META)
        method.to(META)
        views = tuple(view.to(META) for view in run.inputs(piece.own))
        label, weight, index = (one.to(META) for one in (data.labels[piece.own], torch.ones(len(piece.own)), piece.own))
        copies.waited.clear()
        batch = Batch(views, label, index, weight, sizes=piece.sizes, on_host=piece.own)
        held.fetch(piece, batch)
        gradients = Gradients(models.parameters())
        loss = method.loss(run, batch)
        gradients.begin()
        loss.backward()
        gradients.finish(loss.detach())
        method.after_step(run, batch)
        held.exchange(piece, batch)
    return copies.waited


@pytest.fixture(autouse=True)
def _meta_is_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("noiseproof.checks.is_dense", lambda value: isinstance(value, torch.Tensor))


@pytest.mark.parametrize("name", sorted({*PLAIN, *WRAPPED, *STACKS, *MORE}))
def test_a_step_waits_for_nothing(name: str) -> None:
    for epoch in (0, 25):
        assert step_on_the_device(name, epoch) == []


@pytest.mark.parametrize("name", sorted({*PLAIN, *MORE, "label_noise(sop)", "early_stop(crust(elr))"}))
def test_a_step_that_processes_share_waits_for_nothing(name: str) -> None:
    rows = any(part.rows for part in methods.build(name).modules() if isinstance(part, Method))
    for sharded in (False, True)[: 1 + rows]:
        assert step_on_the_device(name, 25, WORLD, sharded=sharded) == []


def test_what_waits_is_noticed() -> None:
    """A number asked of the device, and a copy to it, made by a method."""

    class Asks(methods.registry()["ce"]):  # type: ignore[misc]
        def loss(self, run: Run, batch: Batch) -> Tensor:
            loss = super().loss(run, batch)
            return loss * loss.item()

    class Sends(methods.registry()["ce"]):  # type: ignore[misc]
        def loss(self, run: Run, batch: Batch) -> Tensor:
            return super().loss(run, batch) + torch.zeros(3).to(batch.label.device).sum()

    with pytest.raises(RuntimeError):
        step_on_the_device(Asks(), 0)  # type: ignore[arg-type]
    assert step_on_the_device(Sends(), 0) == ["(3,)"]  # type: ignore[arg-type]


POLICIES = ["none", "weak", "strong", "crop", "simclr", "moco-cifar10", "sane-strong"]


@pytest.mark.parametrize("augment", POLICIES)
@pytest.mark.parametrize("inputs", ["on the device", "in memory", "encoded"])
def test_the_loop_waits_for_nothing(monkeypatch: pytest.MonkeyPatch, augment: str, inputs: str) -> None:
    """Batches that are kept on the device, or come from the CPU, or from a source; augmented; with clipping."""
    if inputs != "on the device":
        monkeypatch.setattr("noiseproof.training.batches._SMALL", -1)
        monkeypatch.setattr("noiseproof.training.batches._RESIDENT", -1)
    pixels = torch.randint(0, 256, (48, 3, 16, 16), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    data = LabeledData(pixels, torch.arange(48) % 3)
    if inputs == "encoded":
        data = LabeledData(Mapped(pixels.numpy()), torch.arange(48) % 3)
    monkeypatch.setattr(setup, "pick_device", lambda *_: META)
    plain = optimizers.OPTIMIZERS["sgd"]._replace(fused=False)  # which knows no meta device
    monkeypatch.setitem(optimizers.OPTIMIZERS, "sgd", plain)
    call = Fitting("auto", data, "ce", epochs=2, batch_size=16, clip=1.0, augment=augment)
    parts, method = setup.Setup(call), methods.build("ce")
    models = nn.ModuleList([from_text("resnet8", (3, 16, 16), 3, None)]).to(META)
    loop = parts.loop(parts.run(models, data), method, setup.build_augments(augment, 1, data), lambda run: {})
    loop.progress = Silent()
    loop.begin_epoch()
    with Copies() as copies:
        loop.steps(Signals())
    assert loop.run.step == 3
    assert copies.waited == []


def test_what_is_kept_on_the_device_is_counted_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    data, normalize = LabeledData(torch.rand(8, 3, 4, 4), [0, 1] * 4), Normalize([0.0] * 3, [1.0] * 3)
    held = []
    for limit in (data.inputs.nbytes, data.inputs.nbytes - 1):
        monkeypatch.setattr("noiseproof.training.batches._RESIDENT", limit)
        batches = Batches(data, normalize, (lambda x, generator: x,), META, 0)
        held.append(batches.take(torch.arange(2)).device == META)
    assert held == [True, False]

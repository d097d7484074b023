"""Processes that share a run hold the same weights, take the same decisions, and end together."""

from __future__ import annotations

import copy
import json
import multiprocessing
import signal
import time
import traceback
import zlib
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from noiseproof import distributed
from noiseproof.data import load
from noiseproof.errors import InputError
from noiseproof.method import Batch, Run
from noiseproof.models import Backbone
from noiseproof.pretraining import MoCo, PretrainResult, pretrain
from noiseproof.training.interrupt import Interrupted

OPTIONS = {"epochs": 3, "batch_size": 24, "augment": "weak", "dim": 4, "device": "cpu", "probe_every": 0}
STEPS = 4  # of an epoch


def together(work: Callable[[Path], Any], folder: Path, world: int = 2, seconds: float = 60) -> list[Any]:
    """What `work` returns in each of so many processes, as JSON; the sentence where it raises an InputError."""

    def child(rank: int) -> None:
        dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=world)
        try:
            answer = work(folder)
        except InputError as error:
            answer = str(error)
        except BaseException:
            answer = traceback.format_exc()
        (folder / f"answer-{rank}.json").write_text(json.dumps(answer))
        dist.destroy_process_group()

    context = multiprocessing.get_context("fork")  # what is imported already is not imported again
    processes = [context.Process(target=child, args=(rank,)) for rank in range(world)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(seconds)
        process.kill()  # one that waits for another that has left
    answers = [folder / f"answer-{rank}.json" for rank in range(world)]
    return [json.loads(path.read_text()) if path.exists() else "killed" for path in answers]


def train(model: Any = "mlp(widths=[8])", **more: Any) -> PretrainResult:
    given = {"data": load("digits").subset(torch.arange(24 * STEPS)), "method": "moco(dictionary_size=32)"}
    return pretrain(model, **OPTIONS | given | more)


@pytest.fixture(scope="module", autouse=True)
def _imported(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What a run imports on its way is imported once, before the processes part."""
    train(out=tmp_path_factory.mktemp("runs") / "first", epochs=1)


def held(result: PretrainResult) -> dict[str, int]:
    """A checksum of each weight and buffer of the networks and the method."""
    state = result.run.models.state_dict() | result.method.state_dict()
    return {name: zlib.crc32(value.contiguous().numpy().tobytes()) for name, value in state.items()}


class Apart(MoCo):
    """Whose loss is higher by 4 in each further process, with the same gradients."""

    def loss(self, run: Run, batch: Batch) -> Tensor:
        return super().loss(run, batch) + 4 * distributed.rank()


class Stopping(MoCo):
    """One of the processes sees reason to stop after the first epoch."""

    def stop(self, run: Run) -> bool:
        return distributed.rank() == 1


class Paused(MoCo):
    """Ctrl-C in the middle of the second epoch, once."""

    interrupts = True

    def after_step(self, run: Run, batch: Batch) -> None:
        super().after_step(run, batch)
        if run.step == STEPS + 1 and Paused.interrupts and distributed.rank() == 1:
            signal.raise_signal(signal.SIGINT)


class Learning(MoCo):
    """With a weight of its own and a buffer, made from a random state of each process's own."""

    def start(self, run: Run) -> None:
        super().start(run)
        own = torch.Generator().manual_seed(distributed.rank())
        self.weight = nn.Parameter(torch.rand((), generator=own))
        self.register_buffer("noise", torch.rand(3, generator=own))

    def optimizers(self) -> list[torch.optim.Optimizer]:
        return [torch.optim.SGD([self.weight], lr=0.1)]

    def loss(self, run: Run, batch: Batch) -> Tensor:
        return super().loss(run, batch) * (1 + self.weight.square())


class Own(Backbone):
    """A caller's network, made from a random state of each process's own; may count what it sees in a buffer."""

    num_features = 8

    def __init__(self, counts: bool = False) -> None:
        super().__init__()
        torch.manual_seed(distributed.rank())
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.BatchNorm1d(8), nn.ReLU())
        self.frozen = nn.BatchNorm1d(8).eval()
        self.frozen.running_mean.fill_(0.05 + distributed.rank())  # three thirds of 0.05 are not 0.05: it must rest
        self.register_buffer("seen", torch.zeros(()))
        self.head, self.counts = nn.Identity(), counts

    def features(self, x: Tensor) -> Tensor:
        if self.training and self.counts:
            self.seen += x.detach().mean()
        return self.frozen(self.body(x))


# with Apart in three processes the loss is near 5 + 4: the first sees less than 7, the last more than 11
@pytest.mark.parametrize(("stop", "annealed"), [(7.0, [1 / STEPS, None, None]), (10.9, [1 / STEPS])])
def test_a_schedule_goes_by_the_loss_of_all(tmp_path: Path, stop: float, annealed: list[float | None]) -> None:
    def work(folder: Path) -> Any:
        result = train(method=Apart(dictionary_size=32), schedule=f"anneal_on_loss(11.0, stop={stop})")
        losses = [record["loss"] for record in result.history]
        return losses, [record.get("annealed") for record in result.history], held(result)

    first, *others = together(work, tmp_path, world=3)
    assert others == [first] * 2
    losses, dropped, _ = first
    assert dropped == annealed
    assert all(7 < loss < 10.9 for loss in losses)


@pytest.mark.parametrize("world", [2, 3])
def test_gathered_rows_begin_with_ones_own_and_go_on_in_a_ring(tmp_path: Path, world: int) -> None:
    def work(folder: Path) -> Any:
        own = torch.tensor([[10.0 * distributed.rank()], [10.0 * distributed.rank() + 1]])
        return distributed.own_first(distributed.gather(own)).flatten().tolist()

    rows = [10.0 * rank + i for rank in range(world) for i in range(2)]
    assert together(work, tmp_path, world) == [rows[2 * rank :] + rows[: 2 * rank] for rank in range(world)]


def views_and_method() -> tuple[Tensor, Run, MoCo]:
    """Twelve views, and a run with a method whose networks have batch norm."""
    run = Run(
        nn.ModuleList([nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))]), None, 10, 1, 12,
        torch.device("cpu"), torch.Generator().manual_seed(11), lambda x: x,
    )  # type: ignore[arg-type]  # fmt: skip
    method = MoCo()
    method.target, method.normalises = copy.deepcopy(run.models[0]), True
    return torch.randn(12, 5), run, method


def test_keys_are_normalised_over_parts_shuffled_over_the_processes(tmp_path: Path) -> None:
    """A key shares its batch statistics with those of its part of the permutation, not of its own process."""

    def work(folder: Path) -> Any:
        torch.manual_seed(4)
        view, run, method = views_and_method()
        own = view.tensor_split(3)[distributed.rank()]
        return [method.encode(run, own).tolist() for _ in range(2)]

    answers = together(work, tmp_path, world=3)
    assert answers[1:] == answers[:1] * 2
    torch.manual_seed(4)
    view, _, method = views_and_method()
    generator = torch.Generator().manual_seed(11)
    for found in answers[0]:
        order = torch.randperm(12, generator=generator)
        expected = torch.empty(12, 3)
        for part in order.tensor_split(3):
            expected[part] = nn.functional.normalize(method.target(view[part]), dim=1)
        torch.testing.assert_close(torch.tensor(found), expected, atol=1e-5, rtol=1e-5)


def test_one_process_that_stops_stops_all(tmp_path: Path) -> None:
    answers = together(lambda folder: len(train(method=Stopping(dictionary_size=32)).history), tmp_path)
    assert answers == [1, 1]


@pytest.mark.parametrize("world", [2, 3])
def test_networks_and_methods_begin_as_the_main_processs_and_stay_equal(tmp_path: Path, world: int) -> None:
    def work(folder: Path) -> Any:
        network = Own()
        made = network.frozen.running_mean.tolist()
        result = train(network, method=Learning(dictionary_size=32), epochs=1)
        return made, network.frozen.running_mean.tolist(), held(result)

    answers = together(work, tmp_path, world)
    assert all(answer[1:] == answers[0][1:] for answer in answers)  # batch norm's running statistics among it
    assert answers[0][0] == answers[0][1] == answers[1][1] != answers[1][0]


def test_a_run_paused_within_an_epoch_ends_as_one_that_was_not(tmp_path: Path) -> None:
    def work(folder: Path) -> Any:
        found = []
        for name in ("paused", "whole"):
            try:
                result = train(method=Paused(dictionary_size=32), out=folder / name)
            except Interrupted:
                Paused.interrupts = False
                result = train(method=Paused(dictionary_size=32), out=folder / name, resume=True)
            found.append(([record["loss"] for record in result.history], held(result)))
        return Paused.interrupts, found

    for interrupts, (paused, whole) in together(work, tmp_path):
        assert not interrupts
        assert paused == whole


def test_a_debug_run_names_what_differs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def work(folder: Path) -> Any:
        return len(train(Own(counts=folder.name == "counts")).history)

    monkeypatch.setenv("NOISEPROOF_DEBUG", "1")
    for name in ("plain", "counts"):
        (tmp_path / name).mkdir()
    assert together(work, tmp_path / "plain", world=3) == [3, 3, 3]
    first, *others = together(work, tmp_path / "counts", world=3)
    assert first.startswith("model 0.seen differs between processes 0 and 1 after epoch 1; ")
    assert others == [first] * 2


@pytest.mark.parametrize(
    ("name", "different"),
    [
        ("seed", lambda rank: {"seed": rank}),
        ("data", lambda rank: {"data": load("digits").subset(torch.arange(90 + 3 * rank))}),
        ("model", lambda rank: {"model": f"mlp(widths=[{8 + rank}])"}),
        ("out", lambda rank: {"out": "run" if rank == 0 else None}),
    ],
)
def test_processes_of_different_calls_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, different: Callable[[int], dict[str, Any]]
) -> None:
    monkeypatch.chdir(tmp_path)
    first, second = together(lambda folder: train(**different(distributed.rank())) and None, tmp_path)
    assert first == second == f"{name} differs between processes 0 and 1; make the same call in each"
    assert not (tmp_path / "run").exists()


def test_a_silent_process_is_told_of(tmp_path: Path) -> None:
    def work(folder: Path) -> Any:
        group = dist.new_group(timeout=timedelta(seconds=1))
        if distributed.rank() == 0:
            time.sleep(4)
            return "slept"
        with distributed.answering():
            dist.all_reduce(torch.zeros(()), group=group)

    slept, told = together(work, tmp_path)
    assert slept == "slept"
    assert told.startswith("another process has not answered process 1 for 900 s; look into its log")

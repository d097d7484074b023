"""What each of two processes runs for test_distributed.py, under torchrun: `distributed_worker.py FOLDER PART…`."""

from __future__ import annotations

import copy
import signal
import sys
import threading
import time
from pathlib import Path

import torch
from torch import nn

from noiseproof import distributed
from noiseproof.data import load
from noiseproof.method import Batch, Run
from noiseproof.pretraining import SANE, MoCo, SimCLR, pretrain
from noiseproof.training.gradients import Gradients
from noiseproof.training.interrupt import Interrupted

OPTIONS = {"epochs": 12, "batch_size": 32, "augment": "weak", "dim": 8, "device": "cpu", "seed": 1, "probe_every": 1}


def same_everywhere(value: torch.Tensor) -> bool:
    parts = distributed.gather(value.detach().flatten()[None])
    return bool((parts == parts[0]).all())


def gradients(folder: Path) -> None:
    """The loss over two halves of a batch, averaged, has the gradient of the loss over the whole."""
    distributed.join()
    data = load("digits").split(0.9, seed=0)[0].subset(torch.arange(16))
    twice = MoCo(dictionary_size=12, symmetric=True)
    for method in (MoCo(dictionary_size=12), twice, SANE(mixup="none", m1=1.0), SimCLR()):
        torch.manual_seed(0)
        network = nn.Sequential(nn.Flatten(), nn.Linear(64, 9), nn.Tanh(), nn.Linear(9, 5)).double()
        views = tuple(torch.rand(16, 1, 8, 8, dtype=torch.float64) for _ in range(2))
        index = torch.arange(16)

        def run_of(network: nn.Module) -> Run:
            return Run(
                nn.ModuleList([network]), data, 10, 1, 16, torch.device("cpu"), torch.Generator().manual_seed(0),
                lambda x: x.double(),
            )  # fmt: skip

        found = []
        for alone in (True, False):
            one, own = copy.deepcopy(network), copy.deepcopy(method)
            run = run_of(one)
            own.start(run)
            own.double()
            if alone:
                world, distributed.world = distributed.world, lambda: 1
                own.loss(run, Batch(views, index % 10, index, None)).backward()
            else:
                part = index.tensor_split(2)[distributed.rank()]
                gradients = Gradients(one.parameters())
                gradients.begin()
                own.loss(run, Batch(tuple(view[part] for view in views), part % 10, part, None)).backward()
                gradients.finish()
            own.after_step(run, Batch(views, index % 10, index, None))
            if alone:
                distributed.world = world
            found.append(
                ([parameter.grad for parameter in one.parameters()], getattr(own, "dictionary", torch.ones(1)))
            )
        for a, b in zip(found[0][0], found[1][0], strict=True):
            torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-14)
        if method is not twice:  # whose keys are of both views: in another order
            torch.testing.assert_close(found[0][1], found[1][1])
        assert same_everywhere(found[1][1])


def whole(folder: Path) -> None:
    """A run is the same in both processes, and the same again when it was stopped on the way."""
    data, test = load("digits").split(0.9, seed=0)[0].split(0.2, seed=0)
    plain = pretrain("mlp(widths=[16])", data, "sane(dictionary_size=64)", test=test, out=folder / "plain", **OPTIONS)
    weights = torch.cat([p.flatten() for p in plain.backbone.parameters()])
    assert same_everywhere(weights)
    assert same_everywhere(plain.method.dictionary)
    assert plain.history[-1]["examples"] == len(data) - len(data) % 2
    assert plain.history[-1]["knn_accuracy"] > 0.3

    def interrupt_one() -> None:  # only one of the processes is told to stop; both must
        while not (folder / "stopped/history.jsonl").exists() or not (folder / "stopped/history.jsonl").read_text():
            time.sleep(0.005)
        signal.raise_signal(signal.SIGINT)

    if distributed.rank() == 1:
        threading.Thread(target=interrupt_one, daemon=True).start()
    arguments = ("mlp(widths=[16])", data, "sane(dictionary_size=64)")
    again = {**OPTIONS, "test": test, "out": folder / "stopped"}
    try:
        result = pretrain(*arguments, **again)
    except Interrupted:
        (folder / f"interrupted-{distributed.rank()}").touch()
        result = pretrain(*arguments, resume=True, **again)
    again_weights = torch.cat([p.flatten() for p in result.backbone.parameters()])
    assert torch.equal(again_weights, weights)


def rivals(folder: Path) -> None:
    """Other methods hold the same networks in both processes, and their own learnables too."""
    data = load("digits").split(0.9, seed=0)[0]
    for method in ("simclr", "byol", "imix(dictionary_size=64)"):
        result = pretrain("mlp(widths=[16])", data, method, **{**OPTIONS, "epochs": 2, "probe_every": 0})
        held = (*result.backbone.parameters(), *result.method.parameters())
        assert same_everywhere(torch.cat([one.flatten() for one in held])), method


if __name__ == "__main__":
    torch.set_num_threads(1)
    for name in sys.argv[2:]:
        {"gradients": gradients, "rivals": rivals, "whole": whole}[name](Path(sys.argv[1]))
        (Path(sys.argv[1]) / f"{name}-{distributed.rank()}").touch()

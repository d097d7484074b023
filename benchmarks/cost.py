"""What a step costs, as a model fitted to runs of 1, 2 and 4 processes; and hours on GPUs by the same model.

    python benchmarks/cost.py               # fit, and predicted beside measured
    python benchmarks/cost.py --tables      # the tables of docs/scale.md, from the assumptions at the end of this file

Processor seconds of a step, over all processes, are a sum of terms, each a count and a price, by least squares of the
relative errors with no price below zero:

    B images computed, W·P weights updated, W·bytes received, W exchanges, W turns of the loop, B images decoded

A step takes what one process has to do, or what all have to do divided by the cores, if that is more: decoding runs
beside the loop. resnet8, 32 × 32 pixels; weights that do nothing are added to it to make messages longer.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import socket
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import machine, show, write
from PIL import Image
from scipy.optimize import nnls
from torch import Tensor, nn

import noiseproof as nf
from noiseproof import models
from noiseproof.training import fit as training
from noiseproof.training.evaluate import Evaluation

STEPS, SIDE = 6, 32
TERMS = ("image computed", "weight updated", "byte received", "exchange", "turn of the loop", "image decoded")
# processes, batch, weights added, method, classes, whether images are JPEGs
RUNS = [
    (world, batch, added, method, classes, encoded)
    for world in (1, 2, 4)
    for batch, added, method, classes, encoded in (
        (64, 0, "ce", 10, False), (128, 0, "ce", 10, False), (128, 2_000_000, "ce", 10, False),
        (128, 0, "sop", 1000, False), (128, 0, "ce", 10, True),
    )
]  # fmt: skip


class Loaded(nn.Module):
    """A network with weights that change nothing."""

    def __init__(self, classes: int, added: int) -> None:
        super().__init__()
        self.inner = models.from_text("resnet8", (3, SIDE, SIDE), classes)
        self.added = nn.Parameter(torch.zeros(added))

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x) + 0 * self.added.sum()


def weights(classes: int, added: int) -> int:
    return sum(one.numel() for one in Loaded(classes, added).parameters())


def terms(world: int, batch: int, added: int, method: str, classes: int, encoded: bool) -> np.ndarray:
    """How much of each term a step has, over all processes."""
    several, size = world > 1, weights(classes, added)
    received = 8 * size + (batch * 4 * (classes + 1) if method == "sop" else 0)
    return np.array([batch, world * size, several * world * received, several * world, world, batch * encoded])


def work(rank: int, port: int, folder: Path, run: tuple[Any, ...]) -> None:
    world, batch, added, method, classes, encoded = run
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    if world > 1:
        os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world),
                       "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}  # fmt: skip
    torch.manual_seed(0)
    n, spent = batch * STEPS, []
    if encoded:
        data = nf.load(folder / f"jpegs-{batch}", memory_limit=1)
    else:
        labels, names = torch.randint(classes, (n,)), tuple(map(str, range(classes)))
        inputs = torch.randint(256, (n, 3, SIDE, SIDE), dtype=torch.uint8)
        data = nf.LabeledData(inputs, labels, class_names=names, allow_empty=True)

    def timed(function: Any) -> Any:
        def call(*args: Any) -> Any:
            wall, own = time.perf_counter(), time.process_time()
            answer = function(*args)
            spent.append((time.perf_counter() - wall, time.process_time() - own))
            return answer

        return call

    training.setup.Loop.steps = timed(training.setup.Loop.steps)  # type: ignore[method-assign]
    Evaluation.__call__ = timed(Evaluation.__call__)  # type: ignore[method-assign]
    training.conclude = lambda *_: None  # type: ignore[assignment]
    nf.fit(Loaded(classes, added), data, method, epochs=3, batch_size=batch, device="cpu", eval_examples=n)
    steps, evaluations = spent[2::2], spent[3::2]  # the first epoch is for warming up
    told = {"step": np.min(steps, axis=0) / STEPS, "evaluation": np.min(evaluations, axis=0)}
    (folder / f"{rank}.json").write_text(json.dumps({name: one.tolist() for name, one in told.items()}))
    os._exit(0)


def measure(folder: Path, run: tuple[Any, ...]) -> dict[str, list[float]]:
    """Seconds of a step and of an evaluation: by the wall, of the slowest; of processors, of all."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=work, args=(rank, port, folder, run)) for rank in range(run[0])]
    for one in processes:
        one.start()
    for one in processes:
        one.join()
    found = [json.loads((folder / f"{rank}.json").read_text()) for rank in range(run[0])]
    return {
        name: [max(one[name][0] for one in found), sum(one[name][1] for one in found)]
        for name in ("step", "evaluation")
    }


def fitted() -> None:
    cores = len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as place:
        folder, rng = Path(place), np.random.default_rng(0)
        for i in range(128 * STEPS):
            path = folder / "jpegs-128" / str(i % 10) / f"{i}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(rng.integers(256, size=(SIDE, SIDE, 3), dtype=np.uint8)).save(path)
        found = [measure(folder, run) for run in RUNS]
    counts, spent = np.array([terms(*run) for run in RUNS]), np.array([one["step"][1] for one in found])
    prices, _ = nnls(counts / spent[:, None], np.ones(len(spent)))
    print("prices, µs: " + ", ".join(f"{1e6 * one:.4g} a {name}" for name, one in zip(TERMS, prices, strict=True)))
    images = np.array([run[1] * STEPS for run in RUNS])
    worlds = np.array([run[0] for run in RUNS])
    evaluated = np.array([one["evaluation"][1] for one in found])
    asked, _ = nnls(np.stack([images, worlds], 1) / evaluated[:, None], np.ones(len(spent)))
    print(f"evaluation, µs: {1e6 * asked[0]:.4g} an image, {1e6 * asked[1]:.4g} a process")
    rows = []
    for run, one, count in zip(RUNS, found, counts, strict=True):
        processor = float(count @ prices)
        own = float(count[:-1] @ prices[:-1]) / run[0]  # all but decoding
        wall = max(own, processor / min(cores, run[0] + run[5]))
        told = [f"{1000 * x:.1f}" for x in (one["step"][1], processor, one["step"][0], wall)]
        rows.append([*map(str, run), *told])
    header = ["processes", "batch", "weights added", "method", "classes", "JPEGs",
              "processor ms", "predicted", "wall ms", "predicted"]  # fmt: skip
    show(f"A step, {cores} cores", header, rows)
    off = np.abs(counts @ prices / spent - 1)
    print(f"relative error of processor time: median {np.median(off):.0%}, largest {off.max():.0%}")
    ratios = [float(row[-1]) / float(row[-2]) - 1 for row in rows]
    print(f"of wall time: median {np.median(np.abs(ratios)):.0%}, largest {np.abs(ratios).max():.0%}")
    write("cost", {"runs": RUNS, "found": found, "prices": dict(zip(TERMS, prices, strict=True)),
                   "evaluation": asked.tolist(), "load": os.getloadavg()[0], "machine": machine()})  # fmt: skip


# What is assumed of GPUs: resnet50 at 224 × 224, images/s trained and evaluated by each, bytes/s between them
RATE, EVALUATED, P, EACH = 2500, 2.5 * 2500, 25.6e6, 64  # evaluated: as many times quicker as the fit has it
BANDWIDTH = {8: 100e9, 64: 12.5e9}
DECODED = 1.7e-3  # processor seconds of a JPEG, normalised (large.py)
DATA = {"Clothing1M": (1_000_000, 14, 10), "WebVision": (2_400_000, 1000, 80), "ImageNet": (1_281_167, 1000, 90)}
METHODS = {"ce": (0, 1), "elr": (4, 1), "sop": (4, 1), "co_teaching": (0, 2), "mixup": (0, 1), "crust(ce)": (0, 1)}


def tables() -> None:
    print(
        "| data | method | state, GB | 8 GPUs: each, GB | MB a step | hours | 64 GPUs: each, GB | MB a step | hours |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for data, (n, classes, epochs) in DATA.items():
        for method, (kept, nets) in METHODS.items():
            cells = [data, method, f"{kept * classes * n / 1e9:.1f}"]
            for world, bandwidth in BANDWIDTH.items():
                batch = EACH * world
                received = nets * 8 * P + 2 * batch * kept * classes
                received += batch * (8 * classes + 4 * 3 * 224**2) if method == "mixup" else 0
                step = EACH * nets / RATE + received / bandwidth
                trained, asked = (0.6 * n, n) if method == "crust(ce)" else (n, 10_000)
                hours = epochs * (trained / batch * step + nets * asked / world / EVALUATED) / 3600
                cells += [f"{kept * classes * n / world / 1e9:.2f}", f"{received / 1e6:,.0f}", f"{hours:.1f}"]
            print("| " + " | ".join(cells) + " |")
    print(f"cores that decode for 8 GPUs: {8 * RATE * DECODED:.0f}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tables", action="store_true")
    (tables if parser.parse_args().tables else fitted)()


if __name__ == "__main__":
    main()

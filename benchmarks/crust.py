"""What a selection of CRUST costs, relative to an epoch of resnet20 on 50,000 images of 32 × 32 pixels, batch 128.

A selection is a forward pass over all examples, the gradients p − y, and the choice of half of each of 10 classes.
Steps (their median) and forward pass are measured on fewer images, of random pixels, and scaled up; gradients and
choice on 50,000 rows as a network of 77 % accuracy at 50 % noise gives them (benchmarks/coreset.py), the best of the
rounds. All on one thread, in processor seconds.

    python benchmarks/crust.py                           # writes results/crust.json
    python benchmarks/crust.py --steps 20 --rounds 1     # a quick look
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from common import machine, show, write
from coreset import gradients

from noiseproof.coreset import facility_location
from noiseproof.coreset.gradients import last_layer_gradients
from noiseproof.coreset.nearest import nearest_to_centre
from noiseproof.data import LabeledData
from noiseproof.method import Run
from noiseproof.training.fit import fit
from noiseproof.training.progress import Silent

IMAGES, BATCH, CLASSES, SHARE = 50_000, 128, 10, 0.5
WAYS: dict[str, Callable[..., Any]] = {
    "central": partial(facility_location, algorithm="central"),
    "medoids": partial(facility_location, algorithm="auto"),
    "nearest to centre": nearest_to_centre,
}
TARGET = 0.05  # of an epoch, for the selection without the forward pass


class Clock(Silent):
    """Processor seconds at which steps ended."""

    def __init__(self) -> None:
        self.ends: list[float] = []

    def step(self, run: Run, done: float) -> None:
        self.ends.append(time.process_time())


def seconds(work: Callable[[], Any]) -> float:
    """Processor seconds of a call."""
    began = time.process_time()
    work()
    return time.process_time() - began


def images(count: int) -> LabeledData:
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (count, 3, 32, 32), dtype=torch.uint8, generator=generator)
    return LabeledData(pixels, torch.arange(count) % CLASSES)


def network(steps: int, rounds: int) -> dict[str, float]:
    """Processor seconds of an epoch and of a forward pass, scaled up to all images."""
    data = images(steps * BATCH)
    each, forward = [], []
    for _ in range(rounds):
        clock = Clock()
        result = fit("resnet20", data, "ce", epochs=1, batch_size=BATCH, eval_examples=0, device="cpu", progress=clock)
        each += [after - before for before, after in zip(clock.ends, clock.ends[1:], strict=False)]
        forward.append(seconds(lambda run=result.run: run.predict(data)) / len(data))
    return {"epoch": statistics.median(each) * IMAGES / BATCH, "forward": min(forward) * IMAGES}


def selections(rounds: int) -> dict[str, float]:
    """Processor seconds of the gradients and of each way to choose."""
    rows, label = gradients(IMAGES)
    probability = rows + torch.nn.functional.one_hot(label, CLASSES)
    found = {"gradients": min(seconds(lambda: last_layer_gradients(probability, label)) for _ in range(rounds))}
    for name, choose in WAYS.items():
        for by, groups in (("label", label), ("prediction", probability.argmax(dim=1))):
            work = partial(choose, rows, SHARE, groups=groups)
            work()  # compile
            found[f"{name} by {by}"] = min(seconds(work) for _ in range(rounds))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(1)
    found = network(options.steps, options.rounds) | selections(options.rounds)
    epoch, more = found["epoch"], found["gradients"]
    rows = [
        ["epoch", f"{epoch:.0f}", "100"],
        ["forward pass", f"{found['forward']:.1f}", _percent(found["forward"] / epoch)],
    ]
    for name in [key for key in found if " by " in key]:
        share = (more + found[name]) / epoch
        rows.append([f"gradients and {name}", f"{more + found[name]:.2f}", _percent(share)])
    worst = max(more + found[key] for key in found if " by " in key) / epoch
    kept = "kept" if worst < TARGET else "missed"
    print(f"target, below {100 * TARGET:.0f} % of an epoch without the forward pass: {kept}")
    show(f"A selection among {IMAGES:,}, one thread", ["", "processor seconds", "% of an epoch"], rows)
    write("crust", {"seconds": found, "steps": options.steps, "rounds": options.rounds, "machine": machine()})


def _percent(share: float) -> str:
    return f"{100 * share:.1f}"


if __name__ == "__main__":
    main()

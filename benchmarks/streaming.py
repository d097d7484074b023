"""Images that are decoded while the model computes, against the same images decoded in memory.

A folder of JPEGs of 224×224 pixels, batches of 128; the model is replaced by a pause of 100 ms, as if a GPU computed.
The rate of `fit` with images that stay encoded (read ahead in a thread) and with a Dataset (two workers), each divided
by the rate with all of them in memory, epoch by epoch in turn.

On a machine with other work the pause is as long as ever, and decoding waits for a core. So two more columns: the
processor time of a batch (in memory that of the loop alone; decoding, which goes on during the pause, can keep up where
all of it is less than the cores have in that time), and how much slower than alone on a core the loop's thread was,
(running + waiting for a core) / running, from /proc: beside more than 1.2 or so the ratio says little.

    python benchmarks/streaming.py --count 20000
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import psutil
import torch
from common import machine, show, write
from PIL import Image
from torch import Tensor, nn

import noiseproof as nf
from noiseproof.training import fit as training

SIDE, BATCH = 224, 128


class Clock:
    """Seconds so far: of processors (this process and its children); that the loop's thread ran, and waited to."""

    def __init__(self) -> None:
        own = psutil.Process()
        self.spent = sum(sum(one.cpu_times()[:2]) for one in (own, *own.children()))
        stats = Path("/proc/self/schedstat")
        self.ran, self.waited = (int(one) / 1e9 for one in stats.read_text().split()[:2]) if stats.exists() else (1, 0)


class Pause(nn.Module):
    """A network that computes elsewhere for 100 ms."""

    normalization = (0.5, 0.5, 0.5), (0.2, 0.2, 0.2)  # as if known: the data is not read for it

    def __init__(self, batches: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(2))
        self.batches, self.seen = batches, 0
        self.clocks: list[Clock] = []  # at the first and the last training batch: a look takes milliseconds of a core

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.seen += 1
            if self.seen in (1, self.batches):
                self.clocks.append(Clock())
            time.sleep(0.1)
        return self.bias.expand(len(x), 2)


class Photos(torch.utils.data.Dataset):
    def __init__(self, paths: list[Path]) -> None:
        self.paths = paths
        self.targets = [int(path.parent.name == "b") for path in paths]

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, i: int) -> tuple[Image.Image, int]:
        return Image.open(self.paths[i]).convert("RGB"), self.targets[i]


def make(folder: Path, count: int) -> list[Path]:
    """Photos of a kind: smooth colours with some grain."""
    rng = np.random.default_rng(0)
    paths, grain = [], rng.normal(0, 8, (2 * SIDE, 2 * SIDE, 3)).astype(np.float32)
    for i in range(count):
        coarse = Image.fromarray(rng.integers(256, size=(12, 12, 3), dtype=np.uint8))
        top, left = rng.integers(SIDE, size=2)
        pixels = np.asarray(coarse.resize((SIDE, SIDE), Image.Resampling.BICUBIC), np.float32)
        pixels = pixels + grain[top : top + SIDE, left : left + SIDE]
        path = folder / "ab"[i % 2] / f"{i}.jpg"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(path, quality=88)
        paths.append(path)
    return paths


def epoch(data: nf.LabeledData) -> dict[str, float]:
    """An epoch of `fit`: examples per second, processor seconds of a batch, and the slowdown of the loop's thread."""
    batches = math.ceil(len(data) / BATCH)
    pause = Pause(batches)
    result = nf.fit(pause, data, "ce", epochs=1, batch_size=BATCH, eval_examples=0, augment="none")
    first, last = pause.clocks
    ran = max(last.ran - first.ran, 1e-9)
    return {
        "rate": result.history[-1]["examples_per_second"],
        "spent": (last.spent - first.spent) / (batches - 1),
        "slowdown": (ran + last.waited - first.waited) / ran,
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=2560)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="keep the images here, and use them again")
    args = parser.parse_args()
    training.conclude = lambda run, *_: run  # type: ignore[assignment]  # predictions and audit are not timed
    with tempfile.TemporaryDirectory() as temporary:
        place = args.folder or Path(temporary)
        place.mkdir(parents=True, exist_ok=True)
        paths = sorted(place.rglob("*.jpg"))
        paths = paths if len(paths) == args.count else make(place, args.count)
        sources = {
            "in memory": nf.load(place),
            "encoded, a thread ahead": nf.load(place, memory_limit=1),
            "Dataset, 2 workers": nf.load(Photos(paths), memory_limit=1, workers=2),
        }
        found = {name: [] for name in sources}
        for _ in range(args.rounds):
            for name, data in sources.items():
                found[name].append(epoch(data))
                print(name, found[name][-1], file=sys.stderr, flush=True)
    column = {name: {key: np.array([one[key] for one in each]) for key in each[0]} for name, each in found.items()}
    base = column["in memory"]["rate"]
    rows = []
    for name, own in column.items():
        ratio = own["rate"] / base
        spread = f"{ratio.min():.2f} … {ratio.max():.2f}"
        spent, slowdown = f"{1000 * np.median(own['spent']):.0f}", f"{np.median(own['slowdown']):.1f}"
        rows.append([name, f"{np.median(own['rate']):,.0f}", f"{np.median(ratio):.2f}", spread, spent, slowdown])
    header = ["", "images/s", "ratio", "over rounds", "processor ms a batch", "slowdown"]
    load = os.getloadavg()[0]
    show(f"{args.count:,} JPEGs, batch {BATCH}, load {load:.1f}, {os.cpu_count()} cores", header, rows)
    write("streaming", {"count": args.count, "found": found, "load": load, "machine": machine()})


if __name__ == "__main__":
    main()

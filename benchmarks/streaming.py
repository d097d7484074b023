"""Images that are decoded while the model computes, against the same images decoded in memory.

A folder of JPEGs of 224×224 pixels, batches of 128; the model is replaced by a pause of 100 ms, as if a GPU computed.
The rate of `fit` with images that stay encoded (read ahead in a thread) and with a Dataset (two workers), each divided
by the rate with all of them in memory, in turn.

    python benchmarks/streaming.py --count 20000
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from common import machine, show, write
from PIL import Image
from torch import Tensor, nn

import noiseproof as nf

SIDE, BATCH = 224, 128


class Pause(nn.Module):
    """A network that computes elsewhere for 100 ms."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(2))

    def forward(self, x: Tensor) -> Tensor:
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
    paths = []
    for i in range(count):
        coarse = Image.fromarray(rng.integers(256, size=(12, 12, 3), dtype=np.uint8))
        pixels = np.asarray(coarse.resize((SIDE, SIDE), Image.Resampling.BICUBIC)) + rng.normal(0, 8, (SIDE, SIDE, 3))
        path = folder / "ab"[i % 2] / f"{i}.jpg"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(path, quality=88)
        paths.append(path)
    return paths


def rate(data: nf.LabeledData) -> float:
    """Examples per second of the second epoch: the first warms up."""
    result = nf.fit(Pause(), data, "ce", epochs=2, batch_size=BATCH, eval_examples=0)
    return result.history[-1]["examples_per_second"]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=2560)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        paths = make(Path(place), args.count)
        sources = {
            "in memory": nf.load(place),
            "encoded, a thread ahead": nf.load(place, memory_limit=1),
            "Dataset, 2 workers": nf.load(Photos(paths), memory_limit=1, workers=2),
        }
        rates = {name: [] for name in sources}
        for _ in range(args.rounds):
            for name, data in sources.items():
                rates[name].append(rate(data))
    base = np.array(rates["in memory"])
    ratios = {name: np.array(found) / base for name, found in rates.items()}
    rows = [
        [name, f"{np.median(rates[name]):,.0f}", f"{np.median(r):.2f}", f"{r.min():.2f} … {r.max():.2f}"]
        for name, r in ratios.items()
    ]
    load = os.getloadavg()[0]
    show(f"{args.count:,} JPEGs, batch {BATCH}, load {load:.1f}", ["", "images/s", "ratio", "over rounds"], rows)
    write("streaming", {"count": args.count, "rates": rates, "load": load, "machine": machine()})


if __name__ == "__main__":
    main()

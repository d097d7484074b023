"""What it saves to keep freed memory from step to step (`device.kept_memory`).

    python benchmarks/allocator.py [--rounds 5]

Steps of networks on images of 32 pixels, and the normalisation of 128 photos of 224 pixels, with one thread: processor
milliseconds and new pages of a step, first without and then with it: what glibc does by itself, learning from sizes as
it goes, it does no more once it has been told otherwise.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable
from contextlib import nullcontext

import numpy as np
import torch
import torch.nn.functional as F
from common import machine, show, write

from noiseproof.data import Normalize
from noiseproof.device import kept_memory
from noiseproof.models import registry

STEPS = 8


def step_of(name: str) -> Callable[[], None]:
    """A training step of a network, batch 128."""
    model = registry.build(name, (3, 32, 32), 10).train()
    images, labels = torch.randn(128, 3, 32, 32), torch.randint(10, (128,))

    def step() -> None:
        model.zero_grad()
        F.cross_entropy(model(images), labels).backward()

    return step


def photos() -> Callable[[], None]:
    """From 128 photos as bytes to what a network takes."""
    normalize, images = Normalize([0.5] * 3, [0.2] * 3), torch.randint(256, (128, 3, 224, 224), dtype=torch.uint8)

    def step() -> None:
        normalize(images)

    return step


def measure(step: Callable[[], None], keep: bool) -> tuple[float, float]:
    """Processor milliseconds and new pages of a step."""
    with kept_memory() if keep else nullcontext():
        step()
        pages, began = resource.getrusage(resource.RUSAGE_SELF).ru_minflt, time.process_time()
        for _ in range(STEPS):
            step()
        spent = time.process_time() - began
        pages = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - pages
    return 1000 * spent / STEPS, pages / STEPS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    steps = {name: step_of(name) for name in ("mlp", "resnet8", "resnet20", "quicknet")} | {"128 photos": photos()}
    plain = {name: [measure(step, False) for _ in range(options.rounds)] for name, step in steps.items()}
    rows, results = [], {}
    for name, step in steps.items():
        found = np.array([[plain[name][at], measure(step, True)] for at in range(options.rounds)])
        ratio = found[:, 0, 0] / found[:, 1, 0]
        (before, new), (kept, still_new) = np.median(found, axis=0)
        results[name] = {"ms": [before, kept], "pages": [new, still_new], "ratio": ratio.tolist()}
        rows.append(
            [name, f"{before:.1f}", f"{kept:.1f}", f"{np.median(ratio):.2f}", f"{ratio.min():.2f} … {ratio.max():.2f}",
             f"{new:,.0f}", f"{still_new:,.0f}"]
        )  # fmt: skip
    header = ["step of", "ms", "ms, kept", "ratio", "over rounds", "new pages", "kept"]
    show("Memory kept from step to step", header, rows)
    write("allocator", {"results": results, "machine": machine()})


if __name__ == "__main__":
    main()

"""Peak memory of `fit` on 50,000×3×32×32 images: the data should be there once, as bytes.

    python benchmarks/memory.py          a fresh process for each case; writes results/memory.json

Each case reports how much its peak resident memory rises above that of a process which fits 2,000 images in the same
way: what is left is the data and its handling.
"""

from __future__ import annotations

import subprocess
import sys

from common import machine, show, write

SCRIPT = """
import resource, sys
import torch
from noiseproof.data import LabeledData
from noiseproof.training.fit import fit
n, val = int(sys.argv[1]), float(sys.argv[2])
images = torch.empty(n, 3, 32, 32, dtype=torch.uint8)
for block in images.split(1000):
    block.random_(0, 256)
data = LabeledData(images, torch.arange(n) % 10)
test = LabeledData(images[:500], torch.arange(500) % 10)
fit("mlp", data, "elr", epochs=1, batch_size=128, val=val or None, test=test, augment="weak", device="cpu",
    eval_examples=500)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""


def peak(n: int, val: float) -> int:
    """Peak resident bytes of a fresh process that fits n images."""
    call = [sys.executable, "-c", SCRIPT, str(n), str(val)]
    return int(subprocess.run(call, check=True, capture_output=True, text=True).stdout)


def main() -> None:
    size = 50_000 * 3 * 32 * 32
    rows, results = [], {}
    for val in (0.0, 0.1):
        small, large = peak(2_000, val), peak(50_000, val)
        rise, expected = large - small, size - 2_000 * 3 * 32 * 32
        name = f"50,000 images, {'no' if not val else '10 %'} validation split"
        results[name] = {"small": small, "large": large, "rise": rise, "ratio": rise / expected}
        rows.append([name, f"{large / 2**20:,.0f} MiB", f"{rise / 2**20:,.0f} MiB", f"{rise / expected:.2f}"])
    show("Peak memory of fit", ["case", "peak", "rise over 2,000 images", "times the data as bytes"], rows)
    write("memory", {"results": results, "machine": machine()})


if __name__ == "__main__":
    main()

"""CRUST's selection by classes: time and memory as the number of examples grows, and what a process has of it.

    python benchmarks/selection.py

A class is a problem of its own, so that a selection is the sum over classes of the cost t(m) of a class of m examples,
divided by the processes that have classes. Here t(m) is measured for one class, and the whole for 10⁶ examples of 1,000
classes; gradients p − y of made-up predictions, fraction 0.5. Processor seconds, one thread.
"""

from __future__ import annotations

import argparse
import resource
import time

import numpy as np
import torch
from common import machine, show, write
from torch import Tensor

from noiseproof.coreset import facility_location
from noiseproof.coreset.nearest import nearest_to_centre

D = 20  # classes that a prediction is about


def gradients(n: int, seed: int = 0) -> Tensor:
    """p − y (n, D) of examples labelled 0, of which four in ten are of another class."""
    generator = torch.Generator().manual_seed(seed)
    logits = 1.5 * torch.randn(n, D, generator=generator)
    truth = torch.where(torch.rand(n, generator=generator) < 0.6, 0, torch.randint(0, D, (n,), generator=generator))
    logits[torch.arange(n), truth] += 4 * torch.rand(n, generator=generator)
    rows = logits.softmax(dim=1)
    rows[:, 0] -= 1
    return rows


def spent(kind: str, rows: Tensor, groups: Tensor | None = None) -> float:
    began = time.process_time()
    if kind == "medoids":
        facility_location(rows, 0.5, groups=groups, threads=1)
    else:
        nearest_to_centre(rows, 0.5, groups=groups, centre=torch.zeros(D) if kind == "smallest" else None)
    return time.process_time() - began


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--sizes", default="1000,3000,10000,30000")
    parser.add_argument("--examples", type=int, default=1_000_000)
    parser.add_argument("--classes", type=int, default=1000)
    given = parser.parse_args()
    sizes, rows, found = [int(one) for one in given.sizes.split(",")], [], {}
    for kind in ("smallest", "trimmed", "medoids"):
        spent(kind, gradients(100))  # what is compiled is compiled once
        times = [spent(kind, gradients(n)) for n in sizes]
        slope = float(np.polyfit(np.log(sizes), np.log(times), 1)[0])
        groups = torch.arange(given.examples) % given.classes
        whole = spent(kind, gradients(given.examples), groups)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        found[kind] = {"times": times, "exponent": slope, "whole": whole, "peak": peak}
        rows.append([kind, *(f"{one:.3g}" for one in times), f"{slope:.2f}", f"{whole:.1f}", f"{peak:.2f}"])
        print(rows[-1], flush=True)
    header = ["selection", *(f"{n:,}" for n in sizes), "exponent", f"{given.examples:,} of {given.classes:,} classes"]
    show("processor seconds of a class of so many examples", [*header, "peak GiB so far"], rows)
    write("selection", {"sizes": sizes, "found": found, "machine": machine()})


if __name__ == "__main__":
    main()

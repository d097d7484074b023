"""What a training step of SOP and SOP+ costs, relative to cross-entropy on the same network and batch.

python benchmarks/sop.py [--quick]     writes results/sop.json

Whole steps (gather the batch's rows, forward, backward, optimizer, u and v), in processor time on one thread. All
methods take turns within a round, so that a slow moment of the machine hits each of them; a ratio is that of the
rounds' fastest times, its range over the rounds. Beside it, what the update of u and v would cost as in the authors'
code, by torch.optim.SGD over all of them.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from common import machine, show, write
from torch import Tensor, nn

from noiseproof import methods, models
from noiseproof.data import LabeledData, Normalize
from noiseproof.data.sources import InputSource
from noiseproof.method import Batch, Run

METHODS = ("ce", "sop", "sop_plus", "elr")


class Blank(InputSource):
    """As many inputs as asked for, in no memory: only the labels and the state grow with n."""

    def __init__(self, n: int) -> None:
        self.n = n

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.n, 1)

    @property
    def dtype(self) -> torch.dtype:
        return torch.float32

    def take(self, index: Tensor) -> Tensor:
        return torch.zeros(len(index), 1)


def stepper(method: str, network: Callable[[], nn.Module], x: Tensor, n: int, classes: int) -> tuple[Any, int]:
    """A function that makes one training step on the rows it is given; and the bytes of the method's state."""
    torch.manual_seed(0)
    labels = torch.arange(n) % classes
    model = network()
    run = Run(
        models=nn.ModuleList([model]), data=LabeledData(Blank(n), labels), num_classes=classes, epochs=100,
        batch_size=len(x), device=torch.device("cpu"), generator=torch.Generator().manual_seed(0),
        normalize=Normalize(torch.zeros(1), torch.ones(1)), lr=0.02,
    )  # fmt: skip
    built = methods.build(method)
    built.start(run)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, weight_decay=5e-4, fused=True)
    views = (x,) * built.num_views

    def step(rows: Tensor) -> None:
        batch = Batch(views, labels.index_select(0, rows), rows)
        loss = built.loss(run, batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        built.after_step(run, batch)

    return step, sum(tensor.nbytes for tensor in built.state_dict().values() if isinstance(tensor, Tensor))


def compare(
    network: Callable[[], nn.Module], x: Tensor, n: int, classes: int, steps: int, rounds: int
) -> dict[str, dict[str, Any]]:
    """Seconds and ratios of each method."""
    steppers = {method: stepper(method, network, x, n, classes) for method in METHODS}
    generator = torch.Generator().manual_seed(1)
    rows = [torch.randint(n, (len(x),), generator=generator).unique() for _ in range(steps)]
    rows = [torch.cat([r, (r.max() + 1 + torch.arange(len(x) - len(r))) % n]) for r in rows]  # no repeats
    times: dict[str, list[float]] = {method: [] for method in METHODS}
    for number in range(rounds + 1):
        for method, (step, _) in steppers.items():
            began = time.process_time()
            for one in rows:
                step(one)
            if number:  # the first warms up
                times[method].append((time.process_time() - began) / steps)
    return {
        method: {
            "ms": 1000 * min(values),
            "ratio": min(values) / min(times["ce"]),
            "median": statistics.median(a / b for a, b in zip(values, times["ce"], strict=True)),
            "range": [f(a / b for a, b in zip(values, times["ce"], strict=True)) for f in (min, max)],
            "state_mb": steppers[method][1] / 2**20,
        }
        for method, values in times.items()
    }


def dense_update(n: int, classes: int, batch: int, rounds: int) -> dict[str, float]:
    """Milliseconds of one step of SGD over all of u and v, and of the update of a batch's rows."""
    from noiseproof.methods.sop_noise import NoiseModel, NoiseOptions

    model = NoiseModel(n, classes, NoiseOptions(), torch.Generator().manual_seed(0))
    u, v = nn.Parameter(model.u.clone()), nn.Parameter(model.v.clone())
    u.grad, v.grad = torch.zeros_like(u), torch.zeros_like(v)
    optimizer = torch.optim.SGD([u, v], lr=0.1, fused=True)
    index, label = torch.randperm(n)[:batch], torch.zeros(batch, dtype=torch.int64)
    by_u, by_v = torch.zeros(batch), torch.zeros(batch, classes)
    dense, sparse = [], []
    for _ in range(rounds):
        began = time.process_time()
        optimizer.step()
        dense.append(time.process_time() - began)
        began = time.process_time()
        for _ in range(100):
            model.move(index, label, -0.1 * by_u, -0.1 * by_v)
        sparse.append((time.process_time() - began) / 100)
    return {"dense_ms": 1000 * min(dense), "sparse_ms": 1000 * min(sparse)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds, and K up to 100")
    options = parser.parse_args()
    sizes = [(50_000, 100), (1_000_000, 100)] + ([] if options.quick else [(1_000_000, 1000)])
    rounds = 5 if options.quick else 15
    torch.set_num_threads(1)
    rows, results = [], []
    for n, classes in sizes:
        cases: list[tuple[str, Callable[[], nn.Module], Tensor, int]] = [
            ("mlp, batch 64", lambda k=classes: models.build("mlp", (256,), k, widths=(256,)),
             torch.randn(64, 256), 100),
            ("resnet20, batch 128", lambda k=classes: models.build("resnet20", (3, 32, 32), k),
             torch.randn(128, 3, 32, 32), 2),
        ]  # fmt: skip
        for name, network, x, steps in cases:
            figures = compare(network, x, n, classes, steps, rounds)
            results.append({"network": name, "n": n, "classes": classes, "figures": figures})
            for method, f in figures.items():
                low, high = f["range"]
                rows.append([f"{name}, n={n:,}, K={classes}", method, f"{f['ms']:.2f}", f"{f['ratio']:.3f}",
                             f"{f['median']:.3f}", f"{low:.2f} … {high:.2f}", f"{f['state_mb']:,.0f}"])  # fmt: skip
    updates = {f"n={n:,}, K={k}": dense_update(n, k, 64, 5) for n, k in sizes[:1]}
    header = ["network", "method", "ms a step", "ratio of best", "median ratio", "range", "state, MiB"]
    show("A training step relative to cross-entropy", header, rows)
    show("The update of u and v alone", ["size", "dense SGD, ms", "touched rows, ms", "ratio"],
         [[key, f"{f['dense_ms']:.3f}", f"{f['sparse_ms']:.4f}", f"{f['dense_ms'] / f['sparse_ms']:.0f}"]
          for key, f in updates.items()])  # fmt: skip
    write("sop", {"steps": results, "updates": updates, "machine": machine()})


if __name__ == "__main__":
    main()

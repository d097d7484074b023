"""Training speed in PyTorch's two image layouts: contiguous (NCHW) against channels_last (NHWC).

Each round times every model in both layouts back to back, so that a slow minute of a shared machine hits both; the
order within a pair alternates. Reported: median images per second of each layout, and the median, smallest and
largest of the per-round ratios.

    python benchmarks/models.py                   # writes results/models.json
    python benchmarks/models.py --rounds 3 --threads 1
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import nn
from torch.nn import functional as F

from noiseproof import models

CASES = (  # name, input shape, batch size, steps per timing
    ("cnn3", (3, 32, 32), 128, 4),
    ("conv4", (1, 28, 28), 128, 3),
    ("resnet8", (3, 32, 32), 128, 4),
    ("resnet20", (3, 32, 32), 128, 2),
    ("resnet18", (3, 32, 32), 16, 2),
    ("vgg11", (3, 32, 32), 32, 2),
    ("lenet", (1, 28, 28), 128, 8),
)
LAYOUTS = {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last}


class Trainer:
    """A model, an optimizer and one fixed batch in one memory layout."""

    def __init__(self, name: str, shape: tuple[int, ...], batch: int, layout: torch.memory_format) -> None:
        torch.manual_seed(0)
        self.model: nn.Module = models.build(name, shape, 10)
        self.model.to(memory_format=layout)  # type: ignore[call-overload]  # torch's stub omits it
        self.inputs = torch.randn(batch, *shape).to(memory_format=layout)
        self.label = torch.randint(10, (batch,))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9)

    def images_per_second(self, steps: int) -> float:
        start = time.perf_counter()
        for _ in range(steps):
            self.optimizer.zero_grad()
            F.cross_entropy(self.model(self.inputs), self.label).backward()
            self.optimizer.step()
        return steps * len(self.label) / (time.perf_counter() - start)


def measure(rounds: int) -> list[dict[str, Any]]:
    trainers = {
        name: {layout: Trainer(name, shape, batch, fmt) for layout, fmt in LAYOUTS.items()}
        for name, shape, batch, _ in CASES
    }
    speeds: dict[str, dict[str, list[float]]] = {name: {layout: [] for layout in LAYOUTS} for name in trainers}
    for round_ in range(rounds + 1):
        for name, _, _, steps in CASES:
            for layout in LAYOUTS if round_ % 2 else reversed(LAYOUTS):
                speed = trainers[name][layout].images_per_second(steps)
                if round_ > 0:  # round 0 warms up
                    speeds[name][layout].append(speed)
    rows = []
    for name, shape, batch, _ in CASES:
        both = speeds[name]
        ratios = [last / first for first, last in zip(both["contiguous"], both["channels_last"], strict=True)]
        rows.append(
            {
                "model": name,
                "input_shape": list(shape),
                "batch_size": batch,
                "images_per_second": {layout: statistics.median(values) for layout, values in both.items()},
                "ratio": {"median": statistics.median(ratios), "min": min(ratios), "max": max(ratios)},
                "all": both,
            }
        )
    return rows


def show(rows: list[dict[str, Any]]) -> None:
    table = Table(title="Training step, images per second")
    for column in ("model", "batch", "contiguous", "channels_last", "ratio (median)", "ratio (range)"):
        table.add_column(column, justify="left" if column == "model" else "right")
    for row in rows:
        speed, ratio = row["images_per_second"], row["ratio"]
        table.add_row(
            row["model"],
            f"{row['batch_size']}",
            f"{speed['contiguous']:.0f}",
            f"{speed['channels_last']:.0f}",
            f"{ratio['median']:.2f}",
            f"{ratio['min']:.2f}–{ratio['max']:.2f}",
        )
    Console().print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--out", type=Path, default=Path("results/models.json"))
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    rows = measure(arguments.rounds)
    show(rows)
    machine = {
        "torch": torch.__version__,
        "threads": arguments.threads,
        "cpu": torch.backends.cpu.get_cpu_capability(),
        "platform": platform.platform(),
    }
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps({"rounds": arguments.rounds, "machine": machine, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()

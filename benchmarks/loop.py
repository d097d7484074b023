"""Examples per second of `fit` against a bare hand-written loop, on the same data, in one run.

python benchmarks/loop.py            both networks, interleaved rounds; writes results/loop.json
"""

from __future__ import annotations

import statistics
import time

import torch
import torch.nn.functional as F
from common import machine, show, write
from torch import nn

from noiseproof import models
from noiseproof.data import LabeledData, load
from noiseproof.training.fit import fit

SETTINGS = {"lr": 0.05, "momentum": 0.9, "weight_decay": 5e-4}


def bare(model: nn.Module, inputs: torch.Tensor, labels: torch.Tensor, epochs: int, batch_size: int) -> list[float]:
    """What one writes by hand: floats in memory, a permutation, forward, backward, step. Examples/s of each epoch."""
    optimizer = torch.optim.SGD(model.parameters(), **SETTINGS)
    rates = []
    model.train()
    for _ in range(epochs):
        began = time.perf_counter()
        total = 0.0
        for index in torch.randperm(len(inputs)).split(batch_size):
            loss = F.cross_entropy(model(inputs[index]), labels[index])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        rates.append(len(inputs) / (time.perf_counter() - began))
    return rates


def ours(name: str, data: LabeledData, epochs: int, batch_size: int) -> list[float]:
    """`fit` without evaluation, which the bare loop does not have either."""
    result = fit(name, data, "ce", epochs=epochs, batch_size=batch_size, eval_examples=0, device="cpu", **SETTINGS)
    return [record["examples_per_second"] for record in result.history]


def compare(title: str, name: str, data: LabeledData, *, epochs: int, batch_size: int, rounds: int) -> dict:
    """The two loops in turn, `rounds` times; the ratio of their median epochs, and its range over the rounds."""
    raw = data.take(torch.arange(len(data)))
    inputs = (raw.float() / 255 - 0.5) / 0.25
    rates: dict[str, list[float]] = {"bare": [], "ours": []}
    ratios = []
    for number in range(rounds):
        torch.manual_seed(0)
        model = models.build(name, data.input_shape, data.num_classes)
        turns = {"bare": lambda m=model: bare(m, inputs, data.labels, epochs, batch_size)}
        turns["ours"] = lambda: ours(name, data, epochs, batch_size)
        order = ("bare", "ours") if number % 2 else ("ours", "bare")
        one = {key: turns[key]()[1:] for key in order}  # the first epoch warms up
        for key in rates:
            rates[key] += one[key]
        ratios.append(statistics.median(one["ours"]) / statistics.median(one["bare"]))
    return {
        "case": title,
        "bare": statistics.median(rates["bare"]),
        "ours": statistics.median(rates["ours"]),
        "ratio": statistics.median(rates["ours"]) / statistics.median(rates["bare"]),
        "ratio_rounds": ratios,
    }


def main() -> None:
    images = torch.randint(0, 256, (1024, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    cifar = LabeledData(images, torch.arange(1024) % 10)
    rows = [
        compare("mlp, digits, batch 64", "mlp", load("digits"), epochs=40, batch_size=64, rounds=7),
        compare("mlp, digits, batch 128", "mlp", load("digits"), epochs=40, batch_size=128, rounds=7),
        compare("resnet20, 3×32×32, batch 128", "resnet20", cifar, epochs=3, batch_size=128, rounds=4),
    ]
    show(
        "Examples per second (median epoch)",
        ["case", "bare loop", "fit", "ratio (target 0.97)", "range over rounds"],
        [
            [r["case"], f"{r['bare']:,.0f}", f"{r['ours']:,.0f}", f"{r['ratio']:.3f}",
             f"{min(r['ratio_rounds']):.3f} … {max(r['ratio_rounds']):.3f}"]
            for r in rows
        ],
    )  # fmt: skip
    write("loop", {"rows": rows, "machine": machine()})


if __name__ == "__main__":
    main()

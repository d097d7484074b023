"""Label-noise SGD, one example a step, d = 500 and m = 300, against a plain torch loop on the same examples and flips.

python benchmarks/annealing.py [--quick]     writes results/annealing.json

The plain loop is what one writes by hand, for the network of two d-dimensional features: four matrix–vector products
and outer products a step, in place, without autograd. A second one lets autograd and torch.optim.SGD do it. One thread.
Seconds are those of the processor, so that others on the machine disturb little; the sides take turns within a round,
a ratio is that of the rounds' fastest times, its range over the rounds. The slow loops run fewer steps.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import torch
from common import machine, show, write
from torch import Tensor

from noiseproof_papers.label_noise import annealing
from noiseproof_papers.label_noise.annealing import Data, Net

D, M, STEPS, RATE, DELTA = 500, 300, 100_000, 0.1, 0.05
FEWER = {"plain": 20, "autograd": 50}  # times fewer steps, for the loops that are slow


def dense(data: Data) -> Tensor:
    """x₂ in all d coordinates."""
    return torch.nn.functional.pad(data.x2, (0, D - 2))


def plain(net: Net, data: Data, index: Tensor, flip: Tensor) -> tuple[Tensor, Tensor]:
    W, V, x1, x2 = net.W.clone(), torch.zeros(M, D, dtype=net.W.dtype), data.x1, dense(data)
    V[:, :2] = net.V.T
    for i, sigma in zip(index.tolist(), flip.tolist(), strict=True):
        h1, h2 = W @ x1[i], V @ x2[i]
        y = float(data.y[i])
        margin = sigma * y * (net.w @ torch.relu(h1) + net.v @ torch.relu(h2))
        step = RATE * sigma * y * torch.sigmoid(-margin)
        W.addr_(step * net.w * (h1 >= 0), x1[i])
        V.addr_(step * net.v * (h2 >= 0), x2[i])
    return W, V[:, :2].T


def autograd(net: Net, data: Data, index: Tensor, flip: Tensor) -> tuple[Tensor, Tensor]:
    V = torch.zeros(M, D, dtype=net.W.dtype)
    V[:, :2] = net.V.T
    W, V, x1, x2 = net.W.clone().requires_grad_(), V.requires_grad_(), data.x1, dense(data)
    optimizer = torch.optim.SGD([W, V], lr=RATE)
    for i, sigma in zip(index.tolist(), flip.tolist(), strict=True):
        f = net.w @ torch.relu(W @ x1[i]) + net.v @ torch.relu(V @ x2[i])
        loss = torch.nn.functional.softplus(-sigma * data.y[i] * f)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return W.detach(), V.detach()[:, :2].T


def ours(net: Net, data: Data, index: Tensor, flip: Tensor) -> tuple[Tensor, Tensor]:
    moved = annealing.copy(net)
    annealing.sgd(moved, data, index, flip, RATE, DELTA)
    return moved.W, moved.V


def with_parts(net: Net, data: Data, index: Tensor, flip: Tensor) -> tuple[Tensor, Tensor]:
    moved = annealing.copy(net)
    annealing.sgd(moved, data, index, flip, RATE, DELTA, annealing.decoupled(moved))
    return moved.W, moved.V


WAYS: dict[str, Callable[[Net, Data, Tensor, Tensor], tuple[Tensor, Tensor]]] = {
    "ours": ours, "ours, with Ū and Ũ": with_parts, "plain": plain, "autograd": autograd,
}  # fmt: skip


def compare(dtype: torch.dtype, total: int, rounds: int) -> dict[str, Any]:
    """Seconds for `total` steps each way, and how far the weights are apart after the same 1,000 steps."""
    law = annealing.problem(D, 0.5, q0=0.25)
    data = annealing.draw(law, law.size, seed=0, dtype=dtype)
    net = annealing.network(M, D, tau0=0.1, seed=0, dtype=dtype)
    generator = torch.Generator().manual_seed(0)
    index = torch.randint(law.size, (total,), generator=generator)
    flip = 1 - 2 * (torch.rand(total, generator=generator) < DELTA).to(dtype)
    short = (net, data, index[:1000], flip[:1000])
    ends = {name: way(*short) for name, way in WAYS.items()}  # also compiles
    apart = max(float((a - b).abs().max()) for name in WAYS for a, b in zip(ends[name], ends["plain"], strict=True))
    seconds: dict[str, list[float]] = {name: [] for name in WAYS}
    for _ in range(rounds):
        for name, way in WAYS.items():
            count = total // FEWER.get(name, 1)
            began = time.process_time()
            way(net, data, index[:count], flip[:count])
            seconds[name].append((time.process_time() - began) * total / count)
    ratios = {name: [a / b for a, b in zip(seconds[name], seconds["ours"], strict=True)] for name in WAYS}
    best = {name: min(values) for name, values in seconds.items()}
    return {
        "dtype": str(dtype).removeprefix("torch."),
        "steps": total,
        "seconds": best,
        "ratios": ratios,
        "apart": apart,
    }


def main(quick: bool) -> None:
    torch.set_num_threads(1)
    total, rounds = (STEPS // 5, 2) if quick else (STEPS, 5)
    results = [compare(dtype, total, rounds) for dtype in (torch.float32, torch.float64)]
    rows = [
        [
            f"{one['dtype']}, {name}",
            f"{seconds:.2f} s",
            f"{1e6 * seconds / total:.1f} µs",
            f"{seconds / one['seconds']['ours']:.1f}",
            f"{min(one['ratios'][name]):.1f} … {max(one['ratios'][name]):.1f}",
            f"{one['apart']:.0e}",
        ]
        for one in results
        for name, seconds in one["seconds"].items()
    ]
    header = ["", f"{total:,} steps", "a step", "relative to ours", "range over rounds", "apart after 1,000 steps"]
    show(f"Label-noise SGD, d = {D}, m = {M} units for each feature, one thread", header, rows)
    write("annealing", {"results": results, "machine": machine()})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer steps and rounds")
    main(parser.parse_args().quick)

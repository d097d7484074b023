"""Batched augmentation, from uint8 in memory to floats for the model: its speed, its share of a step, and kornia's.

Each round times both libraries back to back on the same batch, in alternating order, so that a slow minute of a shared
machine hits both; without kornia, ours alone. Same work on both sides: parameters drawn for each example, the same
operations in the same order with the same probabilities and ranges, the same number of threads. Reported: images per
second (median and best round), and the ratio: of the medians, of the best rounds, and the quartiles of the per-round
ratios. Then what augmentation takes of a whole training step of a small network, resnet8.

One thread unless told otherwise, timed by the processor's clock, which stands still while others have the core; several
by the clock on the wall, where with fewer free cores than threads one mostly measures how long a thread waits for one.

    python benchmarks/augment.py                  # writes results/augment.json
    python benchmarks/augment.py --rounds 10 --threads 1 2
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import torch
from common import machine, show, write
from torch import Tensor, nn

from noiseproof import models
from noiseproof.data.augment import POLICIES, Compose, Normalize, policy

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
CASES = (  # name, policy, batch, side, rounds relative to --rounds
    ("crop, flip, normalise, 256×3×32×32", "weak", 256, 32, 1.0),
    ("SimCLR chain, 256×3×32×32", "simclr", 256, 32, 1.0),
    ("SimCLR chain, 32×3×224×224", "simclr", 32, 224, 0.25),
)
WARM_UP = 3  # calls before the first round
Augment = Callable[[Tensor], Tensor]


def ours(name: str, side: int) -> Augment:
    chain = Compose([policy(name, side), Normalize(MEAN, STD)])
    generator = torch.Generator().manual_seed(0)
    return lambda x: chain(x, generator)


def peer(name: str, side: int) -> Augment:
    """The same chain in kornia, which takes float images."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import kornia.augmentation as K

    taps = max(3, side // 10 | 1)  # as ours
    normalise = K.Normalize(torch.tensor(MEAN), torch.tensor(STD))
    if name == "weak":
        chain = nn.Sequential(K.RandomCrop((side, side), padding=side // 8), K.RandomHorizontalFlip(p=0.5), normalise)
    else:
        chain = nn.Sequential(
            K.RandomResizedCrop((side, side), scale=(0.2, 1.0), ratio=(3 / 4, 4 / 3)),
            K.RandomHorizontalFlip(p=0.5),
            K.ColorJitter(0.4, 0.4, 0.4, 0.1, p=0.8),
            K.RandomGrayscale(p=0.2),
            K.RandomGaussianBlur((taps, taps), (0.1, 2.0), p=0.5),
            normalise,
        )
    return lambda x: chain(x.to(torch.float32).mul_(1 / 255))


def now() -> float:
    return time.process_time() if torch.get_num_threads() == 1 else time.perf_counter()


def seconds(augment: Augment, x: Tensor) -> float:
    start = now()
    augment(x)
    return now() - start


def some_images(batch: int, side: int) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, (batch, 3, side, side), dtype=torch.uint8, generator=generator)


def measure(name: str, batch: int, side: int, rounds: int) -> dict[str, Any]:
    """Speeds of each library, and the ratio of their times if kornia is there."""
    x = some_images(batch, side)
    libraries = {"ours": ours(name, side)}
    if find_spec("kornia"):
        libraries["kornia"] = peer(name, side)
    for augment in libraries.values():
        for _ in range(WARM_UP):
            out = augment(x)
        assert out.shape == x.shape
        assert out.dtype == torch.float32
    times: dict[str, list[float]] = {library: [] for library in libraries}
    for k in range(rounds):
        for library in sorted(libraries, reverse=k % 2 == 0):
            times[library].append(seconds(libraries[library], x))
    result: dict[str, Any] = {"rounds": rounds}
    for library, measured in times.items():
        speeds = [batch / t for t in measured]
        result[library] = {
            "images_per_second_mean": statistics.mean(speeds),
            "images_per_second_spread": statistics.stdev(speeds),
            "images_per_second_median": statistics.median(speeds),
            "images_per_second_best": max(speeds),
            "milliseconds_best": 1000 * min(measured),
        }
    if "kornia" in times:
        ratios = [b / a for a, b in zip(times["ours"], times["kornia"], strict=True)]
        result["ratio_of_medians"] = statistics.median(times["kornia"]) / statistics.median(times["ours"])
        result["ratio_of_best"] = min(times["kornia"]) / min(times["ours"])
        result["ratio_quartiles"] = statistics.quantiles(ratios, n=4)
    return result


def share_of_step(name: str, rounds: int, batch: int = 128, side: int = 32) -> dict[str, float]:
    """What augmenting and normalising a batch takes of a step of resnet8: that, forward, backward and optimizer."""
    torch.manual_seed(0)
    x, label, augment = some_images(batch, side), torch.arange(batch) % 10, ours(name, side)
    network = models.build("resnet8", (3, side, side), 10).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimizer = torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4, fused=True)
    augmenting, whole = [], []
    for _ in range(WARM_UP + rounds):
        start = now()
        inputs = augment(x)
        augmenting.append(now() - start)
        loss = nn.functional.cross_entropy(network(inputs.contiguous(memory_format=torch.channels_last)), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        whole.append(now() - start)
    augmenting, whole = augmenting[WARM_UP:], whole[WARM_UP:]
    low, middle, high = statistics.quantiles([a / b for a, b in zip(augmenting, whole, strict=True)], n=4)
    return {
        "augmentation_ms": 1000 * statistics.median(augmenting), "step_ms": 1000 * statistics.median(whole),
        "share": middle, "share_low": low, "share_high": high,
    }  # fmt: skip


def speed_row(title: str, threads: int, result: dict[str, Any]) -> list[str]:
    row = [title, str(threads)]
    for library in ("ours", "kornia"):
        found = result.get(library)
        row += [f"{found[f'images_per_second_{which}']:,.0f}" if found else "" for which in ("median", "best")]
    if "kornia" not in result:
        return [*row, "", "", ""]
    quartiles = " ".join(f"{ratio:.1f}" for ratio in result["ratio_quartiles"])
    return [*row, f"{result['ratio_of_medians']:.1f}", f"{result['ratio_of_best']:.1f}", quartiles]


def step_row(name: str, threads: int, step: dict[str, float]) -> list[str]:
    figures = [f"{step['augmentation_ms']:.1f}", f"{step['step_ms']:.0f}", f"{step['share']:.3f}"]
    return [name, str(threads), *figures, f"{step['share_low']:.3f} … {step['share_high']:.3f}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--threads", type=int, nargs="+", default=[1])
    options = parser.parse_args()
    results: dict[str, Any] = {"machine": {**machine(), "threads": options.threads}, "cases": [], "steps": []}
    speeds, steps = [], []
    for threads in dict.fromkeys(options.threads):
        torch.set_num_threads(threads)
        for title, name, batch, side, part in CASES:
            result = measure(name, batch, side, max(4, round(options.rounds * part)))
            results["cases"].append({"case": title, "threads": threads, **result})
            speeds.append(speed_row(title, threads, result))
        for name in POLICIES:
            step = share_of_step(name, options.rounds)
            results["steps"].append({"policy": name, "threads": threads, **step})
            steps.append(step_row(name, threads, step))
    header = ["case", "thr.", "ours/s", "best", "kornia/s", "best", "ratio", "best", "quartiles"]
    show("Augmentation, uint8 to normalised floats: images per second (median, best round), ratio", header, speeds)
    header = ["policy", "thr.", "augmentation, ms", "step, ms", "share", "quartiles"]
    show("What augmentation takes of a training step of resnet8, 128×3×32×32", header, steps)
    if find_spec("kornia"):
        import kornia

        results["kornia"] = kornia.__version__
    write("augment", results)


if __name__ == "__main__":
    main()

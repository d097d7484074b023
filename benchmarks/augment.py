"""Images per second of batched augmentation: ours against kornia, from uint8 in memory to a float batch for the model.

Each round times both libraries back to back on the same batch, in alternating order, so that a slow minute of a shared
machine hits both. Same work on both sides: parameters drawn for each example, the same operations in the same order
with the same probabilities and ranges, the same number of threads. Reported: images per second (median and best
round), and the ratio: of the medians, of the best rounds, and the quartiles of the per-round ratios. One thread unless
told otherwise: with more threads than free cores, both sides mostly measure how long a thread waits for its core. What
happens once, as the compilation of our loops, is done before the first round.

    python benchmarks/augment.py                  # writes results/augment.json
    python benchmarks/augment.py --rounds 10 --threads 1 2
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
from common import machine, show, write
from torch import Tensor, nn

from noiseproof.data.augment import Compose, Normalize, policy

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


def seconds(augment: Augment, x: Tensor) -> float:
    start = time.perf_counter()
    augment(x)
    return time.perf_counter() - start


def measure(name: str, batch: int, side: int, rounds: int) -> dict[str, Any]:
    x = torch.randint(0, 256, (batch, 3, side, side), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    libraries = {"ours": ours(name, side), "kornia": peer(name, side)}
    for augment in libraries.values():
        for _ in range(WARM_UP):
            out = augment(x)
        assert out.shape == x.shape
        assert out.dtype == torch.float32
    times: dict[str, list[float]] = {library: [] for library in libraries}
    for k in range(rounds):
        for library in sorted(libraries, reverse=k % 2 == 0):
            times[library].append(seconds(libraries[library], x))
    ratios = [b / a for a, b in zip(times["ours"], times["kornia"], strict=True)]
    result: dict[str, Any] = {
        "rounds": rounds,
        "ratio_of_medians": statistics.median(times["kornia"]) / statistics.median(times["ours"]),
        "ratio_of_best": min(times["kornia"]) / min(times["ours"]),
        "ratio_quartiles": statistics.quantiles(ratios, n=4),
    }
    for library, measured in times.items():
        speeds = [batch / t for t in measured]
        result[library] = {
            "images_per_second_mean": statistics.mean(speeds),
            "images_per_second_spread": statistics.stdev(speeds),
            "images_per_second_median": statistics.median(speeds),
            "images_per_second_best": max(speeds),
            "milliseconds_best": 1000 * min(measured),
        }
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--threads", type=int, nargs="+", default=[1])
    options = parser.parse_args()
    import kornia

    results: dict[str, Any] = {
        "machine": {**machine(), "threads": options.threads},
        "kornia": kornia.__version__,
        "cases": [],
    }
    rows = []
    for threads in dict.fromkeys(options.threads):
        torch.set_num_threads(threads)
        for title, name, batch, side, part in CASES:
            result = measure(name, batch, side, max(4, round(options.rounds * part)))
            results["cases"].append({"case": title, "threads": threads, **result})
            low, middle, high = result["ratio_quartiles"]
            rows.append(
                [
                    title,
                    str(threads),
                    *(
                        f"{result[library][f'images_per_second_{which}']:,.0f}"
                        for library in ("ours", "kornia")
                        for which in ("median", "best")
                    ),
                    f"{result['ratio_of_medians']:.1f}",
                    f"{result['ratio_of_best']:.1f}",
                    f"{low:.1f} {middle:.1f} {high:.1f}",
                ]
            )
    header = ["case", "thr.", "ours/s", "best", "kornia/s", "best", "ratio", "best", "quartiles"]
    show("Augmentation, uint8 to normalised floats: images per second (median, best round), ratio", header, rows)
    write("augment", results)


if __name__ == "__main__":
    main()

"""What SANE costs beside MoCo, what augmentation takes of a step, and k-NN against one matrix product.

python benchmarks/pretrain.py [--quick] [--threads N] [--only knn …]     writes results/pretrain.json

Steps are whole ones: augmentation, forward, backward, optimizer, momentum network, dictionary. MoCo passes the query
forward and backward (1 + 2) and the key forward (1), SANE a mixed query forward and backward besides: 7/4 of MoCo by
passes. All sides take turns within a round, so that a slow moment of the machine hits each of them; ratios are of the
rounds' fastest times, beside their median and range. With one thread the processor's time counts, which other
programs on the machine disturb less than the clock on the wall; scikit-learn then has one thread too.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from common import machine, show, write
from threadpoolctl import threadpool_limits
from torch import nn

from noiseproof import models
from noiseproof.data import LabeledData, Normalize
from noiseproof.data.augment import policy
from noiseproof.method import Run
from noiseproof.pretraining import build, probes
from noiseproof.pretraining.train import projection_head
from noiseproof.training.batches import Batches

METHODS = ("moco", "moco(groups=4)", "sane", "sane(mixup='none')")


def take_turns(sides: dict[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Seconds of each side in each round, after one to warm up; of the processor where one thread works."""
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    times: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(rounds + 1):
        for name, side in sides.items():
            began = clock()
            side()
            if number:
                times[name].append(clock() - began)
    return times


def compare(times: dict[str, list[float]], base: str) -> dict[str, dict[str, Any]]:
    """Milliseconds and ratios to the side `base`."""
    found = {}
    for name, values in times.items():
        ratios = [a / b for a, b in zip(values, times[base], strict=True)]
        found[name] = {
            "ms": 1000 * min(values), "ratio": min(values) / min(times[base]), "median": statistics.median(ratios),
            "range": [min(ratios), max(ratios)],
        }  # fmt: skip
    return found


def stepper(method: str, model: str, side: int, batch: int) -> tuple[Callable[[], None], Callable[[], object]]:
    """A whole training step, and its augmentation alone."""
    torch.manual_seed(0)
    n = 4 * batch
    images = torch.randint(256, (n, 3, side, side), dtype=torch.uint8)
    data = LabeledData(images, torch.arange(n) % 10)
    network = models.build(model, (3, side, side), 10)
    network.head = projection_head(network.num_features, 128)
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    normalize = Normalize([0.5] * 3, [0.25] * 3)
    built = build(method)
    run = Run(
        models=nn.ModuleList([network]), data=data, num_classes=10, epochs=100, batch_size=batch,
        device=torch.device("cpu"), generator=torch.Generator().manual_seed(0), normalize=normalize, step=200,
    )  # fmt: skip
    built.start(run)
    # a dictionary of the paper's size, whatever the number of images here
    dictionary = nn.functional.normalize(torch.randn(4096, 128), dim=1)
    built.register_buffer("dictionary", dictionary)
    feed = Batches(data, normalize, (policy("simclr", side),) * built.num_views, run.device, 0)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.03, momentum=0.9, weight_decay=1e-4, fused=True)
    rows = torch.arange(batch)

    def step() -> None:
        one = feed.load(rows, None)
        loss = built.loss(run, one)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        built.after_step(run, one)

    return step, lambda: feed.load(rows, None)


def knn_sides(queries: int, bank: int, width: int) -> dict[str, Callable[[], object]]:
    """Our search, one matrix product of its size, and scikit-learn's brute force."""
    from sklearn.neighbors import NearestNeighbors

    torch.manual_seed(0)
    unit = nn.functional.normalize
    known, asked = unit(torch.randn(bank, width), dim=1), unit(torch.randn(queries, width), dim=1)
    labels = torch.arange(bank) % 10
    brute = NearestNeighbors(n_neighbors=50, algorithm="brute").fit(known.numpy())  # unit vectors: the cosine's order
    return {
        "matrix product": lambda: asked @ known.T,
        "k-NN": lambda: probes.knn(known, labels, asked, k=50),
        "scikit-learn": lambda: brute.kneighbors(asked.numpy()),
    }


CASES = {"resnet8": (32, 128), "resnet20": (32, 128), "resnet18": (32, 64)}  # side of the images, batch


def passes(model: str) -> float:
    """What SANE must cost of MoCo by its passes: (2 (forward + backward) + key) / (forward + backward + key)."""
    side, batch = CASES[model]
    network = models.build(model, (3, side, side), 10).train().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    images = torch.randn(batch, 3, side, side).contiguous(memory_format=torch.channels_last)
    seconds: list[list[float]] = []
    for _ in range(7):
        moments = [time.process_time()]
        value = network(images).square().mean()
        moments.append(time.process_time())
        value.backward()
        moments.append(time.process_time())
        with torch.no_grad():
            network(images)
        moments.append(time.process_time())
        seconds.append([after - before for before, after in itertools.pairwise(moments)])
    forward, backward, key = (statistics.median(column) for column in zip(*seconds[1:], strict=True))
    print(f"{model}: of a forward pass, backward {backward / forward:.2f}, the key's forward {key / forward:.2f}")
    return (2 * (forward + backward) + key) / (forward + backward + key)


def steps(model: str, methods: list[str], rounds: int) -> dict[str, dict[str, Any]]:
    """Whole steps of each method and the augmentation alone, as a table and as figures."""
    side, batch = CASES[model]
    sides: dict[str, Callable[[], object]] = {}
    for method in methods:
        sides[method], augment = stepper(method, model, side, batch)
    sides["augmentation, two views"] = augment
    found = compare(take_turns(sides, rounds), "moco")
    present(f"{model}, 3×{side}×{side}, batch {batch}: steps relative to MoCo's", found)
    print(f"SANE over MoCo, by passes: {passes(model):.3f}")
    return found


def search(size: tuple[int, int, int], rounds: int) -> dict[str, dict[str, Any]]:
    """The k-NN probe beside one matrix product, as a table and as figures."""
    found = compare(take_turns(knn_sides(*size), rounds), "matrix product")
    present("{:,} queries against {:,} × {} features, 50 neighbours".format(*size), found)
    return found


def present(title: str, found: dict[str, dict[str, Any]]) -> None:
    lines = [[name, f"{f['ms']:.1f}", f"{f['ratio']:.3f}", f"{f['median']:.3f}", "{:.2f} … {:.2f}".format(*f["range"])]
             for name, f in found.items()]  # fmt: skip
    show(title, ["", "ms", "ratio of best", "median ratio", "range"], lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds, resnet8 alone, a tenth of the k-NN")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--only", nargs="+", choices=[*CASES, "knn"], help="these parts")
    parser.add_argument("--methods", nargs="+", default=METHODS, help="moco, and those to compare with it")
    parser.add_argument("--rounds", type=int, help="of steps; 8 by default")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    threadpool_limits(options.threads)
    parts = options.only or (["resnet8", "knn"] if options.quick else [*CASES, "knn"])
    size = (1000, 5000, 512) if options.quick else (10_000, 50_000, 512)
    rounds = options.rounds or (3 if options.quick else 8)
    results = {name: steps(name, options.methods, rounds) for name in parts if name != "knn"}
    found = {"steps": results, "knn_size": size, "machine": machine()}
    if "knn" in parts:
        found["knn"] = search(size, 2 if options.quick else 3)
    write("pretrain", found)


if __name__ == "__main__":
    main()

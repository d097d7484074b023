"""What a training step of each method costs, relative to cross-entropy: the `cost` column of `noiseproof methods`.

python benchmarks/methods.py         all methods in turn, several rounds; writes results/methods.json
"""

from __future__ import annotations

import statistics

import torch
from common import machine, show, write

from noiseproof import methods
from noiseproof.data import LabeledData, load
from noiseproof.method import Wrapper
from noiseproof.training.fit import fit


def specs() -> list[str]:
    """Every method by name; a wrapper around cross-entropy."""
    return [f"{name}(ce)" if issubclass(cls, Wrapper) else name for name, cls in methods.registry().items()]


def seconds_per_example(network: str, data: LabeledData, method: str, epochs: int) -> float:
    """Of the median epoch, evaluation aside."""
    transition = torch.full((data.num_classes, data.num_classes), 0.02).fill_diagonal_(0.82)
    built = methods.build(
        f"{method}(transition={transition.tolist()})" if method in ("forward", "backward") else method
    )
    result = fit(network, data, built, epochs=epochs, batch_size=128, lr=1e-4, val=0.05, eval_examples=0, device="cpu")
    return 1 / statistics.median(record["examples_per_second"] for record in result.history)


def compare(network: str, data: LabeledData, epochs: int, rounds: int) -> dict[str, list[float]]:
    """The ratio to cross-entropy of each method in each round."""
    ratios: dict[str, list[float]] = {method: [] for method in specs()}
    for _ in range(rounds):
        baseline = seconds_per_example(network, data, "ce", epochs)
        for method, values in ratios.items():
            values.append(seconds_per_example(network, data, method, epochs) / baseline)
    return ratios


def main() -> None:
    images = torch.randint(0, 256, (1024, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    cases = {
        "mlp, digits": compare("mlp", load("digits"), epochs=15, rounds=7),
        "resnet8, 3×32×32": compare("resnet8", LabeledData(images, torch.arange(1024) % 10), epochs=2, rounds=3),
    }
    rows = []
    for method in specs():
        cells = [f"{statistics.median(ratios[method]):.2f}" for ratios in cases.values()]
        spread = [f"{min(ratios[method]):.2f} … {max(ratios[method]):.2f}" for ratios in cases.values()]
        rows.append([method, *[cell for pair in zip(cells, spread, strict=True) for cell in pair]])
    header = ["method", *[text for name in cases for text in (name, "range")]]
    show("A step relative to cross-entropy, batch 128", header, rows)
    write("methods", {"cases": cases, "machine": machine()})


if __name__ == "__main__":
    main()

"""Features of pre-training methods after equal processor time, by probes.

    python benchmarks/pretrain_rivals.py cifar10-train.parquet --seconds 25 --seeds 3

A resnet8 on images of 16 pixels, batches of 128 at rate 0.06, a dictionary of half the images; the test images are
others of the same file. Each method gets as many epochs as fit into the seconds, by the time that one took. Runs that
`--out` has already are not run again.
"""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import Any

import torch
from common import Kept, parser_of, show, spread

from noiseproof.data import LabeledData, load
from noiseproof.pretraining import pretrain

METHODS = ("moco", "imix", "simclr", "byol")
SHARED: dict[str, Any] = {"batch_size": 128, "lr": 0.06, "device": "cpu"}


def run(train: LabeledData, test: LabeledData, method: str, seconds: float, seed: int) -> dict[str, float]:
    """Accuracies of the probes, and what it took."""
    spec = f"{method}(dictionary_size={len(train) // 2})" if method in ("moco", "imix") else method
    for _ in range(2):  # the first time of anything is slower
        began = time.process_time()
        pretrain("resnet8", train, spec, epochs=1, seed=seed, probe_every=0, **SHARED)
    epochs = max(1, round(seconds / (time.process_time() - began)))
    began = time.process_time()
    result = pretrain("resnet8", train, spec, epochs=epochs, test=test, seed=seed, probe_every=epochs, **SHARED)
    took = time.process_time() - began
    found = {key: result.history[-1][key] for key in ("knn_accuracy", "linear_accuracy")}
    random = {f"random_{key}": value for key, value in result.at_random.items()}
    return found | random | {"epochs": epochs, "seconds": took}


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("data")
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--seconds", type=float, default=25)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("results/pretrain_rivals.jsonl"))
    asked = parser.parse_args()
    torch.set_num_threads(1)
    kept = Kept(asked.out)
    train, test = load(asked.data, image_size=16, limit=2 * asked.images).split(0.5, seed=0)
    for seed in range(asked.seeds):
        for method in METHODS:
            key = (method, asked.images, asked.seconds, seed)
            kept.get(key, partial(run, train, test, method, asked.seconds, seed))
    rows = []
    for method in METHODS:
        found = [kept.done[method, asked.images, asked.seconds, seed] for seed in range(asked.seeds)]
        cells = [spread([100 * one[name] for one in found]) for name in ("knn_accuracy", "linear_accuracy")]
        rows.append([method, *cells, *(spread([one[name] for one in found]) for name in ("epochs", "seconds"))])
    before = [spread([100 * one[f"random_{name}"] for one in found]) for name in ("knn_accuracy", "linear_accuracy")]
    rows.append(["random weights", *before, "0", "0"])
    title = (
        f"{asked.images} images, {asked.seconds:g} processor seconds, mean ± standard deviation of {asked.seeds} seeds"
    )
    show(title, ["method", "k-NN, %", "linear, %", "epochs", "seconds"], rows)


if __name__ == "__main__":
    main()

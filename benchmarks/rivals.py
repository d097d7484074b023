"""What methods make of 40 % symmetric noise beside cross-entropy: digits by their pixels, CIFAR-10 by frozen features.

    python benchmarks/rivals.py ce cores 'incv(ce)' --data digits features --seeds 3 --out results/rivals.jsonl
    python benchmarks/rivals.py ce 'dividemix(warmup=2)' --data board-digits board-features --first 10

digits as in the demo: an mlp, 100 epochs of batches of 64. features: those of ImageNet (noiseproof/models/embedding.py)
of 8,000 images of CIFAR-10, drawn by the seed, and of 2,000 test images; an mlp, 60 epochs of batches of 64. A tenth of
the training set is held out, noise included. board-digits and board-features: as the leaderboard has them, 50 and 20
epochs, 3,000 images and smaller rates; with `--first 10`, on other seeds than its own, to try options out. Runs that
`--out` has already are not run again.
"""

from __future__ import annotations

import statistics
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from common import Kept, parser_of, show, spread

from noiseproof.data import LabeledData, load, noise
from noiseproof.methods import build
from noiseproof.models.embedding import imagenet_features
from noiseproof.training.fit import fit
from noiseproof_papers.datadir import DataDir

NOISE = "symmetric:0.4"
SHARED: dict[str, Any] = {"batch_size": 64, "lr": 0.05, "weight_decay": 5e-4, "val": 0.1}
EPOCHS = {"digits": 100, "features": 60, "board-digits": 50, "board-features": 20}
TRAINED, TESTED = 8000, 2000
BOARD: dict[str, dict[str, Any]] = {  # what the leaderboard's cells have in the place of SHARED
    "board-digits": {"model": "mlp", "lr": 0.05},
    "board-features": {"model": "mlp(widths=[128])", "lr": 0.01},
}


@cache
def embedded(part: int) -> LabeledData:
    """The training (0) or the test set (1) of CIFAR-10 as features."""
    images = DataDir().pair("cifar10")[part]
    features = torch.from_numpy(imagenet_features(images)).float()
    return LabeledData(features, images.labels, class_names=images.class_names)


def sets(data: str, seed: int) -> tuple[LabeledData, LabeledData]:
    """Training set, labels still right, and test set."""
    if data == "board-features":
        training, test = embedded(0), embedded(1)
        return training.limit(3000, seed=seed), test.limit(TESTED, seed=0)
    if data.endswith("digits"):
        return load("digits").split(0.2, seed=seed)
    training, test = embedded(0), embedded(1)
    return training.split(TRAINED / len(training), seed=seed)[1], test.split(TESTED / len(test), seed=0)[1]


def run(data: str, method: str, seed: int, epochs: int) -> dict[str, Any]:
    training, test = sets(data, seed)
    training = noise.apply(training, NOISE, seed=seed)
    options = {"model": "mlp"} | SHARED | BOARD.get(data, {})
    result = fit(data=training, method=method, epochs=epochs, test=test, seed=seed, **options)
    rows = result.summary()
    figures = {"last": rows["last"]["test_accuracy"], "best": rows["best"]["test_accuracy"]}
    figures |= {"kept": rows["final"]["test_accuracy"], "memorised": rows["last"]["train_memorised"]}
    return figures | {"seconds": rows["last"]["seconds"]}


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("methods", nargs="+")
    parser.add_argument("--data", nargs="+", choices=EPOCHS, default=["digits"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--epochs", type=int, help="in the place of those above")
    parser.add_argument("--out", type=Path, default=Path("results/rivals.jsonl"))
    asked = parser.parse_args()
    torch.set_num_threads(1)
    kept, seeds = Kept(asked.out), range(asked.first, asked.first + asked.seeds)
    for data in asked.data:
        rows, epochs = [], asked.epochs or EPOCHS[data]
        for method in asked.methods:
            found = []
            for seed in seeds:
                key = (data, epochs, build(method).describe(), seed)
                found.append(kept.get(key, partial(run, data, method, seed, epochs)))
            rows.append([method, *(spread([100 * one[key] for one in found]) for key in ("last", "best", "memorised"))])
            rows[-1].append(f"{statistics.mean(one['seconds'] for one in found):.0f}")
        title = (
            f"{data}, {NOISE}: test accuracy in %, mean ± standard deviation of {asked.seeds} seeds from {asked.first}"
        )
        show(title, ["method", "last epoch", "best epoch", "wrong labels memorised", "seconds"], rows)


if __name__ == "__main__":
    main()

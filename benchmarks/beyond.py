"""Methods where the leaderboard does not look: made-up tables that no line separates, and real ones, with an mlp.

Eight or five rings, with columns of chance beside them or without, and four spirals, 4,000 rows each; and the tables of
R's packages that tables.py reads (Debian's r-cran-mlbench, …: pass --folder). A seed draws the test set, of right
labels, and the wrong labels of the rest. Results are added to results/beyond.jsonl, and what is there is not run again.

    python benchmarks/beyond.py --methods ce,elr,auto --seeds 20,21,22
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from common import ROOT, Kept, parser_of, show, spread
from sklearn.model_selection import train_test_split
from tables import TABLES, R, read

import noiseproof as nf

ROWS, TEST = 4000, 2000
REAL = ("letters", "soybean", "churn", "spam", "credit", "telecom", "attrition")
SETTINGS = {"epochs": 40, "batch_size": 64, "lr": 0.05, "schedule": "cosine", "val": 0.1, "audit_features": "none"}
Drawn = tuple[np.ndarray, np.ndarray]  # inputs (n, d), labels (n,)


def rings(count: int, columns: int, rng: np.random.Generator) -> Drawn:
    """The radius of two columns, in so many rings of equal width, beside columns of chance."""
    radius, angle = rng.uniform(0, count, ROWS + TEST), rng.uniform(0, 2 * np.pi, ROWS + TEST)
    x = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
    return np.concatenate([x, rng.standard_normal((len(x), columns))], axis=1), radius.astype(int)


def spirals(count: int, rng: np.random.Generator) -> Drawn:
    """So many arms, a turn long, a little blurred."""
    label, radius = rng.integers(count, size=ROWS + TEST), rng.uniform(0.2, 3, ROWS + TEST)
    angle = 2 * radius + 2 * np.pi * label / count + 0.15 * rng.standard_normal(len(label))
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1), label


MADE: dict[str, Callable[[np.random.Generator], Drawn]] = {
    "8 rings of 6 columns": partial(rings, 8, 4), "5 rings of 6 columns": partial(rings, 5, 4),
    "8 rings of 2 columns": partial(rings, 8, 0), "4 spirals": partial(spirals, 4),
}  # fmt: skip


def made(name: str, seed: int) -> tuple[nf.LabeledData, nf.LabeledData]:
    x, y = MADE[name](np.random.default_rng(seed))
    x = x.astype(np.float32)
    return nf.LabeledData(x[:ROWS], y[:ROWS]), nf.LabeledData(x[ROWS:], y[ROWS:])


def real(name: str, folder: Path, seed: int) -> tuple[nf.LabeledData, nf.LabeledData]:
    package, table, label, most = TABLES[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of R's encodings and classes
        frame = read(folder, package, table)
    frame = frame[frame[label].notna()]
    frame = frame if most is None else frame.sample(most, random_state=seed)
    names = sorted(set(frame[label].astype(str)))
    y = np.array([names.index(one) for one in frame[label].astype(str)])
    columns = {
        one: values.to_numpy(float) if pd.api.types.is_numeric_dtype(values) else values.astype(str).to_numpy()
        for one, values in frame.drop(columns=label).items()
    }
    kinds = {one: "number" if values.dtype.kind == "f" else "category" for one, values in columns.items()}
    parts = train_test_split(np.arange(len(y)), test_size=0.3, stratify=y, random_state=seed)
    train, test = (
        nf.LabeledData({one: values[rows] for one, values in columns.items()}, y[rows], class_names=names, kinds=kinds)
        for rows in parts
    )
    return train, test.encoded_by(train.inputs.encoder)


def one(name: str, folder: Path, noise: str, method: str, seed: int) -> dict[str, float]:
    train, test = made(name, seed) if name in MADE else real(name, folder, seed)
    if noise != "none":
        train = nf.noise.apply(train, noise, seed=seed)
    result = nf.fit("mlp", train, method, test=test, seed=seed, progress=False, eval_examples=300, **SETTINGS)
    return {"accuracy": result.summary()["final"]["test_accuracy"]}


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--folder", type=Path, default=Path(R))
    parser.add_argument("--methods", default="ce,elr,auto")
    parser.add_argument("--seeds", default="20,21,22")
    args = parser.parse_args()
    torch.set_num_threads(1)
    there = args.folder.is_dir()
    if not there:
        print(f"there is no {args.folder}: without the real tables; install r-cran-mlbench, … or pass --folder")
    kept, methods = Kept(ROOT / "results" / "beyond.jsonl"), args.methods.split(",")
    rows = []
    for name in (*MADE, *(REAL if there else ())):
        for noise in ("none", "symmetric:0.3", "pair:0.3"):
            if noise == "pair:0.3" and name in ("churn", "spam", "credit", "telecom", "attrition"):
                continue  # of two classes, pairs are symmetric
            values: dict[str, list[float]] = {method: [] for method in methods}
            for seed in map(int, args.seeds.split(",")):
                for method in methods:
                    run = partial(one, name, args.folder, noise, method, seed)
                    values[method].append(100 * kept.get((name, noise, method, seed), run)["accuracy"])
            rows.append([f"{name}, {noise}", *map(spread, values.values())])
            print(*rows[-1], sep="   ", flush=True)
    show("Accuracy on right labels", ["", *methods], rows)


if __name__ == "__main__":
    main()

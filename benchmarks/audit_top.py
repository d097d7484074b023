"""Of the fifty labels that stand first, how many are wrong? A table, digits and photos, by `fit` and by `audit`.

python benchmarks/audit_top.py [--cifar10 TRAIN.parquet] [--tables FOLDER] [--seeds 3] [--first 0] [--only TEXT]

Each data set is written as a user has it, a CSV file or a folder of images for each class, with a fifth of its labels
changed to another class; then the command is run as it comes, and the first rows of its labels.parquet are looked up.
`fit` holds out a tenth, whose labels stand in the same list. census is made, and as hard as such tables are: its two
classes overlap, so that nobody tells more than about 85 % right; cancer is scikit-learn's; further CSV files with a
column `label` are taken from a folder. Seeds are counted from --first. Results are added to results/audit_top.jsonl;
what is there is not run again.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import torch
from common import ROOT, parser_of
from PIL import Image
from sklearn.datasets import load_breast_cancer, make_classification

import noiseproof as nf

NOISE = 0.2
TOP = 50
RESULTS = ROOT / "results" / "audit_top.jsonl"
PHOTOS = 1500


def census(seed: int) -> pd.DataFrame:
    """5,000 rows with named columns, of two classes that overlap."""
    x, _ = make_classification(5000, 14, n_informative=8, n_redundant=2, random_state=seed)
    rng = np.random.default_rng(seed)
    logit = x @ rng.normal(size=x.shape[1]) + 0.5 * x[:, 0] * x[:, 1]
    logit = 4 * (logit - np.quantile(logit, 0.7)) / logit.std()
    table = pd.DataFrame(x.round(4), columns=[f"column_{k}" for k in range(x.shape[1])])
    return table.assign(label=np.where(rng.random(len(x)) < 1 / (1 + np.exp(-logit)), "above", "below"))


def cancer(seed: int) -> pd.DataFrame:
    found = load_breast_cancer(as_frame=True)
    return found.data.assign(label=found.target_names[found.target])


def changed(labels: np.ndarray, seed: int) -> np.ndarray:
    """Labels (n,), a fifth of them another class at random."""
    rng, names = np.random.default_rng(seed), np.unique(labels)
    place = np.searchsorted(names, labels)
    moved = (place + rng.integers(1, len(names), len(place))) % len(names)
    chosen = rng.permutation(len(place))[: round(NOISE * len(place))]
    place[chosen] = moved[chosen]
    return names[place]


def write_table(table: pd.DataFrame, folder: Path, seed: int) -> tuple[Path, list[str], dict[str, str]]:
    """The file, the options to read it, and the true label of each id."""
    true = table["label"].astype(str).to_numpy()
    path = folder / "table.csv"
    table.assign(label=changed(true, seed)).to_csv(path, index=False)
    return path, ["--label-column", "label"], {str(row): name for row, name in enumerate(true)}


def write_images(
    images: np.ndarray, true: np.ndarray, folder: Path, seed: int
) -> tuple[Path, list[str], dict[str, str]]:
    """A folder for each given class with PNG files (n, H, W) or (n, H, W, 3); their true labels by the file's name."""
    for number, (image, given) in enumerate(zip(images, changed(true, seed), strict=True)):
        path = folder / "images" / given / f"{number:05d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(path)
    return folder / "images", [], {f"{number:05d}": name for number, name in enumerate(true)}


def digits(folder: Path, seed: int) -> tuple[Path, list[str], dict[str, str]]:
    data = nf.load("digits")
    names = np.asarray(data.class_names)[data.labels.numpy()]
    images = data.take(torch.arange(len(data)))[:, 0].numpy().astype(np.float32)
    return write_images((images / images.max() * 255).astype(np.uint8), names, folder, seed)


def photos(train: Path, folder: Path, seed: int) -> tuple[Path, list[str], dict[str, str]]:
    """The seed's 1,500 rows of CIFAR-10."""
    table = pq.read_table(train, columns=["img", "label"]).slice(seed * PHOTOS, PHOTOS)
    images = [np.asarray(Image.open(BytesIO(one["bytes"])).convert("RGB")) for one in table["img"].to_pylist()]
    return write_images(np.stack(images), np.array([f"class {k}" for k in table["label"].to_pylist()]), folder, seed)


def look(verb: str, make: Callable[[Path, int], tuple[Path, list[str], dict[str, str]]], seed: int) -> dict[str, Any]:
    """Run the command on data made anew, and look the first rows of its list up."""
    with tempfile.TemporaryDirectory() as name:
        path, options, true = make(Path(name), seed)
        out = Path(name) / "out"
        call = [sys.executable, "-m", "noiseproof", verb, str(path), *options, "--seed", str(seed), "--out", str(out)]
        done = subprocess.run([*call, "-q"], capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{verb} {path.name}: {done.stderr}")
        table = pd.read_parquet(out / "labels.parquet")
    right = table["id"].map(lambda one: true[Path(one).stem])
    wrong = (table["label"] != right).to_numpy()
    first = table.iloc[:TOP]
    return {
        "rows": len(table),
        "wrong": float(wrong.mean()),
        "precision": float(wrong[:TOP].mean()),
        "held_out": int((first["split"] == "val").sum()),
        "held_out_share": float((table["split"] == "val").mean()),
        "said": float(first["probability_wrong"].mean()),
        "f1": 2 * int((wrong & table["issue"]).sum()) / max(1, int(wrong.sum() + table["issue"].sum())),
        "estimate": float(table["probability_wrong"].mean()),
    }


def show(found: list[dict[str, Any]]) -> str:
    """A line for each data set and command: the mean over seeds, and the range of the precision."""
    lines = [
        "| data | by | seeds | rows | precision at 50 (range) | it says | held out in the 50 | F1 | wrong | estimate |"
    ]
    lines.append("|" + "---|" * 10)
    for data, verb in dict.fromkeys((one["data"], one["by"]) for one in found):
        group = pd.DataFrame([one for one in found if (one["data"], one["by"]) == (data, verb)])
        mean = group.mean(numeric_only=True)
        precision = f"{mean.precision:.2f} ({group.precision.min():.2f} … {group.precision.max():.2f})"
        share = f"{mean.held_out:.1f} of {TOP * mean.held_out_share:.1f} expected" if mean.held_out_share else "–"
        lines.append(
            f"| {data} | {verb} | {len(group)} | {mean.rows:,.0f} | {precision} | {mean.said:.2f} | {share} "
            f"| {mean.f1:.3f} | {mean.wrong:.3f} | {mean.estimate:.3f} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--cifar10", type=Path, help="the training set as Parquet, for the photos")
    parser.add_argument("--tables", type=Path, help="a folder with CSV files")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--only", default="", help="data sets with this in their names")
    options = parser.parse_args()
    sources: dict[str, Callable[[Path, int], tuple[Path, list[str], dict[str, str]]]] = {
        "census": lambda folder, seed: write_table(census(seed), folder, seed),
        "cancer": lambda folder, seed: write_table(cancer(seed), folder, seed),
        "digits": digits,
    }
    for file in sorted(options.tables.glob("*.csv")) if options.tables else ():
        sources[file.stem] = lambda folder, seed, file=file: write_table(pd.read_csv(file), folder, seed)
    if options.cifar10 is not None:
        sources["photos"] = lambda folder, seed: photos(options.cifar10, folder, seed)
    RESULTS.parent.mkdir(exist_ok=True)
    found = [json.loads(line) for line in RESULTS.read_text().splitlines()] if RESULTS.exists() else []
    for name, make in sources.items():
        for seed in range(options.first, options.first + options.seeds) if options.only in name else ():
            for verb in ("audit", "fit"):
                case = {"data": name, "by": verb, "seed": seed}
                if not any(case.items() <= one.items() for one in found):
                    found.append(case | look(verb, make, seed))
                    print(found[-1], flush=True)
                    with open(RESULTS, "a") as file:
                        file.write(json.dumps(found[-1]) + "\n")
    print("\n" + show(found))


if __name__ == "__main__":
    main()

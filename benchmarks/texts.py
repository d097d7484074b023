"""Texts with wrong labels: RobustClassifier fitted to noisy labels against the same fitted to the right ones.

The texts are the fortunes that Debian ships (fortunes, fortunes-min): those of four topics of distinct voices. A column
of texts becomes tf-idf. Each seed draws a test set of 30 %, and corrupts 30 % of the labels of the rest.

    python benchmarks/texts.py --folder /usr/share/games/fortunes --seeds 10,11,12,13,14
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import pandas as pd
from common import ROOT, show
from sklearn.model_selection import train_test_split

import noiseproof as nf

TOPICS = "definitions,knghtbrd,songs-poems,zippy"


def read(folder: Path, topics: list[str]) -> tuple[pd.DataFrame, np.ndarray]:
    """Fortunes of five words or more, and their topics."""
    texts, labels = [], []
    for topic in topics:
        found = (folder / topic).read_text(encoding="utf-8", errors="replace").split("\n%\n")
        kept = [text.strip() for text in found if len(text.split()) >= 5]
        texts += kept
        labels += [topic] * len(kept)
    return pd.DataFrame({"text": texts}), np.array(labels)


def asked(seeds: str) -> argparse.Namespace:
    """The options: which texts, how noisy, and these seeds by default."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", default="/usr/share/games/fortunes")
    parser.add_argument("--topics", default=TOPICS)
    parser.add_argument("--noise", default="symmetric:0.3")
    parser.add_argument("--seeds", default=seeds)
    return parser.parse_args()


def main() -> None:
    args = asked("10,11,12,13,14")
    if not Path(args.folder).is_dir():
        print(f"there is no {args.folder}; install fortunes, or pass --folder")
        return
    X, y = read(Path(args.folder), args.topics.split(","))
    rows = []
    path = ROOT / "results" / "texts.jsonl"
    path.parent.mkdir(exist_ok=True)
    for seed in map(int, args.seeds.split(",")):
        train, test, right, truth = train_test_split(X, y, test_size=0.3, stratify=y, random_state=seed)
        data = nf.noise.apply(nf.LabeledData(np.zeros((len(right), 1)), right), args.noise, seed=seed)
        given = {"right labels": right, "noisy labels": np.array(data.class_names)[data.labels]}
        model = nf.RobustClassifier("elr", kinds={"text": "text"}, random_state=seed)
        rows.append([100 * model.fit(train, labels).score(test, truth) for labels in given.values()])
        with open(path, "a") as file:
            file.write(
                json.dumps({"topics": args.topics, "noise": args.noise, "seed": seed, "accuracy": rows[-1]}) + "\n"
            )
    found = np.array(rows)
    gaps = found[:, 0] - found[:, 1]
    cells = [f"{one.mean():.1f} ± {one.std(ddof=1):.1f}" for one in (*found.T, gaps)]
    show(f"{len(y):,} fortunes, {args.noise}, {len(found)} seeds", ["right labels", "noisy labels", "gap"], [cells])


if __name__ == "__main__":
    main()

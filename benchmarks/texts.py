"""Texts with wrong labels: RobustClassifier fitted to noisy labels against the same fitted to the right ones.

The texts are the fortunes that Debian ships (fortunes, fortunes-min): those of four topics of distinct voices. A column
of texts becomes tf-idf. Each seed draws a test set of 30 %, and corrupts 30 % of the labels of the rest.

    python benchmarks/texts.py --folder /usr/share/games/fortunes --seeds 10,11,12,13,14

With --snippets the texts are sentences of tweets, reviews and editorials, by where they are from: the files
*_GroundTruth.txt in additional_resources/hutto_ICWSM_2014.tar.gz of the source package of vaderSentiment 3.3.2.

    python benchmarks/texts.py --snippets hutto_ICWSM_2014 --seeds 20,21
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
    parser.add_argument("--snippets", type=Path)
    parser.add_argument("--method", default="elr")
    parser.add_argument("--noise", default="symmetric:0.3")
    parser.add_argument("--seeds", default=seeds)
    return parser.parse_args()


def read_snippets(folder: Path) -> tuple[pd.DataFrame, np.ndarray]:
    """Sentences of five words or more, and the file they are in."""
    kept = []
    for path in sorted(folder.glob("*_GroundTruth.txt")):
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            parts = line.split("\t", 2)  # a number, a score, the sentence
            if len(parts) == 3 and len(parts[2].split()) >= 5:
                kept.append((parts[2].strip(), path.name.split("_")[0]))
    return pd.DataFrame({"text": [text for text, _ in kept]}), np.array([label for _, label in kept])


def main() -> None:
    args = asked("10,11,12,13,14")
    if not (args.snippets or Path(args.folder)).is_dir():
        print(f"there is no {args.folder}; install fortunes, or pass --folder")
        return
    X, y = read_snippets(args.snippets) if args.snippets else read(Path(args.folder), args.topics.split(","))
    rows = []
    path = ROOT / "results" / "texts.jsonl"
    path.parent.mkdir(exist_ok=True)
    for seed in map(int, args.seeds.split(",")):
        train, test, right, truth = train_test_split(X, y, test_size=0.3, stratify=y, random_state=seed)
        data = nf.noise.apply(nf.LabeledData(np.zeros((len(right), 1)), right), args.noise, seed=seed)
        given = {"right labels": right, "noisy labels": np.array(data.class_names)[data.labels]}
        model = nf.RobustClassifier(args.method, kinds={"text": "text"}, random_state=seed)
        rows.append([100 * model.fit(train, labels).score(test, truth) for labels in given.values()])
        with open(path, "a") as file:
            said = {"topics": "snippets" if args.snippets else args.topics, "noise": args.noise, "method": args.method}
            file.write(json.dumps(said | {"seed": seed, "accuracy": rows[-1]}) + "\n")
    found = np.array(rows)
    gaps = found[:, 0] - found[:, 1]
    cells = [f"{one.mean():.1f} ± {one.std(ddof=1):.1f}" for one in (*found.T, gaps)]
    show(f"{len(y):,} texts, {args.noise}, {len(found)} seeds", ["right labels", "noisy labels", "gap"], [cells])


if __name__ == "__main__":
    main()

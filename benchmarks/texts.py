"""Texts with wrong labels: RobustClassifier, as it comes, fitted to noisy labels against itself fitted to right ones.

Each seed draws a test set of 30 %, whose labels stay right, and corrupts 30 % of the labels of the rest. Results are
added to results/texts.jsonl, and what is there already is not run again. The sets, of texts of five words or more:

    fortunes   those of four topics of distinct voices that Debian ships (fortunes, fortunes-min)
    packages   the first lines of Debian's descriptions of packages, by section, of sections with 1,000 distinct ones
               or more (apt-cache dumpavail > FILE)
    foods      reviews of foods, great or not (small_fine_foods of the R package modeldata, r-cran-modeldata)
    snippets   sentences of tweets, reviews and editorials, by where they are from: the files *_GroundTruth.txt in
               additional_resources/hutto_ICWSM_2014.tar.gz of the source package of vaderSentiment 3.3.2

    python benchmarks/texts.py fortunes --at /usr/share/games/fortunes --seeds 30,31,32,33,34
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from pathlib import Path

import numpy as np
from common import ROOT, Kept, show, spread
from sklearn.model_selection import train_test_split

import noiseproof as nf

TOPICS = ("definitions", "knghtbrd", "songs-poems", "zippy")
LEAST = 1000  # descriptions of a section
Texts = tuple[list[str], list[str]]  # and their labels


def fortunes(folder: Path) -> Texts:
    texts, labels = [], []
    for topic in TOPICS:
        found = (folder / topic).read_text(encoding="utf-8", errors="replace").split("\n%\n")
        texts += [text.strip() for text in found]
        labels += [topic] * len(found)
    return texts, labels


def packages(file: Path) -> Texts:
    found = {}
    for one in file.read_text(encoding="utf-8", errors="replace").split("\n\n"):
        fields = dict(line.split(": ", 1) for line in one.splitlines() if ": " in line and not line.startswith(" "))
        if "Description" in fields and "Section" in fields:
            found.setdefault(fields["Description"], fields["Section"])
    found = {text: section for text, section in found.items() if len(text.split()) >= 5}
    count = Counter(found.values())
    kept = {text: section for text, section in found.items() if count[section] >= LEAST}
    return list(kept), list(kept.values())


def foods(folder: Path) -> Texts:
    from tables import read

    parts = [read(folder, "modeldata", name) for name in ("training_data", "testing_data")]
    return [str(x) for part in parts for x in part["review"]], [str(x) for part in parts for x in part["score"]]


def snippets(folder: Path) -> Texts:
    kept = []
    for path in sorted(folder.glob("*_GroundTruth.txt")):
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            parts = line.split("\t", 2)  # a number, a score, the sentence
            if len(parts) == 3:
                kept.append((parts[2].strip(), path.name.split("_")[0]))
    return [text for text, _ in kept], [label for _, label in kept]


SETS = {"fortunes": fortunes, "packages": packages, "foods": foods, "snippets": snippets}


def read_set(name: str, at: Path) -> tuple[np.ndarray, np.ndarray]:
    """Texts (n,) of five words or more, and their labels (n,)."""
    kept = [(text, label) for text, label in zip(*SETS[name](at), strict=True) if len(text.split()) >= 5]
    return np.array([text for text, _ in kept], dtype=object), np.array([label for _, label in kept])


def accuracy(method: str | None, X: np.ndarray, y: np.ndarray, noise: str, seed: int) -> dict[str, float]:
    """In %, on right labels, fitted to right labels and to wrong ones; and the processor seconds of the latter."""
    train, test, right, truth = train_test_split(X, y, test_size=0.3, stratify=y, random_state=seed)
    data = nf.noise.apply(nf.LabeledData(np.zeros((len(right), 1)), right), noise, seed=seed)
    found = {}
    for name, labels in (("right", right), ("noisy", np.array(data.class_names)[data.labels])):
        began, model = time.process_time(), nf.RobustClassifier(method, random_state=seed)
        model.fit(train.tolist(), labels)
        found["seconds"] = time.process_time() - began
        found[name] = 100 * model.score(test.tolist(), truth)
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("set", choices=SETS)
    parser.add_argument("--at", type=Path, required=True, help="the folder or file of the set")
    parser.add_argument("--method", help="in place of the default")
    parser.add_argument("--noise", default="symmetric:0.3")
    parser.add_argument("--seeds", default="30,31,32,33,34")
    args = parser.parse_args()
    X, y = read_set(args.set, args.at)
    kept = Kept(ROOT / "results" / "texts.jsonl")
    found = []
    for seed in map(int, args.seeds.split(",")):
        key = (args.set, args.method, args.noise, seed)
        found.append(kept.get(key, lambda seed=seed: accuracy(args.method, X, y, args.noise, seed)))
        print(seed, found[-1], flush=True)
    cells = [spread([one[name] for one in found]) for name in ("right", "noisy")]
    cells += [spread([one["right"] - one["noisy"] for one in found]), spread([one["seconds"] for one in found])]
    title = f"{len(y):,} texts of {len(set(y))} classes, {args.noise}, {len(found)} seeds: accuracy on right labels"
    show(title, ["fitted to right labels", "to noisy ones", "lost", "processor seconds"], [cells])


if __name__ == "__main__":
    main()

"""How near a linear model of texts with wrong labels comes to one of right labels: by penalty, by dropping labels.

The texts and their features are those of texts.py; the model is scikit-learn's logistic regression, in which all
classes count alike. C is the inverse of the penalty. "audit" drops the labels that `nf.audit` finds by five folds of
the model with C = 0.01; "oracle" those that are wrong.

    python benchmarks/texts_linear.py --at /usr/share/games/fortunes --seeds 0,1
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import show
from scipy.sparse import csr_matrix
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_predict, train_test_split
from texts import read_set

import noiseproof as nf

PENALTIES = (0.01, 0.03, 0.1, 1.0)


def features(texts: Any, labels: np.ndarray, encoder: Any = None) -> tuple[csr_matrix, Any]:
    """tf-idf (n, d) of texts, as `fit` would see them, and what encodes others alike."""
    data = nf.LabeledData(texts.tolist(), labels.astype(str))
    data = data if encoder is None else data.encoded_by(encoder)
    found = data.take(torch.arange(len(data)))
    return csr_matrix(found.numpy()), data.inputs.encoder


def model(penalty: float) -> LogisticRegression:
    return LogisticRegression(C=penalty, max_iter=300, class_weight="balanced")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--at", type=Path, default=Path("/usr/share/games/fortunes"))
    parser.add_argument("--noise", default="symmetric:0.3")
    parser.add_argument("--seeds", default="0,1")
    args = parser.parse_args()
    texts, topics = read_set("fortunes", args.at)
    found: dict[str, list[float]] = defaultdict(list)
    for seed in map(int, args.seeds.split(",")):
        train, test, right, truth = train_test_split(texts, topics, test_size=0.3, stratify=topics, random_state=seed)
        noisy = nf.noise.apply(nf.LabeledData(np.zeros((len(right), 1)), right), args.noise, seed=seed)
        given = noisy.labels.numpy()
        right, truth = (np.searchsorted(noisy.class_names, one) for one in (right, truth))
        X, encoder = features(train, given)
        X_test, _ = features(test, truth, encoder)
        guess = cross_val_predict(model(0.01), X, given, cv=5, method="predict_proba")
        issues = nf.audit(given, guess).issues
        wrong = given != right
        found["issues that are wrong labels"].append(100 * wrong[issues].mean())
        found["wrong labels that are issues"].append(100 * issues[wrong].mean())
        for penalty in PENALTIES:
            fitted = {
                "right labels": (X, right), "noisy labels": (X, given),
                "audit": (X[~issues], given[~issues]), "oracle": (X[~wrong], given[~wrong]),
            }  # fmt: skip
            for name, (rows, labels) in fitted.items():
                score = model(penalty).fit(rows, labels).score(X_test, truth)
                found[f"{name}, C = {penalty}"].append(100 * score)
    rows = [[name, ", ".join(f"{one:.1f}" for one in each)] for name, each in found.items()]
    show(f"{len(topics):,} fortunes, {args.noise}: each seed", ["", "accuracy on right labels"], rows)


if __name__ == "__main__":
    main()

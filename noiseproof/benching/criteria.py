"""Which of several models is the best, by held-out examples whose labels are as noisy as all others.

With h_m(x) the guess of model m, p_m (x, K) its probabilities, y the given label:

    agreed       share of examples with h_m(x) = y. Every model loses the same to labels that are wrong independently of
                 x: the order is that of the truth then, only noisier. A model that has learned the noise is ahead.
    consensus    mean over examples of p̄(h_m(x)), p̄ the mean of all models' probabilities: no labels at all.
    corrected    mean of P(right = h_m(x) | x, y), by the audit's noise model of p̄ and the labels (auditing/posterior).

`corrected` has an interval: by chance of the examples, and by which of them are taken for sure of their class, as of
the noise rate (posterior.Range).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from noiseproof.auditing import posterior
from noiseproof.benching.statistics import rank_correlation

NAMES = {  # as tables have them
    "agreed": "agreement with held-out labels",
    "consensus": "agreement of the candidates",
    "corrected": "accuracy by the audit",
}
PICKS = "agreed"  # the criterion that `compare` goes by: docs/compare.md


def score(
    said: Mapping[str, np.ndarray], labels: np.ndarray, candidates: Sequence[str] | None = None
) -> dict[str, dict[str, float]]:
    """Every criterion of every model, by what they say (m, K) of the same examples, with labels (m,).

    `error` is the standard error of `agreed`, `low` and `high` are the interval of `corrected`. `candidates` are those
    whose mean is p̄; None: all.
    """
    among = list(said) if candidates is None else candidates
    mean = np.stack([said[name] for name in among]).mean(axis=0).astype(np.float32)  # (m, K)
    ways = ((posterior.SURE, posterior.LEAST), posterior.STRICT, posterior.LAX)  # the first is the estimate
    models = [posterior.fit(labels, [mean], sure=sure, least=least) for sure, least in ways]
    right = np.stack([model.posterior([mean], labels) for model in models])  # (3, m, K)
    at = np.arange(len(labels))
    found = {}
    for name, probability in said.items():
        guess = probability.argmax(axis=1)
        likely = right[:, at, guess]  # (3, m)
        accuracy = likely.mean(axis=1)
        error = 1.96 * float(likely[0].std()) / np.sqrt(len(labels))
        agreed = float((guess == labels).mean())
        found[name] = {
            "agreed": agreed,
            "error": float(np.sqrt(agreed * (1 - agreed) / len(labels))),
            "consensus": float(mean[at, guess].mean()),
            "corrected": float(accuracy[0]),
            "low": max(0.0, float(accuracy.min()) - error),
            "high": min(1.0, float(accuracy.max()) + error),
        }
    return found


def pick(figures: Mapping[str, Mapping[str, Any]], name: str, order: Sequence[str]) -> str:
    """The method that a criterion picks among some in their order, by the figures of each.

    Those within a standard error of the first cannot be told apart by so few held-out labels: of them it is the one
    that `order` names first.
    """
    first = max(order, key=lambda one: figures[one][name])
    least = figures[first][name] - figures[first].get("error", 0.0)
    return next(one for one in order if figures[one][name] >= least)


@dataclass(frozen=True)
class Record:
    """How a criterion has done where the truth is known."""

    correlation: float  # of its order of the methods with the true one, Spearman's, in the mean over runs of a grid
    near: float  # share of the runs in which its pick lies within a point of the best method
    regret: float  # points of its pick below the best, in the mean
    worst: float
    runs: int


def track_record(records: Iterable[dict[str, Any]], name: str, methods: Sequence[str] | None = None) -> Record | None:
    """How a criterion has chosen among methods, by the results of a grid; None where these do not have it.

    Args:
        methods: the candidates, of which the pick and the best are, in their order; None: all methods there are.
    """
    groups: dict[str, dict[str, dict[str, Any]]] = {}
    for record in records:
        cell, figures = record["cell"], record["figures"]
        if cell["budget"] == "epochs" and figures.get("kept") is not None and figures.get(name) is not None:
            same = json.dumps([cell["source"], cell["noise"], cell["limit"], cell["seed"]], sort_keys=True)
            groups.setdefault(same, {})[cell["method"]] = figures
    correlations, regrets = [], []
    for group in groups.values():
        there = [one for one in methods or group if one in group]
        if len(there) < 3:
            continue
        truth, score = ([group[one][key] for one in there] for key in ("kept", name))
        correlation = rank_correlation(score, truth)
        correlations += [] if correlation is None else [correlation]
        regrets.append(100 * (max(truth) - group[pick(group, name, there)]["kept"]))
    if not regrets or not correlations:
        return None
    near = float(np.mean(np.array(regrets) <= 1.0))
    return Record(float(np.mean(correlations)), near, float(np.mean(regrets)), max(regrets), len(regrets))

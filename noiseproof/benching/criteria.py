"""Which of several models is the best, by held-out examples whose labels are as noisy as all others.

With h_m(x) the guess of model m, p_m (x, K) its probabilities, y the given label:

    agreed       share of examples with h_m(x) = y. Every model loses the same to labels that are wrong independently of
                 x: the order is that of the truth then, only noisier. A model that has learned the noise is ahead.
    consensus    mean over examples of p̄(h_m(x)), p̄ the mean of all models' probabilities: no labels at all.
    corrected    mean of P(right = h_m(x) | x, y), by the audit's noise model of p̄ and the labels (auditing/posterior).

`corrected` has an interval: by chance of the examples, and by which of them are taken for sure of their class, as of
the noise rate (posterior.rate_interval).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from noiseproof.auditing import posterior

NAMES = {  # as tables have them
    "agreed": "agreement with held-out labels",
    "consensus": "agreement of the candidates",
    "corrected": "accuracy by the audit",
}
PICKS = "corrected"  # the criterion that `compare` goes by: docs/compare.md


def score(said: Mapping[str, np.ndarray], labels: np.ndarray) -> dict[str, dict[str, float]]:
    """Every criterion of every model, by what they say (m, K) of the same examples, with labels (m,).

    `low` and `high` are the interval of `corrected`.
    """
    mean = np.stack(list(said.values())).mean(axis=0).astype(np.float32)  # (m, K)
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
        found[name] = {
            "agreed": float((guess == labels).mean()),
            "consensus": float(mean[at, guess].mean()),
            "corrected": float(accuracy[0]),
            "low": max(0.0, float(accuracy.min()) - error),
            "high": min(1.0, float(accuracy.max()) + error),
        }
    return found

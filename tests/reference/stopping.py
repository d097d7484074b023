"""Slow, obvious twins of the stopping criteria: the whole history at once, loops over epochs and examples."""

from __future__ import annotations

import itertools
import math


def agreement(guesses: list[list[int]], labels: list[int]) -> list[float]:
    """How far each epoch keeps to the vote of those before it, beyond chance. NaN for the first epoch.

    A prediction of the class that most epochs before predicted counts 1, one of the label where that is another −1.
    Chance is what the predictions would count if each stood for any of the examples. Of equally frequent classes the
    smallest is the vote.
    """
    scores = [math.nan]
    for t in range(1, len(guesses)):
        votes = []
        for i in range(len(labels)):
            before = [epoch[i] for epoch in guesses[:t]]
            votes.append(min(set(before), key=lambda c: (-before.count(c), c)))

        def counts(guess: int, i: int, votes: list[int] = votes) -> int:
            return 1 if guess == votes[i] else -1 if guess == labels[i] else 0

        own = [counts(guess, i) for i, guess in enumerate(guesses[t])]
        any_one = [counts(guess, i) for guess in guesses[t] for i in range(len(labels))]
        scores.append(sum(own) / len(own) - sum(any_one) / len(any_one))
    return scores


def changes(guesses: list[list[int]]) -> list[float]:
    """Minus the share of predictions that changed from the epoch before. NaN for the first epoch."""
    return [math.nan] + [
        -sum(a != b for a, b in zip(now, before, strict=True)) / len(now) for before, now in itertools.pairwise(guesses)
    ]


def smooth(values: list[float]) -> list[float]:
    """The mean of each value and its two neighbours, without those that are missing or NaN; the last has no mean."""
    means = []
    for t in range(len(values) - 1):
        near = [value for value in values[max(t - 1, 0) : t + 2] if not math.isnan(value)]
        means.append(sum(near) / len(near) if near else math.nan)
    return means


def choose(scores: list[float], patience: int) -> int:
    """The epoch, from 1, of the highest score before `patience` epochs in a row were no better; 0 if none has one.

    The first epoch is waited for even if it has no score.
    """
    best = 0
    for epoch, score in enumerate(scores, 1):
        if not math.isnan(score) and (best == 0 or score > scores[best - 1]):
            best = epoch
        if epoch - max(best, 1) >= patience:
            break
    return best


def knee(accuracy: list[float], distance: list[float], share: float, classes: int) -> int:
    """The first epoch, from 1, whose slope over three epochs is below a share of the mean slope; else the last.

    Up to chance there is no knee.
    """
    a, d = [1 / classes, *accuracy], [0.0, *distance]
    for t in range(1, len(a)):
        back = max(t - 3, 0)
        if a[t] > a[0] and (a[t] - a[back]) / (d[t] - d[back]) < share * (a[t] - a[0]) / d[t]:
            return t
    return len(accuracy)


def gauss(x: float, mean: float, std: float) -> float:
    return math.exp(-0.5 * ((x - mean) / std) ** 2) / (std * math.sqrt(2 * math.pi))


def separation(values: list[float], weight: list[float], mean: list[float], std: list[float]) -> float:
    """Minus the share of values taken for the wrong mode, over the weight of the smaller mode."""
    wrong = 0.0
    for x in values:
        low, high = (w * gauss(x, m, s) for w, m, s in zip(weight, mean, std, strict=True))
        wrong += min(low, high) / (low + high)
    return -wrong / len(values) / min(weight)

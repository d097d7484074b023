"""How likely a label is wrong, by loops over examples and classes: the slow twin of auditing/posterior.py."""

from __future__ import annotations

import math

import numpy as np
from scipy.optimize import minimize, minimize_scalar


def powered(p: np.ndarray, a: float) -> np.ndarray:
    """p^a / Σ p^a of each row."""
    rows = []
    for row in p:
        raised = [value**a for value in row]
        rows.append([value / sum(raised) for value in raised])
    return np.array(rows)


def given(parts: list[np.ndarray], exponents: list[float]) -> np.ndarray:
    """q of Eq. (1): the product of the models' powers, a millionth added to each probability."""
    product = np.ones(parts[0].shape)
    for p, a in zip(parts, exponents, strict=True):
        product *= powered(p + 1e-6, a)
    return powered(product, 1.0)


def likelihood(q: np.ndarray, labels: np.ndarray) -> float:
    """The mean log of what the rows give their labels."""
    return float(np.mean([np.log(row[label]) for row, label in zip(q, labels, strict=True)]))


def exponent(p: np.ndarray, labels: np.ndarray) -> float:
    """a of Eq. (1), by a search over its logarithm."""
    found = minimize_scalar(lambda x: -likelihood(given([p], [np.exp(x)]), labels), bounds=(-4, 3), method="bounded")
    return float(np.exp(found.x))


def transition(
    r: np.ndarray,
    labels: np.ndarray,
    sure: float,
    least: float,
    prior: float,
    bound: float,
    before: np.ndarray | None = None,
) -> np.ndarray:
    """T of Eq. (2); from the second round on, with T of the round before."""
    K = r.shape[1]
    counts = np.zeros((K, K))
    for k in range(K):
        own = sorted((i for i in range(len(r)) if r[i].argmax() == k), key=lambda i: -r[i, k])
        for place, i in enumerate(own):
            if r[i, k] >= sure or (place < np.ceil(least * len(own)) and r[i, k] >= bound):
                y = labels[i]
                share = 1.0
                if before is not None and y != k and r[i, k] < sure:
                    share = r[i, k] * before[k, y] / (r[i, k] * before[k, y] + r[i, y] * before[y, y])
                counts[k, y] += share
                counts[y, y] += 1 - share
    total = counts.sum()
    noise = (total - np.trace(counts) + 0.1) / (total + 10)
    for i in range(K):
        for j in range(K):
            counts[i, j] += prior * ((1 - noise) if i == j else noise / (K - 1))
    return counts / counts.sum(axis=1, keepdims=True)


def unmixed(q: np.ndarray, T: np.ndarray) -> np.ndarray:
    """q ⊙ m² of Eq. (3), as rows of sum 1."""
    K = len(T)
    rows = []
    for given in q:
        mixed = [sum(given[i] * T[i, j] for i in range(K)) for j in range(K)]
        m = [sum(T[i, j] * given[j] / mixed[j] for j in range(K)) for i in range(K)]
        rows.append([given[i] * m[i] ** 2 for i in range(K)])
    return powered(np.array(rows), 1.0)


def sharpness(r: np.ndarray, T: np.ndarray, labels: np.ndarray) -> float:
    """b of Eq. (3)."""

    def loss(x: float) -> float:
        powers = powered(r, np.exp(x))
        return -float(
            np.mean(
                [np.log(sum(row[i] * T[i, y] for i in range(len(T)))) for row, y in zip(powers, labels, strict=True)]
            )
        )

    return float(np.exp(minimize_scalar(loss, bounds=(-3, 1.5), method="bounded").x))


def posterior(r: np.ndarray, T: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Eq. (4)."""
    rows = []
    for row, y in zip(r, labels, strict=True):
        joint = [row[i] * T[i, y] for i in range(len(T))]
        rows.append([value / sum(joint) for value in joint])
    return np.array(rows)


def bound(p: np.ndarray, y: int, T: np.ndarray, a: float, b: float) -> tuple[int, float]:
    """Eqs. (1) to (3) of auditing/judging.py, of one row: its likeliest class, and how likely any other is at most."""
    K = len(p)
    t = y if p[y] == max(p) else int(np.argmax(p))
    c = [max(T[i, j] for i in range(K) if i != j) for j in range(K)]
    M = max(sum(T[i, j] / T[j, j] for j in range(K)) for i in range(K))
    second = max(p[i] for i in range(K) if i != t)
    third = max((p[i] for i in range(K) if i not in (t, y)), default=0.0)
    least = 1 + (K - 1) * (second / p[t]) ** a * c[t] / T[t, t]
    rest = (K - 1) * (third / p[t]) ** (a * b) * c[y] + (t != y) * (p[y] / p[t]) ** (a * b) * T[y, y]
    return t, min(1.0, rest * (M * least) ** (2 * b) / T[t, y])


def exponents(parts: list[np.ndarray], labels: np.ndarray) -> np.ndarray:
    """a (M,) of Eq. (1) of several models, by a minimiser that knows no gradient."""
    start = np.full(len(parts), 0.5)
    found = minimize(lambda a: -likelihood(given(parts, list(a)), labels), start, method="Nelder-Mead")
    return np.asarray(found.x)


def estimated(q: np.ndarray, labels: np.ndarray, sure: float, least: float, rounds: int) -> float:
    """The share of wrong labels by q (n, K), with another idea of who is sure of their class."""
    K, T, r = q.shape[1], None, q
    for number in range(rounds):
        T = transition(r, labels, sure, least, max(20.0, 2.0 * K), 0.5 if number else 1 / K + 0.1 * (1 - 1 / K), T)
        r = unmixed(q, T)
        r = powered(r, sharpness(r, T, labels))
    return float(np.mean([1 - row[y] for row, y in zip(posterior(r, T, labels), labels, strict=True)]))


def interval(q: np.ndarray, labels: np.ndarray, rate: float) -> tuple[float, float]:
    """From the strict to the lax estimate, 15 % around the rate at least, and two standard errors beyond; in [0, 1]."""
    n = len(labels)
    found = [0.85 * rate, 1.15 * rate, estimated(q, labels, 0.98, 0.05, 2), estimated(q, labels, 0.7, 0.5, 2)]
    low, high = min(found), max(found)
    errors = [math.sqrt(max(one * (1 - one), 1 / n) / n) for one in (low, high)]
    return max(0.0, low - 2 * errors[0]), min(1.0, high + 2 * errors[1])


def wrong(p: np.ndarray, labels: np.ndarray, *, sure: float, least: float, prior: float, rounds: int) -> np.ndarray:
    """The whole of it: the probability (n,) that each label is wrong."""
    q = given([p], [exponent(p, labels)])
    r = q
    K, T = p.shape[1], None
    for number in range(rounds):
        bound = 0.5 if number else 1 / K + 0.1 * (1 - 1 / K)
        T = transition(r, labels, sure, least, prior, bound, T)
        r = unmixed(q, T)
        r = powered(r, sharpness(r, T, labels))
    return np.array([1 - row[y] for row, y in zip(posterior(r, T, labels), labels, strict=True)])


def best_f1(p: np.ndarray) -> int:
    """How many of the likeliest to take for the largest expected F1."""
    ordered = sorted(p, reverse=True)
    scores = [2 * sum(ordered[:k]) / (k + sum(ordered)) for k in range(1, len(ordered) + 1)]
    return int(np.argmax(scores)) + 1

"""Which labels to call wrong, given how likely each is.

With probabilities p sorted downwards and S their sum, the first k are wrong S_k = Σ_{i≤k} p_i times by expectation, so

    precision ≈ S_k / k,   recall ≈ S_k / S,   F1 ≈ 2 S_k / (k + S)

The k of the largest F1 takes every label with p above half of that F1 (Lipton, Elkan and Naryanaswamy 2014).
"""

from __future__ import annotations

import numpy as np

from noiseproof import checks
from noiseproof.errors import InputError

LEAST = 0.1  # no label is called wrong that is nine times likelier right


def decided(
    scores: np.ndarray,
    *,
    precision: float | None = None,
    recall: float | None = None,
    top: int | None = None,
    threshold: float | None = None,
) -> np.ndarray:
    """Which labels (n,) to call wrong, by scores (n,): the best expected F1, or as one of the options says.

    Raises:
        InputError: two of them, or one outside its range.
    """
    given = [name for name, value in locals().items() if name != "scores" and value is not None]
    if len(given) > 1:
        raise InputError(f"decide by {given[0]} or by {given[1]}, not by both")
    if precision is not None:
        return with_precision(scores, checks.number("precision", precision, 0, 1, ends="(]"))
    if recall is not None:
        return with_recall(scores, checks.number("recall", recall, 0, 1, ends="(]"))
    if top is not None:
        return most_suspicious(scores, checks.integer("top", top, 0))
    if threshold is not None:
        return scores > checks.number("threshold", threshold, 0, 1)
    return best_f1(scores)


def best_f1(p: np.ndarray) -> np.ndarray:
    """A mask (n,) of the labels whose choice has the largest expected F1, by probabilities (n,).

    None where not one is expected to be wrong, Σ p < ½, and none below `LEAST`: where hardly anything is known, the
    best F1 is that of calling all labels wrong.
    """
    whole, chosen = p.sum(dtype=np.float64), p[p >= LEAST].astype(np.float64)
    if whole < 0.5 or len(chosen) == 0:
        return np.zeros(len(p), bool)
    while True:  # what lies above half the F1 of some has a larger one: a few looks at fewer and fewer, and no sorting
        half = chosen.sum() / (len(chosen) + whole)
        fewer = chosen[chosen > half]
        if len(fewer) == len(chosen):
            return p >= chosen.min()
        chosen = fewer


def with_precision(p: np.ndarray, precision: float) -> np.ndarray:
    """A mask (n,) of as many labels as leave the expected precision at this or above."""
    order, total, at = _sorted(p)
    return _first(order, int((total >= precision * at - 1e-9).sum()))


def with_recall(p: np.ndarray, recall: float) -> np.ndarray:
    """A mask (n,) of as few labels as are needed for this expected recall."""
    order, total, _ = _sorted(p)
    needed = recall * total[-1]
    return _first(order, int(np.searchsorted(total, needed * (1 - 1e-9))) + 1 if needed > 0 else 0)


def most_suspicious(p: np.ndarray, top: int) -> np.ndarray:
    """A mask (n,) of so many labels, the likeliest wrong."""
    return _first(_sorted(p)[0], top)


def _sorted(p: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The order of falling probability, the sums S_k, and k: each (n,)."""
    order = np.argsort(-p, kind="stable")
    return order, np.cumsum(p[order], dtype=np.float64), np.arange(1, len(p) + 1)


def _first(order: np.ndarray, count: int) -> np.ndarray:
    mask = np.zeros(len(order), bool)
    mask[order[:count]] = True
    return mask

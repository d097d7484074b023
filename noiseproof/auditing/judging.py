"""What the noise model says of each label, of all of them; and which need no computing.

Of a large set most labels are clear without the products with T of Eq. (3) of posterior.py, by a bound of what its (4)
leaves open. With t the likeliest class by one model's predictions p, p' the largest but for it, p″ the largest but for
it and the label y, and c_j = max over i ≠ j of T_ij:

    (Tᵀq)_j ≥ T_jj q_j, so m_i ≤ Σ_j T_ij / T_jj ≤ M                                                          (1)
    1 / m_t ≤ (Tᵀq)_t / (T_tt q_t) ≤ 1 + (K − 1) (p'/p_t)^a c_t / T_tt                                       (2)
    P(right ≠ t | x, y) ≤ (M / m_t)^(2b) ((K − 1) (p″/p_t)^(ab) c_y + [t ≠ y] (p_y/p_t)^(ab) T_yy) / T_ty     (3)

It takes one look for the largest of each row but for its label's, and another one where that is t, where the products
take 4 K operations for each number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock

import numpy as np
from scipy.sparse import csc_array

from noiseproof.auditing.blocks import in_threads
from noiseproof.auditing.posterior import MOST_PAIRS, TINY, NoiseModel, without

TOLERANCE = 1e-3  # of a probability: what the bound has below this is not computed, and the bound is taken for it
MANY = 2**24  # numbers from which on that is done


class Bound:
    """Eq. (3) by T (K, K), a and b."""

    def __init__(self, transition: np.ndarray, exponent: float, sharpness: float) -> None:
        self.transition, self.a, self.b = transition, exponent, sharpness
        self.kept = np.diag(transition)  # (K,)
        self.most = (transition - np.diag(self.kept)).max(axis=0)  # (K,) c
        self.largest = float((transition / self.kept).sum(axis=1).max())  # M, Eq. (1)

    def __call__(self, p: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The likeliest class (B,) by predictions (B, K), all above 0, which it changes; and the bound (B,)."""
        assert p.flags.c_contiguous
        others, e = p.shape[1] - 1, self.a * self.b
        own, t = _taken(p, labels), labels.copy()
        rest = _largest(p)
        top, differs = np.maximum(own, rest).astype(np.float64), rest > own  # powers up to 90 of these; t ≠ y
        left = p[differs]
        t[differs] = best = left.argmax(axis=1)
        _taken(left, best)
        rest[differs] = _largest(left)
        own, rest = differs * own / top, rest / top
        least = 1 + others * np.maximum(own, rest) ** self.a * (self.most / self.kept)[t]  # 1 / m_t, Eq. (2)
        wrong = others * rest**e * self.most[labels] + own**e * self.kept[labels]
        bound = wrong * (self.largest * least) ** (2 * self.b) / self.transition[t, labels]  # Eq. (3)
        return t, np.minimum(bound, 1)


def _taken(p: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """What rows (B, K), contiguous, have of a class each (B,); they have 0 of it afterwards."""
    at, flat = np.arange(0, p.size, p.shape[1]) + classes, p.reshape(-1)  # half the time of p[rows, classes]
    found = flat[at]
    flat[at] = 0
    return found


def _largest(p: np.ndarray) -> np.ndarray:
    """The largest (B,) of each row (B, K), contiguous: a seventh of the time of max, which asks for NaN besides."""
    return np.fmax.reduceat(p.reshape(-1), np.arange(0, p.size, p.shape[1]))


@dataclass(frozen=True)
class Findings:
    """What (4) of posterior.py says of each label, and of all of them."""

    wrong: np.ndarray  # (n,) float32: the probability that the label is wrong
    suggested: np.ndarray  # (n,) the likeliest right class
    confidence: np.ndarray  # (n,) float32: its probability
    joint: np.ndarray  # (K, K): how many examples of each class (rows) carry each label (columns), by expectation


def judge(model: NoiseModel, labels: np.ndarray, evidence: Sequence[np.ndarray]) -> Findings:
    """Apply (1), (3) and (4) of posterior.py to all examples, in blocks: memory for a few beside what is given.

    Of large sets only to those whose answer is not clear, within `TOLERANCE`, without.
    """
    n, K = evidence[0].shape
    wrong, confidence, suggested = np.empty(n, np.float32), np.empty(n, np.float32), np.empty(n, np.int32)
    by_label, lock = np.zeros((K, K)), Lock()  # labels by right classes
    left: np.ndarray | None = None  # those to compute, if not all

    def look(rows: slice) -> None:
        given = labels[rows]
        p = np.add(np.asarray(evidence[0][rows], np.float32), TINY, order="C")  # a copy, whatever the order was
        best, rest = bound(p, given)
        wrong[rows], confidence[rows], suggested[rows] = np.where(best == given, rest, 1 - rest), 1 - rest, best
        clear[rows] = rest < TOLERANCE
        counts = np.bincount(given * K + best, clear[rows], K * K).reshape(K, K)
        with lock:
            by_label[:] += counts

    def compute(rows: slice) -> None:
        at = rows if left is None else left[rows]
        parts, given = [np.asarray(part[at], np.float32) for part in evidence], labels[at]
        joint = model.joint(parts, given)
        scale = 1 / (joint @ np.ones(K, np.float32))
        suggested[at] = best = joint.argmax(axis=1)
        confidence[at] = joint[np.arange(len(given)), best] * scale
        here = np.flatnonzero(np.bincount(given, minlength=K))
        place = np.searchsorted(here, given)
        counts = csc_array((scale, place, np.arange(len(given) + 1)), (len(here), len(given))) @ joint
        with lock:
            by_label[here] += counts
        wrong[at] = without(joint, given) * scale

    if n * K >= MANY and len(evidence) == 1 and K <= MOST_PAIRS:
        bound, clear = Bound(model.transition, float(model.exponents[0]), model.sharpness), np.empty(n, bool)
        in_threads(look, n, max(1, K // 4))  # of larger blocks: what is done for a block takes longer than for its rows
        left = np.flatnonzero(~clear)
    in_threads(compute, n if left is None else len(left), K)
    return Findings(np.minimum(wrong, 1, out=wrong), suggested, confidence, by_label.T)

"""How likely each label is wrong, from predictions of a model that was not trained on that label.

A model that learns from labels learns their noise too, and is too sure or not sure enough. With p (n, K) its class
probabilities, y the given label and T_ij the chance that an example of class i carries the label j:

    q = p^a / Σ p^a                                     a: the likeliest for the given labels                (1)
    T_ij = share of the label j among examples that surely are of class i                                    (2)
    r = (q ⊙ m²)^b / Σ,  m = T (q / Tᵀq)                b: the likeliest for the given labels, by T           (3)
    P(right = i | x, y) = r_i T_iy / Σ_k r_k T_ky                                                            (4)

q is what the model says of the given label, r of the right one: r ← r ⊙ T (q / Tᵀr) leads to Tᵀr = q, where it can be
had, and one step from r = q is taken doubly. Of several models, q = Π p_m^(a_m) / Σ. Sure of its class is an example
with r_i ≥ 0.9, and of each class the surest tenth as far as r_i ≥ ½; in the first round, where r is still q, as far as
it is a tenth of the way from 1/K to 1. (2) and (3) are done `ROUNDS` times. After the first round, of the surest below
0.9 one that carries another label j counts for T_ij by the share that (4) gives i of i and j, and for T_jj by the rest:
a weak model errs in some of these, which is no noise of the labels. A model that knows nothing is sure of nobody: then
T is next to 1, and no label is doubted.

That T is the same for all examples of a class is not so of people's labels, who err where it is hard. By taking the
examples that are sure enough, and not the surest alone, some of the harder ones count in T.

All of it is homogeneous in q, so that nothing is normalised on the way, and is computed by logarithms: log p, log m.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize, minimize_scalar

from noiseproof.auditing.blocks import aside, in_threads, one_thread

SURE, LEAST = 0.9, 0.1  # r from which on an example is sure of its class; the share of a class that is, at least
STRICT, LAX = (0.98, 0.05), (0.7, 0.5)  # the same for the lower and the upper end of the interval of the noise rate
TRUST = 0.15  # how far the estimate may be off at least, relatively: docs/audit.md
ROUNDS, ROUNDS_AGAIN = 3, 2  # of (2) and (3), and for each end of that interval
HALF, SOME = 0.5, 0.1  # what r of the surest must reach; in the first round, the part of the way from 1/K to 1
PRIOR = 20.0, 2.0  # examples' worth of equal confusion in a row of T, or for each class: few do not rule out a pair
MOST_PAIRS = 256  # classes up to which (3) inverts T; beyond, the examples of a pair are too few, and r = q^b
TINY = 1e-6  # added to each probability: none is ruled out
_FAR = 4.0  # powers of p up to which no row of float32 vanishes: (1e-6)^4 is far from the least number
_SAMPLE, _SAMPLE_VALUES = 20_000, 2**25  # examples, and numbers, at most, that T and the exponents are fitted to
_FIT_VALUES = 2**18  # numbers, at most, that an exponent is fitted to


@dataclass(frozen=True)
class NoiseModel:
    """What was fitted: the exponents of (1), T of (2) and b of (3)."""

    exponents: np.ndarray  # (M,)
    transition: np.ndarray  # (K, K), rows sum to 1: p(given | right)
    sharpness: float

    @cached_property
    def reached(self) -> np.ndarray:
        """Tᵀ (K, K), a row for each label."""
        return np.ascontiguousarray(self.transition.T)

    def given(self, parts: Sequence[np.ndarray]) -> np.ndarray:
        """q (B, K), Eq. (1), of M arrays of predictions (B, K)."""
        return _normalized(_raised(_log_given(parts, self.exponents), 1.0, float(self.exponents.sum())))

    def right(self, parts: Sequence[np.ndarray]) -> np.ndarray:
        """r (B, K), Eq. (3)."""
        return _normalized(self._right(parts))

    def posterior(self, parts: Sequence[np.ndarray], labels: np.ndarray) -> np.ndarray:
        """P(right | x, given) (B, K), Eq. (4), of predictions and labels (B,)."""
        return _normalized(self.joint(parts, labels))

    def joint(self, parts: Sequence[np.ndarray], labels: np.ndarray) -> np.ndarray:
        """The numerators (B, K) of Eq. (4), up to a factor for each row."""
        joint = self._right(parts)
        joint *= self.reached[labels]
        return joint

    def wrong(self, parts: Sequence[np.ndarray], labels: np.ndarray) -> np.ndarray:
        """P(right ≠ given | x, given) (B,)."""
        return without(self.posterior(parts, labels), labels)

    def told(self, parts: Sequence[np.ndarray], labels: np.ndarray) -> np.ndarray:
        """log (Tᵀr)_y (B,): how likely the labels (B,) were, wrong ones with the noise that they have."""
        return np.log((self.right(parts) * self.reached[labels]).sum(axis=1) + TINY)

    def is_sure(self, parts: Sequence[np.ndarray]) -> bool:
        """Whether it is sure of the class of anybody, or next to nobody; of two classes the likelier has ½ anyway."""
        bound = max(HALF, _above_chance(len(self.transition)))
        return bool((self.right(parts).max(axis=1) >= bound).mean() >= 0.01)

    def _right(self, parts: Sequence[np.ndarray]) -> np.ndarray:
        reach = float(self.exponents.sum())
        log_q = _lifted(_log_given(parts, self.exponents), reach)
        return _raised(_log_right(log_q, np.exp(log_q), self.transition), self.sharpness, reach)


def fit(
    labels: np.ndarray,
    evidence: Sequence[np.ndarray],
    *,
    known: np.ndarray | None = None,
    sure: float = SURE,
    least: float = LEAST,
    seed: int = 0,
) -> NoiseModel:
    """The noise model of labels (n,) by M arrays of out-of-sample predictions (n, K).

    Args:
        known: (n,) the right class of examples that were looked at, −1 elsewhere: these are sure of it.
        sure, least: which examples are taken for sure of their class; see above.
        seed: of the sample, where there are more examples than it takes.
    """
    with one_thread():
        return Sample(labels, evidence, seed).fitted(sure, least, known)


def fit_with_range(
    labels: np.ndarray, evidence: Sequence[np.ndarray], *, known: np.ndarray | None = None, seed: int = 0
) -> tuple[NoiseModel, Callable[[], Range]]:
    """As `fit`, and how far off the share of wrong labels by it may be, which goes on aside until it is called for.

    Both calls belong in one `one_thread()`.
    """
    sample = Sample(labels, evidence, seed)

    def rates() -> Range:
        strict, lax = (sample.rate(sample.fitted(*who, rounds=ROUNDS_AGAIN)) for who in (STRICT, LAX))
        return Range(strict, lax, len(sample.labels))

    if sample.log_q.shape[1] > MOST_PAIRS:  # T is too large to have several at once
        return sample.fitted(SURE, LEAST, known), rates
    found = aside(rates)
    return sample.fitted(SURE, LEAST, known), found


class Range(NamedTuple):
    """The share of wrong labels by other examples for T.

    Which examples are sure of their class has to be assumed: the estimate is repeated with few of them (`STRICT`), so
    that only what can hardly be otherwise is noise, and with many (`LAX`).
    """

    strict: float
    lax: float
    size: int  # of the sample

    def around(self, rate: float) -> tuple[float, float]:
        """An interval around the share of wrong labels by the model: by other examples for T, experience, and chance.

        It reaches to both ends, to `TRUST` of the estimate at least, as it is that far off where the truth is known,
        and two standard errors further.
        """
        found = [rate * (1 - TRUST), rate * (1 + TRUST), self.strict, self.lax]
        low, high = min(found), max(found)
        spread = [2 * np.sqrt(max(one * (1 - one), 1 / self.size) / self.size) for one in (low, high)]
        return max(0.0, low - spread[0]), min(1.0, high + spread[1])


class Sample:
    """What models are fitted to: labels (m,) of random examples, all where there are few, and log q (m, K) of them."""

    def __init__(self, labels: np.ndarray, evidence: Sequence[np.ndarray], seed: int = 0) -> None:
        self.rows, parts = _sample(evidence, seed)
        self.labels, few = labels[self.rows], _few(parts[0])
        self.exponents = _exponents([_log_given([part[few]], np.ones(1)) for part in parts], self.labels[few])
        self.reach = float(self.exponents.sum())  # the power of p in q
        self.log_q = _lifted(_log_given(parts, self.exponents), self.reach)  # up to a constant for each row
        self.q = np.exp(self.log_q)

    def fitted(self, sure: float, least: float, known: np.ndarray | None = None, rounds: int = ROUNDS) -> NoiseModel:
        """T and b; of examples `known` (n,), in all, the class is known where it is not −1."""
        n, K = self.log_q.shape
        truth = np.full(n, -1) if known is None else known[self.rows]
        few, r = _few(self.log_q), np.empty_like(self.log_q)
        T, b = None, 1.0

        def right(rows: slice) -> None:
            r[rows] = _normalized(self.q[rows].copy() if T is None else self._right(rows, T, b))

        for _ in range(rounds):
            in_threads(right, n, K)
            T = transition(r, self.labels, truth, sure, least, _above_chance(K) if T is None else HALF, T)
            b = _sharpness(_log_right(self.log_q[few], self.q[few], T), T.T[self.labels[few]])
        assert T is not None
        return NoiseModel(self.exponents, T, b)

    def rate(self, model: NoiseModel) -> float:
        """The share of wrong labels by a model."""
        wrong = np.empty(len(self.labels), np.float32)

        def judge(rows: slice) -> None:
            joint = self._right(rows, model.transition, model.sharpness)
            joint *= model.reached[self.labels[rows]]
            wrong[rows] = without(_normalized(joint), self.labels[rows])

        in_threads(judge, *self.log_q.shape)
        return float(wrong.mean())

    def _right(self, rows: slice, T: np.ndarray, b: float) -> np.ndarray:
        return _raised(_log_right(self.log_q[rows], self.q[rows], T), b, self.reach)


def _above_chance(num_classes: int) -> float:
    """A tenth of the way from 1/K to 1."""
    return 1 / num_classes + SOME * (1 - 1 / num_classes)


def transition(
    r: np.ndarray,
    labels: np.ndarray,
    known: np.ndarray,
    sure: float,
    least: float,
    bound: float,
    before: np.ndarray | None = None,
) -> np.ndarray:
    """T (K, K), Eq. (2): the labels of examples that are sure of their class by r (n, K), or known (n,).

    Sure are those with r from `sure` on, and of each class the share `least`, as far as r reaches the `bound`. Of the
    latter, with T of the round `before`, those that carry another label are shared out between the two classes.
    """
    K = r.shape[1]
    guess = r.argmax(axis=1)
    guess, top = np.where(known >= 0, known, guess), np.where(known >= 0, 1.0, r[np.arange(len(r)), guess])
    surely, rest = np.flatnonzero(top >= sure), np.flatnonzero((top < sure) & (top >= bound))
    rest = rest[np.lexsort((-top[rest], guess[rest]))]  # by class, the surest first: few, where most are sure
    size, ahead, later = (np.bincount(guess[rows], minlength=K) for rows in (slice(None), surely, rest))
    place = np.arange(len(rest)) + (ahead + later - later.cumsum())[guess[rest]]  # within its class
    chosen = np.append(surely, rest[place < np.ceil(least * size)[guess[rest]]])
    i, j = guess[chosen], labels[chosen]
    share = np.ones(len(chosen))
    if before is not None:
        own, other = r[chosen, i] * before[i, j], r[chosen, j] * before[j, j]
        share = np.where((i == j) | (top[chosen] >= sure), 1.0, own / (own + other))
    counts = np.bincount(i * K + j, share, K * K).reshape(K, K)
    counts[np.diag_indices(K)] += np.bincount(j, 1 - share, K)
    T = counts.astype(r.dtype)
    noise = (T.sum() - np.trace(T) + 0.1) / (T.sum() + 10)  # next to none where nobody is sure
    worth = max(PRIOR[0], PRIOR[1] * K)
    kept = T.diagonal() + worth * (1 - noise)
    T += worth * (noise / (K - 1))
    np.fill_diagonal(T, kept)
    T /= T.sum(axis=1, keepdims=True)
    return T


def _sample(evidence: Sequence[np.ndarray], seed: int) -> tuple[np.ndarray, list[np.ndarray]]:
    """Random rows, in random order, all where there are few; and the evidence there, in float32."""
    n, K = evidence[0].shape
    most = min(_SAMPLE, max(1000, _SAMPLE_VALUES // K))
    rng = np.random.default_rng(seed)
    rows = rng.permutation(n) if n <= most else rng.choice(n, most, replace=False, shuffle=True)
    return rows, [np.asarray(part[rows], np.float32) for part in evidence]


def _few(rows: np.ndarray) -> slice:
    """The first of some rows (m, K) in random order, enough to fit an exponent to."""
    return slice(0, max(1000, _FIT_VALUES // rows.shape[1]))


def _log_given(parts: Sequence[np.ndarray], exponents: np.ndarray) -> np.ndarray:
    """log q (B, K), Eq. (1), up to a constant for each row."""
    found = None
    for a, part in zip(exponents, parts, strict=True):
        log = np.add(part, TINY)
        np.log(log, out=log)
        log *= float(a)
        found = log if found is None else np.add(found, log, out=found)
    assert found is not None
    return found


def _log_right(log_q: np.ndarray, q: np.ndarray, T: np.ndarray) -> np.ndarray:
    """log (q ⊙ m²) (B, K), Eq. (3), up to a constant for each row, of log q and q (B, K), up to the same one."""
    if len(T) > MOST_PAIRS:
        return log_q
    T = T.astype(log_q.dtype, copy=False)
    m = q @ T
    m = np.divide(q, m, out=m) @ T.T
    np.log(m, out=m)
    m *= 2
    m += log_q  # Eq. (3)
    return m


def _raised(log_r: np.ndarray, b: float, reach: float) -> np.ndarray:
    """r^b (B, K), up to a factor for each row."""
    z = log_r * b
    return np.exp(_lifted(z, b * reach), out=z)


def _lifted(z: np.ndarray, reach: float) -> np.ndarray:
    """Rows (B, K) whose exponentials do not all vanish, in place; `reach`: which power of a probability these are."""
    if reach > _FAR:
        z -= z.max(axis=1, keepdims=True)
    return z


def _normalized(p: np.ndarray) -> np.ndarray:
    """Rows (B, K) of sum 1; in place."""
    p /= (p @ np.ones(p.shape[1], p.dtype))[:, None]  # a sum over rows, six times as fast
    return p


def without(p: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The sums (B,) of rows (B, K) without their label's; in place. Not 1 − p_y, whose digits are lost next to 1."""
    p[np.arange(len(labels)), labels] = 0
    return p @ np.ones(p.shape[1], p.dtype)


def _exponents(logs: Sequence[np.ndarray], labels: np.ndarray) -> np.ndarray:
    """a (M,) of Eq. (1): the largest Σ log q_y over M arrays of logarithms (m, K) and labels (m,). It is concave."""
    own = np.stack([log[np.arange(len(labels)), labels] for log in logs])  # (M, m)

    def loss(a: np.ndarray) -> tuple[float, np.ndarray]:
        z = np.add.reduce([float(one) * log for one, log in zip(a, logs, strict=True)])
        top = z.max(axis=1) if a.sum() > _FAR else np.zeros(1, z.dtype)
        q = np.exp(z - top[:, None])
        total = q @ np.ones(z.shape[1], z.dtype)
        mean = np.stack([np.einsum("ij,ij->i", q, log) / total for log in logs])  # (M, m)
        gradient = (mean - own).mean(axis=1, dtype=np.float64)
        return float((top + np.log(total) - a @ own).mean()), gradient

    start = np.full(len(logs), 1 / len(logs))
    bounds = [(0.01, 20.0)] * len(logs)
    found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": 50})
    return found.x.astype(np.float32)


def _sharpness(log_r: np.ndarray, reached: np.ndarray) -> float:
    """b of Eq. (3): the largest Σ log (Tᵀ r^b)_y, of log r (m, K) and the rows (m, K) of Tᵀ at the labels."""
    below, ones = log_r - log_r.max(axis=1, keepdims=True), np.ones(log_r.shape[1], log_r.dtype)

    def loss(log_b: float) -> float:
        powers = np.exp(float(np.exp(log_b)) * below)
        return float(-np.log(np.einsum("ij,ij->i", powers, reached) / (powers @ ones)).mean())

    found = minimize_scalar(loss, bounds=(-3, 1.5), method="bounded", options={"xatol": 0.01})
    return float(np.exp(found.x))

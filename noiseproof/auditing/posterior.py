"""How likely each label is wrong, from predictions of a model that was not trained on that label.

A model that learns from labels learns their noise too, and is too sure or not sure enough. With p (n, K) its class
probabilities, y the given label and T_ij the chance that an example of class i carries the label j:

    q = p^a / Σ p^a                                     a: the likeliest for the given labels                (1)
    T_ij = share of the label j among examples that surely are of class i                                    (2)
    r ← r ⊙ T (q / Tᵀr) from r = q, so that Tᵀr ≈ q;  r ← r^b / Σ r^b, b: the likeliest for the labels, by T   (3)
    P(right = i | x, y) = r_i T_iy / Σ_k r_k T_ky                                                            (4)

q is what the model says of the given label, r of the right one. Of several models, q = Π p_m^(a_m) / Σ. Sure of its
class is an example with r_i ≥ 0.9, and of each class the surest tenth as far as r_i ≥ ½; in the first round, where r is
still q, as far as it is a tenth of the way from 1/K to 1. (2) and (3) are done `ROUNDS` times. After the first round,
of the surest below 0.9 one that carries another label j counts for T_ij by the share that (4) gives i of i and j, and
for T_jj by the rest: a weak model errs in some of these, which is no noise of the labels. A model that knows nothing is
sure of nobody: then T is next to 1, and no label is doubted.

That T is the same for all examples of a class is not so of people's labels, who err where it is hard. By taking the
examples that are sure enough, and not the surest alone, some of the harder ones count in T.

Most labels need none of the products in (3). With u = Σ_{k≠y} r_k / r_y, the odds against the given label, and
ρ = max_{k≠y} T_ky / T_yy, raising to a power a makes of u at most (K − 1)^max(0, 1 − a) u^a (Hölder, Jensen; of several
models the product of their powers, with a = Σ a_m), an iteration of (3) at most (1 + u₀)(1 + ρ u) − 1 with u₀ of q, as
of T (q / Tᵀr) the y-th term alone counts, and (4) at most ρ u. Of large sets, where this bound, of p_y alone, is below
`CERTAIN`, the label is right; to be wrong it is given a share of the bound that is found from a few of these.       (5)
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from threading import Lock

import numpy as np
from scipy.optimize import minimize, minimize_scalar
from scipy.sparse import csr_array
from threadpoolctl import threadpool_limits

SURE, LEAST = 0.9, 0.1  # r from which on an example is sure of its class; the share of a class that is, at least
STRICT, LAX = (0.98, 0.05), (0.7, 0.5)  # the same for the lower and the upper end of the interval of the noise rate
TRUST = 0.15  # how far the estimate may be off at least, relatively: docs/audit.md
ROUNDS, STEPS = 3, 2  # of (2) and (3); of the iteration in (3)
HALF, SOME = 0.5, 0.1  # what r of the surest must reach; in the first round, the part of the way from 1/K to 1
PRIOR = 20.0, 2.0  # examples' worth of equal confusion in a row of T, or for each class: few do not rule out a pair
CERTAIN, LARGE = 0.01, 2**24  # the bound of (5) below which a label is certain, where there are so many numbers
MOST_PAIRS = 256  # classes up to which (3) inverts T; beyond, the examples of a pair are too few, and r = q^b
_TINY = 1e-6  # the least probability a model can give
_SAMPLE, _SAMPLE_VALUES = 20_000, 2**25  # examples, and numbers, at most, that T and the exponents are fitted to
_FIT_VALUES = 2**19  # numbers, at most, that an exponent is fitted to
_SOME = 3000  # examples by which a share is found
_BLOCK = 2**17  # numbers worked on at once by a thread


@dataclass(frozen=True)
class NoiseModel:
    """What was fitted: the exponents of (1), T of (2) and b of (3)."""

    exponents: np.ndarray  # (M,)
    transition: np.ndarray  # (K, K) float32, rows sum to 1: p(given | right)
    sharpness: float

    @cached_property
    def reached(self) -> np.ndarray:
        """Tᵀ (K, K), a row for each label."""
        return np.ascontiguousarray(self.transition.T)

    def given(self, parts: Sequence[np.ndarray]) -> np.ndarray:
        """q (B, K), Eq. (1), of M arrays of predictions (B, K)."""
        logs = [_log(part) for part in parts]
        for a, log in zip(self.exponents, logs, strict=True):
            log *= a
        return _softmax(np.add.reduce(logs) if len(logs) > 1 else logs[0])

    def right(self, parts: Sequence[np.ndarray]) -> np.ndarray:
        """r (B, K), Eq. (3)."""
        return _sharpened(_unmixed(self.given(parts), self.transition), self.sharpness)

    def is_sure(self, parts: Sequence[np.ndarray]) -> bool:
        """Whether it is sure of the class of anybody, or next to nobody."""
        return bool((self.right(parts).max(axis=1) >= HALF).mean() >= 0.01)

    @cached_property
    def confused(self) -> np.ndarray:
        """Of each label (K,) the largest T_ky / T_yy over the other classes k: ρ of (5)."""
        others = ~np.eye(len(self.transition), dtype=bool)
        return self.transition.max(axis=0, where=others, initial=0.0) / np.diag(self.transition)

    def bound(self, own: Sequence[np.ndarray], labels: np.ndarray) -> np.ndarray:
        """What P(right ≠ given | x, given) (B,) is at most, Eq. (5), by the predictions (B,) of the given labels."""
        K, rho = len(self.transition), self.confused[labels]
        log_odds = sum(a * np.log((1 - p + K * _TINY) / (p + _TINY)) for a, p in zip(self.exponents, own, strict=True))
        with np.errstate(over="ignore", invalid="ignore"):  # what overflows is no bound
            start = odds = np.exp(log_odds) * _spread(K, float(self.exponents.sum()))
            for _ in range(STEPS if K <= MOST_PAIRS else 0):
                odds = (1 + start) * (1 + rho * odds) - 1
            odds = (odds + K * _TINY * (1 + odds)) ** self.sharpness * _spread(K, self.sharpness)
            return np.minimum(rho * odds, 1)

    def posterior(self, parts: Sequence[np.ndarray], labels: np.ndarray) -> np.ndarray:
        """P(right | x, given) (B, K), Eq. (4), of predictions and labels (B,)."""
        joint = self.right(parts)
        joint *= self.reached[labels]
        return _normalized(joint)

    def wrong(self, parts: Sequence[np.ndarray], labels: np.ndarray) -> np.ndarray:
        """P(right ≠ given | x, given) (B,)."""
        posterior = self.posterior(parts, labels)
        posterior[np.arange(len(labels)), labels] = 0
        return posterior.sum(axis=1)  # and not 1 − P(given), whose digits are lost where that is next to 1


def fit(
    labels: np.ndarray,
    evidence: Sequence[np.ndarray],
    *,
    known: np.ndarray | None = None,
    sure: float = SURE,
    least: float = LEAST,
    exponents: np.ndarray | None = None,
    seed: int = 0,
) -> NoiseModel:
    """The noise model of labels (n,) by M arrays of out-of-sample predictions (n, K).

    Args:
        known: (n,) the right class of examples that were looked at, −1 elsewhere: these are sure of it.
        sure, least: which examples are taken for sure of their class; see above.
        exponents: (M,) those of (1), if they are known.
        seed: of the sample, where there are more examples than it takes.
    """
    K = evidence[0].shape[1]
    rows, parts = _sample(evidence, seed)
    given = labels[rows]
    truth = np.full(len(rows), -1) if known is None else known[rows]
    few = slice(0, max(1000, _FIT_VALUES // K))  # the rows are in random order
    exponents = _exponents([_log(part[few]) for part in parts], given[few]) if exponents is None else exponents
    model = NoiseModel(exponents, np.eye(K, dtype=np.float32), 1.0)
    q = model.given(parts)
    r = q
    bound, before = 1 / K + SOME * (1 - 1 / K), None
    for _ in range(ROUNDS):
        before = T = transition(r, given, truth, sure, least, bound, before)
        r, bound = _unmixed(q, T), HALF
        b = _sharpness(_log(r[few]), T.T[given[few]])
        r = _sharpened(r, b)
    return NoiseModel(exponents, T, b)


def transition(
    r: np.ndarray,
    labels: np.ndarray,
    known: np.ndarray,
    sure: float,
    least: float,
    bound: float,
    before: np.ndarray | None = None,
) -> np.ndarray:
    """T (K, K) float32, Eq. (2): the labels of examples that are sure of their class by r (n, K), or known (n,).

    Sure are those with r from `sure` on, and of each class the share `least`, as far as r reaches the `bound`. Of the
    latter, with T of the round `before`, those that carry another label are shared out between the two classes.
    """
    K = r.shape[1]
    guess, top = r.argmax(axis=1), r.max(axis=1)
    guess, top = np.where(known >= 0, known, guess), np.where(known >= 0, 1.0, top)
    order = np.lexsort((-top, guess))  # by class, the surest first
    size = np.bincount(guess, minlength=K)
    place = np.arange(len(order)) - (size.cumsum() - size)[guess[order]]  # within its class
    first = (place < np.ceil(least * size[guess[order]])) & (top[order] >= bound)
    chosen = order[(top[order] >= sure) | first]
    i, j = guess[chosen], labels[chosen]
    share = np.ones(len(chosen))
    if before is not None:
        own, other = r[chosen, i] * before[i, j], r[chosen, j] * before[j, j]
        share = np.where((i == j) | (top[chosen] >= sure), 1.0, own / (own + other))
    counts = np.bincount(i * K + j, share, K * K) + np.bincount(j * K + j, 1 - share, K * K)
    counts = counts.reshape(K, K).astype(np.float32)
    noise = (counts.sum() - np.trace(counts) + 0.1) / (counts.sum() + 10)  # next to none where nobody is sure
    prior = np.full((K, K), noise / (K - 1), np.float32)
    np.fill_diagonal(prior, 1 - noise)
    mixed = counts + max(PRIOR[0], PRIOR[1] * K) * prior
    return mixed / mixed.sum(axis=1, keepdims=True)


@dataclass(frozen=True)
class Findings:
    """What (4) says of each label, and of all of them."""

    wrong: np.ndarray  # (n,) float32: the probability that the label is wrong
    suggested: np.ndarray  # (n,) the likeliest right class
    confidence: np.ndarray  # (n,) float32: its probability
    joint: np.ndarray  # (K, K): how many examples of each class (rows) carry each label (columns), by expectation


def judge(
    model: NoiseModel, labels: np.ndarray, evidence: Sequence[np.ndarray], *, certain: float | None = None
) -> Findings:
    """Apply (1), (3) and (4) to all examples that (5) leaves open, in blocks: memory for a few beside what is given.

    `certain`: below which bound nothing is computed; by default `CERTAIN` of large sets, else 0, so that all is.
    """
    n, K = evidence[0].shape
    wrong, confidence = np.empty(n, np.float32), np.empty(n, np.float32)
    suggested, known = np.empty(n, np.int32), np.empty(n, bool)
    joint, lock = np.zeros((K, K)), Lock()  # labels by right classes
    certain = certain if certain is not None else CERTAIN if n * K > LARGE else 0.0
    share = _share(model, labels, evidence, certain)

    def block(rows: slice) -> None:
        given, at = labels[rows], np.arange(rows.stop - rows.start)
        bound = model.bound([np.asarray(part[rows][at, given], np.float32) for part in evidence], given)
        known[rows] = bound < certain
        wrong[rows], suggested[rows], confidence[rows] = share * bound, given, 1 - share * bound
        rest = np.flatnonzero(~known[rows])
        given, at = given[rest], at[: len(rest)]
        posterior = model.posterior([np.asarray(part[rows][rest], np.float32) for part in evidence], given)
        suggested[rows][rest] = best = posterior.argmax(axis=1)
        confidence[rows][rest] = posterior[at, best]
        by_label = csr_array((np.ones(len(given), np.float32), given, np.arange(len(given) + 1)), (len(given), K))
        counts = by_label.T @ posterior  # np.add.at takes three times as long as all the rest
        with lock:
            joint[...] += counts
        posterior[at, given] = 0
        wrong[rows][rest] = posterior.sum(axis=1)

    with threadpool_limits(1), ThreadPoolExecutor(os.cpu_count()) as pool:  # threads of ours, or of BLAS, not both
        list(pool.map(block, blocks(n, K)))
    rest = np.flatnonzero(known)
    doubted = np.bincount(labels[rest], wrong[rest], K)  # these by T alone
    others = model.reached * ~np.eye(K, dtype=bool)
    joint += others * (doubted / np.maximum(others.sum(axis=1), _TINY))[:, None]
    joint[np.diag_indices(K)] += np.bincount(labels[rest], minlength=K) - doubted
    return Findings(np.minimum(wrong, 1), suggested, confidence, joint.T)


def _share(model: NoiseModel, labels: np.ndarray, evidence: Sequence[np.ndarray], certain: float) -> float:
    """Which share of the bound (5) the probability is, on average, of some examples below `certain`."""
    rows = np.unique(np.linspace(0, len(labels) - 1, _SOME).astype(np.int64)) if certain else np.arange(0)
    parts, at = [np.asarray(part[rows], np.float32) for part in evidence], np.arange(len(rows))
    bound = model.bound([part[at, labels[rows]] for part in parts], labels[rows])
    some = np.flatnonzero(bound < certain)
    exact = model.wrong([part[some] for part in parts], labels[rows[some]])
    return float(exact.sum() / max(float(bound[some].sum()), _TINY))


def rate_interval(
    labels: np.ndarray, evidence: Sequence[np.ndarray], model: NoiseModel, rate: float, seed: int = 0
) -> tuple[float, float]:
    """An interval around the share of wrong labels by a model: by other examples for T, by experience, and by chance.

    Which examples are sure of their class has to be assumed: the estimate is repeated with few of them (`STRICT`), so
    that only what can hardly be otherwise is noise, and with many (`LAX`). The interval reaches to both, to `TRUST` of
    the estimate at least, as it is that far off where the truth is known, and two standard errors further.
    """
    rows, parts = _sample(evidence, seed)
    given = labels[rows]
    found = [rate * (1 - TRUST), rate * (1 + TRUST)]
    for sure, least in (STRICT, LAX):
        other = fit(given, parts, sure=sure, least=least, exponents=model.exponents)
        found.append(float(other.wrong(parts, given).mean()))
    low, high = min(found), max(found)
    spread = [2 * np.sqrt(max(one * (1 - one), 1 / len(rows)) / len(rows)) for one in (low, high)]
    return max(0.0, low - spread[0]), min(1.0, high + spread[1])


def blocks(n: int, width: int) -> Iterator[slice]:
    """Rows 0..n in slices of a size that a thread works on at once."""
    height = max(1, _BLOCK // width)
    return (slice(begin, min(begin + height, n)) for begin in range(0, n, height))


def _sample(evidence: Sequence[np.ndarray], seed: int) -> tuple[np.ndarray, list[np.ndarray]]:
    """Random rows, in random order, all where there are few; and the evidence there, in float32."""
    n, K = evidence[0].shape
    most = min(_SAMPLE, max(1000, _SAMPLE_VALUES // K))
    rng = np.random.default_rng(seed)
    rows = rng.permutation(n) if n <= most else rng.choice(n, most, replace=False, shuffle=True)
    return rows, [np.asarray(part[rows], np.float32) for part in evidence]


def _log(p: np.ndarray) -> np.ndarray:
    found = np.maximum(p, np.float32(_TINY), dtype=np.float32)
    return np.log(found, out=found)


def _softmax(z: np.ndarray) -> np.ndarray:
    """Rows (B, K) as probabilities; in place."""
    z -= z.max(axis=1, keepdims=True)
    return _normalized(np.exp(z, out=z))


def _normalized(p: np.ndarray) -> np.ndarray:
    """Rows (B, K) of sum 1; in place."""
    p /= (p @ np.ones(p.shape[1], p.dtype))[:, None]  # a sum over rows, six times as fast
    return p


def _sharpened(r: np.ndarray, b: float) -> np.ndarray:
    log = _log(r)
    log *= np.float32(b)
    return _softmax(log)


def _spread(num_classes: int, exponent: float) -> float:
    """How much larger Σ x^a over the other classes may be than (Σ x)^a."""
    return float((num_classes - 1) ** max(0.0, 1 - exponent))


def _unmixed(q: np.ndarray, T: np.ndarray) -> np.ndarray:
    """r (B, K) with Tᵀr ≈ q: so many steps of the iteration in Eq. (3), which raises Σ q log Tᵀr."""
    r = q
    if len(T) <= MOST_PAIRS:
        for _ in range(STEPS):
            ratio = r @ T
            r = r * (np.divide(q, ratio, out=ratio) @ T.T)  # Eq. (3); its rows sum to 1
    return r


def _exponents(logs: Sequence[np.ndarray], labels: np.ndarray) -> np.ndarray:
    """a (M,) of Eq. (1): the largest Σ log q_y over M arrays of logarithms (m, K) and labels (m,). It is concave."""
    stacked, at = np.stack(logs), np.arange(len(labels))  # (M, m, K)
    own = stacked[:, at, labels]  # (M, m)

    def loss(a: np.ndarray) -> tuple[float, np.ndarray]:
        z = np.tensordot(np.float32(a), stacked, 1)
        top = z.max(axis=1)
        log_sum = top + np.log(np.exp(z - top[:, None]).sum(axis=1))
        q = np.exp(z - log_sum[:, None])
        gradient = [np.vdot(q, log) / len(labels) - part.mean() for log, part in zip(stacked, own, strict=True)]
        return float((log_sum - np.float32(a) @ own).mean()), np.array(gradient, np.float64)

    start = np.full(len(stacked), 1 / len(stacked))
    bounds = [(0.01, 20.0)] * len(stacked)
    found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": 50})
    return found.x.astype(np.float32)


def _sharpness(log_r: np.ndarray, reached: np.ndarray) -> float:
    """b of Eq. (3): the largest Σ log (Tᵀ r^b)_y, of log r (m, K) and the rows (m, K) of Tᵀ at the labels."""

    def loss(log_b: float) -> float:
        return float(-np.log((_softmax(np.float32(np.exp(log_b)) * log_r) * reached).sum(axis=1)).mean())

    found = minimize_scalar(loss, bounds=(-3, 1.5), method="bounded", options={"xatol": 0.01})
    return float(np.exp(found.x))

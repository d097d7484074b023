"""How good features are, by labels that training has not seen: nearest neighbours and a linear classifier.

    k-NN     vote(x)_c = Σ over the k nearest j of exp(cos(x, x_j) / T) [y_j = c]       Wu et al. 2018; k = 50, T = 0.05
    linear   softmax regression on standardised features, computed once

Both take features and labels, and give class probabilities (m, K). Fine-tuning is `fit(…, init=RUN)`.
`neighbourhood` asks the other way round: which labels disagree with those of their neighbours?
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from noiseproof import checks
from noiseproof.data import LabeledData
from noiseproof.errors import InputError
from noiseproof.method import Beliefs
from noiseproof.runs.features import Features

PROBES = {"knn": "k-NN", "linear": "linear"}
_BLOCK = 2**24  # similarities held at once
_COLUMNS = 2**16  # of the bank, at most, in a block


def largest(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest of each row (m, n) and where they are, both (m, k), in falling order.

    As `torch.topk`, but for long rows in two rounds: the columns are folded into groups of which only the largest
    counts; the k largest values lie in the k groups with the largest maxima, and in what was left over.
    """
    m, n = scores.shape
    fold = math.isqrt(n // k)  # makes both rounds the shortest: n/fold maxima, then k·fold values
    if fold < 4:
        return scores.topk(k, dim=1)
    groups = n // fold
    folded = scores[:, : groups * fold].unflatten(1, (fold, groups))  # column r·groups + c is in group c
    best = folded.amax(dim=1).topk(k, dim=1, sorted=False).indices  # (m, k)
    columns = (best[:, None, :] + groups * torch.arange(fold, device=scores.device)[:, None]).flatten(1)
    rest = torch.arange(groups * fold, n, device=scores.device).expand(m, -1)
    columns = torch.cat([columns, rest], dim=1)  # (m, k·fold + rest)
    values, at = scores.gather(1, columns).topk(k, dim=1)
    return values, columns.gather(1, at)


def nearest(queries: Tensor, bank: Tensor, k: int, *, exclude_self: bool = False) -> tuple[Tensor, Tensor]:
    """The k nearest rows of `bank` by cosine: similarities and positions (m, k), nearest first; in blocks.

    Args:
        queries: (m, F).
        bank: (n, F).
        k: in 1..n.
        exclude_self: the queries are the bank, and a row is not its own neighbour.

    Raises:
        InputError: shapes or k that do not fit.
    """
    m, n = len(queries), len(bank)
    _check_widths(queries, bank)
    if exclude_self and m != n:
        raise InputError(f"exclude_self needs the bank as queries, got {m} queries for a bank of {n}; pass it twice")
    if not 1 <= k <= n - exclude_self:
        raise InputError(f"k must lie in 1..{n - exclude_self}, the size of the bank, got {k}")
    queries, bank = F.normalize(queries.float(), dim=1), F.normalize(bank.float(), dim=1)
    values = torch.empty(m, k, device=queries.device)
    positions = torch.empty(m, k, dtype=torch.int64, device=queries.device)
    width = min(n, _COLUMNS)
    for rows in torch.arange(m).split(max(1, _BLOCK // width)) if m else ():
        found: list[tuple[Tensor, Tensor]] = []
        for begin in range(0, n, width):
            scores = queries[rows[0] : rows[-1] + 1] @ bank[begin : begin + width].T  # (rows, width)
            if exclude_self:
                own = rows - begin
                inside = (own >= 0) & (own < scores.shape[1])
                scores[inside.nonzero()[:, 0], own[inside]] = -math.inf
            value, at = largest(scores, min(k, scores.shape[1]))
            found.append((value, at + begin))
        value, at = (torch.cat(parts, dim=1) for parts in zip(*found, strict=True))
        if len(found) > 1:
            value, best = value.topk(k, dim=1)
            at = at.gather(1, best)
        values[rows[0] : rows[-1] + 1], positions[rows[0] : rows[-1] + 1] = value, at
    return values, positions


def _check_widths(queries: Tensor, bank: Tensor) -> None:
    if queries.ndim != 2 or bank.ndim != 2 or queries.shape[1] != bank.shape[1]:
        raise InputError(
            f"queries and bank must be features (m, F) and (n, F), got {tuple(queries.shape)} and {tuple(bank.shape)}"
        )


def vote(similarity: Tensor, label: Tensor, num_classes: int, temperature: float = 0.05) -> Tensor:
    """Class probabilities (m, K) from neighbours' similarities and labels (m, k), each weighing exp(similarity / T)."""
    weight = (similarity / temperature).softmax(dim=1)
    return torch.zeros(len(label), num_classes, device=weight.device).scatter_add_(1, label, weight)


def knn(
    bank: Tensor,
    labels: Tensor,
    queries: Tensor,
    *,
    k: int = 50,
    temperature: float = 0.05,
    num_classes: int | None = None,
) -> Tensor:
    """Class probabilities (m, K) of queries by their nearest neighbours.

    Args:
        bank: features (n, F) of labelled examples.
        labels: (n,) int64.
        queries: features (m, F).
        k: neighbours; all of the bank, if it has fewer. The SANE paper: 50.
        temperature: T, above 0. The SANE paper: 0.05.
        num_classes: K; by default what the labels hold.

    Raises:
        InputError: an argument outside its range, or shapes that do not fit.
    """
    checks.number("temperature", temperature, 0, ends="(]")
    checks.integer("k", k, 1)
    classes = _classes(bank, labels, num_classes)
    similarity, at = nearest(queries, bank, min(k, len(bank)))
    return vote(similarity, labels[at], classes, temperature)


def neighbourhood(
    features: Tensor, labels: Tensor, *, k: int = 50, temperature: float = 0.05, num_classes: int | None = None
) -> Beliefs:
    """What the neighbours of each example say of its label: their vote, and how much of it goes to other classes.

    Args:
        features: (n, F) with n > 1, best of a backbone that has not seen the labels.
        labels: (n,) int64, partly wrong.
        k: neighbours, the example itself left out; all others, if there are fewer.
        temperature: T, above 0.
        num_classes: K; by default what the labels hold.

    Raises:
        InputError: an argument outside its range, or shapes that do not fit.
    """
    checks.number("temperature", temperature, 0, ends="(]")
    checks.integer("k", k, 1)
    classes = _classes(features, labels, num_classes)
    similarity, at = nearest(features, features, min(k, len(features) - 1), exclude_self=True)
    return Beliefs.of(vote(similarity, labels[at], classes, temperature), labels)


def linear(
    features: Tensor,
    labels: Tensor,
    queries: Tensor,
    *,
    decay: float = 1e-4,
    steps: int = 200,
    num_classes: int | None = None,
) -> Tensor:
    """Class probabilities (m, K) of queries by softmax regression, trained on the features of labelled examples.

    Minimises mean cross-entropy + decay/2 ‖W‖² over standardised features by full-batch L-BFGS: convex, so neither rate
    nor seed matter.

    Differs from the SANE paper: it trains 200 epochs of Adam at rate 0.01 without decay, stopped where it is.

    Args:
        features: (n, F).
        labels: (n,) int64.
        queries: (m, F).
        decay: at least 0.
        steps: iterations at most.
        num_classes: K; by default what the labels hold.

    Raises:
        InputError: an argument outside its range, or shapes that do not fit.
    """
    checks.number("decay", decay, 0)
    checks.integer("steps", steps, 1)
    classes = _classes(features, labels, num_classes)
    _check_widths(queries, features)
    mean, std = features.mean(dim=0), features.std(dim=0, correction=0).clamp_min(1e-6)
    x = (features - mean) / std  # (n, F)
    weight = torch.zeros(classes, x.shape[1], device=x.device, requires_grad=True)
    bias = torch.zeros(classes, device=x.device, requires_grad=True)
    solver = torch.optim.LBFGS([weight, bias], max_iter=steps, tolerance_grad=1e-5, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        solver.zero_grad()
        value = F.cross_entropy(F.linear(x, weight, bias), labels) + decay / 2 * weight.square().sum()
        value.backward()
        return value

    with torch.enable_grad():
        solver.step(loss)
    with torch.no_grad():
        return F.linear((queries - mean) / std, weight, bias).softmax(dim=1)


def _classes(features: Tensor, labels: Tensor, num_classes: int | None) -> int:
    """K of labels (n,), one for each row of the features."""
    if features.ndim != 2 or len(features) == 0 or labels.shape != (len(features),) or labels.dtype != torch.int64:
        raise InputError(
            f"labels must be int64 (n,), one for each row of features (n, F) with n > 0, got "
            f"{checks.describe(labels)} for {checks.describe(features)}"
        )
    classes = int(labels.max()) + 1 if num_classes is None else checks.integer("num_classes", num_classes, 1)
    if int(labels.min()) < 0 or int(labels.max()) >= classes:
        raise InputError(f"labels must lie in 0..{classes - 1}, got {int(labels.min())}..{int(labels.max())}")
    return classes


def accuracy(probability: Tensor, label: Tensor) -> float:
    """The share of rows (m, K) whose largest entry is at the label (m,)."""
    return (probability.argmax(dim=1) == label).float().mean().item()


def probe(features: Features, train: LabeledData, test: LabeledData, *, k: int = 50) -> dict[str, float]:
    """`knn` and `linear`: test accuracies of both, by the training labels, against the test set's true ones."""
    bank, queries = features(train), features(test)
    label = test.clean().labels
    return {
        "knn": accuracy(knn(bank, train.labels, queries, k=k, num_classes=train.num_classes), label),
        "linear": accuracy(linear(bank, train.labels, queries, num_classes=train.num_classes), label),
    }

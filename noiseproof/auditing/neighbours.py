"""What the nearest neighbours of an example say of its class, and of its label.

    vote(x)_c = Σ over the k nearest j of exp(cos(x, x_j) / T) [y_j = c]       Wu et al. 2018; k = 50, T = 0.05

Features in, class probabilities out. The search is exact, and never holds the whole matrix of similarities.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from noiseproof import checks
from noiseproof.errors import InputError

_BLOCK = 2**21  # similarities held at once: 8 MiB, which stay in a cache until the nearest are taken from them
_COLUMNS = 2**13  # of the bank, at most, in a block


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
    check_widths(queries, bank)
    m, n = len(queries), len(bank)
    if exclude_self and m != n:
        raise InputError(f"exclude_self needs the bank as queries, got {m} queries for a bank of {n}; pass it twice")
    checks.integer("k", k, 1, n - exclude_self, remedy="the bank has no more rows")
    queries, bank = F.normalize(queries.float(), dim=1), F.normalize(bank.float(), dim=1)
    values = queries.new_empty(m, k)
    positions = torch.empty(m, k, dtype=torch.int64, device=queries.device)
    width = min(n, _COLUMNS)
    height = _BLOCK // width
    for top in range(0, m, height):
        rows = slice(top, top + height)
        near = []  # in each block of columns
        for begin in range(0, n, width):
            scores = queries[rows] @ bank[begin : begin + width].T  # (height, width)
            if exclude_self:
                scores.diagonal(top - begin).fill_(-math.inf)
            value, at = scores.topk(min(k, scores.shape[1]), dim=1)
            near.append((value, at + begin))
        value, at = (torch.cat(parts, dim=1) for parts in zip(*near, strict=True))
        values[rows], best = value.topk(k, dim=1)
        positions[rows] = at.gather(1, best)
    return values, positions


def vote(similarity: Tensor, label: Tensor, num_classes: int, temperature: float = 0.05) -> Tensor:
    """Class probabilities (m, K) from neighbours' similarities and labels (m, k), each weighing exp(similarity / T)."""
    weight = (similarity / temperature).softmax(dim=1)
    return torch.zeros(len(label), num_classes, device=weight.device).scatter_add_(1, label, weight)


def knn(
    bank: Tensor,
    labels: Tensor,
    queries: Tensor | None = None,
    *,
    k: int = 50,
    temperature: float = 0.05,
    num_classes: int | None = None,
) -> Tensor:
    """Class probabilities (m, K) of queries by their nearest neighbours.

    Args:
        bank: features (n, F) of labelled examples.
        labels: (n,) int64.
        queries: features (m, F); by default the bank's own, each row judged by the others.
        k: neighbours; all there are, if they are fewer. The SANE paper: 50.
        temperature: T, above 0. The SANE paper: 0.05.
        num_classes: K; by default what the labels hold.

    Raises:
        InputError: an argument outside its range, or shapes that do not fit.
    """
    checks.number("temperature", temperature, 0, ends="(]")
    checks.integer("k", k, 1)
    classes = count_classes(bank, labels, num_classes)
    own = queries is None
    similarity, at = nearest(bank if queries is None else queries, bank, min(k, len(bank) - own), exclude_self=own)
    return vote(similarity, labels[at], classes, temperature)


def neighbourhood(
    features: Tensor, labels: Tensor, *, k: int = 50, temperature: float = 0.05, num_classes: int | None = None
) -> tuple[Tensor, Tensor]:
    """What the neighbours of each example say of its label: their vote (n, K), and how much of it goes elsewhere (n,).

    The features (n, F), n > 1, are best of a backbone that has not seen the labels (n,). The rest is as of `knn`.
    """
    soft_label = knn(features, labels, k=k, temperature=temperature, num_classes=num_classes)
    return soft_label, (1 - soft_label.gather(1, labels[:, None]).squeeze(1)).clamp(0, 1)


def check_widths(queries: Tensor, bank: Tensor) -> None:
    """Raise an InputError unless both hold features of one width."""
    for name, one in (("queries", queries), ("bank", bank)):
        if not checks.is_dense(one) or not one.is_floating_point():
            raise InputError(f"{name} must be a float tensor of features (n, F), got {checks.describe(one)}")
    if queries.ndim != 2 or bank.ndim != 2 or queries.shape[1] != bank.shape[1]:
        raise InputError(
            f"queries and bank must be features (m, F) and (n, F), got {tuple(queries.shape)} and {tuple(bank.shape)}"
        )


def count_classes(features: Tensor, labels: Tensor, num_classes: int | None) -> int:
    """K of labels (n,), one for each row of the features.

    Raises:
        InputError: they are not that, or some lie beyond `num_classes`.
    """
    fits = checks.is_dense(features) and features.ndim == 2 and len(features) > 0
    if not fits or not checks.is_dense(labels) or labels.shape != (len(features),) or labels.dtype != torch.int64:
        raise InputError(
            f"labels must be int64 (n,), one for each row of features (n, F) with n > 0, got "
            f"{checks.describe(labels)} for {checks.describe(features)}"
        )
    classes = int(labels.max()) + 1 if num_classes is None else checks.integer("num_classes", num_classes, 1)
    if int(labels.min()) < 0 or int(labels.max()) >= classes:
        raise InputError(f"labels must lie in 0..{classes - 1}, got {int(labels.min())}..{int(labels.max())}")
    return classes

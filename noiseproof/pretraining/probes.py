"""How good features are, by labels that training has not seen: nearest neighbours and a linear classifier.

    k-NN     the vote of the nearest labelled examples: auditing/neighbours.py
    linear   softmax regression on standardised features, computed once

Both take features and labels, and give class probabilities (m, K). Fine-tuning is `fit(…, init=RUN)`.
`neighbourhood` asks the other way round: which labels disagree with those of their neighbours?
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from noiseproof import checks
from noiseproof.auditing import neighbours
from noiseproof.auditing.neighbours import check_widths, count_classes, knn
from noiseproof.auditing.neighbours import nearest as nearest
from noiseproof.data import LabeledData
from noiseproof.method import Beliefs
from noiseproof.runs.trained import Features

PROBES = {"knn": "k-NN", "linear": "linear"}


def neighbourhood(features: Tensor, labels: Tensor, **options: Any) -> Beliefs:
    """What the neighbours of each example say of its label, by `auditing.neighbours.neighbourhood` and its options."""
    return Beliefs(*neighbours.neighbourhood(features, labels, **options))


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
    classes = count_classes(features, labels, num_classes)
    check_widths(queries, features)
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

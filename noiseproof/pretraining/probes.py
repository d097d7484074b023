"""How good features are, by labels that training has not seen: nearest neighbours and a linear classifier.

    k-NN     the vote of the nearest labelled examples: auditing/neighbours.py
    linear   softmax regression on standardised features, computed once; or by the steps that the papers take, PROTOCOLS

Both take features and labels, and give class probabilities (m, K). Fine-tuning is `fit(…, init=RUN)`.
`neighbourhood` asks the other way round: which labels disagree with those of their neighbours?
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

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


class Protocol(NamedTuple):
    """How a paper trains its linear classifier: batches of 256, no weight decay."""

    optimizer: Callable[..., torch.optim.Optimizer]
    options: dict[str, float]
    epochs: int
    cosine: bool  # whether the rate falls to 0 by half a cosine


PROTOCOLS = {  # Zhou et al. (2021), Appendix B
    "cifar10": Protocol(torch.optim.Adam, {"lr": 0.01}, 200, cosine=False),
    "imagenet": Protocol(torch.optim.SGD, {"lr": 10.0, "momentum": 0.9}, 100, cosine=True),
}
CONVEX = "convex"


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

    Differs from the SANE paper: it trains step by step and stops where it is, `linear_by_steps`.

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
    features, queries = _both(features, queries)
    mean, std = features.mean(dim=0), features.std(dim=0, correction=0).clamp_min(1e-6)
    x = (features - mean) / std  # (n, F)
    weight, bias = x.new_zeros(classes, x.shape[1], requires_grad=True), x.new_zeros(classes, requires_grad=True)
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


def _both(features: Tensor, queries: Tensor) -> tuple[Tensor, Tensor]:
    """Features of one width, checked, in one precision, single at least: a classifier is not trained in half."""
    check_widths(queries, features)
    kind = torch.promote_types(torch.promote_types(features.dtype, queries.dtype), torch.float32)
    return features.to(kind), queries.to(kind)


def linear_by_steps(
    features: Tensor,
    labels: Tensor,
    queries: Tensor,
    *,
    protocol: str = "imagenet",
    num_classes: int | None = None,
    seed: int = 0,
) -> Tensor:
    """Class probabilities (m, K) of queries by a linear classifier trained as a paper does: `PROTOCOLS`.

    Differs from the papers: the features are computed once, of images as they are; theirs are of a fresh random crop in
    each epoch.

    Args:
        features: (n, F).
        labels: (n,) int64.
        queries: (m, F).
        protocol: "cifar10" or "imagenet".
        num_classes: K; by default what the labels hold.
        seed: of the first weights and of the order of the examples.

    Raises:
        InputError: an argument outside its range, or shapes that do not fit.
    """
    checks.choice("protocol", protocol, PROTOCOLS)
    checks.integer("seed", seed, 0)
    classes = count_classes(features, labels, num_classes)
    features, queries = _both(features, queries)
    one, generator = PROTOCOLS[protocol], torch.Generator().manual_seed(seed)
    weight = (0.01 * torch.randn(classes, features.shape[1], generator=generator)).to(features).requires_grad_()
    bias = features.new_zeros(classes, requires_grad=True)
    solver = one.optimizer([weight, bias], **one.options)
    batches = math.ceil(len(features) / 256)
    with torch.enable_grad():
        for step in range(one.epochs * batches):
            if step % batches == 0:
                order = torch.randperm(len(features), generator=generator).to(features.device).split(256)
            if one.cosine:
                share = step / (one.epochs * batches)
                solver.param_groups[0]["lr"] = one.options["lr"] * (1 + math.cos(math.pi * share)) / 2
            rows = order[step % batches]
            solver.zero_grad()
            F.cross_entropy(F.linear(features[rows], weight, bias), labels[rows]).backward()
            solver.step()
    with torch.no_grad():
        return F.linear(queries, weight, bias).softmax(dim=1)


def accuracy(probability: Tensor, label: Tensor) -> float:
    """The share of rows (m, K) whose largest entry is at the label (m,)."""
    return (probability.argmax(dim=1) == label).float().mean().item()


def probe(
    features: Features, train: LabeledData, test: LabeledData, *, k: int = 50, protocol: str = CONVEX
) -> dict[str, float]:
    """`knn` and `linear`: test accuracies of both, by the training labels, against the test set's true ones.

    `protocol` is of the linear classifier: "convex", to the optimum, or one of `PROTOCOLS`.
    """
    checks.choice("protocol", protocol, (CONVEX, *PROTOCOLS))
    bank, queries = features(train), features(test)
    label, known = test.clean().labels, {"num_classes": train.num_classes}
    voted = knn(bank, train.labels, queries, k=k, **known)
    if protocol == CONVEX:
        found = linear(bank, train.labels, queries, **known)
    else:
        found = linear_by_steps(bank, train.labels, queries, protocol=protocol, **known)
    return {"knn": accuracy(voted, label), "linear": accuracy(found, label)}

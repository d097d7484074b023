"""Corrupt labels in known ways: what one measures a method, or an audit, against.

Each function takes labels (n,) in 0..K-1, array or tensor, and returns `Noisy`: new int64 labels, the transition
matrix that came about, and the rate that came about. The labels passed in are never changed. Of the other arguments
`rate` lies in [0, 1], `num_classes` is K (default the largest label + 1), all randomness comes from `seed`, and `exact`
corrupts exactly round(rate·n_c) labels of each class c that is corrupted at all, else each with probability `rate`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from noiseproof.checks import boolean, fraction, generator, integer, number, optional, require
from noiseproof.data.input_checks import as_array, check_finite, check_numbers, items
from noiseproof.data.label_checks import MAX_UNNAMED_CLASSES, parse_labels
from noiseproof.data.labeled import LabeledData, apportion, rows_by_class
from noiseproof.data.sources import InputSource, take
from noiseproof.errors import InputError, shown, unknown

CIFAR10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
CIFAR10_PAIRS = {9: 1, 2: 0, 4: 7, 3: 5, 5: 3}
"""truck -> automobile, bird -> airplane, deer -> horse, cat <-> dog (Patrini et al. 2017; Liu et al. 2022, A.2)."""

_CIFAR100_SUPERCLASSES = """
    beaver dolphin otter seal whale, aquarium_fish flatfish ray shark trout,
    orchid poppy rose sunflower tulip, bottle bowl can cup plate,
    apple mushroom orange pear sweet_pepper, clock keyboard lamp telephone television,
    bed chair couch table wardrobe, bee beetle butterfly caterpillar cockroach,
    bear leopard lion tiger wolf, bridge castle house road skyscraper,
    cloud forest mountain plain sea, camel cattle chimpanzee elephant kangaroo,
    fox porcupine possum raccoon skunk, crab lobster snail spider worm,
    baby boy girl man woman, crocodile dinosaur lizard snake turtle,
    hamster mouse rabbit shrew squirrel, maple_tree oak_tree palm_tree pine_tree willow_tree,
    bicycle bus motorcycle pickup_truck train, lawn_mower rocket streetcar tank tractor
"""
CIFAR100_CLASSES = tuple(sorted(_CIFAR100_SUPERCLASSES.replace(",", " ").split()))

_BLOCK = 4096  # rows of inputs that instance-dependent noise looks at in one go


class Noisy(NamedTuple):
    """Corrupted labels and what became of each class."""

    labels: Tensor  # (n,) int64
    transition: Tensor  # (K, K) float64: row i, the share of class i now labelled j; 1 at i where i has no example
    rate: float  # the fraction of all labels that changed


class Spec(NamedTuple):
    """What a text like `symmetric:0.4` says."""

    kind: str
    rate: float


def symmetric(
    labels: Any,
    rate: float,
    *,
    num_classes: int | None = None,
    seed: int = 0,
    include_self: bool = False,
    exact: bool = True,
) -> Noisy:
    """Give a fraction `rate` of each class a label drawn evenly from the other classes.

    Liu et al. (2022, SOP), Appendix A.2, draw "a random one hot vector", the true class included:
    `include_self=True`, with which about rate·(1 - 1/K) of the labels end up wrong. Differs from the paper: with
    `exact` the number drawn is round(rate·n_c) in every class instead of a coin flip per example.

    Args:
        include_self: draw from all K classes instead of the K - 1 others.
    """
    old, k, rate = _checked(labels, num_classes, rate)
    rng = generator(seed)
    rows = _chosen(old, np.full(k, rate), rng, exact)
    new = old.copy()
    if boolean("include_self", include_self):
        new[rows] = rng.integers(k, size=len(rows))
    elif len(rows):
        draw = rng.integers(k - 1, size=len(rows))
        new[rows] = draw + (draw >= old[rows])  # skips the class itself
    return _noisy(old, new, k)


def asymmetric(
    labels: Any,
    rate: float,
    *,
    mapping: Mapping[int, int] | Sequence[int],
    num_classes: int | None = None,
    seed: int = 0,
    exact: bool = True,
) -> Noisy:
    """Send a fraction `rate` of each mapped class c to `mapping[c]`; classes that are not mapped stay clean.

    With `CIFAR10_PAIRS` at rate 0.4 (Liu et al. 2022, Appendix A.2) 40 % of five classes, hence 20 % of all labels,
    change.

    Args:
        mapping: {class: class}, or a sequence of K classes.
    """
    old, k, rate = _checked(labels, num_classes, rate)
    target = _target(mapping, k)
    rates = np.where(target == np.arange(k), 0.0, rate)
    rows = _chosen(old, rates, generator(seed), exact)
    new = old.copy()
    new[rows] = target[old[rows]]
    return _noisy(old, new, k)


def pair_flip(labels: Any, rate: float, *, num_classes: int | None = None, seed: int = 0, exact: bool = True) -> Noisy:
    """Send a fraction `rate` of each class i to class i + 1, the last to the first (Han et al. 2018)."""
    old, k, rate = _checked(labels, num_classes, rate)
    return asymmetric(old, rate, mapping=[*range(1, k), 0], num_classes=k, seed=seed, exact=exact)


def instance_dependent(
    labels: Any, rate: float, inputs: Any, *, num_classes: int | None = None, seed: int = 0, spread: float = 0.1
) -> Noisy:
    """Flip each label with a probability, and to a class, that depend on the input (Xia et al. 2020, Algorithm 2).

        q_i ~ N(rate, spread²) truncated to [0, 1],   W_c ~ N(0, 1)^(d×K) for each class c
        p_i = q_i · softmax(x_i W_{y_i}, the class y_i itself left out),   p_i[y_i] = 1 - q_i,   new label ~ p_i

    Truncation pulls the mean of q towards 1/2: at rate 0.1 about 13 % flip. Differs from the paper: rate 0 changes
    nothing (there the truncated normal has mean 0.08), and uint8 inputs are divided by 255. One d×K matrix and one
    block of rows are held at a time.

    Args:
        rate: the centre of the flip rates.
        inputs: (n, ...) tensor or array, or an `InputSource`.
        spread: standard deviation of the flip rates before truncation.
    """
    old, k, rate = _checked(labels, num_classes, rate)
    if not isinstance(inputs, InputSource):
        array = as_array("inputs", inputs)
        check_numbers(array.dtype)
        require(array.ndim >= 2, "inputs", inputs, "of shape (n, …)")
        inputs = inputs if isinstance(inputs, Tensor) else torch.from_numpy(np.array(array))
    count, *shape = inputs.shape
    if count != len(old):
        raise InputError(f"labels holds {len(old)} values but inputs holds {count} rows; pass one label per row")
    number("spread", spread, 0, ends="()", remedy="the paper's value is 0.1")
    if isinstance(inputs, Tensor) and inputs.is_floating_point():
        check_finite(as_array("inputs", inputs))
    new = old.copy()
    if rate == 0:
        return _noisy(old, new, k)
    rng = generator(seed)
    flip = _truncated_normal(rate, spread, rng.random(len(old)))  # (n,)
    draw = rng.random(len(old))  # (n,)
    for c, rows in enumerate(rows_by_class(old, k)):
        if not len(rows):
            continue
        projection = np.random.default_rng([seed, c]).standard_normal((math.prod(shape), k), np.float32)  # (d, K)
        for start in range(0, len(rows), _BLOCK):
            block = rows[start : start + _BLOCK]
            x = take(inputs, torch.from_numpy(block)).flatten(start_dim=1)  # (B, d)
            x = x.float() / 255 if x.dtype == torch.uint8 else x.float()
            score = (x @ torch.from_numpy(projection)).double()  # (B, K)
            score[:, c] = -torch.inf
            p = score.softmax(dim=1).numpy() * flip[block, None]
            p[:, c] = 1 - flip[block]
            below = p.cumsum(axis=1) <= draw[block, None]
            new[block] = np.minimum(below.sum(axis=1), k - 1)
    return _noisy(old, new, k)


def from_transition(labels: Any, transition: Any, *, seed: int = 0, exact: bool = True) -> Noisy:
    """Corrupt by a transition matrix: an example of class i gets label j with probability `transition[i, j]`.

    Args:
        transition: (K, K), rows sum to 1.
        exact: make the counts of each row as near n_c·transition[c] as whole numbers allow; else draw each label.
    """
    matrix, exact = _transition(transition), boolean("exact", exact)
    k = len(matrix)
    old, *_ = _checked(labels, k, 0.0)
    rng = generator(seed)
    new = old.copy()
    for c, rows in enumerate(rows_by_class(old, k)):
        if exact:
            new[rng.permutation(rows)] = np.repeat(np.arange(k), apportion(matrix[c] * len(rows)))
        elif len(rows):
            new[rows] = rng.choice(k, size=len(rows), p=matrix[c])
    return _noisy(old, new, k)


def cifar100_superclass_circular() -> dict[int, int]:
    """Each CIFAR-100 fine class to the next of its superclass, in alphabetical order, the last to the first."""
    position = {name: i for i, name in enumerate(CIFAR100_CLASSES)}
    circles = [group.split() for group in _CIFAR100_SUPERCLASSES.split(",")]
    return {position[circle[i - 1]]: position[circle[i]] for circle in circles for i in range(len(circle))}


def derangement(num_classes: int, seed: int = 0) -> tuple[int, ...]:
    """A random permutation of the classes that leaves none in its place, evenly among all of them."""
    integer("num_classes", num_classes, 2, remedy="a permutation without fixed points takes at least 2")
    rng = generator(seed)
    while True:  # about e tries
        order = rng.permutation(num_classes)
        if not (order == np.arange(num_classes)).any():
            return tuple(order.tolist())


def natural_mapping(
    names: Sequence[str], inputs: Any, num_classes: int, seed: int
) -> Mapping[int, int] | Sequence[int]:
    """The papers' mapping for CIFAR, known by its class names or by 10 or 100 unnamed classes of 3×32×32 inputs.

    Otherwise `derangement(num_classes, seed)`.
    """
    tiny_images = inputs is not None and tuple(inputs.shape[1:]) == (3, 32, 32)
    unnamed = tiny_images and tuple(names) == tuple(map(str, range(num_classes)))
    if tuple(names) == CIFAR10_CLASSES or (num_classes == 10 and unnamed):
        return CIFAR10_PAIRS
    if tuple(names) == CIFAR100_CLASSES or (num_classes == 100 and unnamed):
        return cifar100_superclass_circular()
    return derangement(num_classes, seed)


def _to_natural(labels: Any, rate: float, names: Sequence[str], inputs: Any, **rest: Any) -> Noisy:
    return asymmetric(labels, rate, mapping=natural_mapping(names, inputs, **rest), **rest)


# name: how to corrupt labels y at a rate, given names, inputs x, num_classes and seed; what of x and names it looks at
KINDS: dict[str, tuple[Callable[..., Noisy], str]] = {
    "symmetric": (lambda y, rate, names, x, **rest: symmetric(y, rate, **rest), "neither"),
    "symmetric-any": (lambda y, rate, names, x, **rest: symmetric(y, rate, include_self=True, **rest), "neither"),
    "asymmetric": (_to_natural, "shape"),
    "derangement": (lambda y, rate, names, x, **r: asymmetric(y, rate, mapping=derangement(**r), **r), "neither"),
    "pair": (lambda y, rate, names, x, **rest: pair_flip(y, rate, **rest), "neither"),
    "instance": (lambda y, rate, names, x, **rest: instance_dependent(y, rate, x, **rest), "values"),
}


def parse(spec: str) -> Spec:
    """Read `kind:rate`, e.g. `symmetric:0.4`; the kinds are those of `KINDS`."""
    require(isinstance(spec, str), "noise", spec, "text such as 'symmetric:0.4'")
    kind, colon, rate = spec.strip().partition(":")
    kind = kind.strip().lower().replace("_", "-")
    if kind not in KINDS:
        raise unknown("kind of noise", kind, KINDS)
    if not colon:
        raise InputError(f"noise {shown(spec)} lacks a rate; write e.g. {kind}:0.4")
    return Spec(kind, fraction("rate", rate))


def corrupt(
    labels: Any,
    spec: str | Spec,
    *,
    num_classes: int,
    class_names: Sequence[str] = (),
    inputs: Any = None,
    seed: int = 0,
) -> Noisy:
    """Corrupt labels as a text like `symmetric:0.4` says.

    `asymmetric` uses `natural_mapping`, `derangement` a random one; `symmetric-any` draws from all classes.
    """
    kind, rate = spec if isinstance(spec, Spec) else parse(spec)
    return KINDS[kind][0](labels, rate, class_names, inputs, num_classes=num_classes, seed=seed)


def apply(data: LabeledData, spec: str | Spec, seed: int = 0) -> LabeledData:
    """The data under labels corrupted as `spec` says (see `corrupt`), with `true_labels` set."""
    require(isinstance(data, LabeledData), "data", data, "a LabeledData")
    if not data.labeled:
        raise InputError("the data has no labels to corrupt; pass some")
    noisy = corrupt(
        data.labels, spec, num_classes=data.num_classes, class_names=data.class_names, inputs=data.inputs, seed=seed
    )
    return data.with_labels(noisy.labels, true_labels=data.labels if data.true_labels is None else None)


def _noisy(old: np.ndarray, new: np.ndarray, k: int) -> Noisy:
    counts = np.bincount(old * k + new, minlength=k * k).reshape(k, k)
    totals = counts.sum(axis=1, keepdims=True)
    transition = np.where(totals > 0, counts / np.maximum(totals, 1), np.eye(k))
    return Noisy(torch.from_numpy(new), torch.from_numpy(transition), float((old != new).mean()))


def _checked(labels: Any, num_classes: int | None, rate: Any) -> tuple[np.ndarray, int, float]:
    """Labels as int64, K and the rate."""
    rate = fraction("rate", rate)
    array = as_array("labels", labels)
    if array.dtype.kind in "US":
        raise InputError("labels must be whole numbers here, got text; pass LabeledData(...).labels")
    optional(integer, low=1, high=MAX_UNNAMED_CLASSES)("num_classes", num_classes)
    names = None if num_classes is None else tuple(map(str, range(num_classes)))
    old = parse_labels("labels", array, names)[0].numpy()
    k = int(old.max()) + 1 if num_classes is None else num_classes
    if k < 2 and rate > 0:
        raise InputError(f"num_classes must be at least 2 to have labels changed, got {k}; pass num_classes")
    return old, k, rate


def _chosen(old: np.ndarray, rates: np.ndarray, rng: np.random.Generator, exact: bool) -> np.ndarray:
    """The rows to corrupt, ascending: round(rates[c]·n_c) of each class c, or each row with probability rates[c]."""
    if not boolean("exact", exact):
        return np.flatnonzero(rng.random(len(old)) < rates[old])
    members = rows_by_class(old, len(rates))
    chosen = [rng.permutation(members[c])[: round(rates[c] * len(members[c]))] for c in np.flatnonzero(rates)]
    return np.sort(np.concatenate([np.empty(0, np.int64), *chosen]))


def _target(mapping: Mapping[int, int] | Sequence[int], k: int) -> np.ndarray:
    """A mapping as an array (K,), the identity where it says nothing."""
    target = np.arange(k)
    for here, there in mapping.items() if isinstance(mapping, Mapping) else enumerate(items("mapping", mapping)):
        if not all(isinstance(one, Integral) and 0 <= int(one) < k for one in (here, there)):
            got = f"{shown(here)} -> {shown(there)}"
            raise InputError(f"mapping must stay in 0..{k - 1} ({k} classes), got {got}; pass num_classes or fix it")
        target[int(here)] = int(there)
    return target


def _transition(transition: Any) -> np.ndarray:
    """A transition matrix (K, K) float64 whose rows sum to one exactly enough for numpy."""
    matrix = as_array("transition", transition)
    if matrix.dtype.kind not in "biuf":
        raise InputError(f"transition must hold probabilities, got dtype {matrix.dtype}; use numbers from 0 to 1")
    matrix = matrix.astype(np.float64)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise InputError(
            f"transition must be square (K, K), got shape {matrix.shape}; give one row and column per class"
        )
    for i, j in np.argwhere(~np.isfinite(matrix) | (matrix < 0)):
        raise InputError(f"transition must hold probabilities, got {matrix[i, j]} at row {i}, column {j}; use 0 to 1")
    total = matrix.sum(axis=1)
    for i in np.flatnonzero(np.abs(total - 1) > 1e-6):
        raise InputError(f"transition row {i} must sum to 1, got {total[i]:.6g}; divide the row by its sum")
    return matrix / total[:, None]


def _truncated_normal(mean: float, spread: float, u: np.ndarray) -> np.ndarray:
    """Draws of N(mean, spread²) on [0, 1] from uniform draws `u`, by the inverse distribution function."""
    ends = torch.special.ndtr(torch.tensor([-mean / spread, (1 - mean) / spread], dtype=torch.float64))
    z = torch.special.ndtri(ends[0] + torch.from_numpy(u) * (ends[1] - ends[0]))
    return (mean + spread * z).clamp(0, 1).numpy()

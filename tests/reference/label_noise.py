"""Slow, obvious twins of label-noise SGD, from Wei et al. (2023) alone: plain Python, double precision."""

from __future__ import annotations

import math
from collections.abc import Sequence


def flips(labels: Sequence[int], uniforms: Sequence[float], shifts: Sequence[int], rate: float, classes: int) -> list:
    """Each label, or the class `shift` places on where its uniform number lies below the rate."""
    out = []
    for label, uniform, shift in zip(labels, uniforms, shifts, strict=True):
        others = [(label + step) % classes for step in range(1, classes)]  # every class but its own
        out.append(others[shift - 1] if uniform < rate else label)
    return out


def logistic(z: float) -> float:
    """ℓ(z) = log(1 + e^−z)."""
    return math.log1p(math.exp(-z)) if z > 0 else -z + math.log1p(math.exp(z))


def smoothed(z: float, rate: float) -> float:
    """ℓ̄(z) = δ ℓ(−z) + (1 − δ) ℓ(z), App. D.1."""
    return rate * logistic(-z) + (1 - rate) * logistic(z)


def cross_entropy(logits: Sequence[float], label: int) -> float:
    return math.log(sum(math.exp(one - max(logits)) for one in logits)) + max(logits) - logits[label]


def expected_cross_entropy(logits: Sequence[float], label: int, rate: float) -> float:
    """The cross-entropy over all that may happen to a label, each with its probability."""
    classes = len(logits)
    total = 0.0
    for seen in range(classes):
        probability = 1 - rate if seen == label else rate / (classes - 1)
        total += probability * cross_entropy(logits, seen)
    return total

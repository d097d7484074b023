"""The audit that ends a run: what its networks said of each label on their way, and what the other examples say."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from noiseproof.auditing import judging, left_out, posterior
from noiseproof.auditing.arrays import LARGEST
from noiseproof.auditing.blocks import one_thread
from noiseproof.auditing.scales import as_unseen
from noiseproof.data import LabeledData
from noiseproof.data.labeled import is_table
from noiseproof.data.packing import Packed
from noiseproof.data.sources import InputSource
from noiseproof.errors import InputError
from noiseproof.models.embedding import imagenet_features
from noiseproof.runs.label_report import Basis, LabelReport, assemble

_ENOUGH = 50  # examples, at least, to put others on their scale, or to learn from
_ENOUGH_ALONE = 500  # where nobody else says how many of their labels are wrong: of few it is a matter of chance
_TINY_IMAGE = 16  # pixels: below, images are told by their pixels
_MOST_IMAGES = 20_000  # that are shown to a frozen network unasked: a minute
_MOST_VALUES = 2**26, 2**23  # of features: of what is in memory anyhow, and of what would be read into it

Told = tuple[np.ndarray, np.ndarray]  # positions (m,), predictions (m, K)


def audit_run(
    data: LabeledData,
    evidence: list[tuple[Tensor, Tensor]],
    split: np.ndarray | str,
    beside: Sequence[np.ndarray] = (),
) -> LabelReport:
    """Which labels are wrong by what networks said of them, in parts: (positions, predictions) of each.

    All parts are put on the scale of the first: of the examples held out, if any (`split` is "val"). `beside` are
    predictions (n, K) in which no example's own label has a share. Where too few were held out they are gone by alone:
    it is not known how far networks are to be believed about labels they were trained on.
    """
    labels = data.labels.numpy()
    parts = [(rows.numpy(), probability.numpy()) for rows, probability in evidence]
    where = np.full(len(data), split, dtype=object) if isinstance(split, str) else split
    said = [*beside]
    if not beside or (where == "val").sum() >= _ENOUGH:
        said.insert(0, _on_one_scale(labels, parts, beside))
    truth = None if data.true_labels is None else data.true_labels.numpy()
    with one_thread():
        model, rates = posterior.fit_with_range(labels, said)
        report = assemble(
            labels, data.class_names, Basis(model, said), (0.0, 1.0),
            ids=data.ids, split=where, true_labels=truth, data=data,
        )  # fmt: skip
        report.interval = rates().around(report.noise_rate)
    return report


def others_say(data: LabeledData, features: str = "auto") -> list[np.ndarray]:
    """Out-of-sample predictions (n, K) of each label by the other examples; none where there are no features to go by.

    `features`: "inputs" as they are, "imagenet", "none", or "auto": of tables, features and small images the inputs; of
    other images ImageNet's, if the frozen network is installed and they are not too many.

    Raises:
        InputError: features that were asked for are not to be had.
    """
    if features == "none" or len(data) < _ENOUGH or isinstance(data.inputs, Packed):
        return []
    width = math.prod(data.input_shape)
    streamed = isinstance(data.inputs, InputSource) and not is_table(data.inputs)
    small = width <= left_out.MOST_FEATURES and len(data) * width <= _MOST_VALUES[streamed]
    colours = data.is_image and data.input_shape[0] == 3
    large = data.is_image and min(data.input_shape[1:]) >= _TINY_IMAGE and (colours or not small)
    if features == "imagenet" or (features == "auto" and large):
        if features == "auto" and (len(data) > _MOST_IMAGES or data.input_shape[0] not in (1, 3)):
            return []
        try:
            found = imagenet_features(data)
        except InputError:
            if features == "imagenet":
                raise
            return []
    elif small:
        found = data.take(torch.arange(len(data))).flatten(1).float().numpy()
    elif features == "inputs":
        most = left_out.MOST_FEATURES
        raise InputError(f"an audit by inputs takes {most:,} values of each at most, got {width:,}; pass none")
    else:
        return []
    if not np.abs(found).max() < LARGEST:
        return []
    return left_out.evidence(found, data.labels.numpy(), data.num_classes)


def _on_one_scale(labels: np.ndarray, parts: list[Told], beside: Sequence[np.ndarray]) -> np.ndarray:
    """What networks said (n, K), of all parts on the scale of the first; of the second, if the first is too small."""
    said = np.empty((len(labels), parts[0][1].shape[1]), np.float32)
    for rows, probability in parts:
        said[rows] = probability
    if len(parts) > 1:
        parts = parts if beside or len(parts[0][0]) >= _ENOUGH_ALONE else [*parts[1:], parts[0]]
        first, unseen = parts[0]
        weights = _as_noisy(labels, parts, beside)
        for rows, probability in parts[1:]:
            said[rows] = as_unseen(probability, labels[rows], unseen, labels[first], weights)
    return said


def _as_noisy(labels: np.ndarray, parts: list[Told], beside: Sequence[np.ndarray]) -> np.ndarray:
    """Weights (m,) of the first part's examples under which it has as many wrong labels as the whole.

    How many the whole has, others say; or the networks, which miss some where they were trained: where they find fewer
    than in the first part by more than chance allows (two standard errors), that decides.
    """
    first = parts[0][0]
    if beside:
        doubt = judging.judge(posterior.fit(labels, beside), labels, beside).wrong
        wrong, rate = doubt[first], float(doubt.mean())
    else:
        found = [judging.judge(posterior.fit(labels[rows], [p]), labels[rows], [p]).wrong for rows, p in parts]
        wrong, own = found[0], float(found[0].mean())
        pooled = float(np.concatenate(found).mean())
        rate = own if own - pooled > 2 * math.sqrt(own * (1 - own) / len(first)) else pooled
    own = min(max(float(wrong.mean()), 1e-6), 1 - 1e-6)
    return wrong * (rate / own) + (1 - wrong) * ((1 - rate) / (1 - own))

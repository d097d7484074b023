"""`audit`: which labels are wrong, from whatever there is: predictions, features, a finished run, or the data alone."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any

import numpy as np

from noiseproof import checks
from noiseproof.auditing import arrays, posterior
from noiseproof.auditing import features as by_features
from noiseproof.auditing.blocks import one_thread
from noiseproof.auditing.features import Counted
from noiseproof.data.input_checks import as_array, check_ids, items
from noiseproof.data.label_checks import check_class_names
from noiseproof.errors import InputError, shown
from noiseproof.runs.label_report import Basis, LabelReport, assemble

if TYPE_CHECKING:
    from noiseproof.data import LabeledData

_MOST_VALUES = 2**30  # of inputs that are on disk, encoded or texts: 4 GiB
_SOME = 2_000  # examples that show whether predictions say anything


def audit(
    what: Any,
    pred_probs: Any = None,
    *,
    features: Any = None,
    model: Any = None,
    method: Any = "elr",
    class_names: Sequence[str] | None = None,
    known: Any = None,
    true_labels: Any = None,
    ids: Sequence[Any] | None = None,
    precision: float | None = None,
    recall: float | None = None,
    top: int | None = None,
    threshold: float | None = None,
    seed: int = 0,
    progress: Counted | None = None,
    **training: Any,
) -> LabelReport:
    """Say which labels are wrong, what they should be, and how many are.

        nf.audit(labels, pred_probs)                 # out-of-sample predictions, e.g. of cross-validation
        nf.audit(labels, features=features)          # embeddings: a linear model, cross-fitted, and the neighbours
        nf.audit(result)                             # a finished `fit`
        nf.audit(data)                               # features of the data itself; of colour images, ImageNet's
        nf.audit(data, model="resnet8", epochs=20)   # networks, trained on four fifths, asked of the fifth

    Args:
        what: labels (n,), numbers from 0 or names; a `LabeledData`; or a `FitResult`.
        pred_probs: (n, K) out-of-sample class probabilities, an array or a table with a column for each class; a list
            of several is combined.
        features: (n, F); of a `LabeledData` also "imagenet". May stand beside pred_probs.
        model, method, **training: networks to cross-fit, as of `fit`; the data must be a `LabeledData`.
        class_names: K names, in the order of the columns; by default those of the data, the table or the labels.
        known: (n,) right labels where somebody has looked, in the same terms; None or −1 elsewhere.
        true_labels: (n,) to measure by; they decide nothing.
        ids: n names of the examples.
        precision, recall, top, threshold: at most one: call as many labels wrong as this expected precision allows, or
            this expected recall needs; so many; or those with a score above it. By default, the best expected F1.
        seed: of folds and samples.
        progress: called with (done, total).

    Raises:
        InputError: a mistake in the arguments, in one sentence.
    """
    how = {"precision": precision, "recall": recall, "top": top, "threshold": threshold}
    checks.integer("seed", seed, 0)
    checks.require(progress is None or callable(progress), "progress", progress, "a function of (done, total), or None")
    if isinstance(getattr(what, "report", None), LabelReport):  # of a finished run
        if pred_probs is not None or features is not None or model is not None:
            raise InputError("a finished run is audited by itself; pass its data to audit it by something else")
        return what.report.decide(**how)
    data = what if hasattr(what, "class_names") and hasattr(what, "take") else None
    several = isinstance(pred_probs, list | tuple) and len(pred_probs) > 0 and np.ndim(pred_probs[0]) == 2
    tables = list(pred_probs) if several else [] if pred_probs is None else [pred_probs]
    if data is not None:
        if not data.labeled:
            raise InputError("the data has no labels to audit; pass some")
        labels, names = data.labels.numpy(), tuple(data.class_names)
        ids = data.ids if ids is None else ids
        truth = None if data.true_labels is None else data.true_labels.numpy()
    else:
        named = check_class_names(class_names)
        columns = next((own for one in tables if (own := arrays.names_of_columns(one))), None)
        if named is None and columns is not None:  # whole numbers may be names of columns
            named, what = tuple(columns), as_array("labels", what).astype(str)
        labels, found = arrays.parse_labels(what, named)
        names, truth = found or (), None
    if true_labels is not None:
        truth, _ = arrays.parse_labels(true_labels, names or None, "true_labels")
        if len(truth) != len(labels):
            raise InputError(f"true_labels has {len(truth):,} entries for {len(labels):,} labels; give one for each")
    if ids is not None:
        ids = check_ids(ids, len(labels), "labels")
    about: dict[str, Any] = {"ids": ids, "true_labels": truth, "data": data}
    tables = [arrays.in_order(one, names) for one in tables] if names else tables
    evidence = list(map(arrays.parse_predictions, tables, repeat(labels)))  # no frame of its own: a warning counts them
    if model is not None:
        if data is None:
            raise InputError(
                "a model is trained on data; pass a LabeledData, or pred_probs or features with the labels"
            )
        evidence.append(cross_fitted(data, model, method, seed=seed, progress=progress, **training))
    elif training:
        raise InputError(f"{next(iter(training))} is a setting of training; pass a model too, or leave it out")
    K = evidence[0].shape[1] if evidence else len(names) or int(labels.max()) + 1
    if K < 2 or labels.min() == labels.max():
        raise InputError("all labels are of one class, so there is nothing to compare; pass labels of two or more")
    if names and len(names) != K:
        raise InputError(f"there are {len(names)} class names for {K} classes; give one for each column")
    if truth is not None and truth.max() >= K:
        raise InputError(f"true_labels must be classes 0..{K - 1}, got {truth.max()}")
    if features is not None or not evidence:
        found_features = _features(data, features, len(labels), progress)
        table = data is not None and features in (None, "inputs") and not data.is_image
        near = by_features.neighbours_in_table if table else by_features.neighbours_of
        evidence += by_those(found_features, labels, K, near, about, seed=seed, progress=progress)
        if table:
            trees = by_features.boosted(found_features, labels, seed)
            evidence.append(by_features.cross_fitted(trees, labels, K, seed=seed, progress=progress))
    widths = {one.shape[1] for one in evidence}
    if len(widths) > 1:
        raise InputError(f"predictions of {' and '.join(map(str, sorted(widths)))} classes cannot be combined")
    names = names or tuple(str(k) for k in range(K))
    seen = None if known is None else _known(known, names, len(labels))
    return from_predictions(labels, names, evidence, known=seen, how=how, seed=seed, **about)


def from_predictions(
    labels: np.ndarray,
    class_names: Sequence[str],
    evidence: Sequence[np.ndarray],
    *,
    known: np.ndarray | None = None,
    how: dict[str, Any] | None = None,
    seed: int = 0,
    **about: Any,
) -> LabelReport:
    """The report by out-of-sample predictions (n, K), one array or several, checked before."""
    with one_thread():
        model, rates = posterior.fit_with_range(labels, evidence, known=known, seed=seed)
        report = assemble(labels, class_names, Basis(model, evidence), (0.0, 1.0), known=known, how=how, **about)
        report.interval = rates().around(report.noise_rate)
        some = np.linspace(0, len(labels) - 1, min(_SOME, len(labels))).astype(np.int64)
        sure = model.is_sure([np.asarray(part[some], np.float32) for part in evidence])
    if not sure:
        warnings.warn(
            "what is given tells next to nothing of the labels, and so no label is doubted; pass predictions or "
            "features that do better than chance",
            stacklevel=3,
        )
    return report


def by_those(
    features: np.ndarray,
    labels: np.ndarray,
    num_classes: int,
    near: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]],
    about: dict[str, Any],
    *,
    seed: int = 0,
    progress: Counted | None = None,
) -> list[np.ndarray]:
    """Evidence from features (n, F); what else they tell, duplicates and outliers, is added to `about`.

    `near` finds the neighbours of each row.
    """
    model = by_features.linear(features, labels, seed)
    linear = by_features.cross_fitted(model, labels, num_classes, seed=seed, progress=progress)
    distance, at = near(features)
    about["group"] = by_features.near_duplicates(distance, at, labels)
    about["off_topic"] = by_features.off_topic(distance)
    return [linear, by_features.votes(at, labels, num_classes)]


def cross_fitted(
    data: LabeledData, model: Any, method: Any, *, seed: int = 0, progress: Counted | None = None, **training: Any
) -> np.ndarray:
    """Out-of-sample predictions (n, K) of networks trained by `fit`, each on four fifths of the data."""
    from noiseproof.training.fit import fit

    settings: dict[str, Any] = {"eval_examples": 0, "audit_features": "none", "seed": seed} | training

    def predict(rest: np.ndarray, part: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        result = fit(model, data.subset(rest), method, **settings)
        return np.arange(data.num_classes), result.predict_proba(data.subset(part))

    labels = data.labels.numpy()
    return by_features.cross_fitted(predict, labels, data.num_classes, seed=seed, progress=progress)


def _features(data: LabeledData | None, features: Any, n: int, progress: Counted | None) -> np.ndarray:
    """The features to go by: as given, of a network that knows ImageNet, or the inputs themselves."""
    if data is None or not (features is None or isinstance(features, str)):
        if features is None:
            raise InputError("labels alone say nothing of each other; pass pred_probs or features, or a LabeledData")
        return arrays.parse_features(features, n)
    if features not in (None, "imagenet", "inputs"):
        raise InputError(f"features must be an array (n, F), 'imagenet' or 'inputs', got {shown(features)}")
    colours = data.is_image and data.input_shape[0] == 3
    if features == "imagenet" or (features is None and colours):
        from noiseproof.models.embedding import imagenet_features

        return imagenet_features(data, progress=progress)
    import torch

    values = len(data) * math.prod(data.input_shape)
    if not isinstance(data.inputs, torch.Tensor) and values > _MOST_VALUES:
        raise InputError(
            f"an audit by inputs holds all of them in memory, {_MOST_VALUES:,} values at most, got {values:,}; pass "
            "features or pred_probs, a model, or a part of the data"
        )
    flat = data.take(torch.arange(len(data))).flatten(1).float().numpy()
    return arrays.parse_features(flat, n, "inputs")


def _known(known: Any, names: Sequence[str], n: int) -> np.ndarray:
    """What was looked at as positions (n,), −1 elsewhere."""
    given = items("known", known)
    if len(given) != n:
        raise InputError(f"known has {len(given):,} entries for {n:,} labels; give one for each, None where unknown")
    missing = [one is None or (isinstance(one, int | np.integer) and one < 0) or one != one for one in given]
    codes = np.full(n, -1)
    seen = np.flatnonzero(~np.array(missing))
    if len(seen):
        codes[seen], _ = arrays.parse_labels([given[i] for i in seen], tuple(names), "known")
    return codes

"""LabeledData: inputs, the labels one has, and (where known) the labels that are right."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np
import torch
from torch import Tensor

from noiseproof import checks
from noiseproof.data.input_checks import (
    TEXT,
    are_stacked,
    check_feature_names,
    check_ids,
    check_rows,
    check_shape,
    check_unicode,
    check_weights,
    columns_of,
    parse_inputs,
    texts,
    texts_in,
    whole_columns,
)
from noiseproof.data.label_checks import check_class_names, check_classes, parse_labels, parse_pair
from noiseproof.data.sources import Inputs, InputSource, select, take
from noiseproof.errors import InputError

if TYPE_CHECKING:
    from noiseproof.data.table import Table, TableEncoder

UNLABELED = ("unlabelled",)  # the class names of data without labels


class LabeledData:
    """A labelled data set, checked once here and trusted everywhere else.

    Args:
        inputs: images (n, C, H, W), uint8 or float, or features (n, d); a tensor, an array, a table (a DataFrame, a
            dict of columns: their names become `feature_names`), or an `InputSource` (lazily decoded images, a memory
            map). uint8 images are kept as they are, without a copy (so do not write into the array afterwards);
            numbers become float32. A table with categories, gaps, dates or texts becomes a `Table`, which encodes
            them by the rows it is trained on, and so do texts (n,). A dict of tensors (n, …), or of sequences, is what
            a model takes by name; tokens alone are `noiseproof.data.Tokens`. Data lives on the CPU.
        labels: (n,) whole numbers 0..K-1, or texts, which become the class names in sorted order. None: there are
            none (`labeled` is False), which is enough to pre-train on.
        true_labels: (n,) the right labels where they are known, in the same terms; used to measure, never to train.
        class_names: K names; default the texts, else "0".."K-1".
        ids: n distinct names of the examples, e.g. file names.
        weights: (n,) how much each example counts in training, 0 or more; 2 is as if it were there twice.
        feature_names: d distinct names of the features; another set's are then matched by name, not by position. Of
            a table, the columns to use.
        kinds: what some columns of a table are, where that is not what they look like: "number", "category", "date"
            or "text", e.g. {"zip": "category"}.
        allow_empty: accept classes that have no example, as a test set or a rare class may.

    Attributes:
        inputs, labels (n,) int64 (all 0 where there are none), true_labels (n,) int64 or None, class_names, ids,
        weights (n,) float32 or None, feature_names.

    Raises:
        InputError: on anything that does not fit, naming the argument, the position and the remedy.
    """

    def __init__(
        self,
        inputs: Any,
        labels: Any,
        *,
        true_labels: Any = None,
        class_names: Sequence[str] | None = None,
        ids: Sequence[Any] | None = None,
        weights: Any = None,
        feature_names: Sequence[str] | None = None,
        kinds: Mapping[str, str] | None = None,
        allow_empty: bool = False,
    ) -> None:
        checks.boolean("allow_empty", allow_empty)
        self.inputs, self.feature_names = _read_inputs(inputs, feature_names, kinds)
        n = len(self.inputs)
        self.ids: list[Any] | None = None if ids is None else check_ids(ids, n)
        self.weights: Tensor | None = None if weights is None else check_weights(weights, n)
        self.true_labels: Tensor | None = None
        self.class_names: tuple[str, ...] = UNLABELED
        if labels is None:
            if true_labels is not None or class_names is not None:
                raise InputError("true_labels and class_names are of no use without labels; pass labels, or neither")
            self.labels = torch.zeros(n, dtype=torch.int64)
            return
        self.labels, self.true_labels, names = parse_pair(labels, true_labels, check_class_names(class_names), n)
        present = self.labels if self.true_labels is None else torch.cat([self.labels, self.true_labels])
        present = present.unique()
        if names is None:
            names = tuple(str(k) for k in range(int(present[-1]) + 1))
        check_classes(present, names, allow_empty)
        check_unicode("class_names", names)
        self.class_names = names

    def _with(self, **parts: Any) -> LabeledData:
        """The same data with some attributes replaced by what needs no check."""
        data = copy.copy(self)
        vars(data).update(parts)
        return data

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        kind = "images" if self.is_image else "features"
        shape = "×".join(str(s) for s in self.input_shape)
        noise = "" if self.noise_rate is None else f", {100 * self.noise_rate:.1f} % of the labels wrong"
        where = "" if isinstance(self.inputs, Tensor) else f", {type(self.inputs).__name__}"
        dtype = str(self.inputs.dtype).removeprefix("torch.")
        classes = f"{self.num_classes} classes" if self.labeled else "no labels"
        return f"LabeledData({len(self):,} {kind} {shape} {dtype}{where}, {classes}{noise})"

    @property
    def num_classes(self) -> int:
        return len(self.class_names)

    @property
    def labeled(self) -> bool:
        """Whether there are labels; with one class there would be nothing to tell."""
        return len(self.class_names) > 1

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one example: (C, H, W) or (d,)."""
        return tuple(self.inputs.shape[1:])

    @property
    def is_image(self) -> bool:
        return len(self.inputs.shape) == 4

    @property
    def wrong(self) -> Tensor | None:
        """(n,) bool: where the label differs from the true one; None where the true labels are unknown."""
        return None if self.true_labels is None else self.labels != self.true_labels

    @property
    def noise_rate(self) -> float | None:
        """The fraction of wrong labels; None where the true labels are unknown."""
        wrong = self.wrong
        return None if wrong is None else wrong.double().mean().item()

    def take(self, index: Tensor) -> Tensor:
        """Raw rows (B, C, H, W) uint8 (or float32), or (B, d) float32, at the positions `index` (B,) int64."""
        return take(self.inputs, index)

    def subset(self, index: Any) -> LabeledData:
        """The examples at the positions `index` (m,), or where a mask (n,) is true; keeps every class name.

        Large or lazy inputs are shared, not copied.
        """
        rows = torch.from_numpy(check_rows("index", index, len(self)))
        return self._with(
            inputs=select(self.inputs, rows),
            labels=self.labels.index_select(0, rows),
            true_labels=None if self.true_labels is None else self.true_labels.index_select(0, rows),
            ids=None if self.ids is None else [self.ids[i] for i in rows.tolist()],
            weights=None if self.weights is None else self.weights.index_select(0, rows),
        )

    def split(self, fraction: float, seed: int = 0) -> tuple[LabeledData, LabeledData]:
        """(rest, part): a random part of about `fraction` of the examples, stratified by label.

        A class of two examples or more has at least one on either side; a single example stays in the rest. Both
        sides keep the order of the data.
        """
        rest, part = self.split_rows(fraction, seed)
        return self.subset(rest), self.subset(part)

    def split_rows(self, fraction: float, seed: int = 0) -> tuple[Tensor, Tensor]:
        """The positions of the two sides of `split`."""
        fraction = checks.fraction("fraction", fraction, ends="()")
        counts = self.labels.bincount(minlength=self.num_classes).numpy()
        quotas = np.clip(apportion(counts * fraction), np.minimum(counts // 2, 1), np.maximum(counts - 1, 0))
        mask = self._draw(quotas, seed)
        if not mask.any():
            raise InputError(f"split({fraction}) of {len(self)} examples leaves nothing on one side; add examples")
        return (~mask).nonzero()[:, 0], mask.nonzero()[:, 0]

    def _draw(self, quotas: np.ndarray, seed: int) -> Tensor:
        """A mask (n,) of random examples, so many of each class as `quotas` (K,) says."""
        rng = checks.generator(seed)
        drawn = torch.zeros(len(self), dtype=torch.bool)
        for rows, quota in zip(rows_by_class(self.labels.numpy(), self.num_classes), quotas, strict=True):
            drawn[rng.permutation(rows)[:quota]] = True
        return drawn

    def limit(self, count: int, seed: int = 0) -> LabeledData:
        """At most `count` random examples, stratified by label, with one of each class at least if they suffice."""
        checks.integer("limit", count, 1)
        if count >= len(self):
            return self
        counts = self.labels.bincount(minlength=self.num_classes).numpy()
        quotas = apportion(counts * (count / len(self)))
        lost = (counts > 0) & (quotas == 0)
        if count >= (counts > 0).sum():
            quotas[lost] = 1
            for _ in range(lost.sum()):
                quotas[quotas.argmax()] -= 1
        return self.subset(self._draw(quotas, seed))

    def with_labels(self, labels: Any, *, true_labels: Any = None) -> LabeledData:
        """The same examples under other labels, and with other true ones, if given: `data.labels`, for made noise."""
        new, _ = parse_labels("labels", labels, self.class_names, len(self))
        if true_labels is None:
            return self._with(labels=new)
        return self._with(
            labels=new, true_labels=parse_labels("true_labels", true_labels, self.class_names, len(self))[0]
        )

    def clean(self) -> LabeledData:
        """The same examples under their true labels, where they are known."""
        if self.true_labels is None:
            return self
        return self._with(labels=self.true_labels)

    def recast(self, class_names: tuple[str, ...]) -> LabeledData:
        """The same examples with their classes among `class_names`, which must hold them all."""
        extra = [name for name in self.class_names if name not in class_names]
        if extra:
            raise InputError(f"class {extra[0]!r} is not among {', '.join(class_names[:20])}; relabel or remove it")
        position = torch.tensor([class_names.index(name) for name in self.class_names])
        true_labels = None if self.true_labels is None else position[self.true_labels]
        return self._with(labels=position[self.labels], true_labels=true_labels, class_names=class_names)

    def with_features(self, feature_names: tuple[str, ...]) -> LabeledData:
        """The same examples with the features of these names, in this order; data without names as it is.

        Raises:
            InputError: one of them is missing.
        """
        own = self.feature_names
        if own is None or (own == feature_names and isinstance(self.inputs, Tensor)):
            return self
        missing = [name for name in feature_names if name not in own]
        if missing:
            raise InputError(f"the feature {missing[0]!r} is missing; its features are {', '.join(own[:20])}")
        columns = torch.tensor([own.index(name) for name in feature_names])
        inputs = self.inputs
        if isinstance(inputs, InputSource):
            inputs = inputs.numbers() if is_table(inputs) else inputs.take(torch.arange(len(self)))
        return self._with(inputs=inputs.index_select(1, columns), feature_names=feature_names)

    def with_inputs(self, inputs: Inputs) -> LabeledData:
        """The same examples with the same inputs, laid out in another way."""
        return self._with(inputs=inputs)

    def encoded_by(self, encoder: TableEncoder) -> LabeledData:
        """The same examples with the features that an encoder fitted on other rows of such a table gives them.

        Raises:
            InputError: a column is missing, or of another kind.
        """
        inputs = self.inputs
        if not is_table(inputs):
            if self.feature_names is None:
                raise InputError(
                    f"it has no names of columns, the training set had {', '.join(encoder.kinds)}; add them"
                )
            from noiseproof.data.table import Table

            rows = take(inputs, torch.arange(len(self))).numpy()
            inputs = Table.read(dict(zip(self.feature_names, rows.T, strict=True)))
        return self._with(inputs=inputs.bound(encoder), feature_names=tuple(encoder.kinds))

    def with_class_names(self, class_names: Sequence[str]) -> LabeledData:
        """The same data with its classes, in their order, called otherwise."""
        names = texts("class_names", class_names)
        if len(set(names)) != self.num_classes or len(names) != self.num_classes:
            raise InputError(f"class_names must be {self.num_classes} different names, got {list(names[:20])}")
        return self._with(class_names=names)

    def numbered(self) -> LabeledData:
        """The same data with its positions as ids, where it has none: they survive splits."""
        ids = list(range(len(self))) if self.ids is None else self.ids
        return self._with(ids=ids)


def is_table(inputs: Any) -> TypeGuard[Table]:
    """Whether inputs are raw columns; asked without importing what reads them."""
    return getattr(inputs, "columns", None) is not None and isinstance(inputs, InputSource)


def _read_inputs(
    inputs: Any, names: Sequence[str] | None, kinds: Mapping[str, str] | None
) -> tuple[Inputs, tuple[str, ...] | None]:
    """Inputs of any make, as they are kept, and the names of their features or columns."""
    if (sentences := texts_in(inputs)) is not None:
        inputs, kinds = {TEXT: sentences}, {TEXT: "text"}
    elif are_stacked(inputs):
        from noiseproof.data.packing import Packed

        inputs = Packed.of(inputs)
    columns = None if isinstance(inputs, InputSource) else columns_of(inputs)
    if columns is not None:
        names = tuple(columns) if names is None else texts("feature_names", names)
        whole = whole_columns(columns, names) if kinds is None else None
        if whole is None:
            from noiseproof.data.table import Table

            inputs = Table.read(columns, names, kinds)
        else:
            inputs = whole
    elif kinds is not None:
        raise InputError("kinds are those of a table's columns; pass a DataFrame or a dict of columns")
    if is_table(inputs):
        return inputs, tuple(inputs.columns)
    kept = inputs if isinstance(inputs, InputSource) else parse_inputs(inputs, quantities=names is not None)
    check_shape(kept.shape)
    return kept, check_feature_names(names, tuple(kept.shape[1:]))


def rows_by_class(labels: np.ndarray, num_classes: int) -> list[np.ndarray]:
    """For each class the positions of its examples, ascending."""
    ends = np.bincount(labels, minlength=num_classes).cumsum()[:-1]
    return np.split(np.argsort(labels, kind="stable"), ends)


def apportion(shares: np.ndarray) -> np.ndarray:
    """Whole numbers nearest to shares (K,) with the same total, by largest remainders."""
    counts = np.floor(shares + 1e-9).astype(np.int64)
    missing = round(float(shares.sum())) - int(counts.sum())
    counts[np.argsort(-(shares - counts), kind="stable")[:missing]] += 1
    return counts

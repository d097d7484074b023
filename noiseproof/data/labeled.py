"""LabeledData: inputs, the labels one has, and (where known) the labels that are right."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from noiseproof.data.checks import (
    as_array,
    check_class_names,
    check_classes,
    check_fraction,
    check_shape,
    generator,
    parse_inputs,
    parse_labels,
)
from noiseproof.data.sources import Inputs, InputSource, select, take
from noiseproof.errors import InputError

UNLABELED = ("unlabelled",)  # the class names of data without labels


class LabeledData:
    """A labelled data set, checked once here and trusted everywhere else.

    Args:
        inputs: images (n, C, H, W), uint8 or float, or features (n, d); a tensor, an array, or an `InputSource`
            (lazily decoded images, a memory map). uint8 images are kept as they are, without a copy
            (so do not write into the array afterwards); everything else becomes float32. Data lives on the CPU.
        labels: (n,) whole numbers 0..K-1, or texts, which become the class names in sorted order. None: there are
            none (`labeled` is False), which is enough to pre-train on.
        true_labels: (n,) the right labels where they are known, in the same terms; used to measure, never to train.
        class_names: K names; default the texts, else "0".."K-1".
        ids: n distinct names of the examples, e.g. file names.
        allow_empty: accept classes that have no example, as a test set or a rare class may.

    Attributes:
        inputs, labels (n,) int64 (all 0 where there are none), true_labels (n,) int64 or None, class_names, ids.

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
        allow_empty: bool = False,
    ) -> None:
        if isinstance(inputs, InputSource):
            check_shape(inputs.shape)
        self.inputs: Inputs = inputs if isinstance(inputs, InputSource) else parse_inputs(inputs)
        n = self.inputs.shape[0]
        self.ids: list[Any] | None = None if ids is None else _check_ids(ids, n)
        self.true_labels: Tensor | None = None
        self.class_names: tuple[str, ...] = UNLABELED
        if labels is None:
            if true_labels is not None or class_names is not None:
                raise InputError("true_labels and class_names are of no use without labels; pass labels, or neither")
            self.labels = torch.zeros(n, dtype=torch.int64)
            return
        names = check_class_names(class_names)
        self.labels, names = parse_labels("labels", labels, names, n)
        if true_labels is not None:
            if names is not None and class_names is None:
                names = _joint_names(names, true_labels)
                self.labels, _ = parse_labels("labels", labels, names, n)
            self.true_labels, true_names = parse_labels("true_labels", true_labels, names, n)
            if names is None and true_names is not None:
                raise InputError("true_labels are text but labels are numbers; pass class_names, or text for both")
        present = self.labels.unique()
        if self.true_labels is not None:
            present = torch.cat([present, self.true_labels.unique()]).unique()
        if names is None:
            names = tuple(str(k) for k in range(int(present[-1]) + 1))
        check_classes(present, names, allow_empty)
        self.class_names = names

    @classmethod
    def _trusted(
        cls,
        inputs: Inputs,
        labels: Tensor,
        true_labels: Tensor | None,
        class_names: tuple[str, ...],
        ids: list[Any] | None,
    ) -> LabeledData:
        """Build from parts of data that has passed the door already."""
        data = cls.__new__(cls)
        data.inputs, data.labels, data.true_labels = inputs, labels, true_labels
        data.class_names, data.ids = class_names, ids
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
        rows = self._positions(index)
        return LabeledData._trusted(
            select(self.inputs, rows),
            self.labels.index_select(0, rows),
            None if self.true_labels is None else self.true_labels.index_select(0, rows),
            self.class_names,
            None if self.ids is None else [self.ids[i] for i in rows.tolist()],
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
        fraction = check_fraction("fraction", fraction, open_interval=True)
        labels = self.labels.numpy()
        counts = np.bincount(labels, minlength=self.num_classes)
        quotas = _quotas(counts, fraction)
        rng = generator(seed)
        in_part = np.zeros(len(labels), dtype=bool)
        by_class = np.split(np.argsort(labels, kind="stable"), np.cumsum(counts)[:-1])
        for rows, quota in zip(by_class, quotas, strict=True):
            in_part[rng.permutation(rows)[:quota]] = True
        if not in_part.any():
            raise InputError(f"split({fraction}) of {len(self)} examples leaves nothing on one side; add examples")
        mask = torch.from_numpy(in_part)
        return (~mask).nonzero()[:, 0], mask.nonzero()[:, 0]

    def with_labels(self, labels: Any) -> LabeledData:
        """The same examples under other labels; the old ones become `true_labels` if there were none."""
        new, _ = parse_labels("labels", labels, self.class_names, len(self))
        true_labels = self.labels if self.true_labels is None else self.true_labels
        return LabeledData._trusted(self.inputs, new, true_labels, self.class_names, self.ids)

    def clean(self) -> LabeledData:
        """The same examples under their true labels, where they are known."""
        if self.true_labels is None:
            return self
        return LabeledData._trusted(self.inputs, self.true_labels, self.true_labels, self.class_names, self.ids)

    def recast(self, class_names: tuple[str, ...]) -> LabeledData:
        """The same examples with their classes among `class_names`, which must hold them all."""
        extra = [name for name in self.class_names if name not in class_names]
        if extra:
            raise InputError(f"class {extra[0]!r} is not among {', '.join(class_names[:20])}; relabel or remove it")
        position = torch.tensor([class_names.index(name) for name in self.class_names])
        true_labels = None if self.true_labels is None else position[self.true_labels]
        return LabeledData._trusted(self.inputs, position[self.labels], true_labels, class_names, self.ids)

    def with_class_names(self, class_names: Sequence[str]) -> LabeledData:
        """The same data with its classes, in their order, called otherwise."""
        names = tuple(map(str, class_names))
        if len(set(names)) != self.num_classes or len(names) != self.num_classes:
            raise InputError(f"class_names must be {self.num_classes} different names, got {list(names[:20])}")
        return LabeledData._trusted(self.inputs, self.labels, self.true_labels, names, self.ids)

    def numbered(self) -> LabeledData:
        """The same data with its positions as ids, where it has none: they survive splits."""
        ids = list(range(len(self))) if self.ids is None else self.ids
        return LabeledData._trusted(self.inputs, self.labels, self.true_labels, self.class_names, ids)

    def _positions(self, index: Any) -> Tensor:
        """An index or a mask as positions (m,) int64, checked."""
        array = as_array("index", index)
        n = len(self)
        if array.dtype.kind == "b":
            if array.shape != (n,):
                raise InputError(f"index is a mask of shape {array.shape} but the data holds {n} examples")
            array = np.flatnonzero(array)
        if array.size == 0:
            raise InputError("index is empty; a subset needs at least one example")
        if array.ndim != 1 or array.dtype.kind not in "iu":
            raise InputError(f"index must be whole numbers (m,), got {array.dtype} of shape {array.shape}")
        bad = np.flatnonzero((array < 0) | (array >= n))
        if len(bad):
            raise InputError(f"index must lie in 0..{n - 1}, got {array[bad[0]]} at position {bad[0]}")
        return torch.from_numpy(array.astype(np.int64))


def _joint_names(names: tuple[str, ...], true_labels: Any) -> tuple[str, ...]:
    """The class names of text labels and text true labels together."""
    _, true_names = parse_labels("true_labels", true_labels, None)
    if true_names is None:
        raise InputError("labels are text but true_labels are numbers; pass class_names, or text for both")
    return tuple(sorted({*names, *true_names}))


def _check_ids(ids: Sequence[Any], n: int) -> list[Any]:
    """`n` distinct ids as a list."""
    array = ids.tolist() if isinstance(ids, Tensor | np.ndarray) else list(ids)
    if len(array) != n:
        raise InputError(f"ids holds {len(array)} values but inputs holds {n} rows; pass one id per row, or none")
    seen: dict[Any, int] = {}
    for i, value in enumerate(array):
        first = seen.setdefault(value, i)
        if first != i:
            raise InputError(
                f"ids must be distinct, got {value!r} at rows {first} and {i}; make them unique or leave them out"
            )
    return array


def _quotas(counts: np.ndarray, fraction: float) -> np.ndarray:
    """How many of each class go into the part: largest remainders, so that the total is right too; (K,)."""
    exact = counts * fraction
    quotas = np.floor(exact).astype(np.int64)
    missing = round(float(exact.sum())) - int(quotas.sum())
    largest = np.argsort(-(exact - quotas), kind="stable")
    quotas[largest[:missing]] += 1
    return np.clip(quotas, np.minimum(counts // 2, 1), np.maximum(counts - 1, 0))

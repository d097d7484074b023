"""Index safety for drop-in losses that keep a row of state per training example.

In our own loop the index of a batch is right by construction, so the Methods call the pure functions underneath. In
somebody else's loop the classic mistake, the position in the batch in place of the position in the training set, trains
without complaint and silently mixes up the examples. `IndexGuard` catches it by the labels.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from noiseproof import checks
from noiseproof.errors import InputError


def check_index(index: Any, num_examples: int, *, repeats: bool = False) -> None:
    """Check that `index` holds distinct positions in a training set of `num_examples`; costs O(B log B).

    Args:
        index: (B,) int64, in 0..num_examples-1, without repeats.
        repeats: allow repeats after all.

    Raises:
        InputError: naming the offending position in the batch.
    """
    if not checks.is_dense(index) or index.dtype != torch.int64 or index.ndim != 1:
        raise InputError(
            f"index must be an int64 tensor (B,) of positions in the training set, got {checks.describe(index)}"
        )
    at = checks.first((index < 0) | (index >= num_examples))
    if at is not None:
        raise InputError(
            f"index must lie in 0..{num_examples - 1} (num_examples={num_examples}), got {int(index[at])} at position "
            f"{at} of the batch; build the loss with the size of the full training set"
        )
    if repeats:
        return
    ordered = index.sort().values
    twice = checks.first(ordered[1:] == ordered[:-1])
    if twice is not None:
        raise InputError(
            f"index must not repeat within a batch, got {int(ordered[twice])} more than once; "
            f"sample without replacement, or drop the copies"
        )


class IndexGuard(nn.Module):
    """Remembers the label first seen with each index, and refuses an index that comes with another.

    The memory is a buffer (n,), -1 where nothing was seen, so a checkpoint has it; it grows in train mode only. A call
    costs O(B log B).

    Args:
        num_examples: n, the size of the full training set.
        repeats: allow an index more than once in a batch.
        relabel: allow an index to come with another label; then only its range is checked.
    """

    label: Tensor

    def __init__(self, num_examples: int, *, repeats: bool = False, relabel: bool = False) -> None:
        super().__init__()
        self.repeats, self.relabel = repeats, relabel
        self.num_examples = checks.integer("num_examples", num_examples, 1)
        self.register_buffer("label", torch.full((self.num_examples,), -1, dtype=torch.int64))  # (n,)

    def forward(self, index: Tensor, label: Tensor) -> None:
        """Check a batch.

        Args:
            index: (B,) int64, positions in the full training set.
            label: (B,) int64, the labels at those positions.

        Raises:
            InputError: the index is malformed, or contradicts what was seen before, or itself.
        """
        check_index(index, self.num_examples, repeats=self.repeats)
        if index.shape != label.shape:
            raise InputError(f"index and label must have the same length, got {len(index)} and {len(label)}")
        known = self.label[index]  # (B,)
        if self.repeats and not self.relabel:
            known = torch.where(known < 0, _first_label(index, label), known)
        at = None if self.relabel else checks.first((known >= 0) & (known != label))
        if at is not None:
            raise InputError(
                f"index must be the position in the full training set, not in the batch: {int(index[at])} (position "
                f"{at} of the batch) came first with label {int(known[at])} and now with {int(label[at])}; let the "
                f"dataset return its own position, or build a new loss if the labels were changed on purpose"
            )
        if self.training:
            self.label[index] = label


def _first_label(index: Tensor, label: Tensor) -> Tensor:
    """The label (B,) that comes first with each index of a batch."""
    distinct, group = index.unique(return_inverse=True)
    position = torch.arange(len(index), device=index.device)
    first = torch.full_like(distinct, len(index)).scatter_reduce(0, group, position, "amin")
    return label[first[group]]

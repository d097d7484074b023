"""Whether what lies between two examples is of the class of one of the two, as a network sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from noiseproof import distributed
from noiseproof.data.packing import Packed
from noiseproof.data.table import TEXTS, Table
from noiseproof.method import Run
from noiseproof.models.inference import block_size, eval_mode, probabilities

if TYPE_CHECKING:
    from noiseproof.data import LabeledData

_MOST = 1000  # examples that are asked about


def can_be_mixed(run: Run) -> bool:
    """Whether there are points between two examples, not so of tokens, categories and texts; and a third class."""
    inputs = run.data.inputs
    kinds = set(inputs.encoder.kinds.values()) if isinstance(inputs, Table) else set()
    return run.num_classes > 2 and not isinstance(inputs, Packed) and kinds.isdisjoint(TEXTS)


def share_between(run: Run) -> float:
    """Of the points half-way between two examples, how many the networks give the class of one of the two.

    Of the examples held out, or of the training set where there are none. 0 where there is nothing to tell.
    """
    if not can_be_mixed(run):
        return 0.0
    data = run.data if run.val is None else run.val
    rows = torch.from_numpy(np.random.default_rng(0).permutation(len(data))[:_MOST])
    guess = run.predict(data, index=rows).argmax(dim=1)
    sizes = distributed.sizes_of(len(rows) - 1)
    own = distributed.own_part(sizes)
    same = [torch.zeros(0)]
    for at in torch.arange(len(rows) - 1)[own].split(block_size(data.input_shape)):
        if len(at):
            ends = torch.stack([at, at + 1])  # (2, l)
            same.append((_between(run, data, rows[ends]) == guess[ends]).any(dim=0).float())
    told = distributed.gather(torch.cat(same), sizes)  # (l,)
    return float(told.mean()) if len(told) else 0.0


def _between(run: Run, data: LabeledData, rows: Tensor) -> Tensor:
    """What the networks guess (l,) half-way between two examples each, rows (2, l) of a data set."""
    with eval_mode(run.models), torch.no_grad(), run.precision():
        one, other = (run.normalize(data.take(part).to(run.device)) for part in rows)
        return probabilities(run.models, (one + other) / 2).argmax(dim=1).cpu()

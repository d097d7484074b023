"""Whether what lies between two examples of a class is of this class, as a network sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from noiseproof import distributed
from noiseproof.data.packing import Packed
from noiseproof.method import Run
from noiseproof.models.inference import block_size, eval_mode, probabilities

if TYPE_CHECKING:
    from noiseproof.data import LabeledData

_MOST = 1000  # examples that are asked about


def share_between(run: Run) -> float:
    """Of the points half-way between two examples that the networks give one class, how many they give the same class.

    Of the examples held out, or of the training set where there are none. 0 of tokens, which have nothing between them,
    and where no two examples are given one class.
    """
    data = run.data if run.val is None else run.val
    if isinstance(data.inputs, Packed):
        return 0.0
    rows = torch.from_numpy(np.random.default_rng(0).permutation(len(data))[:_MOST])
    ends = torch.stack(pairs(run.predict(data, index=rows).argmax(dim=1)))  # (3, l): two examples, and their guess
    sizes = distributed.sizes_of(ends.shape[1])
    same = [torch.zeros(0)]
    for block in ends[:, distributed.own_part(sizes)].split(block_size(data.input_shape), dim=1):
        if block.shape[1]:
            same.append((_between(run, data, rows[block[:2]]) == block[2]).float())
    told = distributed.gather(torch.cat(same), sizes)  # (l,)
    return float(told.mean()) if len(told) else 0.0


def _between(run: Run, data: LabeledData, rows: Tensor) -> Tensor:
    """What the networks guess (l,) half-way between two examples each, rows (2, l) of a data set."""
    with eval_mode(run.models), torch.no_grad(), run.precision():
        one, other = (run.normalize(data.take(part).to(run.device)) for part in rows)
        return probabilities(run.models, (one + other) / 2).argmax(dim=1).cpu()


def pairs(guess: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Of guesses (m,), pairs of neighbours that have one: where the two are, and their guess, each (l,)."""
    order = guess.argsort(stable=True)
    first, second = order[:-1], order[1:]
    alike = guess[first] == guess[second]
    return first[alike], second[alike], guess[first[alike]]

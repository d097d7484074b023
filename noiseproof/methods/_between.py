"""Whether what lies between two examples of a class is of this class, as a network sees it."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from noiseproof.data.packing import Packed
from noiseproof.method import Run
from noiseproof.models.inference import block_size, eval_mode, probabilities

_MOST = 1000  # examples that are asked about


def share_between(run: Run) -> float:
    """Of the points half-way between two examples that the networks give one class, how many they give the same class.

    Of the examples held out, or of the training set where there are none. 0 of tokens, which have nothing between them,
    and where no two examples are given one class.
    """
    data = run.data if run.val is None else run.val
    rows = torch.from_numpy(np.random.default_rng(0).permutation(len(data))[:_MOST])
    first, second, guess = pairs(run.ask(rows, data).argmax(dim=1))
    if isinstance(data.inputs, Packed) or not len(guess):
        return 0.0
    same = 0
    size = block_size(data.input_shape)
    for one, other, of_both in zip(first.split(size), second.split(size), guess.split(size), strict=True):
        with eval_mode(run.models), torch.no_grad(), run.precision():
            ends = [run.normalize(data.take(rows[part]).to(run.device)) for part in (one, other)]
            same += int((probabilities(run.models, (ends[0] + ends[1]) / 2).argmax(dim=1).cpu() == of_both).sum())
    return same / len(guess)


def pairs(guess: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Of guesses (m,), pairs of neighbours that have one: where the two are, and their guess, each (l,)."""
    order = guess.argsort(stable=True)
    first, second = order[:-1], order[1:]
    alike = guess[first] == guess[second]
    return first[alike], second[alike], guess[first[alike]]

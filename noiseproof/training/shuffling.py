"""The order of an epoch: any order of the examples, or one in which files are read piece by piece.

A disk that turns, or a file system behind a network, reads a megabyte in about the time of a small image at a random
place. So whole files are dealt out to the processes; each reads short stretches of its files, in any order, and mixes
the examples of many stretches. A stretch is too short, and there are too many in a mix, for an order of the files'
makers, such as class after class, to be left in a batch.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from noiseproof import distributed

STRETCH = 64  # examples that lie side by side and are read in one go
MIXED = 64  # stretches whose examples are mixed


def step_sizes(n: int, size: int) -> list[int]:
    """How many of n examples are in each step; a last one too small to share joins its neighbour.

    For batch normalisation needs two examples in each process.
    """
    sizes = [size] * (n // size) + ([n % size] if n % size else [])
    if len(sizes) > 1 and sizes[-1] < 2 * distributed.world():
        sizes[-2:] = [sizes[-2] + sizes[-1]]
    return sizes


def by_pieces(places: np.ndarray, size: int, generator: torch.Generator) -> Tensor:
    """An order (n,) of the examples that lie at `places` (n, 2), file and position, for steps of `size` examples.

    The part of each step that a process takes lies in files that are its own in this epoch, but for two at most, which
    it shares with its neighbours.
    """
    rows = torch.from_numpy(np.lexsort((places[:, 1], places[:, 0])))  # as they lie
    files = np.unique(places[rows.numpy(), 0], return_counts=True)[1]
    rows = _reordered(rows.split(files.tolist()), generator)
    shares = np.array([distributed.sizes_of(one) for one in step_sizes(len(rows), size)])  # (steps, world)
    mixed = []
    for own in rows.split(shares.sum(axis=0).tolist()):
        ends = np.flatnonzero(np.diff(places[own.numpy(), 0])) + 1
        stretches = [one for part in own.tensor_split(ends.tolist()) for one in part.split(STRETCH)]
        pieces = _reordered(stretches, generator).split(STRETCH * MIXED)
        mixed.append(torch.cat([one[torch.randperm(len(one), generator=generator)] for one in pieces]))
    parts = [own.split(share.tolist()) for own, share in zip(mixed, shares.T, strict=True)]
    return torch.cat([part for step in zip(*parts, strict=True) for part in step])


def _reordered(parts: list[Tensor] | tuple[Tensor, ...], generator: torch.Generator) -> Tensor:
    """Parts in any order, each as it is."""
    return torch.cat([parts[i] for i in torch.randperm(len(parts), generator=generator).tolist()])

"""Groups of points dealt out to processes: each solves its own, and all know the result.

Groups are independent problems, so that this is exact: whatever the number of processes, the same points are selected.
"""

from __future__ import annotations

import torch
from torch import Tensor

from noiseproof import distributed


def of_groups(groups: Tensor) -> Tensor:
    """The process of each point (n,), by its group (n,), from 0 on: the largest group first, to whoever has least."""
    size = torch.bincount(groups)
    load, owner = [0] * distributed.world(), torch.zeros_like(size)
    for group in size.argsort(descending=True, stable=True).tolist():
        least = min(range(len(load)), key=lambda one: (load[one], one))
        owner[group] = least
        load[least] += int(size[group])
    return owner[groups]


def mine(place: Tensor) -> Tensor:
    """Which points this process has (m,), ascending."""
    return (place == distributed.rank()).nonzero().squeeze(1)


def gathered(values: Tensor, place: Tensor) -> Tensor:
    """What all processes say of their points, (m,) each, as (n,)."""
    sizes = torch.bincount(place, minlength=distributed.world()).tolist()
    order = place.argsort(stable=True)
    return torch.empty(len(place), dtype=values.dtype).scatter_(0, order, distributed.gather(values, sizes))


def total(count: Tensor) -> int:
    """The sum of a number over the processes."""
    return int(distributed.gather(count[None]).sum())

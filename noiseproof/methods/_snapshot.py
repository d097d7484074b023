"""Copies of weights, held in buffers so that a checkpoint has them."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import torch
from torch import Tensor, nn


def tensors_of(module: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers by key, detached and sharing memory with `module`."""
    return {key: value for key, value in module.state_dict().items() if isinstance(value, Tensor)}


class Snapshot(nn.Module):
    """A copy of some named tensors."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        super().__init__()
        for key, value in tensors.items():
            self.register_buffer(_buffer_name(key), value.detach().clone())

    def __getitem__(self, key: str) -> Tensor:
        return self.get_buffer(_buffer_name(key))

    def keep(self, tensors: Mapping[str, Tensor]) -> None:
        """Copy from `tensors`."""
        for key, value in tensors.items():
            self[key].copy_(value)

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Copy back into `tensors`."""
        for key, value in tensors.items():
            value.copy_(self[key])


class Snapshots(nn.Module):
    """Copies of the same tensors after a few chosen epochs."""

    epochs: Tensor

    def __init__(self, tensors: Mapping[str, Tensor], count: int) -> None:
        super().__init__()
        self.slots = nn.ModuleList(Snapshot(tensors) for _ in range(count))
        self.register_buffer("epochs", torch.zeros(count, dtype=torch.int64))  # of each slot; 0: none yet

    def keep(self, epoch: int, tensors: Mapping[str, Tensor], wanted: Collection[int]) -> None:
        """Copy `tensors` as those after `epoch`, over a copy that is not `wanted` any more."""
        free = next(i for i, held in enumerate(self.epochs.tolist()) if held not in wanted)
        self._slot(free).keep(tensors)
        self.epochs[free] = epoch

    def restore(self, epoch: int, tensors: Mapping[str, Tensor]) -> None:
        """Copy back into `tensors` what they were after `epoch`."""
        self._slot(self.epochs.tolist().index(epoch)).restore(tensors)

    def _slot(self, i: int) -> Snapshot:
        slot = self.slots[i]
        assert isinstance(slot, Snapshot)
        return slot


def _buffer_name(key: str) -> str:
    """A key as a path: a buffer's name must not have dots. Distinct keys stay distinct."""
    return "/" + key.replace("/", "//").replace(".", "/")

"""What a method remembers of each example, when several processes train: the same everywhere, or each its part.

A step changes the rows of its own examples, and no two processes have an example in common. Afterwards the rows are
exchanged, B·K numbers of a step, so that all processes hold what one would (`replicated`). Where n·K is too much to
hold in each (`sharded`), row i lies in process i % world, at i // world: rows are fetched before a step and sent back
after it. The method sees no difference, as it reads and writes at `batch.row`.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from noiseproof import distributed
from noiseproof.errors import InputError
from noiseproof.method import Batch, Method
from noiseproof.training.batches import Piece


class Rows:
    """The buffers that `Method.rows` name."""

    def __init__(self, method: Method, n: int, *, sharded: bool) -> None:
        self.method, self.n = method, n
        self.held = method.row_buffers() if distributed.world() > 1 else {}
        self.names = {name for part in method.modules() if isinstance(part, Method) for name in part.rows}
        self.sharded = sharded and bool(self.held)
        self.kept: list[Tensor] = []  # this process's part, while the rows of a step are in its place
        for key, tensor in zip(self.held, self.tensors(), strict=True):
            if len(tensor) != n:
                raise InputError(f"{key} must have a row for each of {n} examples, got {tuple(tensor.shape)}")
        if self.sharded:
            for path, module in method.named_modules():
                for name, tensor in module._buffers.items():
                    if tensor is not None and self._is_named(f"{path}.{name}") and len(tensor) == n:
                        module._buffers[name] = tensor[distributed.rank() :: distributed.world()].clone()

    def tensors(self) -> list[Tensor]:
        """The buffers as they are."""
        return [module.get_buffer(name) for module, name in self.held.values()]

    def not_shared(self) -> list[Tensor]:
        """What the main process must not give to the others: their own parts, and what they exchange themselves."""
        return [*self.tensors(), *self.split(self.method.state_dict(keep_vars=True))[1].values()]

    def _hold(self, tensors: Iterable[Tensor]) -> None:
        for (module, name), tensor in zip(self.held.values(), tensors, strict=True):
            module._buffers[name] = tensor

    def fetch(self, piece: Piece, batch: Batch) -> None:
        """Before a step: the rows of its examples, from where they lie."""
        if not self.sharded:
            return
        owner = piece.rows % distributed.world()  # (size,)
        count = torch.bincount(owner, minlength=distributed.world()).tolist()
        asked = (piece.rows[owner == distributed.rank()] // distributed.world()).to(batch.index.device)
        found = distributed.gather(self._packed(asked), count)  # by owner
        place = torch.empty_like(owner).scatter_(0, owner.argsort(stable=True), torch.arange(len(owner)))
        rows = self._unpacked(found[place[batch.own].to(found.device)])
        self.kept = self.tensors()
        self._hold(rows)
        batch.row = torch.arange(len(batch.index), device=batch.index.device)

    def exchange(self, piece: Piece, batch: Batch) -> None:
        """After a step: the rows of its examples, to all processes, or to where they lie."""
        if not self.held:
            return
        found = distributed.gather(self._packed(batch.row), piece.sizes)
        at = piece.rows
        if self.sharded:
            mine = at % distributed.world() == distributed.rank()
            found, at = found[mine.to(found.device)], at[mine] // distributed.world()
            rows = self._unpacked(found)
            self._hold(self.kept)
            self.kept = []
        else:
            rows = self._unpacked(found)
        at = at.to(found.device, non_blocking=True)
        for tensor, values in zip(self.tensors(), rows, strict=True):
            tensor.index_copy_(0, at, values)

    def _packed(self, at: Tensor) -> Tensor:
        """The rows `at` (m,) of all buffers as bytes (m, …): one message, whatever their types."""
        rows = [tensor.index_select(0, at).reshape(len(at), -1) for tensor in self.tensors()]
        return torch.cat([one.contiguous().view(torch.uint8) for one in rows], dim=1)

    def _unpacked(self, found: Tensor) -> list[Tensor]:
        like = self.tensors()
        widths = [one[:1].numel() // max(len(one[:1]), 1) * one.element_size() for one in like]
        parts = found.split(widths, dim=1)
        return [
            part.contiguous().view(one.dtype).reshape(len(found), *one.shape[1:])
            for part, one in zip(parts, like, strict=True)
        ]

    def collect(self) -> None:
        """At the end of a run: all rows, in every process."""
        if not self.sharded:
            return
        world = distributed.world()
        sizes = [len(range(one, self.n, world)) for one in range(world)]
        order = torch.cat([torch.arange(one, self.n, world) for one in range(world)])
        whole = []
        for tensor in self.tensors():
            found = distributed.gather(tensor, sizes)
            whole.append(torch.empty_like(found).index_copy_(0, order.to(found.device), found))
        self._hold(whole)
        self.held, self.sharded = {}, False

    # What a checkpoint has of them: nothing of its own where all processes hold the same

    def split(self, state: dict[str, object]) -> tuple[dict[str, object], dict[str, Tensor]]:
        """A method's state without the rows that are this process's own, and these: copies of them too."""
        part = {key: one for key, one in state.items() if isinstance(one, Tensor) and self._is_part(key, one)}
        return {key: one for key, one in state.items() if key not in part}, part

    def _is_part(self, key: str, tensor: Tensor) -> bool:
        own = len(range(distributed.rank(), self.n, distributed.world()))
        return self.sharded and self._is_named(key) and len(tensor) == own

    def _is_named(self, key: str) -> bool:
        """Whether a buffer is one of the rows, or a copy of one that goes back to it (methods/_snapshot.py)."""
        path = "." + key.replace("/", ".")
        return any(path.endswith(f".{name}") for name in self.names)

    def owned(self, state: dict[str, object], parts: list[dict[str, Tensor]]) -> dict[str, object]:
        """A saved state as this process needs it, put together from the parts of as many processes as there were."""
        rank, world = distributed.rank(), distributed.world()
        if self.sharded and len(parts) == world:
            return state | parts[rank]
        whole = dict(state)
        for key, first in (parts[0] if parts else {}).items():
            rows = torch.empty(self.n, *first.shape[1:], dtype=first.dtype)
            for one, part in enumerate(parts):
                rows[one :: len(parts)] = part[key]
            whole[key] = rows
        if self.sharded:
            for key in self.split(self.method.state_dict())[1]:
                held = whole.get(key)
                whole[key] = held[rank::world].clone() if isinstance(held, Tensor) else held
        return whole

"""What a method remembers of each example, when several processes train: the same everywhere, or each its part.

A step changes the rows of its own examples, and no two processes have an example in common. Afterwards the rows are
exchanged, B·K numbers of a step, so that all processes hold what one would (`replicated`). Where n·K is too much to
hold in each (`sharded`), row i lies in process i % world, at i // world: rows are fetched before a step and sent back
after it. The method sees no difference, as it reads and writes at `batch.row`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch
from torch import Tensor

from noiseproof import distributed
from noiseproof.errors import InputError
from noiseproof.method import Batch, Method
from noiseproof.runs.structure import Damaged
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
        return [*self.tensors(), *self.parts()]

    def parts(self) -> list[Tensor]:
        """What is this process's own, copies of it too."""
        return list(self.split(self.method.state_dict(keep_vars=True))[1].values())

    def _hold(self, tensors: Iterable[Tensor]) -> None:
        for (module, name), tensor in zip(self.held.values(), tensors, strict=True):
            module._buffers[name] = tensor

    def fetch(self, piece: Piece, batch: Batch) -> None:
        """Before a step: the rows of its examples, from where they lie."""
        if not self.sharded:
            return
        device, owner = batch.index.device, piece.rows % distributed.world()  # (size,)
        count = torch.bincount(owner, minlength=distributed.world()).tolist()
        asked = piece.rows[owner == distributed.rank()] // distributed.world()
        found = distributed.gather(self._packed(asked.to(device, non_blocking=True)), count)  # by owner
        place = torch.empty_like(owner).scatter_(0, owner.argsort(stable=True), torch.arange(len(owner)))
        rows = self._unpacked(found.index_select(0, place[batch.own].to(device, non_blocking=True)))
        self.kept = self.tensors()
        self._hold(rows)
        batch.row = torch.arange(len(batch.index), device=device)

    def exchange(self, piece: Piece, batch: Batch) -> None:
        """After a step: the rows of its examples, to all processes, or to where they lie."""
        if not self.held:
            return
        found = distributed.gather(self._packed(batch.row), piece.sizes)
        at = piece.rows
        if self.sharded:
            mine = (at % distributed.world() == distributed.rank()).nonzero().squeeze(1)  # on the CPU: no waiting
            rows = self._unpacked(found.index_select(0, mine.to(found.device, non_blocking=True)))
            at = at[mine] // distributed.world()
            self._hold(self.kept)
            self.kept = []
        else:
            rows = self._unpacked(found)
        at = at.to(found.device, non_blocking=True)
        for tensor, values in zip(self.tensors(), rows, strict=True):
            tensor.index_copy_(0, at, values)

    def _packed(self, at: Tensor) -> Tensor:
        """The rows `at` (m,) of all buffers as bytes (m, …): one message, whatever their types."""
        rows = [tensor.index_select(0, at).reshape(len(at), _width(tensor)) for tensor in self.tensors()]
        return torch.cat([one.contiguous().view(torch.uint8) for one in rows], dim=1)

    def _unpacked(self, found: Tensor) -> list[Tensor]:
        like = self.tensors()
        parts = found.split([_width(one) * one.element_size() for one in like], dim=1)
        return [
            part.clone(memory_format=torch.contiguous_format).view(one.dtype).reshape(len(found), *one.shape[1:])
            for part, one in zip(parts, like, strict=True)
        ]

    def collect(self) -> None:
        """At the end of a run: all rows, in the main process."""
        if not self.sharded:
            return
        self._hold([distributed.dealt(tensor, self.n, everywhere=False) for tensor in self.tensors()])
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

    def restored(self, path: Path, state: dict[str, object], parts: Sequence[dict[str, Tensor]]) -> dict[str, object]:
        """What `owned` makes of a checkpoint's file and its parts; damage that one process meets is damage to all.

        Raises:
            Damaged: a part is damaged or missing.
        """
        damage: InputError | None = None
        try:
            state = self.owned(state, parts)
        except InputError as error:
            damage = error
        if distributed.anyone(damage is not None)[0]:
            raise Damaged(path, damage or "another process could not read its part")
        return state

    def owned(self, state: dict[str, object], parts: Sequence[dict[str, Tensor]]) -> dict[str, object]:
        """A saved state as this process needs it, put together from the parts of as many processes as there were.

        Where there are as many now, it reads its own alone.
        """
        rank, world = distributed.rank(), distributed.world()
        if self.sharded and len(parts) == world:
            return state | parts[rank]
        whole = dict(state)
        for one, part in enumerate(parts):
            for key, rows in part.items():
                like = torch.empty(self.n, *rows.shape[1:], dtype=rows.dtype) if one == 0 else whole[key]
                assert isinstance(like, Tensor)
                like[one :: len(parts)] = rows
                whole[key] = like
        if self.sharded:
            for key in self.split(self.method.state_dict())[1]:
                held = whole.get(key)
                whole[key] = held[rank::world].clone() if isinstance(held, Tensor) else held
        return whole


def _width(tensor: Tensor) -> int:
    """Values of a row; there may be no row to count them in."""
    return math.prod(tensor.shape[1:])

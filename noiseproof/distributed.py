"""What torchrun gives us: this process's part of a batch, means and rows of all processes. Alone, all of it is a no-op.

    torchrun --nproc-per-node 4 -m noiseproof fit …

Every process makes the same call (`check_same`) and begins with the main one's weights (`share`). Gradients, the loss
and batch norm's running statistics are averaged in each step, so that all hold the same networks and decide alike: a
debug run checks it. Only the main one writes and reports.
"""

from __future__ import annotations

import atexit
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from noiseproof.errors import InputError

TIMEOUT = "NOISEPROOF_TIMEOUT"  # seconds that a process waits for another before it gives up
_PATIENCE = 900.0
_RESTARTS = "TORCHELASTIC_RESTART_COUNT"  # how often torchrun has started all processes again


def launched() -> bool:
    """Whether torchrun started this process beside others; a lone WORLD_SIZE or RANK is somebody else's."""
    return "RANK" in os.environ and int(os.environ.get("WORLD_SIZE", "1")) > 1


def restarted() -> bool:
    """Whether torchrun started this process again, after one of them had died."""
    return launched() and os.environ.get(_RESTARTS, "0") != "0"


def patience() -> float:
    """Seconds to wait for another process.

    Raises:
        InputError: the environment says something else than a number above 0.
    """
    given = os.environ.get(TIMEOUT, str(_PATIENCE))
    try:
        seconds = float(given)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise InputError(f"{TIMEOUT} must be seconds above 0, got {given!r}; unset it for {_PATIENCE:g}")
    return seconds


def join() -> None:
    """Meet the others, if torchrun started any: over NCCL with a GPU for each process, over Gloo on the CPU."""
    if not launched() or dist.is_initialized():
        return
    wait, backend = timedelta(seconds=patience()), "gloo"
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        backend = "cpu:gloo,cuda:nccl"
    store, own, size = next(dist.rendezvous("env://", timeout=wait))
    # torchrun keeps one store for all of its restarts: there the addresses of the dead still stand under the same names
    store = dist.PrefixStore(f"noiseproof-{os.environ.get(_RESTARTS, '0')}-of-{size}", store)
    dist.init_process_group(backend, store=store, rank=own, world_size=size, timeout=wait)
    atexit.register(_leave)


def _leave() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()


@contextmanager
def answering() -> Iterator[None]:
    """Say in a sentence that another process is gone or silent, wherever that is noticed.

    Raises:
        InputError: it is.
    """
    try:
        yield
    except RuntimeError as error:
        told = str(error).lower()
        if world() == 1 or isinstance(error, InputError):
            raise
        if "timed out" in told or "timeout" in told:
            raise InputError(
                f"another process has not answered process {rank()} for {patience():g} s; look into its log, and "
                f"resume the run; where a step may take longer, set {TIMEOUT}"
            ) from error
        if "connection" in told or "peer" in told or "socket" in told:
            raise InputError(f"process {rank()} lost another one: look into its log, and resume the run") from error
        raise


def world() -> int:
    """How many processes take part."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    """The number of this one, from 0."""
    return dist.get_rank() if world() > 1 else 0


def is_main() -> bool:
    """Whether this process writes and reports; also before `join`."""
    return rank() == 0 if world() > 1 else not launched() or int(os.environ["RANK"]) == 0


def wait() -> None:
    """Until every process is here."""
    if world() > 1:
        dist.all_reduce(torch.zeros(()))  # on the CPU: a barrier would wait for a GPU


def sizes_of(n: int) -> tuple[int, ...]:
    """How many of n examples each process has: parts of one order that follow each other, the first ones larger."""
    share, more = divmod(n, world())
    return tuple(share + (one < more) for one in range(world()))


def own_part(sizes: Sequence[int]) -> slice:
    """Where this process's part lies, given the size of each."""
    before = sum(sizes[: rank()])
    return slice(before, before + sizes[rank()])


def gather(rows: Tensor, sizes: Sequence[int] | None = None, *, everywhere: bool = True) -> Tensor:
    """Rows (s, …) of all processes, in their order; without gradients.

    Args:
        sizes: how many rows each process has; None: equally many.
        everywhere: False: in the main process alone, the others keep their own.
    """
    if world() == 1:
        return rows
    most = len(rows) if sizes is None else max(sizes)
    padded = _sendable(rows.detach().contiguous())
    if len(rows) < most:
        padded = torch.cat([padded, padded.new_zeros(most - len(rows), *rows.shape[1:])])
    found = [torch.empty_like(padded) for _ in range(world() if everywhere or is_main() else 0)]
    if everywhere:
        dist.all_gather(found, padded)
    else:
        dist.gather(padded, found or None, dst=0)
    if not found:
        return rows
    return torch.cat([one[:size] for one, size in zip(found, sizes or [most] * world(), strict=True)]).to(rows.dtype)


def dealt(rows: Tensor, n: int, *, everywhere: bool = True) -> Tensor:
    """All n rows (n, …), of which process i has those of i, i + world, …; as they are, if it has all.

    `everywhere`: as of `gather`.
    """
    if len(rows) == n:
        return rows
    sizes = [len(range(one, n, world())) for one in range(world())]
    order = torch.cat([torch.arange(one, n, world()) for one in range(world())])
    found = gather(rows, sizes, everywhere=everywhere)
    if len(found) < n:
        return rows
    return torch.empty_like(found).index_copy_(0, order.to(found.device), found)


def _sendable(tensor: Tensor) -> Tensor:
    """As a type that Gloo knows."""
    others = {torch.bool: torch.int32, torch.int16: torch.int32, torch.bfloat16: torch.float32}
    return tensor.to(others.get(tensor.dtype, tensor.dtype))


class _Gather(torch.autograd.Function):
    """`gather` with gradients: those of a row are the sum of what all processes make of it."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, sizes: Sequence[int]) -> Tensor:
        ctx.sizes = sizes
        return gather(rows, sizes)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        total = gradient.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total)
        return total[own_part(ctx.sizes)], None


def gather_with_gradients(rows: Tensor, sizes: Sequence[int]) -> Tensor:
    """As `gather`; every process must go backward through it, if one does."""
    if world() == 1:
        return rows
    return _Gather.apply(rows, sizes) if rows.requires_grad and torch.is_grad_enabled() else gather(rows, sizes)


def own_first(rows: Tensor) -> Tensor:
    """Gathered rows (world·s, …), those of this process first."""
    return rows.roll(-rank() * (len(rows) // world()), 0)


def anyone(*flags: bool) -> tuple[bool, ...]:
    """For each flag, whether any process raised it: all must leave a loop at the same step."""
    if world() == 1:
        return flags
    raised = torch.tensor(flags, dtype=torch.int32)
    dist.all_reduce(raised)
    return tuple(raised.bool().tolist())


class Flags:
    """`anyone` without waiting: the answer to what was asked a step ago, which has arrived in the meantime."""

    def __init__(self) -> None:
        self.asked: tuple[Tensor, Any] | None = None

    def anyone(self, *flags: bool) -> tuple[bool, ...]:
        """Ask, and give the answer of the last time; alone, of this one."""
        if world() == 1:
            return flags
        answer = self.answer(len(flags))
        raised = torch.tensor(flags, dtype=torch.int32)
        self.asked = raised, dist.all_reduce(raised, async_op=True)
        return answer

    def answer(self, count: int) -> tuple[bool, ...]:
        """What is still to be told; nothing, if nothing was asked."""
        if self.asked is None:
            return (False,) * count
        raised, work = self.asked
        work.wait()
        self.asked = None
        return tuple(raised.bool().tolist())


def from_main(make: Callable[[], Any]) -> Any:
    """What `make` gives in the main process, in all of them; only that one calls it.

    Raises:
        InputError: it does there; in all processes.
    """
    if world() == 1:
        return make()
    told: list[Any] = [None, None]
    if is_main():
        try:
            told[0] = make()
        except InputError as error:
            told[1] = str(error)
    dist.broadcast_object_list(told, src=0)
    if told[1] is not None:
        raise InputError(told[1])
    return told[0]


def average(tensors: Sequence[Tensor]) -> None:
    """Replace tensors by their means over all processes, in one message."""
    if world() == 1 or not tensors:
        return
    flat = torch.cat([one.flatten() for one in tensors])
    dist.all_reduce(flat)
    put_back(tensors, flat)


def put_back(tensors: Sequence[Tensor], flat: Tensor) -> None:
    """Give tensors the means over all processes, whose sums (m,) have come."""
    parts = flat.div_(world()).split([one.numel() for one in tensors])
    for one, part in zip(tensors, parts, strict=True):
        one.copy_(part.view(one.shape))


def running_statistics(*modules: nn.Module) -> list[Tensor]:
    """The means and variances that normalisation layers in train mode keep of what they see, here of a part of it."""
    layers = [layer for one in modules for layer in one.modules() if isinstance(layer, _NormBase) and layer.training]
    kept = [statistic for layer in layers for statistic in (layer.running_mean, layer.running_var)]
    return [statistic for statistic in kept if statistic is not None]


@torch.no_grad()
def share(module: nn.Module, besides: Iterable[Tensor] = ()) -> None:
    """Give a module the main process's weights and buffers, but for some that are the same or a process's own."""
    if world() == 1:
        return
    left = {id(one) for one in besides}
    for value in (*module.parameters(), *module.buffers()):
        if id(value) not in left:
            plain = _sendable(value.detach().contiguous())  # a channels-last tensor has no plain memory
            dist.broadcast(plain, src=0)
            value.copy_(plain)


def check_same(values: Mapping[str, Any], where: str, remedy: str) -> None:
    """Each value, a tensor or what its text tells, must be the same in all processes.

    Raises:
        InputError: one is not; in all processes.
    """
    if world() == 1:
        return
    found: list[Any] = [None] * world()
    dist.all_gather_object(found, {name: _checksum(value) for name, value in values.items()})
    for number, other in enumerate(found):
        for name in found[0] | other:
            if found[0].get(name) != other.get(name):
                raise InputError(f"{name} differs between processes 0 and {number}{where}; {remedy}")


def _checksum(value: Any) -> int:
    if isinstance(value, Tensor):
        return zlib.crc32(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return zlib.crc32(repr(value).encode())


def debugs() -> bool:
    """Whether $NOISEPROOF_DEBUG asks the main process, and so all of them, to check after each epoch."""
    return from_main(lambda: os.environ.get("NOISEPROOF_DEBUG", "0") not in ("", "0"))

"""What torchrun gives us: this process's part of a batch, means and rows of all processes. Alone, all of it is a no-op.

    torchrun --nproc-per-node 4 -m noiseproof pretrain …

Every process makes the same call (`check_same`) and begins with the main one's weights (`share`). Gradients, the loss
and batch norm's running statistics are averaged in each step, so that all hold the same networks and decide alike: a
debug run checks it. Only the main one writes and reports.
"""

from __future__ import annotations

import atexit
import os
import zlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from noiseproof.errors import InputError


def launched() -> bool:
    """Whether torchrun started this process beside others; a lone WORLD_SIZE or RANK is somebody else's."""
    return "RANK" in os.environ and int(os.environ.get("WORLD_SIZE", "1")) > 1


def join() -> None:
    """Meet the others, if torchrun started any: over NCCL with a GPU for each process, else over Gloo."""
    if not launched() or dist.is_initialized():
        return
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        dist.init_process_group("nccl")
    else:
        dist.init_process_group("gloo")
    atexit.register(dist.destroy_process_group)


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
        dist.barrier()


def gather(rows: Tensor) -> Tensor:
    """Rows (s, …) of all processes, (world·s, …) in their order; without gradients. All must give equally many."""
    if world() == 1:
        return rows
    found = [torch.empty_like(rows) for _ in range(world())]
    dist.all_gather(found, rows.contiguous())
    return torch.cat(found)


def own_first(rows: Tensor) -> Tensor:
    """Gathered rows (world·s, …), those of this process first."""
    return rows.roll(-rank() * (len(rows) // world()), 0)


def anyone(*flags: bool) -> tuple[bool, ...]:
    """For each flag, whether any process raised it: all must leave a loop at the same step."""
    if world() == 1:
        return flags
    raised = torch.tensor(flags, device="cuda" if dist.get_backend() == "nccl" else "cpu", dtype=torch.int32)
    dist.all_reduce(raised)
    return tuple(raised.bool().tolist())


def from_main(make: Callable[[], Any]) -> Any:
    """What `make` gives in the main process, in all of them; only that one calls it."""
    if world() == 1:
        return make()
    told = [make() if is_main() else None]
    dist.broadcast_object_list(told, src=0)
    return told[0]


def average_gradients(parameters: Iterable[nn.Parameter], *others: Tensor) -> None:
    """Replace the gradients, and other tensors, by their means over all processes, in one message."""
    if world() == 1:
        return
    averaged = [*(parameter.grad for parameter in parameters if parameter.grad is not None), *others]
    flat = torch.cat([one.flatten() for one in averaged]).div_(world())
    dist.all_reduce(flat)
    parts = flat.split([one.numel() for one in averaged])
    for one, part in zip(averaged, parts, strict=True):
        one.copy_(part.view(one.shape))


def running_statistics(*modules: nn.Module) -> list[Tensor]:
    """The means and variances that normalisation layers in train mode keep of what they see, here of a part of it."""
    layers = [layer for one in modules for layer in one.modules() if isinstance(layer, _NormBase) and layer.training]
    kept = [statistic for layer in layers for statistic in (layer.running_mean, layer.running_var)]
    return [statistic for statistic in kept if statistic is not None]


@torch.no_grad()
def share(module: nn.Module) -> None:
    """Give a module the main process's weights and buffers: whoever made it may have drawn others in each process."""
    if world() == 1:
        return
    for value in (*module.parameters(), *module.buffers()):
        plain = value.detach().contiguous()  # a channels-last tensor has no plain memory
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

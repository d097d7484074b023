"""What torchrun gives us: this process's part of a batch, means and rows of all processes. Alone, all of it is a no-op.

    torchrun --nproc-per-node 4 -m noiseproof pretrain …

Every process runs the same program with the same seeds: order of the examples, weights and dictionaries are the same in
all of them. Only the main one writes and reports.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn


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
    return not launched() or int(os.environ["RANK"]) == 0


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


def total(value: Tensor) -> Tensor:
    """The sum over all processes of a value ()."""
    if world() == 1:
        return value
    value = value.clone()
    dist.all_reduce(value)
    return value


def anyone(*flags: bool) -> tuple[bool, ...]:
    """For each flag, whether any process raised it: all must leave a loop at the same step."""
    if world() == 1:
        return flags
    device = torch.device("cuda") if dist.get_backend() == "nccl" else torch.device("cpu")
    return tuple(total(torch.tensor(flags, device=device, dtype=torch.int32)).bool().tolist())


def from_main(make: Callable[[], Any]) -> Any:
    """What `make` gives in the main process, in all of them; only that one calls it."""
    if world() == 1:
        return make()
    told = [make() if is_main() else None]
    dist.broadcast_object_list(told, src=0)
    return told[0]


def average_gradients(parameters: Iterable[nn.Parameter]) -> None:
    """Replace the gradients by their means over all processes, in one message."""
    if world() == 1:
        return
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    flat = torch.cat([gradient.flatten() for gradient in gradients]).div_(world())
    dist.all_reduce(flat)
    parts = flat.split([gradient.numel() for gradient in gradients])
    for gradient, part in zip(gradients, parts, strict=True):
        gradient.copy_(part.view(gradient.shape))

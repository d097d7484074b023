"""Which device to compute on, in which precision, and how much memory there is."""

from __future__ import annotations

import ctypes
import math
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import torch

from noiseproof.errors import InputError, reason, shown

_TRIM, _MMAP = -1, -3  # of mallopt: how much free memory, and from what size on a block, is handed back at once
_LARGE, _USUAL = 2**30, 2**25  # bytes: more than what a step frees; the most that glibc sets them to by itself


def pick_device(device: str | torch.device) -> torch.device:
    """`auto` is the best there is; anything else must exist."""
    if isinstance(device, str) and device == "auto":
        for kind in ("cuda", "mps"):
            if getattr(torch, kind).is_available():
                return torch.device(kind)
        return torch.device("cpu")
    try:
        chosen = torch.device(device)
        torch.empty(1, device=chosen).item()
    except (RuntimeError, AssertionError, NotImplementedError, TypeError, ValueError) as error:
        name = shown(str(device) if isinstance(device, torch.device) else device)
        raise InputError(f"device {name} cannot be used here ({reason(error)}); choose 'cpu' or 'auto'") from None
    return chosen


def check_memory(what: str, size: float, remedy: str) -> None:
    """Raise unless `size` bytes fit into the machine's memory: asked before they are, as the system may kill instead.

    Raises:
        InputError: `what` takes too much.
    """
    there = math.inf  # on a system that does not say
    with suppress(AttributeError, ValueError, OSError):
        there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if size > there:
        needed, found = (f"{number / 2**30:,.0f} GiB" for number in (size, there))
        raise InputError(f"{what} takes at least {needed}, this machine has {found}; {remedy}")


@contextmanager
def kept_memory() -> Iterator[None]:
    """Let what one step frees serve the next, and hand it back to the system at the end.

    By itself glibc returns large blocks when they are freed, and every page of the next one is new and cleared: of a
    step of resnet8 that is a fifth, of normalising 128 photos of 224 pixels a half (benchmarks/allocator.py).
    Where there is no glibc, nothing changes.
    """
    libc = ctypes.CDLL(None) if sys.platform == "linux" else None
    if not hasattr(libc, "mallopt") or not hasattr(libc, "malloc_trim"):
        yield
        return
    assert libc is not None
    for option in (_TRIM, _MMAP):
        libc.mallopt(option, _LARGE)
    try:
        yield
    finally:
        for option in (_TRIM, _MMAP):
            libc.mallopt(option, _USUAL)
        libc.malloc_trim(0)


def pick_precision(precision: str, device: torch.device) -> torch.dtype | None:
    """The type to autocast to, or None for plain float32. `auto` is bfloat16 where the device is fast at it."""
    if precision == "auto":
        precision = "bfloat16" if device.type == "cuda" and torch.cuda.is_bf16_supported() else "float32"
    return torch.bfloat16 if precision == "bfloat16" else None

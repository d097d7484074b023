"""Which device to compute on, in which precision, and how much memory there is."""

from __future__ import annotations

import math
import os
from contextlib import suppress

import torch

from noiseproof.errors import InputError, reason, shown


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


def pick_precision(precision: str, device: torch.device) -> torch.dtype | None:
    """The type to autocast to, or None for plain float32. `auto` is bfloat16 where the device is fast at it."""
    if precision == "auto":
        precision = "bfloat16" if device.type == "cuda" and torch.cuda.is_bf16_supported() else "float32"
    return torch.bfloat16 if precision == "bfloat16" else None

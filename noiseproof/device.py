"""Which device to compute on, and in which precision."""

from __future__ import annotations

import torch

from noiseproof.errors import InputError


def pick_device(device: str | torch.device) -> torch.device:
    """`auto` is the best there is; anything else must exist."""
    if device == "auto":
        for kind in ("cuda", "mps"):
            if getattr(torch, kind).is_available():
                return torch.device(kind)
        return torch.device("cpu")
    try:
        chosen = torch.device(device)
        torch.empty(1, device=chosen).item()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"device {str(device)!r} cannot be used here ({reason}); choose 'cpu' or 'auto'") from None
    return chosen


def pick_precision(precision: str, device: torch.device) -> torch.dtype | None:
    """The type to autocast to, or None for plain float32. `auto` is bfloat16 where the device is fast at it."""
    if precision == "auto":
        precision = "bfloat16" if device.type == "cuda" and torch.cuda.is_bf16_supported() else "float32"
    return torch.bfloat16 if precision == "bfloat16" else None

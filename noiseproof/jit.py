"""Loops compiled by numba. Import this where they are defined, and those modules late: numba takes half a second."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba


def compiled(*loosened: str, forceinline: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Compile at the first call for its types, and keep the result on disk, if numba finds a place that it can write.

    `loosened` are LLVM's flags for what arithmetic need not keep. Without nnan, NaN stays NaN.
    """

    def compile(function: Callable[..., Any]) -> Callable[..., Any]:
        options: dict[str, Any] = {"nogil": True, "fastmath": set(loosened), "forceinline": forceinline}
        try:
            return numba.njit(cache=True, **options)(function)
        except RuntimeError:  # nowhere to write
            return numba.njit(**options)(function)

    return compile

"""Memory that is kept from step to step, and given back."""

from __future__ import annotations

import ctypes
import resource
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
import torch

from noiseproof.device import kept_memory

PAGES = 10_000  # of 4 KiB: 40 MB, more than glibc keeps by itself
glibc = pytest.mark.skipif(
    sys.platform != "linux" or not hasattr(ctypes.CDLL(None), "mallopt"), reason="the memory of glibc"
)


def faults(steps: int) -> int:
    """New pages in so many steps that each use 40 MB and free it."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(steps):
        torch.empty(PAGES * 1024).fill_(1.0)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


@glibc
def test_a_step_uses_the_memory_of_the_one_before() -> None:
    """In a process of its own, as what other tests left of the heap decides where a block finds its place."""
    code = "import test_device; test_device.keep_and_give_back()"
    subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parent, check=True)


def keep_and_give_back() -> None:
    faults(1)  # torch loads what it needs
    before = psutil.Process().memory_info().rss
    with kept_memory():
        faults(20)  # the first few find no place of their size
        assert faults(10) < PAGES
    assert psutil.Process().memory_info().rss < before + 30e6  # and it is given back


def test_where_there_is_no_glibc_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    with kept_memory():
        assert faults(1) >= 0


@glibc
def test_an_error_inside_gives_it_back_too() -> None:
    def fail() -> None:
        with kept_memory():
            faults(1)
            raise ValueError("inside")

    with pytest.raises(ValueError, match="inside"):
        fail()
    before = psutil.Process().memory_info().rss
    faults(1)
    assert psutil.Process().memory_info().rss < before + 30e6

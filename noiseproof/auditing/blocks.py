"""Rows of large arrays, some at a time, on all cores."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from threading import local

import numpy as np
from threadpoolctl import ThreadpoolController

_BLOCK = 2**17  # numbers worked on at once by a thread: more would not stay in its cache, and be new pages each time
_here = local()  # busy: whether this is one of the threads below


def blocks(n: int, width: int) -> Iterator[slice]:
    """Rows 0..n in slices of a size that a thread works on at once."""
    height = max(1, _BLOCK // width)
    return (slice(begin, min(begin + height, n)) for begin in range(0, n, height))


def in_threads(work: Callable[[slice], None], n: int, width: int) -> None:
    """Do the work of all blocks of n rows, on all cores; of several errors the first block's is raised.

    Of work that is itself done in these threads, a block after the other: the cores are busy.
    """
    every = list(blocks(n, width))
    if len(every) == 1 or getattr(_here, "busy", False):
        for rows in every:
            work(rows)
        return
    _keep_pages()
    with one_thread(), ThreadPoolExecutor(os.cpu_count(), initializer=_begin) as pool:  # BLAS's, or ours
        list(pool.map(work, every))


def _begin() -> None:
    _here.busy = True


@cache
def _keep_pages() -> None:
    """Let what one block frees serve the next, where glibc allocates: it keeps what is smaller than the largest freed.

    Otherwise the first large audit has four times the page faults of the next ones, 44,000 for a million labels.
    """
    np.empty(2**24, np.uint8)


@contextmanager
def one_thread() -> Iterator[None]:
    """BLAS in one thread: of small products its threads wait longer, at full speed, than they work."""
    with _libraries().limit(limits=1):
        yield


@cache
def _libraries() -> ThreadpoolController:
    """BLAS and its like; to look for them takes some milliseconds."""
    return ThreadpoolController()

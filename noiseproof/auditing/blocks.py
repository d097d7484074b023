"""Rows of large arrays, some at a time, on all cores."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from threading import Thread, local
from typing import TypeVar

import numpy as np
from threadpoolctl import ThreadpoolController

T = TypeVar("T")
_BLOCK = 2**17  # numbers worked on at once by a thread: more would not stay in its cache, and be new pages each time
_here = local()  # busy: whether this thread does a part of some work


def blocks(n: int, width: int) -> Iterator[slice]:
    """Rows 0..n in slices of a size that a thread works on at once."""
    height = max(1, _BLOCK // width)
    return (slice(begin, min(begin + height, n)) for begin in range(0, n, height))


def in_threads(work: Callable[[slice], None], n: int, width: int) -> None:
    """Do the work of all blocks of n rows, on all cores; of several errors the first block's is raised.

    Each thread, this one too, takes the next block when it is done with one. What such work does by `in_threads` itself
    stays in its thread: the cores are busy.
    """
    every = list(blocks(n, width))
    count = 1 if getattr(_here, "busy", False) else min(os.cpu_count() or 1, len(every))
    if count <= 1:
        for rows in every:
            work(rows)
        return
    rest, failed = iter(every), dict[int, BaseException]()

    def some() -> None:
        _here.busy = True
        try:
            for rows in rest:  # in order: when one has failed, those before it are done, or being done
                work(rows)
                if failed:
                    break
        except BaseException as error:  # raised below
            failed[rows.start] = error
        finally:
            _here.busy = False

    _keep_pages()
    with one_thread():  # our threads, or BLAS's, not both
        others = [Thread(target=some) for _ in range(count - 1)]
        for other in others:
            other.start()
        some()
        for other in others:
            other.join()
    if failed:
        raise failed[min(failed)]


def aside(work: Callable[[], T]) -> Callable[[], T]:
    """Begin work in a thread of its own; what is returned waits for the outcome, or raises its error.

    Its products of matrices have the threads that this thread gives to BLAS meanwhile: see `one_thread`.
    """

    def alone() -> T:
        _here.busy = True
        return work()

    pool = ThreadPoolExecutor(1)
    outcome = pool.submit(alone)
    pool.shutdown(wait=False)
    return outcome.result


@cache
def _keep_pages() -> None:
    """Let what one block frees serve the next, where glibc allocates: it keeps what is smaller than the largest freed.

    Otherwise the first large audit has four times the page faults of the next ones, 44,000 for a million labels.
    """
    np.empty(2**24, np.uint8)


@contextmanager
def one_thread() -> Iterator[None]:
    """BLAS in one thread, in this and all others.

    Of small products its threads wait longer, at full speed, than they work, and a while after the last one as well.
    """
    with _libraries().limit(limits=1, user_api="blas"):
        yield


@cache
def _libraries() -> ThreadpoolController:
    """Of BLAS; to look for it takes some milliseconds."""
    return ThreadpoolController()

"""Rows in blocks, on threads of our own: BLAS has one meanwhile, and its own again afterwards."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from noiseproof.auditing import blocks, posterior


def threads() -> set[int]:
    return {one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"}


def test_blas_has_one_thread_in_a_fit_and_its_own_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    sharpness = posterior._sharpness
    monkeypatch.setattr(posterior, "_sharpness", lambda *given: (seen.append(threads()), sharpness(*given))[1])
    p = np.random.default_rng(0).dirichlet(np.ones(3), 90).astype(np.float32)
    labels = np.arange(90) % 3
    with threadpool_limits(2, "blas"):
        posterior.fit(labels, [p])
        with blocks.one_thread():
            posterior.fit_with_range(labels, [p])[1]()
        assert threads() == {2}
        with pytest.raises(ZeroDivisionError), blocks.one_thread():
            raise ZeroDivisionError
        assert threads() == {2}
    assert len(seen) == 2 * posterior.ROUNDS + 2 * posterior.ROUNDS_AGAIN
    assert all(one == {1} for one in seen)


def test_work_aside_has_its_outcome_or_its_error() -> None:
    with threadpool_limits(2, "blas"), blocks.one_thread():
        outcome = blocks.aside(lambda: (threads(), threading.current_thread() is threading.main_thread()))
        assert outcome() == outcome() == ({1}, False)
    failed = blocks.aside(lambda: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        failed()

"""Compiled loops: numba comes late, and does without a place for its cache."""

from __future__ import annotations

import os
import subprocess
import sys
import types
from pathlib import Path

import numba
import pytest

from noiseproof import jit


def test_numba_is_imported_by_the_first_loop(tmp_path: Path) -> None:
    """Not before; and a place for its cache that cannot be written is no matter."""
    nowhere = tmp_path / "file"
    nowhere.touch()
    code = (
        "import sys, torch, noiseproof as nf\n"
        "nf.augment.policy('simclr', 8)(torch.zeros(2, 3, 8, 8), torch.Generator())\n"
        "assert 'numba' not in sys.modules\n"
        "nf.coreset.facility_location(torch.arange(12.0).view(6, 2), 2)\n"
        "assert 'numba' in sys.modules\n"
    )
    env = {**os.environ, "NUMBA_CACHE_DIR": str(nowhere / "cache")}
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_loops_do_without_a_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere(cache: bool = False, **options: object) -> object:
        if cache:
            raise RuntimeError("cannot cache function: no locator available")
        return numba.njit(**options)

    monkeypatch.setattr(jit, "numba", types.SimpleNamespace(njit=nowhere))
    assert jit.compiled()(lambda x: x + 1)(2) == 3

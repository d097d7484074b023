"""Where a figure was measured: the commit of this repository, not "unknown"."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from noiseproof.runs.provenance import machine

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a checkout")
def test_the_commit_is_known() -> None:
    assert re.fullmatch(r".*[0-9a-f]{7,}\+?", machine()["commit"])

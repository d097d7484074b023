"""Where, and by which code, a figure was measured."""

from __future__ import annotations

import platform
import subprocess
from pathlib import Path
from typing import Any

import torch


def machine() -> dict[str, Any]:
    """The processor, the versions, and the commit of the code where it lies in a repository."""
    from noiseproof import __version__

    return {
        "processor": platform.processor() or platform.machine(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "noiseproof": __version__,
        "commit": _commit(Path(__file__).resolve().parents[2]),
    }


def _commit(root: Path) -> str:
    """The commit checked out at `root`, with a + behind it if files were changed since; "unknown" elsewhere."""
    if not (root / ".git").exists():
        return "unknown"
    try:
        commit = subprocess.run(["git", "describe", "--always", "--dirty=+"], cwd=root, capture_output=True, text=True)
    except FileNotFoundError:  # no git here
        return "unknown"
    return commit.stdout.strip() or "unknown"

"""What the benchmarks share: the machine, a table, a results file."""

from __future__ import annotations

import json
import platform
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from noiseproof.console import table

ROOT = Path(__file__).parent.parent


def machine() -> dict[str, Any]:
    """Where and on what a figure was measured."""
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    return {
        "processor": platform.processor() or platform.machine(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "commit": commit.stdout.strip() or "unknown",
    }


def show(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table."""
    Console(width=120).print(table(title, header, rows))


def write(name: str, results: dict[str, Any]) -> None:
    """Write results/NAME.json."""
    path = ROOT / "results" / f"{name}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(results, indent=2) + "\n")

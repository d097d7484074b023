"""What the benchmarks share: the machine, a table, a results file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from noiseproof.cli.console import table
from noiseproof.runs.provenance import machine as machine

ROOT = Path(__file__).parent.parent


def show(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table."""
    Console(width=120).print(table(title, header, rows))


def write(name: str, results: dict[str, Any]) -> None:
    """Write results/NAME.json."""
    path = ROOT / "results" / f"{name}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(results, indent=2) + "\n")

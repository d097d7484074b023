"""Results small enough to commit: written, and taken up again, so that a grid can be completed on other days."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from noiseproof import files
from noiseproof.benching.cells import Cell, Record, key, read

COMMITTED = "leaderboard.json"
KEPT = (  # the figures that committed results keep
    "last", "best", "kept", "agreed", "error", "consensus", "corrected", "memorised", "auroc", "f1", "noise",
    "estimated", "processor", "peak_mb", "failed",
)  # fmt: skip


def publish(found: Sequence[Record], path: Path) -> None:
    """Write results small enough to commit, a line for each cell, beside those that the file has of others."""
    known = {key(record["cell"]): record for record in records(path)}
    for record in found:
        kept = {name: _short(record["figures"][name]) for name in KEPT if name in record["figures"]}
        cell = public(record["cell"])
        known[key(cell)] = {"cell": cell, "figures": kept, "seconds": 0.0, "commit": record["commit"]}
    files.write_text(path, "".join(f"{json.dumps(one)}\n" for one in known.values()))


def public(cell: Cell) -> Cell:
    """A cell as it is published: files by their names, without the folders where they lay."""
    source = {name: value for name, value in cell["source"].items() if value is not None}
    source |= {name: Path(source[name]).name for name in ("data", "test") if name in source}
    noise = cell["noise"]
    if noise is not None and noise.startswith("labels:"):
        _, file, column = noise.split(":")
        noise = f"labels:{Path(file).name}:{column}"
    return cell | {"source": source, "noise": noise}


def records(path: Path | None) -> list[Record]:
    """What a file has that `publish` wrote; nothing where there is none."""
    return read(path) if path is not None and path.is_file() else []


def taken_up(path: Path | None, cells: Sequence[Cell], wanted: set[str]) -> list[Record]:
    """The records of wanted cells that were published: what was run on another day is not run again."""
    known = {key(record["cell"]): record for record in records(path)}
    found = [(cell, known.get(key(public(cell)))) for cell in cells if key(cell) in wanted]
    return [record | {"cell": cell} for cell, record in found if record is not None]


def committed() -> list[Record]:
    """The records of the leaderboard that comes with the product; none where there is none."""
    place = resources.files("noiseproof.benching") / COMMITTED
    return [json.loads(line) for line in place.read_text().splitlines()] if place.is_file() else []


def _short(value: Any) -> Any:
    return float(f"{value:.4g}") if isinstance(value, float) else value

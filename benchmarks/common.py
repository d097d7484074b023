"""What the benchmarks share: the machine, a table, results files, options."""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable, Sequence
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


def spread(values: Sequence[float]) -> str:
    """The mean and, of several, the standard deviation."""
    return f"{statistics.mean(values):.1f}" + (f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else "")


class Kept:
    """Figures of runs by key, in a file of lines: what it has already is not run again."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = path.read_text().splitlines() if path.exists() else []
        self.done = {tuple(one["key"]): one["figures"] for one in map(json.loads, lines)}

    def get(self, key: tuple[Any, ...], run: Callable[[], dict[str, float]]) -> dict[str, float]:
        """The figures of a key, by a run where there are none yet."""
        if key not in self.done:
            self.done[key] = run()
            with self.path.open("a") as file:
                file.write(json.dumps({"key": key, "figures": self.done[key]}) + "\n")
        return self.done[key]


def parser_of(doc: str | None) -> argparse.ArgumentParser:
    """A parser of options whose help is a file's documentation, as it is."""
    return argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)


class CIFAR10N:
    """The options --cifar10 and --cifar10n, which belong together."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        self.parser = parser
        parser.add_argument("--cifar10", type=Path, help="the training set as Parquet, in the original order")
        parser.add_argument("--cifar10n", type=Path, help="CSV with aggre_label and random_label1, in the same order")

    def given(self, options: argparse.Namespace) -> tuple[Path, Path] | None:
        """The two files, if they were given."""
        if (options.cifar10 is None) != (options.cifar10n is None):
            self.parser.error("--cifar10 and --cifar10n belong together")
        return None if options.cifar10 is None else (options.cifar10, options.cifar10n)

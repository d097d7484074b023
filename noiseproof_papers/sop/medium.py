"""Do the methods hurt, or help, on all of CIFAR-10? `sop`, `elr` and `sop_plus` against `ce` at the medium scale.

Not of a paper: `defaults-grid` where a network has much to learn. What matters most comes first, as a run takes
some twenty minutes of a core, by the network's throughput, and the grid is run a part at a time.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from noiseproof_papers.drawing import bars
from noiseproof_papers.experiment import Cell, Done, Table, group, spread, spreads
from noiseproof_papers.fits import ASYMMETRIC, RUNS, SIZES, Trained, cell, medium

NOISES = (("symmetric:0.4", None), (None, "random_label1"), (None, None), (ASYMMETRIC, None))  # noise, labels
METHODS = ("ce", "sop", "elr", "sop_plus")


class DefaultsMedium(Trained):
    """Kinds of noise and methods in rows."""

    name = "defaults-medium"
    title = "sop, elr and sop_plus against cross-entropy on all of CIFAR-10"
    paper = "Liu et al. 2020 and 2022"
    scales = ("medium",)
    gapped = True

    def cells(self, scale: str, seeds: int | None) -> list[Cell]:
        return [
            cell("cifar10", method, seed, noise=noise, labels=labels, **SIZES[scale], options=medium(method))
            for seed in range(seeds or RUNS[scale])
            for noise, labels in NOISES
            for method in METHODS
        ]

    def draw(self, done: list[Done], path: Path) -> None:
        groups = group(done, lambda c: (c["method"], _noise(c)))
        bars({key: [f["last"] for f in fs] for key, fs in groups.items()}, path, self.title)

    def table(self, done: list[Done]) -> Table:
        header = ["noise", "method", "test, last", "test, best", "wrong labels memorised"]
        header += ["right labels explained away", "wrong labels explained away", "AUROC"]
        rows = []
        for key, runs in group(done, lambda c: (_noise(c), c["method"])).items():
            explained = [spread([_end(one, f"explained_{kind}") for one in runs]) for kind in ("right", "wrong")]
            auroc = spreads(runs, "auroc", percent=False)
            rows.append([*key, *spreads(runs, "last", "best", "memorised"), *explained, *auroc])
        return header, rows


def _noise(cell: Cell) -> str:
    kind: str = cell["labels"] or cell["noise"] or "none"
    return kind.replace("_label", "")


def _end(figures: dict[str, Any], curve: str) -> float | None:
    """Where a curve ends; None where there is none."""
    curves = figures["curves"] or {}
    return curves[curve][-1] if curve in curves else None

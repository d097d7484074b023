"""Do the methods hurt, or help, on all of CIFAR-10? `sop`, `elr` and others against `ce` at the medium scale.

Not of a paper: `defaults-grid` where a network has much to learn. What matters most comes first, as a run takes
some twenty minutes of a core, by the network's throughput, and the grid is run a part at a time.
"""

from __future__ import annotations

from typing import Any

from noiseproof_papers.experiment import Done, Table, group, spread, spreads
from noiseproof_papers.fits import ASYMMETRIC, Compared, in_full, noise_of


class DefaultsMedium(Compared):
    """Kinds of noise and methods in rows."""

    name = "defaults-medium"
    title = "sop, elr and others against cross-entropy on all of CIFAR-10"
    paper = "Liu et al. 2020 and 2022"
    scales = ("medium",)
    settings = ("symmetric:0.4", "labels:random_label1", "none", ASYMMETRIC)
    methods = ("ce", "sop", "elr", "sop_plus", "elr(lam=3)", "sop(lr_u='auto', lr_v='auto')", "mixup", "auto")

    def options(self, scale: str, data: str, method: str, noise: str) -> dict[str, Any]:
        return in_full(scale, method)

    def table(self, done: list[Done]) -> Table:
        header = ["noise", "method", "test, last", "test, best", "wrong labels memorised"]
        header += ["right labels explained away", "wrong labels explained away", "AUROC"]
        rows = []
        noise = noise_of(done)
        for (kind, method), runs in group(done, lambda c: (noise(c), c["method"])).items():
            figures = spreads(runs, "last", "best", "memorised")
            explained = [spread([_end(one, f"explained_{what}") for one in runs]) for what in ("right", "wrong")]
            auroc = spreads(runs, "auroc", percent=False)
            rows.append([kind.replace("_label", ""), method, *figures, *explained, *auroc])
        return header, rows


def _end(figures: dict[str, Any], curve: str) -> float | None:
    """Where a curve ends; None where there is none."""
    curves = figures["curves"] or {}
    return curves[curve][-1] if curve in curves else None

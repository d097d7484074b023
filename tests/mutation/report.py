"""What became of the mutants, as a table."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass
class Outcome:
    """What became of one mutant."""

    key: str  # module:line:byte:before -> after
    operator: str
    kind: str  # killed, timeout (killed too) or survived
    by: str  # the test that failed first
    tests: int  # that were to run
    seconds: float  # of the processor

    @property
    def module(self) -> str:
        return self.key.split(":")[0]

    @property
    def killed(self) -> bool:
        return self.kind != "survived"


def share(found: list[Outcome]) -> float:
    """Of the mutants, those killed."""
    return sum(one.killed for one in found) / len(found)


def wilson(hits: int, n: int, z: float = 1.96) -> tuple[float, float]:
    """The interval of Wilson (1927) for a share, of 95 %."""
    p, shrink = hits / n, 1 + z * z / n
    middle, reach = p + z * z / (2 * n), z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return (middle - reach) / shrink, (middle + reach) / shrink


def table(found: dict[str, list[Outcome]]) -> str:
    """A row for each package and one for all, then the survivors."""
    lines = ["| package | mutants | killed | share | 95 % |", "|---|---|---|---|---|"]
    every = [one for own in found.values() for one in own]
    for name, own in [*found.items(), ("", every)]:
        if own:
            hits = sum(one.killed for one in own)
            low, high = wilson(hits, len(own))
            title = f"`{name}`" if name else "all"
            row = f"| {title} | {len(own)} | {hits} | {hits / len(own):.1%} | {low:.1%} to {high:.1%} |"
            lines.append(row)
    return "\n".join([*lines, "", *(f"survived: {' '.join(one.key.split())}" for one in every if not one.killed)])

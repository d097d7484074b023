"""What the methods' pages quote of the leaderboard is what the committed results say.

A line that follows `<!-- leaderboard: METHOD -->` is that of `quote(METHOD)`; after new results, write it anew.
"""

from __future__ import annotations

import re
import statistics
from functools import cache
from pathlib import Path

import pytest

from noiseproof.benching import published
from noiseproof.benching.board import Board, Entry

PAGES = Path(__file__).parents[2] / "docs" / "methods"
MARK = re.compile(r"<!-- leaderboard: (.+?) -->\n(.*)\n")
RIVALS = [
    "co_teaching_plus", "cores", "d2l", "decoupling", "dividemix", "dmi", "elr_plus", "incv", "jocor", "joint",
    "mentornet", "pes", "self_adaptive", "t_revision",
]  # fmt: skip
COLUMNS = {"digits": "digits symmetric:0.4", "features of CIFAR-10": "cifar10-train (imagenet) symmetric:0.4"}


@cache
def board() -> Board:
    return Board(published.committed())


def of(entry: Entry) -> str:
    """`65.9 ± 0.9 (+11.6), 13 % of the wrong labels memorised`."""
    values = [100 * (value or 0) for value in entry.values("kept")]
    above = 100 * statistics.fmean(board()._gaps(entry))
    memorised = f"{100 * entry.mean('memorised'):.0f} % of the wrong labels memorised"
    return f"{statistics.fmean(values):.1f} ± {statistics.stdev(values):.1f} ({above:+.1f}), {memorised}"


def quote(method: str) -> str:
    found = "; ".join(f"{name} {of(board().entries[method, column])}" for name, column in COLUMNS.items())
    seeds = {len(board().entries[method, column].cells) for column in COLUMNS.values()}
    assert seeds == {3}
    return (
        "On the [leaderboard](../leaderboard.md) with 40 % symmetric noise, mean ± standard deviation of three seeds "
        f"in % and in brackets points above `ce`: {found}."
    )


@pytest.mark.parametrize("name", RIVALS)
def test_pages_quote_the_committed_results(name: str) -> None:
    [(method, line)] = MARK.findall((PAGES / f"{name}.md").read_text(encoding="utf-8"))
    assert method.partition("(")[0] == name
    assert line == quote(method)


def test_a_rival_is_eight_points_above_ce_or_its_page_says_why_not() -> None:
    for name in RIVALS:
        [(method, _)] = MARK.findall(text := (PAGES / f"{name}.md").read_text(encoding="utf-8"))
        gaps = [statistics.fmean(board()._gaps(board().entries[method, column])) for column in COLUMNS.values()]
        assert min(gaps) >= 0.08 or "## Why not eight points" in text, name


NAMES = {
    "digits": "digits", "Fashion-MNIST": "fashion-mnist", "CIFAR-10 features": "cifar10-train (imagenet)",
}  # fmt: skip


@pytest.mark.parametrize("half", ["tested", "developed"])
def test_the_tables_of_auto_are_those_of_the_committed_results(half: str) -> None:
    lines = (PAGES / "auto.md").read_text(encoding="utf-8").split("\n")
    start = lines.index(f"<!-- halves: {half} -->") + 1
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[start : lines.index("", start)]]
    methods = [cell.strip("`") for cell in rows[0][1:]]
    columns = {f"{NAMES[name]} {noise}": row[1:] for row in rows[2:] if (name := row[0].partition(", ")[0]) in NAMES
               for noise in [row[0].partition(", ")[2]]}  # fmt: skip
    assert len(columns) == {"tested": 12, "developed": 11}[half]
    part = Board([one for one in published.committed() if one["cell"]["method"] in methods])
    for column, row in columns.items():
        for method, cell in zip(methods, row, strict=True):
            entry = part.entries[method, column]
            spread = 100 * statistics.stdev(value or 0 for value in entry.values("kept"))
            assert cell.replace("*", "") == f"{100 * entry.mean('kept'):.1f} ± {spread:.1f}"
    shown = {row[0]: row[1:] for row in rows[2:]}
    regrets: dict[str, list[float]] = {method: [] for method in methods}
    for column in columns:
        best = max(part.entries[method, column].mean("kept") for method in methods)
        for method in methods:
            regrets[method].append(100 * (best - part.entries[method, column].mean("kept")))
    assert shown["points below the best, mean"] == [f"{statistics.fmean(regrets[method]):.2f}" for method in methods]
    assert shown["at worst"] == [f"{max(regrets[method]):.2f}" for method in methods]

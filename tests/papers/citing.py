"""How docs cite results, and whether they quote them right.

Before a table:    <!-- result: sop-table1-small -->
After a number:    −2.07 ± 2.03<!-- result: annealing-base-small, test lnsgd-s − lnsgd-ls -->

The cells of a row before the first number, or the words after the comma, name a row of the results whose cells have all
these words; words in brackets are the docs' own. The numbers of each entry, with what stands after a ±, must then be in
one entry of that row, rounded as the docs round them, all in the order they have there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from noiseproof_papers.results import NUMBER, Results, find, numbers

MARK = re.compile(r"<!-- result: ([\w-]+)(?:, ([^>]*?))? -->")
_BEFORE = re.compile(r"([+−-]?\d[\d.,e±+−\- ]*)(?: %)?$")


class Quoted(NamedTuple):
    """Entries that a page has from a row of results."""

    line: int  # of the page, from 1
    results: str
    row: str
    entries: list[str]


def quoted(text: str) -> Iterator[Quoted]:
    """All that a page cites."""
    lines = text.split("\n")
    for i, line in enumerate(lines):
        for mark in MARK.finditer(line):
            if mark[2] is not None:
                before = _BEFORE.search(line[: mark.start()])
                assert before, f"line {i + 1}: no number stands before {mark[0]}"
                yield Quoted(i + 1, mark[1], mark[2], [before[1].rstrip(" .,")])
                continue
            rows = [cells(row) for row in table(lines, i + 1)[2:]]
            assert rows, f"line {i + 1}: no table follows {mark[0]}"
            yield from (
                Quoted(i + 4 + j, mark[1], " ".join(row[: label(row)]), row[label(row) :]) for j, row in enumerate(rows)
            )


def table(lines: list[str], start: int) -> list[str]:
    """The lines of a table from its first."""
    end = start
    while end < len(lines) and lines[end].startswith("|"):
        end += 1
    return lines[start:end]


def label(row: list[str]) -> int:
    """How many cells name the row: the first, and those after it that have no number."""
    return next((i for i in range(1, len(row)) if NUMBER.search(row[i])), 1)


def cells(row: str) -> list[str]:
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]]


def mistake(one: Quoted, known: dict[str, Results]) -> str | None:
    """What is wrong with a quotation; None for nothing."""
    rows = [row for row in find(one.results, known).rows if _words(one.row) <= _words(" ".join(row), own=False)]
    wanted = [found for entry in one.entries if (found := list(_figures(entry)))]
    if not rows:
        return f"line {one.line}: {one.results} has no row {one.row!r}"
    if any(_carries(row, wanted) for row in rows):
        return None
    return f"line {one.line}: {one.results}, row {one.row!r} does not have {' | '.join(one.entries)}"


def _words(text: str, *, own: bool = True) -> set[str]:
    """Words and numbers of a label; without what the docs add in brackets."""
    plain = re.sub(r"\([^)]*\)", " ", text) if own else text
    words = re.findall(r"[\w.]+", re.sub(r"[`*\\]", "", plain).lower())
    return {f"{float(word):g}" if re.fullmatch(r"\d+(\.\d+)?", word) else word for word in words}


def _figures(text: str) -> Iterator[tuple[str, str | None]]:
    """The numbers in a text as written, each with what stands after its ±."""
    yield from ((one[1], one[2]) for one in re.finditer(f"({NUMBER.pattern})(?: ± ({NUMBER.pattern}))?", text))


def _carries(row: list[str], wanted: list[list[tuple[str, str | None]]]) -> bool:
    """Whether the row has these entries' numbers, one entry after another, each within one cell."""
    left = [list(_figures(cell)) for cell in row]
    for entry in wanted:
        while left and (end := _after(entry, left[0])) is None:
            left.pop(0)
        if not left:
            return False
        left[0] = left[0][end:]
    return True


def _after(entry: list[tuple[str, str | None]], found: list[tuple[str, str | None]]) -> int | None:
    """Where the numbers of an entry end among those found, in their order; None if they are not there."""
    end = 0
    for mean, spread in entry:
        while end < len(found) and not (_same(mean, found[end][0]) and (not spread or _same(spread, found[end][1]))):
            end += 1
        end += 1
    return end if end <= len(found) else None


def _same(text: str, found: str | None) -> bool:
    """Whether a number as written is the one found, rounded to the digits it has."""
    if found is None:
        return False
    mantissa, _, power = text.replace("−", "-").replace(",", "").partition("e")
    unit = 10.0 ** (int(power or 0) - len(mantissa.partition(".")[2]))
    return abs(numbers(text)[0] - numbers(found)[0]) <= 0.5001 * unit

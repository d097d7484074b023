"""The ledger: every theorem, figure, table and headline claim of the papers, one line each, and what became of it here.

A paper's folder has its lines in claims.json; numbers come from the files of results (results.py) alone. In a line's
`effect`

    {sop-table1-small | sop | symmetric:0.4}            is the entry of that row and column,
    {sop-table1-small | sop minus ce | symmetric:0.4}   the difference of two rows with its 95 % interval.

`noiseproof reproduce ledger --out docs/ledger.md` writes the page.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from importlib import resources
from typing import NamedTuple

from noiseproof_papers.results import Results, find, load

PAPERS = ("sop", "crust", "early_stopping", "label_noise", "sane")  # folders
VERDICTS = {
    "reproduced": "seen here as the paper says, at the size given, beyond the spread where there is one",
    "shape only": "the order or the form is there, not the paper's figures, or not beyond the spread",
    "not shown at this size": "not seen at the sizes run here, which do not speak against it at the paper's",
    "refuted": "false as stated, by a proof's gap with a counterexample, or by runs where it should hold",
    "not attempted": "and why",
}
_CITED = re.compile(r"\{([^{}|]+)\|([^{}|]+)\|([^{}|]+)\}")
_MINUS = " minus "


class Line(NamedTuple):
    """A claim and its verdict."""

    item: str  # "Theorem 4.1"; "Abstract" and the like for what has no number; "Ours" for what the paper does not say
    claim: str
    verdict: str
    why: str = ""
    effect: str = ""
    command: str = ""  # where no file of results is cited, e.g. a test


class Effect(NamedTuple):
    """What a citation came to."""

    results: Results
    text: str
    difference: tuple[float, float] | None  # with half of its interval


def lines() -> dict[str, tuple[str, tuple[Line, ...]]]:
    """By the papers' folders: their titles, and their lines."""
    found = {}
    for name in PAPERS:
        claims = json.loads((resources.files("noiseproof_papers") / name / "claims.json").read_text(encoding="utf-8"))
        found[name] = claims["title"], tuple(Line(**line) for line in claims["lines"])
    return found


def effects(line: Line, known: dict[str, Results]) -> list[Effect]:
    """What the citations in a line's effect come to, in their order.

    Raises:
        InputError: results, a row or a column that is not there.
    """
    found = []
    for name, row, column in _CITED.findall(line.effect):
        results, row, column = find(name.strip(), known), row.strip(), column.strip()
        one, minus, other = row.partition(_MINUS)
        if not minus:
            found.append(Effect(results, results.entry(row, column), None))
            continue
        difference = results.difference(one, other, column)
        found.append(Effect(results, _interval(*difference), difference))
    return found


def _interval(difference: float, half: float) -> str:
    sign = "+" if difference >= 0 else "−"
    text = f"{sign}{abs(difference):.1f}"
    return text if math.isnan(half) else f"{text} ± {half:.1f}"


def page(known: dict[str, Results] | None = None) -> str:
    """The ledger as Markdown."""
    known = load() if known is None else known
    parts = [_INTRODUCTION]
    for title, own in lines().values():
        parts.append(f"## {title}\n\n{_HEAD}\n" + "\n".join(_row(line, known) for line in own) + "\n")
    return "\n".join(parts)


def _row(line: Line, known: dict[str, Results]) -> str:
    found = effects(line, known)
    texts = iter(found)
    effect = re.sub(r"(?<!\w)-(?=\d)", "−", _CITED.sub(lambda _: next(texts).text, line.effect))
    cited = list({one.results.name: one.results for one in found}.values())
    commands = [f"`{one.command}`" for one in cited] or ([f"`{line.command}`"] if line.command else [])
    verdict = f"**{line.verdict}**" + (f": {line.why}" if line.why else "")
    cells = [line.item, line.claim, verdict, effect, _sizes(cited), "<br>".join(commands)]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _sizes(cited: Iterable[Results]) -> str:
    """Scale, runs and source of what is cited."""
    texts = []
    for one in cited:
        runs = "**one run**" if one.seeds == 1 else f"{one.seeds} runs"
        text = f"{one.scale}, {runs}" + (f", table of {one.commit}" if one.source == "table" else "")
        texts.append(text + ("" if one.done is None else ", **{} of {} cells so far**".format(*one.done)))
    return "<br>".join(dict.fromkeys(texts))


_HEAD = "| | claim | verdict | effect | size, runs | command |\n|---|---|---|---|---|---|"
_INTRODUCTION = f"""# Ledger

Every theorem, figure, table and headline claim of the five papers, and what became of it here; and claims of our own,
which are in none of them ("Ours"). Written by
`noiseproof reproduce ledger --out docs/ledger.md` from the results in `noiseproof_papers/*/results/`; the verdicts are
ours, in `claims.json` beside them.

{chr(10).join(f"- **{verdict}**: {meaning}." for verdict, meaning in VERDICTS.items())}

Differences of two methods are in points of accuracy, with 95 % intervals (Welch's t over the runs); other ± are as in
the page that has the table. "Small" is the scale of [experiments](experiments.md): its networks end at 14 to 51 % on
CIFAR-10, where no paper's headline figure can show. **One run** means that nothing is known of the spread. "Table of
COMMIT" means that the figures were transcribed from the table published then and not run again: their raw figures were
not kept.
"""

"""A leaderboard to look at: one HTML page, the same as Markdown, and a picture of ranks."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from noiseproof import files
from noiseproof.benching.board import Board
from noiseproof.benching.cells import Record
from noiseproof.runs.drawing import new_figure
from noiseproof.runs.report import Section, write_html

_ABOUT = {
    "by_set": "Test accuracy in % of the model one gets: the mean over all columns, with the mean rank of the methods "
    "that have them all, and over the columns of each data set.",
    "accuracy": "Test accuracy in % of the model one gets, mean ± standard deviation over seeds; methods by mean rank. "
    "Every figure leads to its settings.",
    "epochs": "Test accuracy in %: at the last epoch, in brackets at the best by held-out noisy labels. No test label "
    "chooses anything.",
    "against": "Points above cross-entropy, by pairs of runs with the same examples, noise and order, and half of the "
    "95 % interval: over seeds, and under “all” over the columns' means.",
    "regret": "Points below the best method of each column; the least difference to ce in any column; processor time "
    "over that of ce.",
    "wrong_labels": "Finding the wrong labels: AUROC of the method's own suspicion, F1 of the audit's list by its run.",
    "cost": "Processor seconds of a run in the median, over those of ce in the same cell, and the largest memory of "
    "the process.",
}
_TITLES = {
    "by_set": "Accuracy", "accuracy": "Accuracy", "epochs": "Last and best epoch", "against": "Against ce",
    "regret": "Regret", "wrong_labels": "Wrong labels", "cost": "Cost",
}  # fmt: skip
_WHOLE = ("regret", "cost")  # tables of the whole grid
_OF_SET = ("accuracy", "against", "epochs", "wrong_labels")  # tables with a column for each setting
_IN_TIME = ("by_set", "accuracy", "against", "regret")  # what equal processor time is about


def sections(records: Sequence[Record]) -> list[Section]:
    """The parts of the page: of each budget the whole grid, then its data sets one by one; the settings at the end."""
    found, settings = [], []
    budgets = [one for one in ("epochs", "time") if any(record["cell"]["budget"] == one for record in records)]
    for budget in budgets:
        board = Board(records, budget)
        extra = "" if budget == "epochs" else ", equal processor time"
        several = len(board.sets) > 1
        parts = {data: Board(records, budget, data) for data in board.sets} if several else {"": board}
        tables = [(board, name, "") for name in (("by_set", *_WHOLE) if several else ())]
        tables += [(part, name, f", {data}" if data else "") for data, part in parts.items() for name in _OF_SET]
        tables += [] if several else [(board, name, "") for name in _WHOLE]
        made = [_table(one, name, of + extra) for one, name, of in tables if budget == "epochs" or name in _IN_TIME]
        if len(board.ranks) > 1:
            made.insert(1, Section("Ranks" + extra, ranks_in_words(board), picture=draw_ranks(board)))
        found += made
        settings.append(Section("Settings" + extra, rows=board.settings()[1]))
    return found + settings


def _table(board: Board, name: str, of: str) -> Section:
    header, rows = getattr(board, name)()
    about = _ABOUT[name] if board.figure == "kept" else _ABOUT[name].replace("Test accuracy", _NOISY)
    return Section(_TITLES[name] + of, about, header, rows)


_NOISY = "Agreement with held-out labels as they are, some of them wrong,"


def ranks_in_words(board: Board) -> str:
    return (
        f"Mean rank over {len(board.columns)} columns, 1 is best. A bar joins methods whose ranks differ by less than "
        f"{board.critical_difference:.2f}: by chance (Nemenyi's test, 5 %)."
    )


def write(folder: Path, records: Sequence[Record], title: str = "Leaderboard", name: str = "leaderboard") -> Path:
    """Write NAME.html, NAME.md and NAME.png to a folder."""
    parts, board = sections(records), Board(records)
    page = folder / f"{name}.html"
    facts = [f"{len(board.methods)} methods", f"{len(board.columns)} columns", f"{len(records):,} runs"]
    write_html(page, title, "noiseproof bench", facts, parts)
    files.write_text(folder / f"{name}.md", markdown(title, parts, name))
    if len(board.ranks) > 1:
        files.write_atomically(folder / f"{name}.png", lambda path: path.write_bytes(draw_ranks(board)))
    return page


def markdown(title: str, parts: Sequence[Section], name: str) -> str:
    """The tables as Markdown; the settings of each figure are on the page beside it."""
    made = f"`noiseproof bench --leaderboard` writes this page, and {name}.html with the settings of every figure."
    text = [f"# {title}", "", made, ""]
    for part in parts:
        if part.title.startswith("Settings"):
            continue
        text += [f"## {part.title}", "", part.about, ""]
        if part.picture is not None and part.title == "Ranks":
            text += [f"![mean ranks]({name}.png)", ""]
        if part.rows:
            text += [_line(part.header), _line("---" for _ in part.header), *map(_line, part.rows), ""]
    return "\n".join(text)


def _line(cells: Any) -> str:
    return "| " + " | ".join(map(str, cells)) + " |"


def draw_ranks(board: Board) -> bytes:
    """The critical-difference picture: methods at their mean ranks, bars over those that chance may have ordered."""
    ranked, ranks, gap = board.ranked, board.ranks, board.critical_difference
    half = math.ceil(len(ranked) / 2)
    groups = _groups([ranks[name] for name in ranked], gap)
    top = 1.2 + 0.28 * len(groups)
    figure = new_figure(8.5, 0.9 + 0.24 * (half + top))
    axis = figure.subplots()
    low, high = 1.0, float(max(len(ranked), 2))
    axis.set_xlim(low - 0.32 * (high - low), high + 0.32 * (high - low))
    axis.set_ylim(-(top + half), 2.6)
    axis.axis("off")
    axis.plot([low, high], [0, 0], color="0.1", lw=1)
    step = max(1, round((high - low) / 12))
    for tick in range(1, int(high) + 1, step):
        axis.plot([tick, tick], [0, 0.25], color="0.1", lw=1)
        axis.text(tick, 0.4, str(tick), ha="center", va="bottom", fontsize=8)
    axis.plot([low, low + gap], [1.9, 1.9], color="#c0392b", lw=2)
    axis.text(low, 2.05, f"critical difference {gap:.2f}", fontsize=8, color="#c0392b", va="bottom")
    for place, (first, last) in enumerate(groups):
        span = [ranks[ranked[first]] - 0.03 * (high - low) / 10, ranks[ranked[last]] + 0.03 * (high - low) / 10]
        axis.plot(span, [-0.5 - 0.28 * place] * 2, color="#2471a3", lw=2.5, solid_capstyle="butt")
    for place, name in enumerate(ranked):
        left = place < half
        height = -(top + (place if left else len(ranked) - 1 - place))
        edge = low - 0.03 * (high - low) if left else high + 0.03 * (high - low)
        axis.plot([ranks[name], ranks[name], edge], [0, height, height], color="0.55", lw=0.7)
        text = f"{name}  {ranks[name]:.1f}" if left else f"{ranks[name]:.1f}  {name}"
        axis.text(edge, height, text, ha="right" if left else "left", va="center", fontsize=8)
    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=130, format="png")
    return buffer.getvalue()


def _groups(ranks: Sequence[float], gap: float) -> list[tuple[int, int]]:
    """The longest runs (first, last) of sorted ranks that lie within the gap, two or more methods each."""
    found: list[tuple[int, int]] = []
    for first in range(len(ranks)):
        last = max(i for i in range(len(ranks)) if ranks[i] - ranks[first] < gap)
        if last > first and not any(a <= first and last <= b for a, b in found):
            found.append((first, last))
    return found

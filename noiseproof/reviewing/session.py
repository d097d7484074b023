"""A review: what is to be looked at, what was decided, and what the page may ask of both."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from noiseproof.data.decisions import DROP, KEEP, RELABEL, decisions_of
from noiseproof.data.relabel import Relabelled, decisions_csv
from noiseproof.errors import InputError, reason, unknown
from noiseproof.reviewing import progress
from noiseproof.reviewing.examples import Examples
from noiseproof.reviewing.items import KINDS, Items
from noiseproof.reviewing.store import ACTIONS, SKIP, Outcome, Store, Wanted

SHOWN = 500  # rows that an answer describes; the page asks for others when it shows them
Export = Callable[[], Relabelled]  # writes the corrected data
Counted = Callable[[int, int], None]  # is called with (done, total)
Refresh = Callable[[Counted], tuple[Items, Examples]]  # judges the labels again, with what was decided


class Review:
    """A review of the labels in a folder.

    Args:
        folder: with the labels.parquet that is reviewed; the decisions go there, too.
        items, examples: its rows, and the data behind them.
        title: what the page calls the data.
        who: the reviewer's name, to begin with.
        export: writes the corrected data; None: it cannot be written in its own form.
        refresh: judges the labels again in the light of what was decided; None: it cannot be done here.
        hint: how to go on from the command line.
    """

    def __init__(
        self,
        folder: Path,
        items: Items,
        examples: Examples,
        *,
        title: str,
        who: str = "",
        export: Export | None = None,
        refresh: Refresh | None = None,
        hint: str = "",
    ) -> None:
        self.folder, self.items, self.examples = folder, items, examples
        self.title, self.who, self.hint = title, who, hint
        self._export, self._refresh = export, refresh
        self.refreshing: dict[str, Any] = {"running": False, "done": 0, "total": 0, "error": ""}
        self.store = Store(folder)
        self._lock = threading.Lock()
        self._sync()

    def close(self) -> None:
        self.store.close()

    def _sync(self) -> list[int]:
        """Take in what others decided; the rows it is about."""
        with self._lock:
            return self.items.take_in(self.store.since(self.items.seen))

    def facts(self) -> dict[str, Any]:
        """What the page must know to begin with."""
        self._sync()
        return self.items.facts() | {
            "title": self.title,
            "who": self.who,
            "image": self.examples.is_image,
            "pairs": self.items.pairs(),
            "kinds_about": KINDS,
            "version": self.items.seen,
            "progress": self.progress(),
            "hint": self.hint,
            "stamp": self.items.stamp,
            "refreshes": self._refresh is not None,
        }

    def describe(self, row: int) -> dict[str, Any]:
        """A row as JSON; where there is no picture, with some of its values."""
        item = self.items.describe(row)
        return item if self.examples.is_image else item | {"brief": self.examples.brief(row)}

    def find(self, wanted: Mapping[str, str]) -> tuple[np.ndarray, np.ndarray]:
        """The rows that pass the filters, in order, and the version of each."""
        rows = self.items.find(wanted)
        return rows, self.items.version[rows]

    def detail(self, row: int) -> dict[str, Any]:
        """What the single view shows beside the item: its values, others to compare it with, and its history."""
        near = {name: [self.describe(other) for other in rows] for name, rows in self.examples.near(row).items()}
        group = self.items.group[row]
        twins = np.flatnonzero((self.items.group == group) & (group >= 0))[:12]
        history = self.store.history(self.items.ids[row])
        return {
            "item": self.describe(row),
            "values": self.examples.values(row),
            "near": near,
            "group": [self.describe(other) for other in twins.tolist() if other != row],
            "history": [
                {
                    "action": one.action,
                    "label": one.label,
                    "who": one.who,
                    "at": one.at,
                    "undo": one.undoes is not None,
                }
                for one in history
            ],
        }

    def progress(self) -> dict[str, Any]:
        items = self.items
        wrong = np.isin(items.action, [ACTIONS.index(DROP), ACTIONS.index(RELABEL)])
        decided = items.decided
        return progress.progress(items.p, items.issue, decided, items.looked, wrong, items.version).json() | {
            "skipped": int((items.action == ACTIONS.index(SKIP)).sum())
        }

    def changes(self, since: int) -> dict[str, Any]:
        """The rows whose decision changed after a version."""
        self._sync()
        rows = np.flatnonzero(self.items.version > since)
        shown = [self.describe(int(row)) for row in rows[:SHOWN]]
        return {"version": self.items.seen, "items": shown, "more": len(rows) > SHOWN}

    def refresh(self) -> dict[str, Any]:
        """Begin to judge the labels again, in the background; `refreshing` says how far that has come."""
        if self._refresh is None:
            raise InputError("the labels cannot be judged again here; train with fit --decisions, or audit --decisions")
        if not self.refreshing["running"]:
            decisions_of(self.folder)  # there must be some
            self.refreshing.update(running=True, done=0, total=0, error="")
            threading.Thread(target=self._judge, args=(self._refresh,), daemon=True).start()
        return self.refreshing

    def _judge(self, refresh: Refresh) -> None:
        try:
            items, examples = refresh(lambda done, total: self.refreshing.update(done=done, total=total))
            items.take_in(self.store.since(0))
            with self._lock:
                self.items, self.examples = items, examples
        except InputError as error:
            self.refreshing["error"] = str(error)
        except Exception as error:  # a mistake of ours, which the page should not take for success
            self.refreshing["error"] = f"judging the labels again failed ({reason(error)}); the list is as it was"
            raise
        finally:
            self.refreshing["running"] = False

    def decide(
        self,
        rows: list[Any],
        seen: list[Any],
        action: str,
        label: str,
        *,
        stamp: int,
        who: str = "",
        session: str = "",
        looked: bool = True,
    ) -> dict[str, Any]:
        """Decide of some rows, each seen at a version.

        Args:
            stamp: of the table that the rows are numbered by.
            action: keep, relabel, drop, skip, undecided; or accept, which relabels each to what is suggested for it.
            label: the class to relabel to; "" for all other actions.
            looked: whether somebody looked at each of them.
        """
        items = self.items  # another table may take its place meanwhile
        if stamp != items.stamp:
            raise InputError("the labels were judged again, and the list is another; reload the page")
        if action not in (*ACTIONS, "accept"):
            raise unknown("action", action, (*ACTIONS, "accept"))
        if len(rows) != len(seen) or not rows or not all(_is_row(one, len(items)) for one in rows):
            raise InputError("rows must be rows of the table, and seen a version for each")
        if not all(_is_row(one, 2**62) for one in seen) or len(set(rows)) != len(rows):
            raise InputError("rows must be different, and seen versions")
        if action == RELABEL and label not in items.classes:
            raise unknown("class", label, items.classes)
        wanted = [_wanted(items, row, action, label, version) for row, version in zip(rows, seen, strict=True)]
        return self._answer(self.store.decide(wanted, who=who, session=session, looked=looked))

    def undo(self, who: str, session: str) -> dict[str, Any]:
        """Take back the last stroke of a session."""
        return self._answer(self.store.undo(session=session, who=who))

    def _answer(self, outcome: Outcome) -> dict[str, Any]:
        self._sync()
        rows = [self.items.row[one.id] for one in outcome.written if one.id in self.items.row]
        others = [self.items.row[one.id] for one in outcome.conflicts if one.id in self.items.row]
        return {
            "items": [self.describe(row) for row in rows[:SHOWN]],
            "rows": len(rows),
            "conflicts": [self.describe(row) for row in others[:SHOWN]],
            "version": self.items.seen,
        }

    def export(self) -> dict[str, Any]:
        """Write the corrected data beside the decisions."""
        if self._export is None:
            raise InputError("this data cannot be written in its own form here; download the decisions instead")
        done = self._export()
        return {
            "path": str(done.path), "changed": sum(done.changed.values()), "dropped": done.dropped,
            "confirmed": done.confirmed, "rows": done.n,
        }  # fmt: skip

    def decisions_csv(self) -> str:
        """The decisions as CSV."""
        return decisions_csv(decisions_of(self.folder))


def _wanted(items: Items, row: int, action: str, label: str, version: int) -> Wanted:
    """A decision of a row: to relabel it to what it is, is to keep it."""
    given = now = items.classes[items.label[row]]
    if action in ("accept", RELABEL):
        now = label if action == RELABEL else items.classes[items.suggested[row]]
        action = KEEP if now == given else RELABEL
    return Wanted(items.ids[row], str(items.split[row]), given, action, now, version)


def _is_row(value: Any, end: int) -> bool:
    return type(value) is int and 0 <= value < end

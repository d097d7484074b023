"""What was decided: an append-only log in SQLite, in the folder of the run or audit that is reviewed.

A decision is in the file, and on the disk, before it is acknowledged. Nothing is ever changed or removed: an undo, too,
is an entry, which restores what was before. The newest entry of an id is what holds; the view `current` has them, and
`noiseproof.data.decisions` reads it.

Two who decide the same example are told: a decision says which version of the example it has seen, and one that has
seen an older one than there is, is not written but handed back.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple

from noiseproof.data.decisions import DROP, FILE, KEEP, RELABEL
from noiseproof.errors import InputError, reason

SKIP, UNDECIDED = "skip", "undecided"
ACTIONS = (KEEP, RELABEL, DROP, SKIP, UNDECIDED)

_SCHEMA = """
CREATE TABLE IF NOT EXISTS log (
    version INTEGER PRIMARY KEY AUTOINCREMENT,
    batch INTEGER NOT NULL,  -- entries of one stroke
    id TEXT NOT NULL,
    split TEXT NOT NULL,
    given TEXT NOT NULL,  -- the class it has in the data
    action TEXT NOT NULL CHECK (action IN ('keep', 'relabel', 'drop', 'skip', 'undecided')),
    label TEXT NOT NULL,  -- the class it has from now on
    looked INTEGER NOT NULL,  -- whether the example was looked at, or decided with a whole group
    who TEXT NOT NULL,
    at TEXT NOT NULL,
    session TEXT NOT NULL,  -- the tab it was decided in: each undoes its own
    previous INTEGER REFERENCES log (version),  -- what it was before
    undoes INTEGER  -- the batch that this takes back
);
CREATE INDEX IF NOT EXISTS by_id ON log (id, version);
CREATE INDEX IF NOT EXISTS by_batch ON log (batch);
CREATE INDEX IF NOT EXISTS by_session ON log (session, batch);
CREATE VIEW IF NOT EXISTS current AS
    SELECT * FROM log WHERE version = (SELECT max(version) FROM log AS other WHERE other.id = log.id);
CREATE TRIGGER IF NOT EXISTS no_update BEFORE UPDATE ON log BEGIN SELECT raise(ABORT, 'the log is append-only'); END;
CREATE TRIGGER IF NOT EXISTS no_delete BEFORE DELETE ON log BEGIN SELECT raise(ABORT, 'the log is append-only'); END;
"""


class Entry(NamedTuple):
    """A line of the log."""

    version: int
    batch: int
    id: str
    split: str
    given: str
    action: str
    label: str
    looked: int
    who: str
    at: str
    session: str
    previous: int | None
    undoes: int | None


class Wanted(NamedTuple):
    """A decision to write."""

    id: str
    split: str
    given: str
    action: str
    label: str
    seen: int  # the version of the newest entry of the id that the reviewer knew of; 0: none


class Outcome(NamedTuple):
    """What came of a stroke: the entries written, and those of others that stood in the way."""

    written: list[Entry]
    conflicts: list[Entry]


class Store:
    """The decisions of a folder. Safe to use from several threads, and from several processes at once."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE
        self._lock = threading.Lock()
        try:
            self._base = sqlite3.connect(self.path, timeout=10, isolation_level=None, check_same_thread=False)
            self._base.execute("PRAGMA journal_mode = WAL")
            self._base.execute("PRAGMA synchronous = FULL")  # on the disk before it is acknowledged
            self._base.executescript(_SCHEMA)
        except sqlite3.Error as error:
            raise InputError(
                f"{self.path} cannot be opened ({reason(error)}); move it away, or free the disk"
            ) from error

    def close(self) -> None:
        self._base.close()

    def decide(self, wanted: Sequence[Wanted], *, who: str = "", session: str = "", looked: bool = True) -> Outcome:
        """Write a decision for each example, but those that somebody else has decided since they were seen."""
        with self._writing():
            batch, at = self._next_batch(), _now()
            newest = {one.id: self._newest(one.id) for one in wanted}
            conflicts = [entry for one in wanted if (entry := newest[one.id]) and entry.version != one.seen]
            barred = {entry.id for entry in conflicts}
            rows = [
                (batch, one.id, one.split, one.given, one.action, one.label, looked, who, at, session,
                 entry.version if (entry := newest[one.id]) else None, None)
                for one in wanted if one.id not in barred
            ]  # fmt: skip
            return Outcome(self._append(batch, rows), conflicts)

    def undo(self, *, session: str, who: str = "") -> Outcome:
        """Take back the last stroke of a session that it has not taken back yet."""
        with self._writing():
            last = self._base.execute(
                "SELECT max(batch) FROM log WHERE session = ? AND undoes IS NULL"
                " AND batch NOT IN (SELECT undoes FROM log WHERE session = ? AND undoes IS NOT NULL)",
                (session, session),
            ).fetchone()[0]
            undone = self._entries("batch = ?", last)
            conflicts = [
                entry for one in undone if self._standing(one.id) != one and (entry := self._newest(one.id)) is not None
            ]
            barred = {entry.id for entry in conflicts}
            batch, at = self._next_batch(), _now()
            rows = []
            for one in (one for one in undone if one.id not in barred):
                before = self._at(one.previous)
                action, label, looked = (
                    (before.action, before.label, before.looked) if before else (UNDECIDED, one.given, 0)
                )
                rows.append(
                    (batch, one.id, one.split, one.given, action, label, looked, who, at, session, one.version, last)
                )
            return Outcome(self._append(batch, rows), conflicts)

    def since(self, version: int) -> list[Entry]:
        """The entries after a version, oldest first."""
        with self._lock:
            return self._entries("version > ?", version)

    def history(self, id: str) -> list[Entry]:
        """All that was decided of an example, oldest first."""
        with self._lock:
            return self._entries("id = ?", id)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """One writer at a time, in this process and in others; all is written, or nothing."""
        with self._lock:
            self._base.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                self._base.execute("ROLLBACK")
                raise
            self._base.execute("COMMIT")

    def _append(self, batch: int, rows: Iterable[tuple[Any, ...]]) -> list[Entry]:
        columns = ", ".join(Entry._fields[1:])
        marks = ", ".join("?" * (len(Entry._fields) - 1))
        self._base.executemany(f"INSERT INTO log ({columns}) VALUES ({marks})", rows)
        return self._entries("batch = ?", batch)

    def _entries(self, where: str, value: Any) -> list[Entry]:
        columns = ", ".join(Entry._fields)
        found = self._base.execute(f"SELECT {columns} FROM log WHERE {where} ORDER BY version", (value,))
        return [Entry(*row) for row in found]

    def _newest(self, id: str) -> Entry | None:
        columns = ", ".join(Entry._fields)
        row = self._base.execute(f"SELECT {columns} FROM log WHERE id = ? ORDER BY version DESC LIMIT 1", (id,))
        found = row.fetchone()
        return None if found is None else Entry(*found)

    def _at(self, version: int | None) -> Entry | None:
        found = self._entries("version = ?", version)
        return found[0] if found else None

    def _standing(self, id: str) -> Entry | None:
        """The entry that holds for an id, undone ones and their undoing aside."""
        entry = self._newest(id)
        while entry is not None and entry.undoes is not None:
            undone = self._at(entry.previous)
            entry = self._at(undone.previous) if undone is not None else None
        return entry

    def _next_batch(self) -> int:
        return self._base.execute("SELECT ifnull(max(batch), 0) + 1 FROM log").fetchone()[0]


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")

"""The log of decisions: append-only, told apart by version, undone by session, and whole after a kill."""

from __future__ import annotations

import copy
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from noiseproof.data.decisions import DROP, KEEP, RELABEL, decisions_of
from noiseproof.errors import InputError
from noiseproof.reviewing.store import SKIP, UNDECIDED, Store, Wanted


def wanted(id: str, action: str = RELABEL, label: str = "dog", seen: int = 0) -> Wanted:
    return Wanted(id, "train", "cat", action, label, seen)


@pytest.fixture
def store(tmp_path: Path):
    one = Store(tmp_path)
    yield one
    one.close()


def test_an_entry_says_who_when_and_what_was_before(store: Store) -> None:
    first = store.decide([wanted("a")], who="Ada", session="s").written[0]
    second = store.decide([wanted("a", DROP, "cat", first.version)], who="Bob", session="t").written[0]
    assert (second.previous, second.who, second.given, second.action) == (first.version, "Bob", "cat", DROP)
    assert second.at >= first.at > "2020"
    assert [one.action for one in store.history("a")] == [RELABEL, DROP]
    assert store._base.execute("PRAGMA journal_mode").fetchone()[0] == "wal"


def test_who_has_not_seen_the_newest_is_told_and_nothing_is_overwritten(store: Store) -> None:
    first = store.decide([wanted("a", KEEP, "cat"), wanted("b")], who="Ada").written
    outcome = store.decide([wanted("a", DROP, "cat", 0), wanted("c")], who="Bob")
    assert [one.id for one in outcome.written] == ["c"]
    assert outcome.conflicts == [first[0]]
    again = store.decide([wanted("a", DROP, "cat", outcome.conflicts[0].version)], who="Bob")  # knowing of it
    assert (len(again.written), again.conflicts) == (1, [])


def test_undo_restores_what_was_before_step_by_step(store: Store) -> None:
    first = store.decide([wanted("a")], session="s").written[0]
    store.decide([wanted("a", DROP, "cat", first.version), wanted("b", SKIP, "cat")], session="s")
    undone = store.undo(session="s").written
    assert [(one.id, one.action, one.label) for one in undone] == [("a", RELABEL, "dog"), ("b", UNDECIDED, "cat")]
    assert [one.action for one in store.undo(session="s").written] == [UNDECIDED]
    assert store.undo(session="s") == ([], [])
    assert len(store.since(0)) == 6  # nothing was removed


def test_undo_leaves_what_others_decided_since(store: Store) -> None:
    first = store.decide([wanted("a")], session="s").written[0]
    other = store.decide([wanted("a", DROP, "cat", first.version)], session="t").written[0]
    outcome = store.undo(session="s")
    assert (outcome.written, outcome.conflicts) == ([], [other])
    assert [one.action for one in store.undo(session="t").written] == [RELABEL]


def test_the_log_cannot_be_changed(store: Store) -> None:
    store.decide([wanted("a")])
    for statement in ("UPDATE log SET label = 'x'", "DELETE FROM log"):
        with pytest.raises(sqlite3.IntegrityError, match="append-only"):
            store._base.execute(statement)


def test_two_processes_see_each_other(tmp_path: Path, store: Store) -> None:
    other = Store(tmp_path)
    first = store.decide([wanted("a")]).written[0]
    assert other.since(0) == [first]
    assert other.decide([wanted("a", DROP, "cat")]).conflicts == [first]
    other.close()


def test_threads_lose_nothing(store: Store) -> None:
    def work(name: str) -> None:
        for i in range(25):
            store.decide([wanted(f"{name}{i}")], session=name)

    threads = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    entries = store.since(0)
    assert len(entries) == len({one.id for one in entries}) == len({one.batch for one in entries}) == 100


def test_a_stroke_that_fails_leaves_nothing(store: Store) -> None:
    with pytest.raises(sqlite3.IntegrityError):
        store.decide([wanted("a"), wanted("b", "shred")])
    assert store.since(0) == []


WRITER = """
import sys
from pathlib import Path
from typing import Any
from noiseproof.reviewing.store import Store, Wanted
store = Store(Path(sys.argv[1]))
for i in range(100000):
    store.decide([Wanted(f"{i}-{j}", "train", "cat", "keep", "cat", 0) for j in range(3)])
    print(i, flush=True)
"""


def test_what_was_acknowledged_survives_a_kill(tmp_path: Path) -> None:
    worker = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert worker.stdout is not None
    acknowledged = [int(worker.stdout.readline()) for _ in range(40)]
    os.kill(worker.pid, signal.SIGKILL)
    rest = worker.stdout.read().splitlines()
    worker.wait()
    worker.stdout.close()
    last = int(rest[-1]) if rest else acknowledged[-1]
    found = decisions_of(tmp_path)
    assert {f"{i}-{j}" for i in range(last + 1) for j in range(3)} <= set(found)
    assert len(found) % 3 == 0  # a stroke is there whole or not at all


def test_another_file_in_its_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "decisions.sqlite").write_text("not a database, but long enough to look like one" * 20)
    with pytest.raises(InputError, match=r"decisions.sqlite cannot be opened"):
        Store(tmp_path)


def test_a_decision_is_of_the_table_it_was_made_on(review: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The labels may be judged again while it is looked at: the rows of the new list are other examples."""
    first, seen = review.items, []

    def swapped(value: Any, end: int) -> bool:
        review.items = copy.copy(first)
        review.items.ids = first.ids[::-1]
        seen.append(value)
        return True

    monkeypatch.setattr("noiseproof.reviewing.session._is_row", swapped)
    review.decide([0], [0], "drop", "", stamp=0)
    assert seen
    assert [one.id for one in review.store.since(0)] == [first.ids[0]]

"""The rows of a labels.parquet, in its order, with what was decided of each; filters over them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow.compute as pc

from noiseproof.data.decisions import DROP, KEEP, RELABEL
from noiseproof.errors import InputError, unknown
from noiseproof.reviewing.store import ACTIONS, UNDECIDED, Entry

LABELS = "labels.parquet"
KINDS = {"label": "another class fits", "off-topic": "no class fits", "duplicate": "a near-duplicate has another label"}
ORDERS = ("suspicion", "pair", "group", "id")
STATES = ("any", "open", "decided", *ACTIONS[:-1])
_DECIDED = (KEEP, RELABEL, DROP)
_NEEDED = {
    "id": str, "split": str, "label": str, "probability_wrong": float, "issue": bool, "kind": str, "suggested": str,
    "confidence": float, "advice": str, "candidates": list, "candidate_probabilities": list, "group": int,
}  # fmt: skip


class Items:
    """The examples to review.

    Attributes:
        ids (n,); classes, the names; label, suggested (n,) positions in them; p, confidence (n,); issue (n,) bool;
        split, kind, advice (n,) text; group (n,), -1 for none.
        action (n,) positions in ACTIONS; now (n,) the class decided on; version (n,) of the newest entry, 0 for none;
        looked (n,) whether it was looked at; entries, the newest entry of each row that has one.
    """

    def __init__(self, path: Path, class_names: Sequence[str] = ()) -> None:
        table = _read(path)
        self.stamp = path.stat().st_mtime_ns % 10**9  # tells this table from one that takes its place
        self.ids: list[str] = table.column("id").to_pylist()
        self.row = {id: row for row, id in enumerate(self.ids)}
        if len(self.row) != len(self.ids):
            raise InputError(f"{path} has an id twice; write it again with noiseproof audit or fit")
        self._candidates, self._shares = (table.column(name) for name in ("candidates", "candidate_probabilities"))
        coded = {name: _coded(table.column(name)) for name in ("label", "suggested", "split", "kind", "advice")}
        named = {*coded["label"][1], *coded["suggested"][1], *_coded(pc.list_flatten(self._candidates))[1]}
        self.classes = [*class_names, *sorted(named - set(class_names))]
        place = {name: k for k, name in enumerate(self.classes)}
        self.label, self.suggested = (
            np.array([place[name] for name in names])[code] for code, names in (coded["label"], coded["suggested"])
        )
        self.split, self.kind, self.advice = (
            np.array(names)[code] for code, names in (coded["split"], coded["kind"], coded["advice"])
        )
        self.p, self.confidence = (
            table.column(name).to_numpy().astype(np.float64) for name in ("probability_wrong", "confidence")
        )
        self.issue, self.group = table.column("issue").to_numpy(), table.column("group").to_numpy().astype(np.int64)
        n = len(self.ids)
        self.action = np.full(n, ACTIONS.index(UNDECIDED), dtype=np.int8)
        self.now, self.version, self.looked = self.label.copy(), np.zeros(n, dtype=np.int64), np.zeros(n, dtype=bool)
        self.entries: dict[int, Entry] = {}
        self.seen = 0  # the version up to which the log is taken in

    def __len__(self) -> int:
        return len(self.ids)

    def take_in(self, entries: Iterable[Entry]) -> list[int]:
        """Let what the log says hold; the rows it is about."""
        place = {name: k for k, name in enumerate(self.classes)}
        rows = []
        for entry in entries:
            self.seen = max(self.seen, entry.version)
            row = self.row.get(entry.id)
            if row is None or entry.label not in place:  # of an earlier audit, of more data
                continue
            self.action[row], self.now[row] = ACTIONS.index(entry.action), place[entry.label]
            self.version[row], self.looked[row] = entry.version, bool(entry.looked)
            self.entries[row] = entry
            rows.append(row)
        return rows

    @property
    def decided(self) -> np.ndarray:
        """(n,) whether it was decided: to keep, to relabel or to drop."""
        return np.isin(self.action, [ACTIONS.index(one) for one in _DECIDED])

    def find(self, wanted: Mapping[str, str]) -> np.ndarray:
        """The rows that pass every filter, in the order asked for.

        Args:
            wanted: any of label, suggested (class names), kind, split, state, above (a probability), group,
                issue ("1"), search (a part of the id) and order.
        """
        mask = np.ones(len(self), dtype=bool)
        for name, value in wanted.items():
            if value == "" or name == "order":
                continue
            if name not in self._FILTERS:
                raise unknown("filter", name, self._FILTERS)
            mask &= self._FILTERS[name](self, value)
        rows = np.flatnonzero(mask)
        order = wanted.get("order") or ORDERS[0]
        if order == "pair":
            pair = self.label[rows] * len(self.classes) + self.suggested[rows]
            sizes = np.bincount(pair, minlength=len(self.classes) ** 2) if len(rows) else np.zeros(1)
            return rows[np.lexsort((rows, pair, -sizes[pair]))]
        if order == "group":
            group = np.where(self.group[rows] < 0, np.iinfo(np.int64).max, self.group[rows])
            return rows[np.lexsort((rows, group))]
        if order == "id":
            return np.array(sorted(rows.tolist(), key=lambda row: _natural(self.ids[row])), dtype=np.int64)
        if order != ORDERS[0]:
            raise unknown("order", order, ORDERS)
        return rows

    def _of_class(self, column: np.ndarray, name: str) -> np.ndarray:
        return column == (self.classes.index(name) if name in self.classes else -1)

    def _in_state(self, state: str) -> np.ndarray:
        if state not in STATES:
            raise unknown("state", state, STATES)
        if state == "any":
            return np.ones(len(self), dtype=bool)
        if state == "decided":
            return self.decided
        return self.action == ACTIONS.index(UNDECIDED if state == "open" else state)

    def _searched(self, text: str) -> np.ndarray:
        return np.fromiter((text.lower() in id.lower() for id in self.ids), dtype=bool, count=len(self))

    _FILTERS: ClassVar[dict[str, Callable[[Items, str], np.ndarray]]] = {
        "label": lambda self, value: self._of_class(self.label, value),
        "suggested": lambda self, value: self._of_class(self.suggested, value),
        "kind": lambda self, value: self.kind == value,
        "split": lambda self, value: self.split == value,
        "state": _in_state,
        "above": lambda self, value: self.p >= _number("above", value),
        "group": lambda self, value: self.group == int(_number("group", value)),
        "issue": lambda self, value: self.issue == (value == "1"),
        "search": _searched,
    }

    def describe(self, row: int) -> dict[str, Any]:
        """A row as JSON."""
        entry = self.entries.get(row)
        return {
            "row": row,
            "id": self.ids[row],
            "split": str(self.split[row]),
            "label": self.classes[self.label[row]],
            "suggested": self.classes[self.suggested[row]],
            "confidence": round(float(self.confidence[row]), 4),
            "p": round(float(self.p[row]), 4),
            "issue": bool(self.issue[row]),
            "kind": str(self.kind[row]),
            "advice": str(self.advice[row]),
            "group": int(self.group[row]),
            "candidates": [[name, round(value, 4)] for name, value in self.candidates(row)],
            "why": self._why(row),
            "action": ACTIONS[self.action[row]],
            "now": self.classes[self.now[row]],
            "version": int(self.version[row]),
            "who": entry.who if entry else "",
            "at": entry.at if entry else "",
        }

    def candidates(self, row: int) -> list[tuple[str, float]]:
        """The likeliest classes of a row, and their probabilities."""
        return list(zip(self._candidates[row].as_py(), self._shares[row].as_py(), strict=False))

    def _why(self, row: int) -> str:
        """Why the label is suspected, in a sentence."""
        label, suggested = self.classes[self.label[row]], self.classes[self.suggested[row]]
        given = dict(self.candidates(row)).get(label)
        share = f"{label} has {_percent(given)}" if given is not None else f"{label} is not among the five likeliest"
        if self.kind[row] == "duplicate":
            return f"It is nearly the same as another example (group {self.group[row]}) that has another label."
        if self.kind[row] == "off-topic":
            return f"No class fits well: the likeliest, {suggested}, has {_percent(self.confidence[row])}."
        if suggested == label:
            return f"The label fits: {share}. Its chance to be wrong is {_percent(self.p[row])}."
        return f"{suggested} fits with {_percent(self.confidence[row])}; {share}."

    def pairs(self, most: int = 60) -> list[dict[str, Any]]:
        """The class pairs (given, suggested) that suspected rows are of, those with most open rows first."""
        wanted = np.flatnonzero(self.issue & (self.label != self.suggested))
        code = self.label[wanted] * len(self.classes) + self.suggested[wanted]
        pairs, at, count = np.unique(code, return_inverse=True, return_counts=True)
        left = np.bincount(at, weights=self.action[wanted] == ACTIONS.index(UNDECIDED), minlength=len(pairs))
        order = np.lexsort((-count, -left))[:most]
        found = []
        for i in order:
            label, suggested = (self.classes[k] for k in divmod(int(pairs[i]), len(self.classes)))
            found.append({"label": label, "suggested": suggested, "count": int(count[i]), "open": int(left[i])})
        return found

    def facts(self) -> dict[str, Any]:
        """What the page offers as filters."""
        groups = self.group[self.group >= 0]
        return {
            "rows": len(self),
            "classes": self.classes,
            "splits": sorted(set(self.split.tolist())),
            "kinds": {kind: int((self.kind == kind).sum()) for kind in KINDS if (self.kind == kind).any()},
            "groups": len(np.unique(groups)),
            "issues": int(self.issue.sum()),
            "orders": ORDERS,
        }


def _read(path: Path) -> Any:
    """The table, its columns checked."""
    import pyarrow.types as kinds

    from noiseproof.data.readers.table_files import is_parquet, read_table

    remedy = "write it again with noiseproof audit or fit"
    if not path.is_file() or not is_parquet(path):
        problem = "is no Parquet file" if path.is_file() else "does not exist"
        raise InputError(f"{path} {problem}; pass the folder of a finished noiseproof fit or audit")
    tests = {
        str: lambda kind: kinds.is_string(kind) or kinds.is_large_string(kind) or kinds.is_dictionary(kind),
        float: kinds.is_floating, bool: kinds.is_boolean, int: kinds.is_integer, list: kinds.is_list,
    }  # fmt: skip
    table = read_table(path)
    for name, kind in _NEEDED.items():
        if name not in table.column_names or not tests[kind](table.schema.field(name).type):
            raise InputError(f"{path} has no column {name!r} to review by; {remedy}")
        if table.column(name).null_count:
            raise InputError(f"{path} has missing values in {name!r}; {remedy}")
    return table.select(list(_NEEDED))


def _coded(column: Any) -> tuple[np.ndarray, list[str]]:
    """A column of text as positions (n,) in the names that it holds."""
    coded = pc.dictionary_encode(column.cast("string"))
    coded = coded.combine_chunks() if hasattr(coded, "combine_chunks") else coded
    return coded.indices.to_numpy(), coded.dictionary.to_pylist()


def _number(name: str, value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise InputError(f"{name} must be a number, got {value!r:.40}") from None


def _percent(value: float) -> str:
    return f"{100 * value:.0f} %" if 0.01 <= value < 0.995 else f"{100 * value:.1f} %"


def _natural(text: str) -> tuple[int, int, str]:
    return (0, int(text), "") if text.isdecimal() else (1, 0, text)

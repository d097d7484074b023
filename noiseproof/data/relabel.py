"""Write corrected data in the form it came in: an image folder, a CSV, Parquet or npz file. Sources stay untouched."""

from __future__ import annotations

import csv
import io
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from noiseproof import files
from noiseproof.data import label_copies
from noiseproof.data.decisions import COLUMNS, DROP, Decision, Decisions, check_label, keys
from noiseproof.data.label_checks import check_whole
from noiseproof.data.readers import folder
from noiseproof.data.readers.builtin import BUILTIN
from noiseproof.errors import InputError, naming, shown

_FORMS = "relabel writes image folders sorted by class, CSV, Parquet and npz files"


@dataclass
class Relabelled:
    """What `relabel` did, or would do."""

    path: Path  # the corrected data
    n: int = 0  # examples of the source
    changed: Counter[tuple[str, str]] = field(default_factory=Counter)  # (class before, class now): how many
    dropped: int = 0
    confirmed: int = 0  # decided to be right as they are
    elsewhere: int = 0  # decisions of a test set that lies elsewhere
    table: Path | None = None  # the decisions that went into it, as CSV


@dataclass(frozen=True)
class _Change:
    """What becomes of the examples of one set."""

    labels: list[str]  # (n,) names of the classes they have from now on
    keep: np.ndarray  # (n,) bool


def relabel(
    source: str | os.PathLike[str],
    decisions: Mapping[str, Decision],
    out: str | os.PathLike[str],
    *,
    label_column: str | None = None,
    split: str = "train",
    copy: bool = False,
    anyway: bool = False,
    dry_run: bool = False,
) -> Relabelled:
    """Write a copy of the data under the labels decided for it, without the examples that were dropped.

    Decisions are joined by id, never by order. In tables and npz files the old labels are kept as `label_before`; in an
    image folder a corrected image lies in the folder of its new class. Beside the copy stands NAME.decisions.csv.

    Args:
        source: an image folder, or a CSV, Parquet or npz file.
        decisions: by id, as `decisions_of` reads them.
        out: the copy; of the form of the source, and not there yet if that is a folder.
        label_column: the column (npz: array) of labels; default the one with a usual name.
        split: "test" where the source is the test set of the reviewed data, in a file of its own.
        copy: copy images; by default they are hard links, where the disk allows it.
        anyway: also where an example has another label now than it had when it was decided.
        dry_run: write nothing.

    Raises:
        InputError: decisions of other data, a label that is no class, a form that cannot be written.
    """
    path, target = Path(source).expanduser(), Path(out)
    if str(source) in BUILTIN or not path.exists():
        what = "comes with no file" if str(source) in BUILTIN else "does not exist"
        raise InputError(f"{source} {what}; {_FORMS}; train on it as decided with fit --decisions")
    done = Relabelled(target)
    if split == "test":
        done.elsewhere = sum(one.split != "test" for one in decisions.values())
        decisions = {id.removeprefix("test:"): one for id, one in decisions.items() if one.split == "test"}
    join = _Join(dict(decisions), done, anyway)
    write = _folder(path, target, join, copy) if path.is_dir() else _file(path, target, join, label_column, split)
    join.finish(path)
    if not dry_run:
        write()
        done.table = target.with_name(f"{target.name if path.is_dir() else target.stem}.decisions.csv")
        files.write_text(done.table, decisions_csv(join.used))
    return done


class _Join:
    """Decisions and the examples they are of; counts what changes."""

    def __init__(self, decisions: Decisions, done: Relabelled, anyway: bool) -> None:
        self.decisions, self.done, self.anyway = decisions, done, anyway
        self.used: Decisions = {}

    def change(self, keys: Iterable[str], labels: list[str], classes: Iterable[str]) -> _Change:
        """What becomes of examples that are known by these keys and have these labels, names among the classes."""
        known, now, keep = set(classes), list(labels), np.ones(len(labels), dtype=bool)
        self.done.n += len(labels)
        for row, key in enumerate(keys):
            decision = self.decisions.get(key)
            if decision is None:
                continue
            self.used[key] = decision._replace(before=labels[row])
            self._check(key, decision, labels[row])
            if decision.action == DROP:
                keep[row], self.done.dropped = False, self.done.dropped + 1
            else:
                now[row] = check_label(key, decision, known)
                if now[row] == labels[row]:
                    self.done.confirmed += 1
                else:
                    self.done.changed[labels[row], now[row]] += 1
        return _Change(now, keep)

    def _check(self, key: str, decision: Decision, label: str) -> None:
        if not self.anyway and decision.before and label not in (decision.before, decision.label):
            raise InputError(
                f"the example {shown(key)} is a {label} in the data but was a {decision.before} when it was decided; "
                "pass the data that was reviewed, or add --anyway (anyway=True)"
            )

    def finish(self, source: Path) -> None:
        """Every decision must have found its example, but those of a test set in another file."""
        lost = {id: one for id, one in self.decisions.items() if id not in self.used}
        self.done.elsewhere += sum(one.split == "test" for one in lost.values())
        stranger = next((id for id, one in lost.items() if one.split != "test"), None)
        if stranger is not None:
            raise InputError(f"{source} has no example {shown(stranger)}; pass the data that was reviewed")
        if not self.used:
            raise InputError(f"none of the decisions is of {source}; pass the data that was reviewed")


def _file(path: Path, out: Path, join: _Join, label_column: str | None, split: str) -> Callable[[], None]:
    """How to write a corrected copy of a file; of an .npz file, of both of its sets."""
    label_copies.check_paths(path, out)
    if not label_copies.is_known(path):
        raise InputError(f"{path} is of another form; {_FORMS}; train on it as decided with fit --decisions")
    train = label_copies.opened(path, label_column, split)
    change = _changed(path, train, train.ids, join)
    tested = split == "train" and label_copies.has_test(path)
    if tested:
        test = label_copies.opened(path, None, "test")
        test_change = _changed(path, test, keys(test.ids, train.ids), join)

    def write() -> None:
        with files.replacing(out) as temporary:
            _write(train, temporary, change)
            if tested:  # the copy of a copy
                with files.replacing(temporary) as both:
                    _write(label_copies.opened(temporary, None, "test"), both, test_change)

    return write


def _changed(path: Path, labels: label_copies.Labels, keys: Sequence[str], join: _Join) -> _Change:
    if labels.values.dtype.kind not in "US":
        with naming(path):
            check_whole(labels.name, labels.values)
    classes = labels.classes()
    name = {value: label for label, value in classes.items()}
    for row, value in enumerate(values := labels.values.tolist()):
        if value not in name:
            raise InputError(f"{path} has the label {value} at row {row}, and no name for it; name each class")
    return join.change(keys, [name[value] for value in values], classes)


def _write(labels: label_copies.Labels, path: Path, change: _Change) -> None:
    classes = labels.classes()
    new = np.array([classes[name] for name in change.labels])
    labels.write(path, new, change.keep, None if label_copies.BEFORE in labels.columns else label_copies.BEFORE)


def _folder(path: Path, out: Path, join: _Join, copy: bool) -> Callable[[], None]:
    """How to write a corrected copy of an image folder: hard links or copies, each in the folder of its class."""
    if out.exists() or not out.absolute().parent.is_dir():
        problem = "is there already" if out.exists() else "would lie in a folder that does not exist"
        raise InputError(f"{out} {problem}; name a new folder")
    if path.resolve() in out.resolve().parents:
        raise InputError(f"{out} lies inside {path}, which would then hold its own copy; write elsewhere")
    roots = folder.roots(path)
    if not roots:
        raise InputError(f"{path} is no folder of images sorted by class; {_FORMS}")
    moves: list[tuple[Path, Path]] = []  # (image, its place below the copy)
    beside: list[str] = []
    for root in roots.values():
        class_names, images, labels = folder.listed(root, roots["train"])
        ids = folder.image_ids(root, images)
        change = join.change(keys(ids, beside), [class_names[k] for k in labels], class_names)
        moves += _places(images, ids, change, root.relative_to(path))
        beside = beside or ids

    def write() -> None:
        temporary = out.with_name(f".{out.name}.{os.getpid()}.tmp")
        try:
            for image, place in moves:
                (temporary / place).parent.mkdir(parents=True, exist_ok=True)
                _bring(image, temporary / place, copy)
            os.replace(temporary, out)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)

    return write


def _places(images: list[Path], ids: list[str], change: _Change, below: Path) -> list[tuple[Path, Path]]:
    """Where each image goes that is kept; one that would take the place of another gets the name of its old class."""
    places, taken = [], set[Path]()
    moved = [label != id.split("/")[0] for id, label in zip(ids, change.labels, strict=True)]
    for row in sorted(np.flatnonzero(change.keep).tolist(), key=moved.__getitem__):  # first those that stay
        old, _, rest = ids[row].partition("/")
        place = below / change.labels[row] / rest
        number = 1
        while place in taken:
            ending = f"-{old}" if number == 1 else f"-{old}-{number}"
            place = below / change.labels[row] / Path(rest).with_name(f"{Path(rest).stem}{ending}{Path(rest).suffix}")
            number += 1
        taken.add(place)
        places.append((images[row], place))
    return places


def _bring(image: Path, target: Path, copy: bool) -> None:
    if not copy:
        try:
            os.link(os.path.realpath(image), target)
            return
        except OSError:  # another disk, or one without links
            pass
    shutil.copy2(image, target)


def decisions_csv(decisions: Mapping[str, Decision]) -> str:
    """A table of decisions that anyone can read, `decisions_of` too."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows((id, *decision) for id, decision in decisions.items())
    return text.getvalue()

"""`review`, `relabel` and `fit --decisions`: the loop from a run to corrected data and back, on every form of data."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from reviewing.conftest import NO_OPTIONS
from reviewing.support import digit_folder, digit_rows, write_audit, write_labels

from noiseproof.cli.review import opened
from noiseproof.data import load
from noiseproof.data.decisions import decisions_of
from noiseproof.errors import InputError

FIT = ("--epochs", "1", "--method", "ce", "--quiet")


def source(form: str, root: Path) -> tuple[Path, dict[str, str]]:
    """Digits with wrong labels in one of the forms; and the true label of each id."""
    if form == "folder":
        path, rows = digit_folder(root / "digits", 200)
        return path, {row["id"]: row["truth"] for row in rows}
    data, rows = digit_rows(200)
    inputs, labels = data.inputs.numpy(), np.array([row["label"] for row in rows])
    path = root / f"digits.{form}"
    if form == "npz":
        np.savez(path, x=inputs, y=labels.astype(np.int64))
        return path, {row["id"]: row["truth"] for row in rows}
    names = [f"n{row['id']}" for row in rows]
    columns: dict[str, Any] = {f"p{j}": inputs.reshape(200, -1)[:, j].astype(np.float32) for j in range(0, 64, 2)}
    table = pa.table({"id": names, **columns, "label": labels})
    pa.csv.write_csv(table, path) if form == "csv" else pq.write_table(table, path)
    return path, {f"n{row['id']}": row["truth"] for row in rows}


def audited(run: Path) -> None:
    """The labels.parquet of a run in the form that is reviewed; as it is, if that is what it has."""
    table = pq.read_table(run / "labels.parquet")
    if "probability_wrong" in table.column_names:
        return
    rows = table.to_pylist()
    write_labels(run / "labels.parquet", [
        {"id": row["id"], "label": row["label"], "suggested": row["suggested"], "p": row["suspicion"],
         "split": row["split"], "issue": row["suspicion"] > 0.5} for row in rows
    ])  # fmt: skip


@pytest.mark.parametrize("form", ["folder", "csv", "parquet", "npz"])
def test_the_loop_from_a_run_to_corrected_data_and_back(form: str, tmp_path: Path, command: Any) -> None:
    import pyarrow.csv  # noqa: F401

    path, truth = source(form, tmp_path)
    assert command("fit", path, *FIT, "--out", "run")[0] == 0
    run = Path("run")
    audited(run)
    review = opened(run, NO_OPTIONS)
    items, by = review.items, {"who": "Ada", "session": "s", "stamp": review.items.stamp}
    wrong = [row for row in range(len(items)) if truth[items.ids[row]] != items.classes[items.label[row]]]
    for row in wrong[:15]:
        review.decide([row], [0], "relabel", truth[items.ids[row]], looked=True, **by)
    review.decide([wrong[15]], [0], "drop", "", looked=True, **by)
    kept = next(row for row in range(len(items)) if row not in wrong)
    review.decide([kept], [0], "keep", "", looked=True, **by)
    review.close()

    out = Path("clean") if form == "folder" else Path(f"clean.{form}")
    code, said, error = command("relabel", path, "--decisions", run, "--out", out)
    assert code == 0, error
    assert "15 of 200 labels change" in said
    before, after = load(path).numbered(), load(out).numbered()
    gone = items.ids[wrong[15]]
    labels = {str(id): before.class_names[k] for id, k in zip(before.ids or (), before.labels.tolist(), strict=True)}
    expected = labels | {items.ids[row]: truth[items.ids[row]] for row in wrong[:15]}
    del expected[gone]
    if form == "folder":  # the id of an image is where it lies
        images = {Path(id).name.split("-")[0].split(".")[0]: id.split("/")[0] for id in after.ids or ()}
        assert images == {Path(id).stem: label for id, label in expected.items()}
    else:
        names = [id for id in labels if id != gone] if form == "npz" else [str(id) for id in after.ids or ()]
        found = [after.class_names[k] for k in after.labels.tolist()]
        assert dict(zip(names, found, strict=True)) == expected
    table = decisions_of("clean.decisions.csv")
    assert len(table) == 17
    assert command("fit", out, *FIT, "--out", "again")[0] == 0
    assert command("fit", path, *FIT, "--decisions", run, "--out", "third")[0] == 0
    call = json.loads(Path("third/config.json").read_text())
    assert call["command"]["decisions"] == str(run.absolute())
    third = {row["id"]: row["label"] for row in pq.read_table("third/labels.parquet").to_pylist()}
    assert gone not in third
    assert all(third[id] == label for id, label in expected.items() if id in third)


def test_decisions_reach_a_run_after_its_noise(tmp_path: Path, command: Any) -> None:
    (tmp_path / "d.csv").write_text(
        "id,decision,label\n" + "".join(f"{i},relabel,{i % 10}\n" for i in range(0, 300, 7))
    )
    call = ("fit", "digits", "--noise", "symmetric:0.5", *FIT, "--limit", "300")
    assert command(*call, "--decisions", "d.csv", "--out", "with")[0] == 0
    assert command(*call, "--out", "without")[0] == 0
    labels = {out: {row["id"]: row["label"] for row in pq.read_table(f"{out}/labels.parquet").to_pylist()}
              for out in ("with", "without")}  # fmt: skip
    assert labels["with"].keys() == labels["without"].keys()
    decided = {str(i): str(i % 10) for i in range(0, 300, 7)}
    for id, label in labels["with"].items():
        assert label == decided.get(id, labels["without"][id])
    code, _, error = command("fit", "--out", "with", "--resume", "--decisions", "other.csv")
    assert (code, "was begun with decisions" in error) == (2, True)


def test_decisions_of_other_data_are_refused(tmp_path: Path, command: Any) -> None:
    (tmp_path / "d.csv").write_text("id,label\ncat/1.png,3\ncat/2.png,3\n")
    code, _, error = command("fit", "digits", *FIT, "--decisions", "d.csv", "--out", "x")
    assert (code, "decisions of other data" in error) == (2, True)


def test_auto_takes_what_is_sure_and_reviewed_rows_go_first(tmp_path: Path, command: Any) -> None:
    path, rows = digit_folder(tmp_path / "digits", 150)
    folder = write_audit(tmp_path / "audit", rows, path)
    sure = {
        row["id"]: row["suggested"] for row in rows if row["suggested"] != row["label"] and row["confidence"] >= 0.9
    }
    review = opened(folder, NO_OPTIONS)
    first = next(id for id in review.items.ids if id in sure)
    review.decide([review.items.row[first]], [0], "keep", "", stamp=review.items.stamp)
    review.close()
    code, said, _ = command("relabel", path, "--decisions", folder, "--auto", "0.9", "--out", "clean", "--dry-run")
    assert code == 0
    assert f"{len(sure) - 1} of 150 labels change" in said
    assert not Path("clean").exists()
    code, _, error = command("relabel", path, "--decisions", folder, "--auto", "90", "--out", "clean")
    assert (code, "write 40 % as 0.4" in error) == (2, True)


def refreshed(run: Path, truth: dict[str, str]) -> None:
    """Decide of some labels, rightly, judge all of them again, and see what has become of them."""
    review = opened(run, NO_OPTIONS)
    items, stamp = review.items, review.items.stamp
    wrong = [row for row in range(len(items)) if truth[items.ids[row]] != items.classes[items.label[row]]]
    dropped, *first = wrong[:21]
    for row in first:
        review.decide([row], [0], "relabel", truth[items.ids[row]], stamp=stamp)
    review.decide([dropped], [0], "drop", "", stamp=stamp)
    surest = [row for row in reversed(range(len(items))) if row not in wrong][:5]
    for row in surest:
        review.decide([row], [0], "keep", "", stamp=stamp)
    before = {id: items.p[row] for id, row in items.row.items()}
    assert review.refresh()["running"]
    while review.refreshing["running"]:
        time.sleep(0.05)
    assert review.refreshing["error"] == ""
    after = review.items
    assert after is not items
    assert sorted(after.ids) == sorted(items.ids)  # what was dropped is still listed
    for row in first:
        now = after.row[items.ids[row]]
        assert (after.p[now], after.classes[after.suggested[now]]) == (1.0, truth[items.ids[row]])
        assert after.decided[now]
    assert all(after.p[after.row[items.ids[row]]] == 0 for row in surest)
    rest = [id for id in after.ids if not after.decided[after.row[id]]]
    assert any(abs(before[id] - after.p[after.row[id]]) > 1e-6 for id in rest)
    assert (np.diff(after.p) <= 0).all()
    with pytest.raises(InputError, match="reload"):
        review.decide([0], [0], "keep", "", stamp=stamp)
    review.close()


def test_an_audit_is_judged_again_in_the_light_of_decisions(tmp_path: Path, command: Any) -> None:
    path, truth = source("folder", tmp_path)
    assert command("audit", path, "--quiet", "--out", "audit")[0] == 0
    refreshed(Path("audit"), truth)
    assert command("audit", path, "--quiet", "--decisions", "audit", "--out", "again")[0] == 0
    rows = {row["id"]: row for row in pq.read_table("again/labels.parquet").to_pylist()}
    decided = decisions_of("audit")
    assert len(rows) == 199
    assert all(rows[id]["suggested"] == one.label for id, one in decided.items() if one.action != "drop")


def test_a_run_is_judged_again_in_the_light_of_decisions(tmp_path: Path, command: Any) -> None:
    path, truth = source("npz", tmp_path)
    assert command("fit", path, *FIT, "--out", "run")[0] == 0
    refreshed(Path("run"), truth)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (("review", "nowhere"), "there is no folder nowhere"),
        (("review", "."), "there is no run in ."),
        (("relabel", "x.csv", "--decisions", ".", "--out", "y.csv"), "noiseproof review"),
        (("relabel", "x.csv", "--decisions", "d.csv", "--out", "y.csv"), "does not exist"),
    ],
)
def test_a_mistake_is_one_sentence(command: Any, call: tuple[str, ...], said: str) -> None:
    code, _, error = command(*call)
    assert code == 2
    assert said in error
    assert error.count("\n") == 1


def test_without_the_extra_the_remedy_is_told(command: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("noiseproof.reviewing.EXTRA", ("starlettte",))
    code, _, error = command("review", ".")
    assert (code, error) == (2, "error: review needs starlettte; run: pip install 'noiseproof[review]'\n")


def test_a_damaged_audit_is_refused(tmp_path: Path, command: Any) -> None:
    folder = write_audit(tmp_path / "audit", [{"id": "0", "label": "1", "suggested": "2", "p": 0.9}], "digits")
    for text in ("{", "[]", '{"command": 5}', '{"command": {"data": "digits", "image_size": "x"}}'):
        (folder / "audit.json").write_text(text)
        code, _, error = command("review", folder)
        assert (code, "damaged" in error) == (2, True), error


def test_a_taken_port_is_told(tmp_path: Path, command: Any) -> None:
    import socket

    _, rows = digit_rows(50)
    folder = write_audit(tmp_path / "audit", rows, "digits")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        code, _, error = command("review", folder, "--port", str(taken.getsockname()[1]), "--no-browser", "--quiet")
    assert (code, "cannot be used" in error) == (2, True)


def test_the_command_that_the_page_tells_names_the_label_column(tmp_path: Path, command: Any) -> None:
    rows = "".join(f"{i},{i % 5},{'oak' if i % 5 > 2 else 'elm'}\n" for i in range(60))
    Path("trees.csv").write_text(f"height,rings,the species\n{rows}")
    assert command("audit", "trees.csv", "--label-column", "the species", "--out", "audit", "-q")[0] == 0
    review = opened(Path("audit"), NO_OPTIONS)
    review.close()
    assert "trees.csv --label-column 'the species' --decisions audit --out CLEAN" in review.hint

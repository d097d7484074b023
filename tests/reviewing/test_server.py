"""The server: what it answers, and what it refuses: strangers, foreign names and pages, odd paths and large bodies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from reviewing.conftest import NO_OPTIONS
from reviewing.support import write_audit

from noiseproof.data.decisions import DROP, KEEP, RELABEL, decisions_of
from noiseproof.errors import InputError
from noiseproof.reviewing.door import LARGEST

BY = {"who": "Ada", "session": "s"}
PATHS = ["/", "/facts", "/rows", "/items?rows=0", "/detail/0", "/picture/0?size=96", "/progress", "/changes?since=0",
         "/decisions.csv", "/page/app.js", "/page/style.css"]  # fmt: skip


def decision(
    rows: list[int], action: str, label: str = "", seen: list[int] | None = None, **more: Any
) -> dict[str, Any]:
    base = {"stamp": 0, "rows": rows, "seen": seen or [0] * len(rows), "action": action, "label": label, "looked": True}
    return base | BY | more


def test_what_the_page_asks_for(served: Any) -> None:
    facts = served.ask.get("/facts").json()
    assert facts["rows"] == 120
    assert facts["image"]
    assert facts["who"] == "Ada"
    rows, versions = np.frombuffer(served.ask.get("/rows?issue=1&state=open").content, "<u4").reshape(2, -1)
    assert not versions.any()
    assert len(rows) == facts["issues"] == facts["progress"]["left"]
    items = served.ask.get(f"/items?rows={rows[0]},{rows[1]},999999,x").json()
    assert [item["row"] for item in items] == rows[:2].tolist()
    detail = served.ask.get(f"/detail/{rows[0]}").json()
    assert {one["label"] for one in detail["near"]["label"]} == {items[0]["label"]}
    assert {one["label"] for one in detail["near"]["suggested"]} == {items[0]["suggested"]}
    picture = served.ask.get(f"/picture/{rows[0]}?size=96")
    assert picture.headers["content-type"] == "image/png"
    for path in PATHS:
        assert served.ask.get(path).status_code in (200, 400), path


def test_a_decision_is_in_the_store_before_it_is_acknowledged(served: Any) -> None:
    item = served.ask.get("/items?rows=0").json()[0]
    done = served.ask.post("/decide", json=decision([0], "accept")).json()
    assert done["items"][0]["now"] == item["suggested"]
    assert decisions_of(served.review.folder)[item["id"]][:4] == (RELABEL, item["suggested"], item["label"], "Ada")
    told = served.ask.post("/decide", json=decision([0], DROP, session="t")).json()
    assert (told["rows"], told["conflicts"][0]["version"]) == (0, done["version"])
    assert served.ask.get("/changes?since=0").json()["items"][0]["row"] == 0
    undone = served.ask.post("/undo", json=BY).json()
    assert undone["items"][0]["action"] == "undecided"
    assert served.ask.get("/progress").json()["decided"] == 0


def test_to_relabel_to_the_same_class_is_to_keep(served: Any) -> None:
    item = served.ask.get("/items?rows=5").json()[0]
    assert served.ask.post("/decide", json=decision([5], RELABEL, item["label"])).json()["items"][0]["action"] == KEEP


def test_rows_of_another_table_are_not_decided(served: Any) -> None:
    answer = served.ask.post("/decide", json=decision([0], KEEP, stamp=1))
    assert (answer.status_code, "reload" in answer.json()["error"]) == (400, True)
    assert served.review.store.since(0) == []


def test_whole_groups_are_one_stroke(served: Any) -> None:
    rows = list(range(40))
    done = served.ask.post("/decide", json=decision(rows, KEEP, looked=False)).json()
    assert done["rows"] == 40
    figures = served.ask.get("/progress").json()
    assert (figures["decided"], figures["looked"]) == (40, 0)
    assert served.ask.post("/undo", json=BY).json()["rows"] == 40


@pytest.mark.parametrize("path", PATHS)
def test_who_has_no_pass_sees_nothing(served: Any, path: str) -> None:
    assert served.stranger.get(path).status_code == 403
    cookie = {"cookie": f"{served.door.cookie}=guess"}
    assert served.stranger.get(path, headers=cookie).status_code == 403
    assert served.stranger.get(path, headers={"cookie": '";=,'}).status_code == 403


def test_a_link_opens_once(served: Any) -> None:
    assert len(served.links) == 1  # that of the browser that came in
    link = served.door.link
    assert served.stranger.get("/?token=wrong").status_code == 403
    assert served.stranger.get("/?token=").status_code == 403
    assert served.stranger.get(link).status_code == 200
    assert served.stranger.get("/facts").status_code == 200
    served.stranger.cookies.clear()
    assert served.stranger.get(link).status_code == 403
    cookie = served.ask.get(served.door.link).headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1:1", "127.0.0.1", "localhost:8000.evil.example"])
def test_a_foreign_name_for_this_server_is_refused(served: Any, host: str) -> None:
    for path in ("/", "/facts", served.door.link.removeprefix(served.base)):
        assert served.ask.get(path, headers={"host": host}).status_code == 403


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "https://127.0.0.1", "http://127.0.0.1:1"])
def test_a_page_of_another_origin_is_refused(served: Any, origin: str) -> None:
    for call in (lambda: served.ask.post("/decide", json=decision([0], KEEP), headers={"origin": origin}),
                 lambda: served.ask.get("/facts", headers={"origin": origin})):  # fmt: skip
        assert call().status_code == 403
    assert served.ask.get("/items?rows=0", headers={"sec-fetch-site": "cross-site"}).status_code == 403
    assert served.review.store.since(0) == []


def test_a_request_that_changes_something_must_say_its_origin(served: Any) -> None:
    del served.ask.headers["origin"]
    assert served.ask.post("/decide", json=decision([0], KEEP)).status_code == 403
    assert served.ask.get("/facts").status_code == 200  # as browsers ask for their own pages


def test_large_bodies_are_refused(served: Any) -> None:
    assert served.ask.post("/decide", content=b"x" * (LARGEST + 1)).status_code == 413
    assert served.ask.post("/decide", content=(b"x" * 65536 for _ in range(LARGEST // 65536 + 2))).status_code == 413


NONSENSE: list[Any] = [
    b"", b"x", b"[]", b"{}", b"[" * 100_000, b"\xff",
    json.dumps(decision([0], "shred")), json.dumps(decision([], KEEP)),
    json.dumps(decision([-1], KEEP)), json.dumps(decision([10**9], KEEP)), json.dumps(decision([0, 0], KEEP)),
    json.dumps(decision([0], RELABEL, "no such class")), json.dumps(decision([0], KEEP, seen=[0, 1])),
    json.dumps(decision([0], KEEP, seen=[-1])), json.dumps(decision([0], KEEP) | {"rows": ["0"]}),
    json.dumps(decision([0], KEEP) | {"rows": [True]}), json.dumps(decision([0], KEEP, who="x" * 1000)),
    json.dumps(decision([0], KEEP) | {"more": 1}), json.dumps(decision([0], KEEP, looked=1)),
]  # fmt: skip


@pytest.mark.parametrize("body", NONSENSE, ids=range(len(NONSENSE)))
def test_nonsense_is_refused_in_a_sentence(served: Any, body: Any) -> None:
    answer = served.ask.post("/decide", content=body)
    assert answer.status_code == 400
    assert answer.json()["error"]
    assert served.review.store.since(0) == []


@pytest.mark.parametrize(
    "path",
    ["/page/../server.py", "/page/..%2fserver.py", "/page/%2e%2e/door.py", "/page//etc/passwd",
     "/picture/../../etc/passwd", "/picture/-1?size=96", "/picture/999999?size=96", "/picture/0?size=100000",
     "/picture/0", "/picture/cat%2F0.png?size=96", "/detail/999999", "/etc/passwd", "/decide"],
)  # fmt: skip
def test_nothing_outside_the_data_can_be_fetched(served: Any, path: str) -> None:
    answer = served.ask.get(path)
    assert answer.status_code in (404, 405)
    assert b"root:" not in answer.content


def test_every_answer_says_what_the_page_may_load(served: Any) -> None:
    for answer in (served.ask.get("/"), served.ask.get("/facts"), served.stranger.get("/"), served.ask.get("/no")):
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "frame-ancestors 'none'" in policy
    assert served.ask.get("/page/app.js").headers["content-type"].startswith("text/javascript")


def test_a_file_that_is_no_picture_is_not_sent(tmp_path: Path) -> None:
    """A table may name any path; what is no image is refused, and what is one is encoded anew."""
    from noiseproof.cli.review import opened

    secret = tmp_path / "secret.txt"
    secret.write_text("root:x:0:0")
    Image.new("RGB", (4, 4)).save(tmp_path / "a.png")
    with open(tmp_path / "a.png", "ab") as file:
        file.write(b"<script>alert(1)</script>root:x:0:0")
    table = tmp_path / "t.csv"
    table.write_text("id,image,label\nx,a.png,cat\ny,secret.txt,dog\nz,a.png,dog\n")
    rows = [{"id": id, "label": "cat", "suggested": "dog", "p": 0.9} for id in "xyz"]
    one = opened(write_audit(tmp_path / "audit", rows, table, image_size=4), NO_OPTIONS)
    first = one.examples.picture(one.items.row["x"], 96)
    assert b"root:" not in first.content
    assert b"script" not in first.content
    with pytest.raises(InputError, match="cannot be decoded"):
        one.examples.picture(one.items.row["y"], 96)
    one.close()

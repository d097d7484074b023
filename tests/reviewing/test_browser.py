"""The page in a real Chromium: decide by keyboard, undo, groups, filters, reload, a killed server, export, retrain.

With NOISEPROOF_SCREENSHOTS=1 the pictures of docs/review.md are taken anew.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from reviewing.conftest import NO_OPTIONS, running
from reviewing.support import digit_folder, write_audit

from noiseproof.data import load
from noiseproof.data.decisions import DROP, KEEP, RELABEL, decisions_of

DOCS = Path(__file__).parents[2] / "docs"


def saved(page: Any, count: int) -> None:
    """Wait until the page knows of so many decisions."""
    page.wait_for_selector(f"#figures:text-matches('^{count} decided')")


def listed(page: Any) -> int:
    return int(page.get_attribute(".card", "aria-setsize"))


def press(page: Any, *keys: str) -> None:
    for key in keys:
        page.keyboard.press(key)


def test_ten_decisions_by_keyboard_and_back(review: Any, browse: Any) -> None:
    items = [review.items.describe(row) for row in range(10)]
    with running(review) as door:
        page = browse(door.link)
        press(page, "a", "k", "d", "s", "1", "2", "a")
        press(page, "c")
        other = next(name for name in review.items.classes if name not in (items[7]["label"], items[7]["suggested"]))
        page.keyboard.type(other)
        press(page, "Enter", " ", "k")
        saved(page, 8)
        found = decisions_of(review.folder)
        assert [found[one["id"]].action if one["id"] in found else None for one in items] == [
            RELABEL, KEEP, DROP, None, RELABEL, KEEP, RELABEL, RELABEL, None, KEEP
        ]  # fmt: skip
        assert found[items[0]["id"]].label == items[0]["suggested"]
        assert found[items[5]["id"]].label == items[5]["candidates"][1][0]
        assert found[items[7]["id"]].label == other
        assert all(one.who == "Ada" for one in found.values())
        press(page, "z", "Control+z")  # the last two strokes: a keep, and a skip
        saved(page, 7)
        assert items[9]["id"] not in decisions_of(review.folder)
        page.reload()
        page.wait_for_selector(".card .line")
        saved(page, 7)
        assert listed(page) == review.items.issue.sum() - 8  # what is decided or skipped is not listed any more
        press(page, "z")
        saved(page, 6)  # a reloaded tab can still undo


def test_groups_filters_and_ranges(review: Any, browse: Any) -> None:
    with running(review) as door:
        page = browse(door.link)
        pair = review.items.pairs()[0]
        page.click(".pairs button >> nth=0")
        page.wait_for_selector(f".card[aria-setsize='{pair['open']}']")
        press(page, "Control+a", "a")
        page.click("dialog button.main")
        saved(page, pair["open"])
        found = decisions_of(review.folder)
        assert {(one.before, one.label) for one in found.values()} == {(pair["label"], pair["suggested"])}
        assert not review.items.looked.any()  # nobody looked at them one by one
        page.click("[name=clear]")
        page.wait_for_selector(f".card:not([aria-setsize='{pair['open']}'])")
        page.focus("#list")
        press(page, "Home", "Shift+ArrowRight", "Shift+ArrowRight", "d")
        saved(page, pair["open"] + 3)
        assert sum(one.action == DROP for one in decisions_of(review.folder).values()) == 3
        page.select_option("[name=state]", "drop")
        page.wait_for_selector(".card[aria-setsize='3']")
        assert page.inner_text(".card .verdict >> nth=0") == "✕ dropped"  # in words, not by colour alone
        page.reload()
        page.wait_for_selector(".card .verdict")
        assert listed(page) == 3  # filters outlive a reload
        page.focus("#list")
        press(page, "/")
        page.keyboard.type("no such id")
        page.wait_for_selector("#empty:not([hidden])")


def test_who_comes_second_is_told(review: Any, browse: Any) -> None:
    with running(review) as door:
        page = browse(door.link)
        other = page.context.new_page()
        other.route("**/changes*", lambda route: None)  # news would come in four seconds, before a slow test's stroke
        other.goto(f"http://127.0.0.1:{door.port}/")
        other.wait_for_selector(".card .line")
        press(page, "k")
        saved(page, 1)
        press(other, "d")
        other.wait_for_selector("#alarm:not([hidden])")
        assert "Ada decided" in other.inner_text("#alarm")
        first = review.items.ids[0]
        assert decisions_of(review.folder)[first].action == KEEP
        press(other, "ArrowLeft", "d")  # knowing of it
        other.wait_for_selector("#alarm", state="hidden")
        assert decisions_of(review.folder)[first].action == DROP


@contextmanager
def started(folder: Path, end: int) -> Iterator[str]:
    """noiseproof review in a process of its own, ended by a signal; gives its link."""
    call = [sys.executable, "-m", "noiseproof", "review", str(folder), "--no-browser", "--quiet"]
    with subprocess.Popen(call, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        try:
            yield next(link[0] for line in server.stderr if (link := re.search(r"http://\S+", line)))
        finally:
            os.kill(server.pid, end)
            server.wait(20)


def test_a_killed_server_loses_nothing_and_the_export_trains(tmp_path: Path, browse: Any, command: Any) -> None:
    photos, rows = digit_folder(tmp_path / "photos", 200)
    before = {path.relative_to(photos): path.read_bytes() for path in photos.rglob("*.png")}
    folder = write_audit(tmp_path / "audit", rows, photos)
    with started(folder, signal.SIGKILL) as link:
        page = browse(link)
        press(page, "a", "a", "d")
        saved(page, 3)
    press(page, "a")
    page.wait_for_selector("#alarm:not([hidden])")
    assert "NOT saved" in page.inner_text("#alarm")
    assert len(decisions_of(folder)) == 3
    page.close()
    with started(folder, signal.SIGINT) as link:
        page = browse(link)
        saved(page, 3)
        press(page, "a", "a")
        saved(page, 5)
        page.click("#export-button")
        page.click("dialog button.main")
        page.wait_for_selector("#exported:text-matches('^Wrote')")

    decided, clean = decisions_of(folder), folder / "clean"
    data = load(clean)
    labels = {id: data.class_names[k] for id, k in zip(data.ids or (), data.labels.tolist(), strict=True)}
    moved = [id for id, one in decided.items() if one.action == RELABEL]
    assert len(labels) == len(before) - 1
    for id in moved:
        name = Path(id).name
        place = next(one for one in labels if one.startswith(decided[id].label) and Path(name).stem in one)
        assert (clean / place).read_bytes() == before[Path(id)]
    for path, content in before.items():
        if str(path) not in decided:
            assert (clean / path).read_bytes() == content
    code, _, said = command("fit", clean, "--epochs", "1", "--method", "ce", "--quiet", "--out", "again")
    assert code == 0, said
    assert (Path("again") / "labels.parquet").is_file()


HOSTILE = "<img src=x onerror=window.pwned=1>"


def test_the_list_is_judged_again(review: Any, browse: Any) -> None:
    with running(review) as door:
        page = browse(door.link)
        press(page, "a", "a", "d", "k")
        saved(page, 4)
        old = review.items
        page.click("#refresh-button")
        page.wait_for_selector("dialog progress")
        page.wait_for_selector("dialog", state="hidden", timeout=60_000)
        page.wait_for_selector(".card .line")
        assert review.items is not old
        saved(page, 4)
        first = page.get_attribute(".card >> nth=0", "aria-label").split(",")[0]
        press(page, "k")
        saved(page, 5)
        assert decisions_of(review.folder)[first].action == KEEP


def test_script_in_names_and_cells_stays_text(tmp_path: Path, browse: Any) -> None:
    from noiseproof.cli.review import opened

    table = tmp_path / f"{HOSTILE.replace('/', '')}.csv"
    cells = [HOSTILE, '"</p><script>window.pwned=1</script>"', "javascript:alert(1)"]
    lines = [f"{HOSTILE}{i},{cells[i % 3]},{i}.5,{[HOSTILE, 'dog'][i % 2]}" for i in range(30)]
    table.write_text("id,note,x,label\n" + "\n".join(lines) + "\n")
    rows = [{"id": f"{HOSTILE}{i}", "label": [HOSTILE, "dog"][i % 2], "suggested": ["dog", HOSTILE][i % 2], "p": 0.9}
            for i in range(30)]  # fmt: skip
    review = opened(write_audit(tmp_path / "audit", rows, table, feature_columns="x"), NO_OPTIONS, HOSTILE)
    with running(review) as door:
        page = browse(door.link)
        press(page, "a", "Enter")
        page.wait_for_selector(".values")
        assert HOSTILE in page.inner_text("#single")
        press(page, "c")
        page.wait_for_selector(".found li")
        press(page, "Escape", "Escape")
        saved(page, 1)
        assert page.evaluate("window.pwned") is None
        assert page.locator("img[src=x], script:not([src])").count() == 0
    review.close()


def test_keyboard_alone_and_a_phone(review: Any, browse: Any) -> None:
    with running(review) as door:
        page = browse(door.link, 390, 800, has_touch=True, is_mobile=True)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        boxes = [box for box in (one.bounding_box() for one in page.locator("#actions button").all()) if box]
        assert len(boxes) == 6
        assert all(box["height"] >= 40 and box["x"] + box["width"] <= 391 for box in boxes)
        page.tap("#open-filters")
        page.wait_for_selector("#filters.open [name=search]")
        page.tap("[name=close]")
        page.wait_for_selector("#filters [name=search]", state="hidden")
        page.tap(".card >> nth=1")
        page.tap(".card >> nth=1")
        page.wait_for_selector("#single .labels")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        page.tap("#actions button >> nth=0")
        saved(page, 1)
        names = page.eval_on_selector_all("img", "all => all.map(one => one.alt)")
        assert names
        assert all("labelled" in name for name in names)
        unnamed = page.eval_on_selector_all(
            "button", "all => all.filter(b => !(b.ariaLabel || b.textContent).trim()).length"
        )
        assert unnamed == 0
        press(page, "?")
        page.wait_for_selector("dialog[open] .keys")
        press(page, "Escape")
        page.wait_for_selector("dialog", state="hidden")


def shot(page: Any, name: str, tmp_path: Path) -> None:
    """A picture of the page: of docs/review.md if that is asked for."""
    page.wait_for_load_state("networkidle")
    target = tmp_path / f"{name}.png"
    page.screenshot(path=target)
    image = Image.open(target).convert("RGB")
    assert len(image.getcolors(1 << 24) or ()) > 20  # something is on it
    if os.environ.get("NOISEPROOF_SCREENSHOTS"):
        image.quantize(96, dither=Image.Dither.NONE).save(DOCS / f"review-{name}.png", optimize=True)


def table_review(tmp_path: Path) -> Any:
    """A table of measurements and notes with some wrong labels."""
    from noiseproof.cli.review import opened

    rng = np.random.default_rng(0)
    middle = {"elm": (7.2, 31.0, 0.4), "oak": (9.8, 22.0, 1.1), "yew": (4.1, 12.0, 2.3)}
    notes = {"elm": "leaf uneven at its base, rough to the touch, teeth of two sizes along the edge",
             "oak": "leaf lobed, acorns on long stalks, bark in deep ridges running up the trunk",
             "yew": "flat dark needles, red berries with one seed, bark flaking in thin brown plates"}  # fmt: skip
    lines, rows = [], []
    for i in range(90):
        truth = list(middle)[i % 3]
        label = list(middle)[(i + 1) % 3] if i % 9 == 0 else truth
        values = ",".join(f"{v * rng.normal(1, 0.08):.2f}" for v in middle[truth])
        lines.append(f'tree {i},{values},"{notes[truth]}",{label}')
        rows.append(
            {"id": f"tree {i}", "label": label, "suggested": truth, "p": 0.97 - i / 1000 if label != truth else 0.02}
        )
    (tmp_path / "trees.csv").write_text("id,leaf cm,height m,age,note,label\n" + "\n".join(lines) + "\n")
    return opened(
        write_audit(tmp_path / "trees", rows, tmp_path / "trees.csv", feature_columns="leaf cm,height m,age"),
        NO_OPTIONS,
    )


def test_pictures(tmp_path: Path, browse: Any) -> None:
    from noiseproof.cli.review import opened

    photos, rows = digit_folder(tmp_path / "digits", 400)
    review = opened(write_audit(tmp_path / "audit", rows, photos), NO_OPTIONS, "Ada")
    with running(review) as door:
        page = browse(door.link, 1200, 760)
        press(page, "a", "a", "k", "d", "a")
        saved(page, 5)
        shot(page, "grid", tmp_path)
        press(page, "Enter")
        page.wait_for_selector(".strip img")
        shot(page, "single", tmp_path)
        page.emulate_media(color_scheme="dark")
        shot(page, "dark", tmp_path)
        page.set_viewport_size({"width": 390, "height": 760})
        page.emulate_media(color_scheme="light")
        shot(page, "phone", tmp_path)
    review.close()
    trees = table_review(tmp_path)
    with running(trees) as door:
        page = browse(door.link, 1200, 760)
        press(page, "Enter")
        page.wait_for_selector(".values .against")
        assert "speak against" in page.inner_text(".values caption")
        shot(page, "table", tmp_path)
    trees.close()


def test_a_long_list_has_few_cards(tmp_path: Path, browse: Any) -> None:
    from noiseproof.cli.review import opened

    photos, rows = digit_folder(tmp_path / "photos", 60)
    more = [rows[i % 60] | {"id": f"ghost {i}", "p": rows[i % 60]["p"] * 0.4} for i in range(30_000)]  # not in the data
    review = opened(write_audit(tmp_path / "audit", rows + more, photos), NO_OPTIONS)
    with running(review) as door:
        page = browse(door.link)
        page.uncheck("[name=issue]")
        page.wait_for_selector(".card[aria-setsize='30060']")
        page.focus("#list")
        press(page, "End")
        page.wait_for_selector(".card[aria-posinset='30060'] .line")
        assert page.locator(".card").count() < 60
        press(page, "k")
        saved(page, 1)
        last = review.items.ids[-1]
        assert decisions_of(review.folder)[last].action == KEEP
        browse.said.clear()  # the ghosts have no picture
    review.close()

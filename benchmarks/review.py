"""The review page with 50,000 images: first paint, how fast a decision is acknowledged, memory of the server.

    python benchmarks/review.py [--data cifar10-train.parquet]      writes results/review.json

The page runs in a real Chromium (skipped where there is none), the server in a process of its own. A decision is
timed in the browser, from the request to the answer that it is on the disk; beside it, in turn, a commit of such a row
by SQLite alone (WAL, synchronous=FULL) in the same folder: the limit. Without the data the script ends at once.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from common import ROOT, machine, show, write

PAINTS, DECISIONS, ROUND = 7, 1000, 50
QUIET = "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking --disable-sync"
SEEN = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
DECIDE = """async ([first, count]) => {
  const {stamp} = await (await fetch("/facts")).json();
  const times = [];
  for (let row = first; row < first + count; row++) {
    const what = {stamp, rows: [row], seen: [0], action: "accept", label: "", looked: true, who: "", session: "b"};
    const body = JSON.stringify(what);
    const began = performance.now();
    const answer = await fetch("/decide", {method: "POST", body});
    if ((await answer.json()).rows !== 1) throw new Error("not decided");
    times.push(performance.now() - began);
  }
  return times;
}"""


def write_audit(folder: Path, data: Path) -> int:
    """An audit of a table as one that is half right would leave it; gives the number of its rows."""
    label = pq.read_table(data, columns=["label"]).column("label").to_numpy()
    rng, n = np.random.default_rng(0), len(label)
    p = np.sort(rng.beta(0.5, 3, n).astype(np.float32))[::-1]
    order, other = rng.permutation(n), (label + rng.integers(1, 10, n)) % 10
    names = np.array([str(k) for k in range(10)])
    pair = np.stack([names[other[order]], names[label[order]]], axis=1)
    table = {
        "id": [str(i) for i in order], "split": ["train"] * n, "label": names[label[order]], "probability_wrong": p,
        "issue": p > 0.5, "kind": np.where(p > 0.5, "label", ""), "suggested": names[other[order]], "confidence": p,
        "advice": ["relabel"] * n, "candidates": pair.tolist(), "group": pa.array([-1] * n, pa.int32()),
        "candidate_probabilities": pa.array(np.stack([p, 1 - p], axis=1).tolist(), pa.list_(pa.float32())),
    }  # fmt: skip
    pq.write_table(pa.table(table), folder / "labels.parquet")
    (folder / "audit.json").write_text(json.dumps({"command": {"data": str(data)}}))
    return n


@contextmanager
def served(folder: Path) -> Iterator[tuple[psutil.Process, str, float]]:
    """noiseproof review in a process of its own; its link, and the seconds it took to start."""
    began = time.perf_counter()
    call = [sys.executable, "-m", "noiseproof", "review", str(folder), "--no-browser", "--quiet"]
    with subprocess.Popen(call, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        links = (found[0] for line in server.stderr if (found := re.search(r"http://\S+", line)))
        try:
            yield psutil.Process(server.pid), next(links), time.perf_counter() - began
        finally:
            server.terminate()


def commits(base: sqlite3.Connection, count: int) -> list[float]:
    """Milliseconds of commits of one row each."""
    times = []
    for _ in range(count):
        began = time.perf_counter()
        base.execute("INSERT INTO log (id, action, label) VALUES ('12345', 'relabel', 'cat')")
        times.append(1000 * (time.perf_counter() - began))
    return times


def measure(folder: Path, chromium: str) -> dict[str, Any]:
    from playwright.sync_api import sync_playwright

    paints, pictures, decided, raw = [], [], [], []
    base = sqlite3.connect(folder / "raw.sqlite", isolation_level=None)
    for line in ("PRAGMA journal_mode = WAL", "PRAGMA synchronous = FULL",
                 "CREATE TABLE log (version INTEGER PRIMARY KEY, id, action, label)"):  # fmt: skip
        base.execute(line)
    with served(folder) as (process, link, start), sync_playwright() as driver, closing(base):
        browser = driver.chromium.launch(executable_path=chromium, args=QUIET.split())
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.goto(link)
        page.wait_for_selector(".card img")
        idle = process.memory_info().rss
        for _ in range(PAINTS):
            began = time.perf_counter()
            page.reload()
            page.wait_for_selector(".card img")
            page.wait_for_load_state("load")
            pictures.append(time.perf_counter() - began)
            paints.append(page.evaluate(SEEN) / 1000)
        for first in range(0, DECISIONS, ROUND):
            decided += page.evaluate(DECIDE, [first, ROUND])
            raw += commits(base, ROUND)
        rss = process.memory_info().rss
        browser.close()
    return {"start": start, "paints": paints, "pictures": pictures, "decisions": decided, "commits": raw,
            "idle": idle, "rss": rss}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data" / "cifar10-train.parquet")
    data = parser.parse_args().data.absolute()
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if not data.is_file() or chromium is None:
        print(f"skipped: {'no Chromium (apt-get install chromium)' if data.is_file() else f'{data} is not there'}")
        return
    encoded = pq.read_table(data, columns=[pq.read_schema(data).names[0]]).nbytes
    with tempfile.TemporaryDirectory() as folder:
        rows = write_audit(Path(folder), data)
        found = measure(Path(folder), chromium)
    decision, commit = (statistics.median(found[name]) for name in ("decisions", "commits"))
    beyond = (found["rss"] - encoded) / 1e6
    show(f"The review page, {rows:,} images", ["", "median", "most", "limit"], [
        ["first paint, s", f"{statistics.median(found['paints']):.2f}", f"{max(found['paints']):.2f}", "1"],
        ["pictures to look at, s", f"{statistics.median(found['pictures']):.2f}", f"{max(found['pictures']):.2f}", "–"],
        [f"decision acknowledged, ms, of {DECISIONS:,}", f"{decision:.1f}", f"{max(found['decisions']):.1f}", "50"],
        ["commit by SQLite alone, ms", f"{commit:.1f}", f"{max(found['commits']):.1f}", "–"],
        ["decision / commit", f"{decision / commit:.1f}", "–", "–"],
        ["server beyond the data, MB", f"{beyond:.0f}", "–", "400"],
        ["server started in, s", f"{found['start']:.1f}", "–", "–"],
    ])  # fmt: skip
    write("review", found | {"rows": rows, "encoded": encoded, "machine": machine()})


if __name__ == "__main__":
    main()

"""Time and memory of `audit` beside cleanlab's `find_label_issues`, both with their defaults, in one run.

python benchmarks/audit.py [--quick]     writes results/audit.json

One million labels × 100 classes of predictions in float32, and 200,000 × 5,000 in float16, memory-mapped from a file of
2 GB. Each side works in a process of its own, which makes or maps the predictions and answers a small question before
it is measured; memory is what it and the processes it starts hold beyond that at most, file pages aside (`Pss_Anon`,
looked at every 10 ms). cleanlab is asked about a tenth of the million first, and about all of it only if that promises
to take less than three minutes; otherwise its figures are those of the tenth, times ten. Nobody may hold more than
8 GB. Wall times are of this moment's load: seconds of the processor say more on a machine that is shared.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import psutil
from common import machine, show, write

PATIENCE = 180.0  # seconds
MOST = 8 * 10**9  # bytes
MB = 1e6


def predictions(labels_file: Path, out: Path | None, n: int, K: int, dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """Labels (n,), a fifth of them wrong, and predictions (n, K), a tenth of which miss; to a file, if one is named."""
    rng = np.random.default_rng(0)
    true = rng.integers(0, K, n)
    labels = np.where(rng.random(n) < 0.2, rng.integers(0, K, n), true)
    labels[:K] = np.arange(K)  # each class is given to some
    guess = np.where(rng.random(n) < 0.1, rng.integers(0, K, n), true)
    found = np.empty((n, K), dtype) if out is None else np.lib.format.open_memmap(out, "w+", dtype, (n, K))
    for begin in range(0, n, 1000):
        rows = slice(begin, min(begin + 1000, n))
        p = rng.random((rows.stop - begin, K), dtype=np.float32)
        weight = rng.beta(4, 1, (len(p), 1)).astype(np.float32)
        p *= (1 - weight) / p.sum(axis=1, keepdims=True)
        p[np.arange(len(p)), guess[rows]] += weight[:, 0]
        found[rows] = p
    np.save(labels_file, labels)
    return labels, found


def answer(side: str, labels: np.ndarray, pred_probs: np.ndarray) -> int:
    """How many labels a side calls wrong."""
    if side == "noiseproof":
        import noiseproof as nf

        return int(nf.audit(labels, pred_probs).issues.sum())
    from cleanlab.filter import find_label_issues

    return int(find_label_issues(labels, pred_probs).sum())


def work(side: str, folder: Path, n: int, K: int, dtype: str) -> None:
    """In a process of its own: get ready, say so, wait for a word, answer, tell the seconds."""
    labels_file, file = folder / "labels.npy", folder / "predictions.npy"
    if file.exists():
        labels, pred_probs = np.load(labels_file)[:n], np.load(file, mmap_mode="r")[:n]
    else:
        labels, pred_probs = predictions(labels_file, None, n, K, dtype)
    small = np.random.default_rng(0).dirichlet(np.ones(10), 500).astype(np.float32)
    answer(side, np.arange(500) % 10, small)  # what is imported and compiled once counts for neither
    print("ready", flush=True)
    sys.stdin.readline()
    resource.setrlimit(resource.RLIMIT_DATA, (MOST, MOST))
    began, before = time.perf_counter(), _processor_seconds()
    try:
        issues = answer(side, labels, pred_probs)
    except MemoryError:
        issues = -1
    wall, seconds = time.perf_counter() - began, _processor_seconds() - before
    print(json.dumps({"wall": wall, "processor": seconds, "issues": issues}), flush=True)


def _processor_seconds() -> float:
    """Of this process and of those that it started and that have ended."""
    return sum(os.times()[:4])


def anonymous(process: psutil.Process) -> int:
    """Bytes that a process and its children hold, shared ones once, without pages of files."""
    total = 0
    for one in (process, *process.children(recursive=True)):
        try:
            text = Path(f"/proc/{one.pid}/smaps_rollup").read_text()
        except (FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            continue
        total += 1024 * sum(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss_Anon:"))
    return total


def _watch(process: psutil.Process, held: list[int], done: threading.Event) -> None:
    while not done.wait(0.01):
        held.append(anonymous(process))


def measure(side: str, folder: Path, n: int, K: int, dtype: str) -> dict[str, float]:
    """Seconds, and bytes at most beyond what the side held when it was ready."""
    call = [sys.executable, "-W", "ignore", __file__, "--side", side, "--folder", str(folder)]
    call += ["--size", str(n), str(K), dtype]
    with subprocess.Popen(call, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        if child.stdout.readline() != "ready\n":
            raise SystemExit(f"{side} did not get ready")
        process = psutil.Process(child.pid)
        held, done = [anonymous(process)], threading.Event()
        watch = threading.Thread(target=_watch, args=(process, held, done))
        watch.start()
        child.stdin.write("go\n")
        child.stdin.flush()
        text = child.stdout.readline()
        done.set()
        watch.join()
    if child.returncode:
        raise SystemExit(f"{side} ended with {child.returncode} on {n:,} × {K:,}")
    found = json.loads(text) | {"memory": max(held) - held[0], "rows": n}
    told = f"{found['wall']:.2f} s, of the processor {found['processor']:.2f} s, {found['memory'] / MB:,.0f} MB"
    print(f"{side}, {n:,} × {K:,} {dtype}: {told}", flush=True)
    return found


def cleanlab(folder: Path, n: int, K: int, dtype: str) -> dict[str, float]:
    """All rows, or a tenth of them and ten times its figures; `rows` tells which."""
    part = measure("cleanlab", folder, n // 10, K, dtype)
    if 10 * part["wall"] <= PATIENCE:
        return measure("cleanlab", folder, n, K, dtype)
    return {name: value if name == "rows" else 10 * value for name, value in part.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a twentieth of the rows: shows that it runs")
    parser.add_argument("--side", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--size", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        n, K, dtype = options.size
        return work(options.side, options.folder, int(n), int(K), dtype)
    scale = 20 if options.quick else 1
    rows, results = [], {}
    for n, K, dtype, mapped in (
        (1_000_000 // scale, 100, "float32", False),
        (200_000 // scale, 5_000, "float16", True),
    ):
        with tempfile.TemporaryDirectory() as name:
            folder, size = Path(name), n * K * np.dtype(dtype).itemsize
            print(f"{n:,} × {K:,} {dtype}: making predictions", flush=True)
            if mapped:
                predictions(folder / "labels.npy", folder / "predictions.npy", n, K, dtype)
            sides = {"noiseproof": measure("noiseproof", folder, n, K, dtype)}
            if not mapped:
                sides["cleanlab"] = cleanlab(folder, n, K, dtype)
        case = f"{n:,} × {K:,} {dtype}{', mapped' if mapped else ''}"
        results[case] = sides | {"bytes": {"predictions": size}}
        for side, found in sides.items():
            what = "" if found["rows"] == n else f" ({found['rows']:,} rows, times {n // int(found['rows'])})"
            issues = f"{int(found['issues']):,}" if found["issues"] >= 0 else f"stopped at {MOST / MB:,.0f} MB"
            rows.append(
                [case, side + what, f"{found['wall']:.1f} s", f"{found['processor']:.1f} s",
                 f"{found['memory'] / MB:,.0f} MB", f"{found['memory'] / size:.2f}", issues]
            )  # fmt: skip
    header = ["predictions", "by", "wall", "processor", "memory beside them", "relative to them", "called wrong"]
    show("Which labels are wrong", header, rows)
    write("audit", {"results": results, "machine": machine()})


if __name__ == "__main__":
    main()

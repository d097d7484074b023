"""Facility location: ours against apricot-select, submodlib and kmedoids on the same rows; a million rows; growth.

Rows are simulated last-layer gradients, softmax − one_hot(label): 10 classes, 50 % symmetric label noise, a model of
77 % accuracy, grouped by label. Half of each group is selected. Peers get the distances of a group ready-made, and
computing them is not counted; ours start from the rows. What happens once, as our compilation, is done before the first
round. apricot compiles two functions anew in every fit, about 2 s whatever the size: that is measured apart, and ratios
are given with and without it; the one without compares the algorithms. All are timed in wall and in processor seconds:
on a shared machine the second is the steadier one. Peers use one thread. Peers that are not installed are skipped.

    pip install apricot-select submodlib-py kmedoids     # the peers
    python benchmarks/coreset.py                          # writes results/coreset.json and results/coreset.png
    python benchmarks/coreset.py --rows 10000 --million 0 --growth 1000 3000
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import ROOT, machine, show, write
from numba.core.event import install_timer
from torch import Tensor

from noiseproof.coreset import facility_location

CLASSES, NOISE, ACCURACY, SHARE = 10, 0.5, 0.77, 0.5
WAYS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("lazy", {}),
    ("sparse", {}),
    ("stochastic", {}),
    ("greedi", {"parts": 4}),
    ("central", {}),
)
Solve = Callable[[np.ndarray[Any, Any], int], "list[int]"]


def gradients(n: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Rows (n, 10) and their labels (n,)."""
    g = torch.Generator().manual_seed(seed)
    true, drawn = (torch.randint(CLASSES, (n,), generator=g) for _ in range(2))
    label = torch.where(torch.rand(n, generator=g) < NOISE, drawn, true)
    logits, at = torch.randn(n, CLASSES, generator=g), true[:, None]
    low, high = 0.0, 10.0
    for _ in range(30):  # the signal that gives the accuracy
        signal = (low + high) / 2
        some = logits[:20_000].scatter_add(1, at[:20_000], torch.full((len(at[:20_000]), 1), signal))
        right = (some.argmax(1) == true[:20_000]).float().mean()
        low, high = (signal, high) if right < ACCURACY else (low, signal)
    logits.scatter_add_(1, at, torch.full((n, 1), signal))
    rows = logits.mul_(1.5).softmax(1)
    return rows.scatter_add_(1, label[:, None], torch.full((n, 1), -1.0)), label


def apricot() -> Solve:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from apricot import FacilityLocationSelection

    def solve(d: np.ndarray[Any, Any], k: int) -> list[int]:
        return list(FacilityLocationSelection(k, metric="precomputed", optimizer="lazy").fit(d.max() - d).ranking)

    return solve


def submodlib() -> Solve:
    from submodlib import FacilityLocationFunction

    def solve(d: np.ndarray[Any, Any], k: int) -> list[int]:
        f = FacilityLocationFunction(n=len(d), mode="dense", sijs=d.max() - d, separate_rep=False)
        return [j for j, _ in f.maximize(budget=k, optimizer="LazyGreedy", show_progress=False)]

    return solve


def fasterpam() -> Solve:
    import kmedoids

    return lambda d, k: list(kmedoids.fasterpam(d, k, random_state=0, n_cpu=1).medoids)


PEERS = {"apricot": apricot, "submodlib": submodlib, "kmedoids": fasterpam}


def distances(rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """(n, n) float32, from differences: products would lose the small ones."""
    x = torch.from_numpy(rows)
    return torch.cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist").numpy()


def timed(run: Callable[[], Any]) -> tuple[Any, float, float]:
    wall, processor = time.perf_counter(), time.process_time()
    result = run()
    return result, time.perf_counter() - wall, time.process_time() - processor


def best(run: Callable[[], Any], rounds: int) -> tuple[Any, float, float]:
    """The result and the smallest wall and processor seconds."""
    runs = [timed(run) for _ in range(rounds)]
    return runs[0][0], min(r[1] for r in runs), min(r[2] for r in runs)


def against_peers(n: int, rounds: int) -> dict[str, Any]:
    rows, label = gradients(n)
    groups = [rows[label == c].numpy() for c in range(CLASSES)]

    def ours(algorithm: str, **options: Any) -> Any:
        return facility_location(rows, SHARE, algorithm=algorithm, groups=label, **options)

    ours("lazy")
    found, wall, processor = best(lambda: ours("lazy"), rounds)
    _, single, _ = best(lambda: ours("lazy", threads=1), rounds)
    results: dict[str, Any] = {
        "rows": n,
        "threads": torch.get_num_threads(),
        "ours": {"seconds": wall, "processor_seconds": processor, "one_thread_seconds": single, "cost": found.cost},
    }
    for name, load in PEERS.items():
        if find_spec(name) is None:
            print(f"{name} is not installed: skipped")
            continue
        solve, seconds, spent, compiling, cost = load(), 0.0, 0.0, [0.0], 0.0
        small = distances(groups[0][:200])
        solve(small, 20)  # compile
        for group in groups:
            d, k = distances(group), int(SHARE * len(group) + 0.5)
            with install_timer("numba:compile", compiling.append):
                chosen, wall, processor = timed(partial(solve, d, k))
            seconds, spent = seconds + wall, spent + processor
            cost += float(d[:, chosen].min(axis=1).astype(np.float64).sum())
        working = 1 - sum(compiling) / seconds  # the share of the time that is not compilation
        mine = results["ours"]
        results[name] = {
            "seconds": seconds,
            "processor_seconds": spent,
            "compiling_seconds": sum(compiling),
            "cost": cost,
            "times_ours": seconds / mine["seconds"],
            "processor_times_ours": spent / mine["processor_seconds"],
            "times_ours_without_compiling": working * seconds / mine["seconds"],
            "processor_times_ours_without_compiling": working * spent / mine["processor_seconds"],
        }
        print(f"{name}: {seconds:.1f} s, of which {sum(compiling):.1f} s compiling; cost {cost:.3f}", flush=True)
    results["ways"] = []
    for algorithm, options in WAYS:
        ours(algorithm, **options)
        other, wall, processor = best(lambda a=algorithm, o=options: ours(a, **o), 2)
        title = ", ".join([algorithm, *(f"{key}={value}" for key, value in options.items())])
        results["ways"].append(
            {"way": title, "seconds": wall, "processor_seconds": processor, "cost": other.cost / found.cost}
        )
    return results


def one_run(n: int, algorithm: str, groups: bool) -> dict[str, float]:
    """One run of ours on n rows: seconds, cost, and the peak memory of the process."""
    rows, label = gradients(n)
    label = label if groups else torch.zeros_like(label)
    facility_location(rows[:2000], SHARE, algorithm=algorithm, groups=label[:2000])
    facility_location(rows[:2000], SHARE, algorithm="lazy", groups=label[:2000])
    found, wall, processor = timed(lambda: facility_location(rows, SHARE, algorithm=algorithm, groups=label))
    status = Path("/proc/self/status").read_text()  # ru_maxrss would start at the size of the process that forked
    peak = int(status.split("VmHWM:")[1].split()[0]) / 2**20
    return {"rows": n, "seconds": wall, "processor_seconds": processor, "cost": found.cost, "peak_gib": peak}


def apart(n: int, algorithm: str, groups: bool = True) -> dict[str, Any]:
    """`one_run` in a process of its own, so that its peak memory is its own."""
    words = [sys.executable, __file__, "--one", str(n), algorithm, str(int(groups))]
    out = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
    print(f"{algorithm}, {n:,} rows: {out['seconds']:.1f} s, {out['peak_gib']:.2f} GiB", flush=True)
    return {"algorithm": algorithm, **out}


def plot(growth: list[dict[str, Any]]) -> None:
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
    for algorithm, marker in (("lazy", "o"), ("sparse", "s")):
        points = [p for p in growth if p["algorithm"] == algorithm]
        n = [p["rows"] for p in points]
        axes.loglog(n, [p["processor_seconds"] for p in points], marker + "-", label=f"{algorithm}, processor seconds")
    first = growth[0]
    n = np.array([p["rows"] for p in growth if p["algorithm"] == "sparse"], dtype=float)
    axes.loglog(n, first["processor_seconds"] * n / n[0], ":", color="gray", label="linear")
    axes.set(xlabel="rows, in 10 groups", ylabel="seconds", title="Facility location, half of the rows selected")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    figure.savefig(ROOT / "results" / "coreset.png", dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--million", type=int, default=1_000_000, help="rows of the large run; 0: none")
    parser.add_argument(
        "--group", type=int, default=100_000, help="rows of the group on which sparse is compared to exact"
    )
    parser.add_argument(
        "--growth", type=int, nargs="*", default=[1000, 3000, 10_000, 30_000, 100_000, 300_000, 1_000_000]
    )
    parser.add_argument("--exact", type=int, default=100_000, help="rows up to which the growth of lazy is measured")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        n, algorithm, groups = options.one
        print(json.dumps(one_run(int(n), algorithm, groups == "1")))
        return
    results: dict[str, Any] = {"machine": machine(), "peers": against_peers(options.rows, options.rounds)}
    peers = results["peers"]
    ours = peers["ours"]
    rows = [["ours, lazy", f"{ours['seconds']:.2f}", f"{ours['processor_seconds']:.2f}", "0", "1", "1", "1"]]
    rows += [
        [
            name,
            *(f"{peer[key]:.1f}" for key in ("seconds", "processor_seconds", "compiling_seconds")),
            f"{peer['times_ours']:.0f}, {peer['processor_times_ours']:.0f}",
            f"{peer['times_ours_without_compiling']:.0f}, {peer['processor_times_ours_without_compiling']:.0f}",
            f"{peer['cost'] / ours['cost']:.6f}",
        ]
        for name, peer in ((name, peers[name]) for name in PEERS if name in peers)
    ]
    header = ["", "s", "processor s", "compiling s", "× ours, by processor", "without compiling", "cost / ours"]
    show(f"{options.rows:,} rows, 10 groups", header, rows)
    ways = [
        [w["way"], f"{w['seconds']:.2f}", f"{w['processor_seconds']:.2f}", f"{w['cost']:.4f}"] for w in peers["ways"]
    ]
    show("Ours", ["algorithm", "seconds", "processor seconds", "cost / lazy"], ways)
    if options.million:
        exact, sparse = (apart(options.group, a, groups=False) for a in ("lazy", "sparse"))
        large = apart(options.million, "sparse")
        results["large"] = {"all": large, "group_exact": exact, "group_sparse": sparse}
        show(
            f"{options.million:,} rows, 10 groups",
            ["seconds", "processor seconds", "peak GiB", f"cost / exact, a group of {options.group:,}"],
            [[f"{large['seconds']:.1f}", f"{large['processor_seconds']:.1f}", f"{large['peak_gib']:.2f}",
              f"{sparse['cost'] / exact['cost']:.5f}"]],
        )  # fmt: skip
    sizes = [("sparse", n) for n in options.growth] + [("lazy", n) for n in options.growth if n <= options.exact]
    known = {("sparse", options.million): results["large"]["all"]} if options.million else {}
    results["growth"] = [known.get(size) or apart(size[1], size[0]) for size in sizes]
    write("coreset", results)
    if results["growth"]:
        plot(results["growth"])


if __name__ == "__main__":
    main()

"""The top 20 singular values of the Jacobian of ResNet-20, all 270,000 parameters, n × 10 outputs on 32×32 images.

    python benchmarks/jacobian.py [--data cifar10-train.parquet]      writes results/jacobian.json and jacobian.png

Against the dense way: every row by its own backward pass (`vmap(jacrev)`, 16 examples at a time), then the eigenvalues
of JJᵀ from the stored J. The dense way is measured at n = 50, 100 and 300 and continued to larger n: rows grow as n,
JJᵀ as n², its eigenvalues as n³. And against rows by a plain loop, one call of `autograd.grad` for each, measured at n
= 20. Each case is a fresh process, so that its peak memory is its own; the rise is over a process that only loads the
network and the images. One thread, and seconds are those of the processor, so that others on the machine disturb
little. Without --data, images are noise around a smooth picture for each class.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch
from common import ROOT, machine, show, write
from torch import Tensor
from torch.func import functional_call, jacrev, vmap

from noiseproof.data import load
from noiseproof.jacobian.operator import Jacobian
from noiseproof.jacobian.singular import top_singular
from noiseproof.models import build

CASES = {  # name: what top_singular is asked for
    "no pass": {"passes": 0},
    "one pass": {"passes": 1},
    "two passes": {"passes": 2, "tolerance": 0.0},
}
SIZES = (1000, 100, 300)
DENSE_SIZES = (50, 100, 300)
LOOP_SIZE = 20
MEMORY = 2 << 30


def images(n: int, data: str | None) -> Tensor:
    """(n, 3, 32, 32), standardised."""
    if data is not None:
        x = load(data).take(torch.arange(n)).float()
    else:
        torch.manual_seed(1)
        pictures = torch.nn.functional.interpolate(torch.randn(10, 3, 4, 4), size=32, mode="bilinear")
        x = pictures[torch.arange(n) % 10] + torch.randn(n, 3, 32, 32)
    return (x - x.mean(dim=(0, 2, 3), keepdim=True)) / x.std(dim=(0, 2, 3), keepdim=True)


def network() -> torch.nn.Module:
    torch.manual_seed(0)
    return build("resnet20", (3, 32, 32), 10).eval()


def measure_top(x: Tensor, case: str) -> dict[str, Any]:
    began = time.process_time()
    found = top_singular(Jacobian(network(), x, memory=MEMORY), 20, **CASES[case])
    seconds = time.process_time() - began
    error = None if found.errors is None else float((found.errors / found.values).max())
    return {"seconds": seconds, "passes": found.passes, "error": error, "values": found.values.tolist()}


def measure_dense(x: Tensor, case: str) -> dict[str, Any]:
    model = network()
    theta = {name: parameter.detach() for name, parameter in model.named_parameters()}
    buffers = dict(model.named_buffers())

    def one(theta: dict[str, Tensor], x: Tensor) -> Tensor:
        return functional_call(model, theta | buffers, (x[None],))[0]

    rows = vmap(jacrev(one), (None, 0))
    rows(theta, x[:2])  # the first call sets up
    began = time.process_time()
    jacobian = torch.empty(len(x), 10, sum(p.numel() for p in theta.values()))
    for start in range(0, len(x), 16):
        part = rows(theta, x[start : start + 16])
        torch.cat([value.flatten(2) for value in part.values()], dim=2, out=jacobian[start : start + 16])
    made = time.process_time()
    gram = jacobian.flatten(0, 1) @ jacobian.flatten(0, 1).T
    squared = time.process_time()
    values = torch.linalg.eigvalsh(gram).flip(0)[:20].clamp_min(0).sqrt()
    done = time.process_time()
    parts = {"rows": made - began, "gram": squared - made, "eigenvalues": done - squared}
    return {"seconds": done - began, "parts": parts, "values": values.tolist()}


def measure_loop(x: Tensor, case: str) -> dict[str, Any]:
    """All rows by a loop over examples and outputs, and nothing done with them."""
    model = network()
    parameters = list(model.parameters())
    began = time.process_time()
    for example in x:
        outputs = model(example[None])[0]
        for output in outputs:
            row = torch.autograd.grad(output, parameters, retain_graph=True)
            torch.cat([part.flatten() for part in row])
    return {"seconds": time.process_time() - began}


def measure_columns(x: Tensor, case: str) -> dict[str, Any]:
    """One product JᵀJ V of 48 columns, by rows; and of 2 columns by forward and backward mode."""
    jacobian = Jacobian(network(), x, memory=MEMORY)
    v = torch.randn(jacobian.shape[1], 48)
    seconds = []
    for columns in (v, v[:, :2]):
        began = time.process_time()
        jacobian.normal(columns)
        seconds.append(time.process_time() - began)
    return {"seconds": sum(seconds), "rows": seconds[0], "modes": seconds[1]}


def child(kind: str, n: int, data: str | None) -> None:
    """Measure one case in this process, and print it as JSON."""
    torch.set_num_threads(1)
    x = images(n, data)
    network()(x[:2])
    base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    measure = {"dense": measure_dense, "loop": measure_loop, "columns": measure_columns}.get(kind, measure_top)
    result = measure(x, kind)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({**result, "peak": peak * 1024, "rise": (peak - base) * 1024}))


def run(kind: str, n: int, data: str | None) -> dict[str, Any]:
    call = [sys.executable, __file__, "--child", kind, str(n), *(["--data", data] if data else [])]
    result = json.loads(subprocess.run(call, check=True, capture_output=True, text=True).stdout)
    print(f"{kind}, n = {n}: {result['seconds']:.1f} s, peak {result['peak'] / 2**30:.2f} GiB", flush=True)
    return result


def continued(dense: dict[int, dict[str, Any]], n: int) -> dict[str, float]:
    """The dense way at n, from its largest measured size."""
    size = max(dense)
    powers = {"rows": 1, "gram": 2, "eigenvalues": 3}
    return {part: seconds * (n / size) ** powers[part] for part, seconds in dense[size]["parts"].items()}


def plot(top: dict[str, dict[int, dict[str, Any]]], dense: dict[int, dict[str, Any]], path: Path) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.4, 3.4), layout="constrained")
    FigureCanvasAgg(figure)
    time_axis, value_axis = figure.subplots(1, 2)
    for (case, results), colour in zip(top.items(), ("#b7950b", "#1e8449", "#2471a3"), strict=True):
        time_axis.loglog(
            sorted(results), [results[n]["seconds"] for n in sorted(results)], ".-", color=colour, label=case
        )
    time_axis.loglog(list(dense), [r["seconds"] for r in dense.values()], ".-", color="#c0392b", label="dense")
    line = [sum(continued(dense, n).values()) for n in sorted(SIZES)]
    time_axis.loglog(sorted(SIZES), line, ":", color="#c0392b", label="dense, continued")
    rows = [continued(dense, n)["rows"] for n in sorted(SIZES)]
    time_axis.loglog(sorted(SIZES), rows, ":", color="0.5", label="dense, rows alone")
    time_axis.set(xlabel="n", ylabel="seconds")
    for n, result in sorted(top["two passes"].items()):
        value_axis.semilogy(range(1, 21), result["values"], ".-", lw=1, label=f"n = {n}")
    value_axis.set(xlabel="rank", ylabel="singular value")
    for axis in (time_axis, value_axis):
        axis.grid(alpha=0.25, lw=0.5)
        axis.spines[["top", "right"]].set_visible(False)
        axis.legend(fontsize=7, frameon=False)
    figure.savefig(path, dpi=130, format="png")


def main(data: str | None) -> None:
    dense = {n: run("dense", n, data) for n in DENSE_SIZES}
    loop = run("loop", LOOP_SIZE, data)
    columns = run("columns", 40, data)
    top: dict[str, dict[int, dict[str, Any]]] = {case: {} for case in CASES}
    table = []
    for n in SIZES:
        whole = continued(dense, n)
        for case in CASES:
            top[case][n] = result = run(case, n, data)
            first, last = result["values"][0], result["values"][-1]
            rivals = (sum(whole.values()), whole["rows"], loop["seconds"] * n / LOOP_SIZE)
            result["ratio"], result["ratio_rows"], result["ratio_loop"] = (t / result["seconds"] for t in rivals)
            table.append([f"{n:,}, {case}", f"{result['seconds']:.1f} s", f"{first:.4g}",
                          f"{last:.4g}", f"{result['peak'] / 2**30:.2f} GiB", f"{result['ratio']:.1f}",
                          f"{result['ratio_rows']:.2f}", f"{result['ratio_loop']:.1f}"])  # fmt: skip
        final = torch.tensor(top["two passes"][n]["values"])
        for case in CASES:  # against the most exact one; at the dense sizes against the dense way
            truth = torch.tensor(dense[n]["values"]) if n in dense else final
            top[case][n]["deviation"] = float(((torch.tensor(top[case][n]["values"]) - truth) / truth).abs().max())
    deviations = [[f"{n:,}", *(f"{top[case][n]['deviation']:.1e}" for case in CASES)] for n in SIZES]
    header = ["n, way", "seconds", "σ1", "σ20", "peak memory", "dense / this", "dense rows / this", "loop / this"]
    show("Top 20 singular values, ResNet-20, n × 10 outputs, 269,722 parameters", header, table)
    show(
        "Largest relative deviation of a value from two passes (n = 100, 300: from the dense way)",
        ["n", *CASES],
        deviations,
    )
    write("jacobian", {"top": top, "dense": dense, "loop": loop, "columns": columns, "memory": MEMORY,
                       "data": Path(data).name if data else "synthetic", "machine": machine()})  # fmt: skip
    plot(top, dense, ROOT / "results" / "jacobian.png")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data")
    parser.add_argument("--child", nargs=2, metavar=("KIND", "N"))
    arguments = parser.parse_args()
    if arguments.child:
        child(arguments.child[0], int(arguments.child[1]), arguments.data)
    else:
        main(arguments.data)

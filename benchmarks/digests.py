"""Digests of short runs: whether a change of the code changed a bit of what it computes.

    python benchmarks/digests.py record before.json      # every method, some stacks, pre-training, a resumed run
    ...change the code...
    python benchmarks/digests.py compare before.json

A digest is of a run folder's weights, of its history without times, and of its label table in the order of the ids.
Runs go through the command line, which stays the same where modules move. Bits hold on one machine with one version of
torch; the same file compared elsewhere will differ.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from safetensors import safe_open

DIGITS = "fit digits --noise symmetric:0.4 --epochs 6 --limit 600"
COLOUR = "fit colour.npz --noise symmetric:0.3 --epochs 4 --model resnet8 --batch-size 32"
PRETRAIN = "pretrain colour.npz --model resnet8 --epochs 4 --batch-size 32"
RUNS = {
    **{
        name: f"{DIGITS} --method {name}"
        for name in [
            "ce",
            "elr",
            "gce",
            "sce",
            "sop",
            "sop_plus",
            "mixup",
            "refine",
            "forward",
            "co_teaching",
            "sop(variant='paper')",
            "sop_plus(variant='paper')",
            "crust(ce)",
            "early_stop(ce)",
            "pull(ce)",
            "label_noise(elr)",
            "early_stop(crust(elr))",
            "crust(sop)",
            "crust(ce,selection='medoids',by='prediction',weighted=True,mixup=1.0)",
            "early_stop(ce,criterion='changes')",
            "early_stop(ce,criterion='mixture')",
            "early_stop(ce,criterion='knee')",
        ]
    },
    "backward": "fit digits --noise symmetric:0.2 --epochs 12 --limit 1200 --method backward --clip 1",
    "adamw": f"{DIGITS} --method ce --optimizer adamw --lr 0.002 --schedule multi_step([2,4])",
    "adadelta": f"{DIGITS} --method ce --optimizer adadelta --lr 0.5 --schedule constant",
    "anneal": f"{DIGITS} --method ce --schedule anneal_on_loss(1.5,stop=0.5) --val 0",
    "anneal-full": f"{DIGITS} --method ce --schedule anneal_on_loss(1.5,loss='full')",
    "resumed": f"{DIGITS} --method elr --epochs 60 --checkpoint-steps 3",
    "table": "fit table.csv --label-column kind --method elr --epochs 6",
    "colour-sop": f"{COLOUR} --method sop",
    "colour-sop_plus": f"{COLOUR} --method sop_plus",
    "colour-strong": f"{COLOUR} --method ce --augment strong",
    "colour-simclr": f"{COLOUR} --method elr --augment simclr --optimizer adam --lr 0.002",
    "moco": f"{PRETRAIN} --method moco(dictionary_size=128)",
    "sane": f"{PRETRAIN} --method sane(dictionary_size=128,crops=1) --mix-augment sane-strong",
    "sane-crops": f"{PRETRAIN} --method sane(dictionary_size=128,crops=2)",
}
INIT = f"{COLOUR} --method sop --init moco"  # after the others
TIMES = ("examples_per_second", "seconds")


def make_data(folder: Path) -> None:
    """A small set of colour images, and a table."""
    from sklearn.datasets import load_digits, load_wine

    digits = load_digits()
    images = np.kron(digits.images[:500] * 15, np.ones((2, 2))).astype(np.uint8)  # (500, 16, 16)
    tint = np.random.default_rng(0).uniform(0.4, 1, (500, 3, 1, 1))
    np.savez(folder / "colour.npz", inputs=(images[:, None] * tint).astype(np.uint8), labels=digits.target[:500])
    wine = load_wine(as_frame=False)
    rows = [",".join(["kind", *(f"x{i}" for i in range(wine.data.shape[1]))])]
    rows += [",".join([f"k{kind}", *map(str, row)]) for kind, row in zip(wine.target, wine.data, strict=True)]
    (folder / "table.csv").write_text("\n".join(rows) + "\n")


def run(folder: Path, name: str, command: str) -> None:
    """The command, in a run folder of that name; one is interrupted and resumed."""
    environment = dict(os.environ, OMP_NUM_THREADS="1", PYTHONPATH=str(Path(__file__).parent.parent))
    begin = [sys.executable, "-m", "noiseproof"]
    full = [*begin, *command.split(), "--out", name, "--quiet"]
    if name == "resumed":
        process = subprocess.Popen(full, cwd=folder, env=environment, stdout=subprocess.DEVNULL)
        history = folder / name / "history.jsonl"
        while process.poll() is None and not (history.exists() and history.stat().st_size > 2000):
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.wait()
        full = [*begin, "fit", "--out", name, "--resume", "--quiet"]
    subprocess.run(full, cwd=folder, env=environment, stdout=subprocess.DEVNULL, check=True)


def digest(folder: Path) -> dict[str, str]:
    """What a run folder holds, in three numbers."""
    weights, history = hashlib.sha256(), hashlib.sha256()
    path = next(folder / name for name in ("model.safetensors", "backbone.safetensors") if (folder / name).exists())
    with safe_open(path, framework="np") as file:
        for key in sorted(file.keys()):
            weights.update(key.encode() + file.get_tensor(key).tobytes())
    for line in (folder / "history.jsonl").read_text().splitlines():
        record = {key: value for key, value in json.loads(line).items() if key not in TIMES}
        history.update(json.dumps(record, sort_keys=True).encode())
    found = {"weights": weights.hexdigest()[:16], "history": history.hexdigest()[:16]}
    if (folder / "labels.parquet").exists():
        table = pq.read_table(folder / "labels.parquet").sort_by([("split", "ascending"), ("id", "ascending")])
        table = table.filter(np.isin(np.array(table["split"].to_pylist()), ("train", "val")))
        columns = {key: table[key].to_pylist() for key in sorted(table.column_names)}
        found["labels"] = hashlib.sha256(json.dumps(columns).encode()).hexdigest()[:16]
    return found


def digests(only: list[str]) -> dict[str, dict[str, str]]:
    """Of all runs, or of those whose names begin so, two at a time."""
    runs = {name: command for name, command in RUNS.items() if not only or name.startswith(tuple(only))}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_data(folder)
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda item: run(folder, *item), runs.items()))
        if "moco" in runs:
            run(folder, "init", INIT)
            runs["init"] = INIT
        return {name: digest(folder / name) for name in runs}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=("record", "compare"))
    parser.add_argument("file", type=Path)
    parser.add_argument("--only", nargs="*", default=[], help="runs whose names begin so")
    options = parser.parse_args()
    found = digests(options.only)
    if options.verb == "record":
        options.file.write_text(json.dumps(found, indent=2) + "\n")
        print(f"{len(found)} runs recorded in {options.file}")
        return
    before = json.loads(options.file.read_text())
    differ = [
        f"{name}: {key}"
        for name, one in before.items()
        if name in found
        for key in one
        if found[name].get(key) != one[key]
    ]
    print("\n".join(differ) or f"all {len(found)} runs are the same")
    sys.exit(bool(differ))


if __name__ == "__main__":
    main()

"""Kill −9 of a random process at a random moment: does the run end with the bits of an undisturbed one?

    python benchmarks/faults.py 100                      # kills, methods, worlds and moments drawn by seed
    python benchmarks/faults.py 5 --torchrun             # the same, started and restarted by torchrun

A moment is a call that a process makes: the n-th exchange, optimizer step, flush or rename of a file (so: inside a
checkpoint); or a time by the clock. By default an agent of this file forks the processes, ends all when one has died,
and starts them again, as torchrun does; without its five seconds of imports for each process a hundred kills take
minutes.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from noiseproof.data import load, noise
from noiseproof.errors import InputError
from noiseproof.method import Wrapper
from noiseproof.methods import registry
from noiseproof.runs import plots
from noiseproof.training.fit import fit

STACKS = ["early_stop(crust(elr))", "label_noise(sop)", "joint(warmup=1)", "incv(elr)"]
NOISE = [[0.7 if i == j else 0.3 / 9 for j in range(10)] for i in range(10)]
OPTIONED = {
    "backward": f"backward(transition={NOISE})",  # estimated in an epoch it diverges
}
METHODS = [OPTIONED.get(name, name) for name, cls in registry().items() if not issubclass(cls, Wrapper)] + STACKS
MOMENTS = {"exchange": (dist, "all_reduce"), "gather": (dist, "all_gather"),
           "decision": (dist, "broadcast_object_list"), "flush": (os, "fsync"), "rename": (os, "replace"),
           "step": (torch.optim.SGD, "step")}  # fmt: skip
CLOCK = "clock"
OPTIONS = {"epochs": 4, "batch_size": 32, "val": 0.2, "seed": 1, "device": "cpu", "checkpoint_steps": 3}
PATIENCE = 600  # seconds after which a run counts as hung, on a machine with other work


def no_picture(history: Any, losses: Any, wrong: Any, path: Path, **_: Any) -> None:
    """In place of the curves, which take ten times as long as such a run."""
    path.write_bytes(b"")


def train(method: str, state: str, out: Path) -> None:
    data = noise.apply(load("digits").subset(torch.arange(180)), "symmetric:0.3", seed=0)
    fit("mlp(widths=[16])", data, method, out=out, state=state, **OPTIONS)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def count_calls(die_at: tuple[str, float] | None) -> Counter[str]:
    """Count the calls that moments are made of, and die at one of them, or after some seconds."""
    seen: Counter[str] = Counter()
    if die_at is not None and die_at[0] == CLOCK:
        timer = threading.Timer(die_at[1], die)
        timer.daemon = True
        timer.start()
    for kind, (place, name) in MOMENTS.items():
        plain = getattr(place, name)

        def counted(*args: Any, kind: str = kind, plain: Any = plain, **kwargs: Any) -> Any:
            seen[kind] += 1
            if die_at == (kind, seen[kind]):
                die()
            return plain(*args, **kwargs)

        setattr(place, name, counted)
    return seen


def child(rank: int, world: int, port: int, restart: int, job: dict[str, Any]) -> None:
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1",
                   "MASTER_PORT": str(port), "TORCHELASTIC_RESTART_COUNT": str(restart),
                   "NOISEPROOF_TIMEOUT": "60"}  # fmt: skip
    os.setpgid(0, 0)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    began = time.monotonic()
    seen = count_calls(tuple(job["die_at"]) if job["die_at"] and rank == job["victim"] and restart == 0 else None)
    try:
        train(job["method"], job["state"], Path(job["out"]))
    except InputError:
        os._exit(2)
    if job.get("count"):
        spent = {CLOCK: time.monotonic() - began}
        Path(job["count"] + f".{rank}").write_text(json.dumps(seen | spent))
    if dist.is_initialized():
        dist.destroy_process_group()
    os._exit(0)


def run(world: int, job: dict[str, Any]) -> tuple[str, int]:
    """Start the processes, again when one died: how it ended, and after how many restarts."""
    began = time.monotonic()
    for restart in range(4):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        context = multiprocessing.get_context("fork")
        processes = [context.Process(target=child, args=(rank, world, port, restart, job)) for rank in range(world)]
        for one in processes:
            one.start()
        while any(one.is_alive() for one in processes) and all(one.exitcode in (None, 0) for one in processes):
            time.sleep(0.02)
            if time.monotonic() - began > PATIENCE:
                for one in processes:
                    one.kill()
                return "hung", restart
        if all(one.exitcode == 0 for one in processes):
            return "ended", restart
        for one in processes:
            one.terminate()
        for one in processes:
            one.join(10)
            one.kill()
            one.join()
    return "gave up", restart


def torchrun(world: int, job: dict[str, Any]) -> tuple[str, int]:
    """The same by torchrun."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(world),
               "--max-restarts", "3", __file__, "--job", json.dumps(job)]  # fmt: skip
    environment, told = os.environ | {"NOISEPROOF_TIMEOUT": "60"}, Path(job["out"]) / "restarts"
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, env=environment)
    except subprocess.TimeoutExpired:
        return "hung", -1
    if done.returncode:
        print(done.stderr[-3000:], file=sys.stderr)
        return "gave up", -1
    return "ended", int(told.read_text())


def bits(folder: Path) -> dict[str, Any]:
    """What a run left: its weights, its labels, its figures without times."""
    import pyarrow.parquet as pq

    history = [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]
    return {
        "model": (folder / "model.safetensors").read_bytes(),
        "labels": pq.read_table(folder / "labels.parquet").to_pydict(),
        "history": [{k: v for k, v in one.items() if "second" not in k} for one in history],
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("kills", type=int, nargs="?", default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--torchrun", action="store_true")
    parser.add_argument("--job")
    given = parser.parse_args()
    if given.job:
        job = json.loads(given.job)
        restart = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
        plots.plot_run = no_picture  # type: ignore[assignment]
        dies = job["die_at"] and int(os.environ["RANK"]) == job["victim"] and restart == 0
        count_calls(tuple(job["die_at"]) if dies else None)
        train(job["method"], job["state"], Path(job["out"]))
        (Path(job["out"]) / "restarts").write_text(str(restart))
        return
    plots.plot_run = no_picture  # type: ignore[assignment]
    root, draw = Path(tempfile.mkdtemp()), random.Random(given.seed)
    launch = torchrun if given.torchrun else run
    train("ce", "replicated", root / "first")  # what is imported on the way is imported once
    undisturbed: dict[tuple[str, int, str], tuple[Any, list[Counter[str]]]] = {}
    table: Counter[tuple[str, int, str, str]] = Counter()
    for number in range(given.kills):
        method, world = draw.choice(METHODS), draw.choice([2, 3])
        state = draw.choice(["replicated", "sharded"])
        key = (method, world, state)
        if key not in undisturbed:
            job = {"method": method, "state": state, "out": str(root / f"whole-{len(undisturbed)}"), "die_at": None,
                   "victim": 0, "count": str(root / f"count-{len(undisturbed)}")}  # fmt: skip
            assert run(world, job)[0] == "ended", key
            counts = [Counter(json.loads(Path(f"{job['count']}.{rank}").read_text())) for rank in range(world)]
            undisturbed[key] = bits(Path(job["out"])), counts
        whole, counts = undisturbed[key]
        victim = draw.randrange(world)
        kind = draw.choice([kind for kind in (*MOMENTS, CLOCK) if counts[victim][kind]])
        last = counts[victim][kind]
        at = draw.uniform(0, last) if kind == CLOCK else draw.randint(1, int(last))
        out = root / f"killed-{number}"
        job = {"method": method, "state": state, "out": str(out), "victim": victim,
               "die_at": [kind, at]}  # fmt: skip
        ending, restarts = launch(world, job)
        same = ending == "ended" and bits(out) == whole
        table[kind, world, state, ending if not same else "same bits"] += 1
        told = f"{number + 1:4} {method[:24]:24} {world} {state:10} rank {victim} {kind} {at:4.4g}: {ending}"
        print(f"{told}, {restarts} restart(s), {'same bits' if same else 'OTHER BITS'}", flush=True)
        shutil.rmtree(out, ignore_errors=True)
    for (kind, world, state, outcome), count in sorted(table.items()):
        print(f"| {kind} | {world} | {state} | {outcome} | {count} |")
    shutil.rmtree(root)


if __name__ == "__main__":
    main()

"""Processes that share batches: what they cost beside one process, and the part of it that is the exchange of rows.

    python benchmarks/processes.py --steps 8 --rounds 3     # resnet20, 32×32, B = 128, sop with K = 1,000

Processor seconds of a step, over all processes and threads, with wall seconds beside them: on a machine with other work
the first mean more. One process with two threads, two and four processes with one thread each, in turn, round after
round; of each figure the least of the rounds. `speed`: of one process, over this one's, by the wall and by processors.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import socket
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from noiseproof import distributed
from noiseproof.data import LabeledData
from noiseproof.training import fit as training
from noiseproof.training.gradients import Gradients
from noiseproof.training.rows import Rows

B, K = 128, 1000
PARTS = {"rows": (Rows, ("fetch", "exchange")), "gradients": (Gradients, ("_send", "finish"))}


class Clock:
    """Seconds of the wall and of the processor, by part of a step."""

    def __init__(self) -> None:
        self.spent = {name: [0.0, 0.0] for name in (*PARTS, "step")}
        self.begun: list[float] = []

    def timed(self, name: str, function: Any) -> Any:
        def call(*args: Any) -> Any:
            before = time.perf_counter(), time.process_time()
            answer = function(*args)
            for at, (now, then) in enumerate(zip((time.perf_counter(), time.process_time()), before, strict=True)):
                self.spent[name][at] += now - then
            return answer

        return call


def work(rank: int, world: int, port: int, threads: int, state: str, steps: int, out: Path) -> None:
    torch.set_num_threads(threads)
    if world > 1:
        os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world),
                       "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}  # fmt: skip
    torch.manual_seed(0)
    inputs = torch.randint(0, 256, (B * steps, 3, 32, 32), dtype=torch.uint8)
    names = tuple(map(str, range(K)))
    labels = torch.randint(0, K, (B * steps,))
    data = LabeledData(inputs, labels, class_names=names, allow_empty=True)
    clock = Clock()
    for name, (cls, hooks) in PARTS.items():
        for hook in hooks:
            setattr(cls, hook, clock.timed(name, getattr(cls, hook)))
    plain = training.setup.Loop.steps
    training.setup.Loop.steps = clock.timed("step", plain)  # type: ignore[method-assign]
    training.conclude = lambda *_: None  # type: ignore[assignment]
    training.fit("resnet20", data, "sop", epochs=1, batch_size=B, eval_examples=0, device="cpu", state=state)
    spent = {name: [one / steps for one in both] for name, both in clock.spent.items()}
    if rank == 0 or world > 1:
        (out / f"{rank}.json").write_text(json.dumps(spent))
    if distributed.world() > 1:
        distributed.wait()


def measure(world: int, threads: int, state: str, steps: int) -> dict[str, list[float]]:
    with tempfile.TemporaryDirectory() as folder, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        context = multiprocessing.get_context("spawn")
        arguments = (world, port, threads, state, steps, Path(folder))
        processes = [context.Process(target=work, args=(rank, *arguments)) for rank in range(world)]
        for one in processes:
            one.start()
        for one in processes:
            one.join()
        found = [json.loads(path.read_text()) for path in sorted(Path(folder).glob("*.json"))]
    wall = {name: max(one[name][0] for one in found) for name in found[0]}
    return {name: [wall[name], sum(one[name][1] for one in found)] for name in found[0]}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--worlds", default="1,2,4")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    kinds = [(int(world), state) for world in given.worlds.split(",") for state in ("replicated", "sharded")]
    kinds = [(world, state) for world, state in kinds if world > 1 or state == "replicated"]
    best: dict[tuple[int, str], dict[str, list[float]]] = {}
    for _ in range(given.rounds):
        for world, state in kinds:
            found = measure(world, 2 if world == 1 else 1, state, given.steps)
            before = best.get((world, state), found)
            best[world, state] = {name: list(map(min, one, before[name])) for name, one in found.items()}
    print("| processes | threads | state | step, wall s | processor s | speed: wall, processor | rows | gradients |")
    base = best[kinds[0]]["step"]
    for (world, state), found in best.items():
        (wall, cpu), rows, gradients = found["step"], found["rows"], found["gradients"]
        shares = " | ".join(f"{one[0] / wall:.1%}, {one[1] / cpu:.1%}" for one in (rows, gradients))
        speed = f"{base[0] / wall:.2f}, {base[1] / cpu:.2f}"
        print(f"| {world} | {2 if world == 1 else 1} | {state} | {wall:.3f} | {cpu:.3f} | {speed} | {shares} |")


if __name__ == "__main__":
    main()

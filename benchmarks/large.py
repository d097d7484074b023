"""Training on 30 GB of JPEGs in tar shards: start-up, peak memory of each process, and whether reading keeps up.

    python benchmarks/large.py                       # 30 GB, 1 and 2 processes, 200 steps of 100 ms
    python benchmarks/large.py --gigabytes 1 --steps 50

The shards are made here and removed afterwards: a few different ones, each under many names (hard links), so that they
take a hundredth of their size on the disk, and are read from the operating system's memory: this is about decoding, the
index and memory, not about the speed of a disk. The network is a pause of 100 ms, as if a GPU computed.

busy = 1 − the share of a step in which the loop waits for images. A step is the pause and what the loop does on this
processor, most of it normalisation, which a GPU would do. On a machine with other work the loop's pauses are as long as
ever, and decoding waits for a core; so the processor time of a step stands beside it, all processes together: reading
keeps up where it is less than the cores have in a step.
"""

from __future__ import annotations

import argparse
import io
import json
import multiprocessing
import os
import resource
import socket
import sys
import tarfile
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from common import machine, show, write
from PIL import Image

SIDE, PAUSE, DIFFERENT, PER_SHARD, WARM = 224, 0.1, 2, 250, 20


class Enough(Exception):
    """So many steps are enough."""


def make(folder: Path, gigabytes: float) -> tuple[int, int]:
    """Shards of about so many bytes; how many, and how many images."""
    rng, count = np.random.default_rng(0), 0
    shards: list[Path] = []
    grain = rng.normal(0, 8, (2 * SIDE, 2 * SIDE, 1)).astype(np.float32)
    for number in range(DIFFERENT):
        shards.append(folder / f"made-{number}")
        with tarfile.open(shards[-1], "w") as tar:
            for i in range(PER_SHARD):
                coarse = Image.fromarray(rng.integers(256, size=(12, 12, 3), dtype=np.uint8))
                pixels = np.asarray(coarse.resize((SIDE, SIDE), Image.Resampling.BICUBIC), np.float32)
                top, left = rng.integers(SIDE, size=2)
                pixels = pixels + grain[top : top + SIDE, left : left + SIDE]
                image = io.BytesIO()
                Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(image, "jpeg", quality=95)
                for kind, content in (("jpg", image.getvalue()), ("cls", str((i + number) % 100).encode())):
                    info = tarfile.TarInfo(f"{i:06}.{kind}")
                    info.size = len(content)
                    tar.addfile(info, io.BytesIO(content))
    size = sum(one.stat().st_size for one in shards) / DIFFERENT
    while count * size < gigabytes * 1e9:
        os.link(shards[count % DIFFERENT], folder / f"train-{count:06}.tar")
        count += 1
    return count, count * PER_SHARD


def work(rank: int, world: int, port: int, folder: Path, out: Path, batch: int, steps: int, shuffle: str) -> None:
    import torch
    from torch import Tensor, nn

    import noiseproof as nf
    from noiseproof.data.sources import Ahead

    torch.set_num_threads(1)
    waited, take = [0.0], Ahead.take

    def timed(self: Ahead, rows: Tensor) -> Tensor:
        began = time.perf_counter()
        images = take(self, rows)
        waited[0] += time.perf_counter() - began
        return images

    Ahead.take = timed  # type: ignore[method-assign]
    if world > 1:
        os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world),
                       "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}  # fmt: skip

    class Pause(nn.Module):
        """A network that computes elsewhere."""

        def __init__(self) -> None:
            super().__init__()
            self.bias = nn.Parameter(torch.zeros(100))
            self.clocks: list[tuple[float, float, float]] = []

        def forward(self, x: Tensor) -> Tensor:
            if self.training:
                self.clocks.append((time.perf_counter(), time.process_time(), waited[0]))
                if len(self.clocks) > WARM + steps:
                    raise Enough
                time.sleep(PAUSE)
            return self.bias.expand(len(x), 100)

    began, spent = time.perf_counter(), time.process_time()
    data = nf.load(folder, image_size=SIDE)
    loaded, pause = (time.perf_counter() - began, time.process_time() - spent), Pause()
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with suppress(Enough):
        nf.fit(
            pause, data, "elr", epochs=1, batch_size=batch, eval_examples=0, state="sharded", device="cpu",
            shuffle=shuffle,
        )  # fmt: skip
    wall, cpu, wait = ((pause.clocks[-1][at] - pause.clocks[WARM][at]) / steps for at in (0, 1, 2))
    told = {"examples": len(data), "loaded": loaded, "held": held, "wall": wall, "cpu": cpu, "wait": wait,
            "begun": pause.clocks[0][0] - began - loaded[0],
            "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}  # fmt: skip
    (out / f"{rank}.json").write_text(json.dumps(told))
    os._exit(0)  # the others have left a run without an end, too


def measure(world: int, folder: Path, batch: int, steps: int, shuffle: str) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as out, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        context = multiprocessing.get_context("spawn")
        arguments = (world, port, folder, Path(out), batch, steps, shuffle)
        processes = [context.Process(target=work, args=(rank, *arguments)) for rank in range(world)]
        for one in processes:
            one.start()
        for one in processes:
            one.join()
        return [json.loads(path.read_text()) for path in sorted(Path(out).glob("*.json"))]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--gigabytes", type=float, default=30)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--worlds", default="1,2")
    parser.add_argument("--shuffle", default="examples", help="or shards")
    parser.add_argument("--folder", type=Path, help="make the shards under this folder, not under that of temporaries")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as place:
        os.environ["NOISEPROOF_CACHE"] = f"{place}/cache"
        (folder := Path(place) / "shards").mkdir()
        began = time.perf_counter()
        shards, images = make(folder, given.gigabytes)
        print(f"made {shards} shards, {images:,} images, in {time.perf_counter() - began:.0f} s", file=sys.stderr)
        rows, found = [], {}
        for world in map(int, given.worlds.split(",")):
            each = found[world] = measure(world, folder, given.batch, given.steps, given.shuffle)
            wall, cpu = max(one["wall"] for one in each), sum(one["cpu"] for one in each)
            busy = min(1 - one["wait"] / one["wall"] for one in each)
            start = f"{each[0]['loaded'][0]:.0f} + {each[0]['begun']:.0f} ({each[0]['loaded'][1]:.0f})"
            peak = max(one["peak"] for one in each) / 2**20
            rows.append([str(world), start, f"{peak:.2f}", f"{busy:.3f}", f"{1000 * wall:.0f}", f"{1000 * cpu:.0f}"])
            print(rows[-1], file=sys.stderr, flush=True)
    header = ["processes", "start-up s: index + rest (processor)", "peak GiB", "busy", "step ms", "processor ms"]
    show(f"{images:,} JPEGs in {shards} shards, {given.gigabytes:g} GB, batch {given.batch}", header, rows)
    write("large", {"images": images, "found": found, "load": os.getloadavg()[0], "machine": machine()})


if __name__ == "__main__":
    main()

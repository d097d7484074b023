"""What goes wrong with one process: it hangs, its disk is full, it is slow."""

from __future__ import annotations

import json
import multiprocessing
import os
import resource
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist
from test_processes import _without_audit as _without_audit
from test_processes import bits, same, train

from noiseproof import distributed, methods
from noiseproof.errors import InputError
from noiseproof.method import Batch, Run
from noiseproof.runs.result import FitResult

STEP = 5  # at which it happens, in the second epoch
TIMEOUT = 6


class Faulty(methods.registry()["elr"]):  # type: ignore[misc]
    """ELR, in which something happens to the second process after a step."""

    happens: Callable[[], object] = staticmethod(lambda: None)
    always = False

    def after_step(self, run: Run, batch: Batch) -> None:
        super().after_step(run, batch)
        if distributed.rank() == 1 and (run.step == STEP or self.always):
            self.happens()


def launch(work: Callable[[], Any], folder: Path, patient: float = 60, port: int | None = None) -> list[Any]:
    """What `work` gives in each of two processes, started as torchrun does; None: nothing in so many seconds.

    `port`: where they meet in a store that is there already.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = port or free.getsockname()[1]

    def child(rank: int) -> None:
        os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1",
                       "MASTER_PORT": str(port), distributed.TIMEOUT: str(TIMEOUT)}  # fmt: skip
        try:
            answer = work()
        except InputError as error:
            answer = str(error)
        (folder / f"answer-{rank}.json").write_text(json.dumps(answer))
        if dist.is_initialized():
            dist.destroy_process_group()
        os._exit(0)

    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=child, args=(rank,)) for rank in range(2)]
    for process in processes:
        process.start()
    ends = time.monotonic() + patient
    answers = [folder / f"answer-{rank}.json" for rank in range(2)]
    while time.monotonic() < ends and any(process.is_alive() for process in processes):
        time.sleep(0.1)
        if answers[0].exists() and not processes[0].is_alive():
            processes[1].join(3)  # unless it cannot
            break
    for process in processes:
        process.kill()
        process.join()
    found = [json.loads(path.read_text()) if path.exists() and path.stat().st_size else None for path in answers]
    for path in answers:
        path.unlink(missing_ok=True)
    return found


@pytest.fixture(autouse=True)
def _nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FitResult, "save", lambda *_, **__: None)  # there is no audit to write
    monkeypatch.setattr(Faulty, "happens", Faulty.happens)
    monkeypatch.setattr(Faulty, "always", False)


def run(out: Path | None = None, **more: Any) -> FitResult:
    return train(Faulty(), out=out, state="sharded", **more)[0]  # type: ignore[arg-type]


def test_a_process_that_hangs_ends_the_run_with_a_sentence(tmp_path: Path) -> None:
    Faulty.happens = staticmethod(lambda: os.kill(os.getpid(), signal.SIGSTOP))
    first, second = launch(lambda: run() and None, tmp_path)
    assert first.startswith(f"another process has not answered process 0 for {TIMEOUT} s; look into its log")
    assert second is None


def test_a_disk_that_is_full_for_one_ends_the_run_and_keeps_the_last_checkpoint(tmp_path: Path) -> None:
    out = tmp_path / "run"
    Faulty.happens = staticmethod(lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024)))
    first, second = launch(lambda: run(out, checkpoint_steps=3) and None, tmp_path)
    assert "cannot write" in second
    assert "free space" in second
    assert "another" in first

    def again() -> Any:
        return same(bits(run(out, resume=True, checkpoint_steps=3)), bits(run()))

    Faulty.happens = staticmethod(lambda: None)
    assert launch(again, tmp_path) == [True, True]


def test_a_process_that_is_slow_changes_nothing(tmp_path: Path) -> None:
    def work() -> Any:
        Faulty.always = False
        alone = bits(run())
        Faulty.always = True
        return same(alone, bits(run()))

    Faulty.happens = staticmethod(lambda: time.sleep(0.2))
    assert launch(work, tmp_path) == [True, True]


def test_processes_started_again_meet_beside_what_the_dead_have_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torchrun keeps one store for all of its restarts, with the addresses of the processes before."""
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", "True")

    def meet() -> int:
        distributed.join()
        distributed.wait()
        return distributed.world()

    for restarts in range(3):
        monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", str(restarts))
        assert launch(meet, tmp_path, port=store.port) == [2, 2]

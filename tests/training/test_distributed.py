"""Two processes under torchrun do the work of one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from noiseproof import distributed
from noiseproof.cli.reading import run_folder
from noiseproof.data import LabeledData
from noiseproof.errors import InputError
from noiseproof.pretraining import pretrain

WORKER = Path(__file__).parent / "distributed_worker.py"
PARTS = ["gradients", "rivals", "whole"]  # its functions


def torchrun(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "NOISEPROOF_DEBUG": "1"}
    return subprocess.run([*map(str, command)], capture_output=True, text=True, env=environment, timeout=300)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """What two processes left, and said, that went through all parts: to start them takes longer than most parts do."""
    folder = tmp_path_factory.mktemp("parts")
    return folder, torchrun(WORKER, folder, *PARTS).stderr


@pytest.mark.parametrize("part", PARTS)
def test_in_both_processes(done: tuple[Path, str], part: str) -> None:
    folder, said = done
    assert {path.name for path in folder.glob(f"{part}-*")} == {f"{part}-0", f"{part}-1"}, said


def test_a_run_of_two_processes_was_stopped(done: tuple[Path, str]) -> None:
    folder, _ = done
    assert (folder / "interrupted-0").exists()
    assert (folder / "interrupted-1").exists()
    assert {"backbone.safetensors", "report.html"} <= {path.name for path in (folder / "plain").iterdir()}


def test_the_command_line_under_torchrun(tmp_path: Path) -> None:
    run = ["pretrain", "digits", "--model", "mlp(widths=[16])", "--epochs", "1", "--batch-size", "64", "--limit", "200"]
    done = torchrun("-m", "noiseproof", *run, "--augment", "weak", "--out", tmp_path / "run", "--device", "cpu")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Wrote") == 1


def test_who_is_the_main_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    assert distributed.is_main()  # nobody else: it must write
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert not distributed.is_main()


def test_a_batch_that_cannot_be_shared(
    monkeypatch: pytest.MonkeyPatch, digits: tuple[LabeledData, LabeledData]
) -> None:
    monkeypatch.setattr("noiseproof.distributed.world", lambda: 3)
    with pytest.raises(InputError, match="a multiple of the 3 processes"):
        pretrain("mlp", digits[0], "moco", batch_size=64)


def test_the_hint_names_torchrun_from_the_first_step_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    meet = lambda: monkeypatch.setattr(distributed, "world", lambda: 3)  # noqa: E731
    monkeypatch.setattr(distributed, "join", meet)
    monkeypatch.setattr(distributed, "is_main", lambda: True)
    monkeypatch.setattr(distributed, "from_main", lambda make: make())
    hint = run_folder("pretrain", {"out": tmp_path / "run"}, "moco", resume=False).hint
    assert hint == f"go on with: torchrun --nproc-per-node 3 -m noiseproof pretrain --out {tmp_path / 'run'} --resume"

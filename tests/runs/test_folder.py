"""A run's folder: one writer at a time, and a checkpoint to fall back on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest
import torch
from runs.light import train
from test_contract import KillAt, Killed, assert_same, without_times

from noiseproof.errors import InputError
from noiseproof.pretraining import pretrain
from noiseproof.runs import checkpoint
from noiseproof.runs.folder import CHECKPOINT, CONFIG, INITIAL, LOCK, PREVIOUS, RunFolder
from noiseproof.runs.loading import load_model


@pytest.fixture(scope="module")
def whole(digits, tmp_path_factory):
    """The folder of a run that was never disturbed."""
    folder = tmp_path_factory.mktemp("whole")
    train(digits[0], folder)
    return folder


@pytest.fixture
def killed(digits, tmp_path):
    """The folder of a run that was killed in its second epoch."""
    with pytest.raises(Killed):
        train(digits[0], tmp_path, progress=KillAt(9))
    return tmp_path


def assert_ends_as(whole, digits, folder):
    train(digits[0], folder, resume=True)
    assert len((folder / "history.jsonl").read_text().splitlines()) == 3
    states = [checkpoint.load(one / CHECKPOINT) for one in (whole, folder)]
    for state in states:
        state["history"] = without_times(state["history"])
        for name in ("seconds", "epoch_seconds"):
            del state["position"][name]
    assert_same(*states)
    assert not (folder / PREVIOUS).exists()
    assert not list(folder.glob(".*"))


# One writer


def test_a_folder_has_one_run_at_a_time(digits, killed):
    other = RunFolder(killed)
    other.lock()
    before = (killed / CHECKPOINT).read_bytes()
    for resume in (True, False):
        with pytest.raises(InputError, match="is in use by a run that has not ended; wait for it, stop it, or choose"):
            train(digits[0], killed, resume=resume)
    assert (killed / CHECKPOINT).read_bytes() == before
    other.unlock()
    train(digits[0], killed, resume=True)
    assert not (killed / LOCK).exists()


def test_pretraining_keeps_to_it_too(digits, tmp_path):
    other = RunFolder(tmp_path)
    other.lock()
    with pytest.raises(InputError, match="is in use by a run that has not ended"):
        pretrain("mlp(widths=[8])", digits[0], "moco", epochs=1, augment="none", probe_every=0, out=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [LOCK]
    other.unlock()


def test_the_command_line_says_so_before_it_reads_the_data(command):
    run = ["fit", "digits", "--out", "run", "--epochs", "1", "--quiet", "--model", "mlp(widths=[8])", "--limit", "100"]
    assert command(*run)[0] == 0
    folder = RunFolder("run")
    folder.lock()
    code, _, err = command("fit", "--out", "run", "--resume")
    assert (code, err.count("\n"), "run is in use" in err, "Read" in err) == (2, 1, True, False)
    load_model("run")  # reading needs no lock
    folder.unlock()
    assert command("fit", "--out", "run", "--resume", "--quiet")[0] == 0


def test_the_lock_of_a_dead_process_is_none(digits, killed):
    code = "import sys, time; from noiseproof.runs.folder import RunFolder; folder = RunFolder(sys.argv[1]); "
    code += "folder.lock(); print('locked', flush=True); time.sleep(60)"
    process = subprocess.Popen([sys.executable, "-c", code, killed], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "locked\n"
    with pytest.raises(InputError, match="is in use"):
        RunFolder(killed).lock()
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert (killed / LOCK).exists()
    train(digits[0], killed, resume=True)


def test_a_file_system_without_locks(digits, tmp_path, monkeypatch):
    def none(*args, **kwargs):
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr("filelock.FileLock.acquire", none)
    assert train(digits[0], tmp_path).epoch == 3


# Two checkpoints


def flip(path, at):
    content = bytearray(path.read_bytes())
    content[at] ^= 4
    path.write_bytes(content)


def edit(path, change):
    state = checkpoint.load(path)
    change(state)
    checkpoint.save(path, state)


DAMAGE = {
    "a header's size": lambda path: flip(path, 7),
    "a byte of the header": lambda path: flip(path, 40),
    "a byte of the weights": lambda path: flip(path, -100),
    "cut": lambda path: path.write_bytes(path.read_bytes()[:1000]),
    "empty": lambda path: path.write_bytes(b""),
    "another file": lambda path: path.write_bytes((path.parent / INITIAL).read_bytes()),
    "a missing key": lambda path: edit(path, lambda state: state.pop("rate")),
    "an unknown key": lambda path: edit(path, lambda state: state.update(more=1)),
    "a wrong shape": lambda path: edit(path, lambda state: state["models"].update({"0.head.bias": torch.zeros(3)})),
    "a wrong type": lambda path: edit(path, lambda state: state.update(epoch="two")),
    "no such epoch": lambda path: edit(path, lambda state: state.update(epoch=99)),
    "a row that is not there": lambda path: edit(path, lambda state: state["position"]["order"].fill_(10**6)),
    "a history without an epoch": lambda path: edit(path, lambda state: state["history"].clear()),
    "an optimizer's state": lambda path: edit(path, lambda state: state["optimizers"][0]["state"][0].clear()),
    "a generator": lambda path: edit(path, lambda state: state["generators"][0].fill_(7)),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_checkpoint_is_told_and_the_one_before_it_used(whole, digits, killed, damage):
    assert {path.name for path in killed.glob("*.safetensors")} == {CHECKPOINT, PREVIOUS, INITIAL}
    assert checkpoint.load(killed / CHECKPOINT)["step"] == 8
    damage(killed / CHECKPOINT)
    with pytest.warns(UserWarning, match=r"checkpoint.safetensors is damaged .*; going on from .* after step 6$"):
        assert_ends_as(whole, digits, killed)


def test_both_damaged(digits, killed):
    for name in (CHECKPOINT, PREVIOUS):
        flip(killed / name, 7)
    with pytest.raises(InputError, match=r"is damaged or no checkpoint \(.*\); fetch it again, or begin anew"):
        train(digits[0], killed, resume=True)


@pytest.mark.parametrize("move", [1, 2])
def test_killed_while_a_checkpoint_is_put_in_place(whole, digits, tmp_path, monkeypatch, move):
    """Before the old one is moved away, and before the new one has taken its place."""
    replace, moves = os.replace, []

    def dies(source, target):
        moves.extend([target] if CHECKPOINT in str(source) else [])
        if len(moves) == 5 + move:
            raise Killed
        replace(source, target)

    monkeypatch.setattr("os.replace", dies)
    with pytest.raises(Killed):
        train(digits[0], tmp_path)
    monkeypatch.undo()
    assert (tmp_path / CHECKPOINT).exists() == (move == 1)
    assert (tmp_path / PREVIOUS).exists()
    if move == 2:
        with pytest.raises(InputError, match="already holds a run"):
            train(digits[0], tmp_path)
    assert_ends_as(whole, digits, tmp_path)


def test_a_damaged_checkpoint_never_takes_the_place_of_a_good_one(digits, killed):
    flip(killed / CHECKPOINT, 7)
    with pytest.warns(UserWarning, match="going on"), pytest.raises(Killed):
        train(digits[0], killed, resume=True, progress=KillAt(9))  # after its first checkpoint
    assert [checkpoint.load(killed / name)["step"] for name in (PREVIOUS, CHECKPOINT)] == [6, 8]


# config.json and the initial weights


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"{}", b"[]", b"5", b"\xff\xfe", b"[" * 5000, b'{"call": ' + b"[" * 500 + b"]" * 500 + b"}",
     b'{"call": {}, "command": [], "notes": {}}', b'{"call": {}, "command": {"data": {}}, "notes": {}}'],
    ids=range(10),
)  # fmt: skip
def test_a_damaged_config(killed, content):
    (killed / CONFIG).write_bytes(content)
    with pytest.raises(InputError, match=r"config.json is damaged; start afresh in another folder"):
        RunFolder(killed).config()


@pytest.mark.parametrize(("option", "value"), [("data", 5), ("lr", "x"), ("label_column", True), ("test", "a\0b")])
def test_options_of_another_type(command, option, value):
    os.mkdir("run")
    with open("run/config.json", "w") as file:
        json.dump({"call": {}, "command": {"data": "digits", option: value}, "notes": {}}, file)
    code, _, err = command("fit", "--out", "run", "--resume")
    assert (code, f"config.json is damaged: {option} is" in err) == (2, True)


def test_damaged_initial_weights(digits, killed):
    edit(killed / INITIAL, lambda state: state["parameters"].pop())
    with pytest.raises(InputError, match=r"initial.safetensors is damaged .*holds 3 entries, not 4"):
        train(digits[0], killed, resume=True)

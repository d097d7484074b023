"""Functions that are told of each epoch, more epochs than planned, and what is left after Ctrl-C."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import noiseproof as nf
from noiseproof.cli import main
from noiseproof.errors import InputError
from noiseproof.runs.folder import RESULTS, RunFolder
from noiseproof.training.interrupt import Interrupted
from noiseproof.training.progress import Silent


@pytest.fixture
def data() -> nf.LabeledData:
    X = torch.randn(60, 4, generator=torch.Generator().manual_seed(0))
    return nf.LabeledData(X, (X[:, 0] > 0).long())


def run(data: nf.LabeledData, **options: Any) -> nf.FitResult:
    settings = {"model": "mlp(widths=[8])", "method": "ce", "epochs": 4, "batch_size": 20, "schedule": "constant"}
    return nf.fit(data=data, **settings | {"device": "cpu"} | options)


def weights(result: nf.FitResult) -> list[torch.Tensor]:
    return list(result.model.state_dict().values())


def test_callbacks_get_a_copy_of_each_record_and_change_nothing(data: nf.LabeledData) -> None:
    seen: list[dict[str, Any]] = []

    def spoil(record: dict[str, Any]) -> str:
        record.clear()
        return "no True"

    result = run(data, callbacks=[spoil, lambda record: seen.append(record) or 1])
    assert seen == result.history
    assert all(map(torch.equal, weights(run(data)), weights(result)))
    assert len(run(data, callbacks=seen.append).history) == 4
    assert len(seen) == 8


def test_a_true_of_numpy_is_one(data: nf.LabeledData) -> None:
    assert len(run(data, callbacks=lambda record: np.float64(record["train_loss"]) > 0).history) == 1


def test_one_that_returns_true_ends_the_run_for_good(data: nf.LabeledData, tmp_path: Path) -> None:
    called: list[int] = []
    enough = [lambda record: record["epoch"] == 2, lambda record: called.append(record["epoch"])]
    result = run(data, callbacks=enough, out=tmp_path)
    assert called == [1, 2]  # the others are told, too
    assert (result.run.epoch, len(result.history)) == (2, 2)
    assert run(data, out=tmp_path, resume=True).run.epoch == 2
    with pytest.warns(UserWarning, match="ended by itself in epoch 2: more change nothing"):
        assert run(data, out=tmp_path, resume=True, epochs=9).run.epoch == 2


@pytest.mark.parametrize("at", [2, 4])
def test_one_that_fails_is_named_and_the_run_goes_on_later(data: nf.LabeledData, tmp_path: Path, at: int) -> None:
    def divide(record: dict[str, Any]) -> float:
        return 1 / (record["epoch"] - at)

    words = rf"callback divide failed after epoch {at} \(ZeroDivisionError: .*\); mend it, then go on by the same call"
    with pytest.raises(InputError, match=words):
        run(data, callbacks=divide, out=tmp_path)
    called: list[int] = []
    resumed = run(data, callbacks=lambda record: called.append(record["epoch"]), out=tmp_path, resume=True)
    assert called == list(range(at + 1, 5))
    assert all(map(torch.equal, weights(run(data)), weights(resumed)))
    with pytest.raises(InputError, match="mend it, then pass out="):
        run(data, callbacks=divide)


def test_figures_for_tensorboard(data: nf.LabeledData, tmp_path: Path) -> None:
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")

    def killed(record: dict[str, Any]) -> None:  # what is told of three epochs will be told again
        if record["epoch"] == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(data, track="tensorboard", out=tmp_path, val=0.2, callbacks=killed)
    result = run(data, track="tensorboard", out=tmp_path, val=0.2, resume=True)
    events = reader.EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    told = [(one.step, one.value) for one in events.Scalars("accuracy/val")]
    assert told == [(record["epoch"], pytest.approx(record["val_accuracy"])) for record in result.history]
    assert {"loss", "loss/train", "accuracy/train", "lr", "distance"} <= set(events.Tags()["scalars"])


def test_a_tracker_needs_a_folder_and_its_package(
    data: nf.LabeledData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match="track='tensorboard' writes to the run's folder; pass out="):
        run(data, track="tensorboard")
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(InputError, match=r"pip install 'noiseproof\[track\]'"):
        run(data, track="tensorboard", out=tmp_path)


@pytest.mark.parametrize("schedule", ["cosine", "anneal_at(0.5)", lambda clock: 1.0])
def test_a_schedule_that_goes_by_the_number_of_epochs_allows_no_more(
    data: nf.LabeledData, tmp_path: Path, schedule: Any
) -> None:
    run(data, out=tmp_path, schedule=schedule)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(InputError, match="was planned for 4 epochs, and its schedule goes by that number; begin anew"):
        run(data, out=tmp_path, schedule=schedule, epochs=5, resume=True)
    with pytest.raises(InputError, match="was begun with epochs=4, this call has 3"):
        run(data, out=tmp_path, schedule=schedule, epochs=3, resume=True)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("schedule", ["multi_step([3, 5])", "anneal_on_loss(0.6, stop=0.01)"])
def test_more_epochs_go_on_as_planned_from_the_start(data: nf.LabeledData, tmp_path: Path, schedule: str) -> None:
    run(data, out=tmp_path / "run", schedule=schedule)
    longer = run(data, out=tmp_path / "run", schedule=schedule, epochs=6, resume=True)
    whole = run(data, out=tmp_path / "whole", schedule=schedule, epochs=6)
    assert all(map(torch.equal, weights(whole), weights(longer)))
    assert [one["lr"] for one in longer.history] == [one["lr"] for one in whole.history]
    configs = [RunFolder(tmp_path / name).config() for name in ("run", "whole")]
    assert configs[0] == configs[1]
    for name in ("labels.parquet", "model.safetensors"):
        assert (tmp_path / "run" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert run(data, out=tmp_path / "run", schedule=schedule, epochs=6, resume=True).run.epoch == 6


class Press(Silent):
    """Sends a signal at a step; and again while the results are made, if asked."""

    def __init__(self, step: int, number: int = signal.SIGINT) -> None:
        self.at, self.number = step, number

    def step(self, run: Any, done: float) -> None:
        if run.step == self.at:
            signal.raise_signal(self.number)


def test_ctrl_c_leaves_results_of_the_moment(
    data: nf.LabeledData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Interrupted) as caught:
        run(data, out=tmp_path / "run", progress=Press(5))
    found = caught.value.result
    assert (found.run.epoch, found.summary()["last"]["epoch"], found.model.training) == (1, 1, False)
    names = {"summary.json", "model.safetensors", "labels.parquet", "evidence.npz", "curves.png", "report.html"}
    assert names <= {path.name for path in (tmp_path / "run").iterdir()} & set(RESULTS)
    assert nf.load_model(tmp_path / "run").predict(data.inputs).shape == (60,)
    resumed = run(data, out=tmp_path / "run", resume=True)
    assert all(map(torch.equal, weights(run(data)), weights(resumed)))

    for step, number in ((2, signal.SIGINT), (5, signal.SIGTERM)):  # before an epoch, or nobody waits for it
        with pytest.raises(Interrupted) as caught:
            run(data, out=tmp_path / str(step), progress=Press(step, number))
        assert caught.value.result is None

    def again(*args: Any, **more: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("noiseproof.training.fit.conclude", again)
    with pytest.raises(Interrupted, match="stopped after step 5") as caught:
        run(data, out=tmp_path / "again", progress=Press(5))
    assert caught.value.result is None


def test_more_epochs_and_results_after_ctrl_c_from_the_command_line(
    data: nf.LabeledData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def command(*words: str) -> int | str | None:
        monkeypatch.setattr(sys, "argv", ["noiseproof", "fit", *words, "--quiet"])
        with pytest.raises(SystemExit) as left:
            main()
        return left.value.code

    monkeypatch.chdir(tmp_path)
    rows = [f"{x[0]:.3f},{x[1]:.3f},{'ab'[y]}" for x, y in zip(data.inputs.tolist(), data.labels.tolist(), strict=True)]
    Path("rows.csv").write_text("\n".join(["u,v,label", *rows]) + "\n")
    begin = ("rows.csv", "--method", "ce", "--schedule", "constant", "--epochs", "2", "--out", "run")
    assert command(*begin, "--class-weight", "a:2,b:1", "--track", "tensorboard") == 0
    assert command("--out", "run", "--resume", "--epochs", "3") == 0
    assert RunFolder("run").config()["command"]["epochs"] == 3
    assert len(Path("run/history.jsonl").read_text().splitlines()) == 3
    assert len(list(Path("run/tensorboard").iterdir())) == 2
    assert command("--out", "run", "--resume", "--epochs", "1") == 2
    assert "was begun with epochs=3, this call has 1" in capfd.readouterr().err

    monkeypatch.setattr("noiseproof.training.setup.reporter", lambda progress: Press(2))
    assert command(*begin[:-1], "cut") == 130
    captured = capfd.readouterr()
    assert "so far, 1 of 2 epochs" in " ".join(captured.out.split())
    assert "noiseproof fit --out cut --resume" in " ".join(captured.err.split())

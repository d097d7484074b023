"""Experiments: found by name, run in any number of processes, gone on with after an interruption."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from typer.testing import CliRunner

from noiseproof.benching.trial import find_wrong
from noiseproof.cli import app
from noiseproof.data import noise
from noiseproof.errors import InputError
from noiseproof.training.interrupt import Interrupted
from noiseproof_papers import build, experiments, grid
from noiseproof_papers.datadir import DataDir
from noiseproof_papers.drawing import bars
from noiseproof_papers.experiment import Cell, Done, Experiment, spread
from noiseproof_papers.grid import reproduce


class Squares(Experiment):
    """Squares of whole numbers."""

    name = "squares"
    title = "squares"
    paper = "none"

    def cells(self, scale: str, seeds: int | None) -> list[Cell]:
        return [{"x": x} for x in range(seeds or 4)]

    def run(self, cell: Cell, data: DataDir) -> dict[str, Any]:
        ran = Path(__file__).parent / "never" if data.root is None else data.root / f"{cell['x']}"
        if data.root is not None:
            assert not ran.exists(), "a cell was run twice"
            ran.touch()
            if (data.root / f"stop-{cell['x']}").exists():
                raise KeyboardInterrupt
        return {"y": cell["x"] ** 2}

    def draw(self, done: list[Done], path: Path) -> None:
        bars({("square", str(one.cell["x"])): [one.figures["y"]] for one in done}, path, self.title)


def test_every_experiment_lists_its_cells_at_every_scale() -> None:
    found = experiments()
    assert {"sop-fig1", "sop-table1", "sop-table2", "sop-table5", "sop-cifar10n"} <= set(found)
    for experiment in found.values():
        for scale in experiment.scales:
            cells = experiment.cells(scale, 1)
            keys = [json.dumps(cell, sort_keys=True) for cell in cells]
            assert cells
            assert len(set(keys)) == len(keys), f"{experiment.name} lists a cell twice"
            assert [json.loads(key) for key in keys] == cells, "cells must survive JSON"


@pytest.mark.parametrize("workers", [1, 2])
def test_results_and_picture(tmp_path: Path, workers: int) -> None:
    outcome = reproduce(Squares(), out=tmp_path / "out", workers=workers, progress=False)
    assert [one.figures["y"] for one in outcome.done] == [0, 1, 4, 9]
    results = json.loads(outcome.results.read_text())
    assert [record["figures"]["y"] for record in results["cells"]] == [0, 1, 4, 9]
    assert results["machine"]["torch"]
    assert outcome.picture.read_bytes().startswith(b"\x89PNG")


def test_experiments_of_a_kind_share_their_cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options: dict[str, Any] = {"data": tmp_path, "progress": False}
    reproduce(Squares(), out=tmp_path / "results/alone", seeds=2, **options)
    monkeypatch.setattr(Squares, "kind", "square")
    for x in (0, 1):
        (tmp_path / str(x)).unlink()
    reproduce(Squares(), out=tmp_path / "results/first", seeds=3, **options)  # nothing to borrow: the other had no kind
    with open(tmp_path / "results/first/cells.jsonl", "a") as file:
        file.write('{"cell": {"x": 3}, "kind": "square", "figu')  # being written
    second = reproduce(Squares(), out=tmp_path / "results/second", seeds=4, **options)  # fails if a cell is run again
    assert [one.figures["y"] for one in second.done] == [0, 1, 4, 9]
    assert len((tmp_path / "results/second/cells.jsonl").read_text().splitlines()) == 4
    monkeypatch.setattr(Squares, "kind", "other")
    with pytest.raises(AssertionError, match="run twice"):
        reproduce(Squares(), out=tmp_path / "results/third", **options)


def test_goes_on_where_it_was(tmp_path: Path) -> None:
    (tmp_path / "stop-2").touch()
    options: dict[str, Any] = {"out": tmp_path / "out", "data": tmp_path, "progress": False}
    with pytest.raises(Interrupted, match="2 of 4 cells"):
        reproduce(Squares(), **options)
    (tmp_path / "stop-2").unlink()
    (tmp_path / "2").unlink()
    with open(tmp_path / "out" / "cells.jsonl", "ab") as file:
        file.write(b'{"cell": {"x": 3}, "figu\xff')  # as a kill may leave it
    outcome = reproduce(Squares(), **options)  # fails if a finished cell is run again
    assert [one.figures["y"] for one in outcome.done] == [0, 1, 4, 9]
    outcome = reproduce(Squares(), seeds=6, **options)
    assert [one.figures["y"] for one in outcome.done] == [0, 1, 4, 9, 16, 25]


def test_the_damaged_log_of_another_experiment_is_passed_over(tmp_path: Path) -> None:
    lines = [b"\xff\xfe", b'{"kind": "fit", "cell', b'{"kind": "fit", "figures": {}}', b"[]"]
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "cells.jsonl").write_bytes(b"".join(line + b"\n" for line in lines))
    assert grid._records([tmp_path / "other" / "cells.jsonl"], "fit", {"{}"}) == []
    odd = b'{"cell": {"x": 0}, "figures": {"y": 1}, "seconds": 1, "commit": 5}'
    for line in (*lines, b"[" * 5000, odd, b'{"cell": {"x": 0}, "figures": {}, "seconds": 1, "commit": ""}'):
        (tmp_path / "own").mkdir(exist_ok=True)
        (tmp_path / "own" / "cells.jsonl").write_bytes(line + b"\n")
        with pytest.raises(InputError, match="is damaged; move it away"):
            reproduce(Squares(), out=tmp_path / "own", data=tmp_path, progress=False)


def test_cifar10_has_its_classes_at_any_size(tmp_path: Path) -> None:
    """So that asymmetric noise is the papers', which goes by names: the files may only number the classes."""
    for part in ("train", "test"):
        png = io.BytesIO()
        Image.new("RGB", (8, 8)).save(png, "PNG")
        columns = {"image": [png.getvalue()] * 100, "label": [i % 10 for i in range(100)]}
        pq.write_table(pa.table(columns), tmp_path / f"cifar10-{part}.parquet")
    train, test = DataDir(tmp_path).pair("cifar10", image_size=4)
    assert train.class_names == test.class_names == noise.CIFAR10_CLASSES
    noisy = noise.apply(train, "asymmetric:0.4")
    changed = {(int(a), int(b)) for a, b in zip(noisy.true_labels, noisy.labels, strict=True) if a != b}
    assert changed == set(noise.CIFAR10_PAIRS.items())
    assert noisy.noise_rate == pytest.approx(0.2)


def test_mistakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="did you mean 'sop-table1'"):
        build("sop-tabl1")
    with pytest.raises(InputError, match="no scale 'big'; choose small or paper"):
        reproduce(Squares(), out=tmp_path, scale="big")
    with pytest.raises(InputError, match="measures time"):
        reproduce(build("sop-table5"), out=tmp_path, workers=2)
    monkeypatch.delenv("NOISEPROOF_DATA", raising=False)
    with pytest.raises(InputError, match="--data FOLDER"):
        DataDir().pair("cifar10")
    with pytest.raises(InputError, match=r"put one of these there: .*cifar-10-batches-py"):
        DataDir(tmp_path).pair("cifar10")
    (tmp_path / "cells.jsonl").write_text("not json\n")
    with pytest.raises(InputError, match="is damaged"):
        reproduce(Squares(), out=tmp_path)


def test_a_table_of_trained_networks_from_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from noiseproof_papers.sop.tables import Variants

    monkeypatch.setattr(Variants, "settings", (("symmetric:0.4", 2),))  # two epochs
    monkeypatch.setattr(Variants, "methods", ("ce", "sop(variant='paper')"))
    result = CliRunner().invoke(app, ["reproduce", "sop-variants", "--seeds", "1", "--out", str(tmp_path), "-q"])
    assert result.exit_code == 0, result.output
    assert "symmetric:0.4" in result.output
    cells = json.loads((tmp_path / "results.json").read_text())["cells"]
    assert [cell["cell"]["method"] for cell in cells] == ["ce", "sop(variant='paper')"]
    for cell in cells:
        assert 0.3 < cell["figures"]["last"] <= 1
        assert 0.35 < cell["figures"]["noise"] < 0.45
    listed = CliRunner().invoke(app, ["reproduce"])
    assert "sop-variants" in listed.output


def test_figures() -> None:
    import numpy as np

    wrong = np.array([True, False, True, False])
    found = find_wrong(wrong, np.array([0.9, 0.1, 0.8, 0.2]))
    assert found == {"auroc": 1.0, "auprc": 1.0, "noise": 0.5}
    assert find_wrong(~wrong & wrong, np.zeros(4))["auroc"] is None
    assert spread([0.5, 0.7]) == "60.0 ± 14.1"
    assert spread([None]) == "–"
    assert spread([0.12345], percent=False) == "0.123"


class Failing(Squares):
    """One cell fails, or its worker dies, while the other is at work and lets no polite signal end it, as `fit`."""

    name = "failing"

    def run(self, cell: Cell, data: DataDir) -> dict[str, Any]:
        assert data.root is not None
        (data.root / f"worker-{os.getpid()}").touch()
        if cell["x"] == 1:
            time.sleep(1)
            if (data.root / "die").exists():
                os.kill(os.getpid(), signal.SIGKILL)
            raise InputError("this cell fails")
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(300)
        return {}


@pytest.mark.parametrize(("how", "says"), [("fail", "this cell fails"), ("die", "a worker died.* fewer --workers")])
def test_a_cell_that_fails_ends_the_others(tmp_path: Path, how: str, says: str) -> None:
    (tmp_path / how).touch()
    began = time.monotonic()
    with pytest.raises(InputError, match=says):
        reproduce(Failing(), out=tmp_path / "out", data=tmp_path, workers=2, progress=False)
    assert time.monotonic() - began < 100
    workers = [path.name.removeprefix("worker-") for path in tmp_path.glob("worker-*")]
    assert len(workers) == 2
    assert gone(workers)


class Slow(Squares):
    """The first cell is done at once, the others are not."""

    def run(self, cell: Cell, data: DataDir) -> dict[str, Any]:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # as `fit` takes it, to finish its step
        time.sleep(300 if cell["x"] else 0)
        return {"y": 0}


@pytest.mark.parametrize("number", [pytest.param(signal.SIGKILL, marks=pytest.mark.slow), signal.SIGINT])
def test_workers_end_with_their_parent(tmp_path: Path, number: signal.Signals) -> None:
    """Killed, or stopped by Ctrl-C, which reaches the whole group; finished cells are kept."""
    program = f"""
import signal
from pathlib import Path
from noiseproof_papers.grid import reproduce
from papers.test_grid import Slow
if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # whatever this process inherits
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    reproduce(Slow(), out=Path({str(tmp_path)!r}), workers=2, progress=False)
"""
    path = os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])
    parent = subprocess.Popen(
        [sys.executable, "-c", program], stderr=subprocess.PIPE, text=True, start_new_session=True,
        env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    log = tmp_path / "cells.jsonl"
    until = time.monotonic() + 100
    while not (log.exists() and log.read_bytes()) and time.monotonic() < until:
        time.sleep(0.2)
    listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(parent.pid)], capture_output=True, text=True)
    assert len(listed.stdout.split()) >= 3  # two workers and the tracker of their resources
    (os.killpg if number == signal.SIGINT else os.kill)(parent.pid, number)
    _, said = parent.communicate(timeout=60)
    assert gone(listed.stdout.split())
    assert json.loads(log.read_text())["cell"] == {"x": 0}
    if number == signal.SIGINT:
        assert f"stopped after 1 of 4 cells, kept in {log}; the same command goes on" in said


def gone(processes: list[str]) -> bool:
    """Whether all of them end within 20 seconds."""
    until = time.monotonic() + 20
    while any(os.path.exists(f"/proc/{one}") for one in processes) and time.monotonic() < until:
        time.sleep(0.5)
    return not any(os.path.exists(f"/proc/{one}") for one in processes)


def test_the_grid_of_defaults(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from noiseproof_papers.sop import defaults

    kinds = {(c["setting"], c["noise"], c["labels"]) for c in defaults.Defaults().cells("small", 1)}
    assert len(kinds) == 2 * 7 + 3 * 9
    data, options = defaults.SETTINGS["digits"]
    monkeypatch.setattr(defaults, "SETTINGS", {"digits": (data, {**options, "epochs": 2})})
    monkeypatch.setattr(defaults, "NOISE", ("symmetric:0", "symmetric:0.4"))
    outcome = reproduce(defaults.Defaults(), out=tmp_path, seeds=1, progress=False)
    header, rows = defaults.Defaults().table(outcome.done)
    assert [row[:2] for row in rows] == [["digits", "none"], ["digits", "symmetric:0.4"]]
    assert all(len(row) == len(header) for row in rows)
    assert rows[1][header.index("right labels explained away by sop, waiting")] == "0.0"  # asleep

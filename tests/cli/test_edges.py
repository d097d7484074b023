"""Every option of every verb with values from the edge: a sentence and exit code 2, or all is well; no traceback."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import typer
from PIL import Image

from noiseproof import cli
from noiseproof.training.loop import Loop

EDGES = {
    "empty": "", "blank": " ", "negative": "-1", "zero": "0", "nan": "nan", "inf": "inf", "beyond": "1e400",
    "fraction": "0.5", "digits": "9" * 5000, "large": "9" * 18, "squared": "²", "nested": "(" * 5000,
    "calls": "f(" * 500 + ")" * 500, "braces": "{" * 5000, "emoji": "🙂", "surrogate": "\udcff", "folder": ".",
    "file": "t.csv", "missing": "no/such/file", "option": "elr(beta=1e400)", "list": "1,2,,3", "words": "a b " * 1500,
    "lines": "a\nb",
}  # fmt: skip
FEW = 3  # of the edges, in the quick test
GOOD = {  # a call of each verb that would do; nothing is trained
    "demo": [],
    "fit": ["t.csv", "--epochs", "1"],
    "predict": ["run", "t.csv"],
    "audit": ["t.csv"],
    "bench": ["t.csv", "--epochs", "1", "--seeds", "1"],
    "compare": ["t.csv", "--epochs", "1"],
    "export": ["run", "model.safetensors"],
    "pretrain": ["photos.npz", "--epochs", "1", "--model", "cnn3", "--batch-size", "4"],
    "probe": ["run", "--no-random"],
    "jacobian": ["run", "--examples", "5"],
    "corrupt": ["t.csv", "noisy.csv", "--noise", "pair:0.2"],
    "review": ["run", "--no-browser"],
    "relabel": ["t.csv", "--decisions", "d.csv"],
    "reproduce": ["early-fig6"],
}
OWN_OUT = ("predict", "export", "probe", "jacobian", "corrupt", "review")  # no --out, or another
ARGUMENTS = [  # by position
    (verb, place)
    for verb, good in GOOD.items()
    for place in range(next((i for i, word in enumerate(good) if word.startswith("-")), len(good)))
]
OPTIONS = [
    (verb, max(parameter.opts, key=len))
    for verb, command in typer.main.get_command(cli.app).commands.items()  # type: ignore[attr-defined]
    for parameter in command.params
    if parameter.param_type_name == "option" and not parameter.is_flag
]


class Began(Exception):
    """A run was about to train: nothing was wrong."""


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """A folder with a table, some images and a finished run."""
    folder = tmp_path_factory.mktemp("edges")
    rows = [f"{i * 0.37 % 1:.3f},{i * 0.61 % 1:.3f},{'ab'[i % 2]}" for i in range(24)]
    (folder / "t.csv").write_text("x,z,label\n" + "\n".join(rows) + "\n")
    (folder / "d.csv").write_text("id,label\n0,b\n1,a\n")
    rng = np.random.default_rng(0)
    np.savez(folder / "photos.npz", x=rng.integers(256, size=(12, 3, 8, 8), dtype=np.uint8), y=np.arange(12) % 2)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sys, "argv", ["noiseproof", "fit", "t.csv", "--epochs", "1", "--out", "run", "--quiet"])
        with suppress(SystemExit):
            cli.main()
    assert (folder / "run/summary.json").exists()
    return folder


@pytest.fixture
def call(made, monkeypatch, capsys) -> Callable[..., tuple[int, str]]:
    """Run the command line in that folder; gives (exit code, stderr)."""
    monkeypatch.chdir(made)

    def begin(*args, **kwargs):
        raise Began

    monkeypatch.setattr(Loop, "train", begin)
    monkeypatch.setattr("noiseproof.benching.cells._work", begin)
    monkeypatch.setattr("noiseproof.reviewing.server.serve", begin)

    def run(*arguments: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["noiseproof", *arguments])
        try:
            cli.main()
            code = 0
        except SystemExit as stop:
            code = int(stop.code or 0)
        except Began:
            code = 0
        return code, capsys.readouterr().err

    return run


def check(call: Callable[..., tuple[int, str]], verb: str, option: str | int, names: list[str]) -> None:
    """Each edge as the value of an option, or in the place of an argument."""
    for name in names:
        out = [] if option == "--out" or verb in OWN_OUT else ["--out", f"out-{name}"]
        good = list(GOOD[verb])
        if isinstance(option, int):
            good[option] = EDGES[name]
        else:
            out += [option, EDGES[name]]
        code, err = call(verb, *good, *out)
        assert code in (0, 2), f"{verb} {option} {name}: {err}"
        assert "Traceback" not in err
        if err.startswith("error:"):
            assert err.count("\n") == 1, err
            assert len(err) < 700, err


NOTHING_TO_LEARN = pytest.mark.filterwarnings("ignore:what is given tells next to nothing")  # of 24 random rows


@NOTHING_TO_LEARN
@pytest.mark.parametrize(("verb", "option"), [*OPTIONS, *ARGUMENTS])
def test_some_edges(call, verb, option):
    check(call, verb, option, random.Random(f"{verb}{option}").sample(sorted(EDGES), FEW))


@NOTHING_TO_LEARN
@pytest.mark.slow
@pytest.mark.parametrize(("verb", "option"), [*OPTIONS, *ARGUMENTS])
def test_all_edges(call, verb, option):
    check(call, verb, option, list(EDGES))


HUGE = [  # sizes that no memory holds: refused before they are asked for
    ["fit", "t.csv", "--model", "mlp(widths=[1000000, 1000000])"],
    ["fit", "t.csv", "--model", f"mlp(widths=[{10**30}])"],
    ["fit", "photos", "--image-size", "60000"],
    ["fit", "photos", "--image-size", "60000", "--model", "mlp"],
    ["pretrain", "photos.npz", "--model", "cnn3", "--dim", "1000000000000"],
    ["pretrain", "photos.npz", "--model", "cnn3", "--hidden", "10000000"],
    ["pretrain", "photos.npz", "--model", "cnn3(width=1000000)"],
    ["pretrain", "photos.npz", "--model", "cnn3", "--method", "sane(crops=1)", "--crop-sizes", "1000000"],
    ["pretrain", "photos.npz", "--model", "cnn3", "--method", "sane(crops=10000)"],
]


@pytest.mark.parametrize("arguments", HUGE)
def test_sizes_that_no_memory_holds(call, made, arguments):
    for name in "aabb":
        target = made / "photos" / name / f"{len(list(made.rglob('*.png')))}.png"
        target.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(target)
    code, err = call(*arguments, "--out", "huge", "--quiet")
    assert (code, err.count("\n")) == (2, 1), err
    assert any(words in err for words in ("GiB", "from 1 to", "from 0 to 64"))
    assert not (made / "huge").exists()


def test_a_long_value_is_shortened_and_the_sentence_is_whole(call):
    code, err = call("fit", "t.csv", "--label-column", "word " * 1000)
    assert code == 2
    assert err.startswith("error: ")
    assert err.endswith("its columns are 'x', 'z', 'label'\n")
    assert len(err) < 400


def test_weights_are_exported_into_a_new_folder(call, made):
    assert call("probe", "run", "--no-random", "--export", "new/folder/weights.safetensors")[0] == 0
    assert (made / "new/folder/weights.safetensors").exists()
    code, err = call("probe", "run", "--no-random", "--export", "t.csv/weights.safetensors")
    assert (code, err.count("\n"), "t.csv" in err) == (2, 1, True)


def test_a_wrong_setting_is_told_before_the_data_is_read(command):
    code, _, error = command("fit", "no-such-data.csv", "--epochs", "0")
    assert (code, "epochs must be a whole number, 1 or more, got 0" in error) == (2, True)

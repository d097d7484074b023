"""The command line as a user meets it: exit codes, one-sentence errors, files, kill and resume."""

from __future__ import annotations

import json
import os
import pickle
import random
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from PIL import Image
from safetensors.torch import load_file
from sklearn.datasets import load_digits

import noiseproof

QUICK = ["--epochs", "2", "--device", "cpu", "--quiet"]


@pytest.fixture
def table(tmp_path) -> Path:
    """A CSV of 200 digits with their names as labels."""
    digits = load_digits()
    columns = {f"x{i}": digits.data[:200, i] for i in range(64)}
    columns["species"] = [f"digit {k}" for k in digits.target[:200]]
    pyarrow.csv.write_csv(pa.table(columns), tmp_path / "table.csv")
    return tmp_path / "table.csv"


@pytest.fixture
def folder(tmp_path) -> Path:
    """A folder of 60 images in three classes."""
    digits = load_digits()
    for place in range(60):
        target = tmp_path / "photos" / f"class {digits.target[place] % 3}"
        target.mkdir(parents=True, exist_ok=True)
        Image.fromarray((digits.images[place] * 15).astype(np.uint8)).save(target / f"{place}.png")
    return tmp_path / "photos"


@pytest.mark.pictures
def test_fit_on_digits_leaves_a_whole_run(command):
    code, out, err = command("fit", "digits", "--noise", "symmetric:0.4", "--method", "elr", "--out", "run", *QUICK)
    assert (code, err) == (0, "")
    assert "last epoch" in out
    assert "labels are as given" not in out  # the noise is ours: the test labels are the source's, taken for right
    assert "run" in out
    summary = json.loads(Path("run/summary.json").read_text())
    assert summary["last"]["epoch"] == 2
    table = pq.read_table("run/labels.parquet")
    assert table["split"].to_pylist().count("train") == summary["last"]["examples"]
    assert set(table["split"].to_pylist()) == {"train", "val"}
    code, _, err = command("fit", "digits", "--noise", "symmetric:0.4", "--score-test", "--out", "all", *QUICK)
    assert (code, err) == (0, "")
    assert sorted(map(int, pq.read_table("all/labels.parquet")["id"].to_pylist())) == list(range(1797))


def test_what_a_run_suggests_is_joined_by_id(command):
    """labels.parquet is sorted by suspicion; the run split off its own test set, which has no labels there."""
    options = ["--method", "elr", "--epochs", "12", "--quiet"]
    assert command("fit", "digits", "--noise", "symmetric:0.3", "--out", "first", *options)[0] == 0
    labels = ["--labels", "first/labels.parquet:suggested", "--true-labels", "own"]
    assert command("fit", "digits", *labels, "--out", "second", *options)[0] == 0
    table = pq.read_table("second/labels.parquet").to_pydict()
    assert np.mean([a == b for a, b in zip(table["label"], table["true_label"], strict=True)]) > 0.9
    code, _, err = command("fit", "digits", *labels, "--seed", "1", "--out", "third", *options)
    assert code == 2
    assert "first/labels.parquet has no label for" in err
    assert "repeat the run's --seed" in err


def test_fit_on_a_csv_and_an_image_folder(command, table, folder):
    code, out, err = command("fit", table, "--label-column", "species", "--method", "gce", "--out", "a", *QUICK)
    assert (code, err) == (0, "")
    assert "test labels are as given" in " ".join(out.split())
    assert set(pq.read_table("a/labels.parquet")["label"].to_pylist()) == {f"digit {k}" for k in range(10)}
    code, _, err = command("fit", folder, "--method", "ce", "--out", "b", *QUICK)
    assert (code, err) == (0, "")
    assert "class 1/1.png" in pq.read_table("b/labels.parquet")["id"].to_pylist()


def test_corrupt_then_fit(command, table):
    code, out, _ = command("corrupt", table, "noisy.csv", "--noise", "symmetric:0.3", "--label-column", "species")
    assert code == 0
    assert "of 200 labels changed" in out
    noisy = pyarrow.csv.read_csv("noisy.csv")
    assert {"species", "true_label"} <= set(noisy.column_names)
    assert command("fit", "noisy.csv", "--label-column", "species", "--out", "run", *QUICK)[0] == 0
    assert "train_memorised" in json.loads(Path("run/summary.json").read_text())["last"]
    code, _, err = command("corrupt", table, "noisy.parquet", "--noise", "symmetric:0.3", "--label-column", "species")
    assert (code, "end its name in '.csv'" in err) == (2, True)


def test_default_folders_do_not_collide(command):
    for _ in range(2):
        assert command("fit", "digits", "--method", "ce", *QUICK)[0] == 0
    assert {path.name for path in Path("runs").iterdir()} == {"digits-ce-s0", "digits-ce-s0-2"}


def test_tables_and_help(command):
    code, out, _ = command("methods")
    assert code == 0
    assert "early_stop" in out
    code, out, _ = command("models")
    assert code == 0
    assert "resnet20" in out
    for verb in ("fit", "corrupt", "demo", "methods", "models"):
        code, out, _ = command(verb, "--help")
        assert code == 0
        assert "Usage" in out


def test_version(command):
    code, out, _ = command("--version")
    assert (code, out) == (0, f"noiseproof {noiseproof.__version__}\n")


def test_a_run_says_what_was_read_and_chosen(command, table):
    code, out, err = command(
        "fit", table, "--label-column", "species", "--epochs", "2", "--out", "run", "--test", table, "--val", "0.2"
    )
    assert code == 0
    assert "It did not turn robust: the network was not seen to memorise." in out
    assert "Read table.csv: 200 rows of 64, 10 classes; 200 to test with, from table.csv. Network: mlp." in err
    assert "auto: MLP," in err
    assert "160 examples, 40 held out" in err


def test_demo(command):
    code, out, _ = command("demo", "--seeds", "1", "--epochs", "2", "--out", "d")
    assert code == 0
    assert "cross-entropy" in out
    assert "The labels, by auto: " in out
    assert "By the true labels, " in out
    assert Path("d/demo.png").read_bytes()[:4] == b"\x89PNG"
    assert "data:image/png" in Path("d/report.html").read_text()


class Malicious:
    def __reduce__(self):
        return (os.system, ("touch pwned",))


def make_bad_inputs(folder: Path) -> None:
    """The files that the table below names."""
    rng = np.random.default_rng(0)
    names = [f"x{i}" for i in range(3)]
    values = rng.normal(size=(40, 3))
    good = dict(zip(names, values.T, strict=True)) | {"label": ["a", "b"] * 20}
    pq.write_table(pa.table(good), folder / "good.parquet")
    pyarrow.csv.write_csv(pa.table(good), folder / "good.csv")
    (folder / "cut.parquet").write_bytes((folder / "good.parquet").read_bytes()[:-50])
    pq.write_table(pa.table(good | {"label": ["a"] * 40}), folder / "one_class.parquet")
    pq.write_table(pa.table(good | {"x0": np.where(np.arange(40) == 7, np.inf, values[:, 0])}), folder / "inf.parquet")
    pq.write_table(pa.table(good | {"x0": [*map(str, values[:39, 0]), "n.a"]}), folder / "text.parquet")
    pq.write_table(pa.table(good | {"label": [None] + ["a", "b"] * 19 + ["a"]}), folder / "missing.parquet")
    pq.write_table(pa.table(good | {"label": [0.5, 1.0] * 20}), folder / "fraction.parquet")
    pq.write_table(pa.table({key: value[:0] for key, value in good.items()}), folder / "no_rows.parquet")
    (folder / "ragged.csv").write_text("x,label\n1,a\n2,b,c\n")
    (folder / "empty.csv").write_text("")
    (folder / "strange.xyz").write_bytes(b"\x00\x01\x02")
    np.savez(folder / "lengths.npz", x=values, y=np.zeros(39, int))
    np.savez(folder / "objects.npz", x=np.array([{"a": 1}], dtype=object), y=np.zeros(1, int))
    header = b"\x00\x00\x08\x03" + (10).to_bytes(4, "big") + (4).to_bytes(4, "big") * 2
    (folder / "idx").mkdir()
    (folder / "idx/train-images-idx3-ubyte").write_bytes(header + bytes(100))
    (folder / "idx/train-labels-idx1-ubyte").write_bytes(b"\x00\x00\x08\x01" + (10).to_bytes(4, "big") + bytes(10))
    (folder / "cifar").mkdir()
    for name in ("data_batch_1", "test_batch", "batches.meta"):
        (folder / "cifar" / name).write_bytes(pickle.dumps(Malicious()))
    (folder / "photos/a").mkdir(parents=True)
    (folder / "photos/b").mkdir()
    (folder / "photos/a/1.png").write_bytes(b"no image")
    Image.fromarray(np.zeros((8, 8), np.uint8)).save(folder / "photos/b/1.png")
    (folder / "sizes/a").mkdir(parents=True)
    (folder / "sizes/b").mkdir()
    Image.fromarray(np.zeros((8, 8), np.uint8)).save(folder / "sizes/a/1.png")
    Image.fromarray(np.zeros((9, 8), np.uint8)).save(folder / "sizes/b/1.png")
    (folder / "bare").mkdir()
    pq.write_table(pa.Table.from_arrays([pa.array([1.0]), pa.array([2.0])], ["x0", "x0"]), folder / "twice.parquet")
    (folder / "labels.csv").write_text("name\n" + "a\n" * 39)


FIT_ERRORS = """
nothing given |  | give the data
no such path | nowhere.csv | nowhere.csv
misspelt data | digit | did you mean 'digits'
unknown format | strange.xyz | strange.xyz
empty file | empty.csv | empty
no rows | no_rows.parquet | no
truncated Parquet | cut.parquet | cut.parquet
truncated IDX | idx | train-images-idx3-ubyte
ragged CSV | ragged.csv | ragged.csv
malicious pickle | cifar | system
one class | one_class.parquet | class
infinite feature | inf.parquet | x0
text feature | text.parquet | x0
missing label | missing.parquet | row 0
fractional label | fraction.parquet | whole
missing label column | good.parquet --label-column klass | klass
missing image column | good.parquet --image-column img | img
lengths differ | lengths.npz | 39
pickled npz | objects.npz | objects.npz
unreadable image | photos | 1.png
images of two sizes | sizes | image
folder without images | bare | bare
unknown method | digits --method erl | did you mean 'elr'
unknown method option | digits --method 'elr(betta=1)' | did you mean 'beta'
bad method value | digits --method 'elr(beta=2)' | beta
wrapper without inner | digits --method early_stop | inner
unreadable method | digits --method 'elr((' | cannot read
unknown model | digits --model resnet21 | did you mean
model too big for images | digits --model inception_resnet_v2 | inception_resnet_v2
conv net on a table | good.csv --model resnet20 | mlp
unknown noise | digits --noise symetric:0.4 | did you mean 'symmetric'
noise rate | digits --noise symmetric:1.4 | 1.4
noise without rate | digits --noise symmetric | symmetric:
unknown schedule | digits --schedule cosin | did you mean 'cosine'
unknown augmentation | digits --augment wek | did you mean 'weak'
augmented table | good.csv --augment weak | is for images
unknown optimizer | digits --optimizer sdg | did you mean 'sgd'
unknown device | digits --device gpu | device 'gpu'
epochs | digits --epochs 0 | epochs must be a whole number, 1 or more
epochs as text | digits --epochs many | '--epochs'
val share | digits --val 2 | val must be
unknown option | digits --epoch 3 | --epochs
labels of another file | digits --labels label.csv:name | label.csv
labels of another length | digits --labels labels.csv:name | 39
labels without the column | digits --labels labels.csv:nom | nom
early stop without split | digits --method "early_stop(ce, criterion='val_loss')" --val 0 | validation split
test of another shape | digits --test good.csv | test
resume of nothing | --resume --out nowhere | there is no run in nowhere
resume without out | --resume | --resume needs the run's folder
diverged | digits --lr 1e30 | the training loss became
milestones as a number | digits --schedule 'multi_step(40)' | milestones must be a list
huge seed | digits --seed 99999999999999999999999 | seed
long name | digits --out LONG | File name too long
long data | LONG | too long
unwritable out | digits --out /proc/x | /proc/x
model option | digits --model 'mlp(width=3)' | did you mean 'widths'
device without values | digits --device meta | device 'meta'
two columns of a name | twice.parquet | two columns named 'x0'
an option of other sources | digits --image-size 32 | digits has no use for image_size
limit | digits --limit 0 | --limit must be a whole number, 1 or more
image size | photos --image-size 0 | --image-size must be a whole number, 1 or more
unknown feature column | good.csv --feature-columns x0,x9 | x9
numbers for labels | good.csv --label-column x0 --feature-columns x1 | whole numbers
out is a file | digits --out good.csv | good.csv
"""  # what is wrong, the arguments, words of the sentence
FIT_ERRORS = [line.replace("LONG", "x" * 300).split(" | ") for line in FIT_ERRORS.strip().splitlines()]


@pytest.mark.parametrize(("arguments", "words"), [row[1:] for row in FIT_ERRORS], ids=[row[0] for row in FIT_ERRORS])
def test_a_mistake_is_one_sentence_and_exit_2(command, arguments, words, tmp_path):
    arguments = shlex.split(arguments)
    make_bad_inputs(tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    code, _, err = command("fit", *arguments, *([] if "--epochs" in arguments else ["--epochs", "1"]))
    assert code == 2, err
    assert words.lower() in err.lower().replace("\n", " ")
    assert "Traceback" not in err
    if err.startswith("error:"):
        assert err.count("\n") == 1
    assert all(path.read_bytes() == content for path, content in before.items())
    assert not Path("pwned").exists()
    assert not list(tmp_path.glob("**/*.tmp"))


def test_resume_refuses_other_options_and_strange_checkpoints(command):
    assert command("fit", "digits", "--out", "run", *QUICK)[0] == 0
    code, _, err = command("fit", "digits", "--out", "run", *QUICK)
    assert (code, "already holds a run" in err) == (2, True)
    code, _, err = command("fit", "--out", "run", "--resume", "--lr", "1")
    assert (code, "begun with lr=0.05" in err) == (2, True)
    assert command("fit", "--out", "run", "--resume", "--device", "cpu", "--checkpoint-seconds", "5")[0] == 0
    Path("run/checkpoint.safetensors").write_bytes(Path("run/model.safetensors").read_bytes())
    code, _, err = command("fit", "--out", "run", "--resume")
    assert (code, "is damaged or no checkpoint (/parts is missing)" in err) == (2, True)
    Path("run/checkpoint.safetensors").write_bytes(b"garbage")
    code, _, err = command("fit", "--out", "run", "--resume")
    assert (code, "damaged" in err) == (2, True)
    for content in ("{", "{}", "[]"):
        Path("run/config.json").write_text(content)
        code, _, err = command("fit", "--out", "run", "--resume")
        assert (code, "config.json is damaged" in err) == (2, True)


def test_a_run_resumes_from_another_folder(command, table, monkeypatch, tmp_path):
    options = ["--label-column", "species", "--labels", "table.csv:species", "--out", tmp_path / "run"]
    assert command("fit", "table.csv", *options, *QUICK)[0] == 0
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert command("fit", "--out", tmp_path / "run", "--resume", "--quiet")[0] == 0


def test_a_full_disk_is_one_sentence_and_leaves_nothing_half_written(tmp_path):
    """A real process whose files may not grow beyond 200 kB, as on a full disk: the first checkpoint does not fit."""
    limit = "import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
    limit += "resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000)); from noiseproof.cli import main; main()"
    call = [sys.executable, "-c", limit, "fit", "digits", "--out", "run", *QUICK]
    done = subprocess.run(call, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith("error: cannot write")
    assert done.stderr.count("\n") == 1
    assert not list(tmp_path.rglob("*.tmp"))
    assert not list(tmp_path.rglob("checkpoint.safetensors"))


def test_a_refused_call_leaves_no_folder(command):
    assert command("fit", "digits", "--lr", "-1", "--out", "run")[0] == 2
    assert not Path("run").exists()


def test_odd_names_are_shown_as_they_are(command):
    code, out, _ = command("fit", "digits", "--out", "y[red]z", *QUICK)
    assert (code, "y[red]z" in out) == (0, True)


def test_runs_beside_the_images_are_not_a_class(command, folder, monkeypatch):
    monkeypatch.chdir(folder)
    for _ in range(2):
        assert command("fit", ".", "--method", "ce", *QUICK)[0] == 0
    assert {path.name for path in (folder / "runs").iterdir()} == {"photos-ce-s0", "photos-ce-s0-2"}


def test_features_by_name(command, table):
    columns = ["--label-column", "species", "--feature-columns", "x9, x10,x11"]
    assert command("fit", table, *columns, "--out", "r", *QUICK)[0] == 0
    assert json.loads(Path("r/config.json").read_text())["call"]["data"]["input_shape"] == [3]


def test_the_help_says_which_columns_are_no_features(command, tmp_path):
    rows = {
        "": range(20),
        "id": range(100, 120),
        "a": np.linspace(0, 1, 20),
        "true_label": [0, 1] * 10,
        "y": [0, 1] * 10,
    }
    pyarrow.csv.write_csv(pa.table({name: list(values) for name, values in rows.items()}), tmp_path / "table.csv")
    assert noiseproof.load(tmp_path / "table.csv").feature_names == ("a",)
    _, out, _ = command("fit", "--help")
    words = " ".join(out.replace("│", " ").split())
    assert "by default all but label, true_label, id and a saved index." in words


def test_ctrl_c_says_how_to_go_on(command, monkeypatch):
    steps = []

    def interrupt(self, run, done):
        steps.append(run.step)
        if run.step == 7:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr("noiseproof.training.progress.Silent.step", interrupt)
    code, _, err = command("fit", "digits", "--out", "run", *QUICK)
    assert (code, max(steps)) == (130, 7)
    assert "stopped after step 7" in err
    assert "noiseproof fit --out run --resume" in err
    assert command("fit", "--out", "run", "--resume", "--quiet")[0] == 0


KILLED = [sys.executable, "-m", "noiseproof", "fit", "digits", "--noise", "symmetric:0.4", "--epochs", "12"]
KILLED += ["--method", "elr", "--device", "cpu", "--checkpoint-steps", "10", "--quiet", "--batch-size", "64"]
ONE_THREAD = os.environ | {"OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="module")
def never_touched(tmp_path_factory):
    """The folder of a run that was left alone."""
    folder = tmp_path_factory.mktemp("whole")
    subprocess.run([*KILLED, "--out", "run"], cwd=folder, check=True, env=ONE_THREAD, capture_output=True)
    return folder / "run"


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 5))])
def test_sigkill_at_a_random_moment_and_resume(never_touched, tmp_path, seed):
    """A real process, really killed: the finished run equals one that was never touched."""
    process = subprocess.Popen(
        [*KILLED, "--out", "run"], cwd=tmp_path, env=ONE_THREAD, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    history = tmp_path / "run/history.jsonl"
    wanted = random.Random(seed).randrange(1, 8)
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        if history.exists() and history.read_bytes().count(b"\n") >= wanted:
            break
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    again = [sys.executable, "-m", "noiseproof", "fit", "--out", "run", "--resume", "--quiet"]
    subprocess.run(again, cwd=tmp_path, check=True, env=ONE_THREAD, capture_output=True)
    whole, killed = (load_file(folder / "model.safetensors") for folder in (never_touched, tmp_path / "run"))
    assert whole.keys() == killed.keys()
    assert all((whole[key] == killed[key]).all() for key in whole)
    labels = [pq.read_table(folder / "labels.parquet") for folder in (never_touched, tmp_path / "run")]
    assert labels[0].equals(labels[1])

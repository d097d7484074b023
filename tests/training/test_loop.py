"""The loop: what it records, how it selects, interrupts, clips, schedules and refuses."""

from __future__ import annotations

import json
import signal

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from torch import nn

from noiseproof.data import LabeledData, noise
from noiseproof.errors import InputError
from noiseproof.method import Batch, Run, Selection
from noiseproof.methods.cross_entropy import CrossEntropy
from noiseproof.runs.folder import RESULTS, RunFolder
from noiseproof.runs.plots import plot_runs
from noiseproof.training.fit import fit
from noiseproof.training.interrupt import Interrupted
from noiseproof.training.progress import Silent


class Recorder(CrossEntropy):
    """Cross-entropy that notes the batches it sees, and may choose them."""

    def __init__(self, selection=None):
        super().__init__()
        self.selection, self.batches = selection, []

    def before_epoch(self, run):
        return self.selection

    def loss(self, run: Run, batch: Batch):
        self.batches.append(batch)
        return super().loss(run, batch)

    def describe(self):
        return "recorder"


def run(digits, method="ce", **options):
    settings = {"epochs": 2, "batch_size": 32, "lr": 0.05, "device": "cpu"}
    return fit(options.pop("model", "mlp"), digits[0], method, **(settings | options))


def test_every_example_once_an_epoch_with_its_own_label(digits):
    method = Recorder()
    run(digits, method, epochs=1)
    index = torch.cat([batch.index for batch in method.batches])
    assert torch.equal(index.sort().values, torch.arange(len(digits[0])))
    for batch in method.batches:
        assert torch.equal(batch.label, digits[0].labels[batch.index])


def test_a_last_batch_of_one_joins_its_neighbour(digits):
    data = digits[0].subset(torch.arange(65))
    method = Recorder()
    fit("mlp", data, method, epochs=1, batch_size=32)
    assert [len(batch.index) for batch in method.batches] == [32, 33]


def test_selection_and_weights(digits):
    index = torch.tensor([5, 17, 40, 41, 99, 100])
    weight = torch.tensor([1.0, 2, 3, 4, 5, 15])
    method = Recorder(Selection(index, weight))
    result = run(digits, method, epochs=2, batch_size=4)
    assert result.history[0]["examples"] == 6
    seen = torch.cat([batch.index for batch in method.batches[:2]])
    given = torch.cat([batch.weight for batch in method.batches[:2]])
    assert torch.equal(seen.sort().values, index)
    torch.testing.assert_close(given[seen.argsort()], weight / weight.mean())


def test_distance_is_that_of_the_weights(digits):
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    before = [p.detach().clone() for p in model.parameters()]
    result = run(digits, model=model)
    squares = [(p.detach() - q).square().sum() for p, q in zip(model.parameters(), before, strict=True)]
    assert result.history[-1]["distance"] == pytest.approx(float(sum(squares)) ** 0.5, rel=1e-5)


def test_history_agrees_with_predictions(digits):
    result = run(digits, epochs=3, test=digits[1], val=0.2)
    record, data = result.history[-1], result.run.data
    guess = torch.from_numpy(result.predict(data.inputs))
    assert record["train_accuracy"] == pytest.approx(float((guess == data.labels).float().mean()), abs=1e-6)
    assert record["train_true_accuracy"] == pytest.approx(float((guess == data.true_labels).float().mean()), abs=1e-6)
    wrong = data.wrong
    repeated = float((guess[wrong] == data.labels[wrong]).float().mean())
    assert record["train_memorised"] == pytest.approx(repeated, abs=1e-6)
    summary = result.summary()
    assert summary["final"]["test_accuracy"] == summary["last"]["test_accuracy"]
    assert summary["best"]["val_accuracy"] == max(record["val_accuracy"] for record in result.history)


@pytest.mark.parametrize(("loss", "key"), [("epoch", "loss"), ("full", "train_loss")])
def test_anneal_on_loss_drops_the_rate_once_and_ends_the_run(digits, loss, key):
    settings = {"epochs": 30, "lr": 0.02, "eval_examples": None}
    history = run(digits, schedule=f"anneal_on_loss(1.9, loss={loss!r})", **settings).history
    first = next(i for i, record in enumerate(history) if record[key] <= 1.9)
    assert 0 < first < 28
    assert [record["lr"] for record in history] == pytest.approx([0.02] * (first + 1) + [0.002] * (29 - first))
    assert {record["epoch"]: record["annealed"] for record in history if "annealed" in record} == {first + 2: first + 1}
    stop = (history[first + 1][key] + history[first + 2][key]) / 2
    ended = run(digits, schedule=f"anneal_on_loss(1.9, stop={stop}, loss={loss!r})", **settings).history
    assert [record[key] for record in ended] == [record[key] for record in history[: first + 3]]


class Losses(CrossEntropy):
    """Cross-entropy that notes the loss and the rate of every step."""

    def __init__(self):
        super().__init__()
        self.steps = []

    def loss(self, run, batch):
        loss = super().loss(run, batch)
        self.steps.append((loss.item(), run.lr))
        return loss


def test_a_running_loss_drops_the_rate_within_an_epoch(digits):
    method, memory, size = Losses(), 0.5, -(-len(digits[0]) // 32)
    schedule = f"anneal_on_loss(1.9, factor=0.5, memory={memory})"
    history = run(digits, method, epochs=12, lr=0.02, schedule=schedule).history
    mean, fell = 0.0, None
    for step, (loss, lr) in enumerate(method.steps):
        assert lr == pytest.approx(0.02 if fell is None else 0.01)
        mean += (loss - mean) * max(1 / (step + 1), 1 / (memory * size))
        fell = step + 1 if fell is None and mean <= 1.9 else fell
    assert fell % size  # not at the end of an epoch, where "epoch" would see it as well
    assert [record["annealed"] for record in history if "annealed" in record] == [pytest.approx(fell / size)]


@pytest.mark.parametrize("kill", ["before", "after"])
def test_a_drop_by_loss_survives_a_resume(digits, tmp_path, kill):
    method = "label_noise(elr(lam=3))"
    settings = {"schedule": "anneal_on_loss(1.9, stop=1.2)", "epochs": 40, "lr": 0.02, "method": method}
    whole = run(digits, out=tmp_path / "whole", **settings)
    [at] = [record["annealed"] for record in whole.history if "annealed" in record]
    size = whole.run.step // whole.run.epoch
    step = round(at * size) + (-2 if kill == "before" else 1)
    with pytest.raises(Interrupted):
        run(digits, out=tmp_path / "cut", progress=_SignalAt(step), **settings)
    resumed = run(digits, out=tmp_path / "cut", resume=True, **settings)
    assert resumed.run.epoch == whole.run.epoch < 40
    for one, other in zip(whole.history, resumed.history, strict=True):
        for key in ("loss", "lr", "distance", "annealed"):
            assert one.get(key) == other.get(key)
    for a, b in zip(whole.model.parameters(), resumed.model.parameters(), strict=True):
        assert torch.equal(a, b)


def test_a_drop_is_marked_in_the_curves(tmp_path):
    history = [{"train_accuracy": 0.1 * epoch, "epoch": epoch} for epoch in range(1, 6)]
    pictures = []
    for name, more in (("plain", {}), ("marked", {"annealed": 2.5})):
        plot_runs({"run": [[*history[:2], history[2] | more, *history[3:]]]}, tmp_path / name)
        pictures.append((tmp_path / name).read_bytes())
    assert pictures[0] != pictures[1]


def test_full_batch_is_gradient_descent(digits):
    """batch_size="all": a step an epoch, on the gradient of the mean over all examples."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    twin = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    twin.load_state_dict(model.state_dict())
    result = run(
        digits, model=model, batch_size="all", epochs=3, lr=0.5, momentum=0.0, weight_decay=0.0, schedule="constant"
    )
    assert result.run.step == 3
    inputs = result.run.normalize(digits[0].take(torch.arange(len(digits[0]))))
    for _ in range(3):
        twin.zero_grad()
        nn.functional.cross_entropy(twin(inputs), digits[0].labels).backward()
        with torch.no_grad():
            for parameter in twin.parameters():
                parameter -= 0.5 * parameter.grad
    for a, b in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(a, b)


def test_clipping_bounds_the_step(digits):
    result = run(digits, epochs=1, clip=1e-3, momentum=0.0, weight_decay=0.0, schedule="constant", lr=0.1)
    assert result.history[-1]["distance"] <= 0.1 * 1e-3 * result.run.step * 1.001


def test_bfloat16_trains(digits):
    assert run(digits, epochs=5, precision="bfloat16").history[-1]["train_accuracy"] > 0.3


def test_in_bfloat16_it_is_evaluated_as_it_is_trained_and_judged_in_single(digits):
    seen = []

    class Watched(CrossEntropy):
        def before_epoch(self, run):
            seen.append(run.predict(run.data)[0])

        def finish(self, run):
            seen.append(run.autocast)

    result = run(digits, epochs=1, precision="bfloat16", method=Watched())
    assert seen[1] == torch.bfloat16
    assert result.run.autocast is None
    single = result.run.predict(result.run.data)[0]
    result.run.autocast = torch.bfloat16
    half = result.run.predict(result.run.data)[0]
    assert half.dtype == single.dtype == torch.float32
    assert 0 < (half - single).abs().max() < 0.05


def test_what_was_said_of_those_held_out_is_known_until_the_epoch_begins(digits):
    """And not while the network moves: what it said before would be taken for what it says."""
    seen, in_steps = [], []

    class Watched(CrossEntropy):
        def before_epoch(self, run):
            seen.append(run.held_out is not None and torch.equal(run.held_out, run.predict(run.val)))

        def loss(self, run, batch):
            in_steps.append(run.held_out)
            return super().loss(run, batch)

    run(digits, Watched(), epochs=3, val=0.2)
    assert seen == [False, True, True]
    assert in_steps.count(None) == len(in_steps) > 0


@pytest.mark.parametrize(
    ("optimizer", "lr"),
    [
        ("sgd", 0.01),
        ("adam", 0.01),
        ("adamw", 0.01),
        ("adadelta", 1.0),
        (torch.optim.RMSprop, 0.001),
        (lambda parameters: torch.optim.Adam(parameters, lr=0.01), 77.0),
    ],
)
def test_optimizers(digits, optimizer, lr):
    assert run(digits, epochs=3, optimizer=optimizer, lr=lr).history[-1]["train_accuracy"] > 0.2


def test_a_class_of_the_table_is_its_name(digits):
    by_name, by_class = (run(digits, optimizer=one, lr=0.01) for one in ("adamw", torch.optim.AdamW))
    assert all(map(torch.equal, by_name.model.parameters(), by_class.model.parameters()))


def test_what_is_no_optimizer(digits):
    made = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.1)
    for optimizer, sentence in (
        (made, "pass the class, SGD, or a function"),
        (nn.Linear, "must be a name, a class of torch.optim"),
        (3, "must be a name, a class of torch.optim"),
        (lambda parameters: parameters, "must make a torch.optim.Optimizer of the parameters, got list"),
    ):
        with pytest.raises(InputError, match=sentence):
            run(digits, optimizer=optimizer)


def test_conv_net_resumes_in_its_memory_format(digits, tmp_path):
    """Convolution weights may be laid out channels-last; optimizer state must come back in the same layout."""

    def once(out, **more):
        settings = {"model": "cnn3", "epochs": 2, "batch_size": 64, "out": tmp_path / out}
        return run(digits, **(settings | more))

    whole = once("whole")
    with pytest.raises(Interrupted):
        once("cut", progress=_SignalAt(5))
    resumed = once("cut", resume=True)
    for a, b in zip(whole.model.parameters(), resumed.model.parameters(), strict=True):
        assert torch.equal(a, b)


class _SignalAt(Silent):
    def __init__(self, step):
        self.at = step

    def step(self, run, done):
        if run.step == self.at:
            signal.raise_signal(signal.SIGINT)


def test_ctrl_c_finishes_the_step_saves_and_says_how_to_go_on(digits, tmp_path):
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(Interrupted, match=r"stopped after step 7 .* by the same call with resume=True"):
        run(digits, out=tmp_path / "run", progress=_SignalAt(7))
    folder = RunFolder(tmp_path / "a run", command={"data": "digits"}, hint="go on with: another command")
    with pytest.raises(Interrupted, match=r"stopped after step 7 .* saved; go on with: another command"):
        run(digits, out=folder, progress=_SignalAt(7))
    assert folder.config()["command"] == {"data": "digits"}
    result = run(digits, out=tmp_path / "run", resume=True)
    assert result.run.epoch == 2
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.pictures
def test_the_run_directory(digits, tmp_path):
    out = tmp_path / "run"
    result = run(digits, "elr", out=out, val=0.2, test=digits[1])
    lines = [json.loads(line) for line in (out / "history.jsonl").read_text().splitlines()]
    assert lines == result.history
    table = pq.read_table(out / "labels.parquet").to_pydict()
    assert sorted(map(int, table["id"])) == list(range(len(digits[0])))
    for i, label, score in zip(map(int, table["id"]), table["label"], table["probability_wrong"], strict=True):
        assert label == digits[0].class_names[int(digits[0].labels[i])]
        assert score == pytest.approx(float(result.report.scores[i]))
    assert table["probability_wrong"] == sorted(table["probability_wrong"], reverse=True)
    assert (out / "curves.png").read_bytes()[:4] == b"\x89PNG"
    assert "elr" in (out / "report.html").read_text()
    assert {path.name for path in out.iterdir()} == {
        "config.json", "history.jsonl", "checkpoint.safetensors", "initial.safetensors", "model.safetensors",
        "labels.parquet", "evidence.npz", "summary.json", "curves.png", "report.html",
    }  # fmt: skip
    again = run(digits, "elr", out=out, val=0.2, test=digits[1], resume=True)
    assert again.history == result.history


def test_a_table_of_features():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 200)
    features = rng.normal(size=(200, 5)) * 100 + 1000 * labels[:, None]
    result = fit("mlp", LabeledData(features, labels), epochs=20, batch_size=20, lr=0.05)
    assert result.history[-1]["train_accuracy"] > 0.95


def test_two_networks_start_apart(digits):
    result = run(digits, "co_teaching(forget_rate=0.4)", epochs=1)
    first, second = (next(model.parameters()) for model in result.run.models)
    assert not torch.equal(first, second)


class Scalar(nn.Module):
    def __init__(self, outputs):
        super().__init__()
        self.flat, self.linear = nn.Flatten(), nn.Linear(64, outputs)

    def forward(self, x):
        return self.linear(self.flat(x))


ONE = Scalar(10)
BAD = {
    "epochs": ({"epochs": 0}, "epochs must be a whole number, 1 or more, got 0"),
    "batch size": ({"batch_size": 1}, "batch_size must be a whole number, 2 or more"),
    "batch size as text": ({"batch_size": "whole"}, "got 'whole'; or pass 'all'"),
    "loss not measured": (
        {"schedule": "anneal_on_loss(1, loss='full')", "eval_examples": 0}, "eval_examples=0 does not measure"
    ),
    "rate": ({"lr": -1.0}, "lr must be a number above 0, got -1.0"),
    "momentum": ({"momentum": 1.0}, r"momentum must be a number in \[0, 1\)"),
    "decay": ({"weight_decay": -1.0}, "weight_decay must be a number, 0 or more"),
    "clip": ({"clip": 0.0}, "clip must be a number above 0"),
    "optimizer": ({"optimizer": "adm"}, "did you mean 'adam'"),
    "schedule": ({"schedule": "cosin"}, "did you mean 'cosine'"),
    "milestones": ({"schedule": "multi_step([80, 40])"}, "rising order"),
    "precision": ({"precision": "float8"}, "unknown precision 'float8'"),
    "device": ({"device": "cuda:99"}, "device 'cuda:99' cannot be used here"),
    "device name": ({"device": "gpu"}, "device 'gpu' cannot be used here"),
    "augmentation": ({"augment": "weakk"}, "did you mean 'weak'"),
    "views": ({"augment": ["weak", "weak"]}, r"takes 1 view\(s\), got 2"),
    "validation": ({"val": 1.5}, "val must be"),
    "resume": ({"resume": True}, "out must be the folder of the run to resume"),
    "method": ({"method": "erl"}, "did you mean 'elr'"),
    "method option": ({"method": "elr(bta=1)"}, "did you mean 'beta'"),
    "model": ({"model": "resnet21"}, "did you mean"),
    "model outputs": ({"model": Scalar(7)}, r"returns \(2, 7\) for B=2; it must map"),
    "model inputs": ({"model": nn.Linear(3, 10)}, "fails on the data"),
    "two networks": ({"model": Scalar(10), "method": "co_teaching"}, "trains 2 networks, got one module"),
    "frozen": ({"model": Scalar(10).requires_grad_(False)}, "no trainable parameter"),
    "no split": ({"method": "early_stop(ce, criterion='val_loss')"}, "needs a validation split"),
    "checkpoint": ({"out": "x", "checkpoint_seconds": 0.0}, "checkpoint_seconds must be a number above 0"),
    "test": ({"test": (1, 2, 3)}, r"test must be a LabeledData, a pair \(X, y\), .*, got tuple"),
    "epochs as text": ({"epochs": "2"}, "epochs must be a whole number"),
    "seed": ({"seed": 10**30}, "seed must be"),
    "factory of numbers": ({"model": lambda: 3}, "function that makes one, got int"),
    "one network twice": ({"model": lambda: ONE, "method": "co_teaching"}, "made one twice"),
    "double precision": ({"model": Scalar(10).double()}, r"call model\.float\(\)"),
    "model option": ({"model": "mlp(width=3)"}, "did you mean 'widths'"),
    "milestones as a number": ({"schedule": "multi_step(40)"}, "milestones must be a list"),
    "anneal factor": ({"schedule": "anneal_on_loss(0.5, factor=-1)"}, "factor of a schedule must be a number"),
    "diverged": ({"lr": 1e20, "epochs": 3}, "the training loss became nan"),
}  # fmt: skip


@pytest.mark.parametrize(("options", "sentence"), BAD.values(), ids=BAD)
def test_bad_arguments_are_refused_in_one_sentence(digits, options, sentence, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=sentence) as caught:
        run(digits, **options)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_other_data_or_settings_do_not_resume(digits, tmp_path):
    out = tmp_path / "run"
    run(digits, out=out)
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    for options, word in (
        ({"batch_size": 16}, "batch_size=32"),
        ({"method": "gce"}, "method='ce"),
        ({"seed": 1}, "seed=0"),
    ):
        with pytest.raises(InputError, match=word):
            run(digits, **({"out": out, "resume": True} | options))
    relabelled = digits[0].with_labels((digits[0].labels + 1) % 10)
    with pytest.raises(InputError, match="was begun with data"):
        run((relabelled,), out=out, resume=True)
    with pytest.raises(InputError, match="already holds a run"):
        run(digits, out=out)
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


def test_sets_must_match(digits):
    other = LabeledData(torch.zeros(20, 1, 9, 9, dtype=torch.uint8), torch.arange(20) % 10)
    with pytest.raises(InputError, match=r"test has inputs of shape \(1, 9, 9\)"):
        run(digits, test=other)
    named = LabeledData(torch.zeros(20, 1, 8, 8, dtype=torch.uint8), [f"c{i % 10}" for i in range(20)])
    with pytest.raises(InputError, match="val does not match the training set: class 'c0' is not among"):
        run(digits, val=named)


def test_a_test_set_may_lack_classes_and_order_them_otherwise(digits):
    train = LabeledData(torch.eye(9).repeat(4, 1), ["a", "b", "c"] * 12)
    test = LabeledData(torch.eye(9), ["c", "b", "b"] * 3)
    result = fit("mlp", train, "ce", test=test, epochs=30, batch_size=12)
    assert result.test.class_names == ("a", "b", "c")
    assert result.history[-1]["train_accuracy"] == 1
    assert result.history[-1]["test_accuracy"] == pytest.approx(1 / 3)  # of c, b, b where the training set has a, b, c


def test_test_accuracy_is_against_the_true_labels(digits):
    noisy = digits[1].with_labels((digits[1].labels + 1) % 10, true_labels=digits[1].labels)
    assert (
        run(digits, test=noisy).history[-1]["test_accuracy"] == run(digits, test=digits[1]).history[-1]["test_accuracy"]
    )


def test_beliefs_are_in_the_order_of_the_data_as_given(digits):
    result = run(digits, "elr", epochs=10, val=0.2)
    wrong = digits[0].wrong
    assert result.beliefs.suspicion.shape == wrong.shape
    assert result.beliefs.suspicion[wrong].mean() > result.beliefs.suspicion[~wrong].mean() + 0.2
    held_out = result.split == "val"
    assert held_out.sum() == len(result.run.val)
    likely = torch.from_numpy(result.predict_proba(digits[0].inputs))[range(len(wrong)), digits[0].labels][held_out]
    suspicion = result.beliefs.suspicion[held_out]
    assert torch.equal(suspicion[likely.argsort(descending=True)], suspicion.sort().values)  # in the model's order


def test_held_out_labels_are_on_the_scale_of_the_others():
    """A sure network would put held-out examples first, its own mistakes among them."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 1500)
    inputs = rng.normal(size=(1500, 8)) + 1.2 * (2 * labels[:, None] - 1) * (np.arange(8) < 2)
    data = noise.apply(LabeledData(inputs, labels), "symmetric:0.2", seed=1)
    train, test = data.split(0.2, seed=0)
    result = fit("mlp", train, "elr", epochs=40, lr=0.1, val=0.2, test=test, device="cpu")
    wrong, held_out = train.wrong.numpy(), result.split == "val"
    suspicion = result.beliefs.suspicion.numpy()
    for scores in (suspicion, result.report.scores):
        for share in (0.05, 0.2, 0.5):  # as many of either part stand above any value
            threshold = np.quantile(scores[~held_out], 1 - share)
            assert abs((scores[held_out] > threshold).mean() - share) < 0.02
        first = np.argsort(-scores, kind="stable")[:50]
        assert wrong[first].mean() >= 0.9
        assert 5 <= held_out[first].sum() <= 15  # 10 by chance, with a deviation of 2.8
    assert result.test_report is not None
    assert result.test_report.noise_rate == pytest.approx(0.2, rel=0.5)


def test_the_labels_of_the_test_set_are_listed_if_asked_for(digits, tmp_path):
    """Both sets count from 0: the ids of the later one are led by its split."""
    run(digits, "elr", out=tmp_path, test=digits[1], score_test=True)
    table = pq.read_table(tmp_path / "labels.parquet").to_pydict()
    assert len(set(table["id"])) == len(table["id"]) == len(digits[0]) + len(digits[1])
    tested = {name for name, split in zip(table["id"], table["split"], strict=True) if split == "test"}
    assert tested == {f"test:{i}" for i in range(len(digits[1]))}


def test_the_model_comes_back_in_eval_mode_and_frozen_layers_stay_frozen(digits):
    model = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(64), nn.Linear(64, 32), nn.BatchNorm1d(32), nn.Linear(32, 10))
    model[1].eval()
    before = model[1].running_mean.clone()
    result = run(digits, model=model)
    assert torch.equal(model[1].running_mean, before)
    assert not torch.equal(model[3].running_mean, torch.zeros(32))
    assert not any(module.training for module in result.model.modules())


def test_runs_under_no_grad(digits):
    with torch.no_grad():
        assert run(digits).history[-1]["distance"] > 0


SELECTIONS = {
    "empty": (Selection(torch.tensor([], dtype=torch.int64)), "a selection is empty"),
    "out of range": (Selection(torch.tensor([5, 100_000])), "index must lie in"),
    "negative": (Selection(torch.tensor([5, -1])), "index must lie in"),
    "repeated": (Selection(torch.tensor([5, 5])), "must not repeat"),
    "a mask": (Selection(torch.tensor([True, False])), "must be an int64 tensor"),
    "short weights": (Selection(torch.tensor([5, 6]), torch.ones(1)), "weights of a selection"),
    "zero weights": (Selection(torch.tensor([5, 6]), torch.zeros(2)), "weights of a selection"),
}


@pytest.mark.parametrize(("selection", "sentence"), SELECTIONS.values(), ids=SELECTIONS)
def test_a_bad_selection_is_refused(digits, selection, sentence):
    with pytest.raises(InputError, match=sentence):
        run(digits, Recorder(selection))


def halve(clock):
    return 0.5


def make_network():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))


def test_functions_are_named_the_same_in_every_process(digits, tmp_path):
    settings = {"model": make_network, "schedule": halve, "augment": lambda x, generator: x, "out": tmp_path / "run"}
    run(digits, **settings)
    config = (tmp_path / "run/config.json").read_text()
    assert "0x" not in config
    assert "make_network" in config
    assert run(digits, **settings, resume=True).run.epoch == 2


def test_resume_needs_the_same_validation_and_test_sets(digits, tmp_path):
    run(digits, val=digits[1], out=tmp_path)
    with pytest.raises(InputError, match="was begun with val"):
        run(digits, val=digits[1].with_labels((digits[1].labels + 1) % 10), out=tmp_path, resume=True)


def test_a_killed_save_leaves_nothing_behind(digits, tmp_path):
    run(digits, out=tmp_path)
    (tmp_path / ".checkpoint.safetensors.123.tmp").write_bytes(b"half")
    run(digits, out=tmp_path, resume=True)
    assert not list(tmp_path.glob(".*"))
    assert (tmp_path / "model.safetensors").stat().st_mode & 0o044


def test_images_of_many_channels_have_a_report(tmp_path):
    images = torch.randint(0, 256, (40, 5, 8, 8), dtype=torch.uint8)
    fit("mlp", LabeledData(images, torch.arange(40) % 2), "ce", epochs=1, out=tmp_path)
    assert (tmp_path / "report.html").exists()


def test_images_on_another_scale_are_refused(digits):
    def scaled(data, by):
        return LabeledData(data.inputs.float() * by, data.labels)

    bytes_, raw, unit = digits, [scaled(one, 1) for one in digits], [scaled(one, 1 / 255) for one in digits]
    for train, test, phrase in (
        (raw, bytes_, "test has uint8 images, the training set's were floats beyond 0..1"),
        (bytes_, raw, "test has images up to 255, the training set's were bytes or lay in 0..1; divide by 255"),
        (unit, raw, "test has images up to 255"),
    ):
        with pytest.raises(InputError, match=phrase):
            run(train, test=test[1])
    for train, test in ((bytes_, unit), (unit, bytes_), (raw, raw)):
        result = run(train, test=test[1], epochs=1)
        assert result.final["test_accuracy"] == pytest.approx(
            run(train, test=train[1], epochs=1).final["test_accuracy"]
        )
        assert result.predict(test[1].inputs).shape == (len(test[1]),)
    with pytest.raises(InputError, match="the batch has uint8 images"):
        run(raw, epochs=1).predict(bytes_[1].inputs)


def test_a_run_whose_last_step_leaves_no_numbers_says_so(digits):
    with pytest.raises(InputError, match=r"weights became (inf|nan) in epoch 1; set clip=1.0 or lower lr"):
        run(digits, epochs=1, batch_size="all", lr=1e30, schedule="constant")


class Moody(nn.Module):
    """A network that does as it should in evaluation mode only."""

    def __init__(self, training):
        super().__init__()
        self.linear, self.other = nn.Linear(64, 10), training

    def forward(self, x):
        logits = self.linear(x.flatten(1))
        return self.other(logits) if self.training else logits


@pytest.mark.parametrize(
    ("training", "phrase"),
    [
        (lambda logits: (logits, None), "must return logits, a float tensor, in training too, got tuple"),
        (lambda logits: logits.long(), "must return logits, a float tensor, in training too, got torch.int64"),
        (lambda logits: logits.detach(), "the loss depends on no trainable weight"),
    ],
)
def test_networks_that_train_otherwise_than_they_predict(digits, training, phrase):
    with pytest.raises(InputError, match=phrase):
        run(digits, model=Moody(training))


def test_lazy_layers(digits):
    model = nn.Sequential(nn.LazyConv2d(4, 3), nn.LazyBatchNorm2d(), nn.ReLU(), nn.Flatten(), nn.LazyLinear(10))
    assert run(digits, model=model).final["train_accuracy"] > 0.2


def test_numbers_of_numpy(digits, tmp_path):
    numbers = {"epochs": np.int64(1), "batch_size": np.int32(64), "seed": np.uint8(3), "lr": np.float32(0.05)}
    assert run(digits, **numbers, out=tmp_path / "run").run.epoch == 1
    for name, value in (("lr", "0.1"), ("clip", "1"), ("momentum", None), ("epochs", True), ("weight_decay", "x")):
        with pytest.raises(InputError, match=f"{name} must "):
            run(digits, **{name: value})


def test_resuming_looks_at_all_of_the_data(digits, tmp_path):
    train = digits[0]
    run(digits, epochs=1, out=tmp_path / "a")
    changed = train.inputs.clone()
    changed[1] = 255 - changed[1]
    for other in (LabeledData(changed, train.labels), train.with_class_names(list("klmnopqrst"))):
        with pytest.raises(InputError, match="was begun with data="):
            run([other], epochs=1, out=tmp_path / "a", resume=True)


def test_a_run_killed_before_its_first_checkpoint_begins_anew(digits, tmp_path):
    out = tmp_path / "ä b"
    run(digits, epochs=1, out=out)
    for name in ("checkpoint.safetensors", *RESULTS):
        (out / name).unlink(missing_ok=True)
    with pytest.raises(InputError, match=r"has a config.json of its own"):  # it trained: there is a history
        run(digits, epochs=1, out=out)
    (out / "history.jsonl").write_text("")
    assert run(digits, epochs=1, out=out).run.epoch == 1


def test_a_network_that_cannot_take_the_window_of_crop_is_told(digits):
    with pytest.raises(InputError, match=r"takes images of 8×8 pixels, but none of the augmentation's 7×7"):
        fit("mlp", digits[0], "ce", epochs=1, augment="crop")
    fit("cnn3(width=4)", digits[0].subset(range(40)), "ce", epochs=1, augment="crop")

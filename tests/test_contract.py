"""What every method must do, run over all of them and over some stacks."""

from __future__ import annotations

import inspect
import math
import random
import signal

import pytest
import torch

from noiseproof import methods
from noiseproof.data import augment
from noiseproof.errors import InputError
from noiseproof.method import Batch, Method, Wrapper
from noiseproof.methods import auto, waking
from noiseproof.runs import checkpoint
from noiseproof.runs.folder import CHECKPOINT
from noiseproof.runs.result import FitResult
from noiseproof.training.fit import fit
from noiseproof.training.interrupt import Interrupted
from noiseproof.training.progress import Silent

SYMMETRIC = [[0.64 if i == j else 0.04 for j in range(10)] for i in range(10)]  # 40 % noise, as in conftest.py
OPTIONS = {"backward": f"backward(transition={SYMMETRIC})"}  # estimated in an epoch it diverges
INCV = ["incv(ce)", "incv(elr)", "incv(co_teaching(forget_rate=0.1))"]
EPOCHS = dict.fromkeys(["dmi", *INCV], 20)  # of several trainings, or one that only goes on from another
PLAIN = [OPTIONS.get(name, name) for name, cls in methods.registry().items() if not issubclass(cls, Wrapper)]
WRAPPED = [f"{name}(ce)" for name, cls in methods.registry().items() if issubclass(cls, Wrapper)]
STACKS = ["early_stop(elr, patience=2)", "early_stop(co_teaching(forget_rate=0.4))", "early_stop(early_stop(mixup))"]
STACKS += ["early_stop(crust(elr))", "crust(sop)", "crust(ce, mixup=1.0, weighted=True, selection='medoids', every=2)"]
STACKS += ["crust(ce, variant='authors', fraction=0.5)"]
STACKS += [
    "label_noise(sop, rate=0.2)",
    "early_stop(label_noise(elr, anneal='cosine'))",
    "label_noise(mixup)",
]
STACKS += [
    "early_stop(elr, criterion='val_loss', patience=1)",
    "early_stop(pull(ce), criterion='mixture')",
    "early_stop(mixup, criterion='changes', patience=1)",
    "early_stop(ce, criterion='distance(0.25)')",
    "early_stop(ce, criterion='knee')",
]
STACKS += ["early_stop(self_adaptive)", "label_noise(self_adaptive)", "crust(joint)", "pull(pes)"]
STACKS += [*INCV[1:], "early_stop(cores(consistency=1.0))", "label_noise(d2l)"]
STACKS += [
    "early_stop(dividemix(warmup=1))",
    "dividemix(warmup=1, views=1)",
    "early_stop(elr_plus)",
    "label_noise(jocor(forget_rate=0.4))",
    "crust(decoupling)",
]
RATES = "lr_u='auto', lr_v='auto'"
STACKS += [f"sop({RATES})", f"crust(sop({RATES}))", f"label_noise(sop({RATES}), rate=0.2)", "elr(lam=3)"]  # do not wait
RANDOM = ("mixup", "elr_plus")  # pair examples at random by design
ALL = PLAIN + WRAPPED + STACKS
TIMES = {"seconds", "examples_per_second"}


@pytest.fixture(autouse=True)
def _woken(monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits for the network to memorise wakes up after an epoch: both of its ways are run."""
    monkeypatch.setattr(waking, "_MEMORISED", -1.0)


class Killed(BaseException):
    """Stands for the end of the process: nothing in the library may catch it."""


class KillAt:
    """A progress that ends the process after a given step."""

    def __init__(self, step: int) -> None:
        self.at = step

    def start(self, run, title): ...

    def step(self, run, done):
        if run.step >= self.at:
            raise Killed

    def epoch(self, run): ...

    def close(self): ...


def train(digits, method, **options):
    data, test = digits
    settings = {"epochs": 4, "batch_size": 32, "lr": 0.05, "val": 0.2, "test": test, "seed": 3, "device": "cpu"}
    return fit("mlp", data, method, **(settings | options))


def without_times(history):
    return [{key: value for key, value in record.items() if key not in TIMES} for record in history]


def assert_same(a, b, where=""):
    """Two nested states are equal to the bit."""
    assert type(a) is type(b), where
    if isinstance(a, torch.Tensor):
        assert (a.dtype, a.shape) == (b.dtype, b.shape), where
        assert ((a == b) | (a.isnan() & b.isnan())).all(), where
    elif isinstance(a, dict):
        assert a.keys() == b.keys(), where
        for key in a:
            if key not in TIMES | {"epoch_seconds"}:
                assert_same(a[key], b[key], f"{where}/{key}")
    elif isinstance(a, list):
        assert len(a) == len(b), where
        for i, (x, y) in enumerate(zip(a, b, strict=True)):
            assert_same(x, y, f"{where}/{i}")
    else:
        assert a == b or (a != a and b != b), where


@pytest.mark.parametrize("method", ALL)
def test_trains_and_reports(digits, method):
    result = train(digits, method, epochs=EPOCHS.get(method, 6))
    for record in result.history:
        assert all(math.isfinite(value) for value in record.values())
        keys = {"loss", "lr", "distance", "train_accuracy", "train_true_accuracy", "train_memorised", "val_accuracy"}
        assert keys <= record.keys()
    assert result.history[-1]["test_accuracy"] > 0.25
    n, classes = len(digits[0]), result.run.num_classes
    assert result.beliefs.soft_label.shape == (n, classes)
    torch.testing.assert_close(result.beliefs.soft_label.sum(dim=1), torch.ones(n), atol=1e-4, rtol=0)
    assert result.beliefs.suspicion.shape == (n,)
    assert ((result.beliefs.suspicion >= 0) & (result.beliefs.suspicion <= 1)).all()
    probability = result.predict_proba(digits[1].inputs)
    assert probability.shape == (len(digits[1]), classes)


@pytest.mark.parametrize("method", PLAIN)
def test_training_lowers_the_loss_of_a_batch(digits, method):
    result = train(digits, "co_teaching", epochs=1, lr=1e-6)
    run, built = result.run, methods.build(method)
    run.models = run.models[: built.num_models]
    run.epoch, run.epochs = 0, 100
    built.start(run)
    index = torch.arange(32)
    views = (run.normalize(run.data.take(index)),) * built.num_views
    optimizer = torch.optim.SGD(run.models.parameters(), lr=0.02)
    losses = []
    for _ in range(60):
        loss = built.loss(run, Batch(views, run.data.labels[index], index))
        assert loss.shape == ()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert sum(losses[-5:]) < sum(losses[:5])


@pytest.mark.parametrize("method", ALL)
def test_killed_and_resumed_is_bit_identical(digits, method, tmp_path):
    killed_and_resumed(digits, method, tmp_path)


@pytest.mark.parametrize(
    ("further", "share", "stage"), [(0.2, 0.0, auto.TAUGHT), (-9.0, 0.0, auto.TAUGHT), (0.2, 2.0, auto.HOLDS)]
)
def test_auto_is_resumed_while_it_mixes_or_holds(digits, tmp_path, monkeypatch, further, share, stage):
    """It wakes at once; few examples are enough to know the noise by, of the others, or of itself."""
    monkeypatch.setattr(waking, "_MEMORISED", -9.0)
    for name, value in {"SLOPE": 100.0, "KNOWN": 0.0, "CONVEX": share, "FURTHER": further}.items():
        monkeypatch.setattr(auto, name, value)
    whole = killed_and_resumed(digits, "auto", tmp_path, val=0.3, epochs=8)
    assert whole.method.stage == stage
    assert whole.method._plan.mixes is (stage == auto.TAUGHT)
    if stage == auto.TAUGHT:
        assert whole.method._plan.q > 0.1
        assert math.isnan(whole.method.surprise[0]) is (further < 0)


def killed_and_resumed(digits, method, tmp_path, **more):
    """The run that was not killed, after another that was has been compared with it."""
    whole = train(digits, method, out=tmp_path / "whole", augment=augment.RandomCrop(padding=1), **more)
    total = whole.run.step
    rng = random.Random(method)
    killed, options = tmp_path / "killed", {"checkpoint_steps": 3, "augment": augment.RandomCrop(padding=1)} | more
    with pytest.raises(Killed):
        train(digits, method, out=killed, progress=KillAt(rng.randrange(1, total)), **options)
    second = rng.randrange(1, total)
    try:
        resumed = train(digits, method, out=killed, resume=True, progress=KillAt(second), **options)
    except Killed:
        resumed = train(digits, method, out=killed, resume=True, **options)
    assert without_times(resumed.history) == without_times(whole.history)
    states = [checkpoint.load(tmp_path / name / CHECKPOINT) for name in ("whole", "killed")]
    assert_same(*states)
    assert_same(resumed.run.models.state_dict(), whole.run.models.state_dict())
    assert_same(resumed.method.state_dict(), whole.method.state_dict())
    assert torch.equal(resumed.beliefs.suspicion, whole.beliefs.suspicion)
    return whole


class InterruptIn(Silent):
    """A progress that presses Ctrl-C once so many epochs are completed and a step of the next is."""

    def __init__(self, epoch: int) -> None:
        self.after = epoch

    def step(self, run, done):
        if run.epoch == self.after:
            signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("method", ALL)
def test_interrupted_it_has_results_and_more_epochs_go_on_as_planned_from_the_start(
    digits, method, tmp_path, monkeypatch
):
    """Or are refused, where the method goes by the number of epochs."""
    monkeypatch.setattr(FitResult, "save", lambda self, out, **how: None)  # pictures take most of the time
    options = {"method": method, "batch_size": 64, "schedule": "multi_step([2])", "out": tmp_path / "short"}
    with pytest.raises(Interrupted) as caught:
        train(digits, **options, epochs=2, progress=InterruptIn(1))
    assert caught.value.result.run.epoch == 1
    if methods.build(method).plans:
        with pytest.raises(InputError, match="was planned for 2 epochs, and its method goes by that number"):
            train(digits, **options, epochs=3, resume=True)
        return
    train(digits, **options, epochs=2, resume=True)
    longer = train(digits, **options, epochs=3, resume=True)
    whole = train(digits, **options | {"out": tmp_path / "whole"}, epochs=3)
    assert without_times(longer.history) == without_times(whole.history)
    assert_same(*(checkpoint.load(tmp_path / name / CHECKPOINT) for name in ("short", "whole")))
    assert_same(longer.run.models.state_dict(), whole.run.models.state_dict())
    assert torch.equal(longer.beliefs.suspicion, whole.beliefs.suspicion)


@pytest.mark.parametrize("method", PLAIN)
def test_weight_one_and_order_within_a_batch_do_not_matter(digits, method):
    if method in RANDOM:
        pytest.skip("pairs examples at random by design")
    data, _ = digits
    losses = []
    for order, weight in (
        (torch.arange(32), None),
        (torch.arange(31, -1, -1), None),
        (torch.arange(32), torch.ones(32)),
    ):
        result = train(digits, method, epochs=3, seed=0, val=None)
        run, fresh = result.run, methods.build(method)
        run.epoch, run.epochs = 0, 4
        fresh.start(run)
        inputs = run.normalize(data.take(order))
        views = (inputs,) * fresh.num_views
        losses.append(float(fresh.loss(run, Batch(views, data.labels[order], order, weight)).detach()))
    assert losses == pytest.approx([losses[0]] * 3, rel=1e-4)


@pytest.mark.parametrize("method", ALL)
def test_options_are_kept_under_their_names_and_can_be_written_down(method):
    built = methods.build(method)
    for key in inspect.signature(type(built).__init__).parameters:
        assert key == "self" or hasattr(built, key)
    assert methods.build(built.describe()).describe() == built.describe()


@pytest.mark.parametrize("cls", methods.registry().values(), ids=lambda cls: cls.name)
def test_says_what_it_is(cls):
    assert issubclass(cls, Method)
    assert cls.__doc__
    assert cls.paper


def test_the_same_seed_gives_the_same_bits_and_leaves_the_caller_alone(digits):
    before = torch.get_rng_state()
    first, second = train(digits, "mixup"), train(digits, "mixup")
    assert without_times(first.history) == without_times(second.history)
    assert without_times(train(digits, "mixup", seed=4).history) != without_times(first.history)
    assert torch.equal(before, torch.get_rng_state())

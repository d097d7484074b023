"""LabelNoise: what it flips and how often, that it flips nothing else, and that it stacks."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import label_noise as reference

from noiseproof.errors import InputError
from noiseproof.method import Batch, Method, Run
from noiseproof.methods import build
from noiseproof.methods.cross_entropy import CrossEntropy
from noiseproof.methods.crust import CRUST
from noiseproof.methods.label_noise import LabelNoise, flip_labels

Train = Callable[..., list[float]]


class Recorder(CrossEntropy):
    """Notes the labels it sees."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[torch.Tensor] = []
        self.after: list[torch.Tensor] = []

    def loss(self, run: Run, batch: Batch) -> torch.Tensor:
        self.seen.append(batch.label)
        return super().loss(run, batch)

    def after_step(self, run: Run, batch: Batch) -> None:
        self.after.append(batch.label)


@settings(max_examples=60, deadline=None)
@given(classes=st.integers(2, 12), size=st.integers(1, 40), rate=st.floats(0, 1), seed=st.integers(0, 2**31))
def test_flips_equal_their_definition(classes: int, size: int, rate: float, seed: int) -> None:
    label = torch.randint(classes, (size,), generator=torch.Generator().manual_seed(seed))
    before = label.clone()
    flipped = flip_labels(label, classes, rate, torch.Generator().manual_seed(seed))
    again = torch.Generator().manual_seed(seed)
    uniforms = torch.rand(size, generator=again)
    shifts = torch.randint(1, classes, (size,), generator=again)
    rate = float(torch.tensor(rate, dtype=torch.float32))  # the uniforms have single precision
    assert flipped.tolist() == reference.flips(label.tolist(), uniforms.tolist(), shifts.tolist(), rate, classes)
    assert torch.equal(label, before)
    assert flipped.dtype == label.dtype
    if classes == 2:
        assert set((flipped - label).abs().tolist()) <= {0, 1}


@pytest.mark.parametrize("classes", [2, 5])
def test_each_other_class_is_as_likely(classes: int) -> None:
    n, rate = 200_000, 0.3
    label = torch.arange(n) % classes
    flipped = flip_labels(label, classes, rate, torch.Generator().manual_seed(0))
    away = (flipped - label) % classes
    share = torch.bincount(away, minlength=classes) / n
    expected = torch.full((classes,), rate / (classes - 1))
    expected[0] = 1 - rate
    deviation = (expected * (1 - expected) / n).sqrt()
    assert ((share - expected).abs() < 5 * deviation).all()
    # one flip says nothing of the next
    moved = (away > 0).double()
    assert abs(float(torch.corrcoef(torch.stack([moved[:-1], moved[1:]]))[0, 1])) < 5 / n**0.5


@pytest.mark.parametrize("classes", [2, 7])
def test_the_mean_over_flips_is_the_smoothed_loss(classes: int) -> None:
    rate, n = 0.2, 100_000
    logits = torch.randn(classes, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    label = torch.full((n,), 1)
    flipped = flip_labels(label, classes, rate, torch.Generator().manual_seed(2))
    losses = torch.nn.functional.cross_entropy(logits.expand(n, classes), flipped, reduction="none")
    expected = reference.expected_cross_entropy(logits.tolist(), 1, rate)
    assert float(losses.mean()) == pytest.approx(expected, abs=5 * float(losses.std()) / n**0.5)
    if classes == 2:
        assert expected == pytest.approx(reference.smoothed(float(logits[1] - logits[0]), rate), rel=1e-12)


def test_only_the_batch_changes_afresh_at_each_step(make_run: Callable[..., Run], train: Train) -> None:
    run, inner = make_run(n=400), Recorder()
    stored = run.data.labels.clone()
    method = LabelNoise(inner, rate=0.3)
    method.start(run)
    train(method, run, 5)
    assert torch.equal(run.data.labels, stored)
    flipped = torch.stack([(seen != stored) for seen in inner.seen])
    assert ((flipped.double().mean(dim=1) - 0.3).abs() < 0.12).all()
    assert len({tuple(row.tolist()) for row in flipped}) == 5
    assert all(torch.equal(a, b) for a, b in zip(inner.seen, inner.after, strict=True))
    assert method._seen is None  # a step without a loss has nothing to go by


@pytest.mark.parametrize(
    "text", ["ce", "elr", "sop", "mixup", "co_teaching", "crust(ce, selection='central', mixup=1.0)", "early_stop(ce)"]
)
def test_rate_zero_changes_nothing(text: str, make_run: Callable[..., Run], train: Train) -> None:
    losses = []
    for method in (build(text), LabelNoise(build(text), rate=0)):
        run = make_run(num_models=method.num_models)
        run.inputs = lambda rows, run=run: (run.data.take(rows),)
        method.start(run)
        losses.append(train(method, run, 4))
    assert losses[0] == losses[1]


def test_both_labels_of_a_mixture_are_flipped(make_run: Callable[..., Run], train: Train) -> None:
    run, inner = make_run(n=400, epochs=8), Recorder()
    run.inputs = lambda rows: (run.data.take(rows),)
    run.data.labels.zero_()
    method = CRUST(LabelNoise(inner, rate=0.3), selection="central", mixup=1.0, warmup=1)
    method.start(run)
    method.owner.fill_(0)  # one cluster of all
    method.before_epoch = lambda run: None  # type: ignore[method-assign]
    run.epoch = 1
    train(method, run, 3)
    shares = [float((seen != 0).double().mean()) for seen in inner.seen]
    assert shares == pytest.approx([0.3] * 6, abs=0.1)


def test_annealed_over_the_run(make_run: Callable[..., Run], train: Train) -> None:
    run, inner = make_run(n=2000, epochs=8), Recorder()
    method = LabelNoise(inner, rate=0.4, anneal="multi_step([2, 4], gamma=0.5)")
    method.start(run)
    train(method, run, 6)
    shares = [float((seen != run.data.labels).double().mean()) for seen in inner.seen]
    assert shares == pytest.approx([0.4, 0.4, 0.2, 0.2, 0.1, 0.1], abs=0.06)
    run, inner = make_run(n=500, epochs=4), Recorder()
    method = LabelNoise(inner, rate=0.4, anneal="anneal_at(0.5, factor=0)")
    method.start(run)
    train(method, run, 4)
    assert [bool((seen != run.data.labels).any()) for seen in inner.seen] == [True, True, False, False]


def test_draws_from_the_runs_generator_alone(make_run: Callable[..., Run], train: Train) -> None:
    values = []
    for seed in (1, 2):
        method: Method = LabelNoise(CrossEntropy())
        run = make_run()
        method.start(run)
        torch.manual_seed(seed)
        values.append(train(method, run, 3))
    assert values[0] == values[1]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("label_noise(3)", "label_noise wraps a method, got 3"),
        ("label_noise(ce, rate=1)", r"rate must be a number in \[0, 1\), got 1"),
        ("label_noise(ce, anneal=3)", "anneal must be the text of a schedule, as 'cosine', got 3"),
        ("label_noise(ce, anneal='cosin')", "did you mean 'cosine'"),
        ("label_noise(ce, anneal='anneal_on_loss(0.5)')", "anneal goes by the epoch"),
        ("label_noise(crust(ce, selection='central', mixup=1.0))", r"as in crust\(label_noise\(ce\)"),
        ("label_noise(early_stop(crust(ce, selection='central', mixup=1.0)))", "turn the two round"),
    ],
)
def test_refuses(text: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        build(text)


@pytest.mark.slow
def test_flips_keep_a_network_from_memorising(digits) -> None:  # type: ignore[no-untyped-def]
    """Over 3 seeds, label-noise SGD memorises fewer of the wrong labels than plain training."""
    from noiseproof.training.fit import fit

    def memorised(method: str, seed: int) -> float:
        result = fit("mlp", digits[0], method, epochs=60, batch_size=32, lr=0.05, seed=seed, device="cpu")
        return float(result.history[-1]["train_memorised"])

    for seed in range(3):
        assert memorised("label_noise(ce, rate=0.4)", seed) < memorised("ce", seed) - 0.05

"""The criteria of early_stop against their twins, and on real runs."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from reference import stopping as reference

from noiseproof import models
from noiseproof.auditing.two_modes import fit_two_modes, separation
from noiseproof.data import LabeledData, load, noise
from noiseproof.errors import InputError
from noiseproof.method import Predictions, Run
from noiseproof.methods import stopping
from noiseproof.methods.cross_entropy import CrossEntropy
from noiseproof.methods.early_stop import EarlyStop
from noiseproof.training.fit import fit

MakeRun = Callable[..., Run]


def watch(rule: stopping.Criterion, run: Run, records: list[dict[str, Any]], patience: int) -> int:
    """The epoch a criterion picks; a record may have `probability` (m, K), the rest goes into the history."""
    rule.start(run)
    best, over = 0, False
    for record in records:
        if "probability" in record:
            probability = record["probability"]
            run.predicted = Predictions(torch.arange(len(probability)), probability)
        run.epoch += 1
        run.history.append({key: value for key, value in record.items() if key != "probability"})
        best, over = rule.judge(run, best, patience)
        if over:
            break
    return best


def one_hot(guesses: list[list[int]], classes: int) -> list[dict[str, Any]]:
    return [{"probability": torch.nn.functional.one_hot(torch.tensor(row), classes).float()} for row in guesses]


GUESSES = st.lists(st.lists(st.integers(0, 2), min_size=7, max_size=7), min_size=1, max_size=12)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(GUESSES, st.integers(1, 4))
@example([[0] * 7, [0] + [1] * 6, [0, 0, 1, 1, 0, 0, 0], [0] * 4 + [1] * 3], 1)
def test_agreement_and_changes_are_those_of_the_twins(
    make_run: MakeRun, guesses: list[list[int]], patience: int
) -> None:
    records, run = one_hot(guesses, 3), make_run()
    labels = run.data.labels[:7].tolist()
    chosen = watch(stopping.Agreement(), run, records, patience)
    assert chosen == reference.choose(_rounded(reference.agreement(guesses, labels)), patience)
    chosen = watch(stopping.Changes(), make_run(), records, patience)
    assert chosen == reference.choose(_rounded(reference.smooth(reference.changes(guesses))), patience)


def _rounded(values: list[float]) -> list[float]:
    """In single precision, as the criteria keep them: ties stay ties."""
    return [float(torch.tensor(value)) for value in values]


def test_only_so_many_predictions_are_remembered(make_run: MakeRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stopping, "_ROWS", 4)
    guesses = [[0, 1, 2, 0, 1], [0, 1, 2, 0, 0], [0, 1, 2, 1, 0]]  # the last column is not looked at
    for rule in (stopping.Agreement(), stopping.Changes()):
        run = make_run()
        watch(rule, run, one_hot(guesses, 3), 9)
        assert max(buffer.shape[0] for buffer in rule.buffers() if buffer.ndim) == 4
        kept = [row[:4] for row in guesses]
        agreement = max(reference.agreement(kept, run.data.labels[:4].tolist())[1:])
        assert float(rule.best) == pytest.approx(agreement if rule.name == "agreement" else 0.0)


def test_agreement_counts_those_who_turn_to_their_label_against_the_epoch() -> None:
    label, vote = torch.tensor([0, 1, 2, 0, 1, 2]), torch.tensor([0, 1, 2, 1, 2, 0])  # half the labels contradicted
    steady, turned = stopping.steadiness(vote, vote, label, 3), stopping.steadiness(label, vote, label, 3)
    third = torch.tensor([0, 1, 2, 2, 0, 1])  # neither the vote nor the label
    assert steady > stopping.steadiness(third, vote, label, 3) > turned
    assert stopping.steadiness(torch.zeros_like(vote), torch.zeros_like(vote), label, 3) == 0  # one class: by chance


def test_separation_is_that_of_the_twin() -> None:
    generator = torch.Generator().manual_seed(0)
    low, high = torch.rand(200, generator=generator), 2 + 2 * torch.rand(90, generator=generator)
    values = torch.cat([low, high]).double().numpy()
    modes = fit_two_modes(values)
    assert modes is not None
    expected = reference.separation(values.tolist(), list(modes.weight), list(modes.mean), list(modes.std))
    assert separation(values) == pytest.approx(expected, rel=1e-9)
    near = torch.cat([low, high - 1.5]).double().numpy()
    assert separation(near) < separation(values) <= 0
    assert math.isnan(separation(values[:1]))


def test_mixture_picks_the_epoch_whose_neighbourhood_separates_best(make_run: MakeRun) -> None:
    run = make_run(n=60)
    wrong = torch.arange(60) < 20
    records, raw = [], []
    for gap in (0.0, 1.0, 3.0, 3.5, 3.0, 1.0, 0.5, 0.0):
        noise_of_loss = torch.randn(60, generator=torch.Generator().manual_seed(1)).abs() / 2
        given_label = torch.exp(-0.3 - gap * wrong - noise_of_loss)
        probability = ((1 - given_label) / 2)[:, None].repeat(1, 3)
        probability.scatter_(1, run.data.labels[:, None], given_label[:, None])
        records.append({"probability": probability})
        raw.append(separation(-given_label.log().numpy()))
    expected = reference.choose(_rounded(reference.smooth(raw)), 3)
    assert watch(stopping.Mixture(), run, records, 3) == expected
    assert expected in (3, 4, 5)


@pytest.mark.parametrize("share", [0.1, 0.4, 0.9])
def test_knee_is_that_of_the_twin(share: float, make_run: MakeRun) -> None:
    accuracy = [0.5, 0.55, 0.58, 0.6, 0.6, 0.61, 0.62, 0.7]
    distance = [1.0, 2.0, 2.7, 3.3, 4.1, 4.9, 5.5, 6.0]
    records = [
        {"train_accuracy": a, "distance": d, "probability": torch.ones(1, 3) / 3}
        for a, d in zip(accuracy, distance, strict=True)
    ]
    assert watch(stopping.Knee(share), make_run(), records, 99) == reference.knee(accuracy, distance, share, 3)


def test_distance_keeps_the_last_epoch_inside(make_run: MakeRun) -> None:
    records = [{"distance": d} for d in (0.5, 1.0, 1.5, 0.9)]
    assert watch(stopping.Distance(1.0, relative=False), make_run(), records, 99) == 2
    run = make_run()
    norm = float(torch.cat([p.detach().flatten() for p in run.models.parameters()]).norm())
    rule = stopping.Distance(1.2 / norm)
    assert watch(rule, run, records, 99) == 2
    assert float(rule.limit) == pytest.approx(1.2)
    with pytest.raises(InputError, match=r"first epoch went 0\.5 .*, the radius is 0\.1; take a larger one"):
        watch(stopping.Distance(0.1, relative=False), make_run(), records, 99)


@pytest.mark.parametrize("criterion", ["agreement", "changes", "mixture", "knee"])
def test_without_predictions_it_says_what_to_do(criterion: str, digits: tuple[LabeledData, LabeledData]) -> None:
    says = f"early_stop by {criterion} reads predictions .*; pass eval_examples=1000"
    with pytest.raises(InputError, match=says):
        fit("mlp", digits[0], f"early_stop(ce, criterion='{criterion}')", epochs=1, eval_examples=0, device="cpu")


def test_it_does_not_lose_patience_before_the_first_score(digits: tuple[LabeledData, LabeledData]) -> None:
    method = EarlyStop(CrossEntropy(), patience=1)
    result = fit("mlp", digits[0], method, epochs=4, lr=0.05, device="cpu")
    assert result.run.epoch > 1
    assert result.kept == int(method.best_epoch) > 1
    assert result.summary()["final"]["epoch"] == result.kept


def test_the_rows_remembered_are_of_all_classes(make_run: MakeRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stopping, "_ROWS", 4)
    run = make_run()
    run.predicted = Predictions(torch.arange(12), torch.arange(12.0)[:, None])
    assert stopping.remembered(run).index.tolist() == [0, 3, 6, 9]
    assert stopping.remembered(run).probability[:, 0].tolist() == [0, 3, 6, 9]


def test_a_run_that_stands_still_has_no_knee(make_run: MakeRun) -> None:
    records = [{"train_accuracy": 0.8, "distance": 1.0}] * 6
    assert watch(stopping.Knee(), make_run(), records, 99) == 6


def test_there_is_no_knee_below_chance(make_run: MakeRun) -> None:
    records = [{"train_accuracy": a, "distance": float(i)} for i, a in enumerate((0.2, 0.3, 0.6, 0.8, 0.8, 0.8), 1)]
    assert watch(stopping.Knee(), make_run(), records, 99) > 2
    assert reference.knee([0.2, 0.3, 0.6, 0.8, 0.8, 0.8], [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 0.4, 3) > 2


def test_theory_where_a_class_has_no_example(digits: tuple[LabeledData, LabeledData]) -> None:
    data = digits[0].subset(digits[0].labels != 3)
    result = fit("shallow(width=40)", data, "early_stop(ce, criterion='theory')", epochs=1, device="cpu")
    assert result.run.epoch == 1
    flat = "shallow(width=1)"
    with pytest.raises(InputError, match="is singular; widen the network"):
        fit(flat, digits[0], "early_stop(ce, criterion='theory')", epochs=1, device="cpu")


def test_held_out_criteria_need_a_split(make_run: MakeRun) -> None:
    for criterion in ("val_accuracy", "val_loss"):
        with pytest.raises(InputError, match=rf"by {criterion} needs a validation split: pass val=... or --val 0\.1"):
            EarlyStop(CrossEntropy(), criterion=criterion).start(make_run(val=None))
    EarlyStop(CrossEntropy()).start(make_run(val=None))


def test_theory_stops_when_its_time_has_come(digits: tuple[LabeledData, LabeledData]) -> None:
    """ητ₀ by the formula, with the Jacobian of autograd at the class means."""
    data, lr = digits[0], 2000.0
    torch.manual_seed(0)
    net = models.build("shallow", data.input_shape, 10, activation="softplus", width=40, init_std=0.1)
    initial = copy.deepcopy(net)
    rule = stopping.Theory(precision=0.5, momentum=0.0)
    method = EarlyStop(CrossEntropy(), criterion=rule)
    settings: dict[str, Any] = {"batch_size": "all", "momentum": 0.0, "weight_decay": 0.0, "schedule": "constant"}
    result = fit(net, data, method, epochs=60, lr=lr, clip=1.0, device="cpu", **settings)

    x, label = result.run.normalize(data.take(torch.arange(len(data)))).flatten(1), data.labels
    size = torch.bincount(label, minlength=10)
    centers = torch.stack([x[label == c].mean(0) for c in range(10)])
    weight = initial.get_parameter("hidden.weight")
    rows = [torch.autograd.grad(initial(center[None])[0, 0], weight)[0].flatten() for center in centers]
    alpha = float(torch.linalg.svdvals((size.sqrt()[:, None] * torch.stack(rows)).double())[-1]) / 2
    residual = float((size.sqrt()[:, None] * (initial(centers).detach() - torch.eye(10))).norm())
    due = 5 / alpha**2 * math.log(residual / 0.5)
    assert float(rule.due) == pytest.approx(due, rel=1e-3)
    assert int(method.best_epoch) == result.history[-1]["epoch"] == math.ceil(due * len(data) / lr) > 1


def test_theory_is_for_shallow_networks(digits: tuple[LabeledData, LabeledData]) -> None:
    with pytest.raises(InputError, match="for networks of one hidden layer"):
        fit("mlp", digits[0], "early_stop(ce, criterion='theory')", epochs=1, device="cpu")


@pytest.mark.slow
def test_the_default_loses_little_and_needs_nothing() -> None:
    """At most 2 points on average against the best epoch by test accuracy: digits, two rates, three seeds."""
    lost = []
    for seed in range(3):
        clean, test = load("digits").split(0.2, seed=0)
        for kind in ("symmetric:0.2", "symmetric:0.4"):
            data = noise.apply(clean, kind, seed=seed)
            settings: dict[str, Any] = {"epochs": 25, "batch_size": 64, "lr": 0.05, "test": test, "seed": seed}
            settings["schedule"] = "cosine(final=0.7)"  # as if it were planned longer
            plain = fit("mlp", data, "ce", **settings)
            kept = fit("mlp", data, "early_stop(ce)", **settings)
            best = max(record["test_accuracy"] for record in plain.history)
            lost.append(best - kept.summary()["final"]["test_accuracy"])
    assert sum(lost) / len(lost) <= 0.02


def test_theory_counts_its_time_in_steps_of_the_rate(make_run: MakeRun) -> None:
    """A step of a run with momentum m counts as lr / (n (1 − m)); it is due at τ₀ itself."""
    run, rule = make_run(), stopping.Theory(momentum=0.5)
    rule.register_buffer("time", torch.zeros(()))
    rule.register_buffer("due", torch.tensor(5.0))
    run.history = [{"step": 10, "lr": 1.2}]
    assert rule.observe(run) == (True, False)
    assert float(rule.time) == pytest.approx(10 * 1.2 / (12 * 0.5))
    run.history.append({"step": 30, "lr": 0.9})
    assert rule.observe(run) == (True, True)
    assert float(rule.time) == pytest.approx(2 + 20 * 0.9 / (12 * 0.5))


def test_criteria_are_written_down_with_their_defaults() -> None:
    described = {name: cls().describe() for name, cls in stopping.CRITERIA.items() if name != "distance"}
    assert described == {name: name for name in described} | {
        "knee": "knee(share=0.4)", "theory": "theory(precision=0.1, momentum=0.9)",
    }  # fmt: skip
    assert stopping.build("distance(2)").describe() == "distance(radius=2.0, relative=True)"
    assert {name: cls.lag for name, cls in stopping.CRITERIA.items() if cls.lag} == {"changes": 1, "mixture": 1}


def test_ten_thousand_predictions_are_remembered(make_run: MakeRun) -> None:
    for n, kept in ((9_999, 9_999), (10_000, 10_000), (10_001, 10_000)):
        run = make_run(n=n)
        run.predicted = Predictions(torch.arange(n), torch.zeros(n, 3))
        assert len(stopping.remembered(run).index) == kept
        assert stopping.Agreement().memory(run)["votes"].shape == (kept, 3)
        assert stopping.Changes().memory(run)["guess"].shape == (kept,)


def test_the_score_is_a_figure_where_there_is_one(make_run: MakeRun) -> None:
    rule = stopping.Changes()
    seen = []
    run = make_run()
    rule.start(run)
    for guesses in ([0, 1, 2, 0], [0, 1, 2, 1], [0, 1, 1, 1], [0, 1, 1, 1]):
        run.predicted = Predictions(torch.arange(4), torch.eye(3)[torch.tensor(guesses)])
        run.epoch += 1
        rule.judge(run, 1, 9)
        seen.append(rule.figures())
    assert seen[0] == {}
    assert [one["stop_score"] for one in seen[1:]] == pytest.approx([-1 / 4, -1 / 4, -1 / 6])
    assert stopping.Distance(1.0).figures() == {}


def test_only_what_reads_predictions_asks_for_them(make_run: MakeRun) -> None:
    read = {name for name, cls in stopping.CRITERIA.items() if cls.reads_predictions}
    assert read == {"agreement", "changes", "mixture", "knee"}
    for rule in (stopping.ValAccuracy(), stopping.ValLoss(), stopping.Distance(2.0)):
        rule.start(make_run(predicts=False))


@pytest.mark.parametrize(
    ("rule", "name", "sign"), [(stopping.ValAccuracy, "val_accuracy", 1), (stopping.ValLoss, "val_loss", -1)]
)
def test_the_score_of_an_epoch_is_what_was_measured_on_held_out_labels(
    make_run: MakeRun, rule: type[stopping.Peak], name: str, sign: int
) -> None:
    run, criterion = make_run(), rule()
    run.val = run.data
    assert criterion.figures() == {}
    for value in (0.75, 0.5):
        watch(criterion, run, [{name: value}], 9)
        assert criterion.figures() == {"stop_score": sign * value}

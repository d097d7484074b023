"""CRUST: what it selects, whom it mixes, what it believes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from noiseproof.coreset.gradients import last_layer_gradients
from noiseproof.data import load, noise
from noiseproof.errors import InputError
from noiseproof.method import Run, Selection
from noiseproof.methods import build
from noiseproof.methods.cross_entropy import CrossEntropy
from noiseproof.methods.crust import CRUST
from noiseproof.models import build as network
from noiseproof.training.fit import fit


def noisy_digits(seed: int = 0):  # type: ignore[no-untyped-def]
    clean, test = load("digits").split(0.2, seed=seed)
    return noise.apply(clean, "symmetric:0.5", seed=seed), test


def test_last_layer_gradients_are_those_of_autograd() -> None:
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(6, 4, generator=generator, dtype=torch.float64)
    label = torch.randint(3, (6,), generator=generator)
    weight = torch.randn(3, 4, generator=generator, dtype=torch.float64, requires_grad=True)
    logits = features @ weight.T
    rows = last_layer_gradients(logits.softmax(dim=1).detach(), label, features)
    short = last_layer_gradients(logits.softmax(dim=1).detach(), label)
    for i in range(6):
        loss = torch.nn.functional.cross_entropy(logits[i : i + 1], label[i : i + 1])
        by_weight, by_logits = torch.autograd.grad(loss, (weight, logits), retain_graph=True)
        torch.testing.assert_close(rows[i], by_weight.flatten())
        torch.testing.assert_close(short[i], by_logits[i])
    with pytest.raises(InputError, match="need probabilities"):
        last_layer_gradients(torch.ones(3, 2), label)


def test_the_central_examples_are_clean_and_the_medoids_are_not() -> None:
    data, test = noisy_digits()
    shares = {}
    for selection in ("central", "medoids"):
        method = f"crust(ce, fraction=0.5, selection='{selection}', by='prediction')"
        result = fit("mlp", data, method, epochs=16, batch_size=64, lr=0.05, val=0.1, test=test)
        records = result.history
        assert "selected_right" not in records[0]
        assert records[0]["examples"] == len(result.run.data)
        assert records[-1]["examples"] == pytest.approx(len(result.run.data) / 2, abs=5)
        shares[selection] = records[-1]["selected_right"]
    assert shares["central"] > 0.85
    assert shares["medoids"] < 0.5


def test_automatic_fraction_and_beliefs() -> None:
    from sklearn.metrics import roc_auc_score

    data, test = noisy_digits()
    result = fit("mlp", data, CRUST(build("ce")), epochs=24, batch_size=64, lr=0.05, test=test)
    assert 0.4 < result.history[-1]["examples"] / len(data) < 0.6
    assert roc_auc_score(data.wrong.numpy(), result.beliefs.suspicion.numpy()) > 0.95
    assert isinstance(result.method, CRUST)
    assert int(result.method.rounds) == 24 - 5
    owner = result.method.owner
    assert result.method.chosen[owner[owner >= 0]].all()


def test_medoids_say_nothing_against_those_they_leave_out() -> None:
    from sklearn.metrics import roc_auc_score

    data, _ = noisy_digits()
    method = "crust(ce, fraction=0.5, selection='medoids', by='prediction', weighted=True, mixup=1.0)"
    result = fit("mlp", data, method, epochs=12, batch_size=64, lr=0.05)
    assert roc_auc_score(data.wrong.numpy(), result.beliefs.suspicion.numpy()) > 0.95
    given = result.beliefs.soft_label.gather(1, data.labels[:, None]).squeeze(1)
    torch.testing.assert_close(result.beliefs.suspicion, 1 - given)


@pytest.mark.parametrize("selection", ["smallest", "central", "trimmed", "medoids"])
def test_the_selection_joins_the_beliefs_of_the_inner_method(make_run: Callable[..., Run], selection: str) -> None:
    run, method = make_run(), CRUST(build("elr"), selection=selection)
    method.start(run)
    n, classes = len(run.data), run.num_classes
    method.inner.targets.target.fill_(0.2)  # type: ignore[union-attr, operator]
    method.rounds.fill_(4)
    method.times.copy_(torch.arange(n) % 5)
    beliefs = method.beliefs(run, torch.full((n, classes), 1 / classes))
    assert beliefs is not None
    own, left_out = torch.full((n,), 1 - 1 / classes), 1 - method.times / 4
    torch.testing.assert_close(beliefs.suspicion, own if selection == "medoids" else (own + left_out) / 2)


def test_partners_are_other_members_of_the_cluster() -> None:
    method = CRUST(build("ce"), selection="central", mixup=1.0)
    method.register_buffer("owner", torch.tensor([1, 1, 1, 3, -1, 6, 6]))
    index, generator = torch.tensor([1, 3, 6]), torch.Generator().manual_seed(0)
    seen = {tuple(method._partners(index, generator).tolist()) for _ in range(50)}
    assert seen == {(0, 3, 5), (2, 3, 5)}


@pytest.mark.parametrize(("inner", "passes"), [("ce", 1), ("sop_plus", 1), ("refine(views=2)", 2)])
def test_mixing_costs_no_further_pass(inner: str, passes: int) -> None:
    data, _ = noisy_digits()
    calls = 0

    class Counted(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = network("mlp", (1, 8, 8), 10)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            nonlocal calls
            calls += self.training
            return self.body(x)

    method = f"crust({inner}, selection='central', mixup=1.0, warmup=1)"
    result = fit(Counted(), data, method, epochs=4, batch_size=64)
    assert calls == passes * result.run.step


def test_mistakes() -> None:
    with pytest.raises(InputError, match="crust wraps a method"):
        CRUST("ce")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="did you mean 'medoids'"):
        build("crust(ce, selection='medoid')")
    for option in ("mixup=1.0", "weighted=True"):
        with pytest.raises(InputError, match="choose selection='central'"):
            build(f"crust(ce, {option})")
    with pytest.raises(InputError, match="fraction must be a number in"):
        build("crust(ce, fraction=0)")
    for inner in ("crust(ce)", "early_stop(crust(ce))", "label_noise(pull(crust(ce)))"):
        with pytest.raises(InputError, match=r"crust cannot wrap .*crust\(ce\).*: it selects examples itself"):
            build(f"crust({inner})")


def test_an_inner_method_that_selects_is_refused() -> None:
    class Half(CrossEntropy):
        def before_epoch(self, run: Run) -> Selection:
            return Selection(torch.arange(len(run.data) // 2))

    with pytest.raises(InputError, match="crust cannot wrap ce: it selects examples itself"):
        fit("mlp", load("digits").subset(range(200)), CRUST(Half()), epochs=8)

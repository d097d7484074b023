"""CRUST: what it selects, whom it mixes, what it believes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from reference import crust as slow

from noiseproof.coreset.gradients import feature_gradients, last_layer_gradients
from noiseproof.data import load, noise
from noiseproof.errors import InputError
from noiseproof.method import Batch, Beliefs, Run, Selection
from noiseproof.methods import build, crust
from noiseproof.methods.cross_entropy import CrossEntropy
from noiseproof.methods.crust import CRUST
from noiseproof.methods.mixup import sample_lam
from noiseproof.models import Backbone
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


@pytest.mark.parametrize("by", ["label", "prediction"])
def test_a_round_is_algorithm_1(make_run: Callable[..., Run], by: str) -> None:
    """Its selection, weights and clusters; then the loss of Eq. (11) in the network's weights, in double precision."""
    run = make_run(n=60, num_classes=4, epochs=20)
    torch.manual_seed(3)
    network = torch.nn.Linear(2, 4)
    run.models, run.epoch = torch.nn.ModuleList([network]), 5
    method = CRUST(build("ce"), fraction=0.12, selection="medoids", by=by, weighted=True, mixup=0.8)
    method.start(run)
    chosen = method.before_epoch(run)
    x, label = run.data.inputs.double(), run.data.labels
    network.double()
    found = slow.clusters(network(x).softmax(dim=1).detach(), label, 0.12, by)
    weight = slow.weights(found)
    assert chosen is not None
    assert chosen.weight is not None
    assert dict(zip(chosen.index.tolist(), chosen.weight.tolist(), strict=True)) == weight
    owners = {i: j for j, members in found.items() for i in members}
    assert method.owner.tolist() == [owners[i] for i in range(60)]

    run.inputs = lambda rows: (x[rows],)
    generator = torch.Generator().manual_seed(7)
    lam, partner = (
        sample_lam(0.8, generator),
        method._partners(chosen.index, torch.rand(len(chosen.index), generator=generator)),
    )
    run.generator.manual_seed(7)
    scale = chosen.weight.double() / chosen.weight.double().mean()  # as the loop has it
    loss = method.loss(run, Batch((x[chosen.index],), label[chosen.index], chosen.index, scale))
    one_hot = torch.nn.functional.one_hot(label, 4).double()
    partners = dict(zip(chosen.index.tolist(), partner.tolist(), strict=True))
    expected = slow.loss(network, x, one_hot, weight, partners, lam)
    torch.testing.assert_close(loss, expected, atol=1e-10, rtol=1e-10)
    weights = list(network.parameters())
    gradients = (torch.autograd.grad(one, weights) for one in (loss, expected))
    torch.testing.assert_close(*gradients, atol=1e-10, rtol=1e-10)
    assert abs(lam - 0.5) > 0.1  # else the two images might change places
    assert all(owners[i] == j and (i != j or len(found[j]) == 1) for j, i in partners.items())
    assert any(label[i] != label[j] for j, i in partners.items()) == (by == "prediction")


@pytest.mark.parametrize("selection", ["smallest", "trimmed"])
def test_without_clusters_an_example_stands_for_itself_or_for_none(
    make_run: Callable[..., Run], selection: str
) -> None:
    """Of each class the half with the smallest gradients ‖p − y‖; two rounds of the same network choose alike."""
    run = make_run(n=40, num_classes=2, epochs=20, epoch=5)
    method = CRUST(build("ce"), fraction=0.5, selection=selection)
    method.start(run)
    chosen = [method.before_epoch(run) for _ in range(2)][-1]
    assert chosen is not None
    assert chosen.weight is None
    everyone, kept = torch.arange(40), torch.zeros(40, dtype=torch.bool).index_fill(0, chosen.index, True)
    assert method.owner.tolist() == torch.where(kept, everyone, -1).tolist()
    assert (method.times.tolist(), int(method.rounds)) == ((2 * kept).tolist(), 2)
    if selection == "smallest":
        gradient = last_layer_gradients(run.predict(), run.data.labels).norm(dim=1)
        for label in (0, 1):
            own = everyone[run.data.labels == label]
            half = own[gradient[own].argsort()[: round(len(own) / 2)]]
            assert sorted(half.tolist()) == own[kept[own]].tolist()


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
    method.inner.target.fill_(0.2)  # type: ignore[union-attr, operator]
    method.rounds.fill_(4)
    method.times.copy_(torch.arange(n) % 5)
    beliefs = method.beliefs(run, torch.full((n, classes), 1 / classes))
    assert beliefs is not None
    own, left_out = torch.full((n,), 1 - 1 / classes), 1 - method.times / 4
    torch.testing.assert_close(beliefs.suspicion, own if selection == "medoids" else (own + left_out) / 2)


def test_before_the_first_selection_it_believes_as_the_inner_method_does(make_run: Callable[..., Run]) -> None:
    run = make_run()
    predicted = torch.rand(len(run.data), run.num_classes, generator=torch.Generator().manual_seed(0)).softmax(dim=1)
    for inner, selection in (("ce", "smallest"), ("ce", "central"), ("elr", "trimmed")):
        method = CRUST(build(inner), selection=selection)
        method.start(run)
        expected = method.inner.beliefs(run, predicted) or Beliefs.of(predicted, run.data.labels)
        found = method.beliefs(run, predicted)
        assert found is not None
        torch.testing.assert_close(found.suspicion, expected.suspicion)
        torch.testing.assert_close(found.soft_label, expected.soft_label)


def test_partners_are_other_members_of_the_cluster() -> None:
    method = CRUST(build("ce"), selection="central", mixup=1.0)
    method.register_buffer("owner", torch.tensor([1, 1, 1, 3, -1, 6, 6]))
    index, generator = torch.tensor([1, 3, 6]), torch.Generator().manual_seed(0)
    seen = {tuple(method._partners(index, torch.rand(len(index), generator=generator)).tolist()) for _ in range(50)}
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


class Small(Backbone):
    """Features with batch norm, and a linear head."""

    def __init__(self) -> None:
        super().__init__()
        self.body = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.BatchNorm1d(8), torch.nn.ReLU())
        self.num_features, self.head = 8, torch.nn.Linear(8, 3)

    def features(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x)


def authors_run(make_run: Callable[..., Run], n: int = 40) -> Run:
    run = make_run(n=n, epochs=8)
    torch.manual_seed(1)
    run.models = torch.nn.ModuleList([Small()])
    run.inputs = lambda rows: (run.data.take(rows),)
    return run


def test_the_authors_variant_selects_and_weighs_as_its_twin(make_run: Callable[..., Run]) -> None:
    run, method = authors_run(make_run), CRUST(build("ce"), variant="authors", fraction=0.5)
    method.start(run)
    run.model.eval()
    assert method.before_epoch(run) is None
    run.epoch = 2  # the warm-up is a quarter of 8
    before = run.model.body[1].running_mean.clone()  # type: ignore[union-attr, index]
    selection = method.before_epoch(run)
    assert not run.model.training
    assert not torch.equal(before, run.model.body[1].running_mean)  # type: ignore[union-attr, index]
    everyone = torch.arange(len(run.data))
    run.model.train()
    features = run.model.features(run.data.take(everyone)).detach()
    chosen, weight = slow.select(features, run.model.head.weight, run.model.head.bias, run.data.labels, share=0.5)
    assert selection is not None
    assert set(selection.index.tolist()) == set(chosen)
    assert dict(zip(selection.index.tolist(), selection.weight.tolist(), strict=True)) == pytest.approx(
        dict(zip(chosen, weight, strict=True))
    )


def test_the_authors_variant_mixes_within_the_label_and_keeps_it(
    make_run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crust, "sample_lam", lambda alpha, generator, beta: {(1.0, 0.1): 0.25}[alpha, beta])
    run, method = authors_run(make_run, n=200), CRUST(build("ce"), variant="authors", fraction=0.5)
    method.start(run)
    seen: list[Batch] = []
    method.inner.loss = lambda run, batch: seen.append(batch) or torch.zeros(())  # type: ignore[method-assign, func-returns-value]
    partners: list[torch.Tensor] = []
    inputs = run.inputs

    def watched(rows: torch.Tensor) -> tuple[torch.Tensor, ...]:
        partners.append(rows)
        return inputs(rows)  # type: ignore[misc]

    run.inputs = watched
    index = torch.arange(0, 60)
    label, weight = run.data.labels[index], torch.arange(1.0, 61.0)
    x = run.data.take(index)
    for run.epoch in (2, 3):  # the first selection, and the epoch after it
        method.loss(run, Batch((x,), label, index, weight))
    assert torch.equal(seen[0].views[0], x)
    (rows,) = partners
    assert torch.equal(run.data.labels[rows], label)
    assert not torch.equal(rows, index)
    torch.testing.assert_close(seen[1].views[0], 0.25 * x + 0.75 * run.data.take(rows))
    for batch in seen:
        assert torch.equal(batch.label, label)
        torch.testing.assert_close(batch.weight, weight / weight.mean())


@pytest.mark.slow
def test_the_authors_variant_does_what_they_published() -> None:
    """Figure 1 (a): half of the labels wrong, coresets get cleaner over the epochs, and smaller ones are cleaner."""
    for seed in (0, 1, 2):
        data, _ = noisy_digits(seed)
        right = {}
        for fraction in (0.3, 0.5, 0.7):
            method = CRUST(build("ce"), variant="authors", fraction=fraction)
            history = fit("mlp", data, method, epochs=24, batch_size=64, lr=0.05, seed=seed).history
            right[fraction] = [record["selected_right"] for record in history if "selected_right" in record]
            assert len(right[fraction]) == 24 - 5
        assert right[0.3][-1] > right[0.5][-1] > right[0.7][-1] > 0.55
        assert right[0.5][-1] > right[0.5][0] + 0.05
        assert right[0.5][-1] > 0.9


def test_gradients_at_the_features_are_those_of_the_formula() -> None:
    torch.manual_seed(0)
    model, x, label = Small().double().eval(), torch.randn(5, 2).double(), torch.tensor([0, 1, 2, 1, 0])
    rows, logits = feature_gradients(model, x, label)
    torch.testing.assert_close(logits, model(x))
    expected = last_layer_gradients(logits.softmax(dim=1), label) @ model.head.weight  # Wᵀ(p − y)
    torch.testing.assert_close(rows, expected)
    assert all(weight.grad is None for weight in model.parameters())


def test_mistakes() -> None:
    with pytest.raises(InputError, match="variant='authors' has a selection, classes, weights and mixup of its own"):
        build("crust(ce, variant='authors', mixup=1.0)")
    with pytest.raises(InputError, match="variant='authors' is for one network, co_teaching trains several"):
        build("crust(co_teaching(forget_rate=0.2), variant='authors')")
    data = load("digits").subset(range(200))
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))
    with pytest.raises(InputError, match="needs a network of features and a head, got Sequential"):
        fit(model, data, "crust(ce, variant='authors')", epochs=8)
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


@pytest.mark.parametrize(("epochs", "warm"), [(1, 1), (4, 1), (8, 2), (11, 2), (12, 3), (20, 5), (24, 5), (100, 5)])
def test_the_warmup_is_five_epochs_or_a_quarter_of_a_short_run(
    make_run: Callable[..., Run], epochs: int, warm: int
) -> None:
    run, method = make_run(epochs=epochs), CRUST(build("ce"))
    method.start(run)
    for run.epoch in range(min(epochs, warm + 2)):
        assert (method.before_epoch(run) is None) is (run.epoch < warm)


def test_it_selects_every_so_many_epochs(make_run: Callable[..., Run]) -> None:
    run, method = make_run(epochs=20), CRUST(build("ce"), warmup=1, every=3)
    method.start(run)
    rounds = []
    for run.epoch in range(9):
        method.before_epoch(run)
        rounds.append(int(method.rounds))
    assert rounds == [0, 1, 1, 1, 2, 2, 2, 3, 3]
    method.chosen.zero_()  # as one that is resumed from a state without a selection
    method.before_epoch(run)
    assert int(method.rounds) == 4


@pytest.mark.parametrize(("agreed", "share"), [(30, 0.5), (60, 1.0), (3, 0.1), (0, 0.1)])
@pytest.mark.parametrize("by", ["label", "prediction"])
def test_an_automatic_fraction_is_what_the_network_agrees_with(
    make_run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch, agreed: int, share: float, by: str
) -> None:
    """A tenth at least."""
    run, method = make_run(n=60, num_classes=2, epochs=20, epoch=5), CRUST(build("ce"), by=by)
    run.data.labels = torch.arange(60) % 2
    method.start(run)
    guess = torch.where(torch.arange(60) < agreed, run.data.labels, 1 - run.data.labels)
    said = 0.2 + 0.6 * torch.eye(2)[guess]
    monkeypatch.setattr(Run, "ask", lambda self, index, *_: said[index])
    method.before_epoch(run)
    groups = run.data.labels if by == "label" else guess
    assert [int(method.chosen[groups == k].sum()) for k in (0, 1)] == [
        round(share * int((groups == k).sum())) for k in (0, 1)
    ]


def test_nothing_is_mixed_in_the_warmup(make_run: Callable[..., Run]) -> None:
    run, method = make_run(epochs=8), CRUST(build("ce"), selection="central", mixup=1.0)
    asked: list[int] = []
    run.inputs = lambda rows: asked.append(run.epoch) or (run.data.take(rows),)  # type: ignore[func-returns-value]
    method.start(run)
    everyone = torch.arange(12)
    batch = Batch((run.data.take(everyone),), run.data.labels, everyone)
    for run.epoch in (0, 1, 2):
        method.before_epoch(run)
        state = run.generator.get_state()
        loss = method.loss(run, batch)
        if run.epoch < 2:
            torch.testing.assert_close(loss, method.inner.loss(run, batch))
            assert torch.equal(run.generator.get_state(), state)
    assert asked == [2]


def test_an_example_that_is_alone_is_its_own_partner_also_at_the_end() -> None:
    method = CRUST(build("ce"), selection="central", mixup=1.0)
    method.register_buffer("owner", torch.tensor([1, 1, 2]))
    assert method._partners(torch.tensor([1, 2]), torch.tensor([0.9, 0.9])).tolist() == [0, 2]


def test_the_authors_variant_looks_up_labels() -> None:
    assert build("crust(ce, variant='authors')").looks_up_labels
    assert not build("crust(ce)").looks_up_labels
    with pytest.raises(InputError, match="turn the two round"):
        build("label_noise(crust(ce, variant='authors'))")


def test_a_process_without_examples_selects_none() -> None:
    """There may be more processes than classes."""
    nobody = torch.empty(0, dtype=torch.int64)
    for options in ({}, {"selection": "central"}, {"variant": "authors"}):
        assert CRUST(build("ce"), **options)._owners(torch.empty(0, 3), 0.5, nobody, nobody).tolist() == []


def test_no_suspicion_is_below_zero_by_rounding(make_run: Callable[..., Run]) -> None:
    run, method = make_run(n=3), CRUST(build("ce"))
    method.start(run)
    predicted = torch.eye(3)[run.data.labels] * 1.000001
    for rounds in (0, 1):
        method.rounds.fill_(rounds)
        method.times.fill_(rounds)
        found = method.beliefs(run, predicted)
        assert found is not None
        assert found.suspicion.tolist() == [0, 0, 0]


def test_a_network_is_asked_once_for_each_input_with_and_without_gradient() -> None:
    """And says of each what it says of that one, whatever it was asked before."""
    asked = []

    class Double(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            asked.append((x.tolist(), torch.is_grad_enabled()))
            return 2 * x

    once, inputs = crust._Once(Double()), [torch.tensor([1.0]), torch.tensor([3.0]), torch.tensor([1.0, 3.0])]
    for _ in range(2):
        for x in inputs:
            assert torch.equal(once(x), 2 * x)
            assert torch.equal(once(x.clone()), 2 * x)
            with torch.no_grad():
                assert torch.equal(once(x), 2 * x)
    assert asked == [(x.tolist(), gradient) for x in inputs for gradient in (True, False)]

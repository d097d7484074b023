"""SimCLR, BYOL and i-Mix against their slow twins, and in a run."""

from __future__ import annotations

import copy
import math

import pytest
import torch
import torch.nn.functional as F
from reference import sane
from reference import views as twin
from test_contract import assert_same

from noiseproof import distributed
from noiseproof.errors import InputError
from noiseproof.method import Batch
from noiseproof.methods.mixup import sample_lam
from noiseproof.pretraining import BYOL, IMix, SimCLR, build, report
from noiseproof.pretraining.byol import make_predictor, prediction_loss
from noiseproof.pretraining.imix import virtual_loss
from noiseproof.pretraining.moco import log_sigma
from noiseproof.pretraining.simclr import nt_xent

NAMES = ["simclr", "byol", "imix", "imix(symmetric=True, alpha=0.3)", "byol(hidden=7, rate=2.0)"]


@pytest.fixture(autouse=True)
def _no_pictures(monkeypatch):
    monkeypatch.setattr(report, "write_report", lambda folder, result: None)


def rows(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def agree(fast, slow, *inputs):
    """Same value, same gradients."""
    found = []
    for function in (fast, slow):
        leaves = [one.clone().requires_grad_() for one in inputs]
        value = function(*leaves)
        value.backward()
        found.append([value.detach(), *(one.grad for one in leaves)])
    torch.testing.assert_close(found[0], found[1], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(("s", "tau"), [(2, 0.5), (5, 0.1)])
def test_losses_equal_their_twins(s, tau):
    """The defaults are the papers' for CIFAR-10, and MoCo's."""
    assert SimCLR().describe() == "simclr(temperature=0.5)"
    contrast = "temperature=0.2, dictionary_size=4096, ema=0.99, groups=1, symmetric=False"
    assert IMix().describe() == f"imix({contrast}, alpha=1.0)"
    first, second, bank = rows(s, 4), rows(s, 4, seed=1), F.normalize(rows(s + 3, 4, seed=2), dim=1)

    def ours(a, b):
        views = F.normalize(torch.cat([a, b]), dim=1)
        return nt_xent(views, views, tau)

    agree(ours, lambda a, b: twin.nt_xent(a, b, tau), first, second)
    agree(
        lambda a: prediction_loss(a, F.normalize(second, dim=1)), lambda a: twin.byol(a, second), first
    )  # fmt: skip
    share = torch.linspace(0.5, 1, s, dtype=torch.float64)
    partner = torch.arange(s).roll(1)
    agree(
        lambda a: virtual_loss(log_sigma(F.normalize(a, dim=1), bank, tau), share, partner),
        lambda a: twin.imix(a, bank, share, partner.tolist(), tau), first,
    )  # fmt: skip


def test_simclr_tells_from_those_of_other_processes_too():
    """Gathered rows come behind one's own, and are negatives of all."""
    views, others = (F.normalize(rows(4, 3, seed=seed), dim=1) for seed in (0, 1))
    total = 0.0
    for i in range(4):
        keys = [*(views[k] for k in range(4) if k != i), *others]
        total -= math.log(
            sane.sigma(views[i], views[(i + 2) % 4], 0.5) / sum(sane.sigma(views[i], k, 0.5) for k in keys)
        )
    assert nt_xent(views, torch.cat([views, others]), 0.5).item() == pytest.approx(total / 4)


def state_and_batch(run, method, **options):
    """The state of a finished run in double precision, with the method begun anew, and a batch of two views."""
    result = run(method, epochs=1, probe_every=0, model="mlp(widths=[6])", **options)
    state, built = result.run, build(method)
    state.models.double().train()
    state.normalize.double()
    normalize = state.normalize
    state.normalize = lambda x: normalize(x).double()
    built.start(state)
    built.double()
    views = tuple(rows(6, *state.data.input_shape, seed=seed) for seed in (4, 5))
    return state, built, Batch(views, torch.zeros(6, dtype=torch.int64), torch.arange(6))


def test_simclr_and_byol_on_networks(run):
    state, built, batch = state_and_batch(run, "simclr")
    both = copy.deepcopy(state.model)(torch.cat(batch.views))
    torch.testing.assert_close(built.loss(state, batch), twin.nt_xent(*both.chunk(2), 0.5))

    state, built, batch = state_and_batch(run, "byol")
    built.optimizers()
    online, target, predictor = (copy.deepcopy(one) for one in (state.model, built.target, built.predictor))
    expected = sum(twin.byol(predictor(online(a)), target(b)) for a, b in (batch.views, batch.views[::-1]))
    loss = built.loss(state, batch)
    torch.testing.assert_close(loss, expected)
    loss.backward()
    assert all(p.grad is not None for p in (*state.model.parameters(), *built.predictor.parameters()))
    assert all(p.grad is None for p in built.target.parameters())


def test_simclr_gathers_the_views_of_all_processes_its_own_first(run, monkeypatch):
    """Seen by the second of two: what the first has are negatives, and no rows of its loss."""
    state, built, batch = state_and_batch(run, "simclr")
    others = F.normalize(rows(12, 16, seed=9), dim=1)
    monkeypatch.setattr(distributed, "world", lambda: 2)
    monkeypatch.setattr(distributed, "rank", lambda: 1)
    asked = []

    def gather(views, sizes):
        asked.append((tuple(views.shape), sizes))
        return torch.cat([others, views])

    monkeypatch.setattr(distributed, "gather_with_gradients", gather)
    views = F.normalize(copy.deepcopy(state.model)(torch.cat(batch.views)), dim=1)
    torch.testing.assert_close(built.loss(state, batch), nt_xent(views, torch.cat([views, others]), 0.5))
    assert asked == [((12, 16), [12, 12])]


def test_imix_on_networks(run):
    state, built, batch = state_and_batch(run, "imix(alpha=0.4, dictionary_size=9)")
    generator = torch.Generator()
    generator.set_state(state.generator.get_state())
    keys = torch.stack([sane.unit(row) for row in copy.deepcopy(built.target)(batch.views[1])])
    online = copy.deepcopy(state.model)
    loss = built.loss(state, batch)
    drawn = [sample_lam(0.4, generator) for _ in range(6)]
    share = torch.tensor([max(one, 1 - one) for one in drawn]).double()
    partner = torch.randperm(6, generator=generator).tolist()
    query = batch.views[0]
    mixed = torch.stack([share[i] * query[i] + (1 - share[i]) * query[partner[i]] for i in range(6)])
    bank = torch.cat([keys, built.dictionary])
    torch.testing.assert_close(loss, twin.imix(online(mixed), bank, share, partner, 0.2), rtol=1e-6, atol=1e-6)


def test_byols_target_follows_ever_more_slowly_and_its_predictor_at_the_runs_rate(run):
    result = run(BYOL(ema=0.8, rate=3.0), epochs=2, probe_every=0, schedule="constant", lr=0.01)
    state, method = result.run, result.method
    assert method.steps.param_groups[0]["lr"] == pytest.approx(0.03)
    for step in (0, 3, state.total_steps):
        state.step = step
        before = [p.clone() for p in method.target.parameters()]
        method.after_step(state, None)
        memory = twin.memory(step, state.total_steps, 0.8)
        for old, new, online in zip(before, method.target.parameters(), state.model.parameters(), strict=True):
            torch.testing.assert_close(new, memory * old + (1 - memory) * online)


def test_byols_predictor_is_drawn_from_the_runs_generator():
    torch.manual_seed(1)
    one = make_predictor(4, 6, torch.Generator().manual_seed(0))
    torch.manual_seed(2)
    before = torch.get_rng_state()
    two = make_predictor(4, 6, torch.Generator().manual_seed(0))
    assert torch.equal(before, torch.get_rng_state())
    assert_same(one.state_dict(), two.state_dict())
    assert not torch.equal(one[0].weight[:4, :4], one[3].weight[:4, :4])
    assert one[0].weight.abs().max() <= 1 / math.sqrt(4)


@pytest.mark.parametrize("method", NAMES)
def test_killed_and_resumed_is_bit_identical(killed_and_resumed, method):
    whole, _ = killed_and_resumed(method)
    assert all(math.isfinite(record["loss"]) for record in whole.history)
    built = build(method)
    assert build(built.describe()).describe() == built.describe()


@pytest.mark.parametrize("method", [SimCLR(), BYOL(), IMix(dictionary_size=60)])
def test_training_lowers_the_loss_and_keeps_images_apart(run, method):
    result = run(method, epochs=30, probe_every=30, lr=0.1)
    assert result.history[-1]["knn_accuracy"] > 0.6
    assert result.history[-1]["loss"] < result.history[0]["loss"]
    spread = result.features(result.bank).std(dim=0).mean()
    assert spread > 0.01  # not one answer for all


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("simclr(temperature=0)", "temperature must be"),
        ("byol(ema=1.1)", "ema must be"),
        ("byol(rate=0)", "rate must be"),
        ("imix(alpha=0)", "alpha must be"),
        ("simcrl", "did you mean 'simclr'"),
    ],
)
def test_mistakes_are_one_sentence(text, words):
    with pytest.raises(InputError, match=words):
        build(text)


def test_byols_predictor_has_two_layers_and_steps_as_the_network_does():
    method = BYOL()
    assert method.describe() == "byol(ema=0.99, hidden=512, rate=1.0)"  # of 300 epochs
    method.predictor = made = make_predictor(4, 200, torch.Generator().manual_seed(0))
    assert [type(layer).__name__ for layer in made] == ["Linear", "BatchNorm1d", "ReLU", "Linear"]
    assert [tuple(made[i].weight.shape) for i in (0, 3)] == [(200, 4), (4, 200)]
    for layer, inputs in ((made[0], 4), (made[3], 200)):  # uniform up to 1/√inputs
        assert 0.95 / math.sqrt(inputs) < float(layer.weight.detach().abs().max()) <= 1 / math.sqrt(inputs)
        assert not layer.bias.any()
    [steps] = method.optimizers()
    assert (steps.param_groups[0]["momentum"], steps.param_groups[0]["weight_decay"]) == (0.9, 1e-4)

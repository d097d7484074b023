"""MoCo and SANE: each equation against its slow twin, one code path, and a dictionary that forgets the oldest first."""

from __future__ import annotations

import copy
import math

import pytest
import torch
import torch.nn.functional as F
from reference import sane as twin
from test_contract import assert_same, without_times

from noiseproof.data import load
from noiseproof.data.augment import RandomResizedCrop
from noiseproof.errors import InputError
from noiseproof.method import Batch, Run
from noiseproof.methods.mixup import sample_lam
from noiseproof.methods.refine import confidence
from noiseproof.pretraining import SANE, MoCo, build, pretrain, report
from noiseproof.pretraining.moco import instance_loss, log_sigma, push
from noiseproof.pretraining.sane import blend, fit_size, refine, similarity_labels

ABLATIONS = [
    "moco", "sane", "sane(p=False)", "sane(q=False)", "sane(p=False, q=False)", "sane(mixup='none')",
    "sane(mixup='vanilla')", "sane(lam=1.0)", "sane(symmetric=True)", "sane(crops=1)", "sane(crops=2, side='key')",
    "sane(mixup='none', crops=1)", "sane(groups=4)",
]  # fmt: skip


@pytest.fixture(autouse=True)
def _no_pictures(monkeypatch):
    """Runs with a folder are about its checkpoint here; test_pretrain.py looks at the report."""
    monkeypatch.setattr(report, "write_report", lambda folder, result: None)


def units(*shape: int, seed: int = 0) -> torch.Tensor:
    """Random rows of length 1, in double precision."""
    x = torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return torch.nn.functional.normalize(x, dim=1)


@pytest.mark.parametrize(("tau", "sharpness"), [(0.2, 0.8), (0.07, 1.0), (1.0, 0.1)])
def test_p_and_q_agree_with_the_paper(tau, sharpness):
    bank = units(9, 5)
    p, q = similarity_labels(bank, 4, tau, sharpness)
    torch.testing.assert_close(p, twin.labels_p(bank, 4, tau, sharpness))
    torch.testing.assert_close(q, twin.labels_q(bank, 4, tau, sharpness))
    assert (q.diagonal() == 0).all()
    assert (p.argmax(dim=1) == torch.arange(4)).all()  # the sign of σ: a key is most like itself


@pytest.mark.parametrize("used", [("p", "q"), ("p",), ("q",)])
@pytest.mark.parametrize("mu", [0.0, 0.3, 1.0, 10.0])
def test_refined_labels_agree_with_the_paper_and_sum_to_one(used, mu):
    p, q = similarity_labels(units(9, 5), 4, 0.2, 0.8)
    given = [label if name in used else None for name, label in (("p", p), ("q", q))]
    ours = refine(*given, mu)
    torch.testing.assert_close(ours, twin.refined(*given, mu, 4, 9))
    torch.testing.assert_close(ours.sum(dim=1), torch.ones(4, dtype=torch.float64))
    assert (ours >= 0).all()
    assert mu > 0 or torch.equal(ours, torch.eye(4, 9, dtype=torch.float64))


def test_labels_stay_finite_where_one_similarity_is_all():
    bank = units(9, 5).float()
    p, q = similarity_labels(bank, 4, 0.01, 0.1)
    labels = refine(p, q, 1.0)
    torch.testing.assert_close(labels.sum(dim=1), torch.ones(4))


def test_mu_rises_by_half_a_cosine():
    for t in range(11):
        assert confidence(t, 10, 0.5, 10) == pytest.approx(twin.confidence(t, 10, 0.5, 10))
    assert (confidence(0, 1, 0.5, 10), confidence(1, 1, 0.5, 10)) == (0.5, 10)


@pytest.mark.parametrize(("n", "each"), [(96, 3), (97, 3), (98, 4), (127, 4), (20, 1), (1, 1)])
def test_mu_rises_over_the_steps_that_the_loop_makes(monkeypatch, n, each):
    """A last batch of one joins its neighbour; a data set smaller than a batch is one."""
    asked = []
    monkeypatch.setattr("noiseproof.pretraining.sane.confidence", lambda *given: asked.append(given) or 0.0)
    state = Run(None, range(n), 10, 5, 32, None, None, None, step=2)
    labels = SANE(m1=0.5, m2=10).labels(state, torch.zeros(4, 2), 3)
    assert asked == [(2, 5 * each, 0.5, 10)]
    assert torch.equal(labels, torch.eye(3, 4))  # without confidence, one-hot


def test_losses_and_their_gradients_agree_with_the_paper():
    raw = torch.randn(4, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    bank = units(9, 5)
    labels = refine(*similarity_labels(bank, 4, 0.2, 0.8), 0.7)
    one_hot = torch.eye(4, 9, dtype=torch.float64)
    for target, ours in ((one_hot, instance_loss), (labels, lambda logits: F.cross_entropy(logits, labels))):
        x, y = raw.clone().requires_grad_(), raw.clone().requires_grad_()
        a = ours(log_sigma(torch.nn.functional.normalize(x, dim=1), bank, 0.2))
        b = twin.contrast(y, bank, target, 0.2)
        a.backward()
        b.backward()
        torch.testing.assert_close(a, b)
        torch.testing.assert_close(x.grad, y.grad)


def test_mixtures_agree_with_the_paper():
    first, second = units(6, 3), units(6, 3, seed=1)
    order = [3, 1, 0, 5, 2, 4]
    torch.testing.assert_close(blend(0.3, first, second, torch.tensor(order)), twin.mixed(first, second, 0.3, order))
    assert torch.equal(blend(1.0, first, second, torch.tensor(order)), first)


def test_images_of_another_size_agree_with_their_twin():
    images = torch.randn(2, 3, 8, 6, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    for height, width in ((8, 6), (5, 4), (3, 9), (11, 7)):
        ours = fit_size(images, torch.empty(2, 3, height, width))
        torch.testing.assert_close(ours, twin.resized(images, height, width))


@pytest.mark.parametrize(
    ("options", "side"),
    [
        ("mixup='momentum'", 8), ("mixup='vanilla'", 8), ("q=False", 8), ("p=False", 8), ("mixup='none'", 8),
        ("lam=0.25", 8), ("lam=1.0", 8), ("crops=2", 8), ("crops=2, side='key', lam=0.25", 8),
        ("crops=1, mixup='none'", 8), ("crops=1, mixup='vanilla'", 8), ("symmetric=True", 8),
        ("symmetric=True, crops=1, side='key'", 8), ("crops=1", 5), ("crops=1, side='key'", 5),
    ],
)  # fmt: skip
def test_the_whole_loss_agrees_with_the_paper(run, options, side):
    """Eq. (9) by way of the hooks, against the twin fed with the same draws and the same networks, in eval mode."""
    small = {} if side == 8 else {"model": "resnet8", "epochs": 1}  # an mlp takes one size only
    result = run(f"sane(dictionary_size=10, {options})", probe_every=0, **small)
    state, built = result.run, result.method
    state.models.double().eval()
    built.double().eval()
    state.models.zero_grad()
    state.step = 3
    generator = torch.Generator().manual_seed(5)
    sides = [8, 8, *[side] * built.crops]
    views = [torch.randn(6, 1, side, side, generator=generator, dtype=torch.float64) for side in sides]
    dictionary = built.dictionary.clone()
    state.generator.manual_seed(9)
    loss = built.loss(state, Batch(tuple(views), torch.zeros(6, dtype=torch.int64), torch.arange(6)))
    loss.backward()
    ours = [parameter.grad.clone() for parameter in state.models.parameters()]
    state.models.zero_grad()

    generator.manual_seed(9)
    draws = ((sample_lam(built.kappa, generator), torch.randperm(6, generator=generator).tolist()) for _ in range(9))
    steps = state.epochs * math.ceil(len(state.data) / state.batch_size)
    expected, keys = twin.batch_loss(
        state.model, built.target, views, dictionary, draws, lam=built.lam, tau=0.2, sharpness=0.8,
        mu=twin.confidence(3, steps, 0, 1), labels="p" * built.p + "q" * built.q, mixup=built.mixup, side=built.side,
        symmetric=built.symmetric,
    )  # fmt: skip
    expected.backward()
    torch.testing.assert_close(loss, expected)
    for a, parameter in zip(ours, state.models.parameters(), strict=True):
        torch.testing.assert_close(a, parameter.grad)
    torch.testing.assert_close(built.keys, keys)
    assert len(keys) == (12 if built.symmetric else 6)


@pytest.mark.parametrize("options", ["", "symmetric=True", "groups=4"])
def test_sane_with_everything_off_is_moco_to_the_bit(run, options):
    moco = run(f"moco({options})")
    sane = run(f"sane(lam=0, m1=0, m2=0{', ' if options else ''}{options})")
    assert without_times(sane.history) == without_times(moco.history)
    assert_same(sane.run.models.state_dict(), moco.run.models.state_dict())
    assert_same(sane.method.state_dict(), moco.method.state_dict())


def test_refined_labels_without_mixup_reuse_the_queries(run):
    """mu = 0 and mixup off: both losses of (9) are MoCo's, up to rounding."""
    moco, sane = run("moco"), run("sane(mixup='none', m2=0)")
    losses = [[record["loss"] for record in result.history] for result in (moco, sane)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    for result in (moco, sane):  # one pass in each step
        layers = [one for one in result.run.model.modules() if isinstance(one, torch.nn.BatchNorm1d)]
        assert {int(layer.num_batches_tracked) for layer in layers} == {result.run.step}


@pytest.mark.parametrize("size", [7, 12, 100])
def test_the_dictionary_forgets_the_oldest_first(size):
    """Against a deque, with batches that wrap around and one that is larger than the whole dictionary."""
    generator = torch.Generator().manual_seed(0)
    dictionary, position = torch.randn(size, 3, generator=generator), torch.zeros((), dtype=torch.int64)
    expected = twin.Dictionary(dictionary)
    for count in (5, 5, 5, 2, 9, 1):
        keys = torch.randn(count, 3, generator=generator)
        push(dictionary, position, keys)
        expected.push(keys)
        assert torch.equal(dictionary.roll(-int(position), 0), torch.stack(list(expected.rows)))


def test_after_a_step_the_target_moves_and_the_keys_are_kept(run):
    result = run(MoCo(ema=0.9, dictionary_size=40))
    state, method = result.run, result.method
    views = tuple(state.normalize(state.data.take(torch.arange(8))) for _ in range(2))
    batch = Batch(views, state.data.labels[:8], torch.arange(8))
    method.loss(state, batch)
    before = [parameter.clone() for parameter in method.target.parameters()]
    keys, at = method.keys.clone(), int(method.position)
    method.after_step(state, batch)
    for old, new, online in zip(before, method.target.parameters(), state.model.parameters(), strict=True):
        torch.testing.assert_close(new, 0.9 * old + 0.1 * online)
    assert torch.equal(method.dictionary[(at + torch.arange(8)) % 40], keys)
    torch.testing.assert_close(keys.norm(dim=1), torch.ones(8))
    assert not any(parameter.requires_grad for parameter in method.target.parameters())


def test_the_momentum_network_normalises_by_the_batch_and_keeps_statistics_of_its_own(run):
    """As the online one does: in train mode, from the start of a run to its end."""
    result = run(MoCo(dictionary_size=40), epochs=1, probe_every=0)
    state, method = result.run, result.method
    layers = [module for module in method.target.modules() if isinstance(module, torch.nn.BatchNorm1d)]
    assert len(layers) == 3
    for layer in layers:
        assert int(layer.num_batches_tracked) == state.step == 4
        assert not torch.equal(layer.running_mean, torch.zeros_like(layer.running_mean))
    begun = MoCo()
    begun.start(state)
    assert all(module.training for module in begun.target.modules())
    view = torch.randn(8, *state.data.input_shape, generator=torch.Generator().manual_seed(4))
    expected = copy.deepcopy(begun.target).train()(view)
    torch.testing.assert_close(begun.encode(state, view), torch.stack([twin.unit(row) for row in expected]))


def test_keys_come_back_in_order_from_their_groups(run):
    """In eval mode batch norm does not see the groups: shuffled or not, the keys are the same."""
    result = run(MoCo(groups=4))
    view = torch.randn(11, *result.run.data.input_shape)
    result.method.eval()
    shuffled = result.method.encode(result.run, view)
    result.method.groups = 1
    torch.testing.assert_close(result.method.encode(result.run, view), shuffled)
    result.method.train()
    result.method.groups = 4
    assert not torch.allclose(result.method.encode(result.run, view), shuffled, atol=1e-3)


def test_the_groups_are_shuffled(run):
    """In train mode a key depends on those it is normalised with: a random part of the batch, another in each step."""
    result = run(MoCo(groups=4), epochs=1, probe_every=0)
    state, method = result.run, result.method
    view = torch.randn(11, *state.data.input_shape, generator=torch.Generator().manual_seed(4))
    state.generator.manual_seed(7)
    generator = torch.Generator().manual_seed(7)
    for _ in range(2):
        found = method.encode(state, view)
        order = torch.randperm(11, generator=generator)
        for part in order.tensor_split(4):
            torch.testing.assert_close(found[part], torch.stack([twin.unit(row) for row in method.target(view[part])]))


def test_both_key_sets_of_a_symmetric_step_are_kept(run):
    result = run(MoCo(symmetric=True, dictionary_size=40), epochs=1, probe_every=0)
    state, method = result.run, result.method
    method.eval()
    views = torch.randn(2, 8, *state.data.input_shape, generator=torch.Generator().manual_seed(4))
    batch = Batch(tuple(views), torch.zeros(8, dtype=torch.int64), torch.arange(8))
    keys = torch.cat([method.encode(state, views[1]), method.encode(state, views[0])])
    method.loss(state, batch)
    at = int(method.position)
    method.after_step(state, batch)
    torch.testing.assert_close(method.dictionary[(at + torch.arange(16)) % 40], keys)
    assert int(method.position) == (at + 16) % 40


@pytest.mark.parametrize(
    "method", ["moco", "sane", "sane(symmetric=True)", "sane(crops=2, side='key', q=False, groups=3)"]
)
def test_killed_and_resumed_is_bit_identical(killed_and_resumed, method):
    whole, resumed = killed_and_resumed(method)
    assert resumed.at_random == whole.at_random
    assert {"dictionary", "position", "target.head.6.weight"} <= set(whole.method.state_dict())
    assert torch.equal(resumed.method.dictionary, whole.method.dictionary)


@pytest.mark.parametrize("method", ABLATIONS)
def test_every_switch_trains(run, method):
    result = run(method, epochs=1, probe_every=0)
    assert math.isfinite(result.history[-1]["loss"])
    assert result.at_random == {}


@pytest.mark.parametrize("method", ABLATIONS)
def test_options_can_be_written_down(method):
    built = build(method)
    assert build(built.describe()).describe() == built.describe()


def test_crops_of_several_sizes(run):
    result = run("sane(crops=3)", model="resnet8", epochs=1, augment="simclr")
    assert [view.shape[-1] for view in result.run.inputs(torch.arange(2))] == [8, 8, 8, 6, 3]
    result = run("sane(crops=1)", model="resnet8", epochs=1, mix_augment="sane-strong", crop_sizes=[5])
    assert [view.shape[-1] for view in result.run.inputs(torch.arange(2))] == [8, 8, 5]
    result = run("sane(crops=2)", epochs=1, augment=lambda x, generator: x)  # which resizes nothing
    assert [view.shape[-1] for view in result.run.inputs(torch.arange(2))] == [8] * 4


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"method": "sane(lamda=1)"}, "did you mean 'lam'"),
        ({"method": "sane(lam=2)"}, "lam must be a number in"),
        ({"method": "sane(mixup='momentun')"}, "did you mean 'momentum'"),
        ({"method": "sane(side='left')"}, "unknown side"),
        ({"method": "sane(p='no')"}, "p must be True or False, got 'no'"),
        ({"method": "sane(q=None)"}, "q must be True or False, got None"),
        ({"method": "sane(symmetric=3)"}, "symmetric must be True or False, got 3"),
        ({"method": "moco(symmetric=1)"}, "symmetric must be True or False, got 1"),
        ({"method": "elr"}, "unknown pre-training method"),
        ({"method": 3}, "method must be"),
        ({"mix_augment": "strong"}, "ask for them"),
        ({"method": "sane(crops=2)", "crop_sizes": [8], "augment": "simclr"}, "1 sizes for 2"),
        ({"method": "sane(crops=1)", "crop_sizes": [8]}, "augmentation that resizes"),
        ({"augment": ["weak", "weak"], "mix_augment": "strong"}, "drop mix_augment"),
        ({"model": torch.nn.Linear(64, 10)}, "derive it from noiseproof.models.Backbone"),
        ({"batch_size": "all"}, "batch_size must be"),
        ({"resume": True}, "out must be the folder of the run to resume"),
        ({"dim": 1}, "dim must be"),
        ({"schedule": "anneal_on_loss(0.5, loss='full')"}, "pre-training does not have"),
    ],
)
def test_mistakes_are_one_sentence(run, options, words):
    with pytest.raises(InputError, match=words):
        run(**({"method": "sane"} | options))


@pytest.mark.slow
@pytest.mark.parametrize("method", ["moco", "sane"])
def test_features_get_better(method):
    """On all digits with random crops, twelve epochs beat random weights by two points at least, over three seeds."""
    train, test = load("digits").split(0.2)
    gains = []
    for seed in range(3):
        result = pretrain(
            "resnet8", train, f"{method}(dictionary_size=512)", epochs=12, batch_size=64, lr=0.1,
            augment=RandomResizedCrop(8, scale=(0.5, 1.0), as_float=True), test=test, probe_every=12, seed=seed,
            device="cpu",
        )  # fmt: skip
        gains.append(result.history[-1]["knn_accuracy"] - result.at_random["knn_accuracy"])
    assert sum(gains) / len(gains) > 0.02, gains


def test_defaults_are_those_of_cifar10():
    """Section 4 of Zhou et al. (2021); the memory of the momentum network is MoCo's."""
    contrast = "temperature=0.2, dictionary_size=4096, ema=0.99, groups=1, symmetric=False"
    refinery = "lam=0.5, sharpness=0.8, m1=0.0, m2=1.0, kappa=2.0, p=True, q=True"
    assert MoCo().describe() == f"moco({contrast})"
    assert SANE().describe() == f"sane({contrast}, {refinery}, mixup='momentum', crops=0, side='query')"


def test_it_is_a_method_like_any_other():
    for cls in (MoCo, SANE):
        assert cls.paper
        assert cls.__doc__


def test_a_batch_of_one_image_has_one_group(run):
    result = run(MoCo(groups=4), epochs=1, probe_every=0)
    result.method.eval()
    for size in (1, 2, 3):
        assert result.method.encode(result.run, torch.randn(size, 1, 8, 8)).shape == (size, 16)

"""The parts of pre-training, one by one: views, probes, batches, keys in groups, and what a result says of itself."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from noiseproof.data import LabeledData
from noiseproof.data.augment import RandomResizedCrop, policy
from noiseproof.errors import InputError
from noiseproof.method import Batch
from noiseproof.pretraining import BYOL, SANE, IMix, MoCo, PretrainResult, SimCLR, build, probes, train
from noiseproof.pretraining.moco import crowded, embed, output_size
from noiseproof.pretraining.train import OnlineProbe, check_views, probe_sets, view_augments


def images(n: int = 12, height: int = 14, width: int = 28, **options: Any) -> LabeledData:
    pixels = torch.randint(256, (n, 3, height, width), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
    return LabeledData(pixels, torch.arange(n) % 2, **options)


TABLE = LabeledData(torch.randn(12, 5, generator=torch.Generator().manual_seed(0)), torch.arange(12) % 2)


# Views


def same(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return x


def side(size: Any) -> Any:
    """The strong augmentation of the SANE paper at another size."""
    return policy("sane-strong", size)


@pytest.mark.parametrize(
    ("augment", "mix", "sizes", "views", "expected"),
    [
        ("weak", None, None, 1, ["weak"]),
        ("weak", None, None, 2, ["weak", "weak"]),
        ("weak", None, None, 4, ["weak"] * 4),  # resizes nothing
        ("weak", "strong", None, 4, ["weak", "weak", "strong", "strong"]),
        (same, None, None, 3, [same] * 3),
        (same, "strong", None, 3, [same, same, "strong"]),
        (["weak", same], None, None, 2, ["weak", same]),
        ("simclr", None, None, 3, ["simclr"] * 3),  # one extra view has the size of the others
        ("weak", "sane-strong", None, 3, ["weak", "weak", "sane-strong"]),
        ("weak", "sane-strong", None, 4, ["weak", "weak", side((14, 28)), side((6, 12))]),  # from 1 to 3/7 of a side
        ("weak", "sane-strong", None, 5, ["weak", "weak", side((14, 28)), side((10, 20)), side((6, 12))]),
        ("weak", "sane-strong", [9], 3, ["weak", "weak", side((9, 9))]),
        ("weak", "sane-strong", [9, 5], 4, ["weak", "weak", side((9, 9)), side((5, 5))]),
        ("sane-strong", None, [9], 3, ["sane-strong", "sane-strong", side((9, 9))]),
    ],
)
def test_each_view_has_its_augmentation(augment: Any, mix: Any, sizes: Any, views: int, expected: list[Any]) -> None:
    found = view_augments(augment, mix, sizes, views, images())
    assert list(map(repr, found)) == list(map(repr, expected))


def test_a_table_has_no_crops() -> None:
    assert view_augments("simclr", None, None, 4, TABLE) == ["simclr"] * 4


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ((["weak"] * 2, "strong", None, 2), "names one augmentation for each view"),
        ((["weak"] * 2, None, [8], 2), "names one augmentation for each view"),
        (("weak", "strong", None, 2), "are for extra views"),
        (("simclr", None, [8], 2), "are for extra views"),
        (("simclr", None, [8], 1), "are for extra views"),
        (("weak", None, [8], 3), "got 'weak'"),
        (("simclr", "weak", [8], 3), "got 'weak'"),
        ((same, None, [8], 3), "an augmentation that resizes"),
        (("none", None, [8], 3), "got 'none'"),
        (("simclr", None, [8, 8], 3), "holds 2 sizes for 1 extra views"),
        (("simclr", None, [8], 4), "holds 1 sizes for 2 extra views"),
    ],
)
def test_views_that_do_not_fit_each_other(given: tuple[Any, ...], words: str) -> None:
    with pytest.raises(InputError, match=words):
        view_augments(*given, images())
    with pytest.raises(InputError, match="needs images"):
        view_augments("simclr", None, [8], 3, TABLE)


def test_the_network_is_tried_on_two_examples_of_each_view() -> None:
    seen: list[tuple[tuple[int, ...], bool]] = []

    class Network(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            seen.append((tuple(x.shape), self.training))
            if x.shape[-1] == 5:
                raise RuntimeError("five is too few")
            return x.flatten(1)

    network, data = Network(), images()
    run = SimpleNamespace(
        data=data, device="cpu", models=nn.ModuleList([network]), model=network, normalize=lambda x: x / 255
    )
    crop = RandomResizedCrop(9, as_float=True)
    check_views(run, ["plain", "crop"], [None, crop])
    assert seen == [((2, 3, 14, 28), False), ((2, 3, 9, 9), False)]
    assert network.training  # as before
    small = RandomResizedCrop(5, as_float=True)
    with pytest.raises(InputError, match=r"view small of shape \(3, 5, 5\) \(five is too few\).* crop_sizes .* as 14"):
        check_views(run, ["crop", "small"], [crop, small])
    with pytest.raises(ValueError, match="zip"):
        check_views(run, ["crop"], [crop, small])


# Probes


@pytest.mark.parametrize(
    ("every", "epochs", "due"),
    [(0, 4, []), (1, 4, [1, 2, 3, 4]), (2, 5, [2, 4, 5]), (3, 6, [3, 6]), (9, 4, [4])],
)
def test_probes_are_due_every_few_epochs_and_after_the_last(
    every: int, epochs: int, due: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[tuple[Any, ...]] = []
    monkeypatch.setattr(train, "probe", lambda *sets: given.append(sets) or {"knn": 0.25, "linear": 0.5})
    probe = OnlineProbe("features", "bank", "queries", every)
    found = {epoch: probe(SimpleNamespace(epoch=epoch, epochs=epochs)) for epoch in range(1, epochs + 1)}
    assert [epoch for epoch, figures in found.items() if figures] == due
    assert all(found[epoch] == {"knn_accuracy": 0.25, "linear_accuracy": 0.5} for epoch in due)
    assert given == [("features", "bank", "queries")] * len(due)
    assert bool(probe.measure()) == bool(every)


@pytest.mark.parametrize("limit", [10, 39, 40, 41])
def test_probes_know_so_many_examples_by_their_true_labels(limit: int) -> None:
    data = LabeledData(torch.arange(40.0)[:, None], [0, 1] * 20, true_labels=[1, 0] * 20)
    test = data.subset(torch.arange(20))
    some = data if limit >= 40 else data.split(limit / 40)[1]
    few = test if limit >= 20 else test.split(limit / 20)[1]
    bank, queries = probe_sets(data, test, limit)
    assert torch.equal(bank.inputs, some.inputs)
    assert torch.equal(queries.inputs, few.inputs)
    for one in (bank, queries):
        assert torch.equal(one.labels, 1 - one.inputs[:, 0].long() % 2)
    bank, queries = probe_sets(data, None, limit)
    rest, held = some.split(0.2)
    assert torch.equal(bank.inputs, rest.inputs)
    assert torch.equal(queries.inputs, held.inputs)
    assert torch.equal(queries.labels, 1 - queries.inputs[:, 0].long() % 2)


def test_a_linear_probe_is_the_minimum_of_its_loss() -> None:
    """At the optimum the gradient is 0, by double precision, whatever the scale of the features."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(80, 3, generator=generator, dtype=torch.float64) * torch.tensor([1.0, 100.0, 0.01]) + 5
    labels = torch.arange(80) % 3
    x[:, 0] += labels
    scaled = (x - x.mean(dim=0)) / x.std(dim=0, correction=0)
    for decay in (1e-4, 0.1):
        found = probes.linear(x, labels, x, decay=decay)
        logits = found.log()
        design = torch.cat([scaled, torch.ones(80, 1, dtype=torch.float64)], dim=1)
        weight = torch.linalg.lstsq(design, logits - logits.mean(dim=1, keepdim=True)).solution  # (4, 3)
        weight = weight.requires_grad_()
        loss = F.cross_entropy(design @ weight, labels) + decay / 2 * weight[:3].square().sum()
        (gradient,) = torch.autograd.grad(loss, weight)
        assert gradient.abs().max() < 1e-4
    few = probes.linear(x, labels, x, steps=1)
    assert (few - found).abs().max() > 1e-3
    more = probes.linear(x, labels, x, num_classes=5)
    assert more.shape == (80, 5)
    assert more[:, 3:].max() < 0.01


def test_a_column_without_spread_says_nothing() -> None:
    x = torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
    labels = (x[:, 0] > 0).long()
    same = torch.cat([x, torch.full((50, 1), 7.0)], dim=1)
    torch.testing.assert_close(probes.linear(same, labels, same), probes.linear(x, labels, x), atol=1e-4, rtol=0)


def test_accuracy_is_the_share_of_right_guesses() -> None:
    said = torch.tensor([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4], [0.3, 0.7]])
    assert probes.accuracy(said, torch.tensor([0, 1, 1, 1])) == 0.75
    assert probes.accuracy(said.T, torch.tensor([0, 3])) == 0.5


@pytest.mark.parametrize(("protocol", "by"), [("convex", "linear"), ("imagenet", "steps"), ("cifar10", "steps")])
def test_a_probe_asks_both_of_the_training_labels(protocol: str, by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Any, ...]] = []

    def watched(name: str, *answer: int) -> Any:
        def said(bank: Any, labels: Any, queries: Any, **options: Any) -> torch.Tensor:
            asked.append((name, len(bank), labels.tolist(), len(queries), options))
            return torch.eye(3)[list(answer)]

        return said

    monkeypatch.setattr(probes, "knn", watched("knn", 0, 0))
    monkeypatch.setattr(probes, "linear", watched("linear", 0, 1))
    monkeypatch.setattr(probes, "linear_by_steps", watched("steps", 0, 1))
    data = LabeledData(torch.randn(4, 2), [0, 2, 1, 1], true_labels=[0, 0, 0, 0])
    test = LabeledData(torch.randn(2, 2), [0, 0], true_labels=[0, 1])
    found = probes.probe(lambda one: one.inputs, data, test, k=3, protocol=protocol)
    assert found == {"knn": 0.5, "linear": 1.0}
    more = {} if by == "linear" else {"protocol": protocol}
    labels = [0, 2, 1, 1]
    assert asked == [
        ("knn", 4, labels, 2, {"k": 3, "num_classes": 3}), (by, 4, labels, 2, {"num_classes": 3, **more})
    ]  # fmt: skip
    with pytest.raises(InputError, match="did you mean 'convex'"):
        probes.probe(lambda one: one.inputs, data, test, protocol="convx")


# Batches, keys and dictionaries


@pytest.mark.parametrize(
    ("world", "size", "fits"),
    [(1, 2, True), (1, 3, True), (3, 3, False), (3, 6, True), (3, 8, False), (3, 9, True)],
)
def test_a_batch_is_shared_evenly_two_images_for_each(
    run: Any, world: int, size: int, fits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("noiseproof.distributed.world", lambda: world)
    words = "unknown pre-training method" if fits else f"batch_size must be a multiple of the {world} processes, two"
    with pytest.raises(InputError, match=words):
        run("nobody", batch_size=size)


@pytest.mark.parametrize(
    ("groups", "size", "parts"),
    [(1, 8, [8]), (2, 8, [4, 4]), (3, 8, [3, 3, 2]), (4, 8, [2] * 4), (9, 8, [2] * 4), (4, 5, [3, 2]), (4, 1, [1])],
)
def test_keys_are_normalised_in_parts_of_two_or_more(run: Any, groups: int, size: int, parts: list[int]) -> None:
    result = run(MoCo(groups=groups), epochs=1, probe_every=0)
    state, method = result.run, result.method
    sizes: list[int] = []
    method.target.register_forward_pre_hook(lambda module, given: sizes.append(len(given[0])))
    method.eval()
    view = torch.randn(size, *state.data.input_shape, generator=torch.Generator().manual_seed(1))
    before = state.generator.get_state()
    keys = method.encode(state, view)
    drawn = not torch.equal(before, state.generator.get_state())
    assert sizes == parts
    assert drawn == (len(parts) > 1)
    torch.testing.assert_close(keys, embed(method.target, view))


def test_without_batch_norm_there_is_nothing_to_shuffle(run: Any) -> None:
    """The projection head has it; a network of its own may have none."""
    result = run(MoCo(groups=4), epochs=1, probe_every=0)
    state, method = result.run, result.method
    assert method.normalises
    state.model.head = nn.Linear(32, 16)
    state.model.body = nn.Sequential(nn.Flatten(), nn.Linear(64, 32))
    method.start(state)
    assert not method.normalises
    before = state.generator.get_state()
    view = torch.randn(8, *state.data.input_shape)
    torch.testing.assert_close(method.encode(state, view), embed(method.target, view))
    assert torch.equal(before, state.generator.get_state())


@pytest.mark.parametrize("size", [7, 120, 4096])
def test_a_dictionary_begins_with_random_directions(run: Any, size: int) -> None:
    result = run(MoCo(dictionary_size=size), epochs=1, probe_every=0)
    state = result.run
    state.models.train()
    state.generator.manual_seed(5)
    method = MoCo(dictionary_size=size)
    method.start(state)
    random = torch.randn(min(size, 120), 16, generator=torch.Generator().manual_seed(5))
    torch.testing.assert_close(method.dictionary, random / random.norm(dim=1, keepdim=True))
    assert int(method.position) == 0
    assert method.position.dtype == torch.int64
    assert output_size(state) == 16
    assert state.model.training  # as before


def test_keys_are_gone_after_the_step_that_made_them(run: Any) -> None:
    result = run(MoCo(dictionary_size=9), epochs=1, probe_every=0)
    assert result.method.keys is None
    views = tuple(torch.randn(4, *result.run.data.input_shape) for _ in range(2))
    batch = Batch(views, torch.zeros(4, dtype=torch.int64), torch.arange(4))
    result.method.loss(result.run, batch)
    assert result.method.keys.shape == (4, 16)
    assert not result.method.keys.requires_grad
    result.method.after_step(result.run, batch)
    assert result.method.keys is None


def test_a_dictionary_is_crowded_by_keys_of_more_than_half_of_the_images() -> None:
    for n in (100, 101):
        sizes = [size for size in range(1, n + 1) if crowded(MoCo(dictionary_size=size), n) is None]
        assert sizes == list(range(1, n // 2 + 1))
        assert all(crowded(MoCo(dictionary_size=size, symmetric=True), n) is None for size in (1, n // 2 + 1, n, 4096))
    assert crowded(SimCLR(), 1) is None
    assert crowded(BYOL(), 1) is None


# What they are


def test_views_and_plans_of_the_methods() -> None:
    """Those whose confidence or memory grows over the planned steps say so."""
    assert [build(name).num_views for name in ("moco", "simclr", "byol", "imix", "sane", "sane(crops=3)")] == [
        2
    ] * 5 + [5]
    assert [cls().plans for cls in (MoCo, SimCLR, BYOL, IMix, SANE)] == [False, False, True, False, True]
    for text, fits in (("sane(crops=64)", True), ("sane(crops=65)", False), ("sane(crops=-1)", False),
                       ("byol(hidden=1000000)", True), ("byol(hidden=1000001)", False)):  # fmt: skip
        if fits:
            build(text)
        else:
            with pytest.raises(InputError, match="must be"):
                build(text)


def test_a_result_in_words() -> None:
    history = [{"epoch": 1, "loss": 2.0}, {"epoch": 2, "loss": 1.0, "knn_accuracy": 0.8125}]
    run = SimpleNamespace(history=history, epoch=2)
    features = SimpleNamespace(backbone="network")
    result = PretrainResult(run, SimCLR(), features, TABLE, TABLE, {"knn_accuracy": 0.25})
    assert repr(result) == f"PretrainResult({SimCLR().title()}, 2 epochs, k-NN 81.2 %)"
    assert result.summary() == {"last": history[-1], "random": {"knn_accuracy": 0.25}}
    assert (result.history, result.backbone) == (history, "network")
    del history[1]["knn_accuracy"]
    assert repr(result) == f"PretrainResult({SimCLR().title()}, 2 epochs)"

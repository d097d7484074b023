"""Batched augmentation against per-image twins, and the properties all operations share."""

from __future__ import annotations

import math
import random

import pytest
import torch
from PIL import Image
from reference import augment as slow
from torch import Tensor

from noiseproof.data import LabeledData
from noiseproof.data import augment as A
from noiseproof.errors import InputError
from noiseproof.training.setup import build_augments


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def images(batch: int = 12, channels: int = 3, height: int = 20, width: int = 24, seed: int = 0) -> Tensor:
    """Smooth uint8 images with noise: histograms as photographs have them, not flat."""
    g = seeded(seed)
    coarse = torch.rand(batch, channels, 4, 4, generator=g)
    x = torch.nn.functional.interpolate(coarse, size=(height, width), mode="bicubic", align_corners=False)
    x = 0.8 * x + 0.1 + 0.05 * torch.randn(x.shape, generator=g)
    return (x.clamp(0, 1) * 255).round().to(torch.uint8)


def near(a: Tensor, b: Tensor, tolerance: float) -> None:
    assert a.shape == b.shape
    assert bool(((a.double() - b.double()).abs() <= tolerance).all())


OPERATIONS = [
    A.RandomCrop(),
    A.RandomCrop(padding=3, mode="reflect"),
    A.RandomCrop(padding=0, size=(16, 18)),
    A.RandomFlip(),
    A.Cutout(8),
    A.Cutout(7, p=0.5, fill=0.5),
    A.ColorJitter(0.4, 0.4, 0.4, 0.1, p=0.8),
    A.RandomGrayscale(0.5),
    A.GaussianBlur(),
    A.GaussianBlur(kernel_size=7),
    A.RandomResizedCrop(20),
    A.RandomResizedCrop((9, 30), scale=(0.5, 1)),
    A.ToFloat(),
    A.RandAugment(),
    A.RandAugment(num_ops=3, magnitude=9, p=1.0, space="clsa"),
    *[A.policy(name, (20, 24)) for name in A.POLICIES],
]


GEOMETRY = (A.RandomCrop, A.RandomFlip, A.Cutout, A.RandomResizedCrop)


# What all operations share


@pytest.mark.parametrize("op", OPERATIONS, ids=repr)
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("floating", [False, True])
def test_same_seed_same_bits_and_input_untouched(op: A.Augmentation, channels: int, floating: bool) -> None:
    x = images(channels=channels)
    x = A.to_float(x) if floating else x
    before = x.clone()
    first, second, other = op(x, seeded(1)), op(x, seeded(1)), op(x, seeded(2))
    assert torch.equal(first, second)
    assert torch.equal(x, before)
    assert first.shape[:2] == x.shape[:2]
    assert first.shape == other.shape
    assert first.isfinite().all()
    assert float(first.min()) >= 0
    assert float(first.max()) <= (1 if first.is_floating_point() else 255)
    if floating:
        assert first.dtype == torch.float32


@pytest.mark.parametrize("op", OPERATIONS, ids=repr)
def test_parameters_belong_to_rows(op: A.Augmentation) -> None:
    """Row i of the result depends on row i of the input alone, and on the seed."""
    x = images()
    y = x.clone()
    y[::2] = images(seed=5)[::2]
    near(op(x, seeded(3))[1::2].float(), op(y, seeded(3))[1::2].float(), 1e-6)


@pytest.mark.parametrize(
    "op",
    [op for op in OPERATIONS if isinstance(op, GEOMETRY)],
    ids=repr,
)
def test_geometry_keeps_the_dtype(op: A.Augmentation) -> None:
    assert op(images(), seeded()).dtype == torch.uint8
    near(op(images(), seeded()) / 255, op(A.to_float(images()), seeded()), 0.5 / 255 + 1e-6)


@pytest.mark.parametrize(
    "op",
    [
        A.RandomFlip(0),
        A.RandomCrop(padding=0),
        A.Cutout(9, p=0),
        A.ColorJitter(1, 1, 1, 0.5, p=0),
        A.ColorJitter(),
        A.RandomGrayscale(0),
        A.GaussianBlur(p=0),
        A.RandAugment(p=0),
        A.RandAugment(num_ops=0),
        A.RandAugment(operations=["identity"]),
        A.policy("none", 20),
    ],
    ids=repr,
)
def test_probability_zero_changes_nothing(op: A.Augmentation) -> None:
    x = A.to_float(images())
    assert torch.equal(op(x, seeded()), x)


def test_unchosen_rows_come_back_to_the_bit() -> None:
    x = A.to_float(images(64, height=8, width=8))
    for op in (A.ColorJitter(0.4, 0.4, 0.4, 0.1, p=0.5), A.RandomGrayscale(0.5), A.GaussianBlur(p=0.5)):
        same = (op(x, seeded()) == x).flatten(1).all(dim=1)
        assert 16 < int(same.sum()) < 48


def test_other_float_types() -> None:
    x = images().double() / 255
    for op in OPERATIONS:
        out = op(x, seeded())
        assert out.dtype == torch.float64
        near(out, op(x.float(), seeded()), 2e-5 if not isinstance(op, A.RandAugment | A.Compose) else 1.0)


def test_non_contiguous_images() -> None:
    x = images().to(memory_format=torch.channels_last)
    for op in OPERATIONS:
        near(op(x, seeded()).float(), op(x.contiguous(), seeded()).float(), 1e-6)


@pytest.mark.parametrize("op", OPERATIONS, ids=repr)
@pytest.mark.parametrize("floating", [False, True])
def test_an_empty_batch_stays_empty(op: A.Augmentation, floating: bool) -> None:
    x = A.to_float(images()) if floating else images()
    some, none = op(x, seeded()), op(x[:0], seeded())
    assert none.shape == (0, *some.shape[1:])
    assert none.dtype == some.dtype


def test_nan_stays_visible() -> None:
    x = A.to_float(images())
    x[0, 1, 10, 12] = math.nan
    for op in (A.ColorJitter(0.4, 0.4, 0.4, 0.1), A.GaussianBlur(p=1), A.RandomCrop(), A.RandomGrayscale(1)):
        out = op(x, seeded())
        assert bool(out[0].isnan().any())
        assert not bool(out[1:].isnan().any())


# Geometry


@pytest.mark.parametrize("mode", ["zeros", "reflect"])
@pytest.mark.parametrize("size", [(20, 24), (13, 9)])
@pytest.mark.parametrize("padding", [0, 4])
def test_crop(mode: str, size: tuple[int, int], padding: int) -> None:
    x, g = images(), seeded()
    top = torch.randint(20 + 2 * padding - size[0] + 1, (12,), generator=g)
    left = torch.randint(24 + 2 * padding - size[1] + 1, (12,), generator=g)
    out = A.crop(x, top, left, size=size, padding=padding, mode=mode)
    for i in range(12):
        assert torch.equal(out[i], slow.crop(x[i], int(top[i]), int(left[i]), size, padding, mode))


def test_flip() -> None:
    x, mirrored = images(), torch.arange(12) % 3 == 0
    out = A.flip(x, mirrored)
    for i in range(12):
        assert torch.equal(out[i], x[i].flip(2) if mirrored[i] else x[i])


def test_a_chain_is_one_operation_after_the_other() -> None:
    operations = [
        A.RandomResizedCrop(16, as_float=True),
        A.RandomFlip(),
        A.ColorJitter(0.4, 0.4, 0.4, 0.1, p=0.8),
        A.Normalize([0.4, 0.5, 0.6], [0.2, 0.3, 0.4]),
    ]
    for x in (images(32), A.to_float(images(32))):
        before, g, h = x.clone(), seeded(5), seeded(5)
        expected = x
        for op in operations:
            expected = op(expected, g)
        assert torch.equal(A.Compose([A.Compose(operations[:2]), *operations[2:]])(x, h), expected)
        assert torch.equal(g.get_state(), h.get_state())
        for quiet in ([A.RandomFlip(0)], [A.ToFloat()], [lambda y, generator: y]):
            A.Compose([*quiet, operations[-1]])(x, h)
        assert torch.equal(x, before)


def test_random_crop_reaches_every_place() -> None:
    x = images(1, height=6, width=6).expand(600, -1, -1, -1)
    seen = {tuple(row.flatten().tolist()) for row in A.RandomCrop(padding=1)(x, seeded())}
    assert len(seen) == 9


@pytest.mark.parametrize("size", [(20, 24), (32, 32), (7, 5), (9, 40)])
def test_resized_crop(size: tuple[int, int]) -> None:
    x, g = A.to_float(images()), seeded()
    op = A.RandomResizedCrop(size, scale=(0.1, 1))
    window = op.draw(x, g)
    out = A.resized_crop(x, *window, size=size)
    for i in range(12):
        top, left, height, width = (int(p[i]) for p in window)
        assert 0 <= top <= 20 - height
        assert 0 <= left <= 24 - width
        assert height >= 1
        assert width >= 1
        near(out[i], slow.resized_crop(x[i], top, left, height, width, size), 1e-5)


def test_resized_crop_boxes_follow_scale_and_ratio() -> None:
    x = torch.zeros(4000, 1, 64, 64)
    _, _, height, width = A.RandomResizedCrop(8).draw(x, seeded())
    area, ratio = height * width / 64**2, width / height
    assert float(area.min()) > 0.19
    assert float(area.max()) <= 1
    assert float(ratio.min()) > 0.7
    assert float(ratio.max()) < 1.43
    rng = random.Random(0)
    boxes = [slow.resized_crop_box(rng, 64, 64, (0.2, 1.0), (3 / 4, 4 / 3)) for _ in range(4000)]
    expected = torch.tensor(boxes, dtype=torch.float32) / 64
    drawn = torch.stack([height, width], dim=1) / 64
    error = 5 * math.sqrt(2 * 0.05 / 4000)  # five standard errors of a difference of means; variances are below 0.05
    near(drawn.mean(dim=0), expected.mean(dim=0), error)
    quarters = torch.tensor([0.25, 0.5, 0.75])
    near(area.quantile(quarters), expected.prod(dim=1).quantile(quarters), 0.03)


def test_resized_crop_falls_back_to_the_central_box() -> None:
    x = torch.zeros(5, 1, 8, 31)
    top, left, height, width = A.RandomResizedCrop(8, scale=(1, 1)).draw(x, seeded())
    assert top.tolist() == [0] * 5
    assert height.tolist() == [8] * 5
    assert width.tolist() == [11] * 5
    assert left.tolist() == [10] * 5


def test_affine_maps() -> None:
    x, g = A.to_float(images(6, height=10, width=13)), seeded()
    angle, sx, sy, dx, dy = torch.rand(5, 6, generator=g) * torch.tensor([60, 0.6, 0.6, 8, 8])[:, None] - 1
    cases = [
        (A.rotate(x, angle), A.affine_matrix(size=(10, 13), degrees=angle)),
        (A.shear(x, sx, sy), A.affine_matrix(size=(10, 13), shear_x=sx, shear_y=sy)),
        (A.translate(x, dx, dy), A.affine_matrix(size=(10, 13), dx=dx, dy=dy)),
    ]
    for out, matrix in cases:
        for i in range(6):
            near(out[i], slow.affine(x[i], matrix[i].tolist()), 1e-5)


def test_affine_signs_are_those_of_pil() -> None:
    """Against PIL inside the image; at its border PIL does not fade."""
    x = images(1, height=40, width=40)
    image = slow.to_pil(x[0])
    one = torch.ones(1)

    def pil(*data: float) -> Tensor:
        return slow.from_pil(image.transform((40, 40), Image.Transform.AFFINE, data, Image.Resampling.BILINEAR))

    y, inner = A.to_float(x), (..., slice(12, 28), slice(12, 28))
    turned = slow.from_pil(image.rotate(20, Image.Resampling.BILINEAR))
    near(A.rotate(y, 20 * one)[0][inner], turned[inner], 1.5 / 255)
    near(A.shear(y, 0.2 * one, 0 * one)[0][inner], pil(1, 0.2, 0, 0, 1, 0)[inner], 1.5 / 255)
    near(A.shear(y, 0 * one, 0.2 * one)[0][inner], pil(1, 0, 0, 0.2, 1, 0)[inner], 1.5 / 255)
    near(A.translate(y, 3 * one, -2 * one)[0][inner], pil(1, 0, 3, 0, 1, -2)[inner], 1.5 / 255)
    assert A.rotate(x, 20 * one).dtype == torch.uint8


@pytest.mark.parametrize("fill", [0.0, 0.4])
@pytest.mark.parametrize("floating", [False, True])
def test_cutout(fill: float, floating: bool) -> None:
    x = A.to_float(images()) if floating else images()
    top, left = torch.arange(12) * 2 - 3, torch.arange(12) * 3 - 5
    out = A.cutout(x, top, left, 7, fill)
    for i in range(12):
        assert torch.equal(
            out[i], slow.cutout(x[i], int(top[i]), int(left[i]), 7, fill if floating else round(255 * fill))
        )


# Colour


def test_hue() -> None:
    x = A.to_float(images(8, height=9, width=9))
    x[0] = 0.5  # grey
    x[1, :, 0, :6] = torch.tensor([[1, 1, 0, 0, 0, 1], [0, 1, 1, 1, 0, 0], [0, 0, 0, 1, 1, 1.0]])  # primaries
    x[2, 1] = x[2, 2]  # green equals blue
    x[3, 0] = x[3, 1]
    shift = torch.tensor([0.3, 1 / 6, -0.4, 0.5, -0.5, 0.1, 0.0, -0.07])
    out = A.adjust_hue(x, shift)
    for i in range(8):
        near(out[i], slow.hue(x[i], float(shift[i])), 2e-6)


def test_blends() -> None:
    x, factor = A.to_float(images()), torch.linspace(0, 2, 12)
    grey = torch.stack([slow.luma(y) for y in x])
    cases = [
        (A.adjust_brightness(x, factor), torch.zeros(12, 1, 1, 1)),
        (A.adjust_contrast(x, factor), grey.mean(dim=(1, 2)).view(-1, 1, 1, 1)),
        (A.adjust_saturation(x, factor), grey[:, None]),
    ]
    for out, other in cases:
        for i in range(12):
            near(out[i], slow.blend(other[i], x[i], float(factor[i])), 1e-6)
    near(A.grayscale(x), grey[:, None].expand_as(x), 1e-6)


# PIL rounds to 256 levels at each step, ours does not round: the tolerances are in levels.
@pytest.mark.parametrize(
    ("name", "parameter", "levels"),
    [
        ("autocontrast", [0] * 6, 1),
        ("equalize", [0] * 6, 0),
        ("invert", [0] * 6, 0),
        ("solarize", [0, 40, 100, 128, 200, 256], 0),
        ("posterize", [1, 2, 3, 4, 7, 8], 0),
        ("color", [0.1, 0.5, 0.9, 1, 1.5, 1.9], 2),
        ("contrast", [0.1, 0.5, 0.9, 1, 1.5, 1.9], 2),
        ("brightness", [0.1, 0.5, 0.9, 1, 1.5, 1.9], 1),
        ("sharpness", [0.1, 0.5, 0.9, 1, 1.5, 1.9], 2),
    ],
)
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", [20, 40])
def test_strong_operations_against_pil(
    name: str, parameter: list[float], levels: int, channels: int, size: int
) -> None:
    x = images(6, channels=channels, height=size, width=size)
    x[5] = 77  # constant
    code = torch.full((6,), A.OPERATIONS.index(name))
    out = A.apply_each(A.to_float(x), code, torch.tensor(parameter, dtype=torch.float32))
    for i in range(6):
        near(out[i], slow.by_pil(x[i], name, parameter[i]), levels / 255 + 1e-5)


def test_apply_each_gives_each_row_its_own_operation() -> None:
    x = A.to_float(images(45))
    code = torch.randperm(45, generator=seeded()) % len(A.OPERATIONS)
    value = torch.linspace(0.1, 0.9, 45)
    out = A.apply_each(x, code, value)
    for i in range(45):
        near(out[i], A.apply_each(x[i : i + 1], code[i : i + 1], value[i : i + 1])[0], 1e-5)


@pytest.mark.parametrize("kernel_size", [1, 3, 7, 11])
def test_blur(kernel_size: int) -> None:
    x, sigma = A.to_float(images()), torch.linspace(0.1, 3, 12)
    out = A.gaussian_blur(x, sigma, kernel_size)
    for i in range(12):
        near(out[i], slow.gaussian_blur(x[i], float(sigma[i]), kernel_size), 1e-5)


def test_color_jitter_draws_torchvisions_ranges() -> None:
    x = torch.full((2000, 1, 1, 1), 0.4)
    factor = A.ColorJitter(brightness=0.4)(x, seeded()).flatten() / 0.4
    assert 0.6 - 1e-6 <= float(factor.min()) < 0.61
    assert 1.39 < float(factor.max()) <= 1.4 + 1e-6
    factor = A.ColorJitter(brightness=1.5)(x, seeded()).flatten() / 0.4
    assert float(factor.min()) < 0.01
    assert float(factor.max()) > 2.4


def test_color_jitter_order_varies_over_batches() -> None:
    x = A.to_float(images(4))
    op = A.ColorJitter(0.8, 0.8)
    orders = set()
    for seed in range(8):
        g = seeded(seed)
        b, c = (torch.empty(4).uniform_(0.2, 1.8, generator=g) for _ in range(2))
        out = op(x, seeded(seed))
        first = float((out - A.adjust_contrast(A.adjust_brightness(x, b), c)).abs().max()) < 1e-6
        second = float((out - A.adjust_brightness(A.adjust_contrast(x, c), b)).abs().max()) < 1e-6
        assert first or second
        orders.add(first)
    assert orders == {True, False}


def test_one_channel_has_no_colour_to_change() -> None:
    x = A.to_float(images(channels=1))
    for op in (A.ColorJitter(saturation=0.9, hue=0.5), A.RandomGrayscale(1.0)):
        assert torch.equal(op(x, seeded()), x)


# Normalisation


def test_normalize() -> None:
    x = images()
    normalize = A.Normalize([0.4, 0.5, 0.6], [0.2, 0.3, 0.4])
    expected = (x.double() / 255 - torch.tensor([0.4, 0.5, 0.6]).view(3, 1, 1)) / torch.tensor([0.2, 0.3, 0.4]).view(
        3, 1, 1
    )
    near(normalize(x), expected, 1e-5)
    near(normalize(A.to_float(x)), expected, 1e-5)
    near(A.Compose([A.RandomFlip(0), normalize])(x, seeded()), expected, 1e-5)
    assert normalize(x).dtype == torch.float32
    assert set(normalize.state_dict()) == {"mean", "std"}
    table = torch.randn(5, 3)
    near(normalize(table), (table - normalize.mean) / normalize.std, 1e-6)


@pytest.mark.parametrize("block", [5, 1500, 2**20])
def test_normalize_of(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("noiseproof.data.augment.normalize._BLOCK", block)
    x = images(23)
    normalize = A.Normalize.of(lambda index: x[index], 23, image=True)
    out = normalize(x)
    near(out.mean(dim=(0, 2, 3)), torch.zeros(3), 1e-5)
    near(out.std(dim=(0, 2, 3), correction=0), torch.ones(3), 1e-5)
    table = torch.randn(23, 4) * torch.tensor([1, 10, 0, 1e-3]) + torch.tensor([0, 1e4, 0.1, 0])
    normalize = A.Normalize.of(lambda index: table[index], 23, image=False)
    assert float(normalize.std[2]) == 1
    keep = [0, 1, 3]
    near(normalize.std[keep], table.double().std(dim=0, correction=0)[keep], 1e-5)
    near(normalize(table)[:, keep].mean(dim=0), torch.zeros(3), 1e-3)
    some = A.Normalize.of(lambda index: table[index], 23, image=False, limit=12)
    near(some.mean, table[::2].mean(dim=0), 1e-2)


# RandAugment and policies


def test_rand_augment_draws_all_operations() -> None:
    op = A.RandAugment(num_ops=1, p=1.0)
    x = A.to_float(images(1)).expand(400, -1, -1, -1)
    out, g = op(x, seeded()), seeded()
    drawn = torch.randint(14, (400,), generator=g)
    assert set(drawn.tolist()) == set(range(14))
    assert len(A.STRONG) == 14
    for k in (A.STRONG.index("invert"), A.STRONG.index("equalize"), A.STRONG.index("autocontrast")):
        row = int((drawn == k).nonzero()[0])
        near(out[row], A.apply_each(x[:1], torch.tensor([k + 1]), torch.zeros(1))[0], 1e-6)


def test_half_of_the_operations_are_done() -> None:
    x = A.to_float(images(1, height=8, width=8)).expand(2000, -1, -1, -1)
    same = (A.RandAugment(num_ops=1)(x, seeded()) == x).flatten(1).all(dim=1).float().mean()
    assert abs(float(same) - 0.5) < 4 * math.sqrt(0.25 / 2000)


def test_policies() -> None:
    x = images(height=32, width=32)
    for name in A.POLICIES:
        out = A.policy(name, 32)(x, seeded())
        assert out.shape == (x.shape if name != "crop" else (12, 3, 28, 28))
        assert (out.dtype == torch.uint8) == (name in ("none", "weak", "crop"))
    assert A.policy("sane-strong", 16)(x, seeded()).shape == (12, 3, 16, 16)
    assert [A.policy("crop", side).operations[0].size[0] for side in (256, 259, 1)] == [224, 227, 1]
    moco = repr(A.policy("moco-cifar10", 32))
    assert "scale=(0.08, 1.0)" in moco
    assert "GaussianBlur" not in moco
    assert "ColorJitter" in moco
    assert "RandomCrop(padding=4, mode='zeros', size=None), RandomFlip(p=0.5)" in repr(A.policy("weak", 32))


def test_policies_are_the_papers() -> None:
    """weak, strong: Appendix A.4 of Liu et al. (2022) and UDA. simclr: B.2 of Zhou et al. (2021), numbers of MoCo v2.

    sane-strong: Section 4 of Zhou et al.: one of 14 operations, done with probability 0.5, five times.
    """
    weak = ["RandomCrop(padding=4, mode='zeros', size=None)", "RandomFlip(p=0.5)"]
    resized = [
        f"RandomResizedCrop(size=(32, 32), scale=(0.2, 1.0), ratio={(3 / 4, 4 / 3)}, as_float=True)",
        "RandomFlip(p=0.5)",
    ]
    expected = {
        "none": [],
        "weak": weak,
        "strong": [
            *weak, f"RandAugment(num_ops=2, magnitude=(1.0, 9.0), p=0.5, operations={A.STRONG}, space='uda')",
            "Cutout(size=16, p=1.0, fill=0.5)",
        ],
        "simclr": [
            *resized, "ColorJitter(brightness=0.4, contrast=0.4, saturation=0.4, hue=0.1, p=0.8)",
            "RandomGrayscale(p=0.2)", "GaussianBlur(sigma=(0.1, 2.0), p=0.5, kernel_size=None)",
        ],
        "sane-strong": [
            *resized, f"RandAugment(num_ops=5, magnitude=(0.0, 10.0), p=0.5, operations={A.STRONG}, space='clsa')",
        ],
    }  # fmt: skip
    assert {name: [repr(op) for op in A.policy(name, 32).operations] for name in A.POLICIES} == expected
    assert len(set(A.STRONG)) == 14


# Mistakes


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: A.RandomFlip(1.5), r"p must be a number in \[0, 1\], got 1.5"),
        (lambda: A.RandomCrop(padding=-1), "padding must be .* got -1; pass a whole number of pixels, 0 or more"),
        (lambda: A.RandomCrop(padding=1.5), "padding must be .* got 1.5"),
        (lambda: A.RandomCrop(mode="wrap"), "unknown mode 'wrap'; choose from reflect, zeros"),
        (lambda: A.RandomCrop(padding=0, size=40)(images(), seeded()), "size must fit .* 20×24 .* got 40×40"),
        (lambda: A.RandomCrop(padding=20, mode="reflect")(images(), seeded()), "padding must be less .* got 20"),
        (lambda: A.Cutout(0), "size must be a whole number, 1 or more, got 0; pass"),
        (lambda: A.ColorJitter(brightness=-1), r"brightness must be a number, 0 or more, got -1; pass 0"),
        (lambda: A.ColorJitter(hue=0.7), r"hue must be a number in \[0, 0.5\], got 0.7; divide"),
        (lambda: A.GaussianBlur(kernel_size=4), "kernel_size must be odd"),
        (lambda: A.GaussianBlur(sigma=(2, 1)), "sigma must be a pair"),
        (lambda: A.GaussianBlur(sigma=0.5), "sigma must be a pair .* got 0.5"),
        (lambda: A.GaussianBlur(kernel_size=99)(images(), seeded()), "kernel_size must be less"),
        (lambda: A.RandomResizedCrop(0), "size must be a whole number, 1 or more, got 0; pass"),
        (
            lambda: A.RandomResizedCrop(8, scale=(0.5, 2)),
            r"scale must be a pair \(a, b\) with 0 <= a <= b <= 1, got \(0.5, 2\); reorder or clip",
        ),
        (lambda: A.RandAugment(magnitude=11), "magnitude must be a pair"),
        (lambda: A.RandAugment(num_ops=-1), "num_ops must be a whole number, 0 or more, got -1; pass 0"),
        (lambda: A.RandAugment(operations=["rotat"]), "unknown operation 'rotat'; did you mean 'rotate'"),
        (lambda: A.RandAugment(operations=[]), "operations must name"),
        (lambda: A.RandAugment(space="imagenet"), "unknown space"),
        (lambda: A.policy("weka", 32), "unknown augmentation 'weka'; did you mean 'weak'"),
        (lambda: A.RandomFlip()(images()[0], seeded()), r"x must be a batch of images .* got shape \(3, 20, 24\)"),
        (lambda: A.RandomFlip()(images().long(), seeded()), "x must be uint8 .* got torch.int64"),
        (lambda: A.RandomGrayscale()(images(channels=4), seeded()), "x must have 1 .* or 3 .* got 4"),
        (lambda: A.Normalize([0.5], [0.0]), "std must be positive"),
        (lambda: A.Normalize([0.5], [1.0, 1.0]), "mean and std must be vectors"),
        (lambda: A.Normalize([0.5], [1.0])(images()), r"x must be \(B, 1, ...\)"),
        (
            lambda: A.Normalize.of(lambda index: images(), 0, image=True),
            "n must be a whole number, 1 or more, got 0; pass a data set",
        ),
    ],
)
def test_mistakes_are_named(make: object, words: str) -> None:
    with pytest.raises(InputError, match=words):
        make()


def test_colours_of_float_images_must_lie_in_the_unit_interval() -> None:
    images = torch.rand(8, 3, 8, 8) * 255
    data = LabeledData(images, [0, 1] * 4)
    for name in ("simclr", "strong"):
        with pytest.raises(InputError, match=r"is for colours in 0..1, the images hold .*rescale"):
            build_augments(name, 1, data)
        build_augments(name, 1, LabeledData(images / 255, [0, 1] * 4))
    build_augments("weak", 1, data)

"""The refinery on classes: against its slow twin, its limits, what holds its guesses in place."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import refine as slow
from torch import Tensor

from noiseproof.data import load, noise
from noiseproof.errors import InputError
from noiseproof.method import Batch, Run
from noiseproof.methods import build
from noiseproof.methods.refine import Refine, RefineLoss, confidence, refine_loss, refined_label
from noiseproof.training.fit import fit


def batch(seed: int, size: int, classes: int, scale: float) -> tuple[Tensor, Tensor, Tensor]:
    """Logits of two views (B, K), and labels (B,)."""
    generator = torch.Generator().manual_seed(seed)
    one, two = (scale * torch.randn(2, size, classes, generator=generator, dtype=torch.float64)).unbind()
    return one, two, torch.randint(classes, (size,), generator=generator)


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    size=st.integers(1, 5),
    classes=st.integers(2, 6),
    scale=st.sampled_from([0.1, 1.0, 20.0]),
    mu=st.floats(0, 100),
    sharpness=st.floats(0.05, 1),
    views=st.integers(1, 2),
)
def test_agrees_with_its_twin(
    seed: int, size: int, classes: int, scale: float, mu: float, sharpness: float, views: int
) -> None:
    one, two, label = batch(seed, size, classes, scale)
    other = two if views == 2 else None
    refined = refined_label(one if other is None else other, label, mu, sharpness)
    torch.testing.assert_close(refined.sum(1), torch.ones(size, dtype=torch.float64))
    assert (refined >= 0).all()
    gradients = []
    for make in (lambda z: refine_loss(z, refined), lambda z: slow.loss(z, label, mu, sharpness, other)):
        logits = one.clone().requires_grad_()
        value = make(logits)
        value.sum().backward()
        gradients.append((value.detach(), logits.grad))
    for fast, expected in zip(*gradients, strict=True):
        torch.testing.assert_close(fast, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_confidence_rises_along_half_a_cosine(share: float) -> None:
    assert confidence(30 * share, 30, 0.5, 10.0) == pytest.approx(slow.confidence(30 * share, 30, 0.5, 10.0))
    assert confidence(30 + share, 30, 0.5, 10.0) == 10
    assert confidence(0, 0, 0.5, 10.0) == 10


def test_without_confidence_it_is_cross_entropy() -> None:
    logits, other, label = batch(0, 4, 3, 2.0)
    loss = RefineLoss(m1=0.0, ramp=5)
    torch.testing.assert_close(loss(logits, label, 0.0, other), F.cross_entropy(logits, label))


def test_own_unsharpened_guesses_are_weights_and_no_more() -> None:
    """The gradient is (1 − α)(f − y): what noiseproof_papers/sane/contrast.py says of x̃ = x."""
    logits, _, label = batch(1, 6, 4, 2.0)
    logits.requires_grad_()
    RefineLoss(m2=3.0, sharpness=1.0, ramp=0.0, reduction="sum")(logits, label, 0.0).backward()
    f = logits.detach().softmax(1)
    keep = 1 / (1 + 3 * f.amax(1, keepdim=True))  # 1 − α
    torch.testing.assert_close(logits.grad, keep * (f - F.one_hot(label, 4)))


def test_a_sure_network_keeps_its_guess_against_the_label_only_if_alpha_is_above_a_half() -> None:
    """Gradient descent on the logits of one example, from a sure guess of class 0 with label 1."""
    ends = {}
    for m2 in (0.5, 10.0):
        logits = torch.tensor([[4.0, 0.0, 0.0]], dtype=torch.float64, requires_grad=True)
        loss = RefineLoss(m2=m2, sharpness=0.5, ramp=0.0)
        for _ in range(3000):
            loss(logits, torch.tensor([1]), 1.0).backward()
            with torch.no_grad():
                logits -= 0.5 * logits.grad  # type: ignore[operator]
            logits.grad = None
        ends[m2] = int(logits.argmax())
    assert ends == {0.5: 1, 10.0: 0}


def test_method_equals_its_loss(make_run: Callable[..., Run]) -> None:
    run = make_run(epochs=10, epoch=1)
    rows = torch.arange(len(run.data))
    first, second = run.data.inputs, run.data.inputs.flip(1)
    for views in (1, 2):
        method = Refine(m1=0.5, m2=4.0, sharpness=0.7, ramp=4, views=views)
        found = method.loss(run, Batch((first, second)[:views], run.data.labels, rows))
        loss = RefineLoss(m1=0.5, m2=4.0, sharpness=0.7, ramp=4)
        other = run.model(second) if views == 2 else None
        expected = loss(run.model(first), run.data.labels, 1, other)
        torch.testing.assert_close(found, expected)
        found.backward()


@pytest.mark.slow
def test_memorises_less_than_cross_entropy() -> None:
    memorised = {}
    clean, test = load("digits").split(0.2, seed=0)
    data = noise.apply(clean, "symmetric:0.4", seed=0)
    for method in ("ce", "refine(sharpness=1.0)", "refine"):
        result = fit("mlp", data, method, epochs=60, batch_size=64, lr=0.05, val=0.1, test=test, seed=0)
        memorised[method] = result.history[-1]["train_memorised"]
    assert memorised["refine"] < 0.1 < 0.9 < memorised["ce"]
    assert memorised["refine"] < memorised["refine(sharpness=1.0)"] < memorised["ce"]


def test_two_views_are_asked_for() -> None:
    assert build("refine").num_views == 1
    assert build("early_stop(refine(views=2))").num_views == 2


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("refine(sharpness=0)", r"sharpness must be a number in \(0, 1\], got 0"),
        ("refine(m2=-1)", "m2 must be a number"),
        ("refine(ramp=-1)", r"ramp must be a number, 0 or more, got -1"),
        ("refine(views=3)", "views must be a whole number, from 1 to 2, got 3"),
        ("refine(views=0)", "views must be a whole number, from 1 to 2, got 0"),
    ],
)
def test_options_are_checked(text: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        build(text)


def test_batches_are_checked() -> None:
    logits, other, label = batch(2, 4, 3, 1.0)
    with pytest.raises(InputError, match=r"epoch must be a number, 0 or more, got -2"):
        RefineLoss()(logits, label, -2)
    with pytest.raises(InputError, match=r"other must be logits, too, .* \(4, 3\), got .* \(3, 3\)"):
        RefineLoss()(logits, label, 0.5, other[:3])
    with pytest.raises(InputError, match=r"label must lie in 0\.\.2"):
        RefineLoss()(logits, label + 3, 0.5)

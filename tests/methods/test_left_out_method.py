"""left_out: targets against a slow twin, what they are good for, and what is refused."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from reference import left_out as twin

import noiseproof as nf
from noiseproof.auditing import left_out as auditing
from noiseproof.auditing import posterior
from noiseproof.errors import InputError
from noiseproof.method import Batch, Run
from noiseproof.methods import left_out
from noiseproof.methods.left_out import LeftOut


def terms(n: int = 300, width: int = 400, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Counts of words (n, width) of three topics that share most of them; right labels, and some of them wrong."""
    rng = np.random.default_rng(seed)
    right = rng.integers(0, 3, n)
    usual = rng.gamma(0.3, size=width)
    often = usual * np.where(rng.random((3, width)) < 0.2, 4.0, 1.0)  # (3, width), of each topic
    x = rng.poisson(60 * often[right] / often.sum(axis=1)[right][:, None]).astype(np.float32)
    return x, right, np.asarray(nf.noise.symmetric(right, 0.3, seed=seed).labels)


def test_targets_equal_those_of_refitted_regressions() -> None:
    x, _, given = terms(40, 12)
    centred = (x - x.mean(axis=0)).astype(np.float64)
    value, vector = np.linalg.eigh(centred.T @ centred / len(x))
    value = np.maximum(value, 0)
    scaled = centred @ vector * value**0.25  # U Σ^1.5, up to a factor
    said = np.eye(3)[given]
    for _ in range(2):
        penalties = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)  # about half a decade apart
        assert penalties == left_out.DECAYS
        decays = [one * (value**1.5).mean() * len(x) for one in penalties]
        score = auditing.as_probability(twin.scores(scaled, said, decays)).astype(np.float32)
        said = posterior.fit(given, [score]).posterior([score], given)
    np.testing.assert_allclose(left_out.targets(x, given, 3, rounds=2), said, atol=2e-3)


def test_targets_name_more_labels_rightly_than_were_given() -> None:
    x, right, given = terms()
    target = left_out.targets(x, given, 3)
    assert target.dtype == np.float32
    np.testing.assert_allclose(target.sum(axis=1), 1, atol=1e-5)
    assert (given == right).mean() < 0.75
    assert (target.argmax(axis=1) == right).mean() > 0.9
    assert (
        left_out.targets(x, right, 3).argmax(axis=1) == right
    ).mean() > 0.97  # where nothing is wrong, little is changed


def test_of_large_inputs_the_leading_directions_tell_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    x, right, given = terms()
    exact, value = auditing.leading(x)
    np.testing.assert_allclose((exact**2).mean(axis=0), value, atol=1e-4)
    monkeypatch.setattr(auditing, "MOST_WHOLE", 100)
    monkeypatch.setattr(auditing, "RANK", 60)
    some, largest = auditing.leading(x)
    assert some.shape == (300, 60)
    np.testing.assert_allclose(largest[:5], np.sort(value)[::-1][:5], rtol=0.01)
    assert (left_out.targets(x, given, 3).argmax(axis=1) == right).mean() > 0.9


def test_the_loss_is_cross_entropy_at_the_targets(make_run: Callable[..., Run]) -> None:
    run, method = make_run(), LeftOut(rounds=1)
    method.start(run)
    index = torch.arange(12)
    batch = Batch((run.data.inputs,), run.data.labels, index)
    log_p = run.model(run.data.inputs).double().log_softmax(dim=1)
    expected = -sum(method.target[i].double() @ log_p[i] for i in range(12)) / 12
    torch.testing.assert_close(method.loss(run, batch).double(), expected, atol=1e-6, rtol=0)
    beliefs = method.beliefs(run, method.target)
    torch.testing.assert_close(beliefs.soft_label, method.target)


def test_inputs_that_are_no_features_are_refused(make_run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(left_out, "MOST_VALUES", 10)
    with pytest.raises(InputError, match=r"2 of each of 12; choose another method, e\.g\. elr"):
        LeftOut().start(make_run())

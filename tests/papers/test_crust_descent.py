"""Theorem 4.1 and Corollaries A.1, A.3 of CRUST: constants against their twin, descent against its bounds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from papers.support import run, shown
from reference import coresets as slow

from noiseproof_papers.crust.descent import Descent, guarantee
from noiseproof_papers.early_stopping import clusters


def jacobian(net: clusters.Net, x: torch.Tensor) -> np.ndarray:
    """∂f(W, x_i)/∂W (k, P), by autograd."""
    W = net.W.clone().requires_grad_()
    outputs = clusters.predict(net._replace(W=W), x)
    rows = [torch.autograd.grad(one, W, retain_graph=True)[0].flatten() for one in outputs]
    return torch.stack(rows).numpy()


@pytest.mark.parametrize("kind", Descent.KINDS)
def test_constants_are_those_of_the_twin(kind: str) -> None:
    data, weight = Descent().case(kind, seed=3)
    net = clusters.network(30, 20, activation="softplus", seed=3)
    found = guarantee(net, data, weight)._asdict()
    scaled = np.sqrt(weight.numpy())
    residual = (clusters.predict(net, data.x) - data.label).numpy()
    # |φ''| ≤ ¼, so J changes by at most ¼‖X‖/√units for each unit that W moves
    smooth = 0.25 * np.linalg.norm(data.x.numpy(), 2) / 30**0.5 * scaled.max()
    noise, cluster = (data.label - data.truth).numpy(), data.cluster.tolist()
    expected = slow.guarantee(jacobian(net, data.x), weight.numpy(), cluster, residual, noise, smooth)
    assert {key: found[key] for key in expected} == pytest.approx(expected, rel=1e-6)
    means = np.stack([slow.constant_on(cluster) @ (slow.constant_on(cluster).T @ row) for row in np.eye(len(cluster))])
    outside = np.linalg.norm((np.eye(len(cluster)) - means) @ (scaled[:, None] * jacobian(net, data.x)), 2)
    assert found["nuisance"] == pytest.approx(outside, rel=1e-5, abs=1e-6)


def test_the_cases_have_the_noise_that_they_say() -> None:
    experiment = Descent()
    for kind in experiment.KINDS:
        data, weight = experiment.case(kind, seed=0)
        wrong = data.label != data.truth
        assert float(wrong.double().mean()) == 12 / 64 < 2 / 8  # ρ < δ/8 in all of them
        assert set(data.cluster[wrong].tolist()) == ({0} if kind == "one cluster" else {0, 1, 2, 3})
        even = all(len(set(weight[data.cluster == c].tolist())) == 1 for c in range(4))
        assert even == (kind != "by weight")


def test_what_holds_and_what_does_not(tmp_path: Path) -> None:
    experiment = Descent()
    cells = [one for one in experiment.cells("paper", 2) if one["kind"] != "spread inputs"]
    done = run(experiment, cells)
    for one in done:
        kind, figures = one.cell["kind"], one.figures
        if kind != "by weight":  # its Jacobian has no low rank in the weighted norm
            assert figures["moved"] <= 1  # Corollary A.1
            assert figures["off"] <= 1
        right = {"evenly": 1.0, "one cluster": 0.75, "by weight": 0.0}[kind]
        assert (figures["right"], figures["right_later"]) == (right, right)
    assert len(shown(experiment, done, tmp_path)) == 3


@pytest.mark.slow
def test_a_full_rank_jacobian_fits_the_wrong_labels_in_the_end() -> None:
    experiment = Descent()
    for one in run(experiment, [c for c in experiment.cells("paper", 2) if c["kind"] == "spread inputs"]):
        assert one.figures["right"] == 1.0  # at τ₀, as Theorem 4.1 says
        assert one.figures["right_later"] < 0.95  # not from τ₀ on

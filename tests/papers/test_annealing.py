"""Label noise and annealing: the laboratory against the paper's formulas, and what the paper says of the noise."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import annealing as slow
from torch import Tensor

from noiseproof.errors import InputError
from noiseproof_papers.label_noise import annealing
from noiseproof_papers.label_noise.annealing import Data, Net
from noiseproof_papers.label_noise.probe import Probe

F64 = torch.float64


def small(
    seed: int = 0, *, joint: bool = False, m: int = 10, d: int = 5, tau0: float = 0.3, dtype: torch.dtype = F64
) -> tuple[annealing.Problem, Data, Net]:
    law = annealing.problem(d, 0.5, q0=0.4, r=0.6)
    data = annealing.draw(law, 40, seed=seed, dtype=dtype)
    return law, data, annealing.network(m, d, tau0=tau0, seed=seed, joint=joint, dtype=dtype)


def steps(n: int, data: Data, delta: float, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    index = torch.randint(len(data.y), (n,), generator=generator)
    return index, 1 - 2 * (torch.rand(n, generator=generator) < delta).to(data.y.dtype)


def rotation(n: int, rng: np.random.Generator) -> slow.Array:
    q: slow.Array = np.linalg.qr(rng.normal(size=(n, n)))[0]
    return q


def turned(data: Data, net: Net, seed: int) -> dict[str, Any]:
    """The same problem in all 2d coordinates, with w*, z and ζ turned anywhere, for the slow twin."""
    rng = np.random.default_rng(seed)
    d, m = net.W.shape[1], len(net.w)
    first, second = rotation(d, rng), rotation(d, rng)
    rest = rng.normal(size=(m, d - 2))  # the columns of V that do not matter
    return {
        "W": net.W.numpy() @ first, "V": np.concatenate([net.V.numpy().T, rest], 1) @ second,
        "w": net.w.numpy(), "v": net.v.numpy(), "x1": data.x1.numpy() @ first,
        "x2": data.x2.numpy() @ second[:2], "y": data.y.numpy(),
    } | {"first": first, "second": second}  # fmt: skip


def twin(problem: dict[str, Any]) -> dict[str, Any]:
    return {key: problem[key] for key in ("W", "V", "w", "v", "x1", "x2", "y")}


# --- data ---


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), d=st.integers(2, 30), kappa=st.floats(0.2, 1.0), q0=st.floats(0.05, 0.5))
def test_data_obeys_section_2(seed: int, d: int, kappa: float, q0: float) -> None:
    law = annealing.problem(d, kappa, q0=q0)
    assert (law.p0, law.r, law.gamma0) == pytest.approx((kappa**2 / 2, d**-0.75, d**-0.5))
    assert law.size == round(d / kappa**2)
    data = annealing.draw(law, 200, seed=seed, dtype=F64)
    has_p, has_q = data.x1.abs().sum(1) > 0, data.x2[:, 0] > 0
    assert bool((has_p | has_q).all())
    assert data.with_p == int(has_p.sum())
    assert bool(has_p[: data.with_p].all())
    assert data.q == pytest.approx(1 - data.with_p / 200)
    assert bool((data.y[has_p] * data.x1[has_p, 0] >= law.gamma0).all())
    alpha, side = data.x2[has_q, 0], data.x2[has_q, 1] / data.x2[has_q, 0]
    assert bool((alpha <= 1).all())
    positive = data.y[has_q] > 0
    torch.testing.assert_close(side.abs(), torch.where(positive, 0.0, law.r).to(F64))


def test_draws_have_the_distribution_of_the_twin() -> None:
    law, n, rng = annealing.problem(6, 0.5, q0=0.5, r=0.3), 20_000, np.random.default_rng(0)
    data = annealing.draw(law, n, seed=1, dtype=F64)
    assert abs(data.q - law.q0) < 4 * math.sqrt(0.25 / n)
    assert abs(float((data.x2[:, 0] == 0).double().mean()) - law.p0) < 4 * math.sqrt(law.p0 / n)
    ours = annealing.draw(law, n, seed=2, kind="p", dtype=F64)
    axis = np.eye(6)[0]
    theirs = np.array([slow.p_feature(int(y), axis, law.gamma0, rng) for y in ours.y])
    x = ours.x1.numpy()
    for power in (1, 2, 3):
        a, b = (np.mean((ours.y.numpy()[:, None] * k) ** power, 0) for k in (x, theirs))
        np.testing.assert_allclose(a, b, atol=0.02)
    for kind, share in (("p", (1, 0)), ("q", (0, 1)), ("both", (1, 1))):
        data = annealing.draw(law, 50, seed=3, kind=kind)
        assert (bool((data.x1[:, 0] != 0).all()), bool((data.x2[:, 0] != 0).all())) == share


def test_the_scale_multiplies_q() -> None:
    plain, scaled = (annealing.draw(annealing.problem(4, 0.5, q_scale=scale), 30, seed=0) for scale in (1, 5))
    assert torch.equal(scaled.x1, plain.x1)
    torch.testing.assert_close(scaled.x2, 5 * plain.x2)
    assert torch.equal(scaled.y, plain.y)


# --- network, loss, noise ---


@pytest.mark.parametrize("joint", [False, True])
def test_prediction_is_the_twins(joint: bool) -> None:
    _, data, net = small(joint=joint)
    dense = twin(turned(data, net, 1))
    W, V, w, v, x1, x2 = (dense[key] for key in ("W", "V", "w", "v", "x1", "x2"))
    expected = [slow.predict(W, V, w, v, x1[i], x2[i], joint) for i in range(len(data.y))]
    np.testing.assert_allclose(annealing.predict(net, data).numpy(), expected, atol=1e-13)
    f, r, g = annealing.predict(net, data), annealing.p_part(net, data.x1), annealing.q_part(net, data.x2)
    one_part = (data.x1[:, 0] == 0) | (data.x2[:, 0] == 0)
    torch.testing.assert_close(f[one_part], (r + g)[one_part])
    assert torch.allclose(f, r + g) != joint  # Appendix C's f = r + g is not true of Section 2's network
    odd = annealing.p_part(net, data.x1) - annealing.p_part(net, -data.x1)
    torch.testing.assert_close(odd, data.x1 @ (net.w @ net.W))  # Lemma 14, without an error term


@settings(max_examples=50, deadline=None)
@given(z=st.floats(-30, 30), delta=st.floats(0, 0.49))
def test_smoothed_loss_and_proposition_21(z: float, delta: float) -> None:
    step = 1e-4
    by_z = (slow.smoothed(z + step, delta) - slow.smoothed(z - step, delta)) / (2 * step)
    assert slow.smoothed_slope(z, delta) == pytest.approx(by_z, abs=1e-7)
    right, wrong = (slow.noise(z, sigma, delta) for sigma in (1, -1))
    for sigma, epsilon in ((1, right), (-1, wrong)):
        assert sigma * slow.slope(sigma * z) == pytest.approx(slow.smoothed_slope(z, delta) + epsilon, abs=1e-14)
    assert (1 - delta) * right + delta * wrong == pytest.approx(0, abs=1e-15)
    assert (1 - delta) * right**2 + delta * wrong**2 == pytest.approx(delta * (1 - delta))  # Γ = −1 for all z
    assert abs(slow.loss(z) - slow.smoothed(z, delta)) == pytest.approx(delta * abs(z), abs=1e-12)  # Lemma 26
    assert float(annealing.logistic(torch.tensor(z, dtype=F64))) == pytest.approx(slow.loss(z), abs=1e-12)


def test_noise_along_a_path_has_mean_0_and_the_variance_of_proposition_21() -> None:
    """ε_t as it moved Ũ, one step at a time: ΔŨ/ΔU is ε_t over the slope of the step."""
    _, data, net = small()
    parts, delta, found = annealing.decoupled(net), 0.2, []
    index, flip = steps(3000, data, delta)
    for t in range(len(index)):
        before, noise = net.V.clone(), parts.V_noise.clone()
        margin = (data.y * annealing.predict(net, data))[index[t]]
        annealing.sgd(net, data, index[t : t + 1], flip[t : t + 1], 0.1, delta, parts)
        place = int((net.V - before).abs().argmax())
        moved, by_noise = ((b - a).flatten()[place] for a, b in ((before, net.V), (noise, parts.V_noise)))
        if float(moved.abs()) > 1e-5:  # P-only examples do not move V
            found.append(by_noise / moved * float(flip[t]) * slow.slope(float(flip[t] * margin)))
    epsilon, variance = torch.stack(found), delta * (1 - delta)
    assert len(epsilon) > 2000
    assert abs(float(epsilon.mean())) < 4 * math.sqrt(variance / len(epsilon))
    assert float(epsilon.var()) == pytest.approx(variance, rel=0.15)


def test_accumulated_noise_is_a_martingale() -> None:
    _, data, net = small(m=6, d=3)
    ends = []
    for seed in range(300):
        moved = annealing.copy(net)
        parts = annealing.decoupled(moved)
        annealing.sgd(moved, data, *steps(40, data, 0.2, seed), 0.5, 0.2, parts)
        ends.append(torch.cat([(parts.W_noise - net.W).flatten(), (parts.V_noise - net.V).flatten()]))
    every = torch.stack(ends)
    score = every.mean(0) / (every.std(0) / math.sqrt(len(every)))
    assert float(score[every.std(0) > 0].abs().max()) < 4.5


def test_noise_moves_all_units_together() -> None:
    """Units active at z, z ± ζ throughout are moved along z by one walk, times v_i: not by a walk each (Lemma 44)."""
    law, data, net = small(m=40, tau0=20.0)
    moved = annealing.copy(net)
    parts = annealing.decoupled(moved)
    annealing.sgd(moved, data, *steps(500, data, 0.1), 0.1, 0.1, parts)
    corners = torch.tensor([[1.0, 0.0], [1.0, law.r], [1.0, -law.r]], dtype=F64)
    safe = (corners @ net.V > 5).all(0)
    assert int(safe.sum()) > 5
    walk = ((parts.V_noise - net.V)[0] / net.v)[safe]
    assert float(walk[0].abs()) > 0.01
    torch.testing.assert_close(walk, walk[0].expand_as(walk))


# --- steps ---


@pytest.mark.parametrize("joint", [False, True])
@pytest.mark.parametrize("count", [1, 64, 200])
def test_steps_are_the_twins(joint: bool, count: int) -> None:
    _, data, net = small(3, joint=joint)
    index, flip = steps(count, data, 0.2)
    problem = turned(data, net, 2)
    expected = slow.label_noise_sgd(
        **twin(problem), index=index.tolist(), flip=flip.int().tolist(), rate=0.4, delta=0.2, joint=joint
    )
    parts = annealing.decoupled(net)
    annealing.sgd(net, data, index, flip, 0.4, 0.2, parts)
    found = {"W": net.W, "V": net.V, **parts._asdict()}
    for key, value in found.items():
        turn = problem["first"] if key[0] == "W" else problem["second"][:2]
        back = expected[key] @ turn.T
        np.testing.assert_allclose((value if key[0] == "W" else value.T).numpy(), back, atol=1e-12)


@pytest.mark.parametrize("joint", [False, True])
@pytest.mark.parametrize(("dtype", "tolerance"), [(F64, 1e-12), (torch.float32, 3e-4)])
def test_signal_and_noise_sum_to_the_weights(joint: bool, dtype: torch.dtype, tolerance: float) -> None:
    _, data, net = small(joint=joint, m=20, d=10, dtype=dtype)
    start, parts = annealing.copy(net), annealing.decoupled(net)
    annealing.sgd(net, data, *steps(6000, data, 0.1), 0.3, 0.1, parts)
    assert float((net.W - start.W).abs().max()) > 0.3
    for whole, signal, noise in ((net.W, parts.W_signal, parts.W_noise), (net.V, parts.V_signal, parts.V_noise)):
        torch.testing.assert_close(signal + noise, whole, atol=tolerance, rtol=tolerance)


def test_steps_in_two_calls_are_steps_in_one() -> None:
    _, data, net = small()
    other = annealing.copy(net)
    index, flip = steps(300, data, 0.1)
    annealing.sgd(net, data, index, flip, 0.3, 0.1)
    for part in (slice(0, 0), slice(0, 117), slice(117, 300)):
        annealing.sgd(other, data, index[part], flip[part], 0.3, 0.1)
    torch.testing.assert_close(net.W, other.W, atol=1e-12, rtol=0)
    torch.testing.assert_close(net.V, other.V, atol=1e-12, rtol=0)


def test_examples_without_p_move_v_alone() -> None:
    _, data, net = small()
    start = annealing.copy(net)
    index = torch.arange(data.with_p, len(data.y)).repeat(20)
    annealing.sgd(net, data, index, torch.ones(len(index), dtype=F64), 0.3, 0.0)
    assert torch.equal(net.W, start.W)
    assert not torch.equal(net.V, start.V)


@pytest.mark.parametrize("joint", [False, True])
def test_full_batch_descent_is_the_twins(joint: bool) -> None:
    _, data, net = small(4, joint=joint, m=6)
    problem = turned(data, net, 5)
    W, V = slow.descend(**twin(problem), rate=0.5, steps=5, joint=joint)
    for _ in range(5):
        annealing.gd(net, data, 0.5)
    np.testing.assert_allclose(net.W.numpy(), W @ problem["first"].T, atol=1e-13)
    np.testing.assert_allclose(net.V.numpy().T, V @ problem["second"][:2].T, atol=1e-13)


# --- runs ---


def run(algorithm: str, **changes: Any) -> annealing.Run:
    law = annealing.problem(10, 0.5, q0=0.3, r=1.0, q_scale=3.0)
    data = annealing.draw(law, law.size, seed=0)
    net = annealing.network(40, 10, tau0=0.1, seed=0)
    probe = Probe(net, law, data, seed=5, size=500)
    options: dict[str, Any] = {
        "eta1": 0.5, "eta2": 0.05, "eps1": 0.1, "eps2": 0.2, "delta": 0.02, "check": 5.0, "time": 300.0,
        "measure": probe,
    }  # fmt: skip
    return annealing.train(net, data, algorithm, **(options | changes))


@pytest.mark.parametrize("algorithm", ["lnsgd-ls", "fbgd-ls"])
def test_rate_falls_once_when_the_loss_is_low_enough_and_training_ends(algorithm: str) -> None:
    found = run(algorithm, watch=[1.0, 10.0, 20.0])
    events = [record["event"] for record in found.records]
    assert events.count("anneal") == 1
    assert events[-1] == "stop"
    anneal = found.records[events.index("anneal")]
    assert anneal["loss"] <= 0.3 * math.log(2) + 0.1 + 0.02  # q is near q₀ = 0.3
    assert found.records[-1]["loss"] <= 0.2 < found.records[-2]["loss"]
    assert (found.annealed, found.stopped, found.steps) == (anneal["step"], found.records[-1]["step"], found.stopped)
    assert anneal["time"] == pytest.approx(0.5 * anneal["step"])
    assert found.records[-1]["time"] == pytest.approx(anneal["time"] + 0.05 * (found.steps - anneal["step"]))


def test_constant_rate_never_anneals_and_runs_repeat() -> None:
    first, second = (run("lnsgd-s", eta2=0.1) for _ in range(2))
    assert first.annealed is None
    assert first.stopped is not None
    assert first.records == second.records
    assert torch.equal(first.net.W, second.net.W)
    other = run("lnsgd-s", eta2=0.1, seed=1)
    assert not torch.equal(first.net.W, other.net.W)


def test_without_annealing_the_small_rate_is_that_of_the_whole_run() -> None:
    """LNSGD-S has η₂ "throughout the training process": η₁ is nothing to it, and time is η₂ a step."""
    found, other = (run("lnsgd-s", eta1=rate, watch=[5.0, 10.0]) for rate in (0.5, 0.3))
    assert torch.equal(found.net.W, other.net.W)
    assert len(found.records) >= 3
    for record in found.records:
        assert record["time"] == pytest.approx(0.05 * record["step"])


def test_time_ends_a_run_that_does_not_arrive() -> None:
    found = run("lnsgd-ls", eps2=1e-6, time=20.0)
    assert found.stopped is None
    assert found.records[-1]["time"] == pytest.approx(20, abs=0.5)
    papers = run("lnsgd-ls", eps2=math.sqrt(0.1 / 0.3))  # √(ε₁/q) = 0.58 is above the loss of the annealing
    assert papers.annealed == papers.stopped


def test_decoupling_a_run_does_not_change_it() -> None:
    plain, divided = (run("lnsgd-ls", decouple=flag) for flag in (False, True))
    assert torch.equal(plain.net.W, divided.net.W)
    assert divided.parts is not None
    assert plain.parts is None
    torch.testing.assert_close(divided.parts.W_signal + divided.parts.W_noise, divided.net.W, atol=1e-4, rtol=1e-4)
    assert divided.records[-1]["W_noise"] < divided.records[-1]["W_signal"]


@pytest.mark.parametrize("joint", [False, True])
def test_probe_measures_what_it_says(joint: bool) -> None:
    law, data, net = small(joint=joint)
    start = annealing.copy(net)
    probe = Probe(start, law, data, seed=7, size=300)
    fresh = probe(net)
    assert (fresh["pattern_p"], fresh["pattern_q"], fresh["wedge_kept"]) == (0, 0, 1)
    annealing.sgd(net, data, *steps(500, data, 0.0), 0.5, 0.0)
    found = probe(net)
    dense = twin(turned(data, net, 1))
    W, V, w, v, x1, x2 = (dense[key] for key in ("W", "V", "w", "v", "x1", "x2"))
    every = np.array([slow.loss(data.y[i] * slow.predict(W, V, w, v, x1[i], x2[i], joint)) for i in range(len(data.y))])
    in_m1, in_m2 = np.abs(x1).sum(1) > 0, np.abs(x2).sum(1) > 0
    for key, part in (("m1", in_m1), ("not_m1", ~in_m1), ("m2", in_m2), ("not_m2", ~in_m2)):
        assert found[f"loss_{key}"] == pytest.approx(every[part].mean())
    assert found["loss"] == pytest.approx(every.mean())
    alone = [slow.loss(data.y[i] * slow.predict(W, V, w, v, x1[i], 0 * x2[i], joint)) for i in np.flatnonzero(in_m1)]
    assert found["loss_r_m1"] == pytest.approx(np.mean(alone))
    g = annealing.q_part(net, torch.tensor([[1, 0], [1, law.r], [1, -law.r]], dtype=F64))
    assert found["second_difference"] == pytest.approx(abs(float(g[1] + g[2] - 2 * g[0])))
    share = {"p": law.p0, "q": law.q0, "both": 1 - law.p0 - law.q0}
    assert found["error"] == pytest.approx(sum(share[kind] * found[f"error_{kind}"] for kind in share))
    test = annealing.draw(law, 300, seed=7, kind="p", dtype=F64)
    assert found["error_p"] == pytest.approx(float((test.y * annealing.predict(net, test) <= 0).double().mean()))
    assert 0 < found["pattern_p"] < 1


def test_assumption_3_needs_a_dimension_no_one_can_run() -> None:
    assert annealing.least_dimension(1.0, 0.5) == pytest.approx(32.0**8)  # even with κ = 1 and p + q = 1
    assert annealing.least_dimension(0.5, 0.5) > 1e24


def test_bad_input_is_refused_in_a_sentence() -> None:
    with pytest.raises(InputError, match=r"q0 must be a number in \[0, 0.5\]"):
        annealing.problem(10, 1.0, q0=0.9)
    with pytest.raises(InputError, match="d must be a whole number, 2 or more"):
        annealing.problem(1, 0.5)
    with pytest.raises(InputError, match="did you mean 'both'"):
        annealing.draw(annealing.problem(10, 0.5), 5, seed=0, kind="bothh")
    with pytest.raises(InputError, match="did you mean 'lnsgd-ls'"):
        run("lnsgd-l")
    with pytest.raises(InputError, match="eta2 must be a number above 0"):
        run("lnsgd-ls", eta2=0.0)
    with pytest.raises(InputError, match=r"delta must be a number in \[0, 0.5\)"):
        run("lnsgd-ls", delta=0.5)

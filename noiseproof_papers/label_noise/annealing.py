"""Label-noise SGD and learning-rate annealing on a two-layer ReLU network: a laboratory.

Stanley Wei, Tongzheng Ren and Simon S. Du, "On the Synergy Between Label Noise and Learning Rate Annealing in Neural
Network Training" (2023), Sections 2 and 3, Appendices A and C to E.

Data: x = (x₁, x₂), two features of d dimensions, y = ±1 at random. With probability p₀ there is x₁ alone, with q₀ x₂
alone (the other is 0), else both. M₁, M₂ are the examples with x₁ ≠ 0, x₂ ≠ 0; p and q the shares without x₂, x₁.

    P: x₁ = yγ₀w* + β, β ~ N(0, I/d) given y⟨w*, β⟩ ≥ 0          linearly separable; needs many examples
    Q: x₂ = αz if y = 1, α(z ± ζ) if y = −1, α ~ U[0, 1]          not linear; three directions are all there is
    ‖w*‖ = ‖z‖ = 1, ζ ⊥ z, ‖ζ‖ = r;  κ² = d/N, p₀ = κ²/2, γ₀ = 1/√d, r = d^(−3/4)       Section 2, Assumption 2

    f(x) = r(x₁) + g(x₂),  r(x₁) = wᵀσ(Wx₁),  g(x₂) = vᵀσ(Vx₂),  w, v = ±1/√m, fixed     Appendix C
    ℓ(z) = log(1 + e^(−z)),  L̂ = mean of ℓ(yf(x)) over the N examples
    U ← U − α_t ∇ℓ(σ_t y f(x)) for a random example, σ_t = −1 with probability δ         label-noise SGD
    U ← U − α_t ∇L̂                                                                     full batch

LNSGD-LS, FBGD-LS: α_t = η₁ until L̂ ≤ q log 2 + ε₁, then η₂ until L̂ ≤ ε₂ = √(ε₁/q). LNSGD-S: η₂ until L̂ ≤ ε₂. There is
no weight decay.

    ℓ̄(z) = δℓ(−z) + (1 − δ)ℓ(z)                                                          smoothed loss, D.1
    σℓ'(σz) = ℓ̄'(z) + ε_t,  ε_t = δΓ if σ = 1, −(1 − δ)Γ if σ = −1,  Γ = ℓ'(z) + ℓ'(−z)
    Ū_t = −Σ_{s<t} α_s ∇ℓ̄(yf_s(x)),   Ũ_t = U₀ − Σ_{s<t} α_s ε_s y∇f_s(x),   U_t = Ū_t + Ũ_t

For every x₁, r(x₁) − r(−x₁) = ⟨Wᵀw, x₁⟩ exactly, because σ(a) − σ(−a) = a: `alignment` is its angle with w* (Lemma 14).

The law of W₀ and V₀ does not change under rotations, so w* is the first axis. V only acts through Vz and Vζ: x₂ and V
are kept as their two coordinates along z and ζ/r, and the other d − 2 columns of V, which never move, are left out.

Differs from the paper: Γ is −1 for every z, so that ε_t does not depend on the path and 𝕍[ε_t] = δ(1 − δ) is exact in
Proposition 21. Section 2 has one m × 2d matrix U, whose units see x₁ and x₂ together; then f is not r + g, which all
proofs use. The default is the network of the proofs, m units for each feature; `joint=True` is that of Section 2, with
r = f(x₁, 0), g = f(0, x₂). Appendix E.1 lets the sums of Ū, Ũ end one step early; D.1 is right. ε₂ is given: at
sizes one can run √(ε₁/q) can be above the loss of the annealing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from noiseproof import checks
from noiseproof.errors import unknown

KINDS = {"p": 0, "q": 2, "both": 1}  # P only, Q only, mixed: in the order of their numbers examples come
BLOCK = 64  # examples with x₁ that share one matrix product


class Problem(NamedTuple):
    """The distribution of the data, and the size N of the training set."""

    d: int
    size: int  # N
    p0: float
    q0: float
    r: float
    gamma0: float
    q_scale: float  # x₂ is multiplied by this: 1 in the paper

    @property
    def shares(self) -> dict[str, float]:
        """Of the kinds of examples."""
        return {"p": self.p0, "q": self.q0, "both": max(0.0, 1 - self.p0 - self.q0)}


class Data(NamedTuple):
    """Examples, those with x₁ ≠ 0 first."""

    x1: Tensor  # (n, d)
    x2: Tensor  # (n, 2): coordinates along z and ζ/r
    y: Tensor  # (n,) ±1
    with_p: int  # |M₁|

    @property
    def q(self) -> float:
        """The share of examples without x₁."""
        return 1 - self.with_p / len(self.y)


class Net(NamedTuple):
    """The network; sgd and gd change W and V in place."""

    W: Tensor  # (m, d)
    V: Tensor  # (2, m): Vz and Vζ/r
    w: Tensor  # (m,)
    v: Tensor  # (m,); joint: w
    joint: bool


class Parts(NamedTuple):
    """Ū and Ũ, changed in place."""

    W_signal: Tensor  # (m, d)
    V_signal: Tensor  # (2, m)
    W_noise: Tensor
    V_noise: Tensor


class Rule(NamedTuple):
    """What an algorithm does: one random example with label noise a step, or all examples; annealing or not."""

    full_batch: bool
    anneals: bool


ALGORITHMS = {"lnsgd-ls": Rule(False, True), "lnsgd-s": Rule(False, False), "fbgd-ls": Rule(True, True)}


class Run(NamedTuple):
    """A training run. Times are Σ α_s."""

    records: list[dict[str, Any]]  # what was measured at each time watched, at the annealing and at the end
    annealed: int | None  # the step; None if it never was
    stopped: int | None  # the step at which L̂ was ≤ ε₂; None if the time was over before
    steps: int
    net: Net
    parts: Parts | None


# --- data ---


def problem(d: int, kappa: float, *, q0: float = 0.5, r: float | None = None, q_scale: float = 1.0) -> Problem:
    """The distribution with N = d/κ² and the paper's p₀ and γ₀, and its r if none is given.

    Raises:
        InputError: no dimensions, or a q₀ that is no share of what p₀ = κ²/2 leaves.
    """
    checks.integer("d", d, 2)
    p0 = checks.number("kappa", kappa, 0, ends="()") ** 2 / 2
    checks.number("q0", q0, 0, 1 - p0)
    return Problem(d, round(d / kappa**2), p0, q0, d**-0.75 if r is None else r, d**-0.5, q_scale)


def draw(law: Problem, n: int, *, seed: int, kind: str | None = None, dtype: torch.dtype = torch.float32) -> Data:
    """n independent examples; only those of a kind ("p", "q" or "both") if it is given."""
    if kind is not None and kind not in KINDS:
        raise unknown("kind of example", kind, KINDS)
    generator = np.random.default_rng(seed)
    if kind is None:
        what = np.sort(generator.choice(list(KINDS.values()), n, p=list(law.shares.values())))
    else:
        what = np.full(n, KINDS[kind])
    y = generator.choice([-1.0, 1.0], n)
    x1 = generator.standard_normal((n, law.d)) / math.sqrt(law.d)
    x1[:, 0] = y * (law.gamma0 + np.abs(x1[:, 0]))  # w* is the first axis
    alpha, b = generator.random(n), generator.choice([-1.0, 1.0], n)
    x2 = alpha[:, None] * np.stack([np.ones(n), np.where(y > 0, 0.0, b * law.r)], axis=1)
    x1 *= (what < 2)[:, None]
    x2 *= law.q_scale * (what > 0)[:, None]
    tensors = [torch.from_numpy(a).to(dtype) for a in (x1, x2, y)]
    return Data(tensors[0], tensors[1], tensors[2], int((what < 2).sum()))


def least_dimension(kappa: float, q: float) -> float:
    """The d from which on Assumption 3 has room for an ε₁: d^(−1/8) < κ²p²q³ with p = κ²/2."""
    return float((kappa**2 * (kappa**2 / 2) ** 2 * q**3) ** -8)


# --- network and loss ---


def network(m: int, d: int, *, tau0: float, seed: int, joint: bool = False, dtype: torch.dtype = torch.float32) -> Net:
    """W₀, V₀ with entries N(0, τ₀²), and w, v with entries ±1/√m at random.

    Single precision is twice as fast, and runs of 10⁵ steps end at the same step and test error as in double.
    """
    generator = torch.Generator().manual_seed(seed)
    W, V = (tau0 * torch.randn(shape, generator=generator, dtype=torch.float64) for shape in ((m, d), (2, m)))
    w, v = ((2 * torch.randint(2, (m,), generator=generator) - 1) / math.sqrt(m) for _ in range(2))
    return Net(W.to(dtype), V.to(dtype), w.to(dtype), (w if joint else v).to(dtype), joint)


def copy(net: Net) -> Net:
    """The same network with weights of its own."""
    return net._replace(W=net.W.clone(), V=net.V.clone())


def p_part(net: Net, x1: Tensor) -> Tensor:
    """r(x₁) (n,)."""
    return (x1 @ net.W.T).relu_() @ net.w


def q_part(net: Net, x2: Tensor) -> Tensor:
    """g(x₂) (n,)."""
    return (x2 @ net.V).relu_() @ net.v


def predict(net: Net, data: Data) -> Tensor:
    """f (n,)."""
    k = data.with_p
    f = q_part(net, data.x2)
    if net.joint:
        f[:k] = (data.x1[:k] @ net.W.T).addmm_(data.x2[:k], net.V).relu_() @ net.w
    else:
        f[:k] += p_part(net, data.x1[:k])
    return f


def logistic(z: Tensor) -> Tensor:
    """ℓ(z)."""
    return torch.nn.functional.softplus(-z, threshold=40.0)


# --- steps ---


def decoupled(net: Net) -> Parts:
    """Ū = 0 and Ũ = U₀, to be carried along from here."""
    return Parts(torch.zeros_like(net.W), torch.zeros_like(net.V), net.W.clone(), net.V.clone())


def sgd(
    net: Net, data: Data, index: Tensor, flip: Tensor, rate: float, delta: float, parts: Parts | None = None
) -> None:
    """Label-noise SGD, one step for each of `index` (T,) with σ = `flip` (T,); carries `parts` along if given.

    Exact, and fast because of how a block of examples is done: see _kernels.py. `delta` only divides a step
    into signal and noise: the flips are given.
    """
    from noiseproof_papers.label_noise._kernels import block

    dtype, m, has = net.W.dtype, len(net.w), index < data.with_p
    pattern, c, c_signal = (torch.empty(shape, dtype=dtype) for shape in ((BLOCK, m), BLOCK, BLOCK))
    V_parts = (parts.V_signal, parts.V_noise) if parts else (net.V, net.V)
    weights = [a.numpy() for a in (net.w, net.v, net.V, *V_parts, pattern, c, c_signal)]
    for begin, end in _blocks(has):
        which, here = index[begin:end], has[begin:end]
        X = data.x1[which[here]]  # (B, d)
        slot = torch.where(here, here.cumsum(0) - 1, -1)
        examples = (X @ net.W.T, X @ X.T, data.x2[which], data.y[which], flip[begin:end], slot)
        block(*(a.numpy() for a in examples), rate, delta, *weights, net.joint, parts is not None)
        B = len(X)
        _add(net.W, pattern[:B], c[:B], X)
        if parts:
            _add(parts.W_signal, pattern[:B], c_signal[:B], X)
            _add(parts.W_noise, pattern[:B], c[:B] - c_signal[:B], X)


def _blocks(has: Tensor) -> Iterator[tuple[int, int]]:
    """Pieces (begin, end) of a sequence, each with at most BLOCK of the examples that have x₁."""
    count = has.cumsum(0)
    begin = 0
    while begin < len(has):
        before = int(count[begin - 1]) if begin else 0
        end = int(torch.searchsorted(count, before + BLOCK, right=True))
        yield begin, end
        begin = end


def _add(W: Tensor, pattern: Tensor, c: Tensor, X: Tensor) -> None:
    W.addmm_((pattern * c[:, None]).T, X)


def gd(net: Net, data: Data, rate: float) -> None:
    """A step on L̂ over all examples."""
    from noiseproof_papers.label_noise._kernels import full_batch

    X = data.x1[: data.with_p]
    h1, h2 = X @ net.W.T, data.x2 @ net.V  # (|M₁|, m), (N, m)
    full_batch(*(a.numpy() for a in (h1, h2, data.y, net.w, net.v)), rate / len(h2), net.joint)
    net.W.addmm_(h1.T, X)
    net.V.addmm_(data.x2.T, h2)


# --- runs ---


def train(
    net: Net, data: Data, algorithm: str, *, eta1: float, eta2: float, eps1: float, eps2: float, delta: float = 0.0,
    seed: int = 0, check: float, time: float, watch: Sequence[float] = (),
    measure: Callable[[Net, Parts | None], dict[str, Any]] | None = None, decouple: bool = False,
) -> Run:  # fmt: skip
    """Run an algorithm from a copy of `net`.

    Args:
        check: L̂ is looked at whenever Σ α_s has grown by so much, and at the start.
        time: stop at this Σ α_s in any case.
        watch: the Σ α_s after which to measure, rising; rounded up to a check.

    Raises:
        InputError: unknown algorithm, rates or times that are not positive, δ not below ½.
    """
    if algorithm not in ALGORITHMS:
        raise unknown("algorithm", algorithm, ALGORITHMS)
    rule, q = ALGORITHMS[algorithm], data.q
    for name, value in (("eta1", eta1), ("eta2", eta2), ("check", check), ("time", time)):
        checks.number(name, value, 0, ends="()")
    checks.number("delta", delta, 0, 0.5, ends="[)")
    net = copy(net)
    parts = decoupled(net) if decouple and not rule.full_batch else None
    generator = torch.Generator().manual_seed(seed)
    rate, step, clock, annealed, stopped = eta1 if rule.anneals else eta2, 0, 0.0, None, None
    due, records = list(watch), []
    while True:
        loss = float(logistic(data.y * predict(net, data)).mean())
        event = None
        if rule.anneals and annealed is None and loss <= q * math.log(2) + eps1:
            annealed, rate, event = step, eta2, "anneal"
        if (annealed is not None or not rule.anneals) and loss <= eps2:
            stopped, event = step, "stop"
        over = stopped is not None or clock >= time * (1 - 1e-9)
        if measure and (over or event or (due and clock >= due[0] * (1 - 1e-9))):
            records.append({"step": step, "time": clock, "event": event, **measure(net, parts)})
            due = [at for at in due if at > clock * (1 + 1e-9)]
        if over:
            return Run(records, annealed, stopped, step, net, parts)
        steps = max(1, round(min(check, time - clock) / rate))
        if rule.full_batch:
            for _ in range(steps):
                gd(net, data, rate)
        else:
            index = torch.randint(len(data.y), (steps,), generator=generator)
            flip = 1 - 2 * (torch.rand(steps, generator=generator) < delta).to(net.W.dtype)
            sgd(net, data, index, flip, rate, delta, parts)
        step, clock = step + steps, clock + steps * rate

"""Refined labels: what a network's own guesses, mixed into wrong labels, do to them and to the network.

Pan Zhou, Caiming Xiong, Xiao-Tong Yuan and Steven Hoi, "A Theory-Driven Self-Labeling Refinement Method for Contrastive
Representation Learning", NeurIPS 2021, Theorems 1 and 2.

Theorem 2. n crops x_i of norm 1 of K samples, ‖x_i − c_ℓ‖ ≤ ε, labels y* in [−1, 1] at least δ apart, at most ρn_ℓ of
the labels of each sample replaced: `Clusters` of early_stopping/clusters.py, which also has the network f and its
Jacobian J. x̃_i is a crop of the same sample as x_i.

    ỹᵗ = (1 − α_t) y + α_t pᵗ,   p_iᵗ = f(W_t, x̃_i)                                        Eq. (5) with β_t = 0, τ' = 1
    W_{t+1} = W_t − ηJ(W_t)ᵀ(f(W_t, X) − ỹᵗ)                                               Eq. (7)

It claims for t ≥ t₀ ∝ log(1/(1 − α_max)), with ζ = 4ρ + O(ε), E_t = ‖f(W_t, X) − y*‖/√n:

    E_t ≤ ζ,   ‖ỹᵗ − y*‖/√n ≤ (1 − α_t) ‖y − y*‖/√n + α_t ζ,
    and if ρ ≤ δ/32 and α_t ≥ 1 − ¾δ, the label value nearest to ỹ_iᵗ is y*_i.

What holds instead:

- Its proof takes x̃_i = x_i (D.1.1). Then f − ỹᵗ = (1 − α_t)(f − y): descent on the wrong labels with steps η(1 − α_t).
  The refinery is a slower clock, s_t = Σ_{i<t} (1 − α_i), and no more. So with Theorem 3.2 of early_stopping/bounds.py,
  whose least singular value over S₊ is σ (the paper's α), for ε = 0

      max|f(W_t) − y*| ≤ max|Π₊(y − y*)| + ‖Π₊r₀‖/√min n_ℓ · Π_{i<t} (1 − ¼(1 − α_i)ησ²)              `error_bound`

  with r₀ = f(W₀) − y, and t₀ ∝ 1/(1 − α), not its logarithm. The proof gets the logarithm from α_t ≤ σ²/(4β²), which
  contradicts α_t ≥ 1 − ¾δ unless δ ≥ 1 (the statement of Theorem 6 has α_t ≥ 1 − σ²/(4β²) in its place).
- For ε > 0 "t ≥ t₀" needs an end. With α_t ≤ const < 1 descent on a wide network goes on to f = y, and then ỹ = y. With
  Σ(1 − α_t) < ∞ it stops early: that is what the refinery does against memorising.
- Where x̃_i is *another* crop, p = Pf with the rows of P summing to 1, descent that reaches f = ỹ ends at

      f = ỹ = (1 − α)(I − αP)⁻¹y                                                                               `limit`

  a mean over crops of one sample in which the own label weighs (1 − α)/(1 − αⁿ) if x̃_i is the next of n crops, and
  1 − α + α/n if p_i is the mean over them. This lasts. It is the case that the paper describes but does not analyse.
- α_t ≥ 1 − ¾δ does not do. ỹ errs by up to (1 − α_t)D + α_t E, D = max|y_i − y*_i| ≤ 2, E = max|p_i − y*_i|, so

      α_t > (D − ½δ)/(D − E)                                                                          `enough_alpha`

  which for two labels (D = δ) and E = δ/4 is 2/3. The proof takes D < 1, and 1 − α + αδ/4 is not below ½δ at α = 1 − ¾δ
  for any δ < 8/3.

Theorem 1(2). Two samples, each a query with key x_i and dictionary {x₁, x₂}: three keys, two of them the same. Labels
over the keys (a, a, 1 − 2a) for x₁ and (a, 1 − 2a, a) for x₂, true ones with a* in place of a. A network that fits the
labels predicts h = y, and Q − Q̃, its risks at the true and at the training labels, is

    Q − Q̃ = −Σ_k (y*_k − y_k) log h_k = −2(a* − a) log(a/(1 − 2a)),   ‖y − y*‖ = √6 |a* − a|                    `gap`

Differs from the paper: it drops the sign of the cross-entropy and divides by the three keys, so it has −1/3 of that.
In its example (a = 0.4, a* = 0.45) the risk at the true labels is *lower*. c₀ = |Q − Q̃|/‖y − y*‖ = √(2/3) |log(a/(1 −
2a))| is positive for that a but 0 at a = 1/3: no such constant serves all labels. What wrong labels cost is

    Q(f) − min Q = KL(y* ‖ h) ≥ ½‖y* − h‖₁²                                                                     `excess`

quadratic in the error of the labels. Theorem 1(1)'s L_y is max‖log h‖, as ∂ℓ/∂y = −log h.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from noiseproof import checks
from noiseproof.errors import InputError
from noiseproof_papers.early_stopping.bounds import Guarantee
from noiseproof_papers.early_stopping.clusters import ACTIVATIONS, Clusters, Net, cluster_means, eigenvalue, predict

Guess = Callable[[Tensor], Tensor]  # outputs f(W, X) (n,) to p (n,)
Alpha = Callable[[int], float]  # t to α_t


class Refined(NamedTuple):
    """Descent on refined labels at T of its iterations, and the network at the end."""

    at: list[int]  # (T,)
    outputs: Tensor  # (T, n) f(W_t, X)
    labels: Tensor  # (T, n) ỹᵗ
    net: Net


class Asked(NamedTuple):
    """What Theorem 2 asks for and gives, with c₁ to c₆ = 1: where even that is out of reach, so is the theorem."""

    width: float  # k at least
    eps: float  # ε at most, for the bounds
    eps_exact: float  # ε at most, for exact recovery
    steps: float  # t₀
    zeta_per_eps: float  # (ζ − 4ρ)/ε


# --- Theorem 2 ---


def itself(outputs: Tensor) -> Tensor:
    """p = f(W, X): x̃_i = x_i, as in the proof."""
    return outputs


def next_crop(cluster: Tensor) -> Guess:
    """p_i = f(W, x̃_i) where x̃_i is the next crop of the same sample, around in a circle; cluster: (n,)."""
    index = torch.arange(len(cluster))
    for one in cluster.unique():
        members = torch.nonzero(cluster == one)[:, 0]
        index[members] = members.roll(-1)
    return lambda outputs: outputs[index]


def all_crops(cluster: Tensor) -> Guess:
    """p_i = the mean of f over the crops of the same sample: what random x̃_i give on average; cluster: (n,)."""
    return lambda outputs: cluster_means(outputs, cluster)


def rising(last: float, steps: int) -> Alpha:
    """α_t: half a cosine from 0 to `last` over `steps` iterations, as the paper's μ, and `last` from then on."""
    return lambda t: last * (1 - math.cos(math.pi * min(t / steps, 1))) / 2


def descend(
    net: Net, data: Clusters, alpha: Alpha, *, guess: Guess = itself, step: float, steps: int, watch: Sequence[int] = ()
) -> Refined:
    """Gradient descent (7) on the refined labels (5), in the dtype of data.x.

    Args:
        alpha: within [0, 1].
        guess: outputs to p.
        step: η.
        watch: rising, within 0..steps; the default is the last.

    Raises:
        InputError: `watch` not rising within 0..steps, an α_t out of range, or outputs that grew beyond all bounds.
    """
    watch = list(watch) or [steps]
    if sorted(set(watch)) != watch or not 0 <= watch[0] <= watch[-1] <= steps:
        raise InputError(f"watch must rise within 0..{steps} (steps), got {watch[:5]}")
    x, y, kept = data.x, data.label.to(data.x.dtype), set(watch)
    phi, xt = ACTIVATIONS[net.activation], x.T.contiguous()
    W, v = net.W.to(x.dtype, copy=True), net.v.to(x.dtype)
    outputs, labels = [], []
    for t in range(steps + 1):
        a = checks.number(f"alpha of iteration {t}", alpha(t), 0, 1)
        h = W @ xt  # (k, n)
        f = v @ phi.value(h)  # (n,)
        refined = (1 - a) * y + a * guess(f)  # Eq. (5)
        if t in kept:
            if not bool(torch.isfinite(f).all()):
                raise InputError(f"gradient descent diverged before iteration {t}; lower step, now {step:.3g}")
            outputs.append(f)
            labels.append(refined)
        if t < steps:
            W.addmm_(phi.slope(h).mul_(v[:, None]).mul_(step * (refined - f)), x)  # Eq. (7)
    return Refined(watch, torch.stack(outputs), torch.stack(labels), net._replace(W=W, v=v))


def error_bound(net: Net, data: Clusters, given: Guarantee, alpha: Alpha, at: Sequence[int], *, step: float) -> Tensor:
    """max|f(W_t) − y*| at most, for x̃_i = x_i and ε = 0, at iterations `at` (T,).

    Args:
        net: at W₀.
        given: `certify(net, data)` of early_stopping/bounds.py.
        step: η, at most given.step.

    Raises:
        InputError: a step that the guarantee does not cover.
    """
    checks.number("step", step, 0, given.step * (1 + 1e-12))
    sigma = _singular(net, data, given)
    largest = _residual(net, data) / math.sqrt(int(torch.bincount(data.cluster).min()))  # entry of Π₊r₀: S₊ is diffused
    factor = torch.tensor([1 - (1 - alpha(i)) * step * sigma**2 / 4 for i in range(max(at))], dtype=torch.float64)
    decay = torch.cat([factor.new_ones(1), factor.cumprod(0)])[torch.tensor(at)]
    return float(cluster_means(data.label - data.truth, data.cluster).abs().max()) + largest * decay


def claimed_steps(net: Net, data: Clusters, given: Guarantee, alpha_max: float, *, step: float) -> int:
    """t₀ as Theorem 6 and the proof of Theorem 7 have it: 5/(ησ²) log(‖r₀‖/(2(1 − α_max)ρ)), ρ the share that is wrong.

    The constants are the proof's; ‖r₀‖ = ‖f(W₀) − y‖.
    """
    rho = wrong_share(data)
    misfit = float((predict(net, data.x) - data.label).norm())
    sigma = _singular(net, data, given)
    return math.ceil(5 / (step * sigma**2) * math.log(max(misfit / (2 * (1 - alpha_max) * rho), 1)))


def wrong_share(data: Clusters) -> float:
    """ρ of Definition 1: the largest share of wrong labels of a sample."""
    return float(cluster_means((data.label != data.truth).double(), data.cluster).max())


def label_error(labels: Tensor, truth: Tensor) -> Tensor:
    """‖ỹ − y*‖/√n of each row: (T, n), (n,) to (T,)."""
    return (labels - truth).square().mean(-1).sqrt()


def label_bound(label: Tensor, truth: Tensor, alpha: Tensor | float, error: Tensor | float) -> Tensor:
    """(1 − α_t) ‖y − y*‖/√n + α_t E_t, Theorem 2(1): the triangle inequality, for E_t ≥ ‖p − y*‖/√n; α, E: (T,)."""
    return (1 - alpha) * label_error(label, truth) + alpha * error


def enough_alpha(delta: float, error: float, largest: float) -> float:
    """The α above which ỹ is nearest to the true label whatever y is: (D − ½δ)/(D − E), at least 0.

    Args:
        delta: δ, the least gap of the labels.
        error: E = max|p_i − y*_i|, below ½δ.
        largest: D = max|y_i − y*_i|, at least δ.

    Raises:
        InputError: E or D out of range.
    """
    checks.number("error", error, 0, delta / 2, ends="[)")
    checks.number("largest", largest, delta)
    return max((largest - delta / 2) / (largest - error), 0.0)


def limit(label: Tensor, guess: Guess, alpha: float) -> Tensor:
    """(1 − α)(I − αP)⁻¹y (n,): where f = ỹ for a constant α < 1 and a linear guess p = Pf."""
    checks.number("alpha", alpha, 0, 1, ends="[)")
    eye = torch.eye(len(label), dtype=label.dtype)
    P = torch.stack([guess(column) for column in eye], dim=1)  # (n, n)
    return (1 - alpha) * torch.linalg.solve(eye - alpha * P, label)


def asked(centers: Tensor, n: int, rho: float, delta: float, name: str, *, alpha_max: float, step: float) -> Asked:
    """Theorem 2's conditions for n crops of `centers` (K, d) and an activation, with its constants c₁ to c₆ set to 1,
    and Γ and ψ' = 1 + ψ₁/2 + √ψ₂ to 1, the least it allows."""
    K, d = centers.shape
    lam = eigenvalue(centers, name)
    norm = float(torch.linalg.matrix_norm(centers, 2))
    xi = math.log(math.sqrt(n) * math.log(K) / rho)
    return Asked(
        width=K**2 * xi**6 * norm**4 / (alpha_max**2 * lam**4),
        eps=min(lam / (K * xi**6), rho / alpha_max),
        eps_exact=delta * min(lam**2 / (K**2 * xi**3), 1 / math.sqrt(d)),
        steps=K / (step * n * lam) * math.log(math.sqrt(n) * math.log(K) / ((1 - alpha_max) * rho)),
        zeta_per_eps=K * xi * math.sqrt(math.log(K)) / lam,
    )


def _residual(net: Net, data: Clusters) -> float:
    """‖Π₊r₀‖."""
    return float(cluster_means(predict(net, data.x) - data.label, data.cluster).norm())


def _singular(net: Net, data: Clusters, given: Guarantee) -> float:
    """σ, from the radius 4‖Π₊r₀‖/σ of the guarantee."""
    return 4 * _residual(net, data) / given.radius


# --- Theorem 1 ---


def construction(a: float) -> Tensor:
    """The labels (2, 3) of the two queries over their three keys: (a, a, 1 − 2a) and (a, 1 − 2a, a).

    Raises:
        InputError: a outside (0, ½).
    """
    rest = 1 - 2 * checks.number("a", a, 0, 0.5, ends="()")
    return torch.tensor([[a, a, rest], [a, rest, a]], dtype=torch.float64)


def risk(h: Tensor, label: Tensor) -> Tensor:
    """Mean cross-entropy −Σ_k y_k log h_k over the queries, of (q, k) labels."""
    return -(label * h.log()).sum(-1).mean(-1)


def gap(a: float, true: float) -> float:
    """Q − Q̃ of a network that predicts the labels: −2(a* − a) log(a/(1 − 2a))."""
    return -2 * (true - a) * math.log(a / (1 - 2 * a))


def printed_gap(a: float, true: float) -> float:
    """Q − Q̃ as the proof prints it: 2/3 (a* − a) log(a/(1 − 2a)), for the two queries together."""
    return 2 / 3 * (true - a) * math.log(a / (1 - 2 * a))


def one_hot_gap(true: float, temperature: float) -> float:
    """Q − Q̃ of a network trained on MoCo's labels (1, 0, 0), which it cannot fit: (1 − 2a*) 2/τ.

    Two of the keys are the same, so h = (p, p, 1 − 2p), and p/(1 − 2p) goes as high as it can, to exp(2/τ). For a* = ½
    the gap is 0 although ‖y − y*‖ = √½.
    """
    return (1 - 2 * true) * 2 / temperature


def excess(h: Tensor, truth: Tensor) -> Tensor:
    """What the labels cost at the true labels: mean KL(y* ‖ h) over the queries."""
    return risk(h, truth) - risk(truth, truth)


def similarities(features: Tensor, temperature: float) -> Tensor:
    """h (2, 3), Eq. (12): softmax of cosine/τ of the features (2, m) of x₁, x₂ with the keys {x_i, x₁, x₂}, f = g.

    Differs from the paper: no minus sign in front of the cosine. With one, and f = g, a query would be less likely its
    own key than any other, a ≤ 1/3, and the example's a = 0.4 out of reach.
    """
    unit = torch.nn.functional.normalize(features, dim=1)
    cosine = unit @ unit.T  # (2, 2)
    return (torch.cat([cosine.diagonal()[:, None], cosine], 1) / temperature).softmax(1)


def fit_construction(label: Tensor, *, temperature: float = 0.2, seed: int) -> Tensor:
    """h (2, 3) of a network with one hidden layer of ReLU, trained on the construction's labels (2, 3) by L-BFGS.

    Raises:
        InputError: temperature not above 0.
    """
    checks.number("temperature", temperature, 0, ends="()")
    d, width = 8, 64
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64) / math.sqrt(shape[-1])

    x = torch.nn.functional.normalize(draw(2, d), dim=1)
    weights = [draw(width, columns).requires_grad_() for columns in (d, width)]
    optimizer = torch.optim.LBFGS(weights, max_iter=400, line_search_fn="strong_wolfe", tolerance_grad=1e-12)

    def predict_keys() -> Tensor:
        return similarities(torch.relu(x @ weights[0].T) @ weights[1].T, temperature)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = risk(predict_keys(), label)
        loss.backward()
        return loss

    optimizer.step(closure)
    return predict_keys().detach()

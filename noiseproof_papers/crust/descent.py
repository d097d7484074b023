"""Corollaries A.1 and A.3 and Theorem 4.1 of Mirzasoleiman et al. (2020), on a network that can descend to the end.

k selected examples in clusters, labels in [−1, 1] that are δ apart, weights r, and gradient descent on the weighted
squares, Eq. (8), of f(W, x) = vᵀφ(Wx) (early_stopping/clusters.py). With α = √r_min σ_min(J_S, S₊), β = √r_max ‖J_S‖,
an L-smooth Jacobian, r₀ = f − y at the start, e = y − ỹ and λ = ‖Π₊e‖_∞ the corollaries say of

    η = 1/(2β²) · min(1, αβ/(L‖r₀‖)):
        ‖W_τ − W₀‖ ≤ 4‖r₀‖/α for every τ                                                   Corollary A.1
        ‖f − ỹ‖_∞ ≤ 2λ from τ₀ = 5/(ηα²) · log(‖r₀‖/λ) on                                  Corollary A.1
        every selected example is at its true label, if a share ρ ≤ δ/8 of them is wrong     Corollary A.3

Theorem 4.1 says the last of a Jacobian of nearly low rank, too. Differs from the paper: descent on weighted squares
contracts √R r, so it is ‖√R r₀‖ that belongs into the distance and the time, and Π₊ is the projection in which examples
count by their weights; ‖r₀‖ is measured, not bounded by √(2k) (residuals up to 2 give 2√k).
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from noiseproof.runs.drawing import BLUE, GREEN, RED, YELLOW, new_figure
from noiseproof_papers.crust import bounds as coresets
from noiseproof_papers.datadir import DataDir
from noiseproof_papers.drawing import frame
from noiseproof_papers.early_stopping import clusters
from noiseproof_papers.experiment import Cell, Done, Experiment, Table, group, span


class Guarantee(NamedTuple):
    """What Corollary A.1 says of a start."""

    alpha: float
    beta: float
    step: float  # η
    distance: float  # ‖W_τ − W₀‖ at most
    steps: int  # τ₀
    error: float  # ‖f − ỹ‖_∞ from then on at most: 2λ
    nuisance: float  # the largest singular value over S₋, which the corollaries put to 0


def cluster_noise(e: Tensor, cluster: Tensor, weight: Tensor) -> Tensor:
    """Π₊e (k,): the mean of e over each cluster, by weight."""
    total = torch.zeros(int(cluster.max()) + 1, dtype=e.dtype)
    return (total.index_add(0, cluster, weight * e) / total.index_add(0, cluster, weight))[cluster]


def guarantee(net: clusters.Net, data: clusters.Clusters, weight: Tensor) -> Guarantee:
    """Corollary A.1 for the selected examples `data` with weights (k,), at the start `net`."""
    gram, space = clusters.gram(net, data.x), coresets.cluster_space(data.cluster)
    found = coresets.bounds(gram, weight, space=space)
    alpha, beta = found.lower, found.upper
    others = torch.linalg.qr(space, mode="complete").Q[:, space.shape[1] :]  # S₋
    nuisance = float(coresets.singular_values(coresets.weigh(gram, weight), others)[0])
    curvature = clusters.ACTIVATIONS[net.activation].max_curvature
    smooth = math.sqrt(float(weight.max()) / len(net.v)) * curvature * float(torch.linalg.matrix_norm(data.x, 2))  # L
    start = float((weight.sqrt() * (clusters.predict(net, data.x) - data.label)).norm())  # ‖√R r₀‖
    lam = float(cluster_noise(data.label - data.truth, data.cluster, weight).abs().max())
    step = min(1.0, alpha * beta / (smooth * start)) / (2 * beta**2)
    steps = math.ceil(5 / (step * alpha**2) * math.log(start / (math.sqrt(float(weight.min())) * lam)))
    return Guarantee(alpha, beta, step, 4 * start / alpha, max(steps, 1), 2 * lam, nuisance)


class Descent(Experiment):
    """Descent on coresets with as much noise as the theorem allows, spread in four ways."""

    name = "crust-descent"
    title = "Gradient descent on weighted coresets with wrong labels, against what is proved of it"
    paper = "Mirzasoleiman et al. 2020, Theorem 4.1, Corollaries A.1 and A.3"
    scales = ("paper",)

    K, SIZE, UNITS, WRONG = 4, 16, 200, 3  # clusters, examples of each, hidden units, wrong labels of each
    APART, LATER = 0.05, 100  # how far spread inputs are from their centres, and the end, times τ₀
    KINDS: ClassVar[dict[str, str]] = {
        "evenly": "3 of 16 in each cluster",
        "one cluster": "12 of 64, all in one cluster",
        "by weight": "3 of 16 in each cluster, 8 times as heavy",
        "spread inputs": "3 of 16 in each cluster, inputs 0.05 from their centres",
    }

    def cells(self, scale: str, seeds: int | None) -> list[Cell]:
        return [{"kind": kind, "seed": seed} for kind in self.KINDS for seed in range(seeds or 10)]

    def case(self, kind: str, seed: int) -> tuple[clusters.Clusters, Tensor]:
        """The selected examples, and their weights."""
        sizes, values = [self.SIZE] * self.K, [-1.0, 1.0] * (self.K // 2)
        centers = clusters.random_centers(self.K, 20, seed=seed, apart=1.0)
        eps0 = self.APART if kind == "spread inputs" else 0.0
        data = clusters.clusterable(centers, sizes, values, eps0=eps0, seed=seed)
        generator = torch.Generator().manual_seed(seed)
        weight = torch.randint(1, 5, (self.K,), generator=generator)[data.cluster].double()
        members = torch.arange(self.K * self.SIZE).view(self.K, self.SIZE)
        wrong = members[0, : self.K * self.WRONG] if kind == "one cluster" else members[:, : self.WRONG].flatten()
        label = data.truth.clone()
        label[wrong] *= -1  # δ = 2
        if kind == "by weight":
            weight[wrong] *= 8
        return data._replace(label=label), weight

    def run(self, cell: Cell, data: DataDir) -> dict[str, Any]:
        given, weight = self.case(cell["kind"], cell["seed"])
        net = clusters.network(self.UNITS, 20, activation="softplus", seed=cell["seed"])
        claim = guarantee(net, given, weight)
        later = self.LATER if cell["kind"] == "spread inputs" else 2  # where inputs are equal nothing comes after
        watch = [claim.steps, later * claim.steps]
        path = clusters.descend(net, given.x, given.label, step=claim.step, steps=watch[-1], watch=watch, weight=weight)
        right = clusters.nearest(path.outputs, given.truth) == given.truth  # (2, k)
        wrong = (given.label != given.truth).double()
        gap = (path.outputs[0] - given.truth).abs().max()
        return {
            **claim._asdict(),
            "share": float(wrong.mean()), "worst_share": float(cluster_noise(wrong, given.cluster, weight).max()),
            "moved": float(path.distance.max()) / claim.distance, "off": float(gap) / claim.error,
            "right": float(right[0].double().mean()), "right_later": float(right[1].double().mean()),
        }  # fmt: skip

    def draw(self, done: list[Done], path: Path) -> None:
        figure = new_figure(7, 3.2)
        axis = figure.subplots()
        colours = dict(zip(self.KINDS, (GREEN, RED, YELLOW, BLUE), strict=True))
        for kind, figures in group(done, lambda c: c["kind"]).items():
            for one in figures:
                values = [100 * one["right"], 100 * one["right_later"]]
                axis.plot([0, 1], values, "o-", color=colours[kind], alpha=0.4, lw=1, ms=4)
            axis.plot([], [], "o-", color=colours[kind], label=f"{kind}: {self.KINDS[kind]}")
        axis.set_xticks([0, 1], ["τ₀", "the end"])
        axis.set_ylim(0, 103)
        frame(axis, "selected examples at their true label", "iteration", "%")
        figure.legend(loc="outside lower center", fontsize=8, frameon=False, ncols=2)
        figure.savefig(path, dpi=120, format="png")

    def table(self, done: list[Done]) -> Table:
        header = ["wrong labels", "ρ, %", "of the worst cluster's weight, %", "τ₀", "right at τ₀, %", "at the end, %",
                  "‖f − ỹ‖_∞ / 2λ at τ₀", "‖W − W₀‖ α / 4‖r₀‖", "σ over S₋ / β"]  # fmt: skip
        rows = []
        for kind, runs in group(done, lambda c: c["kind"]).items():
            shares = [span([100 * one[key] for one in runs]) for key in ("share", "worst_share")]
            right = [span([100 * one[key] for one in runs]) for key in ("right", "right_later")]
            bounds = [span([one[key] for one in runs]) for key in ("off", "moved")]
            thin = span([one["nuisance"] / one["beta"] for one in runs])
            rows.append([kind, *shares, span([one["steps"] for one in runs]), *right, *bounds, thin])
        return header, rows

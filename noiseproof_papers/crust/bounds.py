"""What is provable of the Jacobian and the label noise of a coreset.

Baharan Mirzasoleiman, Kaidi Cao and Jure Leskovec, "Coresets for Robust Training of Neural Networks against Noisy
Labels", NeurIPS 2020, Section 4.1 and Appendix A. J (n, P) is the Jacobian of a network's output with respect to its
parameters, J_S (k, P) its rows at the coreset S, r_j how many of the n examples j ∈ S stands for, R = diag(r), and S₊
a subspace of R^k. σ_i(J, S₊) are the singular values of Jᵀ restricted to S₊. The paper prints

    J_r = R J_S,   √r_min σ_min(J_S, S₊) ≤ σ_i(J_r, S₊) ≤ √r_max ‖J_S‖                              Eq. (7)

Differs from the paper: (7) is wrong as printed (counterexamples: docs/theory/coresets.md). The roots belong to √R J_S,
whose singular values govern gradient descent on the weighted loss, and √R maps S₊ elsewhere. True is

    √r_min σ_i(J_S) ≤ σ_i(√R J_S) ≤ √r_max σ_i(J_S) for every i                                      (7a)
    √r_min σ_min(J_S, S₊) ≤ σ_i(√R J_S, √R⁻¹ S₊),   σ_i(√R J_S, S₊) ≤ √r_max ‖J_S‖                    (7b)

Nor is |√r_max ‖J_S‖ − ‖J‖| a bound on the error of the largest singular value. With A (n, k) the 0/1 matrix that
assigns examples to S, AᵀA = R, so A J_S, which is J with each row replaced by that of its representative, has the
singular values of √R J_S, and Weyl's inequality gives

    |σ_i(J) − σ_i(√R J_S)| ≤ ‖J − A J_S‖ ≤ (Σ_i ‖J_i − J_{a(i)}‖²)^½ for every i                       (7c)

The noise ratio: S₊ are the vectors that are constant on clusters of S (Eq. 12), so projecting on it takes the mean over
each cluster, and with labels in [−1, 1]

    ‖Π_{S₊}(y − ỹ)‖_∞ ≤ 2 max_l ρ_l,   ρ_l the share of wrong labels in cluster l                   (Lemma A.2)

The paper has the share in all of S in place of the worst cluster's, which does not follow: all noise may lie in one.
So what Theorem 4.1 asks for, ρ < δ/8, must hold in every cluster. With "S₊ its column space" of a J_S of rank k, as the
lemma says, the projection would be the identity and the lemma false for a single wrong label.

For K outputs an example has K rows, and r_j is repeated for each. All of this needs only the Gram matrix JJᵀ
(`Jacobian.gram()`, in float64: its square costs half of the digits).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from noiseproof_papers.early_stopping.clusters import cluster_means


class Bounds(NamedTuple):
    """Singular values of a weighted Jacobian over a space, and the bounds of Eq. (7) on them."""

    lower: float  # √r_min σ_min(J_S, S₊)
    smallest: float
    largest: float
    upper: float  # √r_max ‖J_S‖

    @property
    def below(self) -> bool:
        """Whether the lower bound holds, up to rounding."""
        return self.smallest >= self.lower - 1e-6 * self.upper

    @property
    def above(self) -> bool:
        """Whether the upper bound holds, up to rounding."""
        return self.largest <= self.upper * (1 + 1e-6)


class Closeness(NamedTuple):
    """How near the singular values of √R J_S are to those of J: Eq. (7c)."""

    errors: Tensor  # (N,) |σ_i(J) − σ_i(√R J_S)|, the latter with zeros appended
    spectral: float  # ‖J − A J_S‖
    frobenius: float  # (Σ_i ‖J_i − J_{a(i)}‖²)^½
    top: float  # σ_1(J)
    printed: float  # |√r_max ‖J_S‖ − ‖J‖|, the paper's ε


def singular_values(gram: Tensor, space: Tensor | None = None) -> Tensor:
    """σ_i(J, S₊), largest first, from JJᵀ (N, N) and an orthonormal basis (N, s) of S₊; None for all of R^N."""
    inside = gram if space is None else space.T @ gram @ space
    return torch.linalg.eigvalsh(inside).flip(0).clamp_min(0).sqrt()


def cluster_space(cluster: Tensor, each: int = 1) -> Tensor:
    """An orthonormal basis (k·each, s) of the vectors that are constant on clusters (k,), for each output: Eq. (12)."""
    member = torch.nn.functional.one_hot(cluster.unique(return_inverse=True)[1]).double()  # (k, clusters)
    return torch.kron(member / member.sum(dim=0).sqrt(), torch.eye(each, dtype=torch.float64))


def rows(index: Tensor, each: int) -> Tensor:
    """The rows (k·each,) that examples (k,) have in a Jacobian of `each` outputs."""
    return (index[:, None] * each + torch.arange(each)).flatten()


def weigh(gram: Tensor, weight: Tensor, power: float = 0.5) -> Tensor:
    """The Gram matrix of diag(r^power) J_S from J_S J_Sᵀ (N, N) and r (k,)."""
    scale = weight.to(gram).repeat_interleave(len(gram) // len(weight)) ** power
    return scale[:, None] * gram * scale


def bounds(gram: Tensor, weight: Tensor, *, space: Tensor | None = None, power: float = 0.5) -> Bounds:
    """The singular values of diag(r^power) J_S over a space, from J_S J_Sᵀ (N, N) and r (k,), and Eq. (7) on them.

    Power ½ is √R J_S, for which the upper bound is true, and the lower one without `space`; 1 the printed J_r = R J_S.
    """
    plain, found = singular_values(gram, space), singular_values(weigh(gram, weight, power), space)
    least, most = (float(extreme) ** 0.5 for extreme in (weight.min(), weight.max()))
    norm = float(singular_values(gram)[0])
    return Bounds(least * float(plain[-1]), float(found[-1]), float(found[0]), most * norm)


def closeness(gram: Tensor, index: Tensor, assignment: Tensor) -> Closeness:
    """The singular values of a weighted coreset against those of all n examples, from JJᵀ (n·K, n·K): Eq. (7c).

    `index` (k,) is the coreset, `assignment` (n,) the position in it of each example's representative; −1: none, its
    rows count as 0 in A J_S.
    """
    n, each = len(assignment), len(gram) // len(assignment)
    chosen = rows(index, each)  # (k·K,)
    covered = (assignment >= 0).nonzero().squeeze(1)
    move = torch.zeros(n, len(index), dtype=gram.dtype)
    move[covered, assignment[covered]] = 1  # A (n, k)
    weight = move.sum(dim=0)
    full = torch.kron(move, torch.eye(each, dtype=gram.dtype))  # (N, k·K)
    part = gram[:, chosen] @ full.T  # J (A J_S)ᵀ
    difference = gram - part - part.T + full @ gram[chosen][:, chosen] @ full.T  # of J − A J_S
    values, small = singular_values(gram), gram[chosen][:, chosen]
    weighted = torch.zeros_like(values)
    weighted[: len(chosen)] = singular_values(weigh(small, weight))
    most = float(weight.max()) ** 0.5 * float(singular_values(small)[0])
    return Closeness(
        errors=(values - weighted).abs(),
        spectral=float(singular_values(difference)[0]),
        frobenius=float(difference.diagonal().sum().clamp_min(0).sqrt()),
        top=float(values[0]),
        printed=abs(most - float(values[0])),
    )


def scalar_labels(label: Tensor, num_classes: int) -> Tensor:
    """Labels as numbers evenly spread over [−1, 1], as the paper's ν_c; their margin is δ = 2/(C − 1)."""
    return -1 + 2 * label.double() / (num_classes - 1)


def projected(e: Tensor, cluster: Tensor) -> float:
    """‖Π_{S₊} e‖_∞ of e (k,) on the vectors that are constant on clusters (k,), Lemma A.2; of wrong labels max_l ρ_l.

    Theorem 4.1 ends at ‖f − ỹ‖_∞ ≤ 2 ‖Π_{S₊}(y − ỹ)‖_∞ < δ/2, so below δ/4 is what it needs.
    """
    return float(cluster_means(e.double(), cluster).abs().max())

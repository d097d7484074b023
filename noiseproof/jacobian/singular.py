"""Singular values of a network's Jacobian, the top ones or all, and the two spaces that they split labels into.

Li, Soltanolkotabi and Oymak 2020 (arXiv:1903.11680; operator.py has its title), Assumption 1: the Jacobian is bimodal,

    α ≤ ‖Jᵀv‖ ≤ β for unit v in S₊ (information space),    ‖Jᵀv‖ ≤ ε for unit v in S₋ (nuisance space)

S₊ is spanned here by the left singular vectors of the values of at least α. Gradient descent fits what lies in S₊ at
once and what lies in S₋ hardly: true labels should lie in the first, label noise e = y − ỹ in the second (Section 3.2).

The top values come by block Krylov steps on JᵀJ. With V the orthonormal blocks so far, a pass gives Y = JV and Z = JᵀY.
The singular values of Y are the Ritz values from the right, with exact residuals ‖Jᵀu − σv‖; those of LᵀJ = (Z W S⁻¹)ᵀ,
for Y = L S Wᵀ, are the Ritz values from the left, half a step ahead at no cost:

    σ_i(Y) ≤ σ_i(LᵀJ) ≤ σ_i(J)                                                          (Cauchy interlacing)

The first block comes from as many random examples as half of the memory holds; their rows are kept and not made again.

Differs from the paper: it assumes S₊ for all θ on the path; this is S₊ at one θ.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from noiseproof import checks
from noiseproof.errors import InputError
from noiseproof.jacobian.operator import Jacobian
from noiseproof.models.inference import eval_mode

RESIDUALS = ("probabilities", "outputs")
Product = Callable[[Tensor], tuple[Tensor, Tensor]]  # V -> J V and JᵀJ V


class Shares(NamedTuple):
    """How much of a vector's squared norm lies in each space; they sum to 1."""

    information: float
    nuisance: float


@dataclass(frozen=True)
class Split:
    """The information space S₊, spanned by orthonormal `basis` (N, r), and its complement, the nuisance space S₋."""

    alpha: float
    basis: Tensor  # (N, r)

    def project(self, vector: Tensor) -> tuple[Tensor, Tensor]:
        """The parts of a vector (N,) in the information and in the nuisance space."""
        vector = vector.to(self.basis)
        inside = self.basis @ (self.basis.T @ vector)
        return inside, vector - inside

    def shares(self, vector: Tensor) -> Shares:
        """The shares of a vector's squared norm: ‖Π₊r‖²/‖r‖² and ‖Π₋r‖²/‖r‖².

        Raises:
            InputError: the vector is zero, or of another length.
        """
        if vector.shape != self.basis.shape[:1] or not bool(vector.any()):
            raise InputError(f"the vector must be ({len(self.basis)},) and not zero, got shape {tuple(vector.shape)}")
        inside, outside = (float(part.square().sum()) for part in self.project(vector))
        return Shares(inside / (inside + outside), outside / (inside + outside))


@dataclass(frozen=True)
class Spectrum:
    """Singular values of a Jacobian, largest first, and what is known of their vectors and errors."""

    values: Tensor  # (r,) float64
    shape: tuple[int, int]  # of J
    complete: bool  # all values that are not zero, or only the top ones
    left: Tensor | None = None  # (N, r)
    right: Tensor | None = None  # (P, r)
    residuals: Tensor | None = None  # (r,) ‖Jᵀu − σv‖ of the pairs one half step behind: bounds on the values' errors
    errors: Tensor | None = None  # (r,) how much the last half step changed the values: estimates of their errors
    passes: int = 0  # looks at the whole data

    def count(self, ratio: float = 0.1) -> int:
        """How many values exceed `ratio` times the top one: Table 1.

        Raises:
            InputError: all that were computed do, and there may be more.
        """
        if not len(self.values):
            return 0
        found = int((self.values > ratio * self.values[0]).sum())
        if found == len(self.values) and not self.complete:
            raise InputError(f"all {found} computed values exceed {ratio} of the top one; compute more (k={2 * found})")
        return found

    def split(self, alpha: float) -> Split:
        """The information and the nuisance space for α: singular values of at least α, and below.

        Raises:
            InputError: the vectors are unknown, or all computed values are at least α, and there may be more.
        """
        if self.left is None:
            raise InputError("this spectrum has no left singular vectors; compute it with passes of 1 or more")
        count = int((self.values >= alpha).sum())
        if count == len(self.values) and not self.complete:
            raise InputError(f"alpha={alpha:g} lies below all {count} computed values; compute more (k={2 * count})")
        return Split(float(alpha), self.left[:, :count])


def exact_spectrum(jacobian: Jacobian) -> Spectrum:
    """All singular values and left vectors, from the eigenvalues of JJᵀ: O(N²P) time and 16 N² bytes more memory.

    The square costs half of the digits: in float32 values below about 3e-4 of the top one are rounding.
    """
    return spectrum_of_gram(jacobian.gram(), jacobian.shape[1])


def spectrum_of_gram(gram: Tensor, columns: int) -> Spectrum:
    """The same of a J (N, columns) of which only JJᵀ (N, N) is at hand, e.g. of some of its rows."""
    eigenvalues, left = torch.linalg.eigh(gram.double())
    rank = min(len(gram), columns)
    values = eigenvalues.flip(0)[:rank].clamp_min(0).sqrt()
    return Spectrum(values, (len(gram), columns), True, left=left.flip(1)[:, :rank], passes=1)


def top_singular(
    jacobian: Jacobian,
    k: int = 20,
    *,
    width: int | None = None,
    tolerance: float = 1e-3,
    passes: int = 6,
    seed: int = 0,
) -> Spectrum:
    """The k largest singular values with their vectors, by block Krylov steps.

    Args:
        jacobian: its `memory` bounds what is kept of it between passes; the blocks of vectors come on top.
        k: how many; fewer come back where J has a smaller rank (values below √eps of the top one do not count).
        width: columns of a block, at least k; default 2k + 8.
        tolerance: stop when no value's estimated relative error exceeds it.
        passes: the most looks at the data. With 0, an estimate from the kept examples alone, scaled by √(n/m): within a
            few per cent for the largest values, without error bounds or left vectors.
        seed: of the examples kept and the first directions.

    Raises:
        InputError: k out of range, or passes=0 without memory for any example.
    """
    rank = min(jacobian.shape)
    checks.integer("k", k, 1, rank)
    checks.integer("passes", passes, 0)
    width = min(2 * k + 8 if width is None else checks.integer("width", width, k), rank)
    generator = torch.Generator().manual_seed(seed)
    n, each = len(jacobian.inputs), jacobian.rows_each * jacobian.shape[1] * jacobian.dtype.itemsize
    kept = torch.randperm(n, generator=generator)[: jacobian.memory // (2 * each)].sort().values
    start = torch.randn(jacobian.shape[1], width, generator=generator, dtype=jacobian.dtype).to(jacobian.device)
    if not len(kept):
        if passes == 0:
            raise InputError(
                f"passes=0 needs memory for the rows of an example, {2 * each} bytes or more; raise memory"
            )
        return _krylov(jacobian.normal, start, k, tolerance, passes, jacobian.shape)
    stored = jacobian.rows(kept)  # (m·K, P)

    def inside(v: Tensor) -> tuple[Tensor, Tensor]:
        product = stored @ v
        return product, stored.T @ product

    if len(kept) == n:
        return _krylov(inside, start, k, tolerance, max(1, passes), jacobian.shape)
    skip = torch.zeros(n, dtype=torch.bool).index_fill_(0, kept, True)

    def everything(v: Tensor) -> tuple[Tensor, Tensor]:
        product, result = jacobian.normal(v, skip)
        part, more = inside(v)
        product.view(n, -1, v.shape[1])[kept] = part.view(len(kept), -1, v.shape[1])
        return product, result + more

    first = _krylov(inside, start, min(width, len(stored)), tolerance, 2, jacobian.shape)
    assert first.right is not None
    if passes == 0:
        values = first.values[:k] * (n / len(kept)) ** 0.5
        return Spectrum(values, jacobian.shape, False, right=first.right[:, :k])
    start[:, : first.right.shape[1]] = first.right
    return _krylov(everything, start, k, tolerance, passes, jacobian.shape)


def _krylov(product: Product, v: Tensor, k: int, tolerance: float, passes: int, shape: tuple[int, int]) -> Spectrum:
    """Block Krylov steps from the columns of v (P, b) until the top k values settle."""
    basis, outputs, images = v[:, :0], v.new_zeros(0), v[:, :0]  # V (P, c), Y (N, c), Z (P, c)
    for done in range(1, passes + 1):
        v = v[:, : shape[1] - basis.shape[1]]
        for _ in range(2):  # once leaves rounding behind
            v, _ = _qr(v - basis @ (basis.T @ v))
        y, z = product(v)
        basis, images = torch.cat([basis, v], dim=1), torch.cat([images, z], dim=1)
        outputs = y if done == 1 else torch.cat([outputs, y], dim=1)
        found = _ritz(basis, outputs, images, k, shape, done)
        assert found.errors is not None
        if bool((found.errors <= tolerance * found.values).all()) or basis.shape[1] == shape[1]:
            break
        v = z
    return found


def _qr(x: Tensor) -> tuple[Tensor, Tensor]:
    """q (P, c) and r (c, c) with x = q r, by Cholesky on scaled columns where that is safe.

    In single precision it keeps a digit more than `torch.linalg.qr`, which in double would take thrice the memory.
    """
    scale = x.norm(dim=0).clamp_min(torch.finfo(x.dtype).tiny)
    scaled = x / scale
    factor, failed = torch.linalg.cholesky_ex((scaled.T @ scaled).double(), upper=True)
    if bool(failed) or bool((factor.diagonal() < 0.05).any()):  # nearly dependent columns
        q, r = torch.linalg.qr(x)
        return q, r.double()
    inverse = torch.linalg.solve_triangular(factor, torch.eye(len(factor)).to(factor), upper=True)
    return scaled @ inverse.to(x), factor * scale.double()


def _ritz(basis: Tensor, y: Tensor, z: Tensor, k: int, shape: tuple[int, int], passes: int) -> Spectrum:
    """Singular values and vectors of J as seen from V (P, c), Y = JV (N, c) and Z = JᵀY (P, c)."""
    u, right_values, w = torch.linalg.svd(y.double(), full_matrices=False)
    known = right_values > torch.finfo(y.dtype).eps ** 0.5 * right_values[0]
    u, right_values, w = u[:, known], right_values[known], w[known].T
    images = z @ (w / right_values).to(z)  # (P, r): Jᵀu
    residuals = (images - basis @ (w * right_values).to(z)).norm(dim=0).double()  # ‖Jᵀu − σv‖
    q, triangle = _qr(images)
    left, values, mix = torch.linalg.svd(triangle)  # (LᵀJ)ᵀ = q · triangle
    return Spectrum(
        values=values[:k],
        shape=shape,
        complete=len(values) < k or k == min(shape),  # the others are zero, as far as the dtype can tell
        left=(u @ mix.T[:, :k]).to(y),
        right=q @ left[:, :k].to(q),
        residuals=residuals[:k],
        errors=(values - right_values)[:k].clamp_min(0),
        passes=passes,
    )


def label_vectors(
    jacobian: Jacobian, labels: Tensor, true_labels: Tensor | None = None, *, residual: str = "probabilities"
) -> dict[str, Tensor]:
    """The vectors (N,) of Section 3.2: residual r, labels y and, where the truth ỹ is known, label noise e = y − ỹ.

    With outputs "correct", each is taken at the class of the Jacobian's label: e is 1 where the label is wrong.

    Args:
        labels, true_labels: (n,) class numbers.
        residual: "probabilities" for softmax(f) − y, what drives a network trained by cross-entropy, or "outputs" for
            the paper's f − y.
    """
    checks.choice("residual", residual, RESIDUALS)
    classes = jacobian.num_classes
    y = F.one_hot(labels.to(jacobian.device), classes).to(jacobian.dtype)  # (n, K)
    blocks = jacobian.inputs.split(jacobian.batch_size)
    with torch.no_grad(), eval_mode(jacobian.model):
        f = torch.cat([jacobian.model(block) for block in blocks])  # (n, K)
    found = {"residual": jacobian.pick((f.softmax(dim=1) if residual == "probabilities" else f) - y)}
    found["labels"] = jacobian.pick(y)
    if true_labels is not None:
        found["noise"] = jacobian.pick(y - F.one_hot(true_labels.to(jacobian.device), classes).to(y))
    return found

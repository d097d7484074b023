"""The theory of coresets: formulas against their slow twins, what is provable, and what is not, by small examples."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import coresets as slow
from torch import Tensor

from noiseproof.jacobian.operator import Jacobian
from noiseproof.jacobian.singular import spectrum_of_gram
from noiseproof.models import build
from noiseproof_papers.crust import bounds as coresets

seeds = st.integers(0, 10**6)


def case(seed: int, n: int = 12, k: int = 5, columns: int = 9) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """J (n, P), a coreset (k,), the assignment (n,), some of it −1, and clusters of the coreset (k,)."""
    generator = torch.Generator().manual_seed(seed)
    jacobian = torch.randn(n, columns, generator=generator, dtype=torch.float64)
    index = torch.randperm(n, generator=generator)[:k]
    assignment = torch.randint(-1, k, (n,), generator=generator)
    assignment[index] = torch.arange(k)
    return jacobian, index, assignment, torch.randint(0, 3, (k,), generator=generator)


def counts(assignment: Tensor, k: int) -> Tensor:
    return torch.bincount(assignment[assignment >= 0], minlength=k).double()


@settings(max_examples=30, deadline=None)
@given(seed=seeds, power=st.sampled_from([0.5, 1.0]), whole=st.booleans())
def test_bounds_are_those_of_the_matrices(seed: int, power: float, whole: bool) -> None:
    jacobian, index, assignment, cluster = case(seed)
    part, weight = jacobian[index], counts(assignment, len(index))
    found = coresets.bounds(
        part @ part.T, weight, space=None if whole else coresets.cluster_space(cluster), power=power
    )
    basis = np.eye(len(index)) if whole else slow.constant_on(cluster.tolist())
    r = weight.numpy().astype(float)
    plain = slow.restricted(part.numpy(), basis)
    weighted = slow.restricted(np.diag(r**power) @ part.numpy(), basis)
    expected = (r.min() ** 0.5 * plain[-1], weighted[-1], weighted[0], r.max() ** 0.5 * np.linalg.norm(part, 2))
    assert found == pytest.approx(expected, rel=1e-6, abs=1e-6)


@settings(max_examples=60, deadline=None)
@given(seed=seeds)
def test_what_is_provable_of_eq_7(seed: int) -> None:
    jacobian, index, assignment, cluster = case(seed)
    part, weight = jacobian[index], counts(assignment, len(index))
    gram, space = part @ part.T, coresets.cluster_space(cluster)
    plain, weighted = coresets.singular_values(gram), coresets.singular_values(coresets.weigh(gram, weight))
    # (7a), in squares: the root of a Gram matrix's eigenvalue has half its digits near 0
    assert (weighted**2 >= weight.min() * plain**2 - 1e-9).all()
    assert (weighted**2 <= weight.max() * plain**2 + 1e-9).all()
    whole = coresets.bounds(gram, weight)
    assert whole.below
    assert whole.above
    assert coresets.bounds(gram, weight, space=space).above  # (7b)
    unweighted = torch.linalg.qr(space / weight.sqrt()[:, None]).Q  # an orthonormal basis of √R⁻¹ S₊
    moved = coresets.singular_values(coresets.weigh(gram, weight), unweighted)
    assert moved[-1] ** 2 >= coresets.bounds(gram, weight, space=space).lower ** 2 - 1e-9


def test_eq_7_as_printed_is_wrong() -> None:
    identity, four = torch.eye(2, dtype=torch.float64), torch.tensor([4, 4])
    assert not coresets.bounds(identity, four, power=1.0).above
    assert coresets.bounds(identity, four).above
    part, weight = torch.tensor([[2.0], [-1.0]], dtype=torch.float64), torch.tensor([1, 4])
    found = coresets.bounds(part @ part.T, weight, space=coresets.cluster_space(torch.tensor([0, 0])))
    assert found.lower == pytest.approx(0.5**0.5)
    assert found.smallest == pytest.approx(0, abs=1e-7)
    assert not found.below


@settings(max_examples=40, deadline=None)
@given(seed=seeds)
def test_weighted_coresets_have_nearly_the_spectrum_of_all(seed: int) -> None:
    jacobian, index, assignment, _ = case(seed)
    found = coresets.closeness(jacobian @ jacobian.T, index, assignment)
    copies = slow.replaced(jacobian.numpy(), index.tolist(), assignment.tolist())
    values = np.zeros(len(jacobian)), np.zeros(len(jacobian))
    for matrix, place in zip((jacobian.numpy(), copies), values, strict=True):
        place[: min(matrix.shape)] = np.linalg.svd(matrix, compute_uv=False)
    np.testing.assert_allclose(found.errors.numpy(), np.abs(values[0] - values[1]), atol=1e-6)
    assert found.spectral == pytest.approx(np.linalg.norm(jacobian.numpy() - copies, 2))
    assert found.frobenius == pytest.approx(np.linalg.norm(jacobian.numpy() - copies))
    assert found.errors.max() <= found.spectral + 1e-6  # (7c)
    assert found.spectral <= found.frobenius + 1e-6
    part = jacobian[index].numpy()
    most = float(counts(assignment, len(index)).max()) ** 0.5 * np.linalg.norm(part, 2)
    assert found.printed == pytest.approx(abs(most - np.linalg.norm(jacobian.numpy(), 2)))


def test_the_printed_error_is_no_bound() -> None:
    jacobian = torch.zeros(11, 2, dtype=torch.float64)
    jacobian[0, 0], jacobian[1, 0], jacobian[2:, 1] = 2**0.5, 4.0, 1.0
    assignment = torch.tensor([0, 0, *[1] * 9])
    found = coresets.closeness(jacobian @ jacobian.T, torch.tensor([0, 2]), assignment)
    assert found.printed == pytest.approx(0)  # 3 · √2 against √18
    assert found.errors[0] == pytest.approx(18**0.5 - 3)


@settings(max_examples=40, deadline=None)
@given(seed=seeds, classes=st.integers(2, 6))
def test_lemma_a2_holds_for_the_worst_cluster(seed: int, classes: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    label, truth = (torch.randint(classes, (20,), generator=generator) for _ in range(2))
    label = torch.where(torch.rand(20, generator=generator) < 0.6, truth, label)
    cluster = torch.randint(0, 4, (20,), generator=generator)
    worst = coresets.projected(label != truth, cluster)
    assert worst == pytest.approx(slow.shares((label != truth).tolist(), cluster.tolist())[1])
    noise = coresets.scalar_labels(label, classes) - coresets.scalar_labels(truth, classes)
    basis = slow.constant_on(cluster.tolist())
    found = coresets.projected(noise, cluster)
    assert found == pytest.approx(np.abs(basis @ basis.T @ noise.numpy()).max())
    assert found <= 2 * worst + 1e-9


def test_lemma_a2_fails_for_the_overall_ratio() -> None:
    noise = torch.tensor([2.0, 2.0, *[0.0] * 18])  # both wrong labels in a cluster of their own
    cluster = torch.tensor([0, 0, *[1] * 18])
    assert coresets.projected(noise != 0, cluster) == 1.0
    assert coresets.projected(noise, cluster) == pytest.approx(2.0)  # twice the overall ratio of 0.1 would be 0.2


def test_labels_are_a_margin_apart() -> None:
    numbers = coresets.scalar_labels(torch.arange(5), 5)
    assert numbers.tolist() == [-1, -0.5, 0, 0.5, 1]


def test_a_network_with_several_outputs() -> None:
    torch.manual_seed(0)
    model, inputs = build("mlp", (6,), 3, widths=(8,)).double(), torch.randn(14, 6, dtype=torch.float64)
    jacobian = Jacobian(model, inputs)
    rows, gram = jacobian.rows(), jacobian.gram()
    index, each = torch.tensor([0, 3, 5, 9, 12]), rows.view(14, 3, -1)
    assignment = torch.cdist(each.flatten(1), each[index].flatten(1)).argmin(dim=1)
    found = coresets.closeness(gram, index, assignment)
    copies = each[index][assignment].flatten(0, 1)
    assert found.spectral == pytest.approx(float(torch.linalg.matrix_norm(rows - copies, 2)))
    picked = (index[:, None] * 3 + torch.arange(3)).flatten()
    small = gram[picked][:, picked]
    assert coresets.bounds(small, counts(assignment, 5)).below
    space = coresets.cluster_space(torch.tensor([0, 0, 1, 1, 1]), 3)
    assert space.shape == (15, 6)
    torch.testing.assert_close(space.T @ space, torch.eye(6, dtype=torch.float64))
    split = spectrum_of_gram(small, rows.shape[1]).split(0.1)
    expected = torch.linalg.svd(rows[picked], full_matrices=False)
    basis = expected.U[:, expected.S >= 0.1]
    torch.testing.assert_close(split.basis @ split.basis.T, basis @ basis.T, atol=1e-6, rtol=0)

"""The Jacobian against its slow twin: products, Gram matrix, singular values, information and nuisance space."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import jacobian as slow
from torch import Tensor, nn

from noiseproof.errors import InputError
from noiseproof.jacobian.operator import Jacobian
from noiseproof.jacobian.outputs import without_largest
from noiseproof.jacobian.singular import Split, exact_spectrum, label_vectors, top_singular
from noiseproof.models import build
from noiseproof.models.shallow import ShallowNet

NETWORKS = {
    "mlp": ((6,), {"widths": (9, 8)}),
    "mlp-bn": ((6,), {"widths": (9, 8), "batch_norm": True}),
    "shallow": ((5,), {"width": 12, "activation": "tanh"}),
    "lenet": ((1, 12, 12), {}),
    "cnn3": ((3, 8, 8), {"width": 3}),
    "resnet8": ((3, 8, 8), {}),
    "resnet8-projection": ((2, 9, 9), {"shortcut": "projection"}),
}


def network(name: str, classes: int = 3) -> tuple[nn.Module, tuple[int, ...]]:
    """A network in float64 whose batch norms have statistics of their own, and its input shape."""
    torch.manual_seed(0)
    shape, options = NETWORKS[name]
    model = build(name.split("-")[0], shape, classes, **options).double()
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.running_mean.normal_(std=0.2)
            module.running_var.uniform_(0.5, 1.5)
            module.weight.data.uniform_(0.5, 1.5)
    return model.eval(), shape


class Odd(nn.Module):
    """What the layer rules do not foresee: a bare parameter, a tied weight, a layer called twice, sequences, groups."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.rand(6))
        self.twice = nn.Linear(6, 6)
        self.tied = nn.Linear(6, 6, bias=False)
        self.unused = nn.Linear(2, 2)
        self.norm = nn.LayerNorm(6)
        self.folded = nn.Linear(3, 3)
        self.grouped = nn.Conv1d(2, 4, 3, groups=2)
        self.relu = nn.ReLU(inplace=True)
        self.head = nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:  # (B, 12)
        x = self.twice(torch.tanh(self.twice(x.view(len(x), 2, 6) * self.scale)))  # (B, 2, 6)
        x = self.norm(self.tied(x) + x @ self.tied.weight)
        x = torch.tanh(self.folded(x.reshape(-1, 3))).view(-1, 2, 6)
        return self.head(self.relu(self.grouped(x)).flatten(1))


def close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9 * float(expected.abs().max()))


def check(model: nn.Module, x: Tensor, memory: int, labels: Tensor | None = None, **options: object) -> None:
    """Rows, products by both ways and the Gram matrix agree with the twin."""
    outputs = "all" if labels is None else "correct"
    jacobian = Jacobian(model, x, outputs=outputs, labels=labels, memory=memory, **options)
    dense = slow.rows(model, x, labels, jacobian.names)
    assert jacobian.shape == tuple(dense.shape)
    generator = torch.Generator().manual_seed(1)
    close(jacobian.rows(), dense)
    if memory > 1:  # else a look at the data for each column
        close(jacobian.gram(), dense @ dense.T)
    for width in (1, 4):
        v = torch.randn(dense.shape[1], width, generator=generator, dtype=torch.float64)
        u = torch.randn(dense.shape[0], width, generator=generator, dtype=torch.float64)
        close(jacobian @ v, dense @ v)
        close(jacobian.T @ u, dense.T @ u)
        if width == 1:
            close(jacobian @ v[:, 0], dense @ v[:, 0])
            close(jacobian.T @ u[:, 0], dense.T @ u[:, 0])
        for found, expected in zip(jacobian.normal(v), (dense @ v, dense.T @ (dense @ v)), strict=True):
            close(found, expected)


CASES = [(name, memory) for name in NETWORKS for memory in (1 << 30, 1 << 19, 1) if memory > 1 or "resnet" not in name]


@pytest.mark.parametrize(("name", "memory"), CASES)
def test_products_rows_and_gram(name: str, memory: int) -> None:
    """Ample memory, memory for some rows, and none to speak of: one example at a time, without rows."""
    model, shape = network(name)
    x = torch.randn(3, *shape, dtype=torch.float64)
    check(model, x, memory)
    check(model, x, memory, labels=torch.tensor([2, 0, 1]))


def test_layers_that_have_no_rule() -> None:
    torch.manual_seed(0)
    model = Odd().double()
    x = torch.randn(4, 12, dtype=torch.float64)
    check(model, x, 1 << 30)
    by_rule = set(Jacobian(model, x)._rows.by_layer)
    assert {"twice.weight", "twice.bias", "head.weight", "head.bias", "unused.weight"} <= by_rule
    assert not {"scale", "tied.weight", "norm.weight", "folded.weight", "grouped.weight"} & by_rule


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.RNNBase]) -> None:
        super().__init__()
        self.layer, self.head = kind(3, 4, batch_first=True), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:  # (B, 2, 3)
        return self.head(self.layer(x)[0][:, -1])


class Attending(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(4, 2, 5, dropout=0.0, batch_first=True)
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:  # (B, 2, 4)
        return self.head(self.layer(x).mean(1))


@pytest.mark.parametrize("memory", [1 << 30, 1 << 12])
@pytest.mark.parametrize("kind", [nn.RNN, nn.GRU, nn.LSTM, None])
def test_layers_that_torch_func_does_not_know(kind: type[nn.RNNBase] | None, memory: int) -> None:
    torch.manual_seed(0)
    model = (Attending() if kind is None else Recurrent(kind)).double().eval()
    x = torch.randn(4, 2, 4 if kind is None else 3, dtype=torch.float64)
    check(model, x, memory)
    check(model, x, memory, labels=torch.tensor([0, 2, 1, 1]))
    dense = torch.linalg.svdvals(slow.rows(model, x, None, [name for name, _ in model.named_parameters()]))
    close(top_singular(Jacobian(model, x, memory=memory), 3, tolerance=1e-9, passes=20).values, dense[:3])


def test_parts_of_the_parameters() -> None:
    model, shape = network("resnet8")
    x = torch.randn(3, *shape, dtype=torch.float64)
    check(model, x, 1 << 30, parameters="layer2")
    check(model, x, 1 << 30, parameters=["head.weight", "layer1.0.bn1"])
    check(model, x, 1 << 30, parameters=lambda name, parameter: parameter.ndim == 1)
    check(model, x, 1 << 30, parameters=without_largest(model, 2))
    assert Jacobian(model, x, parameters="head").names == ["head.weight", "head.bias"]


def test_the_papers_part_of_resnet20_has_about_90_000_parameters() -> None:
    model = build("resnet20", (3, 32, 32), 10)
    names = without_largest(model, 5)
    assert sum(p.numel() for name, p in model.named_parameters() if name in names) == 85_402


def test_the_model_is_left_as_it_was() -> None:
    model, shape = network("cnn3")
    model.train()
    model.get_submodule("body.1").eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    modes = [module.training for module in model.modules()]
    jacobian = Jacobian(model, torch.randn(4, *shape, dtype=torch.float64))
    top_singular(jacobian, 3)
    exact_spectrum(jacobian)
    jacobian @ torch.ones(jacobian.shape[1], dtype=torch.float64)
    assert [module.training for module in model.modules()] == modes
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(p.grad is None and p.requires_grad for p in model.parameters())
    assert not any(module._forward_hooks for module in model.modules())


SMALL = ("mlp", "mlp-bn", "shallow", "lenet", "cnn3")


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("resnet8", torch.float32), *((name, d) for name in SMALL for d in (torch.float32, torch.float64))],
)
def test_singular_values_match_a_dense_svd(name: str, dtype: torch.dtype) -> None:
    """All by the Gram matrix, the top ones by Krylov steps on kept rows and on rows that are made again: 1e-4."""
    model, shape = network(name)
    model = model.to(dtype)
    x = torch.randn(8, *shape, dtype=dtype)
    left, expected, _ = torch.linalg.svd(slow.rows(model, x).double(), full_matrices=False)
    exact = exact_spectrum(Jacobian(model, x))
    large = expected > (1e-6 if dtype == torch.float64 else 1e-2) * expected[0]
    torch.testing.assert_close(exact.values[large], expected[large], rtol=1e-4, atol=0)
    rows = dtype.itemsize * expected.shape[0] * slow.rows(model, x[:1]).shape[1]
    for memory in (1 << 30, rows):
        found = top_singular(Jacobian(model, x, memory=memory), 6, tolerance=1e-5, passes=20)
        torch.testing.assert_close(found.values, expected[:6], rtol=1e-4, atol=0)
        assert found.residuals is not None
        assert bool(((found.values - expected[:6]).abs() <= found.residuals + 1e-5 * expected[0]).all())
        split = found.split(float(expected[2:4].mean()))
        assert split.basis.shape == (len(left), 3)
        overlap = torch.linalg.svdvals(split.basis.double().T @ left[:, :3])
        torch.testing.assert_close(overlap, torch.ones_like(overlap), rtol=0, atol=1e-3)


def test_triplets_and_their_error_estimates() -> None:
    model, shape = network("cnn3")
    x = torch.randn(20, *shape, dtype=torch.float64)
    dense = slow.rows(model, x)
    expected = torch.linalg.svdvals(dense)
    for passes in (1, 2, 3):
        found = top_singular(Jacobian(model, x, memory=1 << 18), 5, passes=passes, tolerance=0.0, width=8)
        assert found.passes == passes
        assert found.left is not None
        assert found.right is not None
        assert found.errors is not None
        torch.testing.assert_close(dense.T @ found.left, found.right * found.values, rtol=1e-8, atol=1e-8)
        error = expected[:5] - found.values
        assert bool((error >= -1e-9).all())  # Ritz values come from below
        assert bool((error <= found.errors + 1e-9).all())


def test_an_estimate_from_a_part_of_the_examples() -> None:
    model, shape = network("cnn3")
    x = torch.randn(100, *shape, dtype=torch.float64)
    expected = torch.linalg.svdvals(slow.rows(model, x))[:3]
    found = top_singular(Jacobian(model, x, memory=2 << 20), 3, passes=0)
    torch.testing.assert_close(found.values, expected, rtol=0.1, atol=0)
    with pytest.raises(InputError, match="no left singular vectors"):
        found.split(1.0)
    with pytest.raises(InputError, match="raise memory"):
        top_singular(Jacobian(model, x[:5], memory=1), 3, passes=0)


def test_exactly_clustered_inputs_have_a_jacobian_of_the_clusters_rank() -> None:
    """Section 3.1, ε₀ = 0: rank K, and S₊ is the vectors that are constant on each cluster."""
    torch.manual_seed(0)
    model = ShallowNet(7, 1, width=50, activation="softplus").double()
    member = torch.tensor([0, 1, 2, 0, 1, 2, 0, 0, 1, 2, 2, 1])
    x = nn.functional.normalize(torch.randn(3, 7, dtype=torch.float64), dim=1)[member]
    for found in (exact_spectrum(Jacobian(model, x)), top_singular(Jacobian(model, x), 5)):
        assert int((found.values > 1e-6 * found.values[0]).sum()) == 3
        split = found.split(1e-6 * float(found.values[0]))
        constant = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)[member]
        corruption = torch.zeros(12, dtype=torch.float64)
        corruption[[0, 3]] = torch.tensor([1.0, -1.0], dtype=torch.float64)
        assert split.shares(constant).information == pytest.approx(1.0, abs=1e-6)
        assert split.shares(corruption).nuisance == pytest.approx(1.0, abs=1e-6)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), rows=st.integers(2, 9), ratio=st.floats(0.05, 0.95))
def test_shares(seed: int, rows: int, ratio: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    left, values, _ = torch.linalg.svd(torch.randn(rows, rows, generator=generator, dtype=torch.float64))
    vector = torch.randn(rows, generator=generator, dtype=torch.float64)
    alpha = ratio * float(values[0])
    split = Split(alpha, left[:, values >= alpha])
    assert split.shares(vector) == pytest.approx(slow.shares(left, values, alpha, vector), abs=1e-9)
    inside, outside = split.project(vector)
    torch.testing.assert_close(inside + outside, vector)
    assert abs(float(inside @ outside)) < 1e-9


def test_label_vectors() -> None:
    model, shape = network("mlp")
    x = torch.randn(4, *shape, dtype=torch.float64)
    labels, truth = torch.tensor([0, 1, 2, 1]), torch.tensor([0, 2, 2, 1])
    everything = label_vectors(Jacobian(model, x), labels, truth)
    probability = model(x).softmax(dim=1).detach()
    y = torch.eye(3, dtype=torch.float64)
    torch.testing.assert_close(everything["residual"], (probability - y[labels]).flatten())
    assert torch.equal(everything["noise"].view(4, 3)[1], torch.tensor([0.0, 1.0, -1.0], dtype=torch.float64))
    correct = label_vectors(Jacobian(model, x, outputs="correct", labels=labels), labels, truth, residual="outputs")
    assert torch.equal(correct["labels"], torch.ones(4, dtype=torch.float64))
    assert torch.equal(correct["noise"], torch.tensor([0.0, 1.0, 0.0, 0.0], dtype=torch.float64))
    torch.testing.assert_close(correct["residual"], model(x).detach()[torch.arange(4), labels] - 1)


def test_counting() -> None:
    model, shape = network("mlp")
    jacobian = Jacobian(model, torch.randn(9, *shape, dtype=torch.float64))
    exact = exact_spectrum(jacobian)
    assert exact.count(0.1) == int((exact.values / exact.values[0] > 0.1).sum())
    few = top_singular(jacobian, 2)
    with pytest.raises(InputError, match="compute more"):
        few.count(0.01)
    with pytest.raises(InputError, match="below all 2 computed"):
        few.split(1e-6)


def test_progress_counts_the_examples() -> None:
    model, shape = network("mlp")
    seen: list[tuple[int, int]] = []
    x = torch.randn(5, *shape, dtype=torch.float64)
    jacobian = Jacobian(model, x, batch_size=2, progress=lambda done, total: seen.append((done, total)))
    jacobian.rows()
    assert seen == [(2, 5), (4, 5), (5, 5)]


class Mixing(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x - x.mean(dim=0))


def test_mistakes() -> None:
    model, shape = network("mlp")
    x = torch.randn(4, *shape, dtype=torch.float64)
    with pytest.raises(InputError, match="did you mean 'correct'"):
        Jacobian(model, x, outputs="corect")
    with pytest.raises(InputError, match="needs the labels"):
        Jacobian(model, x, outputs="correct")
    with pytest.raises(InputError, match=r"labels must lie in 0\.\.2"):
        Jacobian(model, x, outputs="correct", labels=torch.tensor([0, 1, 3, 0]))
    with pytest.raises(InputError, match="one for each input"):
        Jacobian(model, x, outputs="correct", labels=torch.tensor([0, 1]))
    with pytest.raises(InputError, match="unknown parameter or prefix 'haed'"):
        Jacobian(model, x, parameters="haed")
    with pytest.raises(InputError, match="no parameter was chosen"):
        Jacobian(model, x, parameters=lambda name, parameter: False)
    with pytest.raises(InputError, match="float tensor"):
        Jacobian(model, x.long())
    with pytest.raises(InputError, match="must be finite"):
        Jacobian(model, x / 0)
    with pytest.raises(InputError, match="bring one to the other's type"):
        Jacobian(model, x.float())
    with pytest.raises(InputError, match="memory must be a whole number, 1 or more"):
        Jacobian(model, x, memory=0)
    with pytest.raises(InputError, match="depend on the other examples"):
        Jacobian(Mixing(6, 2).double(), x)
    with pytest.raises(InputError, match=r"to \(B, K\)"):
        Jacobian(nn.Sequential(model, nn.Flatten(0)), x)
    jacobian = Jacobian(model, x)
    with pytest.raises(InputError, match="u must be"):
        jacobian.T @ torch.zeros(5)
    with pytest.raises(InputError, match="k must be a whole number, from 1 to 12, got 13"):
        top_singular(jacobian, 13)
    with pytest.raises(InputError, match="not zero"):
        exact_spectrum(jacobian).split(0.1).shares(torch.zeros(12))


class Detached(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 3), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.first(x) + self.second(input=x).detach()


def test_layers_that_do_not_reach_the_outputs_or_are_called_by_keyword() -> None:
    torch.manual_seed(0)
    model, x = Detached().double(), torch.randn(3, 6, dtype=torch.float64)
    check(model, x, 1 << 30)
    model = nn.Sequential(nn.Linear(6, 3), nn.Softplus()).double()
    check(model, x, 1 << 30)

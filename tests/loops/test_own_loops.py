"""Our losses in loops of one's own: gradient accumulation, mixed precision, compiled models; and in skorch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import noiseproof as nf
from noiseproof.errors import InputError

N, D, K = 24, 5, 3


def data(seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(N, D, generator=generator), torch.randint(0, K, (N,), generator=generator)


def network(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(D, 16), nn.ReLU(), nn.Linear(16, K))


@pytest.mark.parametrize("variant", ["authors", "paper"])
def test_accumulating_is_one_large_batch(variant: str) -> None:
    x, y = data()
    options: dict[str, Any] = {"lr_u": 10.0, "lr_v": 100.0, "variant": variant, "std": 0.01}
    weights, states = [], []
    for parts in (1, 4):
        model, criterion = network(), nf.SOPLoss(N, K, accumulate=parts, **options)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for epoch in range(3):
            for index in torch.randperm(N, generator=torch.Generator().manual_seed(epoch)).chunk(parts):
                (criterion(model(x[index]), y[index], index) / parts).backward()
            optimizer.step()
            optimizer.zero_grad()
            criterion.step(lr=0.1)
        weights.append(torch.cat([one.flatten() for one in model.parameters()]))
        states.append(criterion.state_dict())
    torch.testing.assert_close(weights[1], weights[0])
    for key, value in states[0].items():
        torch.testing.assert_close(states[1][key], value)
    assert (states[0]["model.v"].abs() > 0.02).any()  # it moved


def test_accumulating_too_long() -> None:
    x, y = data()
    criterion, model = nf.SOPLoss(N, K, accumulate=2), network()
    first, second, third = torch.arange(N).chunk(3)
    for index in (first, second):
        criterion(model(x[index]), y[index], index)
    with pytest.raises(InputError, match=r"came without a step.*accumulate=k"):
        criterion(model(x[third]), y[third], third)
    criterion.step()
    criterion(model(x[third]), y[third], third)
    with pytest.raises(InputError, match="accumulate must be"):
        nf.SOPLoss(N, K, accumulate=0)


LOSSES: dict[str, Callable[[], nn.Module]] = {
    "sop": lambda: nf.SOPLoss(N, K),
    "elr": lambda: nf.ELRLoss(N, K),
    "gce": nf.GCELoss,
    "sce": nf.SCELoss,
    "refine": nf.RefineLoss,
    "forward": lambda: nf.ForwardLoss(torch.eye(K) * 0.7 + 0.1),
    "backward": lambda: nf.BackwardLoss(torch.eye(K) * 0.7 + 0.1),
}


def call(name: str, criterion: nn.Module, logits: Tensor, label: Tensor) -> Tensor:
    extra = {"sop": [torch.arange(N)], "elr": [torch.arange(N)], "refine": [5.0]}.get(name, [])
    return criterion(logits, label, *extra)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_mixed_precision(name: str, dtype: torch.dtype) -> None:
    """Under autocast the logits are of half precision, and the loss is that of the same logits in single."""
    x, y = data()
    model = network()
    with torch.autocast("cpu", dtype=dtype):
        logits = model(x)
        assert logits.dtype == dtype
        loss = call(name, LOSSES[name](), logits, y)
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, call(name, LOSSES[name](), logits.float(), y))
    loss.backward()
    assert all(bool(one.grad.isfinite().all()) for one in model.parameters() if one.grad is not None)


@pytest.mark.parametrize("name", ["sop", "elr"])
def test_what_overflows_is_forgotten(name: str) -> None:
    """A batch whose logits overflow, which a GradScaler skips, must not stay in the state of an example."""
    x, y = data()
    criterion, model = LOSSES[name](), network()
    logits = model(x).detach()
    logits[3] = torch.tensor([float("nan"), 0.0, 1.0])
    logits[4, 0] = float("inf")
    call(name, criterion, logits, y)
    if name == "sop":
        criterion.step()  # type: ignore[operator]
    assert all(bool(one.isfinite().all()) for one in criterion.state_dict().values())


@pytest.mark.parametrize("name", LOSSES)
def test_compiled_models(name: str) -> None:
    x, y = data()
    values = []
    for compile in (lambda model: model, lambda model: torch.compile(model, backend="eager")):
        model, criterion = network(), LOSSES[name]()
        loss = call(name, criterion, compile(model)(x), y)
        loss.backward()
        values.append((loss, model[0].weight.grad))
    torch.testing.assert_close(values[0], values[1])


class Wide(nf.models.Backbone):
    num_features = 16

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(D, 16), nn.Linear(16, K)

    def features(self, x: Tensor) -> Tensor:
        return self.body(x).relu()


def test_fit_takes_what_torch_compile_made(tmp_path: Path) -> None:
    x, y = data()
    plain, compiled = Wide(), Wide()
    compiled.load_state_dict(plain.state_dict())
    counted = []

    def backend(graph: torch.fx.GraphModule, inputs: Any) -> Any:
        counted.append(graph)
        return graph.forward

    expected = nf.fit(plain, (x, y), "elr", epochs=3, out=tmp_path / "plain")
    result = nf.fit(torch.compile(compiled, backend=backend), (x, y), "elr", epochs=3, out=tmp_path / "run")
    assert counted  # it was run compiled
    np.testing.assert_allclose(result.predict_proba(x), expected.predict_proba(x), atol=1e-6)
    assert type(result.model) is Wide
    assert set(result.model.state_dict()) == set(plain.state_dict())  # without _orig_mod
    np.testing.assert_allclose(
        nf.load_model(tmp_path / "run", model=Wide).predict_proba(x), result.predict_proba(x), atol=1e-6
    )
    assert nf.load_backbone(tmp_path / "run", model=Wide).weights.keys() == {"body.weight", "body.bias"}
    nf.fit(Wide(), (x, y), "elr", epochs=3, out=tmp_path / "run", resume=True)  # the same run, compiled or not


def test_skorch() -> None:
    skorch = pytest.importorskip("skorch")
    x, y = data()
    torch.manual_seed(0)
    net = skorch.NeuralNetClassifier(
        network, criterion=nf.GCELoss, criterion__q=0.5, max_epochs=30, lr=0.5, verbose=0, train_split=None
    )
    net.fit(x.numpy(), y.numpy())
    assert net.history[-1]["train_loss"] < net.history[0]["train_loss"]

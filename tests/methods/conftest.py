"""A run small enough to hold in the head."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from noiseproof.method import Batch, Method, Run
from noiseproof.models.backbone import Backbone


class Points:
    """A training set of points in the plane: all that a method asks of the real one."""

    def __init__(self, n: int, num_classes: int) -> None:
        generator = torch.Generator().manual_seed(1)
        self.inputs = torch.randn(n, 2, generator=generator)
        self.labels = torch.randint(num_classes, (n,), generator=generator)

    input_shape = (2,)

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, index: Tensor) -> Tensor:
        return self.inputs[index]


class Tiny(nn.Sequential, Backbone):
    """Two layers, with batch norm between."""

    def __init__(self, num_classes: int) -> None:
        super().__init__(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, num_classes))
        self.num_features = 8

    @property
    def head(self) -> nn.Module:  # type: ignore[override]
        return self[3]

    def features(self, x: Tensor) -> Tensor:
        return nn.Sequential(*list(self)[:3])(x)


def _make_run(num_models: int = 1, n: int = 12, num_classes: int = 3, epochs: int = 6, **fields: Any) -> Run:
    torch.manual_seed(0)
    models = nn.ModuleList(Tiny(num_classes) for _ in range(num_models))
    return Run(
        models=models,
        data=Points(n, num_classes),  # type: ignore[arg-type]
        num_classes=num_classes,
        epochs=epochs,
        batch_size=n,
        device=torch.device("cpu"),
        generator=torch.Generator().manual_seed(2),
        normalize=lambda x: x,  # type: ignore[arg-type]
        **({"val": Points(n, num_classes)} | fields),
    )


@pytest.fixture
def make_run() -> Callable[..., Run]:
    """Makes a run: `make_run(num_models=2, epochs=4)`."""
    return _make_run


@pytest.fixture
def train() -> Callable[..., list[float]]:
    """A training loop of the hooks a method may rely on, `train(method, run, epochs)`; returns the losses."""

    def _train(method: Method, run: Run, epochs: int, weight: Tensor | None = None) -> list[float]:
        optimizer = torch.optim.SGD(run.models.parameters(), lr=0.1)
        losses = []
        for _ in range(epochs):
            method.before_epoch(run)
            run.models.train()
            everyone = torch.arange(len(run.data))
            views = (run.data.take(everyone),) * method.num_views
            batch = Batch(views, run.data.labels, everyone)
            batch.weight = weight
            optimizer.zero_grad()
            loss = method.loss(run, batch)
            loss.backward()
            optimizer.step()
            method.after_step(run, batch)
            run.epoch += 1
            losses.append(loss.item())
        return losses

    return _train

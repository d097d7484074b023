"""Examples that count more or less than others, under any method."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import noiseproof as nf
from noiseproof.errors import InputError
from noiseproof.method import Batch, Method, Run

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(40, 3)).astype("float32"), np.arange(40) % 2


class Seen(Method):
    """Cross-entropy that remembers the examples it was shown, and their weights."""

    name = "seen"

    def start(self, run: Run) -> None:
        self.register_buffer("weight", torch.zeros(len(run.data)))

    def loss(self, run: Run, batch: Batch) -> torch.Tensor:
        assert batch.weight is not None
        self.weight[batch.index] = batch.weight
        each = torch.nn.functional.cross_entropy(run.model(batch.views[0]), batch.label, reduction="none")
        return batch.mean(each)


def weights_of(result: nf.FitResult) -> list[torch.Tensor]:
    return list(result.model.state_dict().values())


@pytest.mark.parametrize("method", ["ce", "elr", "sop", "co_teaching"])
def test_weights_of_one_change_nothing(method: str) -> None:
    plain = nf.fit("mlp", (X, Y), method, epochs=2)
    ones = nf.fit("mlp", nf.LabeledData(X, Y, weights=np.full(40, 3.0)), method, epochs=2)
    for a, b in zip(weights_of(plain), weights_of(ones), strict=True):
        torch.testing.assert_close(a, b)


def test_what_weighs_nothing_is_never_visited_and_the_rest_as_it_weighs() -> None:
    weights = np.where(np.arange(40) < 10, 0.0, np.where(np.arange(40) < 20, 1.0, 3.0))
    result = nf.fit("mlp", nf.LabeledData(X, Y, weights=weights), Seen(), epochs=1)
    seen = result.method.inner.weight  # type: ignore[union-attr]
    assert not seen[:10].any()
    torch.testing.assert_close(seen[20:] / seen[19], torch.full((20,), 3.0))
    assert seen[10:].mean() == pytest.approx(1)


def test_selections_and_weights_multiply() -> None:
    weights = np.r_[np.zeros(4), np.ones(36)]
    result = nf.fit("mlp", nf.LabeledData(X, Y, weights=weights), "crust(ce, fraction=0.5)", epochs=2, batch_size=8)
    assert result.history[-1]["examples"] <= 36


def test_a_subset_keeps_its_weights_and_a_resumed_run_its_own(tmp_path: Path) -> None:
    data = nf.LabeledData(X, Y, weights=np.arange(40))
    assert data.subset([3, 5]).weights.tolist() == [3, 5]  # type: ignore[union-attr]
    nf.fit("mlp", data, "ce", epochs=1, val=0.2, out=tmp_path / "run")
    other = nf.LabeledData(X, Y, weights=np.arange(40)[::-1].copy())
    with pytest.raises(InputError, match="was begun with data="):
        nf.fit("mlp", other, "ce", epochs=1, val=0.2, out=tmp_path / "run", resume=True)


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        (np.ones(39), r"weights must be numbers \(40,\)"),
        (np.full(40, np.nan), "weights must be finite and not negative, got nan at row 0"),
        (-np.ones(40), "got -1.0 at row 0"),
        (np.zeros(40), "weights are all 0"),
        (["x"] * 40, r"weights must be numbers \(40,\)"),
    ],
)
def test_bad_weights(weights: object, words: str) -> None:
    with pytest.raises(InputError, match=words):
        nf.LabeledData(X, Y, weights=weights)


def test_balanced_classes_weigh_alike_and_a_resumed_run_knows_it(tmp_path: Path) -> None:
    labels = np.array([0] * 30 + [1] * 10)
    method = Seen()
    result = nf.fit("mlp", (X, labels), method, epochs=1, class_weight="balanced", out=tmp_path)
    weight = method.weight.double().numpy()
    assert weight[labels == 0].sum() == pytest.approx(weight[labels == 1].sum())
    np.testing.assert_allclose(weight * 0 + result.run.data.weights.numpy(), 40 / (2 * np.bincount(labels))[labels])
    for other in (None, {"0": 2}):
        with pytest.raises(InputError, match="was begun with"):
            nf.fit("mlp", (X, labels), Seen(), epochs=1, class_weight=other, out=tmp_path, resume=True)


def test_weights_of_classes_and_of_examples_multiply() -> None:
    given = np.where(np.arange(40) < 20, 1.0, 3.0)
    result = nf.fit("mlp", nf.LabeledData(X, Y, weights=given), "ce", epochs=1, class_weight={1: 2})
    np.testing.assert_allclose(result.run.data.weights.numpy(), given * np.where(Y == 1, 2, 1))
    names = nf.LabeledData(X, np.where(Y == 1, "cat", "dog"))
    found = nf.fit("mlp", names, "ce", epochs=1, class_weight={"cat": 2}).run.data
    np.testing.assert_allclose(found.weights.numpy(), np.where(Y == 1, 2, 1))
    with pytest.raises(InputError, match="unknown class in class_weight 'cow'; choose from cat, dog"):
        nf.fit("mlp", names, "ce", epochs=1, class_weight={"cow": 2})

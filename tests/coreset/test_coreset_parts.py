"""Groups of points dealt out to processes, as each of several sees it."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from noiseproof import distributed, models
from noiseproof.coreset import parts
from noiseproof.coreset.gradients import feature_gradients, last_layer_gradients
from noiseproof.errors import InputError


@pytest.mark.parametrize(
    ("sizes", "world", "owner"),
    [
        ([5, 4, 3, 3], 2, [0, 1, 1, 0]),  # the largest first, to whoever has least
        ([1, 1, 1, 1], 3, [0, 1, 2, 0]),  # of equals the first
        ([2, 9, 2], 2, [1, 0, 1]),
        ([3, 2], 1, [0, 0]),
    ],
)
def test_the_largest_group_goes_first_to_whoever_has_least(
    sizes: list[int], world: int, owner: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(distributed, "world", lambda: world)
    groups = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    groups = groups[torch.randperm(len(groups), generator=torch.Generator().manual_seed(0))]
    assert parts.of_groups(groups).tolist() == [owner[group] for group in groups.tolist()]


def test_what_all_say_comes_back_in_the_order_of_the_points(monkeypatch: pytest.MonkeyPatch) -> None:
    place, asked = torch.tensor([0, 2, 2, 0, 2]), []
    monkeypatch.setattr(distributed, "world", lambda: 3)
    monkeypatch.setattr(distributed, "rank", lambda: 2)
    assert parts.mine(place).tolist() == [1, 2, 4]

    def gather(values: torch.Tensor, sizes: list[int] | None = None) -> torch.Tensor:
        asked.append((values.tolist(), sizes))
        return torch.tensor([10, 13, 11, 12, 14]) if sizes else torch.tensor([3, 0, 4])

    monkeypatch.setattr(distributed, "gather", gather)
    assert parts.gathered(torch.tensor([11, 12, 14]), place).tolist() == [10, 11, 12, 13, 14]
    assert parts.total(torch.tensor(4)) == 7
    assert asked == [([11, 12, 14], [2, 0, 3]), ([4], None)]


def test_gradients_need_a_row_for_each_example() -> None:
    p, label = torch.full((3, 2), 0.5), torch.tensor([0, 1, 1])
    for bad in ((p[0], label), (p, label[:2]), (p, label[:, None])):
        with pytest.raises(InputError, match="need probabilities"):
            last_layer_gradients(*bad)
    with pytest.raises(InputError, match="a row for each of 3 examples, got 2"):
        last_layer_gradients(p, label, torch.ones(2, 4))
    with pytest.raises(InputError, match="a row for each of 3 examples, got 1"):
        last_layer_gradients(p, label, torch.ones(1, 3))
    assert last_layer_gradients(p, label).tolist() == [[-0.5, 0.5], [0.5, -0.5], [0.5, -0.5]]
    assert p.tolist() == [[0.5, 0.5]] * 3  # as it was


def test_gradients_of_the_last_layer_are_those_of_autograd() -> None:
    """Of the logits, of the weights and of the features, one example after the other."""
    generator = torch.Generator().manual_seed(0)
    model = models.build("mlp", (5,), 3, widths=[4]).double().eval()
    x, label = torch.randn(6, 5, generator=generator).double(), torch.tensor([0, 1, 2, 2, 1, 0])
    h = model.features(x).detach()
    logits = model.head(h).detach()
    p = logits.softmax(dim=1)
    to_logits, to_weights, to_features = last_layer_gradients(p, label), last_layer_gradients(p, label, h.float()), []
    for i in range(6):
        z, weight, inner = (one.clone().requires_grad_() for one in (logits[i], model.head.weight.detach(), h[i]))
        (found,) = torch.autograd.grad(F.cross_entropy(z, label[i]), z)
        torch.testing.assert_close(to_logits[i], found)
        (found,) = torch.autograd.grad(F.cross_entropy(F.linear(h[i], weight, model.head.bias), label[i]), weight)
        torch.testing.assert_close(to_weights[i].view_as(weight), found, rtol=1e-5, atol=1e-6)
        (found,) = torch.autograd.grad(F.cross_entropy(model.head(inner), label[i]), inner)
        to_features.append(found)
    with torch.no_grad():  # where it is asked from
        rows, said = feature_gradients(model, x, label)
    torch.testing.assert_close(rows, torch.stack(to_features))
    torch.testing.assert_close(said, logits)
    assert not said.requires_grad
    assert all(one.grad is None for one in model.parameters())

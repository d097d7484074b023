"""Where a network's head begins: one rule for ours, timm's, torchvision's, transformers' and a user's own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from noiseproof.data.packing import Packed
from noiseproof.errors import InputError
from noiseproof.models.backbone import Backbone
from noiseproof.models.inference import predictions

if TYPE_CHECKING:
    from noiseproof.data import LabeledData

MOST_FEATURES = 2048  # that a head, or a network, may be given to be told by them


def head_of(network: nn.Module) -> list[nn.Module]:
    """The modules that turn features into logits.

    Where a library says which they are, by what it says: our `head`, timm's `get_classifier()`, all but the
    `base_model` of transformers. Else the last child that has weights, looked for inside as long as there is only one:
    torchvision's `fc`, `classifier` or `heads`, the last layer of an `nn.Sequential`.
    """
    base = getattr(network, "base_model", None)
    if isinstance(network, Backbone):
        return [network.head]
    if isinstance(base, nn.Module) and base is not network:
        return [child for child in network.children() if all(base is not one for one in child.modules())]
    if callable(told := getattr(network, "get_classifier", None)):
        found = told()
        return [found] if isinstance(found, nn.Module) else list(found)  # some have two
    weighty = [child for child in network.children() if next(child.parameters(), None) is not None]
    if len(weighty) == 1:
        return head_of(weighty[0])
    return weighty[-1:] or [network]


def split(networks: Iterable[nn.Module]) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """The parameters of backbones, and those of heads.

    Raises:
        InputError: a network is all head.
    """
    below: list[nn.Parameter] = []
    heads: list[nn.Parameter] = []
    for network in networks:
        own = [one for part in head_of(network) for one in part.parameters()]
        known = {id(one) for one in own}
        rest = [one for one in network.parameters() if id(one) not in known]
        if not rest:
            raise InputError(f"{type(network).__name__} is all head: there is no backbone below its last layer")
        below, heads = below + rest, heads + own
    return below, heads


def given_to_head(
    network: nn.Module,
    normalize: Callable[[Tensor], Tensor],
    data: LabeledData,
    device: torch.device,
    index: Tensor,
    *,
    inputs: bool = False,
) -> Tensor:
    """What the head of a network is given of the rows `index` (n,) of a data set: features (n, F), on the CPU.

    The logarithms of its predictions (n, K), where that is no vector of at most `MOST_FEATURES` numbers. What has
    overflowed is 0: it tells nothing.

    Args:
        inputs: beside it what the network itself is given, in a row, where these are as few, and no tokens.
    """
    seen: dict[nn.Module, Any] = {}

    def see(module: nn.Module, given: tuple[Any, ...]) -> None:
        seen[module] = given[0] if given else None

    found, head, numbers = [], head_of(network)[0], inputs and not isinstance(data.inputs, Packed)
    hooks = [module.register_forward_pre_hook(see) for module in {head, *([network] if numbers else [])}]
    try:
        for rows, probability in predictions(nn.ModuleList([network]), normalize, data, device, index):
            x: Any = seen.get(head)
            fits = isinstance(x, Tensor) and x.ndim == 2 and _is_few(x, len(rows))
            here = [x.float().cpu() if fits else probability.clamp_min(1e-12).log()]
            own: Any = seen.get(network)
            if numbers and head is not network and _is_few(own, len(rows)):
                here.append(own.flatten(1).float().cpu())
            found.append(torch.cat(here, dim=1))
            seen.clear()
    finally:
        for hook in hooks:
            hook.remove()
    return torch.cat(found).nan_to_num(0.0, 0.0, 0.0)


def _is_few(x: Any, n: int) -> bool:
    """Whether it is a tensor of n rows of at most `MOST_FEATURES` numbers."""
    return isinstance(x, Tensor) and len(x) == n and x[0].numel() <= MOST_FEATURES


def freeze_backbone(network: nn.Module) -> None:
    """Train the head alone: what lies below keeps its weights, and its batch norms and dropout predict as they are.

    Raises:
        InputError: it is all head.
    """
    for parameter in split([network])[0]:
        parameter.requires_grad_(False)
    head = {id(one) for part in head_of(network) for one in part.modules()}
    for module in network.modules():
        if not any(id(one) in head for one in module.modules()):
            module.training = False

"""Files of weights, of this library or another, as the beginning of a network: matched by name, never unpickled."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from noiseproof.errors import InputError, reason
from noiseproof.models.parts import head_of

_INSIDE = ("state_dict", "model_state_dict", "model", "weights")  # where training scripts keep them
_COUNTER = "num_batches_tracked"  # of a batch norm; older files have none
_WRAPPERS = ("module.", "_orig_mod.")  # of DataParallel and of compiled modules
_TOLD = 3  # names in a sentence


def start_with(networks: Iterable[nn.Module], path: str | Path) -> None:
    """Fill networks with the weights of a file, .safetensors or .pth; a warning says what beside the head is left out.

    Raises:
        InputError: it cannot be read, or is of another network.
    """
    weights = read(Path(path))
    for network in networks:
        fill(network, weights, str(path))


def read(path: Path) -> dict[str, Tensor]:
    """The weights in a file, by name.

    Raises:
        InputError: there are none.
    """
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            held: Any = load_file(path)
        else:
            held = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise InputError(f"there is no file {path}; pass weights as .safetensors or .pth") from None
    except Exception as error:  # whatever a damaged file may raise in either reader
        raise InputError(f"{path} holds no weights that can be read ({reason(error)})") from error
    while isinstance(held, dict) and (inner := next((key for key in _INSIDE if isinstance(held.get(key), dict)), None)):
        held = held[inner]
    named = held.items() if isinstance(held, dict) else ()
    found = {str(key): value for key, value in named if isinstance(value, Tensor)}
    if not found:
        raise InputError(f"{path} holds no weights by name; save a network's state_dict()")
    while prefix := next((one for one in _WRAPPERS if all(name.startswith(one) for name in found)), None):
        found = {name.removeprefix(prefix): value for name, value in found.items()}
    return found


def fill(network: nn.Module, weights: dict[str, Tensor], source: str) -> None:
    """Copy into a network the weights of its names; the head stays fresh where its shape differs.

    Raises:
        InputError: none of the backbone's names is there, or one is of another shape.
    """
    own = network.state_dict()
    inside = {id(one) for part in head_of(network) for one in part.state_dict(keep_vars=True).values()}
    head = {name for name, value in network.state_dict(keep_vars=True).items() if id(value) in inside}
    odd = [name for name in own.keys() & weights.keys() if own[name].shape != weights[name].shape]
    for name in sorted(set(odd) - head):
        raise InputError(
            f"{source} does not fit the network: {name} is {tuple(weights[name].shape)} there and "
            f"{tuple(own[name].shape)} here; choose the model it was trained with"
        )
    taken = {name: weights[name] for name in own.keys() & weights.keys() if name not in odd}
    if not taken.keys() - head:
        raise InputError(
            f"{source} does not fit the network: it has {_some(weights)}, the network {_some(own)}; "
            "choose the model it was trained with"
        )
    network.load_state_dict(taken, strict=False)
    fresh = [name for name in own if name not in taken and not name.endswith(_COUNTER)]
    unused = [name for name in weights if name not in own]
    told = ([f"fresh are {_some(fresh)}"] if fresh else []) + ([f"unused are {_some(unused)}"] if unused else [])
    if unused or set(fresh) - set(odd):  # a head of other classes alone is no news
        warnings.warn(f"of {source} {len(taken)} of {len(weights)} tensors were taken; {'; '.join(told)}", stacklevel=2)


def _some(names: Iterable[str]) -> str:
    listed = list(names)
    more = f" and {len(listed) - _TOLD} more" if len(listed) > _TOLD else ""
    return ", ".join(listed[:_TOLD]) + more

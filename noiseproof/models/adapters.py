"""Models of other libraries in our loop: inputs by name, and logits inside of what they return."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from noiseproof.data.packing import Packing


def adapt(module: nn.Module, packing: Packing | None = None) -> nn.Module:
    """Let a module take rows of `packing` as the tensors they stand for, and give logits (B, K) alone.

    By hooks, so that it stays the same module, with its own names of weights. It may return an object with `.logits`,
    as those of Hugging Face's transformers do, or a dict with them. Of what `torch.compile` made it is the module
    inside, compiled in place: its weights keep their names, and it is still of its own class.
    """
    if isinstance(inner := getattr(module, "_orig_mod", None), nn.Module):
        inner._compiled_call_impl = module.dynamo_ctx(inner._call_impl)  # type: ignore[operator]
        module = inner
    for handle in vars(module).pop("_noiseproof", ()):
        handle.remove()
    handles = [module.register_forward_hook(_logits)]
    if packing is not None:
        handles.append(module.register_forward_pre_hook(_Unpack(packing), with_kwargs=True))
    module._noiseproof = tuple(handles)  # type: ignore[assignment]
    return module


class _Unpack:
    def __init__(self, packing: Packing) -> None:
        self.packing = packing

    def __call__(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        inputs = self.packing.unpack(args[0])
        return ((inputs, *args[1:]), kwargs) if isinstance(inputs, Tensor) else (args[1:], inputs | kwargs)


def logits_of(returned: Any) -> Any:
    """The logits inside of what a model returns, which may be them, a dict with them, or an object with `.logits`."""
    if isinstance(returned, Tensor):
        return returned
    return (
        returned["logits"]
        if isinstance(returned, Mapping) and "logits" in returned
        else getattr(returned, "logits", None)
    )


def _logits(module: nn.Module, args: Any, returned: Any) -> Any:
    return None if isinstance(returned, Tensor) else logits_of(returned)  # None: as it is

"""The optimizers of the models' weights: a row of a table for each that has a name."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from torch import nn
from torch.optim import LBFGS, SGD, Adadelta, Adam, AdamW, Optimizer

from noiseproof import checks
from noiseproof.errors import InputError, reason, unknown
from noiseproof.models import parts

Choice: TypeAlias = str | type[Optimizer] | Callable[[list[nn.Parameter]], Optimizer]


class Row(NamedTuple):
    """An optimizer, and what it takes beside `lr` and `weight_decay`."""

    kind: type[Optimizer]
    more: Callable[[float], dict[str, Any]]  # of the momentum
    fused: bool  # has a kernel that updates all tensors in one pass: on a small network a tenth of a step


OPTIMIZERS = {
    "sgd": Row(SGD, lambda momentum: {"momentum": momentum}, fused=True),
    "adam": Row(Adam, lambda momentum: {"betas": (momentum, 0.999)}, fused=True),
    "adamw": Row(AdamW, lambda momentum: {"betas": (momentum, 0.999)}, fused=True),
    "adadelta": Row(Adadelta, lambda momentum: {}, fused=False),
}


def check(name: str, value: Any) -> Choice:
    """A name of the table, a class of torch.optim, or a function that makes an optimizer.

    Raises:
        InputError: it is none of these.
    """
    if isinstance(value, Optimizer):
        kind = type(value).__name__
        raise InputError(
            f"{name} must be made for the models that are trained: pass the class, {kind}, or a function, "
            f"lambda parameters: {kind}(parameters, lr=…)"
        )
    if isinstance(value, str) and value not in OPTIMIZERS:
        raise unknown("optimizer", value, OPTIMIZERS)
    optimizes = not isinstance(value, type) or (issubclass(value, Optimizer) and value is not LBFGS)  # it has own steps
    fits = isinstance(value, str) or (callable(value) and optimizes)
    checks.require(fits, name, value, "a name, a class of torch.optim, or a function from parameters to an optimizer")
    return value


def build(
    choice: Choice, models: nn.ModuleList, lr: float, momentum: float, weight_decay: float, backbone_rate: float = 1.0
) -> Optimizer:
    """The optimizer of the models' trainable weights; with a `backbone_rate`, in two groups, the heads' first.

    A class takes of `lr`, `momentum` and `weight_decay` what it knows; what a function makes is taken as it is.

    Raises:
        InputError: there is nothing to train, or the function makes something else.
    """
    parameters = [parameter for parameter in models.parameters() if parameter.requires_grad]
    if not parameters:
        raise InputError("the model has no trainable parameter; set requires_grad on what should be trained")
    groups: list[Any] = parameters
    if backbone_rate != 1:
        below, heads = ([one for one in part if one.requires_grad] for part in parts.split(models))
        if not isinstance(choice, str | type) or not below:
            which = "an optimizer by name or class" if below else "a backbone that is trained"
            raise InputError(f"backbone_rate={backbone_rate} needs {which}; leave it out")
        groups = [{"params": heads}, {"params": below, "lr": lr * backbone_rate}]
    row = next((row for name, row in OPTIMIZERS.items() if choice in (name, row.kind)), None)
    if row is not None:
        fused = row.fused and all(parameter.is_floating_point() for parameter in parameters)
        more = row.more(momentum) | ({"fused": True} if fused else {})
        return row.kind(groups, lr=lr, weight_decay=weight_decay, **more)  # type: ignore[call-arg]
    if isinstance(choice, type):
        given = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay}
        known = inspect.signature(choice).parameters
        return choice(groups, **{key: value for key, value in given.items() if key in known})
    assert callable(choice)
    try:
        made = choice(parameters)
    except TypeError as error:
        raise InputError(f"optimizer must be a function from parameters to an optimizer ({reason(error)})") from error
    if not isinstance(made, Optimizer):
        raise InputError(f"optimizer must make a torch.optim.Optimizer of the parameters, got {type(made).__name__}")
    return made

"""What a checkpoint must hold for the loop to go on from it: checked before any of it is put in place."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from noiseproof.method import Run
from noiseproof.runs import structure
from noiseproof.runs.structure import Damaged, Some

_COUNT = range(2**53)
_EVERY_EPOCH = ("epoch", "step", "lr", "loss", "examples", "distance", "seconds")
_MEASURED = ("train_", "val_", "test_")  # in every record, or in none


def check(
    path: Path, state: dict[str, Any], own: dict[str, Any], optimizers: list[Optimizer], run: Run, *, whole: bool
) -> None:
    """Compare the saved state of a file with the loop's `own`, which it is to replace.

    Args:
        whole: a step reaches every parameter: the optimizers' states are of all of them, or empty.

    Raises:
        Damaged: it is not the state of such a run.
    """
    rate = {"running_loss": float, "lowest_loss": float, "drops": _COUNT, "annealed": float | None}
    position = {
        "order": Tensor | None, "weight": Tensor | None, "batches_done": _COUNT, "stopped": bool,
        "loss_sum": own["position"]["loss_sum"], "seconds": float, "epoch_seconds": float,
    }  # fmt: skip
    like = own | {
        "models": _tensors(own["models"]), "method": _tensors(own["method"]), "rate": rate, "position": position,
        "optimizers": [after_a_step(optimizer, whole) for optimizer in optimizers],
        "generators": [own["generators"][0], *[Tensor] * (len(own["generators"]) - 1)],  # of any number of processes
        "epoch": range(run.epochs + 1), "step": _COUNT, "parts": _COUNT, "history": [{...: float | None}, ...],
    }  # fmt: skip
    structure.check(path, state, like)
    _check_history(path, state)
    _check_position(path, state["position"], len(run.data))


def _tensors(state: dict[str, Any]) -> dict[str, Any]:
    """The structure of a module's state: what it keeps beside tensors is its own affair."""
    return {key: value if isinstance(value, Tensor) else object for key, value in state.items()}


def after_a_step(optimizer: Optimizer, whole: bool) -> dict[str, Any]:
    """The structure of an optimizer's state, found by a step of a copy.

    Not `whole`: without that of parameters which never had a gradient.
    """
    trial = copy.deepcopy(optimizer)
    for group in trial.param_groups:
        for parameter in group["params"]:
            parameter.grad = torch.zeros_like(parameter)
    trial.step()
    after = trial.state_dict()
    for group in after["param_groups"]:
        group |= {key: list(value) for key, value in group.items() if isinstance(value, tuple)}  # Adam's betas
        group["params"] = [range(number, number + 1) for number in group["params"]]  # these and no others
    return after | {"state": ({}, after["state"]) if whole else Some(after["state"])}


def _check_history(path: Path, state: dict[str, Any]) -> None:
    """A record for each epoch, with what every epoch has."""
    history = state["history"]
    every = {*_EVERY_EPOCH, *(key for record in history for key in record if key.startswith(_MEASURED))}
    full = all(record.get(key) is not None for record in history for key in every)
    full = full and [record["epoch"] for record in history] == list(range(1, state["epoch"] + 1))
    if not full or (state["position"]["stopped"] and not history):
        raise Damaged(path, "its history lacks an epoch or a figure")


def _check_position(path: Path, position: dict[str, Any], n: int) -> None:
    """The rows of the epoch under way are of the data, each with its weight, if they have any."""
    order, weight = position["order"], position["weight"]
    if order is None:
        return
    rows = order.dtype == torch.int64 and order.ndim == 1 and len(order) and order.min() >= 0 and order.max() < n
    if not rows or (weight is not None and (weight.dtype, weight.shape) != (torch.float32, order.shape)):
        raise Damaged(path, f"its order is not of the rows of {n} examples")


def restore_layout(optimizer: Optimizer) -> None:
    """Give loaded optimizer state the strides of its parameter: the fused kernels walk both side by side."""
    for parameter, state in optimizer.state.items():
        for key, value in state.items():
            if isinstance(value, Tensor) and value.shape == parameter.shape:
                state[key] = torch.empty_like(parameter).copy_(value)

"""SOP's loss and update as loops for the CPU, compiled by numba at their first call.

They do what `sop.sop_loss`, `sop.gradients` and `State.move` do, in one pass over a batch each: at the size of a batch
the dozens of small tensor operations these take cost more than the arithmetic. Single precision only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import torch
from torch import Tensor

_zero, _one, _two, _four = (np.float32(k) for k in (0, 1, 2, 4))


def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile at the first call, and keep the result on disk, if numba finds a place that it can write."""
    options: dict[str, Any] = {"nogil": True, "fastmath": {"contract", "reassoc", "nsz"}}
    try:
        return numba.njit(cache=True, **options)(function)
    except RuntimeError:  # nowhere to write
        return numba.njit(**options)(function)


def loss_and_gradients(
    p: Tensor, u: Tensor, v: Tensor, label: Tensor, eps: float, authors: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The loss (B,), and its derivatives by p (B, K), u (B,) and v (B, K); see `sop.gradients`."""
    loss, by_u = torch.empty(len(p)), torch.empty(len(p))
    by_p, by_v = torch.empty(p.shape), torch.empty(p.shape)
    arrays = (p.numpy(), u.numpy(), v.numpy(), label.numpy(), loss.numpy(), by_p.numpy(), by_u.numpy(), by_v.numpy())
    _loss_and_gradients(*arrays, np.float32(eps), authors)
    return loss, by_p, by_u, by_v


@_compiled
def _loss_and_gradients(p, u, v, label, loss, by_p, by_u, by_v, eps, authors):  # type: ignore[no-untyped-def]
    classes = p.shape[1]
    for b in range(p.shape[0]):
        y = label[b]
        total, guess, highest = _zero, 0, -_one
        for first, last in ((0, y), (y + 1, classes)):
            for k in range(first, last):
                total += max(p[b, k] - min(v[b, k] * v[b, k], _one), eps)
        for k in range(classes):  # apart, so that the loop above becomes vector instructions
            if p[b, k] > highest:
                guess, highest = k, p[b, k]
        own = u[b] * u[b]
        w_label = p[b, y] + min(own, _one)
        clamped = max(w_label, eps)
        total += clamped
        loss[b] = np.log(total) - np.log(clamped)
        inverse = _one / total
        alive = _one
        if authors and clamped * inverse < eps:  # the authors' second clamp: a constant loss
            loss[b] = -np.log(eps)
            alive = _zero
        for k in range(classes):
            square = v[b, k] * v[b, k]
            by_p[b, k] = alive * inverse if p[b, k] - min(square, _one) > eps else _zero
            by_v[b, k] = _four * v[b, k] * square if square <= _one else _zero
        if v[b, guess] * v[b, guess] <= _one:
            by_v[b, guess] -= _four * v[b, guess]
        by_v[b, y] = _zero
        slope = alive * (inverse - _one / clamped) if w_label > eps else _zero
        by_p[b, y] = slope
        by_u[b] = _two * u[b] * slope
        if authors:
            target = _one if guess == y else _zero
            by_u[b] = by_u[b] + _four * u[b] * (target + own - _one) if own <= _one else _zero


def move(
    u: Tensor, v: Tensor, place: Tensor, index: Tensor, by_u: Tensor, by_v: Tensor, rate_u: float, rate_v: float,
    project: bool,
) -> None:  # fmt: skip
    """`State.move` on its tensors u, flat, at `place` (B,) and v (n, K) at the rows `index` (B,)."""
    arrays = (u.numpy(), v.numpy(), place.numpy(), index.numpy(), by_u.numpy(), by_v.numpy())
    _move(*arrays, np.float32(rate_u), np.float32(rate_v), project)


@_compiled
def _move(u, v, place, index, by_u, by_v, rate_u, rate_v, project):  # type: ignore[no-untyped-def]
    for b in range(len(index)):
        u[place[b]] -= rate_u * by_u[b]
        row = v[index[b]]
        for k in range(len(row)):
            row[k] -= rate_v * by_v[b, k]
    if project:
        for b in range(len(index)):
            u[place[b]] = min(max(u[place[b]], -_one), _one)
            row = v[index[b]]
            for k in range(len(row)):
                row[k] = min(max(row[k], -_one), _one)

"""SOP's loss and update as loops for the CPU, compiled by numba at their first call.

They do what `sop.sop_loss`, its derivatives and `State.move` do, in one pass over a batch each: at the size of a batch
the dozens of small tensor operations these take cost more than the arithmetic. Single precision only.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from noiseproof.jit import compiled

_zero, _one, _two, _four = (np.float32(k) for k in (0, 1, 2, 4))


_compiled = compiled("contract", "reassoc", "nsz")  # sums in any order, always the same one


class Loss(NamedTuple):
    """What a batch's pass gives."""

    value: float  # Σ_b weight_b · loss_b
    by_logits: Tensor  # (B, K), its derivative
    by_u: Tensor  # (B,) of each example's own losses
    by_v: Tensor  # (B, K)


def loss(
    p: Tensor, weight: Tensor, u: Tensor, v: Tensor, place: Tensor, index: Tensor, label: Tensor, eps: float,
    authors: bool,
) -> Loss:  # fmt: skip
    """The weighted sum of `sop.sop_loss`, and its derivatives; by u and v as of `sop.gradients`.

    Args:
        p: (B, K), softmax of the logits; weight: (B,).
        u: flat, of which `place` (B,) are the batch's; v: (m, K), of which `index` (B,) are the batch's rows.
    """
    by_logits, by_u, by_v = torch.empty(p.shape), torch.empty(len(p)), torch.empty(p.shape)
    value = _loss(
        p.numpy(), weight.numpy(), u.numpy(), v.numpy(), place.numpy(), index.numpy(), label.numpy(),
        by_logits.numpy(), by_u.numpy(), by_v.numpy(), np.float32(eps), authors,
    )  # fmt: skip
    return Loss(value, by_logits, by_u, by_v)


@_compiled
def _loss(p, weight, us, vs, place, index, label, by_logits, by_u, by_v, eps, authors):  # type: ignore[no-untyped-def]
    classes, value = p.shape[1], 0.0
    for b in range(p.shape[0]):
        y, u, v, q, g, h = label[b], us[place[b]], vs[index[b]], p[b], by_logits[b], by_v[b]
        # loops from 0 without branches become vector instructions; the label's own entry is put right behind them
        total, highest = _zero, _zero
        for k in range(classes):
            total += max(q[k] - min(v[k] * v[k], _one), eps)
            highest = max(highest, q[k])
        guess = 0
        while q[guess] < highest:
            guess += 1
        own = u * u
        w_label = q[y] + min(own, _one)
        clamped = max(w_label, eps)
        total += clamped - max(q[y] - min(v[y] * v[y], _one), eps)
        loss = np.log(total) - np.log(clamped)
        inverse = _one / total
        alive = _one
        if authors and clamped * inverse < eps:  # the authors' second clamp: a constant loss
            loss = -np.log(eps)
            alive = _zero
        value += weight[b] * loss
        slope = alive * (inverse - _one / clamped) if w_label > eps else _zero  # by p_y
        inverse *= alive
        dot = _zero
        for k in range(classes):
            square = v[k] * v[k]
            g[k] = q[k] * inverse if q[k] - min(square, _one) > eps else _zero
            h[k] = _four * v[k] * square if square <= _one else _zero
            dot += g[k]
        dot += q[y] * slope - g[y]
        g[y] = q[y] * slope
        for k in range(classes):
            g[k] = weight[b] * (g[k] - q[k] * dot)  # through the softmax
        if v[guess] * v[guess] <= _one:
            h[guess] -= _four * v[guess]
        h[y] = _zero
        by_u[b] = _two * u * slope
        if authors:
            target = _one if guess == y else _zero
            by_u[b] = by_u[b] + _four * u * (target + own - _one) if own <= _one else _zero
    return value


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

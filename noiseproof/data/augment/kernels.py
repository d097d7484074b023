"""Loops for the CPU, compiled by numba at their first call: image by image, each pixel while it is in the cache.

They do what the tensor operations of geometry.py and colour.py do, with the same parameters, and are imported by them
at the first batch on a CPU: numba takes half a second to import. Images are flat arrays and offsets into them are
unsigned, for which numba leaves out the case of negative indices, so that the inner loops become vector instructions.
Positions are kept inside the image, so that wrong parameters cannot read memory of others.

An image's result depends on the image and its parameters alone: not on the batch around it, nor on the threads.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from noiseproof.data.augment.base import BLUR, BRIGHTNESS, CONTRAST, GRAYSCALE, HUE, SATURATION
from noiseproof.jit import compiled

_PIECE = 2**16  # values of a batch that a thread takes at a time
_PIECE_TO_COPY = 2**19  # where there is so little to do that waking a thread for less costs more than it brings

_zero, _one, _two, _three, _six = (np.float32(k) for k in (0, 1, 2, 3, 6))
_red, _green, _blue = np.float32(0.299), np.float32(0.587), np.float32(0.114)
_tiny = np.float32(1e-12)

_jit = compiled("contract")  # a multiply-add may round once
_inline = compiled("contract", forceinline=True)  # a call would cost as much as the row of pixels it handles
_jit_sum = compiled("contract", "reassoc", "nsz")  # sums in any order, always the same one
_jit_exact = compiled()


# Calls: from tensors to arrays, over the threads


def crop(
    x: Tensor,
    top: Tensor,
    left: Tensor,
    size: tuple[int, int],
    padding: int,
    reflected: bool,
    mirrored: Tensor | None,
    normalize: tuple[Tensor, Tensor] | None,
) -> Tensor:
    """`geometry.crop`, and scale · values + shift (C,) where `normalize` gives them."""
    batch, channels, height, width = x.shape
    x = x.contiguous()
    out = torch.empty((batch, channels, *size), dtype=x.dtype if normalize is None else torch.float32)
    scale, shift = (None, None) if normalize is None else (_vector(v, torch.float32, channels) for v in normalize)
    shape = (channels, height, width, *size, padding, reflected)
    window = (_vector(top, torch.int64, batch), _vector(left, torch.int64, batch), _mask(mirrored, batch))
    _each(_crop, _PIECE_TO_COPY, out, _flat(x), _flat(out), shape, *window, scale, shift)
    return out


def resized_crop(
    x: Tensor,
    box: tuple[Tensor, Tensor, Tensor, Tensor],
    size: tuple[int, int],
    mirrored: Tensor | None,
    as_float: bool,
    normalize: tuple[Tensor, Tensor] | None,
) -> Tensor:
    """`geometry.resized_crop`, and scale · values + shift (C,) where `normalize` gives them."""
    batch, channels, height, width = x.shape
    x = x.contiguous()
    raw = x.dtype == torch.uint8
    rounded = raw and not as_float
    keep = rounded and normalize is None
    out = torch.empty((batch, channels, *size), dtype=torch.uint8 if keep else torch.float32)
    scale, shift = normalize or (torch.ones(channels), torch.zeros(channels))
    scale = scale / 255 if raw and as_float else scale
    affine = (_vector(v, torch.float32, channels) for v in (scale, shift))
    boxes = (_vector(v, torch.int64, batch) for v in box)
    shape = (channels, height, width, *size)
    _each(_resized_crop, _PIECE, out, _flat(x), _flat(out), shape, *boxes, _mask(mirrored, batch), rounded, *affine)
    return out


def change(
    y: Tensor,
    steps: Sequence[tuple[int, int, Tensor, Tensor | None]],
    normalize: tuple[Tensor, Tensor] | None = None,
) -> None:
    """Do the steps (kind, kernel size, parameter (B,), chosen (B,) or None for all) to float images, in place."""
    batch, channels, height, width = y.shape
    assert y.is_contiguous()
    kind = np.array([step[0] for step in steps], dtype=np.int64)
    taps = np.array([step[1] for step in steps], dtype=np.int64)
    parameter, chosen = np.empty((len(steps), batch), np.float32), np.ones((len(steps), batch), np.bool_)
    for k, (_, _, value, rows) in enumerate(steps):
        parameter[k] = value.detach().cpu().numpy()
        if rows is not None:
            chosen[k] = rows.numpy()
    affine = [] if normalize is None else [_vector(v, torch.float32, channels) for v in normalize]
    scale, shift = affine or (np.empty(0, np.float32), np.empty(0, np.float32))
    _each(_change, _PIECE, y, _flat(y), (channels, height, width), kind, taps, parameter, chosen, scale, shift)


def _flat(x: Tensor) -> np.ndarray[Any, Any]:
    return x.detach().view(-1).numpy()


def _vector(value: Tensor, dtype: torch.dtype, length: int) -> np.ndarray[Any, Any]:
    return value.detach().to("cpu", dtype).expand(length).contiguous().numpy()


def _mask(mirrored: Tensor | None, batch: int) -> np.ndarray[Any, Any]:
    return np.zeros(batch, np.bool_) if mirrored is None else _vector(mirrored, torch.bool, batch)


def _each(kernel: Callable[..., None], piece: int, out: Tensor, *arguments: Any) -> None:
    """kernel(*arguments, start, end) for all images of `out`, on as many threads as torch uses if it has two pieces.

    The calling thread works too, and does not wait for a helper that never came to start.
    """
    batch, threads = len(out), torch.get_num_threads()
    if threads == 1 or out.numel() < 2 * piece:
        if out.numel() > 0:
            kernel(*arguments, 0, batch)
        return
    step = max(1, piece * batch // out.numel())
    starts = iter(range(0, batch, step))

    def work() -> None:
        for start in starts:
            kernel(*arguments, start, min(start + step, batch))

    helpers = [_pool(threads).submit(work) for _ in range(threads - 1)]
    try:
        work()
    finally:
        started = [helper for helper in helpers if not helper.cancel()]
        for helper in started:
            helper.exception()  # waits
    for helper in started:
        helper.result()


@lru_cache(maxsize=1)
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="noiseproof-augment")


if hasattr(os, "register_at_fork"):  # a child process has none of its parent's threads
    os.register_at_fork(after_in_child=_pool.cache_clear)


# Crops


@_jit
def _crop(x, out, shape, top, left, mirrored, scale, shift, start, end):  # type: ignore[no-untyped-def]
    channels, height, width, rows, columns, padding, reflected = shape
    for b in range(start, end):
        above, before = top[b] - padding, left[b] - padding
        # The window's rows first..last-1 and columns low..high-1 lie inside the image.
        first, low = min(max(-above, 0), rows), min(max(-before, 0), columns)
        last, high = max(min(height - above, rows), first), max(min(width - before, columns), low)
        whole = last - first == rows and high - low == columns
        skip = columns - high if mirrored[b] else low
        for c in range(channels):
            plane, source = (b * channels + c) * rows, (b * channels + c) * height
            if reflected:
                for i in range(rows):
                    line = (source + _reflect(above + i, height)) * width
                    for j in range(columns):
                        k = _reflect(before + (columns - 1 - j if mirrored[b] else j), width)
                        _copy(x, line + k, out, (plane + i) * columns + j, 1, scale, shift, c)
                continue
            if not whole:
                _fill(out, plane * columns, rows * columns, scale, shift, c)
            for i in range(first, last):
                line, target = (source + above + i) * width + before + low, (plane + i) * columns + skip
                if mirrored[b]:
                    _copy_mirrored(x, line, out, target, high - low, scale, shift, c)
                else:
                    _copy(x, line, out, target, high - low, scale, shift, c)


@_inline
def _reflect(position, size):  # type: ignore[no-untyped-def]
    return min(max((size - 1) - abs((size - 1) - abs(position)), 0), size - 1)


@_inline
def _fill(out, target, count, scale, shift, c):  # type: ignore[no-untyped-def]
    target = np.uintp(target)
    for j in range(np.uintp(count)):
        out[target + j] = 0 if scale is None else shift[c]


@_inline
def _copy(x, first, out, target, count, scale, shift, c):  # type: ignore[no-untyped-def]
    first, target = np.uintp(first), np.uintp(target)
    if scale is None:
        for j in range(np.uintp(count)):
            out[target + j] = x[first + j]
    else:
        a, b = scale[c], shift[c]
        for j in range(np.uintp(count)):
            out[target + j] = np.float32(x[first + j]) * a + b


@_inline
def _copy_mirrored(x, first, out, target, count, scale, shift, c):  # type: ignore[no-untyped-def]
    last, target = np.uintp(first + count - 1), np.uintp(target)
    if scale is None:
        for j in range(np.uintp(count)):
            out[target + j] = x[last - j]
    else:
        a, b = scale[c], shift[c]
        for j in range(np.uintp(count)):
            out[target + j] = np.float32(x[last - j]) * a + b


@_jit
def _resized_crop(  # type: ignore[no-untyped-def]
    x, out, shape, top, left, height, width, mirrored, rounded, scale, shift, start, end
):
    channels, rows, columns, size_y, size_x = shape
    at_y, weight_y = _room_for_taps(rows, size_y)
    at_x, weight_x = _room_for_taps(columns, size_x)
    box = np.empty(rows * columns, np.float32)  # rows of the image that the box crosses, as floats
    lines = np.empty(rows * size_x, np.float32)  # the box's rows, resized across
    total = np.empty(size_x, np.float32)
    for b in range(start, end):
        above, before = min(max(top[b], 0), rows - 1), min(max(left[b], 0), columns - 1)
        tall, wide = min(max(height[b], 1), rows - above), min(max(width[b], 1), columns - before)
        taps_y = _resize_taps(tall, size_y, False, at_y, weight_y)
        taps_x = _resize_taps(wide, size_x, mirrored[b], at_x, weight_x)
        for c in range(channels):
            plane = (b * channels + c) * rows
            source = np.uintp((plane + above) * columns)
            for j in range(np.uintp(tall * columns)):
                box[j] = x[source + j]
            for i in range(tall):
                _across(box, i * columns + before, lines, i * size_x, size_x, at_x, weight_x, taps_x)
            target = (b * channels + c) * size_y * size_x
            if taps_y == 2 and not rounded:
                _down_two(lines, at_y, weight_y, out, target, size_y, size_x, scale[c], shift[c])
            else:
                _down(lines, at_y, weight_y, taps_y, out, target, size_y, size_x, rounded, scale[c], shift[c], total)


@_jit
def _room_for_taps(length, size):  # type: ignore[no-untyped-def]
    return np.empty(size, np.uint32), np.empty((2 * (length // size) + 3, size), np.float32)


@_jit_exact
def _resize_taps(length, size, mirrored, first, weight):  # type: ignore[no-untyped-def]
    """Write the first pixel (size,) and the weights (k, size) of each output pixel; the number k of taps.

    The numbers are those of `filters.resize_taps`, for a box that starts at 0.
    """
    scale = np.float32(length) / np.float32(size)
    reach = max(scale, _one)
    taps = min(math.ceil(_two * reach), length)
    half = np.float32(0.5)
    latest = np.float32(length - taps)
    total = np.zeros(size, np.float32)
    for k in range(taps):
        for j in range(size):
            i = np.float32(size - 1 - j if mirrored else j)
            centre = (i + half) * scale - half
            begin = np.floor(centre - reach) + _one
            begin = _zero if begin < _zero else begin
            begin = latest if begin > latest else begin
            w = _one - abs(begin + np.float32(k) - centre) / reach
            w = _zero if w < _zero else w
            first[j] = np.uint32(np.int32(begin))
            weight[k, j] = w
            total[j] += w
    for k in range(taps):
        for j in range(size):
            weight[k, j] /= total[j]
    return taps


@_inline
def _across(box, source, lines, target, size, first, weight, taps):  # type: ignore[no-untyped-def]
    """Each output pixel's weighted sum of neighbours in one row."""
    source, target = np.uintp(source), np.uintp(target)
    if taps == 2:
        for j in range(np.uintp(size)):
            p = source + np.uintp(first[j])
            lines[target + j] = box[p] * weight[0, j] + box[p + np.uintp(1)] * weight[1, j]
        return
    for j in range(np.uintp(size)):
        p = source + np.uintp(first[j])
        total = _zero
        for k in range(np.uintp(taps)):
            total += box[p + k] * weight[k, j]
        lines[target + j] = total


@_inline
def _down(  # type: ignore[no-untyped-def]
    lines, first, weight, taps, out, target, rows, columns, rounded, scale, shift, total
):
    """Each output row's weighted sum of neighbouring rows; rounded to a level if asked; scaled and shifted."""
    size = np.uintp(columns)
    for i in range(rows):
        line = np.uintp(target + i * columns)
        total[:] = _zero
        for k in range(taps):
            w, source = weight[k, i], (np.uintp(first[i]) + np.uintp(k)) * size
            for j in range(size):
                total[j] += lines[source + j] * w
        if rounded:
            for j in range(size):
                total[j] = min(max(np.rint(total[j]), _zero), np.float32(255))
        for j in range(size):
            out[line + j] = total[j] * scale + shift


@_inline
def _down_two(lines, first, weight, out, target, rows, columns, scale, shift):  # type: ignore[no-untyped-def]
    """The same for two taps, where nothing shrinks, and without rounding."""
    size = np.uintp(columns)
    for i in range(rows):
        a, b = weight[0, i] * scale, weight[1, i] * scale
        line, above = np.uintp(target + i * columns), np.uintp(first[i]) * size
        below = above + size
        for j in range(size):
            out[line + j] = lines[above + j] * a + lines[below + j] * b + shift


# Colour


@_jit
def _change(y, shape, kind, taps, parameter, chosen, scale, shift, start, end):  # type: ignore[no-untyped-def]
    channels, height, width = shape
    plane = height * width
    coloured = channels == 3
    room = np.empty(plane, np.float32)
    edged = np.empty(width + taps.max() if len(taps) > 0 else 0, np.float32)
    for b in range(start, end):
        image = b * channels * plane
        for k in range(len(kind)):
            if not chosen[k, b]:
                continue
            value = parameter[k, b]
            if kind[k] == BRIGHTNESS:
                _blend(y, image, channels * plane, value, _zero)
            elif kind[k] == CONTRAST:
                _blend(y, image, channels * plane, value, _mean(y, image, plane, coloured) * (_one - value))
            elif kind[k] == SATURATION and coloured:
                _saturate(y, image, plane, value)
            elif kind[k] == HUE and coloured:
                _turn(y, image, plane, value)
            elif kind[k] == GRAYSCALE and coloured:
                _grey(y, image, plane)
            elif kind[k] == BLUR:
                weight = _gaussian(value, taps[k])
                for c in range(channels):
                    _blur(y, image + c * plane, height, width, weight, room, edged)
        if len(scale) > 0:
            for c in range(channels):
                _affine(y, image + c * plane, plane, scale[c], shift[c])


@_jit
def _affine(y, first, count, scale, shift):  # type: ignore[no-untyped-def]
    first = np.uintp(first)
    for j in range(np.uintp(count)):
        y[first + j] = y[first + j] * scale + shift


@_inline
def _clamp(value):  # type: ignore[no-untyped-def]
    value = _zero if value < _zero else value  # NaN stays
    return _one if value > _one else value


@_jit
def _blend(y, first, count, factor, other):  # type: ignore[no-untyped-def]
    first = np.uintp(first)
    for j in range(np.uintp(count)):
        y[first + j] = _clamp(y[first + j] * factor + other)


@_jit_sum
def _mean(y, image, plane, coloured):  # type: ignore[no-untyped-def]
    """The mean brightness; of the single or first channel unless coloured."""
    count = np.uintp(plane)
    mean = _zero
    for c in range(3 if coloured else 1):
        first, total = np.uintp(image + c * plane), _zero
        for j in range(count):
            total += y[first + j]
        part = total / np.float32(plane)
        mean += part * (_red if c == 0 else _green if c == 1 else _blue) if coloured else part
    return mean


@_jit
def _saturate(y, image, plane, factor):  # type: ignore[no-untyped-def]
    p, q, s = np.uintp(image), np.uintp(image + plane), np.uintp(image + 2 * plane)
    for j in range(np.uintp(plane)):
        red, green, blue = y[p + j], y[q + j], y[s + j]
        grey = red * _red + green * _green + blue * _blue
        y[p + j] = _clamp(grey + factor * (red - grey))
        y[q + j] = _clamp(grey + factor * (green - grey))
        y[s + j] = _clamp(grey + factor * (blue - grey))


@_jit
def _turn(y, image, plane, shift):  # type: ignore[no-untyped-def]
    """See `colour.adjust_hue` for the mathematics."""
    p, q, s = np.uintp(image), np.uintp(image + plane), np.uintp(image + 2 * plane)
    third = np.float32(1 / 3)
    turn_red = (shift - np.rint(shift)) * _six
    turn_green = (shift - third - np.rint(shift - third)) * _six
    turn_blue = (shift - _two * third - np.rint(shift - _two * third)) * _six
    for j in range(np.uintp(plane)):
        red, green, blue = y[p + j], y[q + j], y[s + j]
        low = red if red < green else green
        low = low if low < blue else blue
        high = red if red > green else green
        high = high if high > blue else blue
        chroma = high - low
        chroma = chroma if chroma > _tiny else _tiny  # grey has no hue: any will do
        hue = abs((green + blue - red - low + chroma) / chroma)
        hue = -hue if green < blue else hue
        base = low - chroma
        y[p + j] = base + chroma * _wave(hue + turn_red)
        y[q + j] = base + chroma * _wave(hue + turn_green)
        y[s + j] = base + chroma * _wave(hue + turn_blue)


@_inline
def _wave(u):  # type: ignore[no-untyped-def]
    u = abs(abs(u) - _three)
    u = _one if u < _one else u
    return _two if u > _two else u


@_jit
def _grey(y, image, plane):  # type: ignore[no-untyped-def]
    p, q, s = np.uintp(image), np.uintp(image + plane), np.uintp(image + 2 * plane)
    for j in range(np.uintp(plane)):
        grey = y[p + j] * _red + y[q + j] * _green + y[s + j] * _blue
        y[p + j] = grey
        y[q + j] = grey
        y[s + j] = grey


@_jit
def _gaussian(sigma, taps):  # type: ignore[no-untyped-def]
    """Weights of the middle and of its neighbours on one side: (taps // 2 + 1,)."""
    weight = np.empty(taps // 2 + 1, np.float32)
    total = 0.0
    for k in range(len(weight)):
        w = math.exp(-0.5 * (k / float(sigma)) ** 2)
        weight[k] = w
        total += w if k == 0 else 2 * w
    for k in range(len(weight)):
        weight[k] /= total
    return weight


@_jit
def _blur(y, first, height, width, weight, room, edged):  # type: ignore[no-untyped-def]
    """Down into `room`, then across from `edged`, a row with its reflection on both sides, back into y."""
    half = len(weight) - 1
    if half == 1 and height > 1 and width > 1:
        _blur_three(y, first, height, width, weight[0], weight[1], room)
        return
    size = np.uintp(width)
    for i in range(height):
        middle, target = np.uintp(first + i * width), np.uintp(i * width)
        for k in range(1 if half > 0 else 0, half + 1):
            above = np.uintp(first + _reflect(i - k, height) * width)
            below = np.uintp(first + _reflect(i + k, height) * width)
            _add_pair(y, middle, above, below, room, target, size, weight, k)
    for i in range(height):
        line, target = np.uintp(i * width), np.uintp(first + i * width)
        middle = np.uintp(half)
        for j in range(size):
            edged[middle + j] = room[line + j]
        for k in range(1, half + 1):
            edged[half - k] = room[i * width + _reflect(-k, width)]
            edged[half + width - 1 + k] = room[i * width + _reflect(width - 1 + k, width)]
        for k in range(1 if half > 0 else 0, half + 1):
            _add_pair(edged, middle, np.uintp(half - k), np.uintp(half + k), y, target, size, weight, k)


@_inline
def _add_pair(x, middle, before, after, out, target, size, weight, k):  # type: ignore[no-untyped-def]
    """Add weight[k] of both neighbours at distance k; the first time, k ≤ 1, onto weight[0] of the middle."""
    w, v = weight[k], weight[0]
    if k == 0:
        for j in range(size):
            out[target + j] = x[middle + j]
    elif k == 1:
        for j in range(size):
            out[target + j] = x[middle + j] * v + (x[before + j] + x[after + j]) * w
    else:
        for j in range(size):
            out[target + j] += (x[before + j] + x[after + j]) * w


@_inline
def _blur_three(y, first, height, width, middle, side, room):  # type: ignore[no-untyped-def]
    """Three taps: both ways over the whole plane at once, and the edges, which have one neighbour twice, after that."""
    above, row, below = np.uintp(first), np.uintp(first + width), np.uintp(first + 2 * width)
    size, count = np.uintp(width), np.uintp(height * width)
    last, before_last = np.uintp(first + (height - 1) * width), np.uintp(first + (height - 2) * width)
    for j in range(size):
        room[j] = y[above + j] * middle + (y[row + j] + y[row + j]) * side
        room[count - size + j] = y[last + j] * middle + (y[before_last + j] + y[before_last + j]) * side
    for j in range(count - size - size):
        room[size + j] = y[row + j] * middle + (y[above + j] + y[below + j]) * side
    one, two = np.uintp(1), np.uintp(2)
    for j in range(count - two):
        y[above + one + j] = room[one + j] * middle + (room[j] + room[two + j]) * side
    for i in range(height):
        left, right = i * width, (i + 1) * width - 1
        y[first + left] = room[left] * middle + (room[left + 1] + room[left + 1]) * side
        y[first + right] = room[right] * middle + (room[right - 1] + room[right - 1]) * side

"""Loops of facility location, compiled by numba at their first call. They release the GIL: groups run in threads.

Points are columns of x (d, n), d even, float32, from `scaling.scaled`: every distance is below 2³⁰. A distance is
rounded down to an integer, and always computed by `squares`: hence gains are exact sums in int64, in whatever order
they are added, and greedy over all pairs, over cells and over a graph agree to the last bit, ties included.

    cur (n,) int32      distance to the nearest point selected so far; before the first, the cap d0
    keys, ids (c,)      upper bounds on marginal gains, int64, and the candidates they belong to, int32
    cells               clients sorted by cell (`Cells` in greedy.py), so that far ones are skipped without a look
"""

from __future__ import annotations

import heapq
import math

import numpy as np

from noiseproof.jit import compiled

TILE = 1024  # points whose distances are computed at a time: they stay in the first cache

_jit = compiled("contract")  # a multiply-add may round once
_inline = compiled("contract", forceinline=True)


# Distances


@_inline
def squares(flat, at, stride, a, count, out):  # type: ignore[no-untyped-def]
    """out[:count] = Σ_k (flat[at + k·stride + i] − a_k)² for i < count; the same bits wherever it is called from."""
    count = np.uintp(count)  # unsigned: no index can count from the end, and the loops become vector instructions
    for i in range(count):
        out[i] = np.float32(0)
    for k in range(0, a.size, 2):  # two coordinates at a time: fewer passes through `out`
        one, two, b, c = np.uintp(at + k * stride), np.uintp(at + (k + 1) * stride), a[k], a[k + 1]
        for i in range(count):
            t, u = flat[one + i] - b, flat[two + i] - c
            out[i] = out[i] + t * t + u * u


@_inline
def _copy(source, target):  # type: ignore[no-untyped-def]
    for i in range(source.size):  # target[:] = source takes seconds to compile
        target[i] = source[i]


@_jit
def all_gains(x, cur, start, end, gains):  # type: ignore[no-untyped-def]
    """Add to gains (n,) what the points j in start..end-1 and i ≥ j bring to each other: a distance serves both."""
    n, flat = cur.size, x.reshape(x.size)
    square, a = np.empty(TILE, np.float32), np.empty(x.shape[0], np.float32)
    for base in range(start, n, TILE):
        high = min(base + TILE, n)
        for j in range(start, min(end, high)):
            _copy(x[:, j], a)
            low = max(base, j + 1)
            if low >= high:
                continue
            squares(flat, low, n, a, high - low, square)
            total, mine, first = np.int64(0), cur[j], np.uintp(low)
            for i in range(np.uintp(high - low)):
                d = np.int32(math.sqrt(square[i]))
                total += np.int64(max(np.int32(0), cur[first + i] - d))
                gains[first + i] += np.int64(max(np.int32(0), mine - d))
            gains[j] += total
    for j in range(start, end):
        gains[j] += cur[j]


# The clients that a point may reach


@_inline
def _room(cells):  # type: ignore[no-untyped-def]
    """Where a point is measured: its coordinates, squares, distances, and the cells in reach with their ends."""
    square, d = np.empty(TILE, np.float32), np.empty(TILE, np.int32)
    return np.empty(cells.x.shape[0], np.float32), square, d, np.empty((2, cells.limit.size), np.int64)


@_inline
def _prefix(reach, low, high, least):  # type: ignore[no-untyped-def]
    """The end of those of reach[low:high], which falls, that are above `least`."""
    size = high - low
    while size > 0:  # without branches that depend on the values: they would be mispredicted
        half = size >> 1
        above = reach[low + half] > least
        low = low + half + 1 if above else low
        size = size - half - 1 if above else half
    return low


@_inline
def _near(cells, j, room):  # type: ignore[no-untyped-def]
    """Find the cells with clients that point j may reach; how many they are."""
    a, square, _, reached = room
    _copy(cells.x[:, j], a)
    count, found = cells.limit.size, 0
    for base in range(0, count, TILE):
        size = min(TILE, count - base)
        squares(cells.pivots, base, count, a, size, square)
        for i in range(size):
            c = base + i
            if square[i] < cells.limit[c]:
                least = math.sqrt(square[i]) * cells.shrink
                reached[0, found] = c
                reached[1, found] = _prefix(cells.reach, cells.start[c], cells.start[c + 1], least)
                found += 1
    return found


@_inline
def _visit(cells, room, v):  # type: ignore[no-untyped-def]
    """Measure the clients in reach of the v-th cell found; the place of the first, and how many they are."""
    a, square, d, reached = room
    first = cells.start[reached[0, v]]
    size = np.uintp(reached[1, v] - first)
    squares(cells.flat, first, cells.reach.size, a, size, square)
    for i in range(size):
        d[i] = np.int32(math.sqrt(square[i]))
    return np.uintp(first), size


@_inline
def _gain(cells, j, room):  # type: ignore[no-untyped-def]
    """Σ_i max(0, cur_i − d_ij)."""
    cur, d, total = cells.cur, room[2], np.int64(0)
    for v in range(_near(cells, j, room)):
        first, size = _visit(cells, room, v)
        for i in range(size):
            total += np.int64(max(np.int32(0), cur[first + i] - d[i]))
    return total


@_inline
def _select(cells, j, t, room):  # type: ignore[no-untyped-def]
    """Let the clients that are nearer to point j than to their owner move to position t, and j itself."""
    cur, owner, d = cells.cur, cells.owner, room[2]
    for v in range(_near(cells, j, room)):
        first, size = _visit(cells, room, v)
        for i in range(size):
            nearer = d[i] < cur[first + i]
            cur[first + i] = d[i] if nearer else cur[first + i]
            owner[first + i] = t if nearer else owner[first + i]
    owner[cells.place[j]] = t  # also where another point selected before is at distance 0


@_jit
def gains(cells, ids, out):  # type: ignore[no-untyped-def]
    """out (c,) = the marginal gains of the candidates ids (c,)."""
    room = _room(cells)
    for p in range(ids.size):
        out[p] = _gain(cells, ids[p], room)


@_jit
def select(cells, names, t):  # type: ignore[no-untyped-def]
    """Select the points `names` one after the other, as t, t + 1, …"""
    room = _room(cells)
    for q in range(names.size):
        _select(cells, names[q], t + q, room)


# Ways to pick


@_inline
def _heap(keys, ids):  # type: ignore[no-untyped-def]
    """Candidates by their bounds, the largest first, of equal ones the lowest."""
    heap = [(-keys[p], ids[p]) for p in range(ids.size)]
    heapq.heapify(heap)
    return heap


@_inline
def _left(heap):  # type: ignore[no-untyped-def]
    """The bounds and candidates of a heap."""
    return np.array([-key for key, _ in heap], np.int64), np.array([name for _, name in heap], np.int32)


@_jit
def pick(cells, keys, ids, picks, t, stop):  # type: ignore[no-untyped-def]
    """Picks t..stop-1 by lazy evaluation, with distances computed from the points; the keys and ids left over."""
    room, heap = _room(cells), _heap(keys, ids)
    for at in range(t, stop):
        while True:
            name = heap[0][1]
            heapq.heapreplace(heap, (-_gain(cells, name, room), name))
            if heap[0][1] == name:  # no bound of another is above its gain
                break
        heapq.heappop(heap)
        picks[at] = name
        _select(cells, name, at, room)
    return _left(heap)


@_jit
def pick_from_samples(cells, keys, pool, draws, size, picks, t, stop):  # type: ignore[no-untyped-def]
    """Picks t..stop-1, each the best of `size` points drawn from the `pool` of those not selected.

    keys (n,) are bounds on the gains: a drawn point whose bound is no better than the best so far is not evaluated.
    """
    room, used = _room(cells), 0
    while t < stop:
        left = pool.size - t
        best, where = (np.int64(1), pool[0]), 0  # after all others
        for s in range(min(size, left)):  # the first s of the pool are drawn already
            q = s + int(draws[used] * (left - s))
            used += 1
            pool[s], pool[q] = pool[q], pool[s]
            name = pool[s]
            if (-keys[name], name) >= best:
                continue
            keys[name] = _gain(cells, name, room)
            if (-keys[name], name) < best:
                best, where = (-keys[name], name), s
        name = pool[where]
        pool[where], pool[left - 1] = pool[left - 1], name
        picks[t] = name
        _select(cells, name, t, room)
        t += 1


# The graph of the pairs that still matter


@_inline
def _longer(array):  # type: ignore[no-untyped-def]
    new = np.empty(array.size + array.size // 2 + TILE, array.dtype)
    _copy(array, new)
    return new


@_jit
def graph(cells, ids, size, most):  # type: ignore[no-untyped-def]
    """For each candidate of ids (c,) its clients with d < cur, as (place, distance): start (c + 1,), client, far.

    Arrays begin with room for `size` pairs; beyond `most` it gives up. Returns the number of pairs, too.
    """
    start, client, far = np.zeros(ids.size + 1, np.int64), np.empty(size, np.int32), np.empty(size, np.int32)
    room, cur, edges = _room(cells), cells.cur, 0
    d = room[2]
    for p in range(ids.size):
        for v in range(_near(cells, ids[p], room)):
            first, count = _visit(cells, room, v)
            if edges + TILE > client.size:
                client, far = _longer(client), _longer(far)
            at = np.uintp(edges)
            for i in range(count):
                client[at], far[at] = first + i, d[i]
                at += np.uintp(d[i] < cur[first + i])
            edges = np.intp(at)
        start[p + 1] = edges
        if edges > most:
            break
    return edges, start, client, far


@_inline
def _graph_gain(cur, graph, p, length):  # type: ignore[no-untyped-def]
    """The gain of candidate p by its edges, and how many are left once those that bring nothing any more are gone."""
    start, client, far = graph
    total, kept = np.int64(0), start[p]
    for e in range(start[p], start[p] + length):
        i, d = client[e], far[e]
        gain = cur[i] - d
        total += np.int64(max(gain, np.int32(0)))
        client[kept], far[kept] = i, d
        kept += gain > 0
    return total, kept - start[p]


@_jit
def graph_gains(cells, graph, length, out):  # type: ignore[no-untyped-def]
    """out (c,) = the marginal gains of all candidates of a graph."""
    for p in range(out.size):
        out[p], length[p] = _graph_gain(cells.cur, graph, p, length[p])


@_jit
def pick_on_graph(cells, graph, length, row, keys, ids, picks, t, stop):  # type: ignore[no-untyped-def]
    """`pick` over the edges of a graph; row[j]: the row of candidate j in it, length (c,): its edges that are left."""
    start, client, far = graph
    cur, owner, heap = cells.cur, cells.owner, _heap(keys, ids)
    for at in range(t, stop):
        while True:
            name = heap[0][1]
            p = row[name]
            gain, length[p] = _graph_gain(cur, graph, p, length[p])
            heapq.heapreplace(heap, (-gain, name))
            if heap[0][1] == name:
                break
        heapq.heappop(heap)
        picks[at] = name
        for e in range(start[p], start[p] + length[p]):
            cur[client[e]], owner[client[e]] = far[e], at
        owner[cells.place[name]] = at
    return _left(heap)

"""Loops of facility location, compiled by numba at their first call. They release the GIL: groups run in threads.

Points are columns of x (d, n), float32, scaled by `points.scaled` so that every distance is below 2³⁰. A distance is
rounded down to an integer, and always computed by `_squares`: hence gains are exact sums in int64, in whatever order
they are added, and lazy, sparse and naive greedy agree to the last bit, ties included.

    cur (n,) int32      distance to the nearest point selected so far; before the first, the cap d0
    owner (n,) int32    position of that point in the selection; -1 before the first
    keys, ids (c,)      a heap: upper bounds on marginal gains and the candidates they belong to, largest first
    cells               clients sorted by cell (`Cells` in greedy.py), so that far ones are skipped without a look
"""

from __future__ import annotations

import math

import numpy as np

from noiseproof.jit import compiled

TILE = 1024  # points whose distances are computed at a time: they stay in the first cache

_jit = compiled("contract")  # a multiply-add may round once
_inline = compiled("contract", forceinline=True)


# Distances


@_inline
def _squares(flat, at, stride, a, count, out):  # type: ignore[no-untyped-def]
    """out[:count] = Σ_k (flat[at + k·stride + i] − a_k)² for i < count; the same bits wherever it is called from."""
    count, at, stride, dims = np.uintp(count), np.uintp(at), np.uintp(stride), np.uintp(a.size)
    for i in range(count):
        out[i] = np.float32(0)
    k, four, one = np.uintp(0), np.uintp(4), np.uintp(1)
    while k + four <= dims:
        a0, a1, a2, a3 = a[k], a[k + one], a[k + np.uintp(2)], a[k + np.uintp(3)]
        b0 = at + k * stride
        b1 = b0 + stride
        b2 = b1 + stride
        b3 = b2 + stride
        for i in range(count):
            t0, t1, t2, t3 = flat[b0 + i] - a0, flat[b1 + i] - a1, flat[b2 + i] - a2, flat[b3 + i] - a3
            out[i] = out[i] + t0 * t0 + t1 * t1 + t2 * t2 + t3 * t3
        k += four
    while k < dims:
        a0, b0 = a[k], at + k * stride
        for i in range(count):
            t0 = flat[b0 + i] - a0
            out[i] = out[i] + t0 * t0
        k += one


@_inline
def _copy(x, j, a):  # type: ignore[no-untyped-def]
    for k in range(a.size):
        a[k] = x[k, j]


@_jit
def distances(x, a, out):  # type: ignore[no-untyped-def]
    """Integer distances out (n,) of all points to a (d,)."""
    flat, square = x.reshape(x.size), np.empty(TILE, np.float32)
    for low in range(0, out.size, TILE):
        high, first = min(low + TILE, out.size), np.uintp(low)
        _squares(flat, low, out.size, a, high - low, square)
        for i in range(np.uintp(high - low)):
            out[first + i] = np.int32(math.sqrt(square[i]))


@_jit
def select(cells, a, t, cur, owner):  # type: ignore[no-untyped-def]
    """Let the clients that are nearer to a (d,) than to their owner move to position t."""
    flat, _, reach, limit, start, pivots, shrink = cells
    square, count = np.empty((2, TILE), np.float32), start.size - 1
    for base in range(0, count, TILE):
        top = min(base + TILE, count)
        _squares(pivots, base, count, a, top - base, square[0])
        for c in range(base, top):
            if square[0][c - base] >= limit[c]:
                continue
            least = math.sqrt(square[0][c - base]) * shrink
            end = _prefix(reach, start[c], start[c + 1], least)
            for low in range(start[c], end, TILE):
                size, first = min(TILE, end - low), np.uintp(low)
                _squares(flat, _at(start, c, low, a), start[c + 1] - start[c], a, _whole(size), square[1])
                for i in range(np.uintp(size)):
                    d = np.int32(math.sqrt(square[1][i]))
                    nearer = d < cur[first + i]
                    cur[first + i] = d if nearer else cur[first + i]
                    owner[first + i] = t if nearer else owner[first + i]


@_jit
def select_all(x, cells, names, t, cur, owner, place):  # type: ignore[no-untyped-def]
    """`select` the points `names` one after the other, as t, t + 1, …; each goes to itself."""
    a = np.empty(x.shape[0], np.float32)
    for q in range(names.size):
        _copy(x, names[q], a)
        select(cells, a, t + q, cur, owner)
        owner[place[names[q]]] = t + q


@_jit
def gather(x, who, start, flat):  # type: ignore[no-untyped-def]
    """The coordinates of the clients `who`, cell by cell."""
    for c in range(start.size - 1):
        size = start[c + 1] - start[c]
        for k in range(x.shape[0]):
            at = start[c] * x.shape[0] + k * size
            for i in range(size):
                flat[at + i] = x[k, who[start[c] + i]]


# Gains


@_jit
def all_gains(x, cur, start, end, gains):  # type: ignore[no-untyped-def]
    """Add to gains (n,) what the points j in start..end-1 and i ≥ j bring to each other: a distance serves both."""
    n, flat = cur.size, x.reshape(x.size)
    square, a = np.empty(TILE, np.float32), np.empty(x.shape[0], np.float32)
    for base in range(start, n, TILE):
        high = min(base + TILE, n)
        for j in range(start, min(end, high)):
            _copy(x, j, a)
            low = max(base, j + 1)
            if low >= high:
                continue
            _squares(flat, low, n, a, high - low, square)
            total, mine, first = np.int64(0), cur[j], np.uintp(low)
            for i in range(np.uintp(high - low)):
                d = np.int32(math.sqrt(square[i]))
                total += np.int64(max(np.int32(0), cur[first + i] - d))
                gains[first + i] += np.int64(max(np.int32(0), mine - d))
            gains[j] += total
    for j in range(start, end):
        gains[j] += cur[j]


@_jit
def medoid(x, ids, pivots, shrink):  # type: ignore[no-untyped-def]
    """The candidate of ids (c,) with the smallest Σ_i d_ij; of equal ones the lowest.

    Over the clients next to a pivot, Σ_i d_ij is at least their number times the distance to their mean. Candidates are
    measured in the order of that bound, until it exceeds the best.
    """
    dims, n, count = x.shape[0], x.shape[1], pivots.size
    a, d = np.empty(dims, np.float32), np.empty(n, np.int32)
    nearest, least = np.zeros(n, np.int32), np.full(n, 2**30, np.int32)
    for p in range(count):
        _copy(x, pivots[p], a)
        distances(x, a, d)
        for i in range(n):
            nearest[i] = p if d[i] < least[i] else nearest[i]
            least[i] = min(least[i], d[i])
    mean, size, bound = np.zeros((count, dims)), np.zeros(count), np.zeros(n)
    for i in range(n):
        size[nearest[i]] += 1
        for k in range(dims):
            mean[nearest[i], k] += x[k, i]
    for p in range(count):
        if size[p] > 0:
            for k in range(dims):
                a[k] = mean[p, k] / size[p]
            distances(x, a, d)
            for i in range(n):
                bound[i] += size[p] * d[i]
    order, slack = np.argsort(bound[ids]), (4 + 32 * math.sqrt(dims)) * n  # rounding of distances, and of means
    best, chosen = np.int64(2**62), ids[order[0]]
    for o in order:
        if bound[ids[o]] * shrink - slack > best:
            break
        _copy(x, ids[o], a)
        distances(x, a, d)
        total = np.int64(0)
        for i in range(n):
            total += np.int64(d[i])
        if total < best or (total == best and ids[o] < chosen):
            best, chosen = total, ids[o]
    return chosen


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
def _at(start, c, client, a):  # type: ignore[no-untyped-def]
    """Where the first coordinate of a client of cell c stands."""
    return start[c] * a.size + client - start[c]


@_inline
def _whole(count):  # type: ignore[no-untyped-def]
    """`count` rounded up to full vectors: what stands behind a cell is computed too, and not used."""
    return (count + 31) & ~31


@_inline
def _gain(cells, cur, a, square):  # type: ignore[no-untyped-def]
    """Σ_i max(0, cur_i − ‖y_i − a‖), over the clients that `a` may reach."""
    flat, _, reach, limit, start, pivots, shrink = cells
    total, count = np.int64(0), start.size - 1
    for base in range(0, count, TILE):
        top = min(base + TILE, count)
        _squares(pivots, base, count, a, top - base, square[0])
        for c in range(base, top):
            if square[0][c - base] >= limit[c]:
                continue
            least = math.sqrt(square[0][c - base]) * shrink
            end = _prefix(reach, start[c], start[c + 1], least)
            for low in range(start[c], end, TILE):
                size, first = min(TILE, end - low), np.uintp(low)
                _squares(flat, _at(start, c, low, a), start[c + 1] - start[c], a, _whole(size), square[1])
                for i in range(np.uintp(size)):
                    total += np.int64(max(np.int32(0), cur[first + i] - np.int32(math.sqrt(square[1][i]))))
    return total


@_jit
def gains(x, cells, cur, ids, out):  # type: ignore[no-untyped-def]
    """out (c,) = the marginal gains of the candidates ids (c,)."""
    a, square = np.empty(x.shape[0], np.float32), np.empty((2, TILE), np.float32)
    for p in range(ids.size):
        _copy(x, ids[p], a)
        out[p] = _gain(cells, cur, a, square)


# The heap of bounds


@_inline
def _before(key, name, other_key, other_name):  # type: ignore[no-untyped-def]
    return key > other_key or (key == other_key and name < other_name)


@_inline
def _sink(keys, ids, size, key, name):  # type: ignore[no-untyped-def]
    """Put (key, name) at the top in place of what is there, and restore the order."""
    at = 0
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        if child + 1 < size and _before(keys[child + 1], ids[child + 1], keys[child], ids[child]):
            child += 1
        if _before(key, name, keys[child], ids[child]):
            break
        keys[at], ids[at] = keys[child], ids[child]
        at = child
    keys[at], ids[at] = key, name


@_inline
def _is_first(keys, ids, size, key, name):  # type: ignore[no-untyped-def]
    """Is (key, name), in place of the top, still before all others?"""
    left = size < 2 or _before(key, name, keys[1], ids[1])
    return left and (size < 3 or _before(key, name, keys[2], ids[2]))


# Greedy


@_jit
def lazy(x, cells, cur, owner, keys, ids, place, picks, t, size, stop):  # type: ignore[no-untyped-def]
    """Picks t..stop-1 by lazy evaluation, with distances computed from the points; place[j]: where client j stands."""
    a, square = np.empty(x.shape[0], np.float32), np.empty((2, TILE), np.float32)
    while t < stop:
        name = ids[0]
        _copy(x, name, a)
        key = _gain(cells, cur, a, square)
        if _is_first(keys, ids, size, key, name):
            picks[t] = name
            select(cells, a, t, cur, owner)
            owner[place[name]] = t  # also where another point selected before is at distance 0
            t, size = t + 1, size - 1
            key, name = keys[size], ids[size]
        _sink(keys, ids, size, key, name)
    return size


@_jit
def graph(x, cells, cur, ids, begin, edges, start, client, far):  # type: ignore[no-untyped-def]
    """For each candidate of ids[begin:] its clients with d < cur, as (place, distance), until the room is used up.

    Writes start[p + 1], the end of candidate p's edges. Returns the candidates done and the edges written.
    """
    flat, _, reach, limit, cell, pivots, shrink = cells
    a, square, d = np.empty(x.shape[0], np.float32), np.empty((2, TILE), np.float32), np.empty(TILE, np.int32)
    room, count = client.size, cell.size - 1
    for p in range(begin, ids.size):
        _copy(x, ids[p], a)
        before = edges
        for base in range(0, count, TILE):
            top = min(base + TILE, count)
            _squares(pivots, base, count, a, top - base, square[0])
            for c in range(base, top):
                if square[0][c - base] >= limit[c]:
                    continue
                least = math.sqrt(square[0][c - base]) * shrink
                end = _prefix(reach, cell[c], cell[c + 1], least)
                for low in range(cell[c], end, TILE):
                    size = min(TILE, end - low)
                    if edges + size > room:
                        return p, before
                    whole = _whole(size)
                    _squares(flat, _at(cell, c, low, a), cell[c + 1] - cell[c], a, whole, square[1])
                    for i in range(np.uintp(whole)):
                        d[i] = np.int32(math.sqrt(square[1][i]))
                    at, first = np.uintp(edges), np.uintp(low)
                    for i in range(np.uintp(size)):
                        client[at], far[at] = first + i, d[i]
                        at += np.uintp(d[i] < cur[first + i])
                    edges = np.intp(at)
        start[p + 1] = edges
    return ids.size, edges


@_inline
def _sparse_gain(cur, client, far, low, length):  # type: ignore[no-untyped-def]
    """The gain of a candidate by its edges, and how many are left once those that bring nothing any more are gone."""
    total, kept = np.int64(0), low
    for e in range(low, low + length):
        i, d = client[e], far[e]
        gain = cur[i] - d
        total += np.int64(max(gain, np.int32(0)))
        client[kept], far[kept] = i, d
        kept += gain > 0
    return total, kept - low


@_jit
def sparse_gains(cur, client, far, start, length, out):  # type: ignore[no-untyped-def]
    for p in range(out.size):
        out[p], length[p] = _sparse_gain(cur, client, far, start[p], length[p])


@_jit
def sparse(cur, owner, client, far, start, length, row, place, keys, ids, picks, t, size, stop):  # type: ignore[no-untyped-def]
    """Picks t..stop-1 by lazy evaluation over the edges of a graph; row[j]: the row of candidate j in it."""
    while t < stop:
        name = ids[0]
        p = row[name]
        key, length[p] = _sparse_gain(cur, client, far, start[p], length[p])
        if _is_first(keys, ids, size, key, name):
            picks[t] = name
            for e in range(start[p], start[p] + length[p]):
                cur[client[e]], owner[client[e]] = far[e], t
            owner[place[name]] = t
            t, size = t + 1, size - 1
            key, name = keys[size], ids[size]
        _sink(keys, ids, size, key, name)
    return size


# Other ways to choose


@_jit
def stochastic(x, cells, cur, owner, keys, pool, place, draws, size, picks, t, stop):  # type: ignore[no-untyped-def]
    """Picks t..stop-1, each the best of `size` points drawn from the `pool` of those not selected.

    keys (n,) are bounds on the gains: a drawn point whose bound is no better than the best so far is not evaluated.
    """
    a, square = np.empty(x.shape[0], np.float32), np.empty((2, TILE), np.float32)
    used = 0
    while t < stop:
        left = pool.size - t
        best, where = np.int64(-1), 0
        for s in range(min(size, left)):  # the first s of the pool are drawn already
            q = s + int(draws[used] * (left - s))
            used += 1
            pool[s], pool[q] = pool[q], pool[s]
            name = pool[s]
            if not _before(keys[name], name, best, pool[where]):
                continue
            _copy(x, name, a)
            keys[name] = _gain(cells, cur, a, square)
            if _before(keys[name], name, best, pool[where]):
                best, where = keys[name], s
        name = pool[where]
        pool[where], pool[left - 1] = pool[left - 1], name
        picks[t] = name
        _copy(x, name, a)
        select(cells, a, t, cur, owner)
        owner[place[name]] = t
        t += 1


@_jit
def sieve(x, cap, k, epsilon, slots, count, chosen):  # type: ignore[no-untyped-def]
    """Sieve-streaming: one pass over the points in order. Fills count (L,) and chosen (L, k); returns the best sieve.

    slots (L, n) int32: the cur of each sieve. A sieve for the guess v of the optimum takes a point whose gain is at
    least (v/2 − F(S)) / (k − |S|); v runs over the powers of 1 + ε between m and 2km, m the largest F({e}) so far.
    """
    levels, n = slots.shape
    a, d = np.empty(x.shape[0], np.float32), np.empty(n, np.int32)
    value, step = np.zeros(levels, np.int64), math.log1p(epsilon)
    guess = np.full(levels, -1, np.int64)  # the power of 1 + ε a slot stands for
    largest = np.int64(0)
    for j in range(n):
        _copy(x, j, a)
        distances(x, a, d)
        single = np.int64(0)
        for i in range(n):
            single += np.int64(cap - d[i])
        largest = max(largest, single)
        low = math.ceil(math.log(largest) / step - 1e-9)
        high = math.floor(math.log(2.0 * k * largest) / step + 1e-9)
        for power in range(low, high + 1):
            s = power % levels
            if guess[s] != power:
                guess[s], value[s], count[s] = power, 0, 0
                slots[s, :] = cap
            if count[s] == k:
                continue
            least = (math.exp(power * step) / 2 - value[s]) / (k - count[s])
            if single < least:
                continue
            gain, cur = np.int64(0), slots[s]
            for i in range(n):
                gain += np.int64(max(np.int32(0), cur[i] - d[i]))
            if gain >= least:
                for i in range(n):
                    cur[i] = min(cur[i], d[i])
                value[s] += gain
                chosen[s, count[s]] = j
                count[s] += 1
    return np.argmax(value)


@_inline
def _nearest_medoid(medoids, a, except_for, square):  # type: ignore[no-untyped-def]
    """The nearest column of medoids (d, k) to a (d,), other than `except_for`, and the distance."""
    k, flat = medoids.shape[1], medoids.reshape(medoids.size)
    nearest, least = -1, np.int32(2**31 - 1)
    for low in range(0, k, TILE):
        size = min(TILE, k - low)
        _squares(flat, low, k, a, size, square)
        for m in range(size):
            d = np.int32(math.sqrt(square[m]))
            if d < least and low + m != except_for:
                nearest, least = low + m, d
    return nearest, least


@_jit
def swap(x, picks, sweeps):  # type: ignore[no-untyped-def]
    """Exchange selected for other points as long as the cost falls, at most `sweeps` times through all points.

    Eager FastPAM (Schubert and Rousseeuw 2021): one pass over the clients gives the change of the cost for putting a
    point in the place of each selected one. Changes picks (k,) in place; returns the number of exchanges.
    """
    n, k = x.shape[1], picks.size
    medoids = np.empty((x.shape[0], k), np.float32)
    a, b, square = np.empty(x.shape[0], np.float32), np.empty(x.shape[0], np.float32), np.empty(TILE, np.float32)
    selected = np.zeros(n, np.bool_)
    for m in range(k):
        selected[picks[m]] = True
        medoids[:, m] = x[:, picks[m]]
    first, second = np.empty(n, np.int32), np.empty(n, np.int32)
    d1, d2 = np.empty(n, np.int32), np.empty(n, np.int32)
    for i in range(n):
        _copy(x, i, a)
        first[i], d1[i] = _nearest_medoid(medoids, a, -1, square)
        second[i], d2[i] = _nearest_medoid(medoids, a, first[i], square)
    loss, change, d = np.zeros(k, np.int64), np.empty(k, np.int64), np.empty(n, np.int32)
    for i in range(n):
        loss[first[i]] += np.int64(d2[i]) - d1[i]
    exchanges, since = 0, 0
    for visit in range(sweeps * n):
        j, since = visit % n, since + 1
        if since > n:
            break  # once around without an exchange
        if selected[j]:
            continue
        _copy(x, j, a)
        distances(x, a, d)
        change[:] = loss
        for_all = np.int64(0)
        for i in range(n):
            if d[i] < d2[i]:
                if d[i] < d1[i]:
                    for_all += np.int64(d[i]) - d1[i]
                    change[first[i]] += np.int64(d1[i]) - d2[i]
                else:
                    change[first[i]] += np.int64(d[i]) - d2[i]
        m = np.argmin(change)
        if for_all + change[m] >= 0:
            continue
        selected[picks[m]], selected[j] = False, True
        picks[m] = j
        medoids[:, m] = a
        exchanges, since = exchanges + 1, 0
        for i in range(n):
            if first[i] == m and d[i] <= d2[i]:
                d1[i] = d[i]
            elif first[i] == m:
                _copy(x, i, b)
                first[i], d1[i] = second[i], d2[i]
                second[i], d2[i] = _nearest_medoid(medoids, b, first[i], square)
            elif d[i] < d1[i]:
                second[i], d2[i] = first[i], d1[i]
                first[i], d1[i] = m, d[i]
            elif d[i] < d2[i]:
                second[i], d2[i] = m, d[i]
            elif second[i] == m:
                _copy(x, i, b)
                second[i], d2[i] = _nearest_medoid(medoids, b, first[i], square)
        loss[:] = 0
        for i in range(n):
            loss[first[i]] += np.int64(d2[i]) - d1[i]
    return exchanges

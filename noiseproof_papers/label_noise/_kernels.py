"""Label-noise SGD one example at a time, in blocks: the part of a block that must run in order, compiled by numba.

A step needs h = W x₁ (m·d products) and adds a rank-one term to W (m·d again). Done one by one, both are bound by
memory. For B examples in a row, X (B, d), all products with the W before them are one matrix product H = XWᵀ, and what
the steps a < b within the block add to row b is known from G = XXᵀ:

    W_b x_b = W_0 x_b + Σ_{a<b} c_a G_ab pattern_a,        W_B = W_0 + patternᵀ diag(c) X,

with pattern_aj = w_j 1(h_aj ≥ 0). This is the same recursion, in another order of additions. The kernel runs it, O(m·B)
an example; the caller makes H, G and the last product, which BLAS does at the speed of the processor.
"""

from __future__ import annotations

import numpy as np

from noiseproof.jit import compiled

_compiled = compiled("contract", "reassoc", "nsz")  # sums in any order, always the same one


@_compiled
def block(H, G, x2, y, flip, slot, rate, delta, w, v, V, V_signal, V_noise, pattern, c, c_signal, joint, decouple):  # type: ignore[no-untyped-def]
    """Run the examples of a block in order; V moves here, W by what is left in pattern (B, m), c and c_signal (B,).

    Args:
        H: (B, m), products of the block's x₁ with the W before it; overwritten. G: (B, B), of these x₁ with each other.
        x2: (T, 2), y, flip: (T,); slot: (T,), where an example's row in H is, −1 for x₁ = 0.
        w, v: (m,), the output weights, the same if joint; V, V_signal, V_noise: (2, m).
    """
    m = w.shape[0]
    zero = w[0] - w[0]
    h, p2 = np.zeros_like(w), np.zeros_like(w)
    for t in range(x2.shape[0]):
        b, along_z, along_zeta = slot[t], x2[t, 0], x2[t, 1]
        if b >= 0:
            row = H[b]
            for a in range(b):
                scale = c[a] * G[a, b]
                before = pattern[a]
                for j in range(m):
                    row[j] += scale * before[j]
        for j in range(m):
            h[j] = along_z * V[0, j] + along_zeta * V[1, j]
        if joint and b >= 0:  # one unit sees x₁ and x₂
            for j in range(m):
                h[j] += row[j]
        f = zero
        for j in range(m):
            p2[j] = v[j] if h[j] >= zero else zero
            f += p2[j] * h[j]
        if joint and b >= 0:
            pattern[b] = p2
        elif b >= 0:
            p1 = pattern[b]
            for j in range(m):
                p1[j] = w[j] if row[j] >= zero else zero
                f += p1[j] * row[j]
        margin = y[t] * f
        right = -1.0 / (1.0 + np.exp(margin))  # ℓ'(z)
        wrong = -1.0 - right  # ℓ'(−z), since ℓ'(z) + ℓ'(−z) = −1
        signal = (1.0 - delta) * right - delta * wrong  # of the smoothed loss
        whole = right if flip[t] > 0 else -wrong
        move, move_signal = -rate * y[t] * whole, -rate * y[t] * signal
        if b >= 0:
            c[b], c_signal[b] = move, move_signal
        first, second = w.dtype.type(move * along_z), w.dtype.type(move * along_zeta)
        for j in range(m):
            V[0, j] += first * p2[j]
            V[1, j] += second * p2[j]
        if decouple:
            s0, s1 = w.dtype.type(move_signal * along_z), w.dtype.type(move_signal * along_zeta)
            n0 = w.dtype.type((move - move_signal) * along_z)
            n1 = w.dtype.type((move - move_signal) * along_zeta)
            for j in range(m):
                V_signal[0, j] += s0 * p2[j]
                V_signal[1, j] += s1 * p2[j]
                V_noise[0, j] += n0 * p2[j]
                V_noise[1, j] += n1 * p2[j]


@_compiled
def full_batch(h1, h2, y, w, v, rate, joint):  # type: ignore[no-untyped-def]
    """For all examples: replaces the products h1 = X₁Wᵀ (k, m), of the k examples with x₁, and h2 = X₂V (n, m) by the
    factors of x₁ and x₂ in the step: rate·(−ℓ'(yf)) y w 1(h ≥ 0), and the same with v."""
    n, m = h2.shape
    zero = w[0] - w[0]
    for i in range(n):
        a = h2[i]
        f = zero
        if i < len(h1):
            b = h1[i]
            if joint:
                for j in range(m):
                    a[j] += b[j]
            else:
                for j in range(m):
                    f += w[j] * max(b[j], zero)
        for j in range(m):
            f += v[j] * max(a[j], zero)
        c = w.dtype.type(rate * y[i] / (1.0 + np.exp(y[i] * f)))
        for j in range(m):
            a[j] = c * v[j] if a[j] >= zero else zero
        if i < len(h1):
            if joint:
                for j in range(m):
                    b[j] = a[j]
            else:
                for j in range(m):
                    b[j] = c * w[j] if b[j] >= zero else zero

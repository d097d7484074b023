"""What to look at in a run of the laboratory of annealing.py: losses, errors, activations, signal and noise."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from noiseproof_papers.label_noise import annealing
from noiseproof_papers.label_noise.annealing import KINDS, Data, Net, Parts, Problem, logistic, predict


class Probe:
    """Measures a network against its start: losses on the training set, errors on new examples of each kind."""

    def __init__(self, start: Net, law: Problem, data: Data, *, seed: int, size: int = 4000) -> None:
        self.start, self.law, self.data = annealing.copy(start), law, data
        dtype, r = data.y.dtype, law.r
        self.tests = {
            kind: annealing.draw(law, size, seed=seed + i, kind=kind, dtype=dtype) for i, kind in enumerate(KINDS)
        }
        self.corners = law.q_scale * torch.tensor([[1.0, 0.0], [1.0, r], [1.0, -r]], dtype=dtype)  # z, z ± ζ

    def __call__(self, net: Net, parts: Parts | None = None) -> dict[str, Any]:
        """Losses (`_m1`: on M₁; `_not_m1`: on the others; `_r_m1`: of r alone), errors, and what the lemmas bound."""
        data, k = self.data, self.data.with_p
        loss = logistic(data.y * predict(net, data))
        in_m2 = data.x2[:, 0] > 0
        g = annealing.q_part(net, self.corners)
        margins = {kind: test.y * predict(net, test) for kind, test in self.tests.items()}
        error = {kind: float((z <= 0).double().mean()) for kind, z in margins.items()}
        odd = net.w @ net.W  # (d,): r(x) − r(−x) = ⟨odd, x⟩
        figures = {
            "loss": loss.mean(),
            "loss_m1": loss[:k].mean(),
            "loss_not_m1": loss[k:].mean(),
            "loss_m2": loss[in_m2].mean(),
            "loss_not_m2": loss[~in_m2].mean(),
            "loss_r_m1": logistic(data.y[:k] * annealing.p_part(net, data.x1[:k])).mean(),
            "second_difference": (g[1] + g[2] - 2 * g[0]).abs(),
            "g": g,
            **{f"error_{kind}": value for kind, value in error.items()},
            "error": sum(share * error[kind] for kind, share in self.law.shares.items()),
            "test_loss": sum(share * logistic(margins[kind]).mean() for kind, share in self.law.shares.items()),
            "alignment": odd[0] / odd.norm(),
            **self._patterns(net),
            **(self._parts(parts) if parts else {}),
        }
        return {key: value.tolist() if isinstance(value, Tensor) else value for key, value in figures.items()}

    def _patterns(self, net: Net) -> dict[str, Any]:
        """Shares of units: other activation than at the start; unlike at z + ζ and z − ζ, now and since the start."""
        x1 = self.tests["p"].x1[:200]
        (was_p, was_q), (is_p, is_q) = (
            [a >= 0 for a in (x1 @ n.W.T, self.corners @ n.V)] for n in (self.start, net)
        )  # (200, m), (3, m)
        was, wedge = was_q[1] != was_q[2], is_q[1] != is_q[2]
        return {
            "pattern_p": (was_p != is_p).double().mean(),
            "pattern_q": (was_q[0] != is_q[0]).double().mean(),
            "active_q": is_q[0].double().mean(),
            "wedge": wedge.double().mean(),
            "wedge_kept": (was & wedge).sum() / max(1, int(was.sum())),
        }

    def _parts(self, parts: Parts) -> dict[str, Any]:
        noise_W, noise_V = parts.W_noise - self.start.W, parts.V_noise - self.start.V
        z = self.start.V[0] >= 0
        return {
            "W_signal": parts.W_signal.norm(),
            "V_signal": parts.V_signal.norm(),
            "W_noise": noise_W.norm(),
            "V_noise": noise_V.norm(),
            "pattern_q_noise": (z != (parts.V_noise[0] >= 0)).double().mean(),  # 1(Ṽz) against 1(V₀z)
        }

"""What the history says of methods that leave examples out."""

from __future__ import annotations

from torch import Tensor

from noiseproof.method import Run


def share_right(run: Run, chosen: Tensor) -> dict[str, float]:
    """The share of right labels among the chosen (n,), where some but not all are and it is known which are right."""
    wrong, chosen = run.data.wrong, chosen.cpu()
    if wrong is None or chosen.all() or not chosen.any():
        return {}
    return {"selected_right": 1 - float(wrong[chosen].float().mean())}

"""Plain cross-entropy: the baseline every robust method is measured against."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from noiseproof import checks
from noiseproof.method import Batch, Method, Run


class CrossEntropy(Method):
    """Minimise −log p_y: fits the right labels first and the wrong ones later."""

    name = "ce"
    paper = "baseline"

    def loss(self, run: Run, batch: Batch) -> Tensor:
        return batch.mean(F.cross_entropy(checks.single(run.model(batch.views[0])), batch.label, reduction="none"))

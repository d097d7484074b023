"""L_DMI: maximise the determinant of the joint distribution of predictions and labels.

Yilun Xu, Peng Cao, Yuqing Kong and Yizhou Wang, "L_DMI: A Novel Information-theoretic Loss Function for Training Deep
Nets Robust to Label Noise", NeurIPS 2019. With the predictions p_i and labels y_i of a batch of N examples

    U_jk  = 1/N Σ_i p_ij 1[y_i = k]
    L_DMI = −log |det U|

Noise that is independent of the input given the class turns U into U T, and L_DMI into L_DMI − log |det T|: of two
classifiers the better one is the same with and without it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from noiseproof import checks
from noiseproof.method import Batch, Run
from noiseproof.methods import _warmup

_RIDGE = 1e-2  # on the diagonal of U, in units of its mean: a class that is missing from a batch has no say


def dmi(logits: Tensor, label: Tensor, weight: Tensor | None = None) -> Tensor:
    """−log |det U| of a batch: logits (B, K), label (B,) and the examples' weights (B,) to a scalar.

    U is multiplied by K, which takes a constant from the loss, and a hundredth is added to its diagonal.
    """
    given = F.one_hot(label, logits.shape[1]).to(logits.dtype)  # (B, K)
    if weight is not None:
        given = given * weight[:, None].to(logits.dtype)
    joint = logits.softmax(dim=1).T @ given * (logits.shape[1] / len(label))  # (K, K) K U
    ridge = _RIDGE * torch.eye(len(joint), dtype=joint.dtype, device=joint.device)
    return -torch.linalg.slogdet(joint + ridge).logabsdet


class DMILoss(nn.Module):
    """L_DMI for anybody's loop: −log |det U|, U the joint distribution of predictions and labels in a batch.

    Xu et al. (2019). Start from a network trained with cross-entropy, with a rate a tenth of its or less.

    Differs from the paper: U is multiplied by K and has a hundredth added to its diagonal.
    Differs from the authors' code: there U is multiplied by N, and 0.001 added to its determinant.
    """

    def forward(self, logits: Tensor, label: Tensor) -> Tensor:
        """The loss, a scalar, of logits (B, K) at labels (B,), int64 in 0..K-1; each class several times in a batch."""
        return dmi(checks.logits_and_label(logits, label), label)


@dataclass(kw_only=True, eq=False, repr=False)
class DMI(_warmup.WarmsUp):
    """After a start with cross-entropy, maximise the determinant of the joint distribution of predictions and labels.

    −log |det U| of Xu et al. (2019).

    Differs from the paper: the start is in the same run, and a share of it; the loss is multiplied by `scale`, as the
    run's learning rate is for cross-entropy; and see `DMILoss`.
    Differs from the authors' code: it goes on from the epoch of the best held-out noisy accuracy of cross-entropy, with
    the rate 1e-6 where that had up to 1e-2, and keeps the best epoch again.

    Args:
        scale: of the loss, above 0; ten times the default ended at chance on digits.
        warmup: epochs of cross-entropy, at least 1; None: a twentieth of all, at least 5, or fewer in a run below 50.

    Raises:
        InputError: an argument outside its range.
    """

    name = "dmi"
    paper = "Xu et al. 2019"
    needs = "large batches"

    scale: float = checks.option(0.001, checks.number, low=0, ends="(]")
    warmup: int | None = checks.option(None, _warmup.option)

    def loss(self, run: Run, batch: Batch) -> Tensor:
        logits = checks.single(run.model(batch.views[0]))  # (B, K)
        if run.epoch < self.warm_epochs(run):
            return batch.mean(F.cross_entropy(logits, batch.label, reduction="none"))
        whole = batch.gathered()
        return self.scale * dmi(batch.gather(logits), whole.label, whole.weight)

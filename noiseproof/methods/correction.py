"""Loss correction: train through the matrix of label flips, known or estimated.

Giorgio Patrini, Alessandro Rozza, Aditya Menon, Richard Nock and Lizhen Qu, "Making Deep Neural Networks Robust to
Label Noise: a Loss Correction Approach", CVPR 2017. T_ij is the probability that true class i is labelled j.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from noiseproof import checks
from noiseproof.errors import InputError
from noiseproof.method import Batch, Method, Run, Selection
from noiseproof.methods import _warmup

_QUANTILE = 0.97  # the authors' outlier filter
_FLOOR = 1e-6  # smallest entry of an estimated matrix: no label that occurs is impossible
_MAX_CONDITION = 100  # above it the backward loss is dominated by the error of the inverse


def forward_loss(logits: Tensor, label: Tensor, transition: Tensor) -> Tensor:
    """−log Σ_j p_j T_jy of each example: cross-entropy of the prediction passed through the noise (Theorem 2).

    Args:
        logits: (B, K).
        label: (B,) noisy.
        transition: (K, K).

    Returns:
        (B,).
    """
    log_p = F.log_softmax(logits, dim=1)  # (B, K)
    log_t = transition.T[label].to(log_p.dtype).log()  # (B, K): how each true class comes to this label
    return -torch.logsumexp(log_p + log_t, dim=1)  # Theorem 2


def backward_loss(logits: Tensor, label: Tensor, inverse: Tensor) -> Tensor:
    """Σ_j (T⁻¹)_yj (−log p_j) of each example: unbiased for the clean cross-entropy, and may be negative (Theorem 1).

    Args:
        logits: (B, K).
        label: (B,) noisy.
        inverse: (K, K), T⁻¹.

    Returns:
        (B,).
    """
    log_p = F.log_softmax(logits, dim=1)  # (B, K)
    return -(inverse[label].to(log_p.dtype) * log_p).sum(dim=1)  # Theorem 1


def estimate_transition(probs: Tensor, quantile: float | Tensor = _QUANTILE) -> Tensor:
    """T from the predictions of a network trained on the noisy labels, by one anchor example per class.

    x̄_i is the example at the given quantile of p(i|x) and T_ij = p(j|x̄_i): Eqs. (12) and (13).

    Differs from the paper: entries are at least 1e-6, so that no label that occurs is impossible.
    Differs from the authors' code: its filter blanks the outliers of one class before it looks for the next, so an
    anchor's row may lose entries; here every row is as predicted.

    Args:
        probs: (n, K) predicted probabilities over the training set.
        quantile: in (0, 1], one or one for each class; 1 is the argmax of Eq. (12), less keeps clear of outliers.

    Returns:
        (K, K), rows sum to 1.
    """
    quantiles = torch.as_tensor(quantile, dtype=torch.float64).expand(probs.shape[1])  # (K,)
    rank = (quantiles * len(probs) - 1e-6).ceil().long().clamp(1, len(probs))
    anchor = torch.stack([p.kthvalue(int(k)).indices for p, k in zip(probs.T, rank, strict=True)])  # (K,), Eq. (12)
    transition = probs[anchor].clamp_min(_FLOOR)  # (K, K), Eq. (13)
    return transition / transition.sum(dim=1, keepdim=True)


def check_transition(transition: Any) -> Tensor:
    """A transition matrix as a tensor (K, K), checked.

    Raises:
        InputError: not a square matrix of probabilities with rows that sum to 1, or a label that no class leads to.
    """
    try:
        matrix = torch.as_tensor(transition).detach()
    except (TypeError, ValueError, RuntimeError):
        raise InputError("transition must be a K x K matrix of numbers, got something ragged or not numeric") from None
    if not checks.is_dense(matrix) or matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or len(matrix) < 2:
        raise InputError(f"transition must be a K x K matrix with K > 1, got {checks.describe(matrix)}")
    if not matrix.is_floating_point():
        matrix = matrix.to(torch.get_default_dtype())
    at = checks.first(~((matrix >= 0) & (matrix <= 1)).all(dim=1))
    if at is not None:
        raise InputError(f"transition must hold probabilities, got {matrix[at].tolist()} in row {at}")
    at = checks.first((matrix.sum(dim=1) - 1).abs() > 1e-4)
    if at is not None:
        raise InputError(
            f"transition must have rows that sum to 1, got {matrix[at].sum().item():g} in row {at}; "
            f"entry [i, j] is the probability that true class i is labelled j"
        )
    at = checks.first(matrix.sum(dim=0) == 0)
    if at is not None:
        raise InputError(f"transition must lead to every label, got a column {at} of zeros; remove that class")
    return matrix


def invert(transition: Tensor) -> Tensor:
    """T⁻¹ (K, K), computed in double precision.

    Raises:
        InputError: T is singular, or so nearly that its inverse means nothing.
    """
    matrix = transition.double().cpu()
    inverse, failed = torch.linalg.inv_ex(matrix)
    condition = torch.inf if failed else (torch.linalg.norm(matrix, 1) * torch.linalg.norm(inverse, 1)).item()
    if not condition < _MAX_CONDITION:
        raise InputError(
            f"backward correction needs an invertible transition, got condition number {condition:.3g} "
            f"(at most {_MAX_CONDITION:g}); use forward correction, which does not invert it"
        )
    return inverse.to(transition)


class ForwardLoss(nn.Module):
    """Forward correction for anybody's loop: −log Σ_j p_j T_jy.

    Theorem 2 of Patrini et al. (2017).

    Differs from the paper: nothing.

    Args:
        transition: (K, K), T_ij the probability that true class i is labelled j; rows sum to 1.
        reduction: "mean", "sum" or "none".

    Raises:
        InputError: not a transition matrix.
    """

    transition: Tensor

    def __init__(self, transition: Any, *, reduction: str = "mean") -> None:
        super().__init__()
        self.reduction = checks.reduction(reduction)
        self.register_buffer("transition", check_transition(transition).clone())  # (K, K)

    def forward(self, logits: Tensor, label: Tensor) -> Tensor:
        """The loss of logits (B, K) at labels (B,), int64 in 0..K-1."""
        logits = checks.logits_and_label(logits, label, len(self.transition))
        return checks.reduce(forward_loss(logits, label, self.transition), self.reduction)


class BackwardLoss(nn.Module):
    """Backward correction for anybody's loop: Σ_j (T⁻¹)_yj (−log p_j).

    Theorem 1 of Patrini et al. (2017).

    Differs from the paper: nothing.

    Args:
        transition: (K, K), T_ij the probability that true class i is labelled j; rows sum to 1, and invertible.
        reduction: "mean", "sum" or "none".

    Raises:
        InputError: not a transition matrix, or not invertible.
    """

    inverse: Tensor

    def __init__(self, transition: Any, *, reduction: str = "mean") -> None:
        super().__init__()
        self.reduction = checks.reduction(reduction)
        self.register_buffer("inverse", invert(check_transition(transition)))  # (K, K)

    def forward(self, logits: Tensor, label: Tensor) -> Tensor:
        """The loss of logits (B, K) at labels (B,), int64 in 0..K-1."""
        logits = checks.logits_and_label(logits, label, len(self.inverse))
        return checks.reduce(backward_loss(logits, label, self.inverse), self.reduction)


class Correction(Method):
    """What corrections share: a transition matrix, given or estimated after some epochs of cross-entropy."""

    paper = "Patrini et al. 2017"

    matrix: Tensor
    known: Tensor

    def __init__(self, *, transition: Any = None, warmup: int | None = None, quantile: float | None = None) -> None:
        super().__init__()
        if transition is not None and (warmup is not None or quantile is not None):
            raise InputError("warmup and quantile are for estimating a transition; leave them out where one is given")
        self.transition = None if transition is None else check_transition(transition).tolist()
        self.warmup = _warmup.option("warmup", warmup)
        self.quantile = None if quantile is None else checks.number("quantile", quantile, 0, 1, ends="(]")
        self.plans = transition is None and warmup is None

    def start(self, run: Run) -> None:
        size = run.num_classes
        if self.transition is not None and len(self.transition) != size:
            raise InputError(
                f"transition must be {size} x {size} (num_classes={size}), got {len(self.transition)} rows"
            )
        _warmup.check(self.warmup, run.epochs)
        self.register_buffer("matrix", torch.eye(size))  # (K, K)
        self._corrects: bool | None = None
        self.register_buffer("known", torch.tensor(self.transition is not None))  # given, or estimated by now
        if self.transition is not None:
            self.use(torch.tensor(self.transition))

    def before_epoch(self, run: Run) -> Selection | None:
        if not self.known and run.epoch >= _warmup.length(self.warmup, run):
            share = torch.bincount(run.data.labels, minlength=run.num_classes) / len(run.data)  # (K,)
            # a rare class has fewer examples than the top 3 %: its anchor must lie among them
            quantile = (1 - share / 2).clamp_min(_QUANTILE) if self.quantile is None else self.quantile
            self.use(estimate_transition(run.predict(), quantile))
            self.known.fill_(True)
        self._corrects = None
        return None

    def use(self, transition: Tensor) -> None:
        """Take (K, K) as the transition from here on."""
        self.matrix.copy_(transition)

    def loss(self, run: Run, batch: Batch) -> Tensor:
        logits = checks.single(run.model(batch.views[0]))
        if self._corrects is None:  # once in an epoch: to ask in each step would be to wait for the device
            self._corrects = bool(self.known)
        if not self._corrects:
            return batch.mean(F.cross_entropy(logits, batch.label, reduction="none"))
        return batch.mean(self.corrected(run, logits, batch.label))

    @abstractmethod
    def corrected(self, run: Run, logits: Tensor, label: Tensor) -> Tensor:
        """The corrected loss of each example: (B, K), (B,) to (B,)."""


class ForwardCorrection(Correction):
    """Pass the predictions through the label noise, and compare with the noisy labels there.

    −log Σ_j p_j T_jy: Theorem 2 of Patrini et al. (2017); T estimated by Eqs. (12) and (13) where it is not given.

    Differs from the paper: one run instead of two; the network that estimates T trains on with the corrected loss.

    Args:
        transition: (K, K) T, rows sum to 1; None: estimate it.
        warmup: epochs of cross-entropy before the estimate, at least 1; None: a twentieth of all, at least 5, or fewer
            in a run below 50.
        quantile: in (0, 1], of the anchor among the predictions for its class; None: 0.97 as in the authors' code, and
            for a class of fewer than 6 % of the labels the middle of its share.

    Raises:
        InputError: an argument outside its range, or not a transition matrix.
    """

    name = "forward"

    def corrected(self, run: Run, logits: Tensor, label: Tensor) -> Tensor:
        return forward_loss(logits, label, self.matrix)


class BackwardCorrection(Correction):
    """Weigh the losses of all classes by the inverse of the label noise: right on average, but of high variance.

    Σ_j (T⁻¹)_yj (−log p_j): Theorem 1 of Patrini et al. (2017); T estimated by Eqs. (12) and (13) where it is not
    given.

    Differs from the paper: one run instead of two; the network that estimates T trains on with the corrected loss.

    Args:
        transition: (K, K) T, rows sum to 1 and invertible; None: estimate it.
        warmup: epochs of cross-entropy before the estimate, at least 1; None: a twentieth of all, at least 5, or fewer
            in a run below 50.
        quantile: in (0, 1]; see `ForwardCorrection`.

    Raises:
        InputError: an argument outside its range, or a matrix (given or estimated) that cannot be inverted.
    """

    name = "backward"
    needs = "transition, clip"

    inverse: Tensor

    def __init__(self, *, transition: Any = None, warmup: int | None = None, quantile: float | None = None) -> None:
        super().__init__(transition=transition, warmup=warmup, quantile=quantile)
        if self.transition is not None:
            invert(torch.tensor(self.transition))

    def start(self, run: Run) -> None:
        self.register_buffer("inverse", torch.eye(run.num_classes))  # (K, K)
        super().start(run)

    def use(self, transition: Tensor) -> None:
        super().use(transition)
        self.inverse.copy_(invert(self.matrix))

    def corrected(self, run: Run, logits: Tensor, label: Tensor) -> Tensor:
        return backward_loss(logits, label, self.inverse)

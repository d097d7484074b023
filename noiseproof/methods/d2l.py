"""D2L: trust the labels less as the dimension of the learned representation grows.

Xingjun Ma, Yisen Wang, Michael Houle, Shuo Zhou, Sarah Erfani, Shu-Tao Xia, Sudanthi Wijewickrema and James Bailey,
"Dimensionality-Driven Learning with Noisy Labels", ICML 2018. Of the penultimate activations of a batch, r_j(x) the
distance of x to its j-th nearest neighbour,

    LID(x) = −(1/k Σ_{j≤k} log(r_j(x) / r_k(x)))⁻¹             local intrinsic dimensionality, by maximum likelihood
    α_i    = exp(−λ i/T · LID_i / min_{j≤i} LID_j)              in epoch i of T, LID_i a mean over examples; λ = 1
    y*     = α_i y + (1 − α_i) ŷ,  ŷ the class predicted       label of the cross-entropy

from the turning point on: the epoch whose LID is two standard deviations above the mean of a window of epochs before.
The network then goes back by one epoch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor

from noiseproof import checks
from noiseproof.method import Batch, Method, Run, Selection
from noiseproof.methods import _warmup
from noiseproof.methods._snapshot import Snapshot, tensors_of
from noiseproof.models.backbone import as_backbone
from noiseproof.models.inference import eval_mode

_BATCHES, _SIZE = 10, 128  # examples whose dimension is taken: the authors' 1,280
_DEVIATIONS = 2
_LEAST = 1e-12  # of a ratio of distances


def dimensionality(features: Tensor, neighbours: int) -> Tensor:
    """LID (B,) of features (B, F), each by its `neighbours` nearest others in the batch: the maximum likelihood."""
    features = features.double()
    distance = torch.cdist(features, features, compute_mode="donot_use_mm_for_euclid_dist")  # (B, B)
    count = min(neighbours, len(features) - 1)
    nearest = distance.fill_diagonal_(math.inf).topk(count, dim=1, largest=False).values  # (B, k) in ascending order
    ratio = (nearest / nearest[:, -1:].clamp_min(_LEAST)).clamp_min(_LEAST)
    return -1 / ratio.log().mean(dim=1).clamp_max(-_LEAST)


def turned(dimensions: Tensor, window: int) -> bool:
    """Whether the last of these (i,) is two standard deviations above the mean of the `window` before it."""
    before = dimensions[-window - 1 : -1]
    return bool(dimensions[-1] - before.mean() > _DEVIATIONS * before.std(correction=0))


def trust(dimensions: Tensor, share: float, lam: float) -> float:
    """α = exp(−λ i/T · LID_i / min LID) of the dimensions (i,) so far and the share i/T of the run."""
    return math.exp(-lam * share * float(dimensions[-1] / dimensions.min()))


def d2l_loss(logits: Tensor, label: Tensor, alpha: float) -> Tensor:
    """Cross-entropy at α y + (1 − α) ŷ, ŷ the class predicted: (B, K), (B,) to (B,)."""
    given = F.cross_entropy(logits, label, reduction="none")
    guessed = F.cross_entropy(logits, logits.argmax(dim=1), reduction="none")
    return alpha * given + (1 - alpha) * guessed


@dataclass(kw_only=True, eq=False, repr=False)
class D2L(Method):
    """Mix the label with the class predicted, the more so the higher the dimension of the representation has become.

    Ma et al. (2018).

    Differs from the paper: λ is 5, for 1 there, with which a short run memorises most labels (docs/methods/d2l.md). The
    epochs before a turning point is looked for, and those of the window, are a twentieth of the run each, but 5, the
    number in the authors' code, or a tenth of a run shorter than 50 epochs.
    Differs from the authors' code: distances to the neighbours are without the 1e-8 in the logarithm; the network goes
    back to the epoch before, there to the last one saved.

    Args:
        lam: λ, 0 or above. The paper: 1.
        neighbours: k, at least 2. The paper: 20.
        window: epochs, at least 2; None: a twentieth of all, at least 5, or fewer in a run below 50.

    Raises:
        InputError: an argument outside its range, or a network without features.
    """

    name = "d2l"
    paper = "Ma et al. 2018"
    plans = True  # α goes by their share

    lam: float = checks.option(5.0, checks.number, low=0)
    neighbours: int = checks.option(20, checks.integer, low=2)
    window: int | None = checks.option(None, checks.optional(checks.integer, low=2))
    dimensions: Tensor = field(init=False)
    turn: Tensor = field(init=False)

    def start(self, run: Run) -> None:
        as_backbone(run.model, "d2l")
        self.register_buffer("dimensions", torch.zeros(run.epochs, dtype=torch.float64))  # (T,) LID before each epoch
        self.register_buffer("turn", torch.tensor(-1))  # the epoch before the turning point; −1: none yet
        self.previous = Snapshot(tensors_of(run.models))  # as they were an epoch ago
        self._alpha: float | None = None  # of the epoch under way

    def before_epoch(self, run: Run) -> Selection | None:
        window = max(2, _warmup.early(run)) if self.window is None else self.window
        self.dimensions[run.epoch] = self._dimension(run)
        if self.turn < 0 and run.epoch >= 2 * window and turned(self.dimensions[: run.epoch + 1], window):
            self.turn.fill_(run.epoch - 1)
            self.previous.restore(tensors_of(run.models))
        self.previous.keep(tensors_of(run.models))
        self._alpha = None
        return None

    @torch.no_grad()
    def _dimension(self, run: Run) -> float:
        """The mean LID of some examples, drawn at random."""
        model, found = as_backbone(run.model, "d2l"), []
        drawn = torch.randperm(len(run.data), generator=run.generator)[: _BATCHES * _SIZE]
        with eval_mode(run.model):
            for rows in drawn.tensor_split(-(-len(drawn) // _SIZE)):
                inputs = run.normalize(run.data.take(rows).to(run.device))
                found.append(dimensionality(model.features(inputs).flatten(1), self.neighbours))
        return float(torch.cat(found).mean())

    def _trust(self, run: Run, epoch: int) -> float:
        """α of an epoch, the one after so many; 1 before the turning point."""
        return 1.0 if self.turn < 0 else trust(self.dimensions[: epoch + 1], epoch / run.epochs, self.lam)

    def loss(self, run: Run, batch: Batch) -> Tensor:
        logits = checks.single(run.model(batch.views[0]))  # (B, K)
        if self._alpha is None:  # once in an epoch: to ask in each step would be to wait for the device
            self._alpha = self._trust(run, run.epoch)
        return batch.mean(d2l_loss(logits, batch.label, self._alpha))

    def figures(self, run: Run) -> dict[str, float]:
        return {"lid": float(self.dimensions[run.epoch - 1]), "alpha": self._trust(run, run.epoch - 1)}

"""DivideMix: take the labels that look wrong away, and learn from those examples as if they had none.

Junnan Li, Richard Socher and Steven Hoi, "DivideMix: Learning with Noisy Labels as Semi-supervised Learning", ICLR
2020. Two networks; after a warm-up of cross-entropy, before each epoch a mixture of two normal distributions is fitted
to each network's losses (auditing/two_modes.py): w_i is the probability of the lower one. Each network is then taught
with the *other's* w, labelled where w_i > τ (Algorithm 1):

    ȳ_i = w_i y_i + (1 − w_i) p_i,  ŷ_i = Sharpen(ȳ_i, T)    p_i: its own prediction, mean over M views   co-refinement
    q̄_i = mean over both networks and M views,  q_i = Sharpen(q̄_i, T)                                     co-guessing
    L   = L_X + λ_u L_U + λ_r L_reg                          on mixtures of all of them: semi.py
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from noiseproof import checks
from noiseproof.auditing.two_modes import fit_two_modes
from noiseproof.method import Batch, Beliefs, Run
from noiseproof.methods import _warmup, semi
from noiseproof.models.inference import losses

_PAPER = 10  # epochs of warm-up, of 300


def clean_probability(loss: Tensor) -> Tensor:
    """w (n,): the probability that each loss (n,) belongs to the lower of two modes; 1 where there are no two."""
    modes = fit_two_modes(loss.numpy())
    return torch.ones_like(loss) if modes is None else 1 - torch.from_numpy(modes.upper(loss.numpy())).to(loss)


def co_targets(
    own: Tensor, other: Tensor, label: Tensor, clean: Tensor, threshold: float, temperature: float
) -> tuple[Tensor, Tensor]:
    """What a network learns: ŷ where the label is kept, else q; and where it is kept (B,) bool. Without gradient.

    Args:
        own, other: (B, K) probabilities by this network and by the other one, means over the views.
        label: (B,).
        clean: (B,) w by the other network.
        threshold, temperature: τ and T.
    """
    w = clean[:, None]
    refined = w * F.one_hot(label, own.shape[1]) + (1 - w) * own  # ȳ
    labelled = clean > threshold
    return semi.sharpen(torch.where(labelled[:, None], refined, (own + other) / 2), temperature), labelled


@dataclass(kw_only=True, eq=False, repr=False)
class DivideMix(_warmup.WarmsUp):
    """Two networks sort each other's examples by their losses; those that look wrong are learned without their labels.

    Algorithm 1 of Li et al. (2020): co-divide, co-refine, co-guess, MixMatch.

    Differs from the paper: a short run warms up for fewer epochs, in which the wrong labels would be learned. The paper
    trains one network after the other in each epoch, in steps of B labelled examples and as
    many unlabelled ones, until each labelled one was seen. Here an epoch visits every example once; a batch falls into
    labelled and unlabelled by each network's w, and both networks learn from it in one step. L_X and L_U are means over
    their own examples, hence of the same expectation but for the mixing, which pairs labelled with unlabelled examples
    as often as the data has them, not half and half. The other network guesses as it is now, not as it was at the end
    of its epoch. L_U is divided by K, as in the authors' code: λ_u = 25 is 2.5 of the paper's formula with ten classes.
    Without augmentation all M views are the example itself, and q is a mean over the two networks alone.
    Differs from the authors' code: the mixture is fitted to the losses as they are, from a fixed start; theirs, scaled
    to [0, 1], has a higher floor of the variances and takes ten steps at most. The other network guesses in train mode.
    With 90 % noise it averages the losses of five epochs, which is not here. A Selection's weights weigh L_X and L_U.

    Args:
        warmup: epochs of cross-entropy first, at least 1, fewer than the run has. None: a twentieth of all,
            at most 10, at least 5, or fewer in a run below 50. The paper: 10 of 300 for CIFAR-10, 30 for CIFAR-100.
        threshold: τ in [0, 1): labels with a smaller w are taken away. The paper: 0.5; 0.6 with 90 % noise.
        temperature: T in (0, 1]. The paper: 0.5.
        alpha: of the Beta distribution, above 0. The paper: 4.
        lam_u: λ_u, at least 0. The paper: from 0 (20 % symmetric noise) over 25 (50 %) to 150 (CIFAR-100).
        ramp: the epochs over which λ_u rises, at least 0. The authors' code: 16.
        lam_r: λ_r, at least 0. The paper: 1.
        penalty: weight of the negative entropy in the warm-up, at least 0. The paper: 1 for asymmetric noise, else 0.
        views: M, at least 1. The paper: 2.

    Raises:
        InputError: an argument outside its range.
    """

    name = "dividemix"
    paper = "Li et al. 2020"
    cost = "6×"
    num_models = 2

    warmup: int | None = checks.option(None, _warmup.option)
    threshold: float = checks.option(0.5, checks.number, low=0, high=1, ends="[)")
    temperature: float = checks.option(0.5, checks.number, low=0, high=1, ends="(]")
    alpha: float = checks.option(4.0, checks.number, low=0, ends="(]")
    lam_u: float = checks.option(25.0, checks.number, low=0)
    ramp: float = checks.option(16.0, checks.number, low=0)
    lam_r: float = checks.option(1.0, checks.number, low=0)
    penalty: float = checks.option(0.0, checks.number, low=0)
    views: int = checks.option(2, checks.integer, low=1, high=16)
    clean: Tensor = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.num_views = self.views

    def start(self, run: Run) -> None:
        super().start(run)
        self.register_buffer("clean", torch.ones(len(run.data), 2))  # (n, 2): w by each network

    def warm_epochs(self, run: Run) -> int:
        return min(_PAPER, super().warm_epochs(run)) if self.warmup is None else self.warmup

    def before_epoch(self, run: Run) -> None:
        if run.epoch < self.warm_epochs(run):
            return
        label = run.data.labels.cpu()
        for k, network in enumerate(run.models):
            loss = losses(run.predict(models=nn.ModuleList([network])), label)  # (n,)
            self.clean[:, k] = clean_probability(loss).to(self.clean)

    def loss(self, run: Run, batch: Batch) -> Tensor:
        if run.epoch < self.warm_epochs(run):
            return torch.stack([self.warming(network, batch) for network in run.models]).sum()
        with torch.no_grad():
            said = [
                torch.stack([checks.single(network(view)).softmax(dim=1) for view in batch.views]).mean(dim=0)
                for network in run.models
            ]  # (B, K) each
        terms = []
        for k, network in enumerate(run.models):
            w = self.clean[batch.index, 1 - k]  # (B,)
            target, labelled = co_targets(said[k], said[1 - k], batch.label, w, self.threshold, self.temperature)
            terms.append(self.mixed_loss(run, network, batch, target, labelled))
        return terms[0] + terms[1]

    def warming(self, network: nn.Module, batch: Batch) -> Tensor:
        """Cross-entropy, and the penalty of confident predictions, −H(p)."""
        log_p = checks.single(network(batch.views[0])).log_softmax(dim=1)  # (B, K)
        each = F.nll_loss(log_p, batch.label, reduction="none")
        return batch.mean(each + self.penalty * (log_p.exp() * log_p).sum(dim=1))

    def mixed_loss(self, run: Run, network: nn.Module, batch: Batch, target: Tensor, labelled: Tensor) -> Tensor:
        """L_X + λ_u L_U + λ_r L_reg of a network on mixtures of all views, given targets (B, K) and labelled (B,)."""
        whole, views = batch.gathered(), torch.cat([batch.gather(view) for view in batch.views])  # (M size, …)
        everything = views, batch.gather(target).repeat(self.views, 1)  # (M size, …), (M size, K)
        inputs, targets = semi.mix(*everything, self.alpha, run.generator)
        own = inputs.unflatten(0, (self.views, batch.size))[:, batch.own].flatten(0, 1)  # (M B, …)
        logits = checks.single(network(own)).unflatten(0, (self.views, -1))  # (M, B, K)
        logits = batch.gather(logits.transpose(0, 1)).transpose(0, 1).flatten(0, 1)  # (M size, K)
        weight = None if whole.weight is None else whole.weight.repeat(self.views)
        known, guessed = semi.semi_loss(logits, targets, batch.gather(labelled).repeat(self.views), weight)
        risen = min((run.epoch - self.warm_epochs(run)) / self.ramp, 1.0) if self.ramp else 1.0
        prior = torch.full_like(logits[0], 1 / run.num_classes)
        return known + self.lam_u * risen * guessed + self.lam_r * semi.prior_loss(logits, prior)

    def figures(self, run: Run) -> dict[str, float]:
        """The share of labels that are kept, and of right ones among them, where that is known."""
        if run.epoch <= self.warm_epochs(run):
            return {}
        kept = (self.clean.mean(dim=1) > self.threshold).cpu()
        figures = {"labelled": float(kept.float().mean())}
        wrong = run.data.wrong
        if wrong is not None and kept.any():
            figures["labelled_right"] = 1 - float(wrong[kept].float().mean())
        return figures

    def beliefs(self, run: Run, predicted: Tensor) -> Beliefs | None:
        """As suspicious as the mean of 1 − w by both networks and of 1 − p at the label; before any w, as p has it."""
        if run.epoch <= self.warm_epochs(run):
            return None
        plain = Beliefs.of(predicted, run.data.labels.cpu())
        return Beliefs(predicted, ((1 - self.clean.mean(dim=1).cpu() + plain.suspicion) / 2).clamp(0, 1))

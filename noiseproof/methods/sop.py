"""Sparse over-parameterization: give every example room for its own label noise, and learn that noise away.

Sheng Liu, Zhihui Zhu, Qing Qu and Chong You, "Robust Training under Label Noise by Over-parameterization", ICML 2022.

With p = softmax(logits), y the one-hot label, h the one-hot vector of p's largest entry, and small u, v per example:

    s = u² ⊙ y − v² ⊙ (1 − y)                                   Eq. (5)
    φ(w) = max(w, ε) / ‖max(w, ε)‖₁                             Eq. (7)
    L_CE = −log φ(p + s)_y           trains the network and u    Eq. (8)
    L_MSE = ‖h + s − y‖²             trains v                    Eq. (9) and its footnote

Of u only the entry of the label enters, of v all the others. Both start near zero and grow by a factor at each visit of
their example for as long as the network contradicts its label; once s has taken over, the label pulls no more.

With lr_u = lr_v = "follow" there is no rate: v² is where the steps on L_MSE lead, with p for h and over all classes, a
running mean

    v² ← v² + (p − v²) / 10,   t = v² / Σ_k v²,   u² = 1 − t_y

of the predictions at each visit, which forgets as well as it learns. Sparse is what is taken from it: s is 0, but
u² = 1 and v_c² = 1 alone, where the network has begun to memorise and t clearly contradicts the label in favour of the
class c (waking.py).
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

import torch
from torch import Tensor, nn

from noiseproof import checks, distributed
from noiseproof.errors import InputError
from noiseproof.method import Batch, Beliefs, Method, Run
from noiseproof.methods.index_guard import IndexGuard
from noiseproof.methods.sop_noise import VISITS, NoiseModel, NoiseOptions

_FEWEST_VISITS = 8.0  # in a run too short for more; fewer explain away right labels as well


@dataclass(eq=False, repr=False)
class SOPLoss(NoiseOptions, nn.Module):
    """SOP for anybody's loop: −log φ(p + s)_y, with the label noise s of each example learned beside the network.

        criterion = SOPLoss(num_examples=50_000, num_classes=10)
        loss = criterion(logits, label, index)
        loss.backward(); optimizer.step(); criterion.step()      # the last moves u and v; without it there is no SOP
        criterion.noise()                                        # (n,): how much of each label is noise

    Eqs. (5)–(9) and Algorithm 1 of Liu et al. (2022). Whatever the reduction, a step moves the u and v of each example
    of the batch by a rate times the derivative of that example's own losses.

    Differs from the paper: Algorithm 1 moves u and v at the end of an epoch, this at each visit, as the authors' code.
    Where they follow, the loss of the examples that stand watch is 0 until the network memorises (waking.py).
    ε of Eq. (7), which it does not give, is theirs, 1e-4, but 0.1/K for more than 1,000 classes.
    Differs from the authors' code: a dense optimizer over n × K entries is replaced by an update of the touched rows,
    and the state is in the state_dict.

    Args:
        num_examples, num_classes: n, the size of the full training set, and K.
        lr_u, lr_v, variant, visits, std, full_u: see `NoiseOptions`. With numbers for lr_u or lr_v and variant="paper",
            `step` must be told the network's learning rate.
        reduction: "mean", "sum" or "none"; seed: of the initial u and v.
        accumulate: batches between two calls of `step`, where gradients are accumulated; they move u and v as one.

    Raises:
        InputError: an argument outside its range.
    """

    num_examples: int
    num_classes: int
    _: KW_ONLY
    reduction: str = "mean"
    seed: int = 0
    accumulate: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        self.guard = IndexGuard(self.num_examples, repeats=True, relabel=self.full_u)
        self.num_classes = checks.integer("num_classes", self.num_classes, 2)
        self.reduction = checks.reduction(self.reduction)
        self.accumulate = checks.integer("accumulate", self.accumulate, 1)
        generator = torch.Generator().manual_seed(checks.integer("seed", self.seed, 0))
        self.model = NoiseModel(self.num_examples, self.num_classes, self.noise_options(), generator)

    def forward(self, logits: Tensor, label: Tensor, index: Tensor) -> Tensor:
        """The loss of a batch; `step()` afterwards moves the u and v of its examples.

        Args:
            logits: (B, K); label: (B,) int64 in 0..K-1.
            index: (B,) int64, positions in the full training set; repeats are allowed.

        Raises:
            InputError: a malformed batch, an index with another label than before, no `step()` in time.
        """
        logits = checks.logits_and_label(logits, label, self.num_classes)
        self.guard(index, label)
        if len(self.model.pending) >= self.accumulate and self.training and torch.is_grad_enabled():
            raise InputError(
                "a training batch came without a step, so u and v stand still and this is plain cross-entropy; add "
                "criterion.step() after loss.backward() (accumulate=k: every k), criterion.eval() where you only look"
            )
        return checks.reduce(self.model(logits, label, index), self.reduction)

    def step(self, lr: float | None = None) -> None:
        """Move u and v of the last examples; `lr`: the network's learning rate, for the paper's rates."""
        self.model.step(None if lr is None else checks.number("lr", lr, 0))

    def noise(self) -> Tensor:
        """How much of each example's label, as last seen, is noise: u² (n,), in [0, 1]."""
        return self.model.noise(self.guard.label.clamp_min(0))


class SparseOverParameterization(NoiseOptions, Method):
    """What SOP and SOP+ share: the noise model's place in the loop."""

    paper = "Liu et al. 2022"
    rows = ("noise.u", "noise.v")

    def __post_init__(self) -> None:
        super().__post_init__()
        self.plans = "auto" in (self.lr_u, self.lr_v)  # these have moved u and v by half of the epochs

    def start(self, run: Run) -> None:
        visits = min(self.visits or VISITS, max(_FEWEST_VISITS, run.epochs / 2))
        options = self.noise_options(visits=None if self.follows else visits, full_u=self.full_u or self.labels_change)
        self.noise = NoiseModel(len(run.data), run.num_classes, options, run.generator, val=len(run.val or ()))

    def before_epoch(self, run: Run) -> None:
        self.noise.waking.before_epoch(run)

    def after_step(self, run: Run, batch: Batch) -> None:
        self.noise.step(run.lr, batch.size)

    def figures(self, run: Run) -> dict[str, float]:
        """The share of the labels that are explained away; of the right and of the wrong, where they are known."""
        own = slice(distributed.rank(), None, distributed.world()) if len(self.noise.v) < len(run.data) else slice(None)
        explained = self.noise.explained(run.data.labels[own]).cpu()  # (m,), those of the rows that are held here
        wrong = torch.zeros(len(explained)) if run.data.wrong is None else run.data.wrong[own]  # (m,)
        everyone = torch.ones_like(explained)
        counts = torch.stack([((wrong == kind) & one).sum() for kind in (0, 1) for one in (explained, everyone)])
        total = distributed.gather(counts[None]).sum(dim=0).tolist()
        names = ("", "_never") if run.data.wrong is None else ("_right", "_wrong")
        parts = zip(names, total[::2], total[1::2], strict=True)
        return self.noise.waking.figures() | {f"explained{name}": one / of for name, one, of in parts if of}

    def beliefs(self, run: Run, predicted: Tensor) -> Beliefs:
        return self.noise.beliefs(predicted, run.data.labels)


class SOP(SparseOverParameterization):
    """Learn the label noise s of each example beside the network, so that the network need not.

    Eqs. (5)–(9) and Algorithm 1 of Liu et al. (2022).

    Differs from the paper and from the authors' code: see `SOPLoss`.

    Args:
        lr_u, lr_v, variant, visits, std, full_u: see `NoiseOptions`. `visits` are epochs, at most half of the run but
            no fewer than 8; `full_u` is on by itself within `label_noise`, where labels change during the run.

    Raises:
        InputError: an argument outside its range.
    """

    name = "sop"

    def loss(self, run: Run, batch: Batch) -> Tensor:
        logits = checks.single(run.model(batch.views[0]))  # (B, K)
        return batch.mean(self.noise(logits, batch.label, batch.row, batch.weight, batch))

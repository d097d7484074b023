"""A method that needs no expert: when, how much and against what to be robust follows from what it sees.

It is cross-entropy until the network memorises (waking.py), or, as below, until it is about to: what has not begun
needs no protection, and a network that is still learning errs more than the labels do. Then it asks the network whether
examples can be mixed: of the points half-way between two examples held out, whether 70 % are given the class of one of
the two. (It is so of most images and features, and not of rings within rings, nor of letters told by 16 numbers. Of two
classes every point is one of them, and tokens, categories and texts have nothing between them: they are not mixed.)

If so, it goes back to what it was after 1, 2, 4, … epochs, the last of these, if as many epochs are left as that
undoes; and from there, with p_i (K,) what the network says of example i, y_i its label and U (K, K) the confusions of
classes,

    ℓ_i = (1 − s_i^q) / q,   s_i = Σ_k p_ik U_k,y_i;   −log s_i for q = 0                                      (1)

the generalised cross-entropy (Zhang and Sabuncu 2018, Eq. (6)) of the forward-corrected probability of the label
(Patrini et al. 2017, Theorem 2): U says which wrong labels to expect, q how little a label counts that is unlikely
nevertheless.

U and q follow from what the other examples say of each label: a ridge regression of the labels on the inputs, where
these are few numbers, and on what the head of the untrained network is given, in closed form, which leaves each example
out (auditing/left_out.py). It is made before the first step, as after a single epoch features may know labels by heart,
and the noise looks less. Of these predictions the audit's noise model (auditing/posterior.py) has
P(right = k | x_i, y_i) and how sure it is of the class of an example, r_i:

    ε = the mean of P(right ≠ y_i | x_i, y_i),   q = min(0.7, 4 ε)                                             (2)
    T_kj ∝ Σ_{i: y_i = j} P(right = k | x_i, j)         the chance (K, K) that a class carries a label         (3)
    U_kj ∝ max(0, T_kj − t),   U_kk ∝ T_kk,   t the median of T off its diagonal                                (4)

Noise that is alike for all pairs of classes is left to q: through T every wrong label would be worth a little learning.
The others are believed where they know the classes, r_ik ≥ 0.9 for at least 15 % of the examples, and unless the
network has outrun them: by S, the mean of −log P(label) of what they say, and S_t, that of −log p_y over the labels
held out, after epoch t, if S_t < 0.8 S for any t until it begins. What looks like noise to them is none then, and
(2) to (4) are by the running means m_i of what the network had said of the examples, up to where it goes back to.

Where examples can be mixed, a regression tells most of what can be told. When the network is level with the others,
S_t < 1.1 S, and has settled, S_t > 0.95 S_(t−1), it begins there before it memorises; if they are sure of fewer than
30 % of the examples, only where 78 % of the points between two are of the class of one.

Once a fifth of the epochs is over, it teaches itself as well. With ρ = q / 0.7 and λ drawn from Beta(4, 4), a part ρ/2
of each batch are mixtures:

    t_i ∝ (m_ik T_k,y_i)²_k                             by Bayes' rule, and surer than that                    (5)
    x̃ = λ x_i + (1 − λ) x_j,   t̃ = λ t_i + (1 − λ) t_j
    ℓ̃ = Σ_k t̃_k (1 − p_k(x̃)^(q/2)) / (q/2)             in the place of (1)                                    (6)
    L = mean of ℓ and ℓ̃ − ρ/2 Σ_k π_k log p̄_k,          p̄ the mean of p over the batch                         (7)

The gradient of each of the three is that of −Σ_k W_k log p_k with a W that is held fixed, so that a step is one of
cross-entropy with labels W, which need no graph:

    W_ik = p_ik U_k,y_i s_i^(q−1),   t̃_ik p_ik^(q/2),   ρ/2 π_k p_ik / Σ_i p_ik                               (8)

π (K,) are the shares of the classes with which T makes the labels as frequent as they are, half-way to equal ones: T
finds less noise that goes one way than there is. Where there is no noise, ε is next to 0, next to nothing is mixed and
the loss is next to cross-entropy.

Where examples cannot be mixed, it holds on to what it had come to believe, as `elr` does (elr.py), without going back:
ℓ_i = log(1 − ⟨p_i, m_i⟩) where m_i clearly contradicts the label, else cross-entropy.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from noiseproof import checks, distributed
from noiseproof.auditing import left_out, posterior
from noiseproof.method import Batch, Beliefs, Method, Run
from noiseproof.methods._between import can_be_mixed, share_between
from noiseproof.methods._snapshot import Snapshot, tensors_of
from noiseproof.methods.elr import believed, clamped, soft_labels
from noiseproof.methods.mixup import sample_lam
from noiseproof.methods.waking import Waking, held_out, margins
from noiseproof.models.parts import given_to_head

WAITS, TAUGHT, HOLDS = range(3)  # the stages: cross-entropy; Eqs. (1) to (7); as `elr`
Q, SLOPE = 0.7, 4.0  # of Eq. (2): the q of the GCE paper, reached where the share of wrong labels is 0.175
BEGIN, PART, ALPHA, BALANCE = 0.2, 0.5, 4.0, 0.5  # of Eqs. (5) to (7): from when on, and how much at most; of λ
MEMORY = 0.9, 0.7  # of the running mean of predictions, and while mixtures leave fewer visits to see an example in
SURE, KNOWN, WELL = 0.9, 0.15, 0.3  # r of an example that is sure of its class; how many are where classes are known
FURTHER, BEHIND, SETTLED = 0.2, 0.1, 0.05  # parts of S: who has outrun the others, is level with them, has settled
CONVEX, CLEARLY = 0.7, 0.78  # of the points between two examples: how many are of the class of one, to mix; clearly so
ENOUGH, MOST = 200, 20_000  # examples, at least, to know noise by: of fewer it is cross-entropy; that are asked about


def by_label(confusion: Tensor) -> Tensor:
    """Tᵀ or Uᵀ (K, K), a row for each label; no label is impossible."""
    return confusion.T.clamp_min(1e-6)


def powered(log_s: Tensor, q: float) -> Tensor:
    """(1 − s^q) / q of log s, of any shape: ℓ of Eq. (1), and of each class in Eq. (6)."""
    return -log_s if q < 1e-3 else -torch.expm1(q * log_s) / q


def corrected(p: Tensor, reached: Tensor, q: float) -> tuple[Tensor, Tensor]:
    """ℓ (B,), Eq. (1), and its W (B, K), of p (B, K) and the rows of `by_label(U)` (B, K)."""
    joint = p * reached
    log_s = joint.sum(dim=1, keepdim=True).log()  # (B, 1); s is a millionth at least, as each U is
    return powered(log_s, q).squeeze(1), joint * ((q - 1) * log_s).exp()


def mixture(log_p: Tensor, target: Tensor, q: float) -> tuple[Tensor, Tensor]:
    """ℓ̃ (B,), Eq. (6), and its W (B, K), of log p (B, K), t̃ (B, K) and q/2; cross-entropy for q = 0."""
    return (target * powered(log_p, q)).sum(dim=1), target * (q * log_p).exp()


def balance(p: Tensor, shares: Tensor) -> tuple[Tensor, Tensor]:
    """−Σ_k π_k log p̄_k (), of Eq. (7), and its W (B, K), of p (B, K) and π (K,)."""
    total = p.sum(dim=0) + 1e-30  # no class is impossible
    return -(shares * (total / len(p)).log()).sum(), p * (shares / total)


def held_to(log_p: Tensor, label: Tensor, mean: Tensor, held: Tensor) -> tuple[Tensor, Tensor]:
    """−log p_y (B,), or log(1 − ⟨p, m⟩) where held (B,), p clamped as in elr.py; and W (B, K), m (B, K) held fixed."""
    p = log_p.exp()
    kept = clamped(p)
    a = (kept * mean).sum(dim=1)  # (B,)
    each = torch.where(held, torch.log1p(-a), -log_p.gather(1, label[:, None]).squeeze(1))
    own = torch.zeros_like(p).scatter_(1, label[:, None], 1.0)
    return each, torch.where(held[:, None], mean * p * (kept == p) / (1 - a)[:, None], own)


def with_gradient(value: Tensor, log_p: Tensor, w: Tensor) -> Tensor:
    """The value (), and as its gradient that of −Σ_ik W_ik log p_ik, W (B, K) held fixed: Eq. (8)."""
    pull = (w * log_p).sum()
    return value + pull.detach() - pull


def found_transition(right: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """T (K, K), Eq. (3), of P(right | x, given) (n, K) and labels (n,)."""
    joint = np.full((right.shape[1],) * 2, 1e-6)
    np.add.at(joint, labels, right)  # labels by right classes
    return (joint / joint.sum(axis=0)).T.astype(np.float32)


def uneven(transition: np.ndarray) -> np.ndarray:
    """U (K, K), Eq. (4), of T (K, K); of two equal halves of its entries the lower one has the median."""
    own = np.eye(len(transition), dtype=bool)
    kept = np.maximum(transition - np.quantile(transition[~own], 0.5, method="lower"), 0)
    kept[own] = transition[own]
    return kept / kept.sum(axis=1, keepdims=True)


def refined(mean: Tensor, reached: Tensor) -> Tensor:
    """t (B, K), Eq. (5), of running means m (B, K), 0 where never visited, and the rows of `by_label(T)` (B, K)."""
    joint = ((mean + 1e-6) * reached).square()
    return joint / joint.sum(dim=1, keepdim=True)


def class_shares(transition: Tensor, labels: Tensor) -> Tensor:
    """π (K,) ∝ √π': half-way to equal ones from the shares π' with which T gives the labels (n,) theirs, Tᵀπ' = ν.

    As near to that as 20 steps π' ← π' ⊙ T (ν / Tᵀπ') lead.
    """
    shares = torch.bincount(labels, minlength=len(transition)).to(transition)
    shares = found = shares / shares.sum()
    for _ in range(20):
        found = found * (transition @ (shares / (transition.T @ found).clamp_min(1e-6)))
    found = found.sqrt()  # half-way to equal ones
    return found / found.sum()


class Plan(NamedTuple):
    """What an epoch's steps go by: numbers, so that no step waits for the device to tell."""

    stage: int
    q: float
    mixes: bool  # whether Eqs. (5) to (7) have begun


class Auto(Method):
    """Cross-entropy until the network memorises, then as robust as the labels are noisy, to the noise that was found.

    Where examples can be mixed, the generalised cross-entropy of forward-corrected probabilities, with the strength and
    the confusions by the audit's noise model of what the other examples say of each label, and mixtures with refined
    labels beside it: Eqs. (1) to (7) of methods/auto.py. Else it holds on to what it had come to believe, as `elr`.
    Examples with weights are not balanced by classes. It has no options.

    Differs from the papers: in the first two T or q are given, or T is estimated once, by a network trained before, and
    whole. Mixtures with refined labels are those of DivideMix, with one network in the place of two and a noise model
    in that of a mixture of losses; partners are the examples that lead the batch. DivideMix holds its predictions to
    equal classes, `auto` to the classes that its T finds.
    """

    name = "auto"
    paper = "forward: Patrini et al. 2017; GCE: Zhang & Sabuncu 2018; mixtures, elr: Li et al., Liu et al. 2020"
    cost = "1.3×"
    plans = True  # it goes by how many epochs are left, and by how many are over

    mean: Tensor
    asked: Tensor
    transition: Tensor
    confusion: Tensor
    rate: Tensor
    stage: Tensor
    surprise: Tensor
    well: Tensor
    shares: Tensor
    reached: Tensor
    expected: Tensor

    def start(self, run: Run) -> None:
        self._plan: Plan | None = None
        n, K = len(run.data), run.num_classes
        some = np.sort(np.random.default_rng(0).permutation(n)[:MOST])  # the run's own order is that of cross-entropy
        self.waking = Waking(n, run.generator, val=len(run.val or ()), automatic=n >= ENOUGH)
        self.register_buffer("mean", torch.zeros(n, K))  # m, times what of its memory is filled
        self.register_buffer("asked", torch.from_numpy(some))  # (m,) the examples that noise is told by
        self.register_buffer("transition", torch.eye(K))  # T
        self.register_buffer("confusion", torch.eye(K))  # U
        self.register_buffer("rate", torch.zeros(()))  # ε
        self.register_buffer("stage", torch.zeros((), dtype=torch.int64))
        self.register_buffer("surprise", torch.full((2,), math.nan))  # S, while they may be believed; S_(t−1)
        self.register_buffer("well", torch.zeros((), dtype=torch.bool))  # whether they know the classes well
        self.then = Snapshot(self._known_of(run))  # what it may go back to
        # what follows of these in each epoch: π, `by_label(T)` and `by_label(U)`
        self.register_buffer("shares", torch.zeros(K), persistent=False)
        self.register_buffer("reached", torch.zeros(K, K), persistent=False)
        self.register_buffer("expected", torch.zeros(K, K), persistent=False)

    def _known_of(self, run: Run) -> dict[str, Tensor]:
        """The networks, and what they said of each example."""
        return {**tensors_of(run.models), "mean": self.mean}

    @property
    def q(self) -> float:
        return min(Q, SLOPE * float(self.rate))  # Eq. (2)

    def before_epoch(self, run: Run) -> None:
        self._plan = None
        if self.stage != WAITS or not self.waking.automatic:
            return
        if run.epoch == 0:
            if can_be_mixed(run):
                self._look(run)
            return
        settled = False
        if self.waking.val:
            given = held_out(run)  # (m,)
            settled = self._settled(-float(given.clamp_min(posterior.TINY).log().mean()))
            self.waking.compare(run, given)
        if run.epoch > 1 and (self.waking.awake or settled):
            share = share_between(run)
            if self.waking.awake or share >= (CONVEX if self.well else CLEARLY):
                self._begin(run, TAUGHT if share >= CONVEX else HOLDS)
                return
        if run.epoch & (run.epoch - 1) == 0:  # a power of two
            self.then.keep(self._known_of(run))

    def _settled(self, now: float) -> bool:
        """Whether the network is level with the others by S_t, and gets no better; it may also have outrun them."""
        others, before = self.surprise.tolist()
        if now < (1 - FURTHER) * others:  # it knows what they do not
            others = math.nan
        self.surprise.copy_(torch.tensor([others, now]))
        return (1 - SETTLED) * before < now < (1 + BEHIND) * others

    def _look(self, run: Run) -> None:
        """Before the first step: what the other examples say."""
        rows = self.asked.cpu()
        labels, sizes = run.data.labels[rows].numpy(), distributed.sizes_of(len(rows))
        part = rows[distributed.own_part(sizes)]
        own = given_to_head(run.model, run.normalize, run.data, run.device, part, inputs=True)
        said = left_out.said(distributed.gather(own, sizes).numpy(), labels, run.num_classes)
        model = posterior.fit(labels, [said])
        sure = (model.right([said]).max(axis=1) >= SURE).mean()
        if sure < KNOWN:
            return
        self.well.fill_(bool(sure >= WELL))
        self._estimate(model, said, labels)
        given = model.given([said])[np.arange(len(labels)), labels]
        self.surprise[0] = -float(np.log(given + posterior.TINY).mean())

    def _begin(self, run: Run, stage: int) -> None:
        """The network memorises, or soon will."""
        self.stage.fill_(stage)
        if stage == HOLDS:
            return
        if math.isnan(self.surprise[0]):
            self._ask_itself(run)
        undone = run.epoch - (1 << (run.epoch - 1).bit_length() - 1)
        if undone <= run.epochs - run.epoch:
            self.then.restore(self._known_of(run))

    def _ask_itself(self, run: Run) -> None:
        """What the network had said of the examples in the place of what the others say."""
        mean = self.then["mean"].cpu()
        seen = (mean.sum(dim=1) > 0).nonzero()[:, 0]
        said = (mean[seen] / mean[seen].sum(dim=1, keepdim=True)).numpy()
        labels = run.data.labels[seen].numpy()
        self._estimate(posterior.fit(labels, [said]), said, labels)

    def _estimate(self, model: posterior.NoiseModel, said: np.ndarray, labels: np.ndarray) -> None:
        """Eqs. (2) to (4) by predictions (m, K) of labels (m,) and their noise model."""
        right = model.posterior([said], labels)  # (m, K)
        found = found_transition(right, labels)
        self.rate.fill_(1 - float(right[np.arange(len(labels)), labels].mean()))  # Eq. (2)
        self.transition.copy_(torch.from_numpy(found))
        self.confusion.copy_(torch.from_numpy(uneven(found)))

    def _planned(self, run: Run) -> Plan:
        """Of the epoch that begins, or goes on after a resumption."""
        stage = int(self.stage)
        if stage != TAUGHT:
            return Plan(stage, 0.0, False)
        self.expected.copy_(by_label(self.confusion))
        if run.epoch < BEGIN * run.epochs:
            return Plan(stage, self.q, False)
        self.reached.copy_(by_label(self.transition))
        self.shares.copy_(class_shares(self.transition, run.data.labels.to(self.transition.device)))
        return Plan(stage, self.q, True)

    def loss(self, run: Run, batch: Batch) -> Tensor:
        if self._plan is None:
            self._plan = self._planned(run)
        stage, q, mixes = self._plan
        mixed, inputs = round(PART * q / Q * batch.size) if mixes else 0, batch.views[0]
        plain, lam = batch.size - mixed, sample_lam(ALPHA, run.generator) if mixed else 1.0
        if mixed:
            inputs = batch.gather(inputs)
            inputs = torch.cat([inputs[:plain], torch.lerp(inputs[:mixed], inputs[plain:], lam)])[batch.own]
        log_p = batch.gather(checks.single(run.model(inputs)).log_softmax(dim=1))  # (size, K)
        whole = batch.gathered()  # partners in Eq. (6) are of all processes: each keeps every row
        said = log_p.detach()
        p = said.exp()
        mean = self.mean.index_select(0, whole.index)  # (size, K)
        mean[:plain].lerp_(p[:plain].to(mean), 1 - MEMORY[mixes])
        self.mean.index_copy_(0, whole.index, mean)
        if stage == TAUGHT:
            return self._taught(self._plan, whole, log_p, mean, lam, mixed)

        if stage == HOLDS:
            return self._holding(whole, log_p, soft_labels(mean))
        each = -log_p.gather(1, whole.label[:, None]).squeeze(1)
        self.waking.count((-each.detach()).exp(), whole.index)
        if not self.waking.val:
            each = each * self.waking.trained_on(whole.index)
        return (each if whole.weight is None else each * whole.weight).mean()

    def _holding(self, whole: Batch, log_p: Tensor, mean: Tensor) -> Tensor:
        """Cross-entropy, or what `elr` has in its place, of log p (size, K) and mean predictions m (size, K)."""
        against, _ = margins(mean, whole.label)  # (size,)
        self.waking.weigh(against)
        each, w = held_to(log_p.detach(), whole.label, mean.to(log_p), self.waking.clear(against))
        if whole.weight is not None:
            each, w = each * whole.weight.to(each), w * whole.weight.to(w)[:, None]
        return with_gradient(each.mean(), log_p, w / len(log_p))

    def _taught(self, plan: Plan, whole: Batch, log_p: Tensor, mean: Tensor, lam: float, mixed: int) -> Tensor:
        """Eqs. (1) to (8), of log p (size, K), the last of them of mixtures, and running means (size, K)."""
        q, plain = plan.q, len(log_p) - mixed
        said = log_p.detach()
        p = said.exp()
        each, w = corrected(p[:plain], self.expected.index_select(0, whole.label[:plain]).to(p), q)
        weight = None if whole.weight is None else whole.weight.to(p)
        if weight is not None:
            each, w = each * weight[:plain], w * weight[:plain, None]
        if mixed:
            target = refined(mean, self.reached.index_select(0, whole.label)).to(p)  # (size, K)
            if weight is not None:
                target *= weight[:, None]
            of_mixed, w_mixed = mixture(said[plain:], torch.lerp(target[:mixed], target[plain:], lam), q / 2)
            each, w = torch.cat([each, of_mixed]), torch.cat([w, w_mixed])
        value, w = each.mean(), w / len(log_p)
        if plan.mixes and weight is None:
            held, w_held = balance(p, self.shares.to(p))
            part = BALANCE * q / Q
            value, w = value + part * held, w.add_(w_held, alpha=part)  # Eq. (7)
        return with_gradient(value, log_p, w)

    def figures(self, run: Run) -> dict[str, float]:
        stage = int(self.stage)
        told = {"noise_estimate": float(self.rate), "robustness": self.q} if stage == TAUGHT else {}
        told = {"noise_estimate": 0.0, "robustness": 0.0, **told, "holds": float(stage == HOLDS)}
        return self.waking.figures() | told | {"awake": float(stage != WAITS)}

    def beliefs(self, run: Run, predicted: Tensor) -> Beliefs:
        labels, mean = run.data.labels.cpu(), self.mean.cpu()
        if self.stage != TAUGHT:
            return believed(mean, predicted, labels)
        said = torch.where(mean.sum(dim=1, keepdim=True) > 0, mean, predicted)  # (n, K)
        joint = said * by_label(self.transition.cpu())[labels]
        return Beliefs.of(joint / joint.sum(dim=1, keepdim=True), labels)

"""CRUST: train on coresets of examples whose gradients lie together, which the wrong labels' do not.

Baharan Mirzasoleiman, Kaidi Cao and Jure Leskovec, "Coresets for Robust Training of Neural Networks against Noisy
Labels", NeurIPS 2020. Algorithm 1, in every `every`-th epoch after a warm-up, class by class:

    g_i = p_i − y_i, the gradient of example i at the last layer               Eq. (9)
    S: k · n_c of the class's examples, chosen by their distances ‖g_i − g_j‖   Eqs. (6), (10)
    V_j: the examples nearest to j ∈ S;  weight r_j = |V_j|
    x̂ = λ x_i + (1 − λ) x_j,  ŷ = λ y_i + (1 − λ) y_j,  i ∈ V_j at random       Eq. (11)

The authors' code does not choose medoids, as the paper says, but the most central points; see `selection`. In other
things, too, it is not Algorithm 1, and `variant="authors"` is what it does, class by class of the observed labels:

    g_i = Wᵀ(p_i − y_i), of augmented images in training mode
    S: the k · n_c examples of the least Σ_j ‖g_i − g_j‖;  weight n_c, normalised in each batch
    x̂ = λ x_i + (1 − λ) x_j, j any example of the label of i, λ ~ Beta(1, 0.1) a batch;  ŷ = y_i = y_j
"""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor, nn

from noiseproof import checks, distributed
from noiseproof.coreset import facility_location, parts
from noiseproof.coreset.gradients import feature_gradients, last_layer_gradients
from noiseproof.coreset.nearest import nearest_to_centre
from noiseproof.errors import InputError
from noiseproof.method import Batch, Beliefs, Method, Run, Selection, Wrapper
from noiseproof.methods._selected import share_right
from noiseproof.methods.mixup import sample_lam
from noiseproof.models.backbone import as_backbone
from noiseproof.models.inference import in_mode

SELECTIONS = ("smallest", "central", "trimmed", "medoids")
ALONE = ("smallest", "trimmed")  # selections without clusters
GROUPS = ("label", "prediction")
VARIANTS = ("ours", "authors")
_LEAST = 0.1  # of the examples, that an automatic fraction selects


class CRUST(Wrapper):
    """Train the inner method on a coreset, chosen anew as the network learns.

    Algorithm 1 of Mirzasoleiman et al. (2020).

    Differs from the paper: the defaults are what removed wrong labels in our measurements (docs/methods/crust.md), not
    its medoids of predicted classes with weights.
    Differs from the authors' code: `selection="medoids"` is greedy by marginal gains; theirs, by totals, is "central".
    With `variant="authors"` no more than this: the gradients of a last, smaller batch are not scaled up by its size; a
    class's share is rounded, theirs is cut off. Their weight, the number of examples of the class whose gradient of the
    batch's mean loss is nearer than 2, is n_c: such gradients have a B-th of the length, and all are that near.

    Args:
        inner: the method to train with; it must not select examples of its own.
        fraction: of each class's examples to select, in (0, 1]; or "auto": the share of all labels that the network
            agrees with at the moment.
        selection: "smallest", the examples of a class with the smallest gradients; "central", those nearest to all
            others; "trimmed", those nearest to one example, which is chosen so that they are near: a medoid that may
            leave the rest out; "medoids", those that represent all (Eq. 6).
        by: classes are the observed labels, "label", or the predicted ones, "prediction".
        warmup: epochs on all examples first, at least 1; no more than a quarter of the run.
        every: epochs between selections, at least 1.
        weighted: weigh each example by how many it represents. Not with "smallest" and "trimmed", where it is one.
        mixup: α of Eq. (11), again not with these two; 0 to train on the selected examples themselves.
        variant: "authors" selects, weighs and mixes as their code, which leaves `fraction` (theirs: 0.5), `warmup` and
            `every` to choose. For one network that is a `Backbone`.

    Raises:
        InputError: an argument outside its range, or an inner method that selects examples.
    """

    name = "crust"
    paper = "Mirzasoleiman et al. 2020"
    cost = "fraction + ⅓"

    chosen: Tensor
    owner: Tensor
    times: Tensor
    rounds: Tensor

    def __init__(
        self,
        inner: Method,
        *,
        fraction: float | str = "auto",
        selection: str = "smallest",
        by: str = "label",
        warmup: int = 5,
        every: int = 1,
        weighted: bool = False,
        mixup: float = 0.0,
        variant: str = "ours",
    ) -> None:
        super().__init__(inner)
        self.plans = True  # the warm-up is a share of them, where they are few
        if any(isinstance(part, CRUST) for part in inner.modules()):
            raise InputError(f"crust cannot wrap {inner.title()}: it selects examples itself; take one of the two")
        auto = isinstance(fraction, str) and fraction == "auto"
        self.fraction = fraction if auto else checks.number("fraction", fraction, 0, 1, ends="(]")
        checks.choice("selection", selection, SELECTIONS)
        checks.choice("grouping", by, GROUPS)
        self.selection, self.by = selection, by
        self.warmup, self.every = checks.integer("warmup", warmup, 1), checks.integer("every", every, 1)
        self.weighted = checks.boolean("weighted", weighted)
        self.mixup = checks.number("mixup", mixup, 0)
        self.variant = checks.choice("variant", variant, VARIANTS)
        self.looks_up_labels = self.mixup > 0 or variant == "authors"  # of those it mixes in
        if variant == "authors" and (selection, by, self.weighted, self.mixup) != ("smallest", "label", False, 0):
            raise InputError(
                "variant='authors' has a selection, classes, weights and mixup of its own; leave out selection, by, "
                "weighted and mixup"
            )
        if variant == "authors" and inner.num_models > 1:
            raise InputError(f"variant='authors' is for one network, {inner.title()} trains several; take another")
        if selection in ALONE and (self.weighted or self.mixup):
            raise InputError(
                f"selection={selection!r} lets an example stand for itself alone, with none to weigh it by or mix it "
                "with; leave out weighted and mixup, or choose selection='central'"
            )
        self._clusters: tuple[Tensor, Tensor, Tensor] | None = None

    def start(self, run: Run) -> None:
        super().start(run)
        if self.mixup and distributed.world() > 1 and self.inner.row_buffers():
            raise InputError(
                f"crust with mixup changes what {self.inner.title()} remembers of examples that other processes train "
                "on; use one process, or leave out mixup"
            )
        n = len(run.data)
        self.register_buffer("chosen", torch.zeros(n, dtype=torch.bool))
        self.register_buffer("owner", torch.full((n,), -1))  # the selected example that stands for each; -1: none
        self.register_buffer("times", torch.zeros(n, dtype=torch.int64))  # how often each was selected
        self.register_buffer("rounds", torch.zeros((), dtype=torch.int64))  # selections so far

    def before_epoch(self, run: Run) -> Selection | None:
        if super().before_epoch(run) is not None:
            raise InputError(f"crust cannot wrap {self.inner.name}: it selects examples itself; take one of the two")
        since = run.epoch - self._warm(run)
        if since < 0:
            return None
        if since % self.every == 0 or not self.chosen.any():
            self._select(run)
        index = self.chosen.nonzero().squeeze(1).cpu()
        if self.variant == "authors":
            label = run.data.labels.cpu()
            return Selection(index, torch.bincount(label)[label[index]].float())
        if not self.weighted:
            return Selection(index)
        owner = self.owner.cpu()
        return Selection(index, torch.bincount(owner[owner >= 0], minlength=len(owner))[index].float())

    def _warm(self, run: Run) -> int:
        """Epochs of warm-up."""
        return max(1, min(self.warmup, run.epochs // 4))

    def _select(self, run: Run) -> None:
        """Choose the examples of the epochs to come."""
        label = run.data.labels.cpu()  # (n,)
        if self.by == "label":
            groups = label.unique(return_inverse=True)[1]
            place = parts.of_groups(groups)  # (n,)
            own = parts.mine(place)  # (m,)
            rows, guess = self._gradients(run, label, own)
        else:  # who belongs together is known when all have been asked
            predicted = run.predict()  # (n, K)
            groups = predicted.argmax(dim=1).unique(return_inverse=True)[1]
            place = parts.of_groups(groups)
            own = parts.mine(place)
            rows, guess = last_layer_gradients(predicted[own], label[own]), predicted[own].argmax(dim=1)
        right = parts.total((guess == label[own]).sum())
        agreed = float(torch.tensor(right) / len(label))
        share = max(_LEAST, agreed) if self.fraction == "auto" else float(self.fraction)
        self.owner.copy_(parts.gathered(self._owners(rows, share, groups[own], own), place))
        self.chosen.copy_(self.owner == torch.arange(len(label), device=self.owner.device))
        self.times += self.chosen
        self.rounds += 1
        self._clusters = None

    def _owners(self, rows: Tensor, share: float, groups: Tensor, own: Tensor) -> Tensor:
        """The selected example that stands for each (m,), of examples at `own` (m,) and their gradients; −1: none."""
        if len(rows) == 0:
            return own
        if self.variant == "authors":
            coreset = facility_location(rows, share, algorithm="central", groups=groups)
        elif self.selection == "smallest":
            coreset = nearest_to_centre(rows, share, groups=groups, centre=torch.zeros(rows.shape[1]))
        elif self.selection == "trimmed":
            coreset = nearest_to_centre(rows, share, groups=groups)
        else:
            algorithm = "central" if self.selection == "central" else "auto"
            coreset = facility_location(rows, share, algorithm=algorithm, groups=groups)
        chosen = own[coreset.indices]
        return torch.where(coreset.assignment >= 0, chosen[coreset.assignment.clamp_min(0)], -1)

    def _gradients(self, run: Run, label: Tensor, own: Tensor) -> tuple[Tensor, Tensor]:
        """What the examples `own` (m,) are selected by (m, D), and the classes that the network predicts (m,)."""
        if self.variant == "ours":
            predicted = run.ask(own)  # (m, K)
            return last_layer_gradients(predicted, label[own]), predicted.argmax(dim=1)
        model = as_backbone(run.model, "variant='authors'")
        assert run.inputs is not None
        keeps = torch.zeros(len(label), dtype=torch.bool).index_fill_(0, own, True)
        found = []
        with in_mode(run.model, training=True):  # as theirs, which also moves the running statistics
            for block in torch.arange(len(label)).tensor_split(-(-len(label) // run.batch_size)):
                sizes = distributed.sizes_of(len(block))
                part = block[distributed.own_part(sizes)]
                rows, logits = feature_gradients(model, run.inputs(part)[0], label[part].to(run.device))
                distributed.average(distributed.running_statistics(run.model))
                whole = (distributed.gather(one, sizes).cpu() for one in (rows, logits.argmax(dim=1)))
                found.append([one[keeps[block]] for one in whole])
        rows, guess = (torch.cat(parts) for parts in zip(*found, strict=True))
        return rows, guess

    def _loss_as_authors(self, run: Run, batch: Batch) -> Tensor:
        """The inner method's on images mixed within their observed label, which stays; weights of mean 1 in a batch."""
        assert run.inputs is not None
        assert batch.weight is not None
        views = batch.views
        if run.epoch > self._warm(run):  # theirs mix from the epoch after the first selection on
            label = run.data.labels.cpu()
            order, size = label.argsort(stable=True), torch.bincount(label)
            own = label[batch.host_index]
            uniform = torch.rand(batch.size, generator=run.generator, dtype=torch.float64)[batch.own]
            draw = (uniform * size[own]).long()
            partner = order[(size.cumsum(0) - size)[own] + draw]
            lam = sample_lam(1.0, run.generator, 0.1)
            others = run.inputs(partner)
            views = tuple(lam * one + (1 - lam) * other for one, other in zip(views, others, strict=True))
        weight = batch.weight / batch.gather(batch.weight).mean()
        return self.inner.loss(run, dataclasses.replace(batch, views=views, weight=weight))

    def loss(self, run: Run, batch: Batch) -> Tensor:
        if self.variant == "authors" and run.epoch >= self._warm(run):
            return self._loss_as_authors(run, batch)
        if self.mixup == 0 or run.epoch < self._warm(run):
            return self.inner.loss(run, batch)
        lam = sample_lam(self.mixup, run.generator)
        uniform = torch.rand(batch.size, generator=run.generator)[batch.own]
        rows = self._partners(batch.host_index, uniform)
        assert run.inputs is not None
        mixed = tuple(lam * other + (1 - lam) * own for own, other in zip(batch.views, run.inputs(rows), strict=True))
        weight = torch.ones_like(batch.label, dtype=torch.float32) if batch.weight is None else batch.weight
        partner = rows.to(batch.index.device, non_blocking=True)
        label = run.data.labels[rows].to(batch.label.device, non_blocking=True)
        once = dataclasses.replace(run, models=nn.ModuleList(_Once(model) for model in run.models))
        others = dataclasses.replace(
            batch, views=mixed, label=label, index=partner, row=partner, weight=lam * weight, on_host=rows
        )
        other = self.inner.loss(once, others)
        return other + self.inner.loss(once, dataclasses.replace(batch, views=mixed, weight=(1 - lam) * weight))

    def _partners(self, index: Tensor, uniform: Tensor) -> Tensor:
        """Another member of the cluster of each example (B,), by draws (B,) in [0, 1); itself, where it is alone."""
        if self._clusters is None:
            owner = self.owner.cpu()
            members = (owner >= 0).nonzero().squeeze(1)
            # sorted by owner, each owner before the other members of its cluster
            order = members[(2 * owner[members] + (members != owner[members])).argsort()]
            size = torch.bincount(owner[order], minlength=len(owner))
            self._clusters = order, size, size.cumsum(0) - size
        order, size, start = self._clusters
        others = (size[index] - 1).clamp_min(0)
        draw = (uniform * others).long().clamp(max=(others - 1).clamp_min(0))
        return torch.where(others > 0, order[(start[index] + 1 + draw).clamp(max=len(order) - 1)], index)

    def figures(self, run: Run) -> dict[str, float]:
        """The share of right labels among the selected, where that is known."""
        return super().figures(run) | share_right(run, self.chosen)

    def beliefs(self, run: Run, predicted: Tensor) -> Beliefs | None:
        """The inner method's, else the predictions; an example that was seldom selected is suspicious.

        Not so with "medoids", which represent every example: the scattered, wrong ones by themselves, the right ones by
        a few. There the selection says nothing against those it leaves out.
        """
        inner = self.inner.beliefs(run, predicted)
        if self.selection == "medoids":
            return inner
        label = run.data.labels.cpu()
        soft_label = predicted if inner is None else inner.soft_label
        suspicion = 1 - soft_label.gather(1, label[:, None]).squeeze(1) if inner is None else inner.suspicion
        if int(self.rounds) == 0:
            return Beliefs(soft_label, suspicion.clamp(0, 1))
        left_out = 1 - self.times.cpu().float() / float(self.rounds)
        return Beliefs(soft_label, ((suspicion + left_out) / 2).clamp(0, 1))


class _Once(nn.Module):
    """A model that does not compute twice what it is asked twice, with or without gradient."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self._known: list[tuple[Tensor, bool, Tensor]] = []  # input, with gradient?, output

    def forward(self, x: Tensor) -> Tensor:
        gradient = torch.is_grad_enabled()
        for known, had, output in self._known:
            if had == gradient and (known is x or torch.equal(known, x)):  # equal: a method may join its views
                return output
        self._known.append((x, gradient, self.model(x)))
        return self._known[-1][2]

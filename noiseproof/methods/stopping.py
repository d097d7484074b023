"""When to stop: what `early_stop` watches. None of it sees a test label, or a label known to be right.

After each epoch a criterion gives a verdict on that epoch, or on one a little before it (`lag`), so that all can watch
one run side by side. With f_t(x_i) the predicted class after epoch t, ℓ_i = −log p(y_i | x_i), and m training examples:

    val_accuracy   accuracy on held-out labels, as noisy as the others; val_loss: minus the mean loss there
    agreement      1/m Σ_i w_i(f_t(x_i)), less the mean of w_i(f_t(x_j)) over all i and j, which is chance; w_i is 1 for
                   the class most epochs before t predicted, −1 for the label y_i where that is another, else 0
    changes        −1/m Σ_i [f_t(x_i) ≠ f_{t−1}(x_i)], mean of three epochs
    mixture        −P(an example is taken for the wrong mode) / weight of the smaller mode, for two normal modes fitted
                   to the ℓ_i; mean of three epochs
    distance       stops when ‖θ − θ₀‖ leaves a radius
    knee           stops when training accuracy gains less by ‖θ − θ₀‖ than `share` of what it gained on average
    theory         stops after the τ₀ that Theorem 3.2 of Li et al. (2020) gives for networks of one hidden layer

The first four pick the epoch of the highest score, the first of equals. `changes` is the prediction changes of Suqin
Yuan, Lei Feng and Tongliang Liu, "Early Stopping Against Label Noise Without Validation Data", ICLR 2024.
"""

from __future__ import annotations

import math
from functools import partial

import torch
from torch import Tensor

from noiseproof import checks
from noiseproof.auditing.two_modes import separation
from noiseproof.calls import build_as
from noiseproof.errors import InputError
from noiseproof.method import Predictions, Run
from noiseproof.methods._criterion import Criterion as Criterion
from noiseproof.methods._criterion import Peak as Peak
from noiseproof.methods._criterion import Smoothed
from noiseproof.models.inference import block_size, losses
from noiseproof.models.shallow import ShallowNet, learning_time

_ROWS = 10_000  # training examples whose predictions are remembered, at most: memory does not grow with the data


def remembered(run: Run) -> Predictions:
    """The predictions on training examples, of `_ROWS` at most, spread evenly: data may be sorted by class."""
    assert run.predicted is not None, "the run makes predictions, as `start` has seen"
    found = run.predicted
    if len(found.index) <= _ROWS:
        return found
    rows = torch.arange(_ROWS) * len(found.index) // _ROWS
    return Predictions(found.index[rows], found.probability[rows])


class ValAccuracy(Peak):
    """Accuracy on the held-out split."""

    name = "val_accuracy"
    sign = 1.0

    def start(self, run: Run) -> None:
        if run.val is None:
            raise InputError(
                f"early_stop by {self.name} needs a validation split: pass val=... or --val 0.1, or another criterion"
            )
        super().start(run)

    def score(self, run: Run) -> float:
        return self.sign * float(run.history[-1][self.name])


class ValLoss(ValAccuracy):
    """Loss on the held-out split."""

    name = "val_loss"
    sign = -1.0


class Agreement(Peak):
    """Agreement of an epoch's predictions with the vote of all epochs before it, beyond chance.

    While the network learns what the labels have in common its predictions change, then settle, and change again when
    it learns wrong labels by heart: then they turn from what it said for epochs to the label, which counts against the
    epoch. A network that gives few classes only agrees with itself for no other reason: that is chance.
    """

    name = "agreement"
    reads_predictions = True
    votes: Tensor

    def memory(self, run: Run) -> dict[str, Tensor]:
        votes = torch.zeros(min(len(run.data), _ROWS), run.num_classes, dtype=torch.int16)
        return super().memory(run) | {"votes": votes}

    def score(self, run: Run) -> float:
        predicted = remembered(run)
        guess = predicted.probability.argmax(dim=1).to(self.votes.device)  # (m,)
        label = run.data.labels[predicted.index].to(guess.device)
        votes = self.votes[: len(guess)]
        first, vote = not votes.any(), votes.argmax(dim=1)
        votes[torch.arange(len(guess), device=guess.device), guess] += 1
        return math.nan if first else steadiness(guess, vote, label, run.num_classes)


def steadiness(guess: Tensor, vote: Tensor, label: Tensor, classes: int) -> float:
    """How many of the guesses (m,) keep to the vote (m,), less those that turn to the label (m,), beyond chance."""
    turned = (guess == label) & (label != vote)
    kept = int((guess == vote).sum() - turned.sum())
    count = partial(torch.bincount, minlength=classes)
    chance = int((count(guess) * (count(vote) - count(label[label != vote]))).sum())
    return kept / len(guess) - chance / len(guess) ** 2


class Changes(Smoothed):
    """The fewest predictions changed from one epoch to the next."""

    name = "changes"
    reads_predictions = True
    guess: Tensor

    def memory(self, run: Run) -> dict[str, Tensor]:
        return super().memory(run) | {"guess": torch.full((min(len(run.data), _ROWS),), -1, dtype=torch.int32)}

    def value(self, run: Run) -> float:
        guess = remembered(run).probability.argmax(dim=1).to(self.guess)  # (m,)
        before = self.guess[: len(guess)]
        changed = math.nan if (before < 0).any() else (guess != before).float().mean().item()
        before.copy_(guess)
        return -changed


class Mixture(Smoothed):
    """The losses of the training examples fall most clearly into two modes."""

    name = "mixture"
    reads_predictions = True

    def value(self, run: Run) -> float:
        assert run.predicted is not None
        return separation(losses(run.predicted.probability, run.data.labels[run.predicted.index]).numpy())


class Distance(Criterion):
    """The last epoch before ‖θ − θ₀‖ leaves a radius."""

    name = "distance"
    limit: Tensor

    def __init__(self, radius: float, relative: bool = True) -> None:
        super().__init__()
        self.radius = checks.number("radius", radius, 0, ends="()")
        self.relative = checks.boolean("relative", relative)  # to ‖θ₀‖

    def memory(self, run: Run) -> dict[str, Tensor]:
        weights = [p.detach().square().sum() for p in run.models.parameters() if p.requires_grad]
        scale = float(torch.stack(weights).sum().sqrt()) if self.relative else 1.0
        return {"limit": torch.tensor(self.radius * scale)}

    def observe(self, run: Run) -> tuple[bool, bool]:
        distance = run.history[-1]["distance"]
        inside = distance <= float(self.limit)
        if not inside and run.epoch == 1:
            raise InputError(
                f"early_stop by distance: the first epoch went {distance:.3g} from the initial weights, the radius is "
                f"{float(self.limit):.3g}; take a larger one, or a smaller learning rate"
            )
        return inside, not inside


class Knee(Criterion):
    """Where training accuracy, drawn against ‖θ − θ₀‖, turns flat.

    With a and d their values after this epoch, a' and d' three epochs ago: (a − a')/(d − d') < share · (a − 1/K)/d.
    Up to chance, a ≤ 1/K, it has yet to begin.
    """

    name = "knee"
    reads_predictions = True
    path: Tensor

    def __init__(self, share: float = 0.4) -> None:
        super().__init__()
        self.share = checks.number("share", share, 0, 1, ends="()")

    def memory(self, run: Run) -> dict[str, Tensor]:
        # accuracy and distance, now and three epochs back
        return {"path": torch.tensor([1 / run.num_classes, 0.0]).repeat(4, 1)}

    def observe(self, run: Run) -> tuple[bool, bool]:
        record = run.history[-1]
        now = self.path.new_tensor([record["train_accuracy"], record["distance"]])
        self.path.copy_(torch.cat([self.path[1:], now[None]]))
        (accuracy, distance), (gained, moved) = now.tolist(), (now - self.path[0]).tolist()
        above = accuracy - 1 / run.num_classes
        return True, above > 0 and gained * distance < self.share * above * moved


class Theory(Criterion):
    """The first epoch after the time τ₀ of Theorem 3.2 in Li et al. (2020), for networks of one hidden layer.

    Gradient descent on ½‖f − y‖² with step η is within `precision` of what the clusters' labels have in common once
    ητ ≥ 5/α² log(‖Π₊r₀‖/precision), with α half the least singular value of J(W₀) over the clusters. The clusters are
    taken to be the observed classes, at their means; a step of ours counts as η = lr / (n (1 − momentum)).

    Differs from the paper: the run minimises cross-entropy, whose residuals shrink more slowly, and its data are no
    tight clusters. The conditions of the theorem are not checked: this says when it would stop.
    """

    name = "theory"
    due: Tensor
    time: Tensor

    def __init__(self, precision: float = 0.1, momentum: float = 0.9) -> None:
        super().__init__()
        self.precision = checks.number("precision", precision, 0, ends="()")
        self.momentum = checks.number("momentum", momentum, 0, 1, ends="[)")

    def memory(self, run: Run) -> dict[str, Tensor]:
        if not isinstance(run.model, ShallowNet):
            raise InputError(
                "early_stop by theory is for networks of one hidden layer: model='shallow'; take agreement"
            )
        due = learning_time(run.model, *_class_means(run), self.precision)
        if math.isinf(due):
            raise InputError(
                "early_stop by theory: the network's Jacobian at the mean inputs of the classes is singular; widen the "
                "network, or take criterion='agreement'"
            )
        return {"due": torch.tensor(due), "time": torch.zeros(())}

    def observe(self, run: Run) -> tuple[bool, bool]:
        record = run.history[-1]
        steps = record["step"] - (run.history[-2]["step"] if len(run.history) > 1 else 0)
        self.time += steps * record["lr"] / (len(run.data) * (1 - self.momentum))
        return True, bool(self.time >= self.due)


def _class_means(run: Run) -> tuple[Tensor, Tensor, Tensor]:
    """The mean input of each class there is (K', d), how many examples it has (K',), and its number (K',)."""
    labels, shape = run.data.labels.to(run.device), run.data.input_shape
    total = torch.zeros(run.num_classes, math.prod(shape), device=run.device)
    for rows in torch.arange(len(labels)).split(block_size(shape)):
        total.index_add_(0, labels[rows], run.normalize(run.data.take(rows).to(run.device)).flatten(1))
    sizes = torch.bincount(labels, minlength=run.num_classes)
    classes = sizes.nonzero()[:, 0]
    return total[classes] / sizes[classes, None], sizes[classes], classes


CRITERIA: dict[str, type[Criterion]] = {
    cls.name: cls for cls in (Agreement, ValAccuracy, ValLoss, Changes, Mixture, Distance, Knee, Theory)
}


def build(criterion: str | Criterion) -> Criterion:
    """A criterion as it is, or from text: `agreement`, `distance(0.8)`, `knee(share=0.3)`.

    Raises:
        InputError: it is neither, or an option is wrong.
    """
    return build_as(Criterion, criterion, CRITERIA, kind="criterion", name="criterion", example="distance(0.8)")

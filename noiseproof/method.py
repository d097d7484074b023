"""The contract between a method and the training loop. One page: read it first.

A method is an `nn.Module` with one hook it must write, `loss`, and a handful it may. The loop (training/loop.py) calls
the hooks in this order and knows no method by name:

    start
    each epoch:   before_epoch -> [loss, (backward, step), after_step] for each batch -> (evaluation) -> stop -> figures
    finish

Everything a method remembers lives in its buffers, parameters or `get_extra_state`, and all its randomness comes from
`run.generator`: that alone makes a killed run resume to the same bits.

Under torchrun each process has a part of every batch, and all of them must hold the same method after a step, the one
that a single process would hold. So `loss` gives this process's share of the batch's loss (`Batch.mean`), what concerns
other examples comes from `Batch.gather`, draws are made for the whole batch by all and `Batch.own` of them kept, and
state of single examples is named in `rows`. Alone, none of that costs or changes anything.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn

from noiseproof import checks, distributed
from noiseproof.errors import InputError, shown
from noiseproof.models.inference import predictions

if TYPE_CHECKING:
    from noiseproof.data import LabeledData, Normalize


@dataclass(slots=True)
class Batch:
    """What one step sees: under torchrun, this process's part of it."""

    views: tuple[Tensor, ...]  # num_views tensors (B, ...), augmented and normalised: ready for a model
    label: Tensor  # (B,) observed labels
    index: Tensor  # (B,) positions in the full training set, without repeats
    weight: Tensor | None = None  # (B,) weights of a Selection, of mean 1 over the selection
    row: Tensor = None  # type: ignore[assignment]  # (B,) where `Method.rows` hold these examples: index, if they hold all
    sizes: tuple[int, ...] = ()  # B of each process
    on_host: Tensor | None = None  # (B,) index, on the CPU

    def __post_init__(self) -> None:
        self.row = self.index if self.row is None else self.row
        self.sizes = self.sizes or (len(self.label),)

    @property
    def host_index(self) -> Tensor:
        """`index` on the CPU, to look examples up by: in a step of the loop, without waiting for the device."""
        return self.index.cpu() if self.on_host is None else self.on_host

    @property
    def size(self) -> int:
        """Examples of the step, in all processes."""
        return sum(self.sizes)

    @property
    def own(self) -> slice:
        """Which of the step's examples are here."""
        return slice(0, self.size) if len(self.sizes) == 1 else distributed.own_part(self.sizes)

    def gather(self, rows: Tensor) -> Tensor:
        """What all processes have, (B, …) of each to (size, …), in the order of the step, with gradients."""
        return rows if len(self.sizes) == 1 else distributed.gather_with_gradients(rows, self.sizes)

    def gathered(self) -> Batch:
        """The step of all processes, without its views: what goes with gathered logits or losses."""
        if len(self.sizes) == 1:
            return self
        weight = None if self.weight is None else self.gather(self.weight)
        return Batch((), self.gather(self.label), self.gather(self.index), weight)

    def mean(self, per_example: Tensor) -> Tensor:
        """The (weighted) mean of per-example values (B,): such that the mean over processes is that of the step."""
        values = per_example if self.weight is None else per_example * self.weight
        return values.mean() if len(self.sizes) == 1 else values.sum() * (len(self.sizes) / self.size)


@dataclass(frozen=True, slots=True)
class Selection:
    """The examples an epoch visits, and their weights."""

    index: Tensor  # (m,) positions in the full training set, without repeats
    weight: Tensor | None = None  # (m,) not negative, not all zero


@dataclass(frozen=True, slots=True)
class Beliefs:
    """What a run came to believe of each training example's label."""

    soft_label: Tensor  # (n, K) rows sum to 1
    suspicion: Tensor  # (n,) in [0, 1]: higher is likelier wrong

    @classmethod
    def of(cls, probability: Tensor, labels: Tensor) -> Beliefs:
        """Each label (n,) is as suspicious as class probabilities (n, K) find it unlikely."""
        return cls(probability, (1 - probability.gather(1, labels[:, None]).squeeze(1)).clamp(0, 1))


@dataclass(frozen=True, slots=True)
class Predictions:
    """What the models say of some training examples."""

    index: Tensor  # (m,) positions in the full training set
    probability: Tensor  # (m, K)


@dataclass
class Run:
    """The run a method takes part in: all it may read, and the models it may call."""

    models: nn.ModuleList  # predictions are the mean of theirs
    data: LabeledData  # the training set
    num_classes: int
    epochs: int
    batch_size: int
    device: torch.device
    generator: torch.Generator  # on the CPU; the only source of a method's randomness
    normalize: Normalize  # raw inputs -> what a model takes
    val: LabeledData | None = None  # the held-out split, as noisy as the training set
    epoch: int = 0  # epochs completed
    step: int = 0  # steps completed, over all epochs
    lr: float = 0.0  # learning rate of the current step
    autocast: torch.dtype | None = None  # of the networks' operations, `precision`; None: as the weights are
    predicts: bool = True  # training examples are evaluated after each epoch: `predicted`
    inputs: Callable[[Tensor], tuple[Tensor, ...]] | None = None  # rows (B,) -> their views, as those of a batch
    history: list[dict[str, Any]] = field(default_factory=list)  # one record per completed epoch
    predicted: Predictions | None = None  # after the last completed epoch, of the training examples evaluated, if any
    held_out: Tensor | None = None  # (m, K) the same of `val`, until the next epoch begins; None where it is not known
    told: dict[str, Tensor] = field(default_factory=dict)  # (m, K) sums over epochs of predictions: of these, and `val`

    @property
    def model(self) -> nn.Module:
        """The first model: the only one of most methods."""
        return self.models[0]

    @property
    def total_steps(self) -> int:
        """Steps of the whole run, if it is not ended before and every epoch visits all examples."""
        full, rest = divmod(len(self.data), self.batch_size)
        return self.epochs * max(full + (rest > 1), 1)

    def precision(self) -> AbstractContextManager[Any]:
        """The context of a forward pass: steps and predictions are in it already."""
        return nullcontext() if self.autocast is None else torch.autocast(self.device.type, dtype=self.autocast)

    def predict(
        self,
        data: LabeledData | None = None,
        models: nn.ModuleList | None = None,
        index: Tensor | None = None,
        *,
        everywhere: bool = True,
    ) -> Tensor:
        """Probabilities (n, K) that the models, or some, give every example of a data set, by default the training set.

        Those of several models are averaged. Each process asks its models about a part, and all have the same answer.
        `index` (n,): about these rows only. Not `everywhere`: the main process has the answer, the others their part.
        """
        data, models = self.data if data is None else data, self.models if models is None else models
        index = torch.arange(len(data)) if index is None else index
        sizes = distributed.sizes_of(len(index))
        own = self.ask(index[distributed.own_part(sizes)], data, models)
        return distributed.gather(own, sizes, everywhere=everywhere)

    def ask(self, index: Tensor, data: LabeledData | None = None, models: nn.ModuleList | None = None) -> Tensor:
        """As `predict`, of the rows `index` (m,), by this process alone and for itself: (m, K)."""
        data, models = self.data if data is None else data, self.models if models is None else models
        probability = torch.empty(len(index), self.num_classes)  # made first: kept blocks would scatter over the heap
        done = 0
        with self.precision():
            for rows, block in predictions(models, self.normalize, data, self.device, index):
                probability[done : done + len(rows)] = block
                done += len(rows)
        return probability


class Method(nn.Module, ABC):
    """How to train on labels that are partly wrong.

    Hyper-parameters are keyword-only, kept under their own names, with the paper's value as default: the fields of a
    dataclass, each with its check (`checks.option`), or arguments of an `__init__`. Sizes and devices arrive in
    `start`. Vary by wrapping (`Wrapper`), not by subclassing a finished method.
    """

    name: ClassVar[str]  # what the command line calls it
    paper: ClassVar[str] = ""
    needs: ClassVar[str] = "nothing"
    cost: ClassVar[str] = "1×"  # of a training step, relative to cross-entropy
    rows: ClassVar[tuple[str, ...]] = ()  # its buffers (n, …) that steps change at `batch.row`; of a part: "noise.u"
    num_models: int = 1
    num_views: int = 1
    plans: bool = False  # goes by `run.epochs`, the number planned: a run can be given no more of them
    looks_up_labels: bool = False  # whether it reads labels from the data, beside those of the batch
    labels_change: bool = False  # set by a wrapper that shows it other labels than the stored ones

    def __init__(self) -> None:
        super().__init__()

    def __post_init__(self) -> None:
        """Of a method that is a dataclass: what its options may be."""
        super().__init__()
        checks.options(self)

    def start(self, run: Run) -> None:
        """Allocate per-example state: the sizes are known from here on."""

    def optimizers(self) -> list[torch.optim.Optimizer]:
        """Optimizers of the method's own learnables; the loop steps and saves them."""
        return []

    def before_epoch(self, run: Run) -> Selection | None:
        """Prepare an epoch, and choose the examples it visits (None: all of them)."""
        return None

    @abstractmethod
    def loss(self, run: Run, batch: Batch) -> Tensor:
        """The scalar to minimise on a batch."""

    def after_step(self, run: Run, batch: Batch) -> None:
        """Closed-form updates of the touched rows, after the optimizer's step."""

    def stop(self, run: Run) -> bool:
        """After an epoch and its evaluation: end the run here?"""
        return False

    def figures(self, run: Run) -> dict[str, float]:
        """What it adds to the epoch's record in the history."""
        return {}

    def finish(self, run: Run) -> int | None:
        """After the last epoch, e.g. restore the chosen weights; returns the epoch it went back to, if it did."""
        return None

    def beliefs(self, run: Run, predicted: Tensor) -> Beliefs | None:
        """What the method believes of each training label; None where it keeps no opinion beside its predictions.

        `predicted` (n, K) are the probabilities that the finished models give the training set.
        """
        return None

    def row_buffers(self) -> dict[str, tuple[nn.Module, str]]:
        """The buffers that `rows` name, here and in the methods inside, by their keys in the state_dict: whose, which.

        Raises:
            InputError: there is no such buffer.
        """
        found = {}
        for path, part in self.named_modules():
            for name in part.rows if isinstance(part, Method) else ():
                key = f"{path}.{name}" if path else name
                owner, _, last = name.rpartition(".")
                module = part.get_submodule(owner)
                if module._buffers.get(last) is None:
                    raise InputError(f"{part.name} has no buffer {name!r}, which its `rows` names; make it in start")
                found[key] = (module, last)
        return found

    def title(self) -> str:
        """A short name for tables and progress bars, e.g. `early_stop(elr)`."""
        return self.name

    def describe(self) -> str:
        """The method as text that `methods.build` reads back, e.g. `elr(beta=0.7, lam=3.0)`."""
        options = []
        for key in inspect.signature(type(self)).parameters:
            value = getattr(self, key)
            value = value.tolist() if isinstance(value, Tensor) else value
            options.append(value.describe() if isinstance(value, Method) else f"{key}={value!r}")
        return f"{self.name}({', '.join(options)})"


class Wrapper(Method):
    """A method around another: passes every hook on; a subclass changes the ones it is about."""

    def __init__(self, inner: Method) -> None:
        if not isinstance(inner, Method):
            raise InputError(f"{self.name} wraps a method, got {shown(inner)}; write e.g. {self.name}(ce)")
        super().__init__()
        self.inner = inner
        self.num_models = inner.num_models
        self.num_views = inner.num_views
        self.plans = inner.plans

    def title(self) -> str:
        return f"{self.name}({self.inner.title()})"

    def start(self, run: Run) -> None:
        self.inner.start(run)

    def optimizers(self) -> list[torch.optim.Optimizer]:
        return self.inner.optimizers()

    def before_epoch(self, run: Run) -> Selection | None:
        return self.inner.before_epoch(run)

    def loss(self, run: Run, batch: Batch) -> Tensor:
        return self.inner.loss(run, batch)

    def after_step(self, run: Run, batch: Batch) -> None:
        self.inner.after_step(run, batch)

    def stop(self, run: Run) -> bool:
        return self.inner.stop(run)

    def figures(self, run: Run) -> dict[str, float]:
        return self.inner.figures(run)

    def finish(self, run: Run) -> int | None:
        return self.inner.finish(run)

    def beliefs(self, run: Run, predicted: Tensor) -> Beliefs | None:
        return self.inner.beliefs(run, predicted)

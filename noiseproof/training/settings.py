"""The settings of a run, each described once: its type, its default, what it means, and what it must be.

    @dataclass(frozen=True, kw_only=True)
    class Fitting(Training):
        eval_examples: int | None = setting(10_000, "Training examples evaluated …", check, option=int)

From these classes come the signatures, checks and documentation of `fit` and `pretrain` (`verb`), the options of their
command lines (cli/options.py), what a recipe may hold, and what config.json says of a run. To add a setting, add a
field. Nothing heavy is imported here, so that `--help` answers at once.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeAlias, TypeVar

from noiseproof import checks, schedules
from noiseproof.errors import enough_memory
from noiseproof.training import setting_checks as must

if TYPE_CHECKING:
    import torch
    from torch import nn

    from noiseproof.data import LabeledData
    from noiseproof.data.augment import Augmentation
    from noiseproof.method import Method
    from noiseproof.runs.folder import RunFolder
    from noiseproof.runs.trained import Features
    from noiseproof.training import optimizers
    from noiseproof.training.callbacks import Callback
    from noiseproof.training.progress import Progress

Model: TypeAlias = "str | nn.Module | Callable[[], nn.Module]"
Augment: TypeAlias = "str | Augmentation | Sequence[str | Augmentation]"  # one for all views, or one for each
P = ParamSpec("P")
Call = TypeVar("Call")
Result = TypeVar("Result")

DATA, TRAIN, RUN = "Data", "Training", "Run"  # where a setting belongs; the panels of --help
# named in --help, without importing what they name: a test compares
OPTIMIZERS = "sgd, adam, adamw, adadelta"
AUGMENTATIONS = "none, weak, strong, crop, simclr, moco-cifar10, sane-strong"
AUDIT_FEATURES = ("auto", "inputs", "imagenet", "none")
PRECISIONS = ("auto", "float32", "bfloat16")
STATES = ("replicated", "sharded")
SAME = object()


@dataclass(frozen=True)
class Setting:
    """What is known of a setting beside its type and its default."""

    help: str  # a sentence or two
    check: Callable[[str, Any], Any] | None = None  # (name, value) -> the value as it is kept; raises InputError
    panel: str = TRAIN
    option: Any = None  # its type as an option of the command line; None: it is none
    parse: Callable[[Any], Any] | None = None  # what the option gives -> the value; None: as it is
    command: Any = SAME  # the command line's default, where it is not Python's
    metavar: str | None = None
    python: str = ""  # what else it may be in Python
    determines: bool = True  # whether a run with another value is another run


def about(help: str, check: Callable[[str, Any], Any] | None = None, **more: Any) -> Mapping[str, Setting]:
    """The metadata of a field that is a `Setting`."""
    return {"setting": Setting(help, check, **more)}


def setting(default: Any, help: str, check: Callable[[str, Any], Any] | None = None, **more: Any) -> Any:
    """A field with a default that is a `Setting`."""
    return field(default=default, metadata=about(help, check, **more))


# What the command line gives, as values


def listed(text: str) -> str | list[str]:
    """`weak,strong` as a list; one name as it is."""
    return [one.strip() for one in text.split(",")] if "," in text else text


def whole(text: int | str) -> int | str:
    """A number, also as text; other text as it is."""
    return int(text) if _is_whole(str(text)) else text


def numbers(text: str) -> Any:
    """`224,192` as numbers; what is none, as it is."""
    parts = [part.strip() for part in text.split(",")]
    return [int(part) for part in parts] if all(map(_is_whole, parts)) else text


def weighted(text: str) -> Any:
    """`cat:2,dog:0.5` as weights by name; what is none, as it is."""
    pairs = [part.rpartition(":") for part in text.split(",")]
    try:
        return {name.strip(): float(weight) for name, _, weight in pairs if name} or text
    except ValueError:
        return text


def _is_whole(text: str) -> bool:
    return text.isdecimal() and len(text) < 20  # longer ones are no sizes, and Python may refuse to read them


@dataclass(frozen=True, kw_only=True, eq=False)
class Training:
    """What every run of the loop is told, whatever it trains."""

    model: Model = field(
        kw_only=False,
        metadata=about(
            "A network by name (see: noiseproof models), or auto.", option=str, command="auto",
            python="Or a module (trained in place), or a function that makes one; from inputs (B, …) to logits (B, K).",
        ),
    )  # fmt: skip
    data: LabeledData = field(
        kw_only=False,
        metadata=about(
            "The training set.", must.dataset, panel=DATA, python="Or (X, y), a table, a dataset: see `load`."
        ),
    )
    epochs: int = setting(30, "Passes over the training set.", must.count, option=int)
    batch_size: int | str = setting(
        128, "Examples in a step, or all.", must.batch_size, option=str, parse=whole, metavar="INTEGER|all"
    )
    lr: float = setting(0.05, "Learning rate.", must.positive, option=float)
    momentum: float = setting(0.9, "Momentum (Adam: its first beta).", must.below_one, option=float)
    weight_decay: float = setting(5e-4, "Weight decay.", partial(checks.number, low=0), option=float)
    optimizer: optimizers.Choice = setting(
        "sgd", f"{OPTIMIZERS}.", must.optimizer, option=str,
        python="Or a class of torch.optim, or a function from parameters to an optimizer.",
    )  # fmt: skip
    backbone_rate: float = setting(
        1.0, "Learning rate below the head, as a factor on that of the head.", must.positive, option=float
    )
    schedule: str | Callable[[schedules.Clock], float] = setting(
        "cosine", "cosine, constant, 'multi_step([40, 80])', 'anneal_at(0.1)' or 'anneal_on_loss(0.5)'.", must.schedule,
        option=str, python="Or a function of a `Clock`.",
    )  # fmt: skip
    shuffle: str = setting(
        "examples", "examples: any order; shards: piece by piece of tar files, where random places are slow to read.",
        partial(checks.choice, allowed=("examples", "shards")), panel=DATA, option=str,
    )  # fmt: skip
    clip: float | None = setting(
        None, "Largest norm of the gradient.", checks.optional(must.positive), option=float | None
    )
    precision: str = setting(
        "float32", "float32, bfloat16, or auto: bfloat16 where the device is fast at it.",
        partial(checks.choice, allowed=PRECISIONS), option=str,
    )  # fmt: skip
    test: LabeledData | None = setting(
        None, "A test set, used to report only.", checks.optional(must.dataset), panel=DATA
    )
    seed: int = setting(0, "The same seed gives the same bits.", must.seed, panel=RUN, option=int)
    device: str | torch.device = setting("auto", "auto, cpu, cuda, mps.", panel=RUN, option=str, determines=False)
    out: str | Path | RunFolder | None = setting(
        None, "The run's folder; without it nothing is written.", checks.optional(must.out), panel=RUN, determines=False
    )
    resume: bool = setting(
        False, "Continue the run in its folder, to the same bits as if it had never stopped.", checks.boolean,
        panel=RUN, determines=False,
    )  # fmt: skip
    checkpoint_seconds: float = setting(
        60.0, "Save this often.", must.positive, panel=RUN, option=float, determines=False
    )
    checkpoint_steps: int | None = setting(
        None,
        "Save every so many steps, too.",
        checks.optional(must.count),
        panel=RUN,
        option=int | None,
        determines=False,
    )
    progress: bool | Progress = setting(
        False, "True for a bar (a plain log when not on a terminal).", must.progress, panel=RUN, determines=False
    )
    callbacks: Callback | Sequence[Callback] = setting(
        (), "Functions of each epoch's record, a dict; one that returns True ends the run.", must.callbacks,
        panel=RUN, determines=False,
    )  # fmt: skip
    track: str | None = setting(
        None, "tensorboard: write the figures of each epoch for it, into the run's folder.",
        checks.optional(partial(checks.choice, allowed=("tensorboard",))), panel=RUN, option=str | None,
        determines=False,
    )  # fmt: skip
    notes: dict[str, Any] | None = setting(
        None, "Anything, as JSON, to keep in config.json.", must.notes,
        panel=RUN, determines=False,
    )  # fmt: skip

    def __post_init__(self) -> None:
        for name, setting in settings_of(type(self)).items():
            if setting.check is not None:
                object.__setattr__(self, name, setting.check(name, getattr(self, name)))


@dataclass(frozen=True, kw_only=True, eq=False)
class Fitting(Training):
    """The settings of `fit`."""

    method: str | Method = field(
        default="auto", kw_only=False,
        metadata=about("A method or a stack: elr, 'early_stop(elr(lam=7))'. See: noiseproof methods.", option=str),
    )  # fmt: skip
    augment: Augment = setting(
        "none",
        f"{AUGMENTATIONS}; one for each view: weak,strong; auto is weak for colour images, with a strong second view.",
        must.augment, option=str, parse=listed, command="auto", python="Or functions (inputs, generator) -> inputs.",
    )  # fmt: skip
    init: str | Path | Features | None = setting(
        None, "A finished run of pretrain or fit to start from: its backbone, with a fresh head.",
        checks.optional(must.init), option=str | None, python="Or its `Features`.",
    )  # fmt: skip
    weights: str | Path | None = setting(
        None, "A file of weights to start from, .safetensors or .pth: by name, the head fresh if its shape differs.",
        checks.optional(must.one_of_kinds(str, Path, allowed="the path of a file, or None")), option=str | None,
    )  # fmt: skip
    freeze: str | None = setting(
        None, "backbone: train the head alone; batch norms below it stay as they are, too.",
        checks.optional(partial(checks.choice, allowed=("backbone",))), option=str | None,
    )  # fmt: skip
    class_weight: str | Mapping[Any, float] | None = setting(
        None, "balanced, or how much classes count: cat:2,dog:0.5 (1 for the rest); examples: LabeledData(weights=…).",
        checks.optional(must.class_weight), option=str | None, parse=weighted, python="Or a dict.",
    )  # fmt: skip
    val: LabeledData | float | None = setting(
        None, "Share of the training set to hold out, noise included; it picks the best epoch.",
        checks.optional(must.dataset), panel=DATA,
        option=float, command=0.1, python="Or a set of its own.",
    )  # fmt: skip
    eval_examples: int | None = setting(
        10_000, "Training examples evaluated after each epoch; 0: none.", checks.optional(must.from_zero), panel=RUN,
        option=int, python="None: all.",
    )  # fmt: skip
    state: str = setting(
        "replicated", "Under torchrun, what a method keeps of each example: replicated in all processes, or sharded.",
        partial(checks.choice, allowed=STATES), panel=RUN, option=str, determines=False,
    )  # fmt: skip
    sync_batch_norm: bool = setting(
        False, "Under torchrun, normalise by the batch of all processes, not of each by itself.", checks.boolean,
        option=bool, determines=False,
    )  # fmt: skip
    audit_features: str = setting(
        "auto", "What the closing audit of the labels goes by beside the network's own word: auto, inputs, imagenet "
        "(features of a frozen network) or none.", partial(checks.choice, allowed=AUDIT_FEATURES), panel=RUN,
        option=str, determines=False,
    )  # fmt: skip
    score_test: bool = setting(
        False, "List the labels of the test set in labels.parquet, too.", checks.boolean, panel=RUN, option=bool,
        determines=False,
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True, eq=False)
class Pretraining(Training):
    """The settings of `pretrain`. The SANE paper: 2,000 epochs of CIFAR-10, the rest as given here."""

    method: str | Method = field(
        default="sane",
        kw_only=False,
        metadata=about("sane, moco, simclr, byol, imix, or with options: 'sane(lam=0.5)'.", option=str),
    )
    epochs: int = 200
    batch_size: int | str = setting(256, "Images in a step.", must.from_two, option=int)
    lr: float = 0.03
    weight_decay: float = 1e-4
    augment: Augment = setting(
        "simclr",
        f"Of the first two views: {AUGMENTATIONS}; or one for each view: simclr,weak.",
        must.augment, option=str, parse=listed,
    )  # fmt: skip
    mix_augment: str | None = setting(
        None, "Of the extra views of 'sane(crops=1)', e.g. sane-strong; by default as augment.",
        must.one_of_kinds(str, type(None), allowed="the name of an augmentation, or None"), option=str | None,
    )  # fmt: skip
    crop_sizes: Sequence[int] | None = setting(
        None, "Pixels of the extra views: 224,192,160,128,96; by default from the image's own down to 3/7 of it.",
        checks.optional(must.sizes), option=str | None, parse=numbers,
    )  # fmt: skip
    dim: int = setting(128, "Outputs of the projection head.", must.from_two, option=int)
    hidden: int | None = setting(
        None, "Its hidden width; by default the number of features.", checks.optional(must.count), option=int | None
    )
    probe_every: int | None = setting(
        None, "Epochs between probes, k-NN and linear; by default twenty in a run; 0: none.",
        checks.optional(must.from_zero), panel=RUN, option=int | None,
    )  # fmt: skip
    probe_examples: int = setting(
        5000, "Training examples the probes know.", partial(checks.integer, low=10), panel=RUN, option=int
    )


def settings_of(kind: type) -> dict[str, Setting]:
    """Each setting of a class by its name, in the order of its signature; a new default alone inherits the rest."""
    found: dict[str, Setting] = {}
    for base in kind.__mro__:
        for name, one in vars(base).get("__dataclass_fields__", {}).items():
            if "setting" in one.metadata:
                found.setdefault(name, one.metadata["setting"])
    return {name: found[name] for name in inspect.signature(kind).parameters}


def verb(kind: Callable[P, Call]) -> Callable[[Callable[[Call], Result]], Callable[P, Result]]:
    """Make of a function of settings one that takes them as its own arguments, checked and documented."""

    def decorate(run: Callable[[Call], Result]) -> Callable[P, Result]:
        @wraps(run)
        def called(*args: P.args, **kwargs: P.kwargs) -> Result:
            with enough_memory():
                return run(kind(*args, **kwargs))

        assert isinstance(kind, type)
        told = [f"{name}: {one.help} {one.python}".strip() for name, one in settings_of(kind).items()]
        lines = [textwrap.fill(text, 108, subsequent_indent=" " * 4) for text in told]
        called.__doc__ = (run.__doc__ or "").replace("        {settings}", textwrap.indent("\n".join(lines), " " * 8))
        returned = inspect.signature(run).return_annotation
        called.__signature__ = inspect.signature(kind).replace(  # type: ignore[attr-defined]
            return_annotation=returned
        )
        return called

    return decorate

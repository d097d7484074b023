"""The door of `fit` and `pretrain`: checks their arguments once and builds what the loop trusts, and the loop."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import cached_property
from numbers import Integral, Real
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from noiseproof import models, schedules
from noiseproof.calls import split_call
from noiseproof.data import LabeledData, Normalize
from noiseproof.data.augment import KEEP_COLOURS, Augmentation, policy
from noiseproof.data.input_form import InputForm, colour_range
from noiseproof.device import pick_device, pick_precision
from noiseproof.errors import InputError, unknown
from noiseproof.method import Method, Run
from noiseproof.models.inference import eval_mode
from noiseproof.runs.folder import RunDir
from noiseproof.training.batches import Feed
from noiseproof.training.loop import Loop
from noiseproof.training.progress import Progress

OPTIMIZERS = ("sgd", "adam", "adamw", "adadelta")


def require(condition: bool, name: str, value: Any, allowed: str) -> None:
    """Raise the standard sentence unless `condition` holds."""
    if not condition:
        raise InputError(f"{name} must be {allowed}, got {value!r}")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What every run of the loop is told, whatever it trains.

    Raises:
        InputError: one is outside its range.
    """

    epochs: int
    batch_size: int | str
    lr: float
    momentum: float
    weight_decay: float
    optimizer: str
    schedule: str | Callable[[schedules.Clock], float]
    clip: float | None
    precision: str
    seed: int
    device: str | torch.device

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "seed"):  # numpy's whole numbers are welcome too
            value = getattr(self, name)
            if isinstance(value, Integral) and not isinstance(value, bool):
                object.__setattr__(self, name, int(value))
        for name in ("lr", "momentum", "weight_decay", "clip"):
            value = getattr(self, name)
            if isinstance(value, Real):
                object.__setattr__(self, name, float(value))
        require(type(self.epochs) is int and self.epochs >= 1, "epochs", self.epochs, "a whole number, 1 or more")
        fits = self.batch_size == "all" or (isinstance(self.batch_size, int) and self.batch_size >= 2)
        require(fits, "batch_size", self.batch_size, "a whole number, 2 or more, or 'all'")
        seeds = type(self.seed) is int and 0 <= self.seed < 2**63
        require(seeds, "seed", self.seed, "a whole number from 0 to 2**63 − 1")
        clips = self.clip is None or (isinstance(self.clip, Real) and self.clip > 0)
        require(clips, "clip", self.clip, "a norm above 0, or None")
        pick_precision(self.precision, self.place)

    @cached_property
    def place(self) -> torch.device:
        """The device to train on."""
        return pick_device(self.device)

    @cached_property
    def rate(self) -> schedules.Schedule:
        """The schedule of the learning rate."""
        return schedules.of(self.schedule)

    @contextmanager
    def randomness(self) -> Iterator[None]:
        """Random numbers as the seed has them; the caller's own random state is left alone."""
        with torch.random.fork_rng(devices=[self.place] if self.place.type == "cuda" else []):
            torch.manual_seed(self.seed)
            yield

    def run(
        self, models: nn.ModuleList, data: LabeledData, *, val: LabeledData | None = None, predicts: bool = False
    ) -> Run:
        """A run before its first step."""
        return Run(
            models=models,
            data=data,
            num_classes=data.num_classes,
            epochs=self.epochs,
            batch_size=len(data) if isinstance(self.batch_size, str) else self.batch_size,
            device=self.place,
            generator=torch.Generator().manual_seed(self.seed),
            normalize=Normalize.of(data.take, len(data), image=data.is_image).to(self.place),
            val=val,
            predicts=predicts,
        )

    def loop(
        self,
        run: Run,
        method: Method,
        augments: tuple[Augmentation | None, ...],
        evaluate: Callable[[Run], dict[str, float]],
        rundir: RunDir | None,
        progress: Progress,
    ) -> Loop:
        """The loop over a run, yet to be opened."""
        return Loop(
            run,
            method,
            build_optimizer(self.optimizer, run.models, self.lr, self.momentum, self.weight_decay),
            self.rate,
            Feed(run.data, run.normalize, augments, self.place, self.seed),
            clip=self.clip,
            autocast=pick_precision(self.precision, self.place),
            evaluate=evaluate,
            rundir=rundir,
            progress=progress,
        )

    def described(self) -> dict[str, Any]:
        """What of it determines a run: all but the device."""
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name != "device"}


def build_models(
    model: str | nn.Module | Callable[[], nn.Module], count: int, data: LabeledData, device: torch.device
) -> nn.ModuleList:
    """`count` models from a name, a factory, or (for one model) a module, checked on two examples."""
    if isinstance(model, nn.Module):
        if count > 1:
            raise InputError(
                f"this method trains {count} networks, got one module; pass a model name or a function that makes one"
            )
        built = [model]
    elif isinstance(model, str):
        name, options = split_call(model, kind="model")
        classes = data.num_classes if data.labeled else 2  # of a head that pre-training replaces
        built = [models.build(name, data.input_shape, classes, **options) for _ in range(count)]
    else:
        require(callable(model), "model", model, "a name, a module or a function that makes one")
        built = [model() for _ in range(count)]
    for one in built:
        if not isinstance(one, nn.Module):
            raise InputError(f"model must be a name, a module or a function that makes one, got {type(one).__name__}")
    if len({id(one) for one in built}) < count:
        raise InputError(f"this method trains {count} networks, the function made one twice; let it make a new one")
    modules = nn.ModuleList(built).to(device)
    lazy = any(map(is_lazy, modules.parameters()))  # of unknown shape until the first forward pass
    if data.is_image and not lazy and models.prefers_channels_last(modules, device):
        modules.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return modules


def check_model(run: Run) -> None:
    """Every model must map normalised inputs to logits (B, K): tried on two examples."""
    inputs = run.normalize(run.data.take(torch.arange(2)).to(run.device))
    remedy = f"it must map inputs (B, {', '.join(map(str, run.data.input_shape))}) to logits (B, {run.num_classes})"
    for model in run.models:
        others = {parameter.dtype for parameter in model.parameters()} - {torch.float32}
        if others:
            raise InputError(f"the model's weights are {min(map(str, others))}; call model.float(), inputs are float32")
        try:
            with torch.no_grad(), eval_mode(run.models):
                logits = model(inputs)
        except Exception as error:  # whatever a stranger's forward may raise
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise InputError(f"the model {type(model).__name__} fails on the data ({reason}); {remedy}") from error
        shape = tuple(logits.shape) if isinstance(logits, torch.Tensor) else type(logits).__name__
        if shape != (2, run.num_classes):
            raise InputError(f"the model {type(model).__name__} returns {shape} for B=2; {remedy}")


def match(name: str, data: LabeledData | None, train: LabeledData) -> LabeledData | None:
    """A validation or test set, which must look like the training set, with features and classes in its order."""
    if data is None:
        return None
    check_data(name, data)
    data = InputForm.of(train).match(name, data)
    try:
        return data if data.class_names == train.class_names else data.recast(train.class_names)
    except InputError as error:
        raise InputError(f"{name} does not match the training set: {error}") from None


def check_data(name: str, data: Any) -> None:
    """Only a LabeledData has been through its door."""
    if not isinstance(data, LabeledData):
        raise InputError(
            f"{name} must be a LabeledData, got {type(data).__name__}; wrap it: LabeledData(inputs, labels)"
        )


def build_optimizer(
    name: str, modules: nn.ModuleList, lr: float, momentum: float, weight_decay: float
) -> torch.optim.Optimizer:
    """The optimizer of the models' weights."""
    require(isinstance(lr, Real) and math.isfinite(lr) and lr > 0, "lr", lr, "a number above 0")
    require(isinstance(momentum, Real) and 0 <= momentum < 1, "momentum", momentum, "in [0, 1)")
    decays = isinstance(weight_decay, Real) and math.isfinite(weight_decay) and weight_decay >= 0
    require(decays, "weight_decay", weight_decay, "0 or above")
    if name not in OPTIMIZERS:
        raise unknown("optimizer", name, OPTIMIZERS)
    parameters = [parameter for parameter in modules.parameters() if parameter.requires_grad]
    if not parameters:
        raise InputError("the model has no trainable parameter; set requires_grad on what should be trained")
    # the fused kernels update all tensors in one pass; on a small network that is a tenth of a step
    fused = all(parameter.is_floating_point() for parameter in parameters)
    if name == "sgd":
        return torch.optim.SGD(parameters, lr=lr, momentum=momentum, weight_decay=weight_decay, fused=fused)
    if name == "adadelta":
        return torch.optim.Adadelta(parameters, lr=lr, weight_decay=weight_decay)
    kind = torch.optim.Adam if name == "adam" else torch.optim.AdamW
    return kind(parameters, lr=lr, betas=(momentum, 0.999), weight_decay=weight_decay, fused=fused)


def build_augments(
    augment: str | Augmentation | Sequence[str | Augmentation], num_views: int, data: LabeledData
) -> tuple[Augmentation | None, ...]:
    """One augmentation (or None) for each view of an example."""
    given = [augment] * num_views if isinstance(augment, str) or callable(augment) else list(augment)
    if len(given) != num_views:
        raise InputError(f"the method takes {num_views} view(s), got {len(given)} augmentations; give one for each")
    built: list[Augmentation | None] = []
    for one in given:
        if isinstance(one, str) and one != "none":
            if not data.is_image:
                raise InputError(f"augmentation {one!r} is for images, the inputs are {data.input_shape}; use 'none'")
            name, one = one, policy(one, (data.input_shape[1], data.input_shape[2]))
            if not all(isinstance(operation, KEEP_COLOURS) for operation in one.operations):
                check_colours(name, data)
        built.append(None if one == "none" else one)  # type: ignore[arg-type]
    return tuple(built)


def check_colours(name: str, data: LabeledData) -> None:
    """Operations on colours know 0..255 of whole numbers and 0..1 of others."""
    low, high = colour_range(data.inputs)
    if low < 0 or high > 1:
        raise InputError(
            f"augmentation {name!r} is for colours in 0..1, the images hold {low:g}..{high:g}; "
            "rescale them, save them as uint8, or use 'weak'"
        )


def split_validation(
    data: LabeledData, val: LabeledData | float | None, seed: int
) -> tuple[LabeledData, LabeledData | None, tuple[Tensor, Tensor | None]]:
    """The training set, the held-out set (a share, with its noise, or as given), and the rows of both in `data`."""
    check_data("data", data)
    if not data.labeled:
        raise InputError("the data has no labels to learn; pass some, or pre-train on it (noiseproof pretrain)")
    rows = torch.arange(len(data))
    if val is None or (isinstance(val, int | float) and val == 0):
        return data, None, (rows, None)
    if isinstance(val, int | float):
        require(0 < val < 1, "val", val, "a data set, or a share of the training set in (0, 1)")
        rest, part = data.split_rows(val, seed=seed)
        return data.subset(rest), data.subset(part), (rest, part)
    return data, match("val", val, data), (rows, None)

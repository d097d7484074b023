"""From the settings of a call to the parts of its loop: models, data, augmentations, the run, and the loop itself."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from noiseproof import checks, distributed, models, schedules
from noiseproof.checks import require
from noiseproof.data import LabeledData, Normalize
from noiseproof.data.augment import KEEP_COLOURS, Augmentation, Operation, policy
from noiseproof.data.augment.normalize import SAMPLE
from noiseproof.data.input_form import InputForm, colour_range
from noiseproof.data.labeled import is_table
from noiseproof.data.packing import PREFIX, Packed
from noiseproof.device import check_memory, pick_device, pick_precision
from noiseproof.errors import InputError, reason
from noiseproof.method import Method, Run
from noiseproof.models.adapters import adapt
from noiseproof.models.inference import eval_mode, probabilities
from noiseproof.runs.folder import RunFolder, describe
from noiseproof.training.batches import Batches
from noiseproof.training.loop import Loop
from noiseproof.training.progress import reporter
from noiseproof.training.settings import Augment, Model, Training, settings_of

WIDE = 2048  # features of a table, as of texts, from which a hidden layer only helps to memorise


class Setup:
    """What follows from a call's settings, whatever it trains: where, at what rate, in which folder; the run; the loop.

    Raises:
        InputError: a device that is not there, or a run to resume without its folder.
    """

    def __init__(self, call: Training) -> None:
        distributed.join()
        call = again(call)
        self.call = call
        self.device = pick_device(call.device)
        self.rate = schedules.of(call.schedule)
        self.folder = None if call.out is None else call.out if isinstance(call.out, RunFolder) else RunFolder(call.out)
        checks.require(self.folder is not None or not call.resume, "out", call.out, "the folder of the run to resume")

    def check_batch(self, data: LabeledData, num_views: int, crop_sizes: Sequence[int] = ()) -> None:
        """A batch must fit into memory in all its views, the last ones of these sizes: reckoned before one is made."""
        given = self.call.batch_size
        size = len(data) if isinstance(given, str) else min(given, len(data))
        values = math.prod(data.input_shape) * (num_views - len(crop_sizes))
        values += sum(data.input_shape[0] * side**2 for side in crop_sizes)
        what = f"a batch of {size:,} examples of {num_views} view(s)"
        check_memory(what, 4 * size * values, "lower the batch size, the size of the images or the number of views")

    @contextmanager
    def running(self) -> Iterator[None]:
        """Random numbers as the seed has them; the caller's own are left alone. No other run may use the folder."""
        with (
            self.folder or nullcontext(),
            torch.random.fork_rng(devices=[self.device] if self.device.type == "cuda" else []),
            distributed.answering(),
        ):
            torch.manual_seed(self.call.seed)
            yield

    def run(
        self, models: nn.ModuleList, data: LabeledData, *, val: LabeledData | None = None, predicts: bool = False
    ) -> Run:
        """A run before its first step."""
        size = self.call.batch_size
        return Run(
            models=models,
            data=data,
            num_classes=data.num_classes,
            epochs=self.call.epochs,
            batch_size=len(data) if isinstance(size, str) else size,
            device=self.device,
            generator=torch.Generator().manual_seed(self.call.seed),
            normalize=self.normalization(data, models).to(self.device),
            val=val,
            autocast=pick_precision(self.call.precision, self.device),
            predicts=predicts,
        )

    def normalization(self, data: LabeledData, models: nn.ModuleList) -> Normalize:
        """That of the networks' weights; none of what is on their scale; else the training set's mean and spread."""
        known, inputs = getattr(models[0], "normalization", None), data.inputs
        if known is not None and data.is_image:
            return Normalize(*known)
        if getattr(inputs, "ready", False):
            return Normalize(torch.zeros(data.input_shape), torch.ones(data.input_shape))
        if isinstance(inputs, Tensor) or not (inputs.decodes and data.is_image and len(data) > SAMPLE):
            return Normalize.of(data.take, len(data), image=data.is_image)
        saved = self.folder.load_normalization(inputs.shape[1]) if self.folder and self.call.resume else None
        return Normalize(*saved) if saved else Normalize.of_sample(inputs)

    def loop(
        self,
        run: Run,
        method: Method,
        augments: tuple[Augmentation | None, ...],
        evaluate: Callable[[Run], dict[str, float]],
        *,
        even: bool = False,
    ) -> Loop:
        """The loop over a run, yet to be opened; `even`: all processes have equally many examples of a step."""
        main = distributed.is_main()
        if self.folder is not None:
            self.folder.writes = main
        batches = Batches(run.data, run.normalize, augments, self.device, self.call.seed, even, self.call.shuffle)
        progress = reporter(self.call.progress if main else False)
        return Loop(self.call, run, method, batches, evaluate, progress, self.rate, self.folder)

    def describe(self, model: Model, run: Run, method: Method, **resolved: Any) -> dict[str, Any]:
        """What determines a run, as JSON: two runs of equal descriptions are the same run.

        `resolved` are settings as they turned out, e.g. the held-out set in place of its share.
        """
        shapes = [(name, tuple(parameter.shape)) for name, parameter in run.models.named_parameters()]
        chosen = [name for name, setting in settings_of(type(self.call)).items() if setting.determines]
        told = {name: getattr(self.call, name) for name in chosen} | {"method": method.describe(), "data": run.data}
        return {
            **{name: describe(value) for name, value in (told | resolved).items()},
            "model": type(getattr(model, "_orig_mod", model)).__name__
            if isinstance(model, nn.Module)
            else describe(model),
            "weights": sum(parameter.numel() for parameter in run.models.parameters()),
            "shapes_crc": zlib.crc32(repr(shapes).encode()),
        }


def again(call: Training) -> Training:
    """The call, to resume its run where torchrun has started the processes again, after one had died."""
    if call.out is None or call.resume or not distributed.restarted():
        return call
    folder = call.out if isinstance(call.out, RunFolder) else RunFolder(call.out)
    return replace(call, resume=distributed.from_main(folder.holds_run))


def synchronised(models: nn.ModuleList) -> nn.ModuleList:
    """Networks whose batch norm is by the batch of all processes.

    Raises:
        InputError: not on GPUs, where alone torch has it.
    """
    if any(parameter.device.type != "cuda" for parameter in models.parameters()):
        raise InputError("sync_batch_norm is for GPUs; leave it out: running statistics are of all processes anyway")
    return nn.ModuleList(nn.SyncBatchNorm.convert_sync_batchnorm(model) for model in models)


def choose_model(model: Model, data: LabeledData) -> Model:
    """`auto`: an mlp for tables and tiny images, a residual net of the images' size otherwise; texts need no layers."""
    if isinstance(data.inputs, Packed) and isinstance(model, str) and not model.startswith(PREFIX):
        raise InputError(f"no network here takes tokens or dicts of tensors, got model={model!r}; pass one of your own")
    if model != "auto":
        return model
    if not data.is_image and data.input_shape[0] > WIDE:
        return "mlp(widths=[])"
    side = min(data.input_shape[1:]) if data.is_image else 0
    return "mlp" if side < 16 else "resnet20" if side <= 96 else "resnet34"


def as_tokens(name: str, data: Any, model: Model) -> Any:
    """A data set as the tokens that a model of transformers takes; for other models as it is."""
    if not (isinstance(model, str) and model.startswith(PREFIX) and isinstance(data, LabeledData)):
        return data
    from noiseproof.data.tokenizing import tokenized

    return tokenized(name, data, model.removeprefix(PREFIX))


def choose_augment(augment: Augment, data: LabeledData, views: int) -> Augment:
    """`auto`: crops and flips for colour images, and a strong second view; digits and tables do not survive flips."""
    if augment != "auto":
        return augment
    colour = data.is_image and data.input_shape[0] == 3
    return ["weak", "strong"][:views] if colour else "none"


def build_models(model: Model, count: int, data: LabeledData, device: torch.device) -> nn.ModuleList:
    """`count` models from a name, a factory, or (for one model) a module, checked on two examples."""
    if isinstance(model, nn.Module):
        if count > 1:
            raise InputError(
                f"this method trains {count} networks, got one module; pass a model name or a function that makes one"
            )
        built = [model]
    elif isinstance(model, str):
        classes = data.num_classes if data.labeled else 2  # of a head that pre-training replaces
        packing = data.inputs.packing if isinstance(data.inputs, Packed) else None
        built = [models.from_text(model, data.input_shape, classes, packing) for _ in range(count)]
    else:
        require(callable(model), "model", model, "a name, a module or a function that makes one")
        try:
            built = [model() for _ in range(count)]
        except TypeError as error:
            raise InputError(
                f"model must be a function without arguments that makes a network ({reason(error)})"
            ) from error
    for one in built:
        if not isinstance(one, nn.Module):
            raise InputError(f"model must be a name, a module or a function that makes one, got {type(one).__name__}")
    if len({id(one) for one in built}) < count:
        raise InputError(f"this method trains {count} networks, the function made one twice; let it make a new one")
    if not isinstance(model, str):
        packing = data.inputs.packing if isinstance(data.inputs, Packed) else None
        built = [adapt(one, packing) for one in built]
    modules = nn.ModuleList(built).to(device)
    lazy = any(map(is_lazy, modules.parameters()))  # of unknown shape until the first forward pass
    if data.is_image and not lazy and models.prefers_channels_last(modules, device):
        modules.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return modules


def check_model(run: Run) -> None:
    """Every model must map normalised inputs to logits (B, K): tried on two examples, and on five if there are."""
    inputs = run.normalize(run.data.take(torch.arange(min(len(run.data), 5))).to(run.device))
    remedy = f"it must map inputs (B, {', '.join(map(str, run.data.input_shape))}) to logits (B, {run.num_classes})"
    for model in run.models:
        others = {parameter.dtype for parameter in model.parameters()} - {torch.float32}
        if others:
            raise InputError(f"the model's weights are {min(map(str, others))}; call model.float(), inputs are float32")
        for size in (2, len(inputs)):  # one that takes its rows for one example, or always for two, is found by both
            try:
                with torch.no_grad(), eval_mode(run.models), torch.random.fork_rng([], enabled=size > 2):
                    logits = model(inputs[:size])
            except Exception as error:  # whatever a stranger's forward may raise
                raise InputError(
                    f"the model {type(model).__name__} fails on the data ({reason(error)}); {remedy}"
                ) from error
            shape = tuple(logits.shape) if checks.is_dense(logits) else checks.describe(logits)
            if shape != (size, run.num_classes):
                raise InputError(f"the model {type(model).__name__} returns {shape} for B={size}; {remedy}")


def check_views(run: Run, augments: Sequence[Augmentation | None]) -> None:
    """What a caller's own augmentations make of two examples must be a batch of two that the network takes.

    Raises:
        InputError: it is something else.
    """
    examples = run.data.take(torch.arange(2)).to(run.device)
    for augment in augments:
        if augment is None or isinstance(augment, Operation):  # one of ours
            continue
        name = getattr(augment, "__name__", type(augment).__name__)
        try:
            with torch.random.fork_rng(devices=[]):
                view = augment(examples.clone(), torch.Generator().manual_seed(0))
        except Exception as error:
            raise InputError(f"the augmentation {name} fails on two examples ({reason(error)}); mend it") from error
        batch = checks.is_dense(view) and view.ndim == examples.ndim and view.shape[:2] == examples.shape[:2]
        if not batch or (view.dtype != torch.uint8 and not view.is_floating_point()):
            raise InputError(
                f"the augmentation {name} must give uint8 or float inputs (B, …) for inputs (B, …), "
                f"got {checks.describe(view)} for {checks.describe(examples)}"
            )
        if not bool(view.isfinite().all()):
            raise InputError(f"the augmentation {name} gives NaN or infinity; keep what it returns finite")


def check_sizes(run: Run, augments: Sequence[Augmentation | None]) -> None:
    """The networks must take views of another size than the images', such as the windows of "crop".

    Raises:
        InputError: one does not.
    """
    examples = run.data.take(torch.arange(2)).to(run.device)
    for augment in augments:
        with torch.random.fork_rng(devices=[]):
            view = examples if augment is None else augment(examples.clone(), torch.Generator().manual_seed(0))
        if view.shape == examples.shape:
            continue
        try:
            with torch.no_grad(), eval_mode(run.models):
                probabilities(run.models, run.normalize(view))
        except RuntimeError as error:
            raise InputError(
                f"the network takes images of {examples.shape[2]}×{examples.shape[3]} pixels, but none of the "
                f"augmentation's {view.shape[2]}×{view.shape[3]} ({reason(error)}); choose a convolutional model, or "
                "augment='weak'"
            ) from error


def match(name: str, data: LabeledData | None, train: LabeledData) -> LabeledData | None:
    """A validation or test set, which must look like the training set, with features and classes in its order."""
    if data is None:
        return None
    data = InputForm.of(train).match(name, data)
    try:
        return data if data.class_names == train.class_names else data.recast(train.class_names)
    except InputError as error:
        raise InputError(f"{name} does not match the training set: {error}") from None


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
    if not data.labeled:
        raise InputError("the data has no labels to learn; pass some, or pre-train on it (noiseproof pretrain)")
    rows = torch.arange(len(data))
    if val is None or (isinstance(val, int | float) and val == 0):
        return data, None, (rows, None)
    if isinstance(val, int | float):
        require(0 < val < 1, "val", val, "a data set, or a share of the training set in (0, 1)")
        rest, part = data.split_rows(val, seed=seed)
        train, held_out = data.subset(rest), data.subset(part)
        if is_table(train.inputs):
            held_out = held_out.encoded_by(train.inputs.encoder)
        return train, held_out, (rest, part)
    return data, match("val", val, data), (rows, None)

"""`pretrain`: the one training loop, with a method that looks at no label."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from torch import nn

from noiseproof import checks, distributed
from noiseproof.calls import build_as
from noiseproof.data import LabeledData
from noiseproof.data.augment import Augmentation, RandomResizedCrop, policy
from noiseproof.data.input_form import InputForm
from noiseproof.errors import InputError, reason
from noiseproof.method import Method, Run
from noiseproof.models.inference import eval_mode
from noiseproof.models.registry import check_weights
from noiseproof.pretraining.byol import BYOL
from noiseproof.pretraining.imix import IMix
from noiseproof.pretraining.moco import MoCo
from noiseproof.pretraining.probes import PROBES, probe
from noiseproof.pretraining.result import PretrainResult
from noiseproof.pretraining.sane import SANE
from noiseproof.pretraining.simclr import SimCLR
from noiseproof.runs.loading import as_backbone
from noiseproof.runs.trained import Features
from noiseproof.training import setup
from noiseproof.training.settings import Augment, Pretraining, verb

METHODS: dict[str, type[Method]] = {cls.name: cls for cls in (MoCo, SANE, SimCLR, BYOL, IMix)}
SMALLEST_CROP = 96 / 224  # of the image's side: the last of the SANE paper's five sizes


def build(method: str | Method) -> Method:
    """A method as it is, or from text such as `sane` or `sane(lam=0.5, mixup='vanilla')`.

    Raises:
        InputError: an unknown method or option, or something that is no method.
    """
    return build_as(Method, method, METHODS, kind="pre-training method", name="method", example="sane(lam=0.5)")


@verb(Pretraining)
def pretrain(call: Pretraining) -> PretrainResult:
    """Train a backbone without labels. Under torchrun the processes share each batch; the main one writes.

    The network's head is replaced by a projection head of three layers; a network of your own derives from
    `models.Backbone`. Labels, if the data has any, serve the probes, and nothing else; without a test set a fifth of
    the probes' examples are held out from their bank.

    Args:
        {settings}

    Raises:
        InputError: a mistake in the arguments, in one sentence.
        Interrupted: Ctrl-C; the run is saved if `out` was given.
    """
    parts = setup.Setup(call)
    call = parts.call  # type: ignore[assignment]
    world, data, size = distributed.world(), call.data, call.batch_size
    shared = isinstance(size, int) and size % world == 0 and size >= 2 * world
    checks.require(shared, "batch_size", size, f"a multiple of the {world} processes, two images or more for each")
    method = build(call.method)
    checks.require(method.num_models == 1, "method", method.title(), "one that trains a single network")
    if parts.rate.loss == "full":
        raise InputError("the schedule goes by the loss of labels, which pre-training does not have; use loss='epoch'")
    if not data.labeled and (call.test is not None or call.probe_every):
        raise InputError("the data has no labels for the probes to know; drop test and probe_every")
    test = setup.match("test", call.test, data)
    model = setup.choose_model(call.model, data)
    views = view_augments(call.augment, call.mix_augment, call.crop_sizes, method.num_views, data)
    parts.check_batch(data, method.num_views, call.crop_sizes or ())
    augments = setup.build_augments(views, method.num_views, data)
    every = call.probe_every
    if every is None:
        every = max(1, call.epochs // 20) if data.labeled else 0

    with parts.running():
        models = setup.build_models(model, 1, data, parts.device)
        backbone = as_backbone(models[0])
        make_head = partial(projection_head, backbone.num_features, call.dim, call.hidden)
        check_weights("the projection head", make_head)
        backbone.head = make_head().to(parts.device)
        run = parts.run(models, data)
        architecture = model if isinstance(model, str) else None
        features = Features(backbone, run.normalize, InputForm.of(data), architecture)
        setup.check_views(run, augments)
        check_views(run, views, augments)
        description = parts.describe(model, run, method, augment=views, test=test, probe_every=every, processes=world)
        own = {"resume": call.resume, "out": parts.folder is None}
        distributed.check_same(description | own, "", "make the same call in each")
        probes = OnlineProbe(features, *probe_sets(data, test, call.probe_examples), every)
        loop = parts.loop(run, method, augments, probes, even=True)
        at_random = distributed.from_main(probes.measure)  # before `open`, which may put trained weights in place
        loop.open(description)
        with torch.enable_grad():
            loop.train()
        if every and not set(probes.keys) <= set(run.history[-1]):  # the schedule ended the run
            run.history[-1] |= distributed.from_main(probes.measure)
        result = PretrainResult(run, method, features, probes.bank, probes.queries, at_random)
        if parts.folder is not None and distributed.is_main():
            result.save(parts.folder.path)
    return result


def projection_head(inputs: int, dim: int, hidden: int | None = None) -> nn.Sequential:
    """Three layers from features (B, F) to what is compared (B, d), each hidden one with batch norm and ReLU."""
    hidden = inputs if hidden is None else hidden
    return nn.Sequential(
        nn.Linear(inputs, hidden, bias=False), nn.BatchNorm1d(hidden), nn.ReLU(),
        nn.Linear(hidden, hidden, bias=False), nn.BatchNorm1d(hidden), nn.ReLU(),
        nn.Linear(hidden, dim),
    )  # fmt: skip


def check_views(run: Run, views: Sequence[str | Augmentation], augments: Sequence[Augmentation | None]) -> None:
    """The network must take every view, also one of another size: tried on two examples.

    Raises:
        InputError: it does not.
    """
    examples = run.data.take(torch.arange(2)).to(run.device)
    for view, augment in zip(views, augments, strict=True):
        image = examples if augment is None else augment(examples, torch.Generator().manual_seed(0))
        inputs = run.normalize(image)
        try:
            with torch.no_grad(), eval_mode(run.models):
                run.model(inputs)
        except RuntimeError as error:
            raise InputError(
                f"the network fails on the view {view} of shape {tuple(inputs.shape[1:])} ({reason(error)}); "
                f"give crop_sizes that it takes, as {run.data.input_shape[1]}, or choose a convolutional model"
            ) from error


def view_augments(
    augment: Augment,
    mix_augment: str | None,
    crop_sizes: Sequence[int] | None,
    num_views: int,
    data: LabeledData,
) -> list[str | Augmentation]:
    """One augmentation for each view: the first two of one kind, the extra ones of another kind and size."""
    if not (isinstance(augment, str) or callable(augment)):
        if mix_augment is not None or crop_sizes is not None:
            raise InputError("augment names one augmentation for each view; drop mix_augment and crop_sizes")
        return list(augment)
    extra = num_views - 2
    if extra <= 0:
        if mix_augment is not None or crop_sizes is not None:
            raise InputError("mix_augment and crop_sizes are for extra views; ask for them: method='sane(crops=1)'")
        return [augment] * num_views
    kind = augment if mix_augment is None else mix_augment
    resizes = isinstance(kind, str) and data.is_image and _resizes(kind)
    if crop_sizes is not None and not resizes:
        raise InputError(
            f"crop_sizes needs images and an augmentation that resizes, simclr or sane-strong, got {kind!r}"
        )
    if not isinstance(kind, str) or not resizes or (crop_sizes is None and extra == 1):
        return [augment, augment, *[kind] * extra]
    height, width = data.input_shape[1:]
    if crop_sizes is None:
        shares = torch.linspace(1, SMALLEST_CROP, extra).tolist()
        sizes = [(round(share * height), round(share * width)) for share in shares]
    else:
        sizes = [(size, size) for size in crop_sizes]
    if len(sizes) != extra:
        raise InputError(f"crop_sizes holds {len(sizes)} sizes for {extra} extra views; give one for each")
    return [augment, augment, *[policy(kind, size) for size in sizes]]


def _resizes(name: str) -> bool:
    """Whether the augmentation of that name gives images of any size asked for."""
    operations = policy(name, 8).operations
    return bool(operations) and isinstance(operations[0], RandomResizedCrop)


def probe_sets(data: LabeledData, test: LabeledData | None, limit: int) -> tuple[LabeledData, LabeledData]:
    """The bank and the queries of the probes under their true labels, always the same ones."""
    bank = _some(data, limit)
    if test is None:
        bank, test = bank.split(0.2)
    return bank.clean(), _some(test, limit).clean()


def _some(data: LabeledData, limit: int) -> LabeledData:
    """At most so many examples, stratified by label."""
    return data if limit >= len(data) else data.split(limit / len(data))[1]


class OnlineProbe:
    """The accuracy of a run's features, every few epochs and after the last; 0: never."""

    keys = tuple(f"{name}_accuracy" for name in PROBES)

    def __init__(self, features: Features, bank: LabeledData, queries: LabeledData, every: int) -> None:
        self.features, self.bank, self.queries, self.every = features, bank, queries, every

    def __call__(self, run: Run) -> dict[str, float]:
        due = self.every and (run.epoch % self.every == 0 or run.epoch == run.epochs)
        return distributed.from_main(self.measure) if due else {}

    def measure(self) -> dict[str, float]:
        """The figures of this moment; none if the probes are off."""
        if not self.every:
            return {}
        return dict(zip(self.keys, probe(self.features, self.bank, self.queries).values(), strict=True))

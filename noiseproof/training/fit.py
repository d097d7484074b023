"""`fit`: the one training loop, with a method for labels that are partly wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from noiseproof import schedules
from noiseproof.data import LabeledData
from noiseproof.data.augment import Augmentation
from noiseproof.errors import InputError
from noiseproof.method import Method
from noiseproof.methods import build as build_method
from noiseproof.runs.folder import RunDir, describe_call
from noiseproof.runs.loading import start_from
from noiseproof.runs.result import FitResult
from noiseproof.runs.trained import Features
from noiseproof.training import distributed
from noiseproof.training import setup as assemble
from noiseproof.training.evaluate import Evaluation, conclude
from noiseproof.training.progress import Progress, reporter
from noiseproof.training.setup import require


def refuse_torchrun() -> None:
    if distributed.launched():
        raise InputError("fit runs in one process, as methods remember each example; torchrun is for pretrain")


def fit(
    model: str | nn.Module | Callable[[], nn.Module],
    data: LabeledData,
    method: str | Method = "elr",
    *,
    epochs: int = 30,
    batch_size: int | str = 128,
    lr: float = 0.05,
    momentum: float = 0.9,
    weight_decay: float = 5e-4,
    optimizer: str = "sgd",
    schedule: str | Callable[[schedules.Clock], float] = "cosine",
    clip: float | None = None,
    augment: str | Augmentation | Sequence[str | Augmentation] = "none",
    precision: str = "float32",
    val: LabeledData | float | None = None,
    test: LabeledData | None = None,
    seed: int = 0,
    device: str | torch.device = "auto",
    init: str | Path | Features | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    checkpoint_seconds: float = 60.0,
    checkpoint_steps: int | None = None,
    eval_examples: int | None = 10_000,
    progress: bool | Progress = False,
    notes: dict[str, Any] | None = None,
) -> FitResult:
    """Train `model` on labels that are partly wrong.

    Args:
        model: a name ("mlp", "resnet20", …), a function that makes a module, or a module (trained in place) that maps
            inputs (B, …) to logits (B, K).
        data: the training set; where it knows its `true_labels` they are used for reporting only.
        method: a name or call ("elr", "early_stop(elr(lam=7))") or a `Method`.
        epochs, lr, momentum, weight_decay, optimizer: "sgd", "adam", "adamw" or "adadelta" on the models' weights.
        batch_size: examples in a step, 2 or more; "all" is the whole training set, in one forward pass.
        schedule: "constant", "cosine", "multi_step([40, 80])", "anneal_at(0.1)", "anneal_on_loss(0.5)", or a function
            of a `Clock`.
        clip: largest norm of the gradient.
        augment: "none", "weak", "strong", … or a callable (inputs, generator) -> inputs; one, or one for each view.
        precision: "float32", "bfloat16", or "auto": bfloat16 where the device is fast at it.
        val: a validation set, or the share of `data` to hold out with its noise. It picks the `best` epoch.
        test: a test set, used for reporting only; against its true labels, where it knows them.
        seed: gives the same bits on the same machine. The caller's own random state is left alone.
        device: "auto", "cpu", "cuda", …
        init: the folder of a finished run of `pretrain` or `fit`, or `Features`: start from that backbone, with a
            fresh head.
        out: a run directory; without it nothing is written and a run cannot resume.
        resume: continue the run in `out`, to the same bits as if it had never stopped.
        checkpoint_seconds, checkpoint_steps: how often to save; the first that comes.
        eval_examples: how many training examples to evaluate after each epoch (None: all; 0: none).
        progress: True for a bar (a plain log when not on a terminal).
        notes: anything, as JSON, to keep in the run's config.json.

    Raises:
        InputError: a mistake in the arguments, in one sentence.
        Interrupted: Ctrl-C; the run is saved if `out` was given.
    """
    refuse_torchrun()
    settings = assemble.Settings(
        epochs=epochs, batch_size=batch_size, lr=lr, momentum=momentum, weight_decay=weight_decay, optimizer=optimizer,
        schedule=schedule, clip=clip, precision=precision, seed=seed, device=device,
    )  # fmt: skip
    rundir = RunDir.at(out, resume, checkpoint_seconds, checkpoint_steps)
    require(eval_examples is None or eval_examples >= 0, "eval_examples", eval_examples, "0 or more, or None for all")
    chosen = build_method(method)
    if settings.rate.loss == "full" and eval_examples == 0:
        raise InputError("the schedule goes by the loss of the training set, which eval_examples=0 does not measure")
    train, held_out, rows = assemble.split_validation(data, val, seed)
    require(len(train) >= 2, "data", data, "two examples or more")
    test = assemble.match("test", test, train)
    augments = assemble.build_augments(augment, chosen.num_views, train)
    evaluate = Evaluation(_some(len(train), eval_examples), val=held_out, test=None if test is None else test.clean())

    with settings.randomness():
        models = assemble.build_models(model, chosen.num_models, train, settings.place)
        if init is not None and not resume:
            start_from(models, init)
        run = settings.run(models, train, val=held_out, predicts=eval_examples != 0)
        assemble.check_model(run)
        loop = settings.loop(run, chosen, augments, evaluate, rundir, reporter(progress))
        call = describe_call(
            model, run, chosen, **settings.described(), augment=augment, val=held_out, test=test,
            eval_examples=eval_examples, init=None if init is None else str(init),
        )  # fmt: skip
        loop.open(call, resume, notes)
        with torch.enable_grad():
            loop.train()
        result = conclude(run, chosen, data, rows, test, architecture=model if isinstance(model, str) else None)
    if out is not None:
        result.save(out)
    return result


def _some(n: int, limit: int | None) -> Tensor | None:
    """Positions of `limit` of n examples, always the same ones; None for all."""
    if limit is None or limit >= n:
        return None
    return torch.randperm(n, generator=torch.Generator().manual_seed(0))[:limit].sort().values

"""The command `noiseproof fit`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from noiseproof.cli import common
from noiseproof.cli.app import app, interruptible
from noiseproof.cli.common import DATA, RUN, TRAIN, option
from noiseproof.errors import InputError

if TYPE_CHECKING:
    from noiseproof.data import LabeledData
    from noiseproof.runs.result import FitResult

FIT_EXAMPLES = """[bold]Examples[/bold]

  noiseproof fit digits --noise symmetric:0.4 --method elr

  noiseproof fit photos/ --image-size 64 --model resnet34 --method 'early_stop(elr)'

  noiseproof fit table.csv --label-column species --method gce

  noiseproof fit cifar10-train.parquet --labels cifar10n.csv:random_label1 --method 'elr(lam=3)'

  noiseproof fit cifar-10-batches-py --noise symmetric:0.4 --recipe sop-cifar10-sym

  noiseproof fit cifar10-train.parquet --init runs/cifar10-sane --method sop

  noiseproof fit --out runs/digits-elr --resume
"""


@app.command(epilog=FIT_EXAMPLES)
def fit(
    context: typer.Context,
    data: Annotated[
        str | None,
        typer.Argument(
            help="digits, fashion-mnist, or a path: CSV, Parquet, npz, IDX, CIFAR batches, image folder.",
            show_default=False,
        ),
    ] = None,
    recipe: Annotated[
        str | None,
        option("A paper's settings; other options win. See: noiseproof recipes.", panel=TRAIN, show_default=False),
    ] = None,
    method: Annotated[str, option("A method or a stack: elr, 'early_stop(elr(lam=7))'.", panel=TRAIN)] = "elr",
    model: common.Model = "auto",
    epochs: common.Epochs = 30,
    batch_size: Annotated[str, option("Examples in a step, or all.", panel=TRAIN, metavar="INTEGER|all")] = "128",
    lr: common.LearningRate = 0.05,
    momentum: common.Momentum = 0.9,
    weight_decay: common.WeightDecay = 5e-4,
    optimizer: common.Optimizer = "sgd",
    schedule: Annotated[
        str,
        option("cosine, constant, 'multi_step([40, 80])', 'anneal_at(0.1)' or 'anneal_on_loss(0.5)'.", panel=TRAIN),
    ] = "cosine",
    clip: common.Clip = None,
    augment: Annotated[
        str,
        option(
            "none, weak, strong, simclr, sane-strong; one for each view: weak,strong; auto is weak for colour images, "
            "with a strong second view.",
            panel=TRAIN,
        ),
    ] = "auto",
    precision: common.Precision = "float32",
    init: Annotated[
        str | None,
        option("A finished run to start from: its backbone, with a fresh head.", panel=TRAIN, show_default=False),
    ] = None,
    noise: Annotated[
        str | None,
        option("Corrupt the labels first: symmetric:0.4, asymmetric:0.4, pair:0.2, instance:0.3.", panel=DATA),
    ] = None,
    labels: Annotated[
        str | None, option("Labels from another file, FILE:COLUMN (.csv, .parquet, CIFAR-N .pt).", panel=DATA)
    ] = None,
    label_column: common.LabelColumn = None,
    image_column: common.ImageColumn = None,
    feature_columns: common.FeatureColumns = None,
    image_size: common.ImageSize = None,
    limit: common.Limit = None,
    val: Annotated[float, option("Share of the training set held out, noise included.", panel=DATA)] = 0.1,
    test: Annotated[
        str | None, option("A test set; by default the source's own, else a fifth of the data.", panel=DATA)
    ] = None,
    seed: common.Seed = 0,
    out: common.Out = None,
    resume: common.Resume = False,
    device: common.Device = "auto",
    checkpoint_seconds: common.CheckpointSeconds = 60.0,
    checkpoint_steps: common.CheckpointSteps = None,
    eval_examples: Annotated[int, option("Training examples evaluated after each epoch.", panel=RUN)] = 10_000,
    quiet: common.Quiet = False,
) -> None:
    """Fit a model that does not memorise the wrong labels."""
    context.params.update({key: common.anchored(context.params[key]) for key in ("data", "test", "labels", "init")})
    options = common.remembered(context, out) if resume else common.with_recipe(context)
    if options["data"] is None:
        raise InputError("give the data to fit on, e.g. noiseproof fit digits --noise symmetric:0.4 (see --help)")
    with interruptible():
        _fit(options, resume, quiet)


def _fit(options: dict[str, Any], resume: bool, quiet: bool) -> None:
    """Run `fit` with the options of the command line."""
    import noiseproof as nf
    from noiseproof import methods
    from noiseproof.runs.folder import RunDir
    from noiseproof.training.fit import refuse_torchrun

    refuse_torchrun()
    method = methods.build(options["method"])
    out = Path(options["out"] or common.fresh_folder(options["data"], method.name, options["seed"]))
    if not resume:
        RunDir(out).ensure_free()
    train, test = common.read(options, quiet)
    command = {key: str(value) if isinstance(value, Path) else value for key, value in options.items()}
    passed = (
        "epochs", "batch_size", "lr", "momentum", "weight_decay", "optimizer", "schedule", "clip", "precision", "val",
        "seed", "device", "checkpoint_seconds", "checkpoint_steps", "eval_examples", "init",
    )  # fmt: skip
    result = nf.fit(
        common.choose_model(options["model"], train),
        train,
        method,
        test=test,
        augment=_choose_augment(options["augment"], train, method.num_views),
        out=out,
        resume=resume,
        progress=not quiet,
        notes={"command": command},
        **{key: options[key] for key in passed} | {"batch_size": _batch_size(options["batch_size"])},
    )
    _show(result, out)


def _batch_size(value: int | str) -> int | str:
    """A number (a recipe's, or as text), or "all"; `fit` refuses the rest."""
    return int(value) if str(value).isdecimal() else value


def _choose_augment(text: str, data: LabeledData, views: int) -> str | list[str]:
    """`auto`: crops and flips for colour images, and a strong second view; digits and tables do not survive flips."""
    if text == "auto":
        colour = data.is_image and data.input_shape[0] == 3
        return ["weak", "strong"][:views] if colour else "none"
    return [one.strip() for one in text.split(",")] if "," in text else text


def _show(result: FitResult, out: Path) -> None:
    """The figures of a finished run, and where its files are."""
    from noiseproof.cli.console import show, table, wrote
    from noiseproof.runs.report import figures

    title = f"{result.method.title()} on {len(result.run.data):,} examples"
    show(table(title, *figures(result)))
    files = "report.html, labels.parquet (labels by suspicion), curves.png, weights"
    wrote(out, f": {files}")

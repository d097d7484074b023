"""The commands `noiseproof pretrain` and `noiseproof probe`."""

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
    from noiseproof.runs.trained import Features

PRETRAIN_EXAMPLES = """[bold]Examples[/bold]

  noiseproof pretrain cifar10-train.parquet --model resnet18 --epochs 200

  noiseproof pretrain cifar10-train.parquet --method 'sane(crops=1)' --mix-augment sane-strong

  noiseproof pretrain photos/ --image-size 64 --method moco

  noiseproof pretrain cifar-10-batches-py --recipe sane-cifar10

  noiseproof pretrain --out runs/photos-moco-s0 --resume
"""


@app.command(epilog=PRETRAIN_EXAMPLES)
def pretrain(
    context: typer.Context,
    data: Annotated[
        str | None,
        typer.Argument(
            help="As of fit, or images or a table without labels: they are used to report, never to train.",
            show_default=False,
        ),
    ] = None,
    recipe: Annotated[
        str | None,
        option("A paper's settings; other options win. See: noiseproof recipes.", panel=TRAIN, show_default=False),
    ] = None,
    method: Annotated[str, option("sane, moco, or with options: 'sane(lam=0.5)'.", panel=TRAIN)] = "sane",
    model: common.Model = "auto",
    epochs: common.Epochs = 200,
    batch_size: Annotated[int, option("Images in a step.", panel=TRAIN)] = 256,
    lr: common.LearningRate = 0.03,
    momentum: common.Momentum = 0.9,
    weight_decay: common.WeightDecay = 1e-4,
    optimizer: common.Optimizer = "sgd",
    schedule: Annotated[str, option("cosine, constant, 'cosine(warmup=5)', …", panel=TRAIN)] = "cosine",
    clip: common.Clip = None,
    augment: Annotated[
        str, option("none, weak, strong, simclr, sane-strong; or one for each view: simclr,weak.", panel=TRAIN)
    ] = "simclr",
    mix_augment: Annotated[
        str | None, option("Of the extra views of 'sane(crops=1)'; by default --augment.", panel=TRAIN)
    ] = None,
    crop_sizes: Annotated[str | None, option("Pixels of the extra views: 224,192,160,128,96.", panel=TRAIN)] = None,
    dim: Annotated[int, option("Outputs of the projection head.", panel=TRAIN)] = 128,
    hidden: Annotated[int | None, option("Its hidden width; by default the number of features.", panel=TRAIN)] = None,
    precision: common.Precision = "float32",
    label_column: common.LabelColumn = None,
    image_column: common.ImageColumn = None,
    feature_columns: common.FeatureColumns = None,
    image_size: common.ImageSize = None,
    limit: common.Limit = None,
    test: Annotated[
        str | None, option("A set to probe with; by default the source's own, else a fifth of the data.", panel=DATA)
    ] = None,
    probe_every: Annotated[
        int | None, option("Epochs between probes, k-NN and linear; by default twenty in a run; 0: none.", panel=RUN)
    ] = None,
    probe_examples: Annotated[int, option("Training examples the probes know.", panel=RUN)] = 5000,
    seed: common.Seed = 0,
    out: common.Out = None,
    resume: common.Resume = False,
    device: common.Device = "auto",
    checkpoint_seconds: common.CheckpointSeconds = 60.0,
    checkpoint_steps: common.CheckpointSteps = None,
    quiet: common.Quiet = False,
) -> None:
    """Pre-train a backbone without labels: MoCo or SANE."""
    context.params.update({key: common.anchored(context.params[key]) for key in ("data", "test")})
    options = common.remembered(context, out) if resume else common.with_recipe(context)
    if options["data"] is None:
        raise InputError("give the data to pre-train on, e.g. noiseproof pretrain photos/ --image-size 64 (see --help)")
    with interruptible():
        _pretrain(options, resume, quiet)


def _pretrain(options: dict[str, Any], resume: bool, quiet: bool) -> None:
    """Run `pretrain` with the options of the command line."""
    from noiseproof.cli.console import console, table, wrote
    from noiseproof.pretraining import build
    from noiseproof.pretraining import pretrain as run
    from noiseproof.pretraining.moco import crowded
    from noiseproof.pretraining.report import figures
    from noiseproof.runs.folder import RunDir
    from noiseproof.training import distributed

    method = build(options["method"])
    out = Path(options["out"] or common.fresh_folder(options["data"], method.name, options["seed"]))
    if not resume:
        RunDir(out).ensure_free()
    train, test = _load(options, quiet)
    caution = None if quiet or resume else crowded(method, len(train))
    if caution is not None and distributed.is_main():
        typer.echo(f"note: {caution}", err=True)
    augment = options["augment"]
    passed = (
        "epochs", "batch_size", "lr", "momentum", "weight_decay", "optimizer", "schedule", "clip", "mix_augment", "dim",
        "hidden", "precision", "probe_every", "probe_examples", "seed", "device", "checkpoint_seconds",
        "checkpoint_steps",
    )  # fmt: skip
    result = run(
        common.choose_model(options["model"], train),
        train,
        method,
        test=test,
        augment=[one.strip() for one in augment.split(",")] if "," in augment else augment,
        crop_sizes=_sizes(options["crop_sizes"]),
        out=out,
        resume=resume,
        progress=not quiet,
        notes={"command": {key: str(value) if isinstance(value, Path) else value for key, value in options.items()}},
        **{key: options[key] for key in passed},
    )
    if not distributed.is_main():
        return
    console.print(table(f"{method.title()} on {len(train):,} examples", *figures(result)))
    wrote(out, ": report.html, backbone.safetensors, pictures")


def _sizes(text: str | None) -> list[int] | None:
    """`224,192` as numbers."""
    if text is None:
        return None
    if not all(part.strip().isdigit() for part in text.split(",")):
        raise InputError(f"crop_sizes must be whole numbers, e.g. 224,192,160,128,96, got {text!r}")
    return [int(part) for part in text.split(",")]


def _load(options: dict[str, Any], quiet: bool) -> tuple[LabeledData, LabeledData | None]:
    """Training and test set of the options of `pretrain` or `fit`, under the labels the source has, if any."""
    return common.read({"labels": None, "noise": None} | options, quiet, labeled=False)


PROBE_EXAMPLES = """[bold]Examples[/bold]

  noiseproof probe runs/cifar10-train-sane-s0

  noiseproof probe runs/photos-sane-s0 labelled-photos/ --image-size 64 --doubts doubts.parquet
"""


@app.command(epilog=PROBE_EXAMPLES)
def probe(
    run: Annotated[Path, typer.Argument(help="The folder of a finished run of pretrain or fit.")],
    data: Annotated[
        str | None, typer.Argument(help="Labelled data; by default what the run was begun with.", show_default=False)
    ] = None,
    label_column: common.LabelColumn = None,
    image_column: common.ImageColumn = None,
    feature_columns: common.FeatureColumns = None,
    image_size: common.ImageSize = None,
    test: Annotated[str | None, option("A test set; by default the source's own, else a fifth.", panel=DATA)] = None,
    limit: common.Limit = None,
    k: Annotated[int, typer.Option(min=1, help="Neighbours that vote.")] = 50,
    at_random: Annotated[bool, typer.Option("--random/--no-random", help="Probe random weights too.")] = True,
    export: Annotated[
        Path | None, typer.Option(help="Write the weights here, under torchvision's and timm's names.")
    ] = None,
    doubts: Annotated[
        Path | None, typer.Option(help="Write here (.parquet) how suspicious each label is, by its neighbours' labels.")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, mps.")] = "auto",
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
) -> None:
    """How good a run's features are: k-NN and linear accuracy on the test set, beside those of random weights."""
    from noiseproof.cli.console import wrote
    from noiseproof.runs import loading
    from noiseproof.training.setup import match

    if doubts is not None and doubts.suffix != ".parquet":
        raise InputError(f"--doubts writes a Parquet table, got {doubts}; give it a name that ends in .parquet")
    for target in (doubts, export):
        if target is not None and target.exists():
            raise InputError(f"{target} is there already; choose another name, or delete it first")
    if run.is_file():
        raise InputError(f"{run} is a file; pass the folder of a finished run of pretrain or fit")
    trained = loading.load_backbone(run, device=device)
    given = {
        "data": data, "test": test, "limit": limit, "label_column": label_column, "image_column": image_column,
        "feature_columns": feature_columns, "image_size": image_size,
    }  # fmt: skip
    options = _probed(run, given)
    known, asked = _load(options, quiet)
    if asked is not None:
        asked = match("test", asked, known)
        assert asked is not None
        _print_accuracies(trained, known, asked, k, at_random)
        if doubts is not None:
            _write_doubts(doubts, trained, known, asked, k)
            wrote(doubts, ", the most suspicious labels first")
    elif export is None or doubts is not None:
        raise InputError(
            f"{options['data']} has no labels to probe with; pass labelled data: noiseproof probe {run} DATA"
        )
    if export is not None:
        loading.export(trained, export)
        wrote(export)


def _probed(run: Path, given: dict[str, Any]) -> dict[str, Any]:
    """How to read the data: that of the run, or what is given, whose labels, columns and noise are its own."""
    from noiseproof.runs.folder import RunDir

    options = RunDir(run).config()["notes"].get("command")
    if given["data"] is not None:
        size, seed = (options["image_size"], options["seed"]) if isinstance(options, dict) else (None, 0)
        options = dict.fromkeys(given) | {"image_size": size, "seed": seed}
    elif not isinstance(options, dict):
        raise InputError(
            f"the run in {run} was not begun by the command line; pass the data: noiseproof probe {run} DATA"
        )
    return options | {key: value for key, value in given.items() if value is not None}


def _print_accuracies(trained: Features, known: LabeledData, asked: LabeledData, k: int, at_random: bool) -> None:
    from noiseproof.cli.console import console, table
    from noiseproof.pretraining import probes
    from noiseproof.runs import loading

    found = {"pre-trained": probes.probe(trained, known, asked, k=k)}
    if at_random:
        fresh = loading.untrained(trained.architecture, trained.normalize, trained.form)
        found["random weights"] = probes.probe(fresh, known, asked, k=k)
    rows = [[name, *(f"{100 * one[key]:.1f} %" for key in probes.PROBES)] for name, one in found.items()]
    title = f"{len(known):,} labelled examples, {len(asked):,} to tell"
    console.print(table(title, ["", f"{min(k, len(known))}-NN", "linear"], rows))


def _write_doubts(path: Path, trained: Features, known: LabeledData, asked: LabeledData, k: int) -> None:
    """A table of both sets, what the neighbours among the known say of each label."""
    from noiseproof.method import Beliefs
    from noiseproof.pretraining import probes
    from noiseproof.runs.label_table import Part, write

    bank, classes = trained(known), known.num_classes
    told = probes.knn(bank, known.labels, trained(asked), k=k, num_classes=classes)
    write(
        path,
        Part(known, probes.neighbourhood(bank, known.labels, k=k, num_classes=classes), "train"),
        Part(asked, Beliefs.of(told, asked.labels), "test"),
    )

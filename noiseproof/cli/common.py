"""What the commands that train share: options, remembered runs, reading the data."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from noiseproof.errors import InputError

if TYPE_CHECKING:
    from noiseproof.data import LabeledData

DATA, TRAIN, RUN = "Data", "Training", "Run"  # the panels of --help


def option(text: str, *names: str, panel: str, **more: Any) -> Any:
    """An option with its line and its place in --help."""
    return typer.Option(*names, help=text, rich_help_panel=panel, **more)


Model = Annotated[str, option("A network, or auto. See: noiseproof models.", panel=TRAIN)]
Epochs = Annotated[int, option("Passes over the training set.", panel=TRAIN)]
LearningRate = Annotated[float, option("Learning rate.", panel=TRAIN)]
Momentum = Annotated[float, option("Momentum (Adam: its first beta).", panel=TRAIN)]
WeightDecay = Annotated[float, option("Weight decay.", panel=TRAIN)]
Optimizer = Annotated[str, option("sgd, adam, adamw or adadelta.", panel=TRAIN)]
Clip = Annotated[float | None, option("Largest gradient norm.", panel=TRAIN)]
Precision = Annotated[str, option("float32, bfloat16 or auto.", panel=TRAIN)]

LabelColumn = Annotated[str | None, option("The column that holds the label.", panel=DATA)]
ImageColumn = Annotated[str | None, option("The column that holds the image.", panel=DATA)]
FeatureColumns = Annotated[
    str | None, option("The columns to use as features: a,b,c; by default every numeric one.", panel=DATA)
]
ImageSize = Annotated[int | None, option("Resize images to this many pixels.", panel=DATA)]
Limit = Annotated[int | None, option("Use only so many training examples.", panel=DATA, min=1)]

Seed = Annotated[int, option("The same seed gives the same bits.", panel=RUN)]
Out = Annotated[Path | None, option("The run directory; by default a new one under runs/.", panel=RUN)]
Resume = Annotated[bool, option("Continue the run in --out; its options are remembered.", "--resume", panel=RUN)]
Device = Annotated[str, option("auto, cpu, cuda, mps.", panel=RUN)]
CheckpointSeconds = Annotated[float, option("Save this often.", panel=RUN)]
CheckpointSteps = Annotated[int | None, option("Save every so many steps.", panel=RUN)]
Quiet = Annotated[bool, option("No progress.", "--quiet", "-q", panel=RUN)]


def anchored(source: str | None) -> str | None:
    """A path (or FILE:COLUMN) that holds from any folder, so that a run can be resumed from another; or a name."""
    from noiseproof.data.readers.builtin import BUILTIN

    if source is None or source in BUILTIN:
        return source
    path, colon, column = source.rpartition(":")
    if path and not Path(source).exists():
        return f"{Path(path).absolute()}{colon}{column}" if Path(path).exists() else source
    return str(Path(source).absolute()) if Path(source).exists() else source


def remembered(context: typer.Context, out: Path | None) -> dict[str, Any]:
    """The options a run was begun with; those given again must agree, but for those that do not touch its result."""
    from noiseproof.runs.folder import RunDir

    if out is None:
        raise InputError("--resume needs the run directory; add --out runs/NAME")
    saved = RunDir(out).config()["notes"].get("command")
    if not isinstance(saved, dict) or not set(context.params) <= {*saved, "out", "resume", "quiet"}:
        raise InputError(
            f"the run in {out} was not begun by noiseproof {context.command.name}; go on as you began it: "
            "with fit, with pretrain, or in Python with resume=True"
        )
    for key, value in context.params.items():
        source = context.get_parameter_source(key)
        if source is None or source.name != "COMMANDLINE":
            continue
        if key in ("device", "checkpoint_seconds", "checkpoint_steps"):
            saved[key] = value
        elif key not in ("out", "resume", "quiet") and str(saved[key]) != str(value):  # a recipe has numbers for text
            raise InputError(
                f"the run in {out} was begun with {key}={saved[key]!r}, not {value!r}; "
                "drop the option or choose another --out"
            )
    return saved | {"out": out}


def with_recipe(context: typer.Context) -> dict[str, Any]:
    """The options of the command line; where it gives none, those of its recipe."""
    from noiseproof.recipes import fill

    sources = {key: context.get_parameter_source(key) for key in context.params}
    given = [key for key, source in sources.items() if source is not None and source.name == "COMMANDLINE"]
    return fill(dict(context.params), given, verb=str(context.command.name))


def read(options: dict[str, Any], quiet: bool, *, labeled: bool = True) -> tuple[LabeledData, LabeledData | None]:
    """The training set, with the labels and the noise asked for, and the test set; without labels there is none."""
    from noiseproof import data as sources
    from noiseproof.training.progress import counting

    reader = {key: options[key] for key in ("label_column", "image_column", "image_size") if options[key] is not None}
    if options["feature_columns"] is not None:
        reader["feature_columns"] = [name.strip() for name in options["feature_columns"].split(",")]
    with counting("reading", show=not quiet) as progress:
        train, test = sources.load_pair(
            options["data"], labels=options["labels"], labeled=labeled, progress=progress, **reader
        )
        train = train.numbered()
        if options["test"] is not None:
            class_names = train.class_names if train.labeled else None
            test = sources.load(options["test"], class_names=class_names, progress=progress, **reader)
    if not train.labeled:
        if options["test"] is not None:
            raise InputError(
                f"{options['data']} has no labels to tell those of {options['test']} by; leave --test out, "
                "and probe the finished run with labelled data (noiseproof probe)"
            )
        test = None
    elif test is None:
        train, test = train.split(0.2, seed=options["seed"])
    if options["limit"] is not None:
        train = train.limit(options["limit"], seed=options["seed"])
    if options["noise"] is not None:
        train = sources.noise.apply(train, options["noise"], seed=options["seed"])
    return train, test


def choose_model(name: str, data: LabeledData) -> str:
    """`auto`: an mlp for tables and tiny images, a residual net of the images' size otherwise."""
    if name != "auto":
        return name
    side = min(data.input_shape[1:]) if data.is_image else 0
    return "mlp" if side < 16 else "resnet20" if side <= 96 else "resnet34"


def fresh_folder(data: str, method: str, seed: int) -> Path:
    """runs/DATA-METHOD-sSEED, numbered if it is taken."""
    base = Path("runs") / f"{Path(data).resolve().name.split('.')[0]}-{method}-s{seed}"
    folder, number = base, 1
    while folder.exists():
        number += 1
        folder = base.with_name(f"{base.name}-{number}")
    return folder

"""The command line: `noiseproof demo | fit | pretrain | probe | corrupt | reproduce | jacobian | methods | models | …`.

Nothing heavy is imported before a command runs, so that `--help` answers at once.
"""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from noiseproof.errors import InputError

if TYPE_CHECKING:
    from noiseproof.data import LabeledData
    from noiseproof.result import FitResult

app = typer.Typer(
    name="noiseproof",
    help="Train on labels you can't trust.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

FIT_EXAMPLES = """[bold]Examples[/bold]

  noiseproof fit digits --noise symmetric:0.4 --method elr

  noiseproof fit photos/ --image-size 64 --model resnet34 --method 'early_stop(elr)'

  noiseproof fit table.csv --label-column species --method gce

  noiseproof fit cifar10-train.parquet --labels cifar10n.csv:random_label1 --method 'elr(lam=3)'

  noiseproof fit cifar-10-batches-py --noise symmetric:0.4 --recipe sop-cifar10-sym

  noiseproof fit cifar10-train.parquet --init runs/cifar10-sane --method sop

  noiseproof fit --out runs/digits-elr --resume
"""


def _option(text: str, *names: str, panel: str, **more: Any) -> Any:
    return typer.Option(*names, help=text, rich_help_panel=panel, show_default=more.pop("show_default", True), **more)


_DATA, _TRAIN, _RUN = "Data", "Training", "Run"


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
        _option("A paper's settings; other options win. See: noiseproof recipes.", panel=_TRAIN, show_default=False),
    ] = None,
    method: Annotated[str, _option("A method or a stack: elr, 'early_stop(elr(lam=7))'.", panel=_TRAIN)] = "elr",
    model: Annotated[str, _option("A network, or auto. See: noiseproof models.", panel=_TRAIN)] = "auto",
    epochs: Annotated[int, _option("Passes over the training set.", panel=_TRAIN)] = 30,
    batch_size: Annotated[str, _option("Examples in a step, or all.", panel=_TRAIN, metavar="INTEGER|all")] = "128",
    lr: Annotated[float, _option("Learning rate.", panel=_TRAIN)] = 0.05,
    momentum: Annotated[float, _option("Momentum (Adam: its first beta).", panel=_TRAIN)] = 0.9,
    weight_decay: Annotated[float, _option("Weight decay.", panel=_TRAIN)] = 5e-4,
    optimizer: Annotated[str, _option("sgd, adam, adamw or adadelta.", panel=_TRAIN)] = "sgd",
    schedule: Annotated[
        str,
        _option("cosine, constant, 'multi_step([40, 80])', 'anneal_at(0.1)' or 'anneal_on_loss(0.5)'.", panel=_TRAIN),
    ] = "cosine",
    clip: Annotated[float | None, _option("Largest gradient norm.", panel=_TRAIN)] = None,
    augment: Annotated[
        str,
        _option(
            "none, weak, strong, simclr, sane-strong; one for each view: weak,strong; auto is weak for colour images, "
            "with a strong second view.",
            panel=_TRAIN,
        ),
    ] = "auto",
    precision: Annotated[str, _option("float32, bfloat16 or auto.", panel=_TRAIN)] = "float32",
    init: Annotated[
        str | None,
        _option("A finished run to start from: its backbone, with a fresh head.", panel=_TRAIN, show_default=False),
    ] = None,
    noise: Annotated[
        str | None,
        _option("Corrupt the labels first: symmetric:0.4, asymmetric:0.4, pair:0.2, instance:0.3.", panel=_DATA),
    ] = None,
    labels: Annotated[
        str | None, _option("Labels from another file, FILE:COLUMN (.csv, .parquet, CIFAR-N .pt).", panel=_DATA)
    ] = None,
    label_column: Annotated[str | None, _option("The column that holds the label.", panel=_DATA)] = None,
    image_column: Annotated[str | None, _option("The column that holds the image.", panel=_DATA)] = None,
    feature_columns: Annotated[
        str | None, _option("The columns to use as features: a,b,c; by default every numeric one.", panel=_DATA)
    ] = None,
    image_size: Annotated[int | None, _option("Resize images to this many pixels.", panel=_DATA)] = None,
    limit: Annotated[int | None, _option("Use only so many training examples.", panel=_DATA, min=1)] = None,
    val: Annotated[float, _option("Share of the training set held out, noise included.", panel=_DATA)] = 0.1,
    test: Annotated[
        str | None, _option("A test set; by default the source's own, else a fifth of the data.", panel=_DATA)
    ] = None,
    seed: Annotated[int, _option("The same seed gives the same bits.", panel=_RUN)] = 0,
    out: Annotated[Path | None, _option("The run directory; by default a new one under runs/.", panel=_RUN)] = None,
    resume: Annotated[
        bool, _option("Continue the run in --out; its options are remembered.", "--resume", panel=_RUN)
    ] = False,
    device: Annotated[str, _option("auto, cpu, cuda, mps.", panel=_RUN)] = "auto",
    checkpoint_seconds: Annotated[float, _option("Save this often.", panel=_RUN)] = 60.0,
    checkpoint_steps: Annotated[int | None, _option("Save every so many steps.", panel=_RUN)] = None,
    eval_examples: Annotated[int, _option("Training examples evaluated after each epoch.", panel=_RUN)] = 10_000,
    quiet: Annotated[bool, _option("No progress.", "--quiet", "-q", panel=_RUN)] = False,
) -> None:
    """Fit a model that does not memorise the wrong labels."""
    context.params.update({key: _anchored(context.params[key]) for key in ("data", "test", "labels", "init")})
    options = _remembered(context, out) if resume else _with_recipe(context)
    if options["data"] is None:
        raise InputError("give the data to fit on, e.g. noiseproof fit digits --noise symmetric:0.4 (see --help)")
    from noiseproof.interrupt import Interrupted

    try:
        _fit(options, resume, quiet)
    except Interrupted as stop:
        typer.echo(str(stop), err=True)
        raise typer.Exit(130) from None


def _with_recipe(context: typer.Context) -> dict[str, Any]:
    """The options of the command line; where it gives none, those of its recipe."""
    from noiseproof.recipes import recipe

    options = dict(context.params)
    if options["recipe"] is not None:
        for key, value in recipe(options["recipe"]).items():
            source = context.get_parameter_source(key)
            if source is None or source.name != "COMMANDLINE":
                options[key] = ",".join(value) if isinstance(value, tuple) else value
    return options


def _fit(options: dict[str, Any], resume: bool, quiet: bool) -> None:
    """Run `fit` with the options of the command line."""
    import noiseproof as nf
    from noiseproof import methods
    from noiseproof.rundir import RunDir

    method = methods.build(options["method"])
    out = Path(options["out"] or _fresh_folder(options["data"], method.name, options["seed"]))
    if not resume:
        RunDir(out).ensure_free()
    train, test = _read(options, quiet)
    command = {key: str(value) if isinstance(value, Path) else value for key, value in options.items()}
    passed = (
        "epochs", "batch_size", "lr", "momentum", "weight_decay", "optimizer", "schedule", "clip", "precision", "val",
        "seed", "device", "checkpoint_seconds", "checkpoint_steps", "eval_examples", "init",
    )  # fmt: skip
    result = nf.fit(
        _choose_model(options["model"], train),
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
    return int(value) if str(value).isdigit() else value


def _anchored(source: str | None) -> str | None:
    """A path (or FILE:COLUMN) that holds from any folder, so that a run can be resumed from another; or a name."""
    from noiseproof.data.readers.builtin import BUILTIN

    if source is None or source in BUILTIN:
        return source
    path, colon, column = source.rpartition(":")
    if path and not Path(source).exists():
        return f"{Path(path).absolute()}{colon}{column}" if Path(path).exists() else source
    return str(Path(source).absolute()) if Path(source).exists() else source


def _remembered(context: typer.Context, out: Path | None) -> dict[str, Any]:
    """The options a run was begun with; those given again must agree, but for those that do not touch its result."""
    from noiseproof.rundir import RunDir

    if out is None:
        raise InputError("--resume needs the run directory; add --out runs/NAME")
    saved = RunDir(out).config()["notes"].get("command")
    if not isinstance(saved, dict) or not set(context.params) <= {*saved, "out", "resume", "quiet"}:
        raise InputError(f"the run in {out} was not begun by this command line; resume it with fit(…, resume=True)")
    for key, value in context.params.items():
        source = context.get_parameter_source(key)
        if source is None or source.name != "COMMANDLINE":
            continue
        if key in ("device", "checkpoint_seconds", "checkpoint_steps"):
            saved[key] = value
        elif key not in ("out", "resume", "quiet") and saved[key] != value:
            raise InputError(
                f"the run in {out} was begun with {key}={saved[key]!r}, not {value!r}; "
                "drop the option or choose another --out"
            )
    return saved | {"out": out}


def _read(options: dict[str, Any], quiet: bool) -> tuple[LabeledData, LabeledData | None]:
    """The training set, with the labels and the noise asked for, and the test set."""
    from noiseproof import data as sources
    from noiseproof.console import reading

    reader = {key: options[key] for key in ("label_column", "image_column", "image_size") if options[key] is not None}
    if options["feature_columns"] is not None:
        reader["feature_columns"] = [name.strip() for name in options["feature_columns"].split(",")]
    with reading(quiet) as progress:
        train, test = sources.load_pair(options["data"], labels=options["labels"], progress=progress, **reader)
        train = train.numbered()
        if options["test"] is not None:
            test = sources.load(options["test"], progress=progress, **reader)
    if test is None:
        train, test = train.split(0.2, seed=options["seed"])
    if options["limit"] is not None and options["limit"] < len(train):
        train, _ = train.split(1 - options["limit"] / len(train), seed=options["seed"])
    if options["noise"] is not None:
        train = sources.noise.apply(train, options["noise"], seed=options["seed"])
    return train, test


def _choose_model(name: str, data: LabeledData) -> str:
    """`auto`: an mlp for tables and tiny images, a residual net of the images' size otherwise."""
    if name != "auto":
        return name
    side = min(data.input_shape[1:]) if data.is_image else 0
    return "mlp" if side < 16 else "resnet20" if side <= 96 else "resnet34"


def _choose_augment(text: str, data: LabeledData, views: int) -> str | list[str]:
    """`auto`: crops and flips for colour images, and a strong second view; digits and tables do not survive flips."""
    if text == "auto":
        colour = data.is_image and data.input_shape[0] == 3
        return ["weak", "strong"][:views] if colour else "none"
    return [one.strip() for one in text.split(",")] if "," in text else text


def _fresh_folder(data: str, method: str, seed: int) -> Path:
    """runs/DATA-METHOD-sSEED, numbered if it is taken."""
    base = Path("runs") / f"{Path(data).resolve().name.split('.')[0]}-{method}-s{seed}"
    folder, number = base, 1
    while folder.exists():
        number += 1
        folder = base.with_name(f"{base.name}-{number}")
    return folder


def _show(result: FitResult, out: Path) -> None:
    """The figures of a finished run, and where its files are."""
    from rich.markup import escape

    from noiseproof.console import console, show, table
    from noiseproof.report import figures

    title = f"{result.method.title()} on {len(result.run.data):,} examples"
    show(table(title, *figures(result)))
    files = "report.html, labels.parquet (labels by suspicion), curves.png, weights"
    console.print(f"Wrote [bold]{escape(str(out))}[/bold]: {files}")


@app.command(epilog="[bold]Example[/bold]  noiseproof corrupt clean.csv noisy.csv --noise symmetric:0.3")
def corrupt(
    source: Annotated[Path, typer.Argument(help="A CSV, Parquet or npz file.")],
    target: Annotated[Path, typer.Argument(help="Where to write the noisy copy.")],
    noise: Annotated[
        str, typer.Option(help="symmetric:0.4, symmetric-any:0.4, asymmetric:0.4, pair:0.2, instance:0.3.")
    ],
    label_column: Annotated[str | None, typer.Option(help="The column that holds the label.")] = None,
    seed: Annotated[int, typer.Option(help="The same seed gives the same labels.")] = 0,
) -> None:
    """Write a copy of a table with noisy labels; the old ones are kept as `true_label`."""
    from rich.markup import escape

    from noiseproof.console import console
    from noiseproof.data.corrupt import corrupt_table

    summary = corrupt_table(source, target, label_column=label_column, spec=noise, seed=seed)
    console.print(f"Wrote [bold]{escape(str(target))}[/bold]: {summary.changed:,} of {summary.n:,} labels changed")


@app.command()
def methods() -> None:
    """List the methods: what each is called, where it comes from, what it needs and costs."""
    from noiseproof.console import print_methods

    print_methods()


@app.command()
def recipes() -> None:
    """List the papers' settings that `fit --recipe` takes."""
    from noiseproof.console import print_recipes

    print_recipes()


@app.command()
def models() -> None:
    """List the networks and their sizes."""
    from noiseproof.console import print_models

    print_models()


@app.command(epilog="[bold]Example[/bold]  noiseproof demo --noise symmetric:0.6 --seeds 1")
def demo(
    noise: Annotated[str, typer.Option(help="How to corrupt the labels.")] = "symmetric:0.4",
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each method.")] = 3,
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the training set.")] = 100,
    out: Annotated[Path, typer.Option(help="Where the picture, the table and the report go.")] = Path("runs/demo"),
) -> None:
    """See plain training memorise wrong labels, and robust training not."""
    from noiseproof.demo import run_demo

    run_demo(noise, seeds, epochs, out)


REPRODUCE_EXAMPLES = """[bold]Examples[/bold]

  noiseproof reproduce

  noiseproof reproduce sop-fig2

  noiseproof reproduce sop-table1 --data data/ --seeds 3 --workers 2
"""


@app.command(epilog=REPRODUCE_EXAMPLES)
def reproduce(
    name: Annotated[
        str | None, typer.Argument(help="A figure or a table; none: list them.", show_default=False)
    ] = None,
    scale: Annotated[
        str | None, typer.Option(help="small (minutes on a laptop) or paper (the exact recipe).", show_default=False)
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Runs of each setting; by default the experiment's.", show_default=False)
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="The folder of your data sets, e.g. of cifar-10-batches-py.", show_default=False)
    ] = None,
    workers: Annotated[int, typer.Option(min=1, help="Processes; they share the cores.")] = 1,
    out: Annotated[
        Path | None, typer.Option(help="Where the results go; by default results/NAME-SCALE.", show_default=False)
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
) -> None:
    """Run a figure or a table of a paper: a PNG and a JSON file. The same command goes on after an interruption."""
    from noiseproof.console import print_experiments, print_outcome
    from noiseproof.experiments import build
    from noiseproof.experiments.grid import reproduce as run
    from noiseproof.interrupt import Interrupted

    if name is None:
        print_experiments()
        return
    experiment = build(name)
    folder = out or Path("results") / f"{name}-{scale or experiment.scales[0]}"
    try:
        outcome = run(experiment, out=folder, scale=scale, seeds=seeds, data=data, workers=workers, progress=not quiet)
    except Interrupted as stop:
        typer.echo(str(stop), err=True)
        raise typer.Exit(130) from None
    print_outcome(experiment, outcome)


@app.command(epilog="[bold]Example[/bold]  noiseproof jacobian runs/digits-ce-s0 --examples 300")
def jacobian(
    run: Annotated[Path, typer.Argument(help="The folder of a finished run.")],
    examples: Annotated[int, typer.Option(min=2, help="Training examples to use, at random.")] = 1000,
    k: Annotated[int, typer.Option(min=1, help="Singular values to compute; more if these are all large.")] = 40,
    outputs: Annotated[str, typer.Option(help="all: every class; correct: that of the label.")] = "all",
    calibrate: Annotated[
        bool, typer.Option("--calibrate", help="Initial batch statistics: those of the examples, not 0 and 1.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
) -> None:
    """The singular values of a run's Jacobian, at initialisation and now: a table, and spectrum.png in its folder."""
    from noiseproof.console import console, print_spectrum, reading
    from noiseproof.files import write_atomically
    from noiseproof.rundir import RunDir
    from noiseproof.theory.spectrum import plot_spectrum, spectrum_of_run

    options = RunDir(run).config()["notes"].get("command")
    if not isinstance(options, dict):
        raise InputError(f"the run in {run} was not begun by this command line; call spectrum_of_run(run, data)")
    train, _ = _read(options, quiet)
    with reading(quiet, "Jacobian") as progress:
        found = spectrum_of_run(
            run, train, examples=examples, k=k, outputs=outputs, calibrate=calibrate, progress=progress
        )
    print_spectrum(found)
    picture = run / "spectrum.png"
    spectra = {"at initialisation": found.initial, "now": found.now}
    write_atomically(picture, lambda path: plot_spectrum(spectra, path))
    console.print(f"Wrote [bold]{picture}[/bold]")


def main() -> None:
    """The entry point: a user's mistake, or the machine's refusal, is one sentence and exit code 2."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that cannot show ± should not end a run
    try:
        app()
    except InputError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(2)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        sys.stderr.write(f"error: {where}{error.strerror or error}; check the path, its permissions and the disk\n")
        sys.exit(2)


import noiseproof.cli_pretrain  # noqa: E402, F401  (adds its commands to `app`)

if __name__ == "__main__":
    main()

"""The options of commands that train, made from the settings of `fit` and `pretrain` (training/settings.py).

    @training_command(Fitting, NoisySource, data="digits, or a path: …", epilog=EXAMPLES)
    def fit(options: Options, resume: bool, quiet: bool) -> None: ...

adds an option for each setting that has one. `options` holds their values by name, as given, else of the recipe, else
the default; with --resume, those that the run was begun with.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from noiseproof import checks
from noiseproof.cli.app import app, interruptible
from noiseproof.errors import InputError
from noiseproof.training.setting_checks import count
from noiseproof.training.settings import (
    DATA,
    RUN,
    SAME,
    TRAIN,
    Fitting,
    Pretraining,
    Setting,
    setting,
    settings_of,
)

Options = dict[str, Any]
# what a resumed run may be given anew; more epochs where its schedule allows
UNTOUCHED = ("device", "checkpoint_seconds", "checkpoint_steps", "epochs", "track")
AUDIT = "audit.json"  # what an audit leaves in its folder, as fit leaves config.json
OF_THE_CALL = ("out", "resume", "quiet")
# made absolute: a run may be resumed from another folder
PATHS = ("data", "test", "labels", "true_labels", "decisions", "init", "weights")


def source(help: str, kind: Any = str | None, check: Callable[[str, Any], Any] | None = None) -> Any:
    """A setting that says how to read the data."""
    return setting(None, help, check, panel=DATA, option=kind)


@dataclass(frozen=True, kw_only=True)
class Source:
    """How to read the data."""

    label_column: str | None = source("The column that holds the label.")
    image_column: str | None = source("The column that holds the image.")
    feature_columns: str | None = source(
        "The columns to use as features: a,b,c; by default all but label, true_label, id and a saved index."
    )
    kinds: str | None = source("What columns are if not what they look like: zip:category,joined:date,note:text.")
    image_size: int | None = source("Resize images to this many pixels.", int | None, checks.optional(count))
    limit: int | None = source("Use only so many training examples.", int | None, checks.optional(count))
    test: str | None = source("A test set; by default the source's own, else a fifth of the data.")


@dataclass(frozen=True, kw_only=True)
class NoisySource(Source):
    """And how to replace or corrupt its labels."""

    noise: str | None = source(
        "Corrupt the labels first: symmetric:0.4, asymmetric:0.4, derangement:0.4, pair:0.2, instance:0.3."
    )
    labels: str | None = source(
        "Train on the labels of another file, FILE:COLUMN (.csv, .parquet, CIFAR-N .pt); joined by id where it has any."
    )
    decisions: str | None = source(
        "Take what was reviewed as known: a reviewed run or audit, or a table of id, decision and label; joined by id."
    )
    true_labels: str | None = source("Measure by these labels, which are right: FILE:COLUMN, or own, for the source's.")


def option(help: str, *names: str, panel: str, **more: Any) -> Any:
    """An option with its line and its place in --help."""
    return typer.Option(*names, help=help, rich_help_panel=panel, **more)


RECIPE = Annotated[
    str | None,
    option("A paper's settings; other options win. See: noiseproof recipes.", panel=TRAIN, show_default=False),
]
OUT = Annotated[Path | None, option("The run's folder; by default a new one under runs/.", panel=RUN)]
RESUME = Annotated[bool, option("Continue the run in --out; its options are remembered.", "--resume", panel=RUN)]
QUIET = Annotated[bool, option("No progress.", "--quiet", "-q", panel=RUN)]
FEATURES = Annotated[str | None, option("imagenet: train on a frozen network's features of the images.", panel=DATA)]
JOBS = Annotated[int, option("Processes; they share the cores.", "--jobs", "-j", panel=RUN, min=1, max=1000)]
DATA_OF_RUN = Annotated[
    str | None, typer.Argument(help="Labelled data; by default what the run was begun with.", show_default=False)
]


def parameters(*kinds: type) -> dict[str, inspect.Parameter]:
    """A parameter of a command for each setting of these classes that is an option."""
    found = {}
    for kind in kinds:
        own = inspect.signature(kind).parameters
        for name, one in settings_of(kind).items():
            if one.option is not None:
                default = own[name].default if one.command is SAME else one.command
                found[name] = _parameter(name, _annotated(name, one), str(default) if one.option is str else default)
    return found


def _annotated(name: str, one: Setting) -> Any:
    names = [f"--{name.replace('_', '-')}"] if one.option is bool else []  # no --no-…, which is the default
    return Annotated[one.option, option(one.help, *names, panel=one.panel, metavar=one.metavar)]


def _parameter(name: str, annotation: Any, default: Any = inspect.Parameter.empty) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)


def values(kind: type, options: Options, names: Container[str] | None = None) -> Options:
    """The arguments of a verb: those of its settings that are options, or of these `names`, from the values given."""
    found = {}
    for name, one in settings_of(kind).items():
        if one.option is not None and (names is None or name in names):
            value = options[name]
            found[name] = value if one.parse is None or value is None else one.parse(value)
    return found


def with_options(*kinds: type, without: Sequence[str] = ()) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command options for the settings of these classes, beside its own; it takes them as **keywords."""

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        hints = get_type_hints(function, include_extras=True)
        own = inspect.signature(function).parameters.values()
        kept = [_parameter(one.name, hints[one.name], one.default) for one in own if one.kind is not one.VAR_KEYWORD]

        @wraps(function)
        def command(**given: Any) -> None:
            function(**given)

        added = [one for name, one in parameters(*kinds).items() if name not in without]
        command.__signature__ = inspect.Signature([*kept, *added])  # type: ignore[attr-defined]
        command.__annotations__ = {}
        return command

    return decorate


def training_command(
    kind: type, source_kind: type, *, data: str, epilog: str
) -> Callable[[Callable[[Options, bool, bool], None]], Callable[..., None]]:
    """Make a command of a function of (options, resume, quiet); `data` is the help of its argument."""

    def decorate(run: Callable[[Options, bool, bool], None]) -> Callable[..., None]:
        def command(context: typer.Context, **given: Any) -> None:
            context.params.update({key: anchored(context.params[key]) for key in PATHS if key in context.params})
            options = remembered(context) if given["resume"] else with_recipe(context)
            if options["data"] is None:
                verb = context.command.name
                raise InputError(f"give the data, e.g. noiseproof {verb} photos/ --image-size 64 (see {verb} --help)")
            with interruptible():
                run(options, given["resume"], given["quiet"])

        command.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [
                _parameter("context", typer.Context),
                _parameter("data", Annotated[str | None, typer.Argument(help=data, show_default=False)], None),
                _parameter("recipe", RECIPE, None),
                *parameters(kind, source_kind).values(),
                _parameter("out", OUT, None),
                _parameter("resume", RESUME, False),
                _parameter("quiet", QUIET, False),
            ]
        )
        command.__annotations__ = {}
        return app.command(name=run.__name__, help=run.__doc__, epilog=epilog)(command)

    return decorate


def anchored(source: str | None) -> str | None:
    """A path (or FILE:COLUMN) that holds from any folder, or a name."""
    from noiseproof.data.readers.builtin import BUILTIN

    if source is None or source in BUILTIN:
        return source
    path, colon, column = source.rpartition(":")
    if path and not Path(source).exists():
        return f"{Path(path).absolute()}{colon}{column}" if Path(path).exists() else source
    return str(Path(source).absolute()) if Path(source).exists() else source


def given_by_hand(context: typer.Context) -> Options:
    """The options that stand on the command line."""
    sources = {key: context.get_parameter_source(key) for key in context.params}
    return {
        key: value
        for key, value in context.params.items()
        if (source := sources[key]) is not None and source.name == "COMMANDLINE"
    }


def with_recipe(context: typer.Context) -> Options:
    """The options of the command line; where it gives none, those of its recipe."""
    from noiseproof.recipes import fill

    return fill(dict(context.params), given_by_hand(context), verb=str(context.command.name))


def remembered(context: typer.Context) -> Options:
    """The options a run was begun with; those given again must agree, but for those that do not touch its result."""
    out = context.params["out"]
    if out is None:
        raise InputError("--resume needs the run's folder; add --out runs/NAME")
    saved = saved_command(out)
    if saved is None or not set(context.params) <= {*saved, *OF_THE_CALL}:
        raise InputError(
            f"the run in {out} was not begun by noiseproof {context.command.name}; go on as you began it: "
            "with fit, with pretrain, or in Python with resume=True"
        )
    for key, value in given_by_hand(context).items():
        if key in UNTOUCHED:
            saved[key] = value
        elif key not in OF_THE_CALL and str(saved[key]) != str(value):  # a recipe has numbers for text
            raise InputError(
                f"the run in {out} was begun with {key}={saved[key]!r}, not {value!r}; "
                "drop the option or choose another --out"
            )
    return saved | {"out": out}


def saved_command(run: Path) -> Options | None:
    """The options of the command that began a run, each of the type it has here; None if it was begun in Python.

    Raises:
        InputError: there is no run, or its config.json is damaged.
    """
    from noiseproof.runs.folder import CONFIG, RunFolder
    from noiseproof.runs.structure import mismatch

    path = run / (AUDIT if (run / AUDIT).is_file() and not (run / CONFIG).is_file() else CONFIG)
    saved = _audited(path) if path.name == AUDIT else RunFolder(run).config()["command"]
    kinds: dict[str, list[Any]] = {}  # the verbs differ in some
    for settings in (Fitting, Pretraining, NoisySource):
        for name, one in settings_of(settings).items():
            kinds.setdefault(name, [None]).append(one.option or str)
    for name, value in (saved or {}).items():
        fits = mismatch(value, tuple(kinds.get(name, [object]))) is None and "\0" not in str(value)
        if name not in OF_THE_CALL and not fits:
            raise InputError(f"{path} is damaged: {name} is {str(value)!r:.40}; start afresh in another folder")
    return saved


def _audited(path: Path) -> Options | None:
    """The options of the command that made an audit, those that it does not have as they are by default."""
    from noiseproof import files

    try:
        saved = files.parse_json(path.read_bytes())["command"]
        return None if saved is None else dict.fromkeys(settings_of(NoisySource)) | {"seed": 0} | saved
    except (ValueError, KeyError, TypeError):
        raise InputError(f"{path} is damaged; audit again, into another folder") from None

"""What commands read and where they write: data by its options, the folder of a run, what a run was begun with."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from noiseproof.cli.options import NoisySource, Options, saved_command, values
from noiseproof.errors import InputError
from noiseproof.training.settings import settings_of

if TYPE_CHECKING:
    import numpy as np

    from noiseproof.data import LabeledData
    from noiseproof.method import Method
    from noiseproof.runs.folder import RunFolder


def read(
    options: Options,
    quiet: bool,
    *,
    labeled: bool = True,
    whole: bool = False,
    tested: bool = True,
    decode: bool = True,
) -> tuple[LabeledData, LabeledData | None]:
    """The training set, with the labels, the noise and the decisions asked for, and the test set.

    Without labels there is no test set. `whole`: where the source has no test set of its own, none is split off; and
    without `tested`, none is read. Without `decode`, images stay encoded until they are taken.
    """
    from noiseproof import data as sources
    from noiseproof.data.readers import relabel, texts_of
    from noiseproof.training.progress import counting

    reader: Options = {
        key: options[key] for key in ("label_column", "image_column", "image_size") if options[key] is not None
    }
    if options["feature_columns"] is not None:
        reader["feature_columns"] = [name.strip() for name in options["feature_columns"].split(",")]
    if options.get("kinds") is not None:  # runs of an earlier version have none
        reader["kinds"] = dict(_kind(one) for one in options["kinds"].split(","))
    for name, setting in settings_of(NoisySource).items():
        if setting.check is not None:
            setting.check(f"--{name.replace('_', '-')}", options[name])
    with counting("reading", show=not quiet) as progress:
        reader |= {"decode": decode, "progress": progress}
        if tested:
            train, test = sources.load_pair(options["data"], labeled=labeled, **reader)
        else:
            train, test = sources.load(options["data"], labeled=labeled, **reader), None
        train = train.numbered()
        if tested and options["test"] is not None:
            class_names = train.class_names if train.labeled else None
            test = sources.load(options["test"], class_names=class_names, texts=texts_of(train), **reader)
    if not train.labeled:
        if options["test"] is not None:
            raise InputError(
                f"{options['data']} has no labels to tell those of {options['test']} by; leave --test out, "
                "and probe the finished run with labelled data (noiseproof probe)"
            )
        test = None
    else:
        files = {name: options.get(name) for name in ("labels", "true_labels")}
        rows, rest = (None, None) if whole or test is not None else train.split_rows(0.2, seed=options["seed"])
        everything, train = train, relabel(train, **files, rows=rows)
        if rest is not None:  # a label file need not have labels for them
            test = relabel(everything, **files, rows=rest)
    if options["limit"] is not None:
        train = train.limit(options["limit"], seed=options["seed"])
    if options.get("noise") is not None:
        train = sources.noise.apply(train, options["noise"], seed=options["seed"])
        if test is not None and test.true_labels is None:  # what is corrupted is taken for right before
            test = test.with_labels(test.labels, true_labels=test.labels)
    return (train, test) if options.get("decisions") is None else _decided(options["decisions"], train, test)


def _decided(source: str, train: LabeledData, test: LabeledData | None) -> tuple[LabeledData, LabeledData | None]:
    """Both sets under the labels decided for them, without what was dropped."""
    from noiseproof.data.decisions import apply, decisions_of, ids_of, keys

    decided = decisions_of(source)
    known = ids_of(train) if test is None else [*ids_of(train), *keys(ids_of(test), ids_of(train))]
    if decided.keys().isdisjoint(known):
        raise InputError(
            f"{source} has decisions of other data, as of {next(iter(decided))!r}; pass those of a review of this data"
        )
    return apply(train, decided), None if test is None else apply(test, decided, beside=train)


def reviewed(source: str, data: LabeledData) -> tuple[LabeledData, np.ndarray]:
    """The data under its own labels without what was dropped, and the classes (n,) decided on, −1 elsewhere."""
    from noiseproof.data.decisions import decisions_of, known_labels

    data, known = known_labels(data, decisions_of(source))
    if (known < 0).all():
        raise InputError(f"{source} has decisions of other data; pass those of a review of this data")
    return data, known


def _kind(text: str) -> tuple[str, str]:
    """`zip:category` as its two halves."""
    name, colon, kind = text.rpartition(":")
    if not colon:
        raise InputError(f"--kinds must be COLUMN:KIND, got {text!r}; write e.g. zip:category")
    return name.strip(), kind.strip()


def say_what_was_read(options: Options, train: LabeledData, test: LabeledData | None) -> None:
    """One line on stderr: how many examples of which form, for training and for testing, and the network chosen."""
    from noiseproof import distributed
    from noiseproof.data.labeled import is_table
    from noiseproof.training.setup import choose_model

    shape = " × ".join(map(str, train.input_shape))
    shape = f"images of {shape}" if train.is_image else f"rows of {shape}"
    if is_table(train.inputs):
        shape = f"rows of {len(train.inputs.columns)} columns ({train.input_shape[0]:,} features)"
    text = f"Read {Path(str(options['data'])).name}: {len(train):,} {shape}"
    if train.labeled:
        text += f", {train.num_classes} classes"
    if test is not None:
        text += f"; {len(test):,} to test with" + (f", from {Path(options['test']).name}" if options["test"] else "")
    if distributed.is_main():
        typer.echo(f"{text}. Network: {choose_model(options['model'], train)}.", err=True)


def begin(
    verb: str, kind: type, options: Options, method: Method, resume: bool, quiet: bool, *, labeled: bool = True
) -> Options:
    """The arguments of `fit` or `pretrain`: the folder, the data, of which one line tells, and the settings."""
    given = values(kind, options)
    for name, one in settings_of(kind).items():  # a mistake there is said before the data is read
        if one.check is not None and name in given:
            one.check(name, given[name])
    folder = run_folder(verb, options, method.name, resume)
    train, test = read(options, quiet, labeled=labeled)
    if not quiet:
        say_what_was_read(options, train, test)
    run: Options = {"data": train, "test": test, "out": folder, "resume": resume, "progress": not quiet}
    return run | given | {"method": method}


def run_folder(verb: str, options: Options, method: str, resume: bool) -> RunFolder:
    """The folder of a run of `fit` or `pretrain`: the one asked for, or a new one; free, unless it is resumed."""
    from noiseproof import distributed
    from noiseproof.runs.folder import RunFolder

    distributed.join()  # else nobody knows yet how many there are

    def place() -> Path:
        return Path(options["out"] or fresh("runs", options["data"], f"-{method}-s{options['seed']}"))

    path = distributed.from_main(place)
    world = distributed.world()
    start = "noiseproof" if world == 1 else f"torchrun --nproc-per-node {world} -m noiseproof"
    command = {key: str(value) if isinstance(value, Path) else value for key, value in options.items()}
    hint = f"go on with: {start} {verb} --out {shlex.quote(str(path))} --resume"
    folder = RunFolder(path, command=command, hint=hint)
    folder.writes = distributed.is_main()
    if not resume and not (distributed.restarted() and folder.holds_run()):
        folder.ensure_free()
    else:  # say so before the data is read
        folder.lock()
        folder.unlock()
    return folder


def fresh(under: str, data: str, ending: str = "") -> Path:
    """A folder that is not there yet, named after the data: UNDER/DATA and the ending, numbered if it is taken."""
    base = Path(under) / f"{Path(data).resolve().name.split('.')[0]}{ending}"
    folder, number = base, 1
    while folder.exists():
        number += 1
        folder = base.with_name(f"{base.name}-{number}")
    return folder


def command_of(run: Path) -> Options | None:
    """The options of the command that began a run or made an audit; None if that was done in Python.

    Raises:
        InputError: there is no run.
    """
    if not run.is_dir():
        raise InputError(f"there is no folder {run}; pass that of a finished run")
    return saved_command(run)


def data_of(run: Path, given: Options, verb: str) -> Options:
    """How to read the data: that of the run, or what is given, whose labels, columns and noise are its own."""
    options = command_of(run)
    if given["data"] is not None:
        size, seed = (None, 0) if options is None else (options["image_size"], options["seed"])
        options = dict.fromkeys(given) | {"image_size": size, "seed": seed}
    elif options is None:
        raise InputError(
            f"the run in {run} was not begun by the command line; pass the data: noiseproof {verb} {run} DATA"
        )
    return options | {key: value for key, value in given.items() if value is not None}
